//! Small graphs for the tests.

use tilewright_datasets::onnx::proto::{
    AttributeProto, Dimension, DimensionProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    TensorProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto, attribute_type, data_type,
};
use tilewright_datasets::onnx::{Bindings, Model, read_bytes};
use tilewright_datasets::{DatasetError, Task};

/// A graph under construction.
#[derive(Clone, Default)]
pub(crate) struct Graph {
    pub(crate) proto: GraphProto,
    pub(crate) functions: Vec<FunctionProto>,
    /// Version of the standard operators, unless it is the usual one.
    pub(crate) operator_set: Option<i64>,
}

/// A declared type; a dimension is a number or a name.
pub(crate) fn value_info(name: &str, elem_type: i32, dims: &[&str]) -> ValueInfoProto {
    let dim = |text: &&str| DimensionProto {
        value: match (text.parse(), *text) {
            (Ok(size), _) => Some(Dimension::Value(size)),
            (_, "?") => None,
            (_, name) => Some(Dimension::Param(name.into())),
        },
    };
    let shape = TensorShapeProto { dim: dims.iter().map(dim).collect() };
    let tensor_type = Some(TensorTypeProto { elem_type, shape: Some(shape) });
    ValueInfoProto { name: name.into(), r#type: Some(TypeProto { tensor_type }) }
}

pub(crate) fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: name.into(), i, r#type: attribute_type::INT, ..Default::default() }
}

pub(crate) fn ints(name: &str, ints: &[i64]) -> AttributeProto {
    AttributeProto { name: name.into(), ints: ints.to_vec(), r#type: attribute_type::INTS, ..Default::default() }
}

pub(crate) fn float(name: &str, f: f32) -> AttributeProto {
    AttributeProto { name: name.into(), f, r#type: attribute_type::FLOAT, ..Default::default() }
}

pub(crate) fn text(name: &str, s: &str) -> AttributeProto {
    AttributeProto { name: name.into(), s: s.into(), r#type: attribute_type::STRING, ..Default::default() }
}

impl Graph {
    pub(crate) fn new() -> Graph {
        Graph::default()
    }

    /// Adds a float32 input; `dims` is split at blanks.
    pub(crate) fn input(self, name: &str, dims: &str) -> Graph {
        self.typed_input(name, data_type::FLOAT, dims)
    }

    pub(crate) fn typed_input(mut self, name: &str, elem_type: i32, dims: &str) -> Graph {
        let dims: Vec<&str> = dims.split_whitespace().collect();
        self.proto.input.push(value_info(name, elem_type, &dims));
        self
    }

    /// Has another version of the standard operators.
    pub(crate) fn of_operator_set(mut self, version: i64) -> Graph {
        self.operator_set = Some(version);
        self
    }

    /// Adds a constant list of integers.
    pub(crate) fn constant(mut self, name: &str, list: &[i64]) -> Graph {
        self.proto.initializer.push(TensorProto {
            name: name.into(),
            dims: vec![list.len() as i64],
            data_type: data_type::INT64,
            int64_data: list.to_vec(),
            ..Default::default()
        });
        self
    }

    /// Adds a node `output = op(inputs)`; names are split at blanks, and `-` is an input left out.
    pub(crate) fn node(mut self, output: &str, op: &str, inputs: &str, attribute: Vec<AttributeProto>) -> Graph {
        let names = |text: &str| text.split_whitespace().map(|name| name.replace('-', "")).collect();
        self.proto.node.push(NodeProto {
            input: names(inputs),
            output: names(output),
            op_type: op.into(),
            attribute,
            ..Default::default()
        });
        self
    }

    /// Adds an output without a type.
    pub(crate) fn output(mut self, name: &str) -> Graph {
        self.proto.output.push(ValueInfoProto { name: name.into(), r#type: None });
        self
    }

    pub(crate) fn model(&self) -> ModelProto {
        ModelProto {
            ir_version: 8,
            graph: Some(self.proto.clone()),
            opset_import: vec![OperatorSetIdProto { domain: String::new(), version: self.operator_set.unwrap_or(17) }],
            functions: self.functions.clone(),
            ..Default::default()
        }
    }

    pub(crate) fn read(&self, bindings: &Bindings) -> Result<Model, DatasetError> {
        let bytes = tilewright_datasets::demo::encode(&self.model());
        read_bytes("test.onnx".as_ref(), bytes.into(), bindings)
    }

    /// The tasks as `count x key`, the skipped nodes as `op: reason`.
    pub(crate) fn found(&self) -> (Vec<String>, Vec<String>) {
        let model = self.read(&Bindings::new()).unwrap();
        let tasks = model.tasks.iter().map(|task| format!("{} x {}", task.count, task.workload.key())).collect();
        (tasks, model.skipped.iter().map(|skipped| format!("{}: {}", skipped.op, skipped.reason)).collect())
    }

    /// Asserts that the graph has exactly these tasks, given as `count x sugar`, and nothing skipped.
    #[track_caller]
    pub(crate) fn has(&self, tasks: &[&str]) {
        let key = |text: &&str| {
            let (count, sugar) = text.split_once(" x ").unwrap();
            format!("{count} x {}", search_space::Workload::parse(sugar).unwrap().key())
        };
        assert_eq!(self.found(), (tasks.iter().map(key).collect(), vec![]));
    }

    /// Asserts that nothing is read, and one node is skipped for a reason that contains `wanted`.
    #[track_caller]
    pub(crate) fn skips(&self, wanted: &str) {
        let (tasks, skipped) = self.found();
        assert!(tasks.is_empty(), "{tasks:?}");
        assert!(skipped.len() == 1 && skipped[0].contains(wanted), "{skipped:?}");
    }
}

/// The tasks of a model that are convolutions and matrix products.
pub(crate) fn products(model: &Model) -> Vec<&Task> {
    model.tasks.iter().filter(|task| task.workload.op == search_space::workload::Op::ContractMadd).collect()
}
