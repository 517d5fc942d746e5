//! Sums, means and maxima: of matrices along one direction, and pooling.

use super::{SpecError, check_size, check_sizes, dense, output_type, plain, window, window_count, workload};
use crate::workload::{Axis, AxisKind, DType, EpilogueStep, MathMode, Op, Role, Subscript, Workload};

/// How elements are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Sum; of 8-bit integers in i32.
    Sum,
    /// Maximum, in the element type.
    Max,
    /// Sum divided by the count; not for integers.
    Mean,
}

impl Reduction {
    /// Operation, element type of the output and epilogue for `count` elements of `dtype`.
    fn parts(self, dtype: DType, count: u64) -> Result<(Op, DType, Vec<EpilogueStep>), SpecError> {
        #[expect(
            clippy::cast_precision_loss,
            reason = "valid workloads have fewer than 2^62 elements; the mean is rounded"
        )]
        let scale = 1.0 / count as f64;
        match self {
            Reduction::Sum => Ok((Op::ContractAdd, output_type(dtype), Vec::new())),
            Reduction::Max => Ok((Op::ContractMax, dtype, Vec::new())),
            Reduction::Mean if dtype.is_float() => Ok((Op::ContractAdd, dtype, vec![EpilogueStep::Scale(scale)])),
            Reduction::Mean => Err(SpecError::IntegerMean { dtype }),
        }
    }
}

/// A reduction of a matrix along one direction: axes `m:p k:r`, operands `in.x`, `out.y[m]`, where `x` is `[m,k]`, or
/// `[k,m]` when the rows are reduced.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReduceSpec {
    /// How.
    pub reduction: Reduction,
    /// Rows of the matrix.
    pub rows: u64,
    /// Columns of the matrix.
    pub cols: u64,
    /// Reduce over the rows, which gives one element per column; otherwise over the columns, one per row.
    pub over_rows: bool,
    /// Element type of `x`.
    pub dtype: DType,
}

impl ReduceSpec {
    /// The workload this describes.
    ///
    /// # Errors
    ///
    /// [`SpecError::Zero`] and [`SpecError::TooLarge`] for one size, [`SpecError::IntegerMean`],
    /// [`SpecError::Invalid`] when the whole is too large.
    pub fn workload(&self) -> Result<Workload, SpecError> {
        check_sizes(&[("rows", self.rows), ("cols", self.cols)])?;
        let (kept, reduced) = if self.over_rows { (self.cols, self.rows) } else { (self.rows, self.cols) };
        let (op, output, epilogue) = self.reduction.parts(self.dtype, reduced)?;
        let axes = vec![Axis::fixed("m", AxisKind::Parallel, kept), Axis::fixed("k", AxisKind::Reduction, reduced)];
        let dims = if self.over_rows { [1, 0] } else { [0, 1] };
        let operands = vec![plain(Role::In, "x", self.dtype, &axes, &dims), plain(Role::Out, "y", output, &axes, &[0])];
        workload(op, axes, operands, self.dtype, epilogue, MathMode::Ieee)
    }
}

/// Pooling of NCHW images over windows of `r` rows and `s` columns, with the same stride and padding in both
/// directions: axes `n:p c:p oh:p ow:p r:r s:r`, operands `in.x`, `out.y`. Padding is minus infinity for maxima; for
/// means it is zero and counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PoolSpec {
    /// How.
    pub reduction: Reduction,
    /// Images.
    pub n: u64,
    /// Channels.
    pub c: u64,
    /// Input rows.
    pub h: u64,
    /// Input columns.
    pub w: u64,
    /// Rows of the window.
    pub r: u64,
    /// Columns of the window.
    pub s: u64,
    /// Distance of neighbouring windows.
    pub stride: u64,
    /// Rows and columns added on every side.
    pub pad: u64,
    /// Element type of `x`.
    pub dtype: DType,
}

impl PoolSpec {
    /// The workload this describes.
    ///
    /// # Errors
    ///
    /// [`SpecError::Zero`] and [`SpecError::TooLarge`] for one size, [`SpecError::KernelTooLarge`],
    /// [`SpecError::IntegerMean`], [`SpecError::Invalid`] when the whole is too large.
    pub fn workload(&self) -> Result<Workload, SpecError> {
        let PoolSpec { n, c, h, w, r, s, stride, pad, dtype, .. } = *self;
        check_sizes(&[("n", n), ("c", c), ("h", h), ("w", w), ("r", r), ("s", s), ("stride", stride)])?;
        check_size("pad", pad)?;
        let oh = window_count("r", h + 2 * pad, r, 1, stride)?;
        let ow = window_count("s", w + 2 * pad, s, 1, stride)?;
        let (op, output, epilogue) = self.reduction.parts(dtype, r.saturating_mul(s))?;
        let axes: Vec<Axis> = [("n", n), ("c", c), ("oh", oh), ("ow", ow)]
            .map(|(name, extent)| Axis::fixed(name, AxisKind::Parallel, extent))
            .into_iter()
            .chain([("r", r), ("s", s)].map(|(name, extent)| Axis::fixed(name, AxisKind::Reduction, extent)))
            .collect();
        let rows = window((2, oh, stride), (4, r, 1), pad, h);
        let columns = window((3, ow, stride), (5, s, 1), pad, w);
        let operands = vec![
            dense(Role::In, "x", dtype, vec![Subscript::axis(0), Subscript::axis(1), rows, columns], &[n, c, h, w]),
            plain(Role::Out, "y", output, &axes, &[0, 1, 2, 3]),
        ];
        workload(op, axes, operands, dtype, epilogue, MathMode::Ieee)
    }
}
