//! What can go wrong while reading something from outside.

use std::path::PathBuf;

/// Why a model or a list could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatasetError {
    /// The file cannot be opened or read.
    #[error("cannot read \"{}\"", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A directory, pipe or device where a file was expected.
    #[error("\"{}\" is a {found}, not a file; expected {wanted}", path.display())]
    NotAFile {
        /// What was named.
        path: PathBuf,
        /// What it is.
        found: &'static str,
        /// What was expected.
        wanted: &'static str,
    },
    /// A file of zero bytes.
    #[error("\"{}\" is empty; expected {wanted}", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// What was expected.
        wanted: &'static str,
    },
    /// A file above the size that is read.
    #[error("\"{}\" has {bytes} bytes, more than the {limit} that are read; {advice}", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The largest size that is read.
        limit: u64,
        /// What to do instead.
        advice: &'static str,
    },
    /// The bytes are no ONNX protobuf message.
    #[error("\"{}\" is not an ONNX model, or is cut short", path.display())]
    NotOnnx {
        /// The file.
        path: PathBuf,
        /// Where decoding stopped.
        #[source]
        source: prost::DecodeError,
    },
    /// Decodes, but is no complete, well-formed model.
    #[error("\"{}\" is not a usable ONNX model: {problem}", path.display())]
    InvalidOnnx {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: OnnxProblem,
    },
    /// A well-formed model in which nothing can be tuned.
    #[error(
        "\"{}\" has no operator that can be tuned (Conv, Gemm, MatMul); it has: {}",
        path.display(),
        if operators.is_empty() { "none at all".to_owned() } else { operators.join(", ") }
    )]
    NoSupportedOperator {
        /// The file.
        path: PathBuf,
        /// The operators it has, sorted, each once.
        operators: Vec<String>,
    },
    /// A line of a workload list is wrong.
    #[error("{}:{line}: {problem}", path.display())]
    List {
        /// The list.
        path: PathBuf,
        /// Line, counted from 1.
        line: usize,
        /// What is wrong with it.
        problem: crate::lists::ListProblem,
    },
    /// A workload list that holds comments and blank lines only.
    #[error("\"{}\" lists no workload; write one a line, for example: matmul m=512 n=512 k=512 dtype=f32", path.display())]
    EmptyList {
        /// The list.
        path: PathBuf,
    },
    /// A size given for a symbolic dimension cannot be used.
    #[error("cannot bind \"{text}\": {problem}; write NAME=SIZE, for example batch=1")]
    Binding {
        /// What was given.
        text: String,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// Why a decodable file is no usable model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OnnxProblem {
    /// No graph: a text file or a cut file can decode to this.
    #[error("it contains no graph")]
    NoGraph,
    /// No operator set: every model of IR version 3 and later has one; a cut file may not.
    #[error("it imports no operator set, so it is not complete")]
    NoOperatorSet,
    /// Two definitions of one value.
    #[error("value \"{value}\" is defined twice")]
    DefinedTwice {
        /// Its name.
        value: String,
    },
}
