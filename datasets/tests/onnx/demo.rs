//! The demo graphs are what the repository holds, and what they claim to be.

use std::path::PathBuf;

use tilewright_datasets::demo;
use tilewright_datasets::onnx::{Bindings, Model, read_bytes};

use crate::graph::products;

fn model(name: &str) -> Model {
    let (_, proto) = demo::models().into_iter().find(|(found, _)| *found == name).unwrap();
    let model = read_bytes(name.as_ref(), demo::encode(&proto).into(), &Bindings::new()).unwrap();
    assert_eq!((model.skipped.len(), model.disagreements.len()), (0, 0));
    model
}

#[test]
fn the_committed_files_are_what_the_generator_writes() {
    for (name, proto) in demo::models() {
        let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/models")).join(name);
        let committed = std::fs::read(&path).unwrap();
        let fresh = demo::encode(&proto);
        assert!(committed == fresh, "{name} is stale; run: cargo run -p tilewright-datasets --bin generate-models");
        assert!(fresh.len() < 100_000, "{name} has {} bytes", fresh.len());
    }
}

#[test]
fn resnet50_has_its_published_size() {
    let model = model("resnet50.onnx");
    let products = products(&model);
    let nodes: u64 = products.iter().map(|task| task.count).sum();
    assert_eq!((nodes, products.len()), (54, 24));
    // 4.09 G multiply-adds is the figure that torchvision gives for its ResNet-50.
    let flops: u64 = products.iter().map(|task| task.count * task.workload.flops()).sum();
    assert_eq!(flops / 2 / 10_000_000, 408);
    // And a pool at each end.
    let key = |sugar: &str| search_space::Workload::parse(sugar).unwrap().key();
    let rest: Vec<String> =
        model.tasks.iter().map(|task| task.workload.key()).filter(|key| !key.contains("contract.madd")).collect();
    let first = key("maxpool n=1 c=64 h=112 w=112 r=3 s=3 stride=2 pad=1 dtype=f32");
    assert_eq!(rest, [first, key("reduce rows=2048 cols=49 op=mean dtype=f32")]);
}

#[test]
fn transformer_block_has_eight_matmuls_and_what_stands_between() {
    let model = model("transformer_block.onnx");
    let found: Vec<String> =
        model.tasks.iter().map(|task| format!("{} x {}", task.count, task.workload.key())).collect();
    let wanted = [
        (2, "layernorm rows=128 cols=768 dtype=f32"),
        (4, "matmul m=128 n=768 k=768 bias=1 dtype=f32"),
        (1, "matmul batch=12 m=128 n=128 k=64 dtype=f32"),
        (1, "softmax rows=1536 cols=128 dtype=f32"),
        (1, "matmul batch=12 m=128 n=64 k=128 dtype=f32"),
        (1, "matmul m=128 n=3072 k=768 bias=1 dtype=f32"),
        (1, "matmul m=128 n=768 k=3072 bias=1 dtype=f32"),
    ];
    let wanted =
        wanted.map(|(count, sugar)| format!("{count} x {}", search_space::Workload::parse(sugar).unwrap().key()));
    // The heads of queries, values and keys, and back.
    let (turned, rest): (Vec<String>, Vec<String>) = found.into_iter().partition(|text| text.contains("tw1;map;"));
    assert_eq!(rest, wanted);
    assert_eq!(turned.iter().map(|text| &text[..1]).collect::<Vec<_>>(), ["2", "1", "1"]);
}
