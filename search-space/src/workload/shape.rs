//! Shapes and sizes that follow from a workload's axes and index maps.
//!
//! Nothing here fails: on a workload that [`Workload::validate`] accepts every number is exact; on any other, sums and
//! products saturate instead of wrapping. Run-time extents (`lo..hi/multiple`) count with their largest value.

use super::{Axis, AxisKind, EpilogueStep, Extent, Op, Operand, Role, Storage, Subscript, Workload};

impl Extent {
    /// The largest number of values the axis can take.
    pub fn max(self) -> u64 {
        match self {
            Extent::Fixed(extent) => extent,
            Extent::Range { hi, .. } => hi,
        }
    }
}

impl Workload {
    /// Position of the axis called `name`.
    pub fn axis(&self, name: &str) -> Option<usize> {
        self.axes.iter().position(|axis| axis.name == name)
    }

    /// Extent of the axis at position `axis`; `None` when it is only known at run time or there is no such axis.
    pub fn extent(&self, axis: usize) -> Option<u64> {
        match self.axes.get(axis)?.extent {
            Extent::Fixed(extent) => Some(extent),
            Extent::Range { .. } => None,
        }
    }

    /// Extents of all axes in order; `None` when one is only known at run time.
    pub fn fixed_extents(&self) -> Option<Vec<u64>> {
        (0..self.axes.len()).map(|axis| self.extent(axis)).collect()
    }

    /// Position of the operand called `name`.
    pub fn operand(&self, name: &str) -> Option<usize> {
        self.operands.iter().position(|operand| operand.name == name)
    }

    /// Size of each dimension of operand `i`, one per subscript: its bound, or one more than the largest subscript.
    ///
    /// A convolution whose stride leaves the last rows unread reports only the rows it reads; the strides still tell
    /// the real distance in memory.
    ///
    /// # Panics
    ///
    /// When there is no operand `i`.
    pub fn operand_shape(&self, i: usize) -> Vec<u64> {
        self.operands[i].index.iter().map(|subscript| self.dim(subscript)).collect()
    }

    /// Element strides of operand `i`, one per subscript: as stored, or row-major when the schedule may choose.
    ///
    /// # Panics
    ///
    /// When there is no operand `i`.
    pub fn operand_strides(&self, i: usize) -> Vec<u64> {
        match &self.operands[i].storage {
            Storage::Strides(strides) => strides.clone(),
            Storage::Free => row_major(&self.operand_shape(i)),
        }
    }

    /// Elements in the smallest buffer that holds operand `i`, gaps between rows included: `1 + Σ (dim - 1) · stride`.
    /// An operand without subscripts is one element.
    ///
    /// # Panics
    ///
    /// When there is no operand `i`.
    pub fn operand_len(&self, i: usize) -> u64 {
        let strides = self.operand_strides(i);
        self.operand_shape(i)
            .iter()
            .zip(&strides)
            .fold(1u64, |len, (dim, stride)| len.saturating_add(dim.saturating_sub(1).saturating_mul(*stride)))
    }

    /// Positions of the operands that are read (`in` and `io`), in call order.
    pub fn inputs(&self) -> Vec<usize> {
        self.positions(|role| role != Role::Out)
    }

    /// Positions of the operands that are written (`out` and `io`), in call order.
    pub fn outputs(&self) -> Vec<usize> {
        self.positions(|role| role != Role::In)
    }

    /// Positions of the `in` operands that take part in the operation itself: those that no epilogue step names.
    /// For a matmul or a convolution these are the two multiplied operands, for an attention q, k and v.
    pub fn factors(&self) -> Vec<usize> {
        let named = |name: &str| self.epilogue.iter().any(|step| step.operand() == Some(name));
        (0..self.operands.len())
            .filter(|i| self.operands[*i].role == Role::In && !named(&self.operands[*i].name))
            .collect()
    }

    /// Floating-point (or integer) operations: two per point of the iteration space for `contract.madd`; for an
    /// attention two per multiply-add of both products, half of that when causal; one per point (that is, per element
    /// read) otherwise. The epilogue is not counted, neither are reads of padding taken off.
    pub fn flops(&self) -> u64 {
        match self.op {
            Op::ContractMadd => self.points().saturating_mul(2),
            Op::Attention { causal, .. } => {
                let without = |skipped: fn(&super::AttentionAxes) -> usize| {
                    let skipped = self.attention_axes().map(|axes| skipped(&axes)).ok();
                    let kept = self.axes.iter().enumerate().filter(|(axis, _)| Some(*axis) != skipped);
                    kept.fold(1u64, |product, (_, axis)| product.saturating_mul(axis.extent.max()))
                };
                let products = without(|axes| axes.e).saturating_add(without(|axes| axes.d));
                if causal { products } else { products.saturating_mul(2) }
            }
            _ => self.points(),
        }
    }

    /// Points of the iteration space: the product of all extents.
    pub fn points(&self) -> u64 {
        self.axes.iter().fold(1, |product, axis| product.saturating_mul(axis.extent.max()))
    }

    /// Bytes moved when each element of each operand moves once (`io` operands twice): the floor of memory traffic.
    pub fn min_bytes(&self) -> u64 {
        (0..self.operands.len()).fold(0, |sum: u64, i| {
            let passes = if self.operands[i].role == Role::InOut { 2 } else { 1 };
            let elements = self.operand_shape(i).iter().fold(passes, |product: u64, dim| product.saturating_mul(*dim));
            sum.saturating_add(elements.saturating_mul(self.operands[i].dtype.bytes()))
        })
    }

