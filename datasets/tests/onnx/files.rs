//! Files: the wrong ones and the real ones.

use std::path::{Path, PathBuf};

use tilewright_datasets::onnx::{Bindings, MAX_FILE_BYTES, Model, read, read_bytes};
use tilewright_datasets::{DatasetError, demo};

use crate::graph::{Graph, products, value_info};

fn message(path: &Path) -> (DatasetError, String) {
    let error = read(path, &Bindings::new()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&*path.file_name().unwrap().to_string_lossy()), "names the file: {text}");
    assert!(!text.contains('\n'), "one line: {text}");
    (error, text)
}

#[test]
fn files_that_are_no_models_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let whole = demo::encode(&demo::transformer_block());
    assert!(matches!(message(&write("cut.onnx", &whole[..whole.len() / 2])).0, DatasetError::NotOnnx { .. }));
    assert!(matches!(message(&write("text.onnx", b"import onnx\nprint('hello')\n")).0, DatasetError::NotOnnx { .. }));
    assert!(matches!(message(&write("empty.onnx", b"")).0, DatasetError::Empty { .. }));
    assert!(matches!(message(&folder.path().join("missing.onnx")).0, DatasetError::Io { .. }));
    let directory = folder.path().join("directory.onnx");
    std::fs::create_dir(&directory).unwrap();
    let (error, text) = message(&directory);
    assert!(matches!(error, DatasetError::NotAFile { .. }) && text.contains("is a directory"), "{text}");

    let huge = folder.path().join("huge.onnx");
    std::fs::File::create(&huge).unwrap().set_len(MAX_FILE_BYTES + 1).unwrap();
    let (error, text) = message(&huge);
    assert!(matches!(error, DatasetError::TooLarge { .. }) && text.contains("external files"), "{text}");

    let mut twice = Graph::new().input("a", "2 2").node("y", "MatMul", "a a", vec![]);
    twice.proto.node.push(twice.proto.node[0].clone());
    let (_, text) = message(&write("twice.onnx", &demo::encode(&twice.model())));
    assert!(text.contains("value \"y\" is defined twice"), "{text}");
    let mut twice = Graph::new().input("a", "2 2").node("y", "MatMul", "a a", vec![]);
    twice.proto.input.push(value_info("a", 1, &["3"]));
    assert!(message(&write("twice.onnx", &demo::encode(&twice.model()))).1.contains("value \"a\" is defined twice"));

    let idle = Graph::new().input("a", "2").node("b", "Tanh", "a", vec![]).node("c", "Relu", "b", vec![]);
    let (_, text) = message(&write("idle.onnx", &demo::encode(&idle.model())));
    assert!(
        text.contains("no operator that can be tuned (Conv, Gemm, MatMul, Softmax, ")
            && text.contains("it has: Relu, Tanh"),
        "{text}"
    );
    let mut bare = idle.model();
    bare.opset_import.clear();
    assert!(message(&write("bare.onnx", &demo::encode(&bare))).1.contains("imports no operator set"));
    bare.graph = None;
    assert!(message(&write("bare.onnx", &demo::encode(&bare))).1.contains("contains no graph"));
}

/// Real models, which are not part of the repository: `TILEWRIGHT_MODELS`, or `shared/models` beside the repository.
fn model(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("TILEWRIGHT_MODELS")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/models")), PathBuf::from);
    let path = folder.join(name);
    if path.is_file() {
        return Some(path);
    }
    println!("skipped: {} does not exist; set TILEWRIGHT_MODELS to a folder with the real models", path.display());
    None
}

/// Reads a real model without gaps: nothing skipped, no shape that disagrees.
fn whole(name: &str) -> Option<Model> {
    without_gaps_but(name, &[])
}

/// The same of a model in which nodes of these operators are skipped.
fn without_gaps_but(name: &str, operators: &[&str]) -> Option<Model> {
    let found = read(&model(name)?, &Bindings::new()).unwrap();
    assert_eq!(found.skipped.iter().map(|skipped| skipped.op.as_str()).collect::<Vec<_>>(), operators);
    assert_eq!(found.disagreements, []);
    Some(found)
}

