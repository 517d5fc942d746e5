//! What a kernel can do to its output in passing.
//!
//! A following node is absorbed only if it is the sole use of the value before it, and if everything else it reads
//! exists before the contraction runs: then the kernel can be handed all of it.

use super::super::call::Call;
use super::super::graph::Graph;
use super::super::proto::NodeProto;

/// A contraction and the nodes absorbed behind it.
pub(super) struct Chain<'g, 'a> {
    graph: &'g Graph<'a>,
    /// Position of the contraction.
    start: usize,
    /// Name of the value at the end of the chain.
    end: &'g str,
    /// Whether a vector over the output channels or columns is added.
    pub(super) bias: bool,
    /// Whether a ReLU follows.
    pub(super) relu: bool,
    /// Positions of the absorbed nodes.
    pub(super) fused: Vec<usize>,
}

impl<'g, 'a> Chain<'g, 'a> {
    /// The contraction at `start` alone; `bias` tells whether it has one of its own.
    pub(super) fn new(graph: &'g Graph<'a>, start: usize, bias: bool) -> Chain<'g, 'a> {
        let end = graph.nodes[start].output.first().map_or("", String::as_str);
        Chain { graph, start, end, bias, relu: false, fused: Vec::new() }
    }

    /// The node that is the only use of the end, with its position.
    fn next(&self) -> Option<(usize, &'g NodeProto, Call<'g>)> {
        let position = self.graph.only_user(self.end)?;
        let node = &self.graph.nodes[position];
        let standard = matches!(node.domain.as_str(), "" | "ai.onnx");
        standard.then(|| (position, node, self.graph.call(node)))
    }

    fn absorb(&mut self, position: usize) {
        self.fused.push(position);
        self.end = self.graph.nodes[position].output.first().map_or("", String::as_str);
    }

    fn exists_before(&self, name: &str) -> bool {
        self.graph.exists_before(name, self.start)
    }

    /// A batch normalisation with fixed statistics: its factor goes into the weights, the rest is a bias.
    pub(super) fn absorb_batch_normalization(&mut self) {
        let Some((position, node, call)) = self.next() else { return };
        let [first, statistics @ ..] = node.input.as_slice() else { return };
        // In training, further outputs carry the new statistics, or "training_mode" is set.
        let is_inference = node.output.iter().skip(1).all(String::is_empty)
            && call.flag("training_mode", false) == Ok(false)
            && call.flag("spatial", true) == Ok(true);
        let known = statistics.len() == 4 && statistics.iter().all(|name| self.exists_before(name));
        if node.op_type == "BatchNormalization" && first == self.end && is_inference && known {
            self.bias = true;
            self.absorb(position);
        }
    }

    /// An addition of a vector over dimension `axis` of the output, unless there is a bias already.
    pub(super) fn absorb_bias(&mut self, axis: usize) {
        if self.bias || self.try_bias(axis).is_none() {
            return;
        }
        self.bias = true;
    }

    fn try_bias(&mut self, axis: usize) -> Option<()> {
        let (position, node, call) = self.next()?;
        let [left, right] = node.input.as_slice() else { return None };
        let other = if left == self.end { right } else { left };
        // Before operator set 7, the attribute "axis" told where the second operand belongs.
        let is_addition = matches!(node.op_type.as_str(), "Add" | "Sum") && call.flag("broadcast", false) == Ok(false);
        if !is_addition || !self.exists_before(other) {
            return None;
        }
        let (output, addend) = (self.graph.value(self.end)?, self.graph.value(other)?);
        let (shape, vector) = (output.shape.as_ref().ok()?, addend.shape.as_ref().ok()?);
        let first = shape.len().checked_sub(vector.len())?;
        let fits = vector.iter().enumerate().all(|(i, dim)| *dim == if first + i == axis { shape[axis] } else { 1 });
        (fits && first <= axis && output.dtype == addend.dtype).then(|| self.absorb(position))
    }

    /// A ReLU.
    pub(super) fn absorb_relu(&mut self) {
        let Some((position, node, _)) = self.next() else { return };
        if node.op_type == "Relu" {
            self.relu = true;
            self.absorb(position);
        }
    }
}
