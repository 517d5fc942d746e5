//! What row passes, maps and attentions ask of their operands and axes, and which axis of an attention plays which
//! part. Read from the index maps, so that names do not matter.

use super::validate::{InvalidWorkload, Place, WorkloadProblem};
use super::{AxisKind, DType, Op, Real, Workload};

/// The axes of an attention by position; all others are batch axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionAxes {
    /// Query heads that share one head of keys and values: an axis of `q` and the output only, before `m`.
    pub group: Option<usize>,
    /// Queries.
    pub m: usize,
    /// Columns of the values and the output.
    pub e: usize,
    /// Keys.
    pub n: usize,
    /// Terms of a score.
    pub d: usize,
}

impl Workload {
    /// Sorts the axes of an attention by the operands that use them: `m` (and before it the group) in q and the
    /// output, `e` in v and the output, `n` in k and v, `d` in q and k, batch axes in all.
    ///
    /// # Errors
    ///
    /// The first axis that fits no part, has the wrong kind or is one too many; `None` when one is missing or there
    /// are not three factors and an output.
    pub fn attention_axes(&self) -> Result<AttentionAxes, Option<usize>> {
        let (&[q, k, v], &[out, ..]) = (&self.factors()[..], &self.outputs()[..]) else { return Err(None) };
        let (mut queries, mut e, mut n, mut d) = (Vec::new(), None, None, None);
        for (axis, described) in self.axes.iter().enumerate() {
            let uses = [q, k, v, out].map(|operand| self.operands[operand].uses(axis));
            let taken = match (described.kind, uses) {
                (AxisKind::Batch, [true, true, true, true]) => false,
                (AxisKind::Parallel, [true, false, false, true]) => {
                    queries.push(axis);
                    queries.len() > 2
                }
                (AxisKind::Parallel, [false, false, true, true]) => e.replace(axis).is_some(),
                (AxisKind::Reduction, [false, true, true, false]) => n.replace(axis).is_some(),
                (AxisKind::Reduction, [true, true, false, false]) => d.replace(axis).is_some(),
                _ => true,
            };
            if taken {
                return Err(Some(axis));
            }
        }
        let m = queries.pop().ok_or(None)?;
        let (e, n, d) = (e.ok_or(None)?, n.ok_or(None)?, d.ok_or(None)?);
        Ok(AttentionAxes { group: queries.pop(), m, e, n, d })
    }

    /// Parameters of the operation.
    pub(super) fn validate_op(&self) -> Result<(), InvalidWorkload> {
        match self.op {
            Op::RowsLayerNorm { eps } | Op::RowsRmsNorm { eps } if eps < Real::ZERO => Err(InvalidWorkload {
                place: Place::Op,
                subject: format!("the operation {}", self.op.as_str()),
                problem: WorkloadProblem::Parameter { found: eps, expected: "a number that is not negative" },
            }),
            _ => Ok(()),
        }
    }

    /// What row passes, maps and attentions ask of their axes and operands. Contractions take any.
    pub(super) fn validate_roles(&self) -> Result<(), InvalidWorkload> {
        let op = self.op.as_str();
        let factors = match self.op {
            rows if rows.is_rows() => 1,
            Op::Map => 1,
            Op::Attention { .. } => 3,
            _ => return Ok(()),
        };
        let operands = |problem| InvalidWorkload { place: Place::Operand(0), subject: "the operands".into(), problem };
        let found = self.factors().len();
        if found != factors {
            return Err(operands(WorkloadProblem::InputCount { op, found, expected: factors }));
        }
        let found = self.outputs().len();
        if found != 1 {
            return Err(operands(WorkloadProblem::OutputCount { op, found }));
        }
        let at = |i: usize, problem| InvalidWorkload {
            place: Place::Operand(i),
            subject: format!("operand {:?}", self.operands[i].name),
            problem,
        };
        let output = self.outputs()[0];
        if self.op != Op::Map {
            let floats = self.factors().into_iter().find(|i| !self.operands[*i].dtype.is_float());
            if let Some(i) = floats {
                let found = self.operands[i].dtype;
                return Err(at(i, WorkloadProblem::OperandType { op, found, expected: "floating-point types" }));
            }
        }
        if self.op == Op::RowsArgMax {
            let found = self.operands[output].dtype;
            if found != DType::I32 {
                return Err(at(output, WorkloadProblem::OperandType { op, found, expected: "i32 for its result" }));
            }
            if !self.epilogue.is_empty() {
                let problem = WorkloadProblem::NoEpilogue { op };
                return Err(InvalidWorkload { place: Place::Epilogue, subject: "the epilogue".into(), problem });
            }
        }
        if matches!(self.op, Op::Attention { .. }) { self.validate_attention() } else { self.validate_kinds() }
    }

    /// A map has no reduction axis, a row pass at least one.
    fn validate_kinds(&self) -> Result<(), InvalidWorkload> {
        let op = self.op.as_str();
        let reduced = self.axes.iter().position(|axis| axis.kind == AxisKind::Reduction);
        match (self.op == Op::Map, reduced) {
            (true, Some(i)) => Err(self.at_axis(i, WorkloadProblem::AxisRole { op, expected: "no reduction axis" })),
            (false, None) => {
                let problem = WorkloadProblem::AxisMissing { op, expected: "at least one reduction axis" };
                Err(InvalidWorkload { place: Place::Axes, subject: "the axes".into(), problem })
            }
            _ => Ok(()),
        }
    }

    fn validate_attention(&self) -> Result<(), InvalidWorkload> {
        let op = self.op.as_str();
        let expected = "batch axes in q, k, v and the output, one or two parallel axes in q and the output, one in v \
                        and the output, one reduction axis in k and v and one in q and k";
        let axes = self.attention_axes().map_err(|axis| match axis {
            Some(axis) => self.at_axis(axis, WorkloadProblem::AxisRole { op, expected }),
            None => InvalidWorkload {
                place: Place::Axes,
                subject: "the axes".into(),
                problem: WorkloadProblem::AxisMissing { op, expected },
            },
        })?;
        for i in self.factors() {
            if self.operands[i].index.iter().any(|subscript| subscript.bound.is_some()) {
                return Err(InvalidWorkload {
                    place: Place::Operand(i),
                    subject: format!("operand {:?}", self.operands[i].name),
                    problem: WorkloadProblem::Padding { op },
                });
            }
        }
        let [queries, keys] = [axes.m, axes.n].map(|axis| self.axes[axis].extent.max());
        match self.op {
            Op::Attention { causal: true, .. } if keys < queries => {
                let problem = WorkloadProblem::CausalExtent { queries, keys };
                Err(InvalidWorkload { place: Place::Axes, subject: "the axes".into(), problem })
            }
            _ => Ok(()),
        }
    }

    fn at_axis(&self, i: usize, problem: WorkloadProblem) -> InvalidWorkload {
        InvalidWorkload { place: Place::Axis(i), subject: format!("axis {:?}", self.axes[i].name), problem }
    }
}