/// How many nodes became convolutions and how many became matmuls.
fn counts(model: &Model) -> (u64, u64) {
    let sum = |is_conv: bool| {
        let wanted = products(model).into_iter().filter(|task| (task.workload.operands[0].name == "x") == is_conv);
        wanted.map(|task| task.count).sum()
    };
    (sum(true), sum(false))
}

#[test]
fn light_resnet50() {
    let Some(model) = whole("light_resnet50.onnx") else { return };
    assert_eq!(counts(&model), (53, 1));
    let key = |sugar: &str| search_space::Workload::parse(sugar).unwrap().key();
    let count_of = |sugar: &str| {
        let key = key(sugar);
        model.tasks.iter().find(|task| task.workload.key() == key).map(|task| task.count)
    };
    assert_eq!(count_of("conv2d n=1 c=3 h=224 w=224 k=64 r=7 s=7 stride=2 pad=3 bias=1 relu=1 dtype=f32"), Some(1));
    assert_eq!(count_of("conv2d n=1 c=256 h=14 w=14 k=256 r=3 s=3 pad=1 bias=1 relu=1 dtype=f32"), Some(5));
    assert_eq!(count_of("matmul m=1 n=1000 k=2048 tb=1 bias=1 dtype=f32"), Some(1));
    // Our own graph is the same network: batch normalisation folded by us there, by the reader here.
    let distinct = |model: &Model| -> std::collections::BTreeMap<String, u64> {
        products(model).iter().map(|task| (task.workload.key(), task.count)).collect()
    };
    let own = demo::encode(&demo::resnet50());
    let own = read_bytes("resnet50.onnx".as_ref(), own.into(), &Bindings::new()).unwrap();
    assert_eq!(distinct(&model), distinct(&own));
    assert_eq!(products(&model).len(), 24);
}

#[test]
fn light_squeezenet() {
    let Some(model) = whole("light_squeezenet.onnx") else { return };
    assert_eq!(counts(&model), (26, 0));
}

#[test]
fn light_shufflenet_and_zfnet512() {
    // Means over windows that reach over the border, where the padding does not count.
    let Some(model) = without_gaps_but("light_shufflenet.onnx", &["AveragePool"; 3]) else { return };
    assert_eq!(counts(&model), (49, 1));
    let Some(model) = whole("light_zfnet512.onnx") else { return };
    assert_eq!(counts(&model), (5, 3));
}

#[test]
fn bert_base() {
    let Some(model) = whole("bert_base_seq128.onnx") else { return };
    assert_eq!(counts(&model), (0, 96));
    let shown: Vec<String> =
        products(&model).iter().map(|task| format!("{} x {}", task.count, task.workload.key())).collect();
    let wanted: Vec<String> = [
        (48, "matmul m=128 n=768 k=768 bias=1 dtype=f32"),
        (12, "matmul batch=12 m=128 n=128 k=64 dtype=f32"),
        (12, "matmul batch=12 m=128 n=64 k=128 dtype=f32"),
        (12, "matmul m=128 n=3072 k=768 bias=1 dtype=f32"),
        (12, "matmul m=128 n=768 k=3072 bias=1 dtype=f32"),
    ]
    .iter()
    .map(|(count, sugar)| format!("{count} x {}", search_space::Workload::parse(sugar).unwrap().key()))
    .collect();
    assert_eq!(shown, wanted);
    let of_softmax = model.tasks.iter().filter(|task| task.workload.key().contains("rows.softmax"));
    assert_eq!(of_softmax.map(|task| task.count).sum::<u64>(), 12);
}

#[test]
fn llama_layers() {
    for name in ["llama3_8b_layer_decode.onnx", "llama3_8b_layer_prefill512.onnx"] {
        let Some(model) = whole(name) else { return };
        assert_eq!(counts(&model), (0, 9), "{name}");
    }
}
