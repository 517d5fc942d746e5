//! Builds a graph node by node; every method gives the name of the value it defines.

use crate::onnx::proto::{
    AttributeProto, Dimension, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto, attribute_type, data_type,
};

/// A graph under construction.
pub(super) struct Builder {
    graph: GraphProto,
}

/// A list attribute.
pub(super) fn ints(name: &str, ints: &[i64]) -> AttributeProto {
    AttributeProto { name: name.into(), r#type: attribute_type::INTS, ints: ints.to_vec(), ..Default::default() }
}

/// An integer attribute.
pub(super) fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: name.into(), r#type: attribute_type::INT, i, ..Default::default() }
}

fn value_info(name: &str, shape: &[i64]) -> ValueInfoProto {
    let dim = shape.iter().map(|size| DimensionProto { value: Some(Dimension::Value(*size)) }).collect();
    let tensor = TensorTypeProto { elem_type: data_type::FLOAT, shape: Some(TensorShapeProto { dim }) };
    ValueInfoProto { name: name.into(), r#type: Some(TypeProto { tensor_type: Some(tensor) }) }
}

impl Builder {
    /// An empty graph.
    pub(super) fn new(name: &str) -> Builder {
        Builder { graph: GraphProto { name: name.into(), ..Default::default() } }
    }

    /// A float32 input: data or weights.
    pub(super) fn input(&mut self, name: &str, shape: &[i64]) -> String {
        self.graph.input.push(value_info(name, shape));
        name.into()
    }

    /// A constant list of integers.
    pub(super) fn int_list(&mut self, name: &str, list: &[i64]) -> String {
        let dims = vec![i64::try_from(list.len()).expect("invariant: the lists of demo graphs are short")];
        let tensor = TensorProto { dims, data_type: data_type::INT64, int64_data: list.to_vec(), ..Default::default() };
        self.graph.initializer.push(TensorProto { name: name.into(), ..tensor });
        name.into()
    }

    /// A constant number.
    pub(super) fn number(&mut self, name: &str, x: f32) -> String {
        let tensor = TensorProto { data_type: data_type::FLOAT, float_data: vec![x], ..Default::default() };
        self.graph.initializer.push(TensorProto { name: name.into(), ..tensor });
        name.into()
    }

    /// A node with one output; node and output are both called `name`.
    pub(super) fn node(&mut self, op: &str, name: &str, inputs: &[&str], attribute: Vec<AttributeProto>) -> String {
        self.graph.node.push(NodeProto {
            input: inputs.iter().map(|input| (*input).into()).collect(),
            output: vec![name.into()],
            name: name.into(),
            op_type: op.into(),
            attribute,
            domain: String::new(),
        });
        name.into()
    }

    /// The model with one output of this shape.
    pub(super) fn finish(mut self, output: &str, shape: &[i64]) -> ModelProto {
        self.graph.output.push(value_info(output, shape));
        ModelProto {
            ir_version: 8,
            producer_name: "tilewright".into(),
            graph: Some(self.graph),
            opset_import: vec![OperatorSetIdProto { domain: String::new(), version: 17 }],
            functions: vec![],
        }
    }
}
