//! Matrix products.

use super::{Activation, SpecError, after_sum, check_sizes, output_type, plain, workload};
use crate::workload::{Axis, AxisKind, DType, EpilogueStep, MathMode, Op, Real, Role, Workload};

/// `c[m,n] = act(scale · Σ_k a[m,k] · b[k,n] + bias[n] + residual[m,n])`, optionally batched and transposed; each part
/// of the epilogue only when asked for.
///
/// Axes `[b:b] m:p n:p k:r` (`b` only when `batch > 1`), operands `in.a`, `in.b`, `[in.bias]`, `[in.residual]`, `out.c`. Sums are kept
/// in f32 for 16- and 32-bit floats, in f64 for f64, in i32 for integers, whose output is i32 too.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MatmulSpec {
    /// Independent problems.
    pub batch: u64,
    /// Rows of the output.
    pub m: u64,
    /// Columns of the output.
    pub n: u64,
    /// Terms of each sum.
    pub k: u64,
    /// `a` is stored as `[k,m]`.
    pub transpose_a: bool,
    /// `b` is stored as `[n,k]`.
    pub transpose_b: bool,
    /// Element type of `a` and `b`.
    pub dtype: DType,
    /// Multiply the sums by a constant.
    pub scale: Option<Real>,
    /// Add a vector over `n`.
    pub bias: bool,
    /// Add a tensor of the output's shape and type.
    pub residual: bool,
    /// The last step.
    pub activation: Option<Activation>,
    /// Allowed rewriting.
    pub math: MathMode,
}

impl MatmulSpec {
    /// A plain f32 matmul.
    pub fn new(m: u64, n: u64, k: u64) -> MatmulSpec {
        MatmulSpec {
            batch: 1,
            m,
            n,
            k,
            transpose_a: false,
            transpose_b: false,
            dtype: DType::F32,
            scale: None,
            bias: false,
            residual: false,
            activation: None,
            math: MathMode::Ieee,
        }
    }

    /// The workload this describes.
    ///
    /// # Errors
    ///
    /// [`SpecError::Zero`] and [`SpecError::TooLarge`] for one size, [`SpecError::Invalid`] when the whole is too large.
    pub fn workload(&self) -> Result<Workload, SpecError> {
        check_sizes(&[("batch", self.batch), ("m", self.m), ("n", self.n), ("k", self.k)])?;
        let mut axes = Vec::new();
        if self.batch > 1 {
            axes.push(Axis::fixed("b", AxisKind::Batch, self.batch));
        }
        let first = axes.len();
        let [m, n, k] = [first, first + 1, first + 2];
        axes.push(Axis::fixed("m", AxisKind::Parallel, self.m));
        axes.push(Axis::fixed("n", AxisKind::Parallel, self.n));
        axes.push(Axis::fixed("k", AxisKind::Reduction, self.k));

        let operand = |role, name, dtype, dims: [usize; 2]| {
            let dims: Vec<usize> = (0..first).chain(dims).collect();
            plain(role, name, dtype, &axes, &dims)
        };
        let output = output_type(self.dtype);
        let mut operands = vec![
            operand(Role::In, "a", self.dtype, if self.transpose_a { [k, m] } else { [m, k] }),
            operand(Role::In, "b", self.dtype, if self.transpose_b { [n, k] } else { [k, n] }),
        ];
        if self.bias {
            operands.push(plain(Role::In, "bias", output, &axes, &[n]));
        }
        if self.residual {
            operands.push(operand(Role::In, "residual", output, [m, n]));
        }
        operands.push(operand(Role::Out, "c", output, [m, n]));
        let scale = self.scale.map(|factor| EpilogueStep::Scale(factor.get()));
        let epilogue = scale.into_iter().chain(after_sum(self.bias, self.residual, self.activation)).collect();
        workload(Op::ContractMadd, axes, operands, self.dtype, epilogue, self.math)
    }
}
