//! From an ONNX file to the workloads in it.
//!
//! [`read`] decodes the file ([`proto`]), infers every shape (`infer`), and turns convolutions, matrix products, row passes,
//! reductions, pooling and transpositions into [`Task`]s (`extract`). Weights are not looked at, so models without them do as well.
//!
//! ```no_run
//! use tilewright_datasets::onnx::{self, Bindings};
//! let model = onnx::read("resnet50.onnx".as_ref(), &Bindings::new())?;
//! for task in &model.tasks {
//!     println!("{} x {}", task.count, task.workload.key());
//! }
//! # Ok::<(), tilewright_datasets::DatasetError>(())
//! ```

mod bindings;
mod call;
mod extract;
mod graph;
mod infer;
pub mod proto;
mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use prost::Message;
use prost::bytes::Bytes;

use crate::error::{DatasetError, OnnxProblem};
use crate::file;
use crate::task::Task;
pub use bindings::Bindings;

/// Largest file that is read: the limit of protobuf itself. Larger models keep their weights in other files.
pub const MAX_FILE_BYTES: u64 = 1 << 31;

/// What a model asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Name of the graph, or of the file when the graph has none.
    pub name: String,
    /// Distinct workloads, in the order of their first nodes.
    pub tasks: Vec<Task>,
    /// Nodes that compute what a tuner could tune, but cannot be read as a workload.
    pub skipped: Vec<Skipped>,
    /// How often each other operator occurs, without the nodes that became part of a task.
    pub other_operators: BTreeMap<String, u64>,
    /// Where the file declares another shape than follows from the graph; the inferred one is used.
    pub disagreements: Vec<Disagreement>,
    /// Bindings that name no dimension of the model.
    pub unused_bindings: Vec<String>,
}

/// A node that was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The node, named as in [`Task::names`].
    pub node: String,
    /// Its operator.
    pub op: String,
    /// Why, and where possible what to do about it.
    pub reason: String,
}

/// A declared shape that is not the inferred one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// The value.
    pub value: String,
    /// Shape that follows from the graph, as `[1, 64, 56, 56]`.
    pub inferred: String,
    /// Shape in the file; dimensions may have names.
    pub declared: String,
}

/// Reads the workloads of an ONNX file.
///
/// # Errors
///
/// [`DatasetError::Io`], [`DatasetError::NotAFile`], [`DatasetError::Empty`] and [`DatasetError::TooLarge`] for the file
/// itself, and the errors of [`read_bytes`].
pub fn read(path: &Path, bindings: &Bindings) -> Result<Model, DatasetError> {
    let advice = "export the model with its weights in external files (onnx.save with save_as_external_data)";
    let bytes = file::read(path, MAX_FILE_BYTES, "an ONNX model", advice)?;
    read_bytes(path, bytes.into(), bindings)
}

/// Reads the workloads of an ONNX model in memory; `path` is for messages only.
///
/// # Errors
///
/// [`DatasetError::NotOnnx`] and [`DatasetError::InvalidOnnx`] for bytes that are no model,
/// [`DatasetError::NoSupportedOperator`] for a model in which no operator is of a kind that is read.
pub fn read_bytes(path: &Path, bytes: Bytes, bindings: &Bindings) -> Result<Model, DatasetError> {
    let path_buf = || PathBuf::from(path);
    let invalid = |problem| DatasetError::InvalidOnnx { path: path_buf(), problem };
    let model =
        proto::ModelProto::decode(bytes).map_err(|source| DatasetError::NotOnnx { path: path_buf(), source })?;
    let proto = model.graph.as_ref().ok_or_else(|| invalid(OnnxProblem::NoGraph))?;
    if model.opset_import.is_empty() {
        return Err(invalid(OnnxProblem::NoOperatorSet));
    }
    let graph = graph::Graph::new(proto, bindings).map_err(invalid)?;
    let standard = model.opset_import.iter().filter(|set| matches!(set.domain.as_str(), "" | "ai.onnx"));
    // Without standard operators their version does not matter.
    let operator_set = standard.map(|set| set.version).max().unwrap_or(i64::MAX);
    let found = extract::extract(&graph, operator_set, &model.functions);
    if !found.has_supported {
        let operators: BTreeSet<&str> = proto.node.iter().map(|node| node.op_type.as_str()).collect();
        let operators = operators.into_iter().map(str::to_owned).collect();
        return Err(DatasetError::NoSupportedOperator { path: path_buf(), operators });
    }
    let stem = || path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(Model {
        name: if proto.name.is_empty() { stem() } else { proto.name.clone() },
        tasks: found.tasks,
        skipped: found.skipped,
        other_operators: found.other_operators,
        disagreements: graph.disagreements,
        unused_bindings: unused(bindings, proto),
    })
}

/// Names in `bindings` that fit no dimension of the graph.
fn unused(bindings: &Bindings, graph: &proto::GraphProto) -> Vec<String> {
    let mut known = BTreeSet::new();
    for info in graph.input.iter().chain(&graph.output).chain(&graph.value_info) {
        let tensor = info.r#type.as_ref().and_then(|found| found.tensor_type.as_ref());
        for (axis, dim) in tensor.and_then(|tensor| tensor.shape.as_ref()).iter().flat_map(|s| s.dim.iter().enumerate())
        {
            match &dim.value {
                Some(proto::Dimension::Param(param)) if !param.is_empty() => known.insert(param.clone()),
                Some(proto::Dimension::Value(size)) if *size > 0 => false,
                _ => known.insert(format!("{}.{axis}", info.name)),
            };
        }
    }
    bindings.iter().map(|(name, _)| name.to_owned()).filter(|name| !known.contains(name)).collect()
}

/// `[a, b, c]`.
fn format_shape(dims: impl Iterator<Item = impl ToString>) -> String {
    format!("[{}]", dims.map(|dim| dim.to_string()).collect::<Vec<_>>().join(", "))
}
