//! Row passes: softmax, norms, arg-max over the last dimension of a matrix.

use super::{SpecError, check_sizes, plain, workload};
use crate::workload::{Axis, AxisKind, DType, EpilogueStep, MathMode, Op, Real, Role, Workload};

/// What is computed of each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowPass {
    /// Softmax.
    Softmax,
    /// Logarithm of softmax.
    LogSoftmax,
    /// Layer normalisation.
    LayerNorm {
        /// Added to the variance.
        eps: Real,
        /// Then times `gamma` plus `beta`, vectors over the columns.
        affine: bool,
    },
    /// Root-mean-square normalisation.
    RmsNorm {
        /// Added to the mean square.
        eps: Real,
        /// Then times `gamma`, a vector over the columns.
        affine: bool,
    },
    /// Index of the first maximum.
    ArgMax,
}

/// A row pass over a matrix `x[m,n]`: axes `m:p n:r`, operands `in.x`, `[in.gamma]`, `[in.beta]`, `out.y[m,n]`
/// (`out.y[m]` in i32 for arg-max). Sums are kept in f32, in f64 for f64.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RowsSpec {
    /// What is computed.
    pub pass: RowPass,
    /// Rows.
    pub rows: u64,
    /// Elements of a row.
    pub cols: u64,
    /// Element type of every operand but an index.
    pub dtype: DType,
}

impl RowsSpec {
    /// The workload this describes.
    ///
    /// # Errors
    ///
    /// [`SpecError::Zero`] and [`SpecError::TooLarge`] for one size, [`SpecError::Invalid`] for integers, a negative
    /// `eps`, or when the whole is too large.
    pub fn workload(&self) -> Result<Workload, SpecError> {
        check_sizes(&[("rows", self.rows), ("cols", self.cols)])?;
        let axes =
            vec![Axis::fixed("m", AxisKind::Parallel, self.rows), Axis::fixed("n", AxisKind::Reduction, self.cols)];
        let (op, gain, shift) = match self.pass {
            RowPass::Softmax => (Op::RowsSoftmax, false, false),
            RowPass::LogSoftmax => (Op::RowsLogSoftmax, false, false),
            RowPass::LayerNorm { eps, affine } => (Op::RowsLayerNorm { eps }, affine, affine),
            RowPass::RmsNorm { eps, affine } => (Op::RowsRmsNorm { eps }, affine, false),
            RowPass::ArgMax => (Op::RowsArgMax, false, false),
        };
        let mut operands = vec![plain(Role::In, "x", self.dtype, &axes, &[0, 1])];
        let mut epilogue = Vec::new();
        if gain {
            operands.push(plain(Role::In, "gamma", self.dtype, &axes, &[1]));
            epilogue.push(EpilogueStep::Mul("gamma".into()));
        }
        if shift {
            operands.push(plain(Role::In, "beta", self.dtype, &axes, &[1]));
            epilogue.push(EpilogueStep::Add("beta".into()));
        }
        operands.push(match self.pass {
            RowPass::ArgMax => plain(Role::Out, "y", DType::I32, &axes, &[0]),
            _ => plain(Role::Out, "y", self.dtype, &axes, &[0, 1]),
        });
        workload(op, axes, operands, self.dtype, epilogue, MathMode::Ieee)
    }
}
