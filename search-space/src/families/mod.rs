//! Families of workloads that share one lowering, and the parameter space of each for each kind of target.

pub mod attention;
pub mod choice;
pub mod contraction;
pub mod map;
pub mod nest;
pub mod reduction;
pub mod rows;
pub mod workers;

use crate::target::{Target, TargetKind};
use crate::workload::{Op, Workload};
use crate::{Schedule, space::ParameterSpace};

/// Why no space (and no kernel) exists for a workload on a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsupported {
    /// The operation has no lowering yet.
    #[error("operation {op} cannot be generated yet; only contract.madd can")]
    Operation {
        /// Name in the key.
        op: &'static str,
    },
    /// An axis is ragged or has a range of extents.
    #[error("axis {axis} has no fixed extent; tune a fixed size")]
    Extent {
        /// Name of the axis.
        axis: String,
    },
    /// An operand has a property without a lowering.
    #[error("operand {operand}: {what} cannot be generated yet")]
    Operand {
        /// Name of the operand.
        operand: String,
        /// The property.
        what: String,
    },
    /// The operands do not form a contraction of two inputs.
    #[error("not a contraction of two inputs: {why}")]
    Shape {
        /// What is missing.
        why: String,
    },
    /// An epilogue step has no lowering.
    #[error("epilogue step {step} cannot be generated yet")]
    Epilogue {
        /// Its text.
        step: String,
    },
    /// The target has no such space.
    #[error("no schedule space of {op} for {kind} targets yet")]
    Target {
        /// Operation.
        op: &'static str,
        /// Kind of target.
        kind: &'static str,
    },
    /// A limit of the target excludes the workload as a whole.
    #[error("{what} needs {needed}, the target allows {limit}")]
    Limit {
        /// The thing.
        what: String,
        /// Needed.
        needed: u64,
        /// Allowed.
        limit: u64,
    },
    /// The space could not be built.
    #[error("the schedule space could not be built: {why}")]
    Space {
        /// The space's own error.
        why: String,
    },
}

/// The schedules of a workload on a target, with the schedule that is tried first.
#[derive(Debug)]
pub struct SchedulePlan {
    /// All schedules.
    pub space: ParameterSpace,
    /// A safe, reasonable schedule that needs no measurement; a member of `space`.
    pub default: Schedule,
}

/// The schedule space of `workload` on `target`.
///
/// # Errors
/// [`Unsupported`] names what cannot be generated.
pub fn plan(workload: &Workload, target: &Target) -> Result<SchedulePlan, Unsupported> {
    let kind = target.key.kind;
    if kind == TargetKind::Cpu {
        contraction::check_conversions(workload, target)?;
    }
    match (workload.op, kind) {
        (Op::ContractMadd, TargetKind::Cpu) => {
            contraction::cpu::plan(&contraction::ContractionView::new(workload)?, target)
        }
        (Op::ContractMadd, TargetKind::Vulkan) => {
            let view = contraction::ContractionView::new(workload)?;
            view.only_f32()?;
            contraction::vulkan::plan(&view, target)
        }
        (Op::Map, _) => map::plan(&nest::Nest::new(workload)?, target),
        (Op::ContractAdd | Op::ContractMax, _) => reduction::plan(&nest::Nest::new(workload)?, target),
        (op, _) if op.is_rows() => rows::plan(&nest::Nest::new(workload)?, target),
        (Op::Attention { .. }, TargetKind::Cpu) => attention::plan(&attention::AttentionView::new(workload)?, target),
        (Op::Attention { .. }, TargetKind::Vulkan) => {
            attention::vulkan::plan(&attention::AttentionView::new(workload)?, target)
        }
        (op, kind) => Err(Unsupported::Target { op: op.as_str(), kind: kind.as_str() }),
    }
}
