//! The ONNX protobuf messages, the fields that are read or written here.
//!
//! Written by hand after `onnx.proto` (ONNX 1.17, IR version 10), so that building needs no `protoc`. Unknown fields are
//! skipped by the decoder; nesting is limited to 100 levels by `prost`. Weight bytes ([`TensorProto::raw_data`]) are
//! slices of the input, not copies.

use prost::bytes::Bytes;
use prost::{Message, Oneof};

/// A file.
#[derive(Clone, PartialEq, Message)]
pub struct ModelProto {
    /// Version of the format.
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    /// The program that wrote the file.
    #[prost(string, tag = "2")]
    pub producer_name: String,
    /// The graph.
    #[prost(message, optional, tag = "7")]
    pub graph: Option<GraphProto>,
    /// Operator sets used.
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// Functions that nodes may call.
    #[prost(message, repeated, tag = "25")]
    pub functions: Vec<FunctionProto>,
}

/// An operator set: a domain (`""` is the standard one) and its version.
#[derive(Clone, PartialEq, Message)]
pub struct OperatorSetIdProto {
    /// Domain.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// Version.
    #[prost(int64, tag = "2")]
    pub version: i64,
}

/// A function of the model; only its name is read.
#[derive(Clone, PartialEq, Message)]
pub struct FunctionProto {
    /// Operator name under which nodes call it.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Domain under which nodes call it.
    #[prost(string, tag = "10")]
    pub domain: String,
}

/// Nodes in topological order, and the values between them.
#[derive(Clone, PartialEq, Message)]
pub struct GraphProto {
    /// Nodes, producers before consumers.
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeProto>,
    /// Name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Constants.
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<TensorProto>,
    /// Inputs; in old files the initializers are listed here too.
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfoProto>,
    /// Outputs.
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfoProto>,
    /// Declared types of values in between; optional and not trusted.
    #[prost(message, repeated, tag = "13")]
    pub value_info: Vec<ValueInfoProto>,
    /// Sparse constants.
    #[prost(message, repeated, tag = "15")]
    pub sparse_initializer: Vec<SparseTensorProto>,
}

/// One application of an operator.
#[derive(Clone, PartialEq, Message)]
pub struct NodeProto {
    /// Names of the inputs; `""` is an optional input left out.
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    /// Names of the outputs; `""` is an optional output left out.
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    /// Name; may be empty.
    #[prost(string, tag = "3")]
    pub name: String,
    /// Operator.
    #[prost(string, tag = "4")]
    pub op_type: String,
    /// Attributes.
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<AttributeProto>,
    /// Domain of the operator.
    #[prost(string, tag = "7")]
    pub domain: String,
}

/// A named constant argument of a node.
#[derive(Clone, PartialEq, Message)]
pub struct AttributeProto {
    /// Name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Value of type FLOAT.
    #[prost(float, tag = "2")]
    pub f: f32,
    /// Value of type INT.
    #[prost(int64, tag = "3")]
    pub i: i64,
    /// Value of type STRING.
    #[prost(bytes = "vec", tag = "4")]
    pub s: Vec<u8>,
    /// Value of type TENSOR.
    #[prost(message, optional, tag = "5")]
    pub t: Option<TensorProto>,
    /// Value of type GRAPH.
    #[prost(message, optional, tag = "6")]
    pub g: Option<GraphProto>,
    /// Value of type FLOATS.
    #[prost(float, repeated, packed = "false", tag = "7")]
    pub floats: Vec<f32>,
    /// Value of type INTS.
    #[prost(int64, repeated, packed = "false", tag = "8")]
    pub ints: Vec<i64>,
    /// Value of type GRAPHS.
    #[prost(message, repeated, tag = "11")]
    pub graphs: Vec<GraphProto>,
    /// Which of the values is meant, see [`attribute_type`]; 0 in very old files.
    #[prost(int32, tag = "20")]
    pub r#type: i32,
}

/// Values of [`AttributeProto::type`].
pub mod attribute_type {
    /// `f`.
    pub const FLOAT: i32 = 1;
    /// `i`.
    pub const INT: i32 = 2;
    /// `s`.
    pub const STRING: i32 = 3;
    /// `t`.
    pub const TENSOR: i32 = 4;
    /// `floats`.
    pub const FLOATS: i32 = 6;
    /// `ints`.
    pub const INTS: i32 = 7;
}

