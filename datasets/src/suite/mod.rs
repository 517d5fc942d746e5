//! Workload suites: named workloads of real models as JSON, with the fields that peers are measured by.
//!
//! ```text
//! {"version": 1, "workloads": [{"name": "mm_512", "op": "matmul", "dtype": "f32",
//!                               "shape": {"M": 512, "N": 512, "K": 512}, "flops": 268435456, "bytes": 3145728}, ..]}
//! ```
//!
//! `op` and the names in `shape` are those of [`Line::sugar`]; `flops` is null where bytes, not arithmetic, are the
//! measure. A line says what is to be computed in words that other systems share, so it may name what cannot be tuned
//! here: then [`Line::workload`] fails, and the other lines are as good as before.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use search_space::Workload;
use search_space::workload::{MathMode, ParseError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::DatasetError;
use crate::file;

/// Largest suite that is read: thousands of lines.
pub const MAX_FILE_BYTES: u64 = 1 << 24;

/// The version that is read.
pub const VERSION: u64 = 1;

/// One named workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Name, unique in its suite.
    pub name: String,
    /// Operation, such as `matmul` or `conv2d`.
    pub op: String,
    /// Element type of the operands: `f32`, `bf16` or `s8`.
    pub dtype: String,
    /// Sizes and the like by name.
    pub shape: Map<String, Value>,
    /// Floating-point operations of one call; `None` where bytes are the measure.
    pub flops: Option<u64>,
    /// Least bytes that one call moves.
    pub bytes: u64,
    /// Where it occurs, for people.
    #[serde(default)]
    pub origin: String,
    /// Element type of the output, where it is not that of the operands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_dtype: Option<String>,
}

#[derive(Deserialize)]
struct Document {
    version: u64,
    workloads: Vec<Line>,
}

/// What is wrong with a suite as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SuiteProblem {
    /// Made for another reader.
    #[error("has version {found}; this program reads version {VERSION}")]
    Version {
        /// Its version.
        found: u64,
    },
    /// Nothing in it.
    #[error("lists no workload")]
    Empty,
    /// A line without a name.
    #[error("has a workload without a name (number {place})")]
    Nameless {
        /// Its place, from 1.
        place: usize,
    },
    /// Two lines of one name.
    #[error("names two workloads {name:?}")]
    NamedTwice {
        /// The name.
        name: String,
    },
}

/// Why a line is no workload that can be tuned here.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LineProblem {
    /// An operation without a text.
    #[error("no workload text is known for operation {op:?}")]
    Operation {
        /// The operation.
        op: String,
    },
    /// A size that is missing, or is no whole number.
    #[error("shape has no whole number {name}")]
    Size {
        /// Its name.
        name: &'static str,
    },
    /// An unknown order of an image's axes.
    #[error("layout {found:?} is not known; known: NCHW, NHWC")]
    Layout {
        /// What stands there.
        found: String,
    },
    /// The text is no workload.
    #[error(transparent)]
    Workload(Box<ParseError>),
}

/// Reads a suite.
///
/// # Errors
/// As [`parse`]; also when the file cannot be read.
pub fn read(path: &Path) -> Result<Vec<Line>, DatasetError> {
    parse(path, &file::read(path, MAX_FILE_BYTES, "a workload suite", "split it into several suites")?)
}

/// Reads a suite in memory; `path` names it in messages.
///
/// # Errors
/// [`DatasetError::Json`], and [`DatasetError::Suite`] for one of another version, without lines, or whose names are
/// not unique.
pub fn parse(path: &Path, text: &[u8]) -> Result<Vec<Line>, DatasetError> {
    let document: Document =
        serde_json::from_slice(text).map_err(|source| DatasetError::Json { path: path.to_owned(), source })?;
    let wrong = |problem| DatasetError::Suite { path: path.to_owned(), problem };
    if document.version != VERSION {
        return Err(wrong(SuiteProblem::Version { found: document.version }));
    }
    if document.workloads.is_empty() {
        return Err(wrong(SuiteProblem::Empty));
    }
    let mut names = BTreeSet::new();
    for (at, line) in document.workloads.iter().enumerate() {
        if line.name.is_empty() {
            return Err(wrong(SuiteProblem::Nameless { place: at + 1 }));
        }
        if !names.insert(&line.name) {
            return Err(wrong(SuiteProblem::NamedTwice { name: line.name.clone() }));
        }
    }
    Ok(document.workloads)
}

