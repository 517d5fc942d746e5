//! From nodes to tuning tasks.
//!
//! A task takes in what follows its node when a kernel can do it in passing ([`fuse`]): a bias, an inference-time
//! batch normalisation behind a convolution, a ReLU. Nodes with equal workloads are one task. Elementwise nodes alone are
//! none: a compiler puts them into the loops of what stands before or after them.

mod conv;
mod dense;
mod fuse;
mod matmul;
mod reduce;
mod rows;
mod transpose;

use std::collections::BTreeMap;

use search_space::Workload;
use search_space::workload::DType;

use super::Skipped;
use super::call::Call;
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

impl Found {
    /// A node that nothing else became part of.
    fn alone(workload: Workload) -> Option<Found> {
        Some(Found { workload, fused: Vec::new() })
    }
}

/// A node in its graph.
struct Place<'p, 'a> {
    graph: &'p Graph<'a>,
    position: usize,
    /// Version of the standard operators.
    operator_set: i64,
}

impl<'p, 'a> Place<'p, 'a> {
    fn node(&self) -> &'a NodeProto {
        &self.graph.nodes[self.position]
    }

    fn call(&self) -> Call<'p>
    where
        'a: 'p,
    {
        self.graph.call(self.node())
    }
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

/// Reads every node; `operator_set` is the version of the standard operators.
pub(super) fn extract(graph: &Graph<'_>, operator_set: i64, functions: &[FunctionProto]) -> Extracted {
    let mut found =
        Extracted { tasks: Vec::new(), skipped: Vec::new(), other_operators: BTreeMap::new(), has_supported: false };
    let mut tasks = Tasks::default();
    let mut fused = vec![false; graph.nodes.len()];
    for (position, node) in graph.nodes.iter().enumerate() {
        let place = Place { graph, position, operator_set };
        let result = match reader(node).map(|read| read(&place)) {
            // What a compiler computes once, before the model runs, is no work of its own.
            Some(_) if is_constant(graph, node) => Ok(None),
            Some(result) => result,
            None => {
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
            Ok(None) => *found.other_operators.entry(node.op_type.clone()).or_default() += 1,
            Ok(Some(Found { workload, fused: also })) => {
                also.into_iter().for_each(|position| fused[position] = true);
                tasks.add(workload, 1, label(node)).expect("invariant: fewer than 2^64 nodes");
            }
            Err(reason) => found.skipped.push(Skipped { node: label(node), op: node.op_type.clone(), reason }),
        }
    }
    found.tasks = tasks.into_vec();
    found
}

/// What reads the node: a workload, nothing when it has no work, or why it cannot be read.
type Reader = fn(&Place<'_, '_>) -> Result<Option<Found>, String>;

fn reader(node: &NodeProto) -> Option<Reader> {
    if !matches!(node.domain.as_str(), "" | "ai.onnx") {
        return None;
    }
    Some(match node.op_type.as_str() {
        "Conv" => conv::read,
        "Gemm" => matmul::gemm,
        "MatMul" => matmul::matmul,
        "Softmax" | "LogSoftmax" => rows::softmax,
        "LayerNormalization" | "RMSNormalization" => rows::norm,
        "ArgMax" => rows::arg_max,
        "ReduceSum" | "ReduceMean" | "ReduceMax" => reduce::reduce,
        "MaxPool" | "AveragePool" => reduce::pool,
        "GlobalMaxPool" | "GlobalAveragePool" => reduce::global_pool,
        "Transpose" => transpose::read,
        _ => return None,
    })
}

/// Whether all that a node reads is stored in the model, or its result was found by folding constants.
fn is_constant(graph: &Graph<'_>, node: &NodeProto) -> bool {
    let stored = node.input.iter().filter(|name| !name.is_empty()).all(|name| graph.is_stored(name));
    let folded = |name: &String| graph.value(name).is_some_and(|value| value.elements.is_some());
    (stored && !node.input.is_empty()) || node.output.first().is_some_and(folded)
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
    match element_type(left) {
        Some(dtype) if dtype.is_float() => Ok(dtype),
        _ => Err(format!("{} operands are not read, only floating-point ones", data_type::name(left))),
    }
}

/// The element type of an input.
fn dtype_of(graph: &Graph<'_>, node: &NodeProto, index: usize) -> Result<DType, String> {
    let name = node.input.get(index).map_or("", String::as_str);
    let code = graph.value(name).and_then(|value| value.dtype);
    let code = code.ok_or_else(|| format!("the element type of \"{name}\" is not known"))?;
    element_type(code).ok_or_else(|| format!("{} elements are not read", data_type::name(code)))
}

fn element_type(code: i32) -> Option<DType> {
    Some(match code {
        data_type::FLOAT => DType::F32,
        data_type::FLOAT16 => DType::F16,
        data_type::BFLOAT16 => DType::Bf16,
        data_type::DOUBLE => DType::F64,
        data_type::INT8 => DType::I8,
        data_type::UINT8 => DType::U8,
        data_type::INT32 => DType::I32,
        _ => return None,
    })
}