/// A constant tensor, row-major.
#[derive(Clone, PartialEq, Message)]
pub struct TensorProto {
    /// Shape.
    #[prost(int64, repeated, packed = "false", tag = "1")]
    pub dims: Vec<i64>,
    /// Element type, see [`data_type`].
    #[prost(int32, tag = "2")]
    pub data_type: i32,
    /// FLOAT elements.
    #[prost(float, repeated, tag = "4")]
    pub float_data: Vec<f32>,
    /// INT32 and narrower elements.
    #[prost(int32, repeated, tag = "5")]
    pub int32_data: Vec<i32>,
    /// INT64 elements.
    #[prost(int64, repeated, tag = "7")]
    pub int64_data: Vec<i64>,
    /// Name.
    #[prost(string, tag = "8")]
    pub name: String,
    /// Elements, little-endian, instead of the lists.
    #[prost(bytes = "bytes", tag = "9")]
    pub raw_data: Bytes,
    /// DOUBLE elements.
    #[prost(double, repeated, tag = "10")]
    pub double_data: Vec<f64>,
    /// 1: the elements are in another file.
    #[prost(int32, tag = "14")]
    pub data_location: i32,
}

/// Values of [`TensorProto::data_type`] and [`TensorTypeProto::elem_type`].
pub mod data_type {
    /// IEEE binary32.
    pub const FLOAT: i32 = 1;
    /// Unsigned 8-bit integer.
    pub const UINT8: i32 = 2;
    /// Signed 8-bit integer.
    pub const INT8: i32 = 3;
    /// Unsigned 16-bit integer.
    pub const UINT16: i32 = 4;
    /// Signed 16-bit integer.
    pub const INT16: i32 = 5;
    /// Signed 32-bit integer.
    pub const INT32: i32 = 6;
    /// Signed 64-bit integer.
    pub const INT64: i32 = 7;
    /// Boolean.
    pub const BOOL: i32 = 9;
    /// IEEE binary16.
    pub const FLOAT16: i32 = 10;
    /// IEEE binary64.
    pub const DOUBLE: i32 = 11;
    /// Unsigned 32-bit integer.
    pub const UINT32: i32 = 12;
    /// Unsigned 64-bit integer.
    pub const UINT64: i32 = 13;
    /// bfloat16.
    pub const BFLOAT16: i32 = 16;

    /// The name that messages use.
    pub fn name(code: i32) -> String {
        match code {
            FLOAT => "float32".to_owned(),
            UINT8 => "uint8".to_owned(),
            INT8 => "int8".to_owned(),
            UINT16 => "uint16".to_owned(),
            INT16 => "int16".to_owned(),
            INT32 => "int32".to_owned(),
            INT64 => "int64".to_owned(),
            BOOL => "bool".to_owned(),
            FLOAT16 => "float16".to_owned(),
            DOUBLE => "float64".to_owned(),
            UINT32 => "uint32".to_owned(),
            UINT64 => "uint64".to_owned(),
            BFLOAT16 => "bfloat16".to_owned(),
            other => format!("ONNX element type {other}"),
        }
    }
}

/// A sparse constant; only shape and name are read.
#[derive(Clone, PartialEq, Message)]
pub struct SparseTensorProto {
    /// The non-zero elements; their name is the constant's name.
    #[prost(message, optional, tag = "1")]
    pub values: Option<TensorProto>,
    /// Shape of the dense tensor.
    #[prost(int64, repeated, packed = "false", tag = "3")]
    pub dims: Vec<i64>,
}

/// The declared type of a value.
#[derive(Clone, PartialEq, Message)]
pub struct ValueInfoProto {
    /// The value.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its type.
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<TypeProto>,
}

/// A type; only tensors are read.
#[derive(Clone, PartialEq, Message)]
pub struct TypeProto {
    /// Set for tensors, absent for sequences, maps and optionals.
    #[prost(message, optional, tag = "1")]
    pub tensor_type: Option<TensorTypeProto>,
}

/// Element type and shape.
#[derive(Clone, PartialEq, Message)]
pub struct TensorTypeProto {
    /// Element type, see [`data_type`].
    #[prost(int32, tag = "1")]
    pub elem_type: i32,
    /// Absent: not even the rank is known.
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShapeProto>,
}

/// A shape.
#[derive(Clone, PartialEq, Message)]
pub struct TensorShapeProto {
    /// Dimensions, outermost first.
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<DimensionProto>,
}

/// A dimension.
#[derive(Clone, PartialEq, Message)]
pub struct DimensionProto {
    /// Size or name; absent: unknown.
    #[prost(oneof = "Dimension", tags = "1, 2")]
    pub value: Option<Dimension>,
}

/// A size or a name.
#[derive(Clone, PartialEq, Oneof)]
pub enum Dimension {
    /// Size.
    #[prost(int64, tag = "1")]
    Value(i64),
    /// Name of a size that is known at run time only.
    #[prost(string, tag = "2")]
    Param(String),
}
