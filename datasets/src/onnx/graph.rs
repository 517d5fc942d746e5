//! The graph with everything that inference finds out: value shapes, who defines a value, who uses it.

use std::collections::{HashMap, HashSet};

use super::bindings::Bindings;
use super::call::Call;
use super::infer::infer;
use super::proto::{Dimension, GraphProto, NodeProto, TensorTypeProto, ValueInfoProto};
use super::value::{Unknown, Value};
use super::{Disagreement, format_shape};
use crate::error::OnnxProblem;

/// Who uses a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Uses {
    /// One input of one node, by position.
    Once(usize),
    /// More than that, or a graph output, or a body of control flow.
    Otherwise,
}

/// A graph whose shapes are inferred as far as they can be.
pub(crate) struct Graph<'a> {
    /// Nodes, producers before consumers.
    pub(crate) nodes: &'a [NodeProto],
    /// Where the declared shapes differ from the inferred ones.
    pub(crate) disagreements: Vec<Disagreement>,
    // Maps are only looked up by name, never iterated: their order reaches no output.
    values: HashMap<&'a str, Value>,
    defined_at: HashMap<&'a str, usize>,
    uses: HashMap<&'a str, Uses>,
    stored: HashSet<&'a str>,
}

impl<'a> Graph<'a> {
    /// Infers all shapes of `graph`.
    ///
    /// # Errors
    ///
    /// [`OnnxProblem::DefinedTwice`] when two definitions share a name.
    pub(crate) fn new(graph: &'a GraphProto, bindings: &Bindings) -> Result<Graph<'a>, OnnxProblem> {
        let mut this = Graph {
            nodes: &graph.node,
            disagreements: Vec::new(),
            values: HashMap::new(),
            defined_at: HashMap::new(),
            uses: HashMap::new(),
            stored: HashSet::new(),
        };
        for tensor in &graph.initializer {
            this.define(&tensor.name, 0, Value::constant(tensor))?;
        }
        for sparse in &graph.sparse_initializer {
            let Some(values) = &sparse.values else { continue };
            let dims: Option<Vec<u64>> = sparse.dims.iter().map(|dim| u64::try_from(*dim).ok()).collect();
            this.define(&values.name, 0, Value::new(Some(values.data_type), dims.unwrap_or_default()))?;
        }
        let constants = this.defined_at.clone();
        this.stored = constants.keys().copied().collect();
        for input in &graph.input {
            // Before IR version 4 every initializer is also an input.
            if !constants.contains_key(input.name.as_str()) {
                let value = match tensor_type(input) {
                    Some(tensor) => Value::declared(&input.name, tensor, bindings),
                    None => Value::unknown(None, Unknown::because(format!("input \"{}\" is no tensor", input.name))),
                };
                this.define(&input.name, 0, value)?;
            }
        }
        this.count_uses(graph);
        this.infer_all(graph, bindings)?;
        Ok(this)
    }

    fn define(&mut self, name: &'a str, at: usize, value: Value) -> Result<(), OnnxProblem> {
        if self.defined_at.insert(name, at).is_some() {
            return Err(OnnxProblem::DefinedTwice { value: name.to_owned() });
        }
        self.values.insert(name, value);
        Ok(())
    }

    fn count_uses(&mut self, graph: &'a GraphProto) {
        for (position, node) in graph.node.iter().enumerate() {
            for name in node.input.iter().filter(|name| !name.is_empty()) {
                self.uses.entry(name).and_modify(|uses| *uses = Uses::Otherwise).or_insert(Uses::Once(position));
            }
            for attribute in &node.attribute {
                attribute.g.iter().chain(&attribute.graphs).for_each(|body| self.use_in_body(body));
            }
        }
        for output in &graph.output {
            self.uses.insert(&output.name, Uses::Otherwise);
        }
    }

    /// A body may use any value of the graphs around it. The decoder limits how deep bodies nest.
    fn use_in_body(&mut self, body: &'a GraphProto) {
        let outputs = body.output.iter().map(|output| output.name.as_str());
        for name in outputs.chain(body.node.iter().flat_map(|node| node.input.iter().map(String::as_str))) {
            self.uses.insert(name, Uses::Otherwise);
        }
        for attribute in body.node.iter().flat_map(|node| &node.attribute) {
            attribute.g.iter().chain(&attribute.graphs).for_each(|inner| self.use_in_body(inner));
        }
    }

    fn infer_all(&mut self, graph: &'a GraphProto, bindings: &Bindings) -> Result<(), OnnxProblem> {
        let declared: HashMap<&str, &TensorTypeProto> = graph
            .value_info
            .iter()
            .chain(&graph.output)
            .filter_map(|info| Some((info.name.as_str(), tensor_type(info)?)))
            .collect();
        for (position, node) in graph.node.iter().enumerate() {
            for name in node.input.iter().filter(|name| !name.is_empty()) {
                self.values.entry(name).or_insert_with(|| {
                    Value::unknown(None, Unknown::because(format!("\"{name}\" is used before anything defines it")))
                });
            }
            let call = self.call(node);
            let input_known = call.inputs.iter().flatten().all(|value| value.shape.is_ok());
            let mut inferred = infer(&call).map(Vec::into_iter);
            for name in &node.output {
                let found = match &mut inferred {
                    Ok(values) => values.next().ok_or_else(|| {
                        Unknown::because(format!("further outputs of {} are not followed", node.op_type))
                    }),
                    Err(why) => Err(why.clone()),
                };
                if name.is_empty() {
                    continue;
                }
                let value = match declared.get(name.as_str()) {
                    Some(tensor) => self.reconciled(name, found, tensor, bindings, input_known),
                    None => found.unwrap_or_else(|why| Value::unknown(None, why)),
                };
                self.define(name, position + 1, value)?;
            }
        }
        Ok(())
    }

    /// Inference goes first; the declaration fills its gaps.
    fn reconciled(
        &mut self,
        name: &str,
        found: Result<Value, Unknown>,
        tensor: &TensorTypeProto,
        bindings: &Bindings,
        input_known: bool,
    ) -> Value {
        let declared = Value::declared(name, tensor, bindings);
        let mut value = match found {
            Ok(value) => value,
            // An operator that is not followed: what the declaration lacks is the better reason.
            Err(_) if declared.shape.is_ok() || input_known => return declared,
            Err(why) => return Value::unknown(declared.dtype, why),
        };
        value.dtype = value.dtype.or(declared.dtype);
        match (&value.shape, tensor.shape.as_ref()) {
            (Err(_), _) if declared.shape.is_ok() => value.shape = declared.shape,
            (Ok(inferred), Some(shape)) => {
                let agrees = inferred.len() == shape.dim.len()
                    && inferred.iter().zip(&shape.dim).all(|(inferred, dim)| match &dim.value {
                        Some(Dimension::Value(size)) if *size > 0 => size.unsigned_abs() == *inferred,
                        Some(Dimension::Param(param)) => bindings.get(param).is_none_or(|size| size == *inferred),
                        _ => true,
                    });
                if !agrees {
                    let declared = shape.dim.iter().map(|dim| match &dim.value {
                        Some(Dimension::Value(size)) => size.to_string(),
                        Some(Dimension::Param(param)) => param.clone(),
                        None => "?".to_owned(),
                    });
                    self.disagreements.push(Disagreement {
                        value: name.to_owned(),
                        inferred: format_shape(inferred.iter()),
                        declared: format_shape(declared),
                    });
                }
            }
            _ => {}
        }
        value
    }

    /// A node with what is known about its inputs.
    pub(crate) fn call(&self, node: &'a NodeProto) -> Call<'_> {
        Call { node, inputs: node.input.iter().map(|name| self.value(name)).collect() }
    }

    /// What is known about a value.
    pub(crate) fn value(&self, name: &str) -> Option<&Value> {
        self.values.get(name).filter(|_| !name.is_empty())
    }

    /// The node that is the only use of a value.
    pub(crate) fn only_user(&self, name: &str) -> Option<usize> {
        match self.uses.get(name) {
            Some(Uses::Once(position)) => Some(*position),
            _ => None,
        }
    }

    /// Whether a value is stored in the model.
    pub(crate) fn is_stored(&self, name: &str) -> bool {
        self.stored.contains(name)
    }

    /// Whether a value exists before the node at `position` runs: inputs, constants, outputs of earlier nodes.
    pub(crate) fn exists_before(&self, name: &str, position: usize) -> bool {
        self.defined_at.get(name).is_some_and(|at| *at <= position)
    }
}

fn tensor_type(info: &ValueInfoProto) -> Option<&TensorTypeProto> {
    info.r#type.as_ref()?.tensor_type.as_ref()
}