    /// Smallest and largest value of a subscript over the whole iteration space.
    pub(crate) fn subscript_range(&self, subscript: &Subscript) -> (i128, i128) {
        let offset = i128::from(subscript.offset);
        subscript.terms.iter().fold((offset, offset), |(lo, hi), (axis, coefficient)| {
            let extent = self.axes.get(*axis).map_or(1, |axis| axis.extent.max());
            // |coefficient| and extent are below 2^64 each, so the product fits an i128.
            let reach = i128::from(*coefficient).saturating_mul(i128::from(extent.saturating_sub(1)));
            (lo.saturating_add(reach.min(0)), hi.saturating_add(reach.max(0)))
        })
    }

    fn dim(&self, subscript: &Subscript) -> u64 {
        subscript.bound.unwrap_or_else(|| {
            let (_, hi) = self.subscript_range(subscript);
            u64::try_from(hi.max(0)).unwrap_or(u64::MAX).saturating_add(1)
        })
    }

    fn positions(&self, wanted: impl Fn(Role) -> bool) -> Vec<usize> {
        (0..self.operands.len()).filter(|i| wanted(self.operands[*i].role)).collect()
    }
}

impl EpilogueStep {
    /// The operand the step reads, if any.
    pub fn operand(&self) -> Option<&str> {
        match self {
            EpilogueStep::Bias(name) | EpilogueStep::Add(name) | EpilogueStep::Mul(name) => Some(name),
            _ => None,
        }
    }

    /// The word used in keys, without arguments.
    pub fn word(&self) -> &'static str {
        match self {
            EpilogueStep::Bias(_) => "bias",
            EpilogueStep::Relu => "relu",
            EpilogueStep::GeluErf => "gelu_erf",
            EpilogueStep::GeluTanh => "gelu_tanh",
            EpilogueStep::Silu => "silu",
            EpilogueStep::Clip(..) => "clip",
            EpilogueStep::Scale(_) => "scale",
            EpilogueStep::Add(_) => "add",
            EpilogueStep::Mul(_) => "mul",
            EpilogueStep::Exp => "exp",
            EpilogueStep::Log => "log",
            EpilogueStep::Tanh => "tanh",
            EpilogueStep::Erf => "erf",
            EpilogueStep::Cast(_) => "cast",
        }
    }
}

/// Element strides of a dense buffer with the last dimension contiguous.
pub fn row_major(shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![1u64; shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d].saturating_mul(shape[d]);
    }
    strides
}

impl Subscript {
    /// A subscript that is one axis: `m`.
    pub fn axis(axis: usize) -> Subscript {
        Subscript { terms: vec![(axis, 1)], offset: 0, bound: None }
    }

    /// Coefficient of `axis`; zero when it does not occur.
    pub fn coefficient(&self, axis: usize) -> i64 {
        self.terms.iter().find(|(a, _)| *a == axis).map_or(0, |(_, coefficient)| *coefficient)
    }
}

impl Operand {
    /// Whether the operand's position in memory depends on `axis`.
    pub fn uses(&self, axis: usize) -> bool {
        self.index.iter().any(|subscript| subscript.coefficient(axis) != 0)
    }
}

impl Axis {
    /// An axis of fixed extent.
    pub fn fixed(name: &str, kind: AxisKind, extent: u64) -> Axis {
        Axis { name: name.into(), kind, extent: Extent::Fixed(extent) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AttentionSpec, Conv2dSpec, MatmulSpec};

    #[test]
    fn matmul_numbers() {
        let w = MatmulSpec { transpose_b: true, bias: true, ..MatmulSpec::new(3, 5, 7) }.workload().unwrap();
        assert_eq!(w.axis("k"), Some(2));
        assert_eq!(w.axis("z"), None);
        assert_eq!(w.fixed_extents(), Some(vec![3, 5, 7]));
        assert_eq!((w.inputs(), w.outputs(), w.factors()), (vec![0, 1, 2], vec![3], vec![0, 1]));
        assert_eq!(w.operand_shape(1), [5, 7]);
        assert_eq!(w.operand_len(1), 35);
        assert_eq!(w.flops(), 2 * 3 * 5 * 7);
        assert_eq!(w.min_bytes(), 4 * (21 + 35 + 5 + 15));
    }

    #[test]
    fn operations_of_attention_are_those_of_both_products() {
        let plain = AttentionSpec { e: 5, kv: 9, ..AttentionSpec::new(2, 7, 3) };
        let flops = |spec: &AttentionSpec| spec.workload().unwrap().flops();
        assert_eq!(flops(&plain), 2 * (2 * 7 * 9) * (3 + 5));
        assert_eq!(flops(&AttentionSpec { causal: true, ..plain }), 2 * 7 * 9 * (3 + 5));
    }

    #[test]
    fn convolution_shapes_come_from_bounds_or_reach() {
        let padded = Conv2dSpec { pad_top: 1, pad_left: 1, pad_bottom: 1, pad_right: 1, ..conv(8, 3) };
        assert_eq!(padded.workload().unwrap().operand_shape(0), [1, 2, 8, 8]);
        let strided = Conv2dSpec { stride_h: 2, stride_w: 2, ..conv(8, 1) }.workload().unwrap();
        assert_eq!(strided.operand_shape(0), [1, 2, 7, 7]);
        assert_eq!(strided.operand_strides(0), [128, 64, 8, 1]);
        assert_eq!(strided.operand_len(0), 1 + 64 + 6 * 8 + 6);
        assert_eq!(strided.operand_shape(2), [1, 4, 4, 4]);
    }

    fn conv(size: u64, kernel: u64) -> Conv2dSpec {
        Conv2dSpec::new(1, 2, size, size, 4, kernel, kernel)
    }
}
