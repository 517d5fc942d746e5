//! From nodes to tuning tasks.
//!
//! A task takes in what follows its node when a kernel can do it in passing ([`fuse`]): a bias, an inference-time
//! batch normalisation behind a convolution, a ReLU. Nodes with equal workloads are one task.

mod conv;
mod fuse;
mod matmul;

use std::collections::BTreeMap;

use search_space::Workload;
use search_space::workload::DType;

use super::Skipped;
use super::graph::Graph;
use super::proto::{FunctionProto, NodeProto, data_type};
use crate::task::{Task, Tasks};

/// What was found in a graph.
pub(super) struct Extracted {
    /// As [`super::Model::tasks`].
    pub(super) tasks: Vec<Task>,
    /// As [`super::Model::skipped`].
    pub(super) skipped: Vec<Skipped>,
    /// As [`super::Model::other_operators`].
    pub(super) other_operators: BTreeMap<String, u64>,
    /// Whether there is any operator that can be read, even if each was skipped.
    pub(super) has_supported: bool,
}

/// A workload and the nodes that became part of it, besides its own.
struct Found {
    workload: Workload,
    fused: Vec<usize>,
}

/// Operators that do the work of a contraction but are not read; worth telling the user one by one.
const NOT_READ: [&str; 15] = [
    "Attention",
    "ConvInteger",
    "ConvTranspose",
    "DeformConv",
    "Einsum",
    "FusedConv",
    "FusedGemm",
    "FusedMatMul",
    "GRU",
    "LSTM",
    "MatMulInteger",
    "MultiHeadAttention",
    "QLinearConv",
    "QLinearMatMul",
    "RNN",
];

/// Reads every node.
pub(super) fn extract(graph: &Graph<'_>, functions: &[FunctionProto]) -> Extracted {
    let mut found =
        Extracted { tasks: Vec::new(), skipped: Vec::new(), other_operators: BTreeMap::new(), has_supported: false };
    let mut tasks = Tasks::default();
    let mut fused = vec![false; graph.nodes.len()];
    for (position, node) in graph.nodes.iter().enumerate() {
        let result = match (node.domain.as_str(), node.op_type.as_str()) {
            ("" | "ai.onnx", "Conv") => conv::read(graph, position),
            ("" | "ai.onnx", "Gemm") => matmul::gemm(graph, position),
            ("" | "ai.onnx", "MatMul") => matmul::matmul(graph, position),
            _ => {
                if let Some(reason) = not_read(node, functions) {
                    found.skipped.push(Skipped { node: label(node), op: node.op_type.clone(), reason });
                } else if !fused[position] {
                    *found.other_operators.entry(node.op_type.clone()).or_default() += 1;
                }
                continue;
            }
        };
        found.has_supported = true;
        match result {
            Ok(Found { workload, fused: also }) => {
                also.into_iter().for_each(|position| fused[position] = true);
                tasks.add(workload, 1, label(node)).expect("invariant: fewer than 2^64 nodes");
            }
            Err(reason) => found.skipped.push(Skipped { node: label(node), op: node.op_type.clone(), reason }),
        }
    }
    found.tasks = tasks.into_vec();
    found
}

/// Why a node that hides work is not read; `None` for one that hides none.
fn not_read(node: &NodeProto, functions: &[FunctionProto]) -> Option<String> {
    let bodies = || node.attribute.iter().flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs));
    if bodies().next().is_some() {
        let nodes: usize = bodies().map(|body| body.node.len()).sum();
        return Some(format!("the {nodes} nodes in its body are not read; unroll or inline it when exporting"));
    }
    if functions.iter().any(|f| f.name == node.op_type && f.domain == node.domain) {
        return Some("it calls a function of the model, which is not read; inline it (onnx.inliner)".to_owned());
    }
    NOT_READ
        .contains(&node.op_type.as_str())
        .then(|| "this operator is not read as a workload; Conv (2-d), Gemm and MatMul are".to_owned())
}

/// The name of a node in reports.
fn label(node: &NodeProto) -> String {
    if node.name.is_empty() {
        format!("{}:{}", node.op_type, node.output.first().map_or("", String::as_str))
    } else {
        node.name.clone()
    }
}

/// The element type that both operands of a node share.
fn common_dtype(graph: &Graph<'_>, node: &NodeProto) -> Result<DType, String> {
    let code = |index: usize| {
        let name = node.input.get(index).map_or("", String::as_str);
        let known = graph.value(name).and_then(|value| value.dtype);
        known.ok_or_else(|| format!("the element type of \"{name}\" is not known"))
    };
    let (left, right) = (code(0)?, code(1)?);
    if left != right {
        return Err(format!("its operands are {} and {}", data_type::name(left), data_type::name(right)));
    }
    match left {
        data_type::FLOAT => Ok(DType::F32),
        data_type::FLOAT16 => Ok(DType::F16),
        data_type::BFLOAT16 => Ok(DType::Bf16),
        data_type::DOUBLE => Ok(DType::F64),
        other => Err(format!("{} operands are not read, only floating-point ones", data_type::name(other))),
    }
}