impl Line {
    /// Whether a looser mathematics than IEEE's opens other algorithms for this line: convolutions, and whatever takes
    /// exponentials of many elements.
    #[must_use]
    pub fn has_math(&self) -> bool {
        matches!(self.op.as_str(), "conv2d" | "depthwise_conv2d" | "softmax" | "attention")
    }

    /// The workload's text. Weights of convolutions may be laid out as the schedule wants (`free_w=1`), as other systems
    /// that are given them as constants do; `math` counts where [`Line::has_math`] says so.
    ///
    /// # Errors
    /// [`LineProblem::Operation`], [`LineProblem::Size`] and [`LineProblem::Layout`].
    pub fn sugar(&self, math: MathMode) -> Result<String, LineProblem> {
        // Pairs of a name in the text and a name in the shape.
        let (operation, sizes, more): (_, &[(&str, &'static str)], &str) = match self.op.as_str() {
            "matmul" => ("matmul", &[("m", "M"), ("n", "N"), ("k", "K")], ""),
            "batch_matmul" => ("matmul", &[("batch", "B"), ("m", "M"), ("n", "N"), ("k", "K")], ""),
            "conv2d" | "depthwise_conv2d" => (
                "conv2d",
                &[
                    ("n", "N"),
                    ("c", "C"),
                    ("h", "H"),
                    ("w", "W"),
                    ("k", "K"),
                    ("r", "R"),
                    ("s", "S"),
                    ("stride", "stride"),
                    ("pad", "pad"),
                    ("groups", "groups"),
                ],
                " free_w=1",
            ),
            "softmax" => ("softmax", &[("rows", "rows"), ("cols", "cols")], ""),
            "layernorm" => ("layernorm", &[("rows", "rows"), ("cols", "cols")], ""),
            "rmsnorm" => ("rmsnorm", &[("rows", "rows"), ("cols", "cols")], ""),
            "attention" => ("attention", &[("heads", "heads"), ("q", "seq"), ("d", "dim")], ""),
            "reduce_sum" => ("reduce", &[("cols", "n")], " rows=1 op=sum"),
            "transpose" => ("transpose", &[("rows", "rows"), ("cols", "cols")], ""),
            "gelu_tanh" => ("map", &[("n", "n")], " f=gelu_tanh"),
            other => return Err(LineProblem::Operation { op: other.into() }),
        };
        let mut text = operation.to_owned();
        for (name, of_shape) in sizes {
            let size = self.shape.get(*of_shape).and_then(Value::as_u64);
            let size = size.ok_or(LineProblem::Size { name: of_shape })?;
            // Writing to a text does not fail.
            let _ = write!(text, " {name}={size}");
        }
        let dtype = if self.dtype == "s8" { "i8" } else { &self.dtype };
        let _ = write!(text, " dtype={dtype}{more}");
        match self.shape.get("layout").map(|layout| layout.as_str().unwrap_or_default()) {
            None | Some("NCHW") => {}
            Some("NHWC") => text.push_str(" layout=nhwc"),
            Some(other) => return Err(LineProblem::Layout { found: other.into() }),
        }
        if self.has_math() && math != MathMode::Ieee {
            let _ = write!(text, " math={}", math.as_str());
        }
        Ok(text)
    }

    /// The workload.
    ///
    /// # Errors
    /// As [`Line::sugar`], and [`LineProblem::Workload`].
    pub fn workload(&self, math: MathMode) -> Result<Workload, LineProblem> {
        let text = self.sugar(math)?;
        Workload::parse(&text).map_err(|error| LineProblem::Workload(Box::new(error)))
    }
}

#[cfg(test)]
mod tests;
