//! The demo graphs: networks of realistic shapes, written here, without weights.
//!
//! Weights are graph inputs of known shape, so each file has a few tens of kilobytes. The files in `datasets/models/` are
//! the output of `cargo run -p tilewright-datasets --bin generate-models`; a test compares them byte by byte.

mod builder;
mod resnet50;
mod transformer_block;

use prost::Message;

use crate::onnx::proto::ModelProto;
pub use resnet50::resnet50;
pub use transformer_block::transformer_block;

/// Every demo graph with the name of its file.
pub fn models() -> [(&'static str, ModelProto); 2] {
    [("resnet50.onnx", resnet50()), ("transformer_block.onnx", transformer_block())]
}

/// The bytes of a file.
pub fn encode(model: &ModelProto) -> Vec<u8> {
    model.encode_to_vec()
}
