//! What can go wrong while reading something from outside.

use std::path::PathBuf;

/// Why something from outside could not be read.
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
        "\"{}\" has no operator that can be tuned (Conv, Gemm, MatMul, Softmax, a norm, ReduceSum, MaxPool, Transpose, ...); it has: {}",
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
    /// The bytes are not JSON, or miss a field.
    #[error("\"{}\" is not the JSON that was expected", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
    /// The bytes are not TOML.
    #[error("{}:{line}: {problem}; expected TOML with [parameters], or JSON (docs/spaces.md)", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1.
        line: usize,
        /// What the parser says.
        problem: String,
    },
    /// Compressed with gzip, and damaged.
    #[error("\"{}\" cannot be unpacked; it is damaged or cut short", path.display())]
    Gzip {
        /// The file.
        path: PathBuf,
        /// Where unpacking stopped.
        #[source]
        source: std::io::Error,
    },
    /// Compressed with gzip, and large once unpacked.
    #[error("\"{}\" unpacks to more than the {limit} bytes that are read; split it", path.display())]
    UnpacksTooLarge {
        /// The file.
        path: PathBuf,
        /// The largest size that is read.
        limit: u64,
    },
    /// A file that declares no usable space.
    #[error("\"{}\" declares no usable space: {problem}", path.display())]
    Space {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: Box<crate::spaces::SpaceProblem>,
    },
    /// JSON that is no workload suite.
    #[error("\"{}\" {problem}; expected a workload suite such as datasets/workloads/cpu.json", path.display())]
    Suite {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: crate::suite::SuiteProblem,
    },
    /// A header without its table.
    #[error("beside \"{}\" there is neither {}.csv.gz nor {}.csv; put the table there", path.display(), stem, stem)]
    NoTable {
        /// The header.
        path: PathBuf,
        /// Its name without extension.
        stem: String,
    },
    /// A header with two tables, of which one may be that of an earlier recording.
    #[error("beside \"{}\" there are both {stem}.csv.gz and {stem}.csv; remove the one that is not its table", path.display())]
    TwoTables {
        /// The header.
        path: PathBuf,
        /// Its name without extension.
        stem: String,
    },
    /// A file without measurements where a recorded space was expected.
    #[error(
        "\"{}\" {found}; a recorded space is a header with \"format\": \"replay-space/1\" and a table of measurements beside \
         it (docs/spaces.md)",
        path.display()
    )]
    NoMeasurements {
        /// The file.
        path: PathBuf,
        /// What it is, and what that lacks.
        found: &'static str,
    },
    /// The table of a recorded space is no CSV.
    #[error("\"{}\" is not the CSV that was expected", path.display())]
    Csv {
        /// The table.
        path: PathBuf,
        /// Where and why.
        #[source]
        source: csv::Error,
    },
    /// A line of the table of a recorded space is wrong.
    #[error("{}:{line}: {problem}", path.display())]
    Row {
        /// The table.
        path: PathBuf,
        /// Line, counted from 1.
        line: u64,
        /// What is wrong with it.
        problem: Box<crate::recorded::RowProblem>,
    },
    /// The table has not as many rows as its header says.
    #[error("\"{}\" has {rows} rows{}, but its header says {wanted}; it was cut short or belongs to another header",
        path.display(), if *ok { " that are ok" } else { "" })]
    RowCount {
        /// The table.
        path: PathBuf,
        /// Its rows.
        rows: usize,
        /// Those of the header.
        wanted: usize,
        /// Whether the rows that are ok were counted.
        ok: bool,
    },
    /// The rows are no recorded space.
    #[error("\"{}\" cannot be replayed", path.display())]
    Recorded {
        /// The table.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<search_space::RecordedError>,
    },
    /// A recorded space cannot be written.
    #[error("cannot write \"{}\"", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A recorded space would replace the recording of something else.
    #[error("\"{}\" is a recording of {kernel} on {device}; give the new one another name, or remove the old one", path.display())]
    OtherRecording {
        /// The file.
        path: PathBuf,
        /// Its kernel.
        kernel: String,
        /// Its device.
        device: String,
    },
    /// A recorded space would replace something that is no recording, or lie beside an older table.
    #[error("\"{}\" is in the way of a recording; give the recording another name, or remove that file", path.display())]
    InTheWay {
        /// The file.
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
