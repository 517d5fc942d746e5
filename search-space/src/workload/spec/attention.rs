//! Scaled dot-product attention.

use super::{SpecError, check_sizes, dense, signed, workload};
use crate::workload::{Axis, AxisKind, DType, MathMode, Op, Real, Role, Subscript, Workload};

/// Attention over tensors `[batch, heads, sequence, columns]`, where `heads / kv_heads` query heads share each head of
/// keys and values.
///
/// Axes `[b:b] [h:b] [g:p] m:p e:p n:r d:r`: batch, heads of keys, query heads of one of them, queries, columns of
/// values, keys, columns of queries; what is in brackets only when it is more than one, its dimension too. Operands
/// `in.q`, `in.k`, `in.v`, `out.o`, query head `g + group · h`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AttentionSpec {
    /// Independent problems.
    pub batch: u64,
    /// Query heads.
    pub heads: u64,
    /// Heads of keys and values; divides `heads`.
    pub kv_heads: u64,
    /// Queries.
    pub q: u64,
    /// Keys.
    pub kv: u64,
    /// Columns of queries and keys.
    pub d: u64,
    /// Columns of values and of the output.
    pub e: u64,
    /// Factor of the scores.
    pub scale: Real,
    /// Query `m` of M sees key `n` of N only when `n <= m + N - M`.
    pub causal: bool,
    /// Element type of every operand.
    pub dtype: DType,
}

impl AttentionSpec {
    /// Plain f32 self-attention with scale `1 / √d`.
    pub fn new(heads: u64, q: u64, d: u64) -> AttentionSpec {
        AttentionSpec {
            batch: 1,
            heads,
            kv_heads: heads,
            q,
            kv: q,
            d,
            e: d,
            scale: AttentionSpec::usual_scale(d),
            causal: false,
            dtype: DType::F32,
        }
    }

    /// `1 / √d`; zero for no columns at all, which the size check refuses.
    pub fn usual_scale(d: u64) -> Real {
        #[expect(clippy::cast_precision_loss, reason = "sizes are below 2^31")]
        let root = (d as f64).sqrt();
        Real::new(1.0 / root).unwrap_or(Real::ZERO)
    }

    /// The workload this describes.
    ///
    /// # Errors
    ///
    /// [`SpecError::Zero`] and [`SpecError::TooLarge`] for one size, [`SpecError::Heads`], [`SpecError::Invalid`] for
    /// integers, more queries than keys when causal, or when the whole is too large.
    pub fn workload(&self) -> Result<Workload, SpecError> {
        check_sizes(&[("batch", self.batch), ("heads", self.heads), ("kv_heads", self.kv_heads)])?;
        check_sizes(&[("q", self.q), ("kv", self.kv), ("d", self.d), ("e", self.e)])?;
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(SpecError::Heads { heads: self.heads, kv_heads: self.kv_heads });
        }
        let group = self.heads / self.kv_heads;
        let mut axes = Vec::new();
        let mut axis = |name, kind, extent| {
            axes.push(Axis::fixed(name, kind, extent));
            axes.len() - 1
        };
        let b = (self.batch > 1).then(|| axis("b", AxisKind::Batch, self.batch));
        let h = (self.kv_heads > 1).then(|| axis("h", AxisKind::Batch, self.kv_heads));
        let g = (group > 1).then(|| axis("g", AxisKind::Parallel, group));
        let m = axis("m", AxisKind::Parallel, self.q);
        let e = axis("e", AxisKind::Parallel, self.e);
        let n = axis("n", AxisKind::Reduction, self.kv);
        let d = axis("d", AxisKind::Reduction, self.d);

        let operand = |role, name, heads: u64, grouped: bool, rows: (usize, u64), columns: (usize, u64)| {
            let (mut index, mut shape) = (Vec::new(), Vec::new());
            if let Some(b) = b {
                index.push(Subscript::axis(b));
                shape.push(self.batch);
            }
            let step = if grouped { signed(group) } else { 1 };
            let terms: Vec<(usize, i64)> =
                h.map(|h| (h, step)).into_iter().chain(g.filter(|_| grouped).map(|g| (g, 1))).collect();
            if !terms.is_empty() {
                index.push(Subscript { terms, offset: 0, bound: None });
                shape.push(heads);
            }
            for (axis, extent) in [rows, columns] {
                index.push(Subscript::axis(axis));
                shape.push(extent);
            }
            dense(role, name, self.dtype, index, &shape)
        };
        let operands = vec![
            operand(Role::In, "q", self.heads, true, (m, self.q), (d, self.d)),
            operand(Role::In, "k", self.kv_heads, false, (n, self.kv), (d, self.d)),
            operand(Role::In, "v", self.kv_heads, false, (n, self.kv), (e, self.e)),
            operand(Role::Out, "o", self.heads, true, (m, self.q), (e, self.e)),
        ];
        let op = Op::Attention { scale: self.scale, causal: self.causal };
        workload(op, axes, operands, self.dtype, Vec::new(), MathMode::Ieee)
    }
}
