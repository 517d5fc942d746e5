//! Elementwise chains and transposes.

use super::{SpecError, check_sizes, plain, workload};
use crate::workload::{Axis, AxisKind, DType, EpilogueStep, MathMode, Op, Role, Workload};

/// A chain of steps on each element of a vector: axis `n:p`, operands `in.x`, one `in` vector for each operand that a
/// step names, `out.y`.
#[derive(Clone, Debug, PartialEq)]
pub struct MapSpec {
    /// Elements.
    pub n: u64,
    /// Element type of every operand.
    pub dtype: DType,
    /// The steps, in order; none copies.
    pub steps: Vec<EpilogueStep>,
}

impl MapSpec {
    /// The workload this describes.
    ///
    /// # Errors
    ///
    /// [`SpecError::Zero`] and [`SpecError::TooLarge`] for the size, [`SpecError::Invalid`] for steps that do not fit.
    pub fn workload(&self) -> Result<Workload, SpecError> {
        check_sizes(&[("n", self.n)])?;
        let axes = vec![Axis::fixed("n", AxisKind::Parallel, self.n)];
        let mut names: Vec<&str> = vec!["x"];
        for name in self.steps.iter().filter_map(EpilogueStep::operand) {
            // A vector that several steps read is one operand.
            if name == "x" || !names.contains(&name) {
                names.push(name);
            }
        }
        let operand = |role, name: &str| plain(role, name, self.dtype, &axes, &[0]);
        let mut operands: Vec<_> = names.into_iter().map(|name| operand(Role::In, name)).collect();
        operands.push(operand(Role::Out, "y"));
        workload(Op::Map, axes, operands, self.dtype, self.steps.clone(), MathMode::Ieee)
    }
}

/// A matrix and its transpose: axes `m:p n:p`, operands `in.x[m,n]`, `out.y[n,m]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TransposeSpec {
    /// Rows of the input.
    pub rows: u64,
    /// Columns of the input.
    pub cols: u64,
    /// Element type.
    pub dtype: DType,
}

impl TransposeSpec {
    /// The workload this describes.
    ///
    /// # Errors
    ///
    /// [`SpecError::Zero`] and [`SpecError::TooLarge`] for one size, [`SpecError::Invalid`] when the whole is too large.
    pub fn workload(&self) -> Result<Workload, SpecError> {
        check_sizes(&[("rows", self.rows), ("cols", self.cols)])?;
        let axes =
            vec![Axis::fixed("m", AxisKind::Parallel, self.rows), Axis::fixed("n", AxisKind::Parallel, self.cols)];
        let operands =
            vec![plain(Role::In, "x", self.dtype, &axes, &[0, 1]), plain(Role::Out, "y", self.dtype, &axes, &[1, 0])];
        workload(Op::Map, axes, operands, self.dtype, Vec::new(), MathMode::Ieee)
    }
}
