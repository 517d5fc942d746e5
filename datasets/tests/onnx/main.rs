//! The ONNX reader and the demo graphs, through the public interface.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests stand outside #[test] functions")]

mod demo;
mod extraction;
mod families;
mod files;
mod graph;
mod hostile;
