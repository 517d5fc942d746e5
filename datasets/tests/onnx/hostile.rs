//! Broken and hostile bytes: an answer in bounded time, never a panic.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tilewright_datasets::onnx::proto::{AttributeProto, GraphProto, NodeProto};
use tilewright_datasets::onnx::{Bindings, read_bytes};
use tilewright_datasets::{demo, lists};

use crate::graph::{Graph, int, ints};

/// Far above what any of these files takes (milliseconds), far below what an endless loop would.
const LIMIT: Duration = Duration::from_secs(20);

fn is_read(bytes: &[u8]) -> bool {
    let begin = Instant::now();
    let ok = read_bytes("x.onnx".as_ref(), bytes.to_vec().into(), &Bindings::new()).is_ok();
    assert!(begin.elapsed() < LIMIT, "took {:?}", begin.elapsed());
    ok
}

#[test]
fn every_truncation_is_refused() {
    for (name, proto) in demo::models() {
        let whole = demo::encode(&proto);
        assert!(is_read(&whole));
        let step = (whole.len() / 500).max(1);
        for end in (0..whole.len()).step_by(step).chain(whole.len().saturating_sub(32)..whole.len()) {
            assert!(!is_read(&whole[..end]), "{name} cut to {end} bytes");
        }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn random_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        is_read(&bytes);
        let _ = lists::parse("x.txt".as_ref(), &bytes);
    }

    #[test]
    fn mutations_do_not_panic(which in 0usize..2, edits in prop::collection::vec((any::<usize>(), any::<u8>()), 1..20)) {
        let mut bytes = demo::encode(&demo::models()[which].1);
        for (at, byte) in edits {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        is_read(&bytes);
    }

    /// Well-formed files with random numbers: these get past the decoder.
    #[test]
    fn random_graphs_do_not_panic(
        ops in prop::collection::vec((0..OPS.len(), 0usize..5, 0usize..5, extreme(), prop::collection::vec(extreme(), 0..6)), 1..12),
        dims in prop::collection::vec(1u64..5, 0..5),
        list in prop::collection::vec(extreme(), 0..5),
    ) {
        let dims: Vec<String> = dims.iter().map(u64::to_string).collect();
        let mut graph = Graph::new().input("v0", &dims.join(" ")).input("v1", "3 4").input("v2", "1 4 8 8");
        graph = graph.constant("v3", &list).constant("v4", &[1, -1]);
        for (position, (op, left, right, number, numbers)) in ops.into_iter().enumerate() {
            let latest = |back: usize| (position + 4).saturating_sub(back);
            let names = ["axis", "axes", "perm", "pads", "strides", "dilations", "kernel_shape", "shape"];
            let mut attributes: Vec<AttributeProto> = names[1..].iter().map(|name| ints(name, &numbers)).collect();
            attributes.truncate(numbers.len());
            attributes.push(int("axis", number));
            let inputs = format!("v{} v{}", latest(left), latest(right));
            graph = graph.node(&format!("v{}", position + 5), OPS[op], &inputs, attributes);
        }
        is_read(&demo::encode(&graph.model()));
    }
}

/// The same cases in every run.
fn config() -> ProptestConfig {
    ProptestConfig { cases: 400, rng_seed: RngSeed::Fixed(20), failure_persistence: None, ..ProptestConfig::default() }
}

const OPS: [&str; 34] = [
    "Add",
    "Mul",
    "Div",
    "Mod",
    "Where",
    "MatMul",
    "Gemm",
    "Conv",
    "ConvTranspose",
    "MaxPool",
    "Reshape",
    "Flatten",
    "Transpose",
    "Squeeze",
    "Unsqueeze",
    "Concat",
    "Split",
    "Slice",
    "Gather",
    "Expand",
    "Tile",
    "Pad",
    "ReduceSum",
    "ArgMax",
    "TopK",
    "OneHot",
    "Shape",
    "Size",
    "ConstantOfShape",
    "Range",
    "Resize",
    "DepthToSpace",
    "Neg",
    "Cast",
];

fn extreme() -> impl Strategy<Value = i64> {
    prop_oneof![-3i64..6, Just(i64::MIN), Just(i64::MAX), any::<i64>()]
}

#[test]
fn deep_nesting_is_refused() {
    let mut body = GraphProto::default();
    for _ in 0..2000 {
        let attribute = AttributeProto { name: "body".into(), g: Some(body), ..Default::default() };
        let node = NodeProto { op_type: "If".into(), attribute: vec![attribute], ..Default::default() };
        body = GraphProto { node: vec![node], ..Default::default() };
    }
    let mut graph = Graph::new();
    graph.proto = body;
    // Encoding and dropping 2000 levels need more stack than a test thread has.
    let bytes = std::thread::Builder::new()
        .stack_size(256 << 20)
        .spawn(move || demo::encode(&graph.model()))
        .unwrap()
        .join()
        .unwrap();
    assert!(!is_read(&bytes));
}

/// Twenty thousand nodes that each complain about a long constant: the reasons stay short, the work linear.
#[test]
fn long_chains_end() {
    let mut graph = Graph::new().constant("v0", &[7; 256]).input("a", "2 2").node("y", "MatMul", "a a", vec![]);
    for i in 0..20_000 {
        graph = graph.node(&format!("v{}", i + 1), "Reshape", "a v0", vec![]);
    }
    assert!(is_read(&demo::encode(&graph.model())));
}
