//! One block of a transformer encoder of BERT-base size: self-attention and a feed-forward network.
//!
//! After Vaswani et al., "Attention Is All You Need" (2017), with the normalisations before the sublayers and GELU
//! spelled out with `Erf`, as exporters write it.

use super::builder::{Builder, int, ints};
use crate::onnx::proto::ModelProto;

const SEQUENCE: i64 = 128;
const HIDDEN: i64 = 768;
const HEADS: i64 = 12;
const INNER: i64 = 3072;

/// The graph: six matmuls with weights and the two of the attention.
pub fn transformer_block() -> ModelProto {
    let mut graph = Builder::new("transformer_block");
    let value = graph.input("hidden", &[1, SEQUENCE, HIDDEN]);
    let normal = layer_norm(&mut graph, "attention.norm", &value);
    let attended = attention(&mut graph, &normal);
    let value = graph.node("Add", "attention.residual", &[&value, &attended], vec![]);

    let normal = layer_norm(&mut graph, "ffn.norm", &value);
    let inner = linear(&mut graph, "ffn.up", &normal, HIDDEN, INNER);
    let inner = gelu(&mut graph, "ffn.gelu", &inner);
    let outer = linear(&mut graph, "ffn.down", &inner, INNER, HIDDEN);
    let value = graph.node("Add", "ffn.residual", &[&value, &outer], vec![]);
    graph.finish(&value, &[1, SEQUENCE, HIDDEN])
}

/// `softmax(q kᵀ / √d) v` per head, between four projections.
fn attention(graph: &mut Builder, value: &str) -> String {
    let apart = graph.int_list("attention.heads_shape", &[1, SEQUENCE, HEADS, HIDDEN / HEADS]);
    let together = graph.int_list("attention.merged_shape", &[1, SEQUENCE, HIDDEN]);
    // 1 / √64, exact.
    let scale = graph.number("attention.scale", 0.125);
    let mut heads = |name: &str, order: &[i64]| {
        let projected = linear(graph, &format!("attention.{name}"), value, HIDDEN, HIDDEN);
        let split = graph.node("Reshape", &format!("attention.{name}.split"), &[&projected, &apart], vec![]);
        graph.node("Transpose", &format!("attention.{name}.heads"), &[&split], vec![ints("perm", order)])
    };
    let query = heads("query", &[0, 2, 1, 3]);
    let key = heads("key", &[0, 2, 3, 1]);
    let values = heads("value", &[0, 2, 1, 3]);
    let scores = graph.node("MatMul", "attention.scores", &[&query, &key], vec![]);
    let scaled = graph.node("Mul", "attention.scaled", &[&scores, &scale], vec![]);
    let weights = graph.node("Softmax", "attention.softmax", &[&scaled], vec![int("axis", -1)]);
    let mixed = graph.node("MatMul", "attention.context", &[&weights, &values], vec![]);
    let order = vec![ints("perm", &[0, 2, 1, 3])];
    let mixed = graph.node("Transpose", "attention.context.heads", &[&mixed], order);
    let merged = graph.node("Reshape", "attention.merge", &[&mixed, &together], vec![]);
    linear(graph, "attention.output", &merged, HIDDEN, HIDDEN)
}

/// A matmul with weights, and a bias.
fn linear(graph: &mut Builder, name: &str, value: &str, inputs: i64, outputs: i64) -> String {
    let weight = graph.input(&format!("{name}.weight"), &[inputs, outputs]);
    let bias = graph.input(&format!("{name}.bias"), &[outputs]);
    let product = graph.node("MatMul", &format!("{name}.matmul"), &[value, &weight], vec![]);
    graph.node("Add", &format!("{name}.add"), &[&product, &bias], vec![])
}

fn layer_norm(graph: &mut Builder, name: &str, value: &str) -> String {
    let scale = graph.input(&format!("{name}.weight"), &[HIDDEN]);
    let shift = graph.input(&format!("{name}.bias"), &[HIDDEN]);
    graph.node("LayerNormalization", name, &[value, &scale, &shift], vec![int("axis", -1)])
}

/// `x / 2 · (1 + erf(x / √2))`.
fn gelu(graph: &mut Builder, name: &str, value: &str) -> String {
    let root = graph.number(&format!("{name}.sqrt2"), std::f32::consts::SQRT_2);
    let one = graph.number(&format!("{name}.one"), 1.0);
    let half = graph.number(&format!("{name}.half"), 0.5);
    let inner = graph.node("Div", &format!("{name}.div"), &[value, &root], vec![]);
    let inner = graph.node("Erf", &format!("{name}.erf"), &[&inner], vec![]);
    let inner = graph.node("Add", &format!("{name}.add"), &[&inner, &one], vec![]);
    let inner = graph.node("Mul", &format!("{name}.mul"), &[value, &inner], vec![]);
    graph.node("Mul", name, &[&inner, &half], vec![])
}
