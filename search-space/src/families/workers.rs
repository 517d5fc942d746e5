//! Who runs the iterations of the outermost loop, and the parameters that say so: cores of a processor, or invocations
//! of a device whose kernels run as workgroups.

use super::{Unsupported, choice};
use crate::schedule::{Schedule, Value};
use crate::space::SpaceBuilder;
use crate::target::{Target, TargetKind};
use crate::workload::{DType, Workload};

/// Most bytes of arrays private to one invocation: what every implementation of WGSL has to offer (its section
/// "Limits").
pub const PRIVATE_BYTES: u64 = 8192;

/// Elements per iteration of the innermost loop of an invocation that walks a window without reducing it: the number of
/// iterations is what devices limit.
pub const COPIES: i64 = 4;

/// Most elements of an array private to an invocation that a loop walks: drivers write such loops out, however long they
/// are, and then compile for minutes.
pub(crate) const WRITTEN_OUT: u64 = 4;

const WORKGROUPS: [u64; 4] = [32, 64, 128, 256];
const TURNS: [i64; 7] = [1, 2, 4, 8, 16, 64, 256];

/// Who runs the iterations of the outermost loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// One core all of them.
    One,
    /// Each core its part.
    Cores {
        /// Shares of the work for each core, taken by whoever is free; 1 divides it beforehand.
        shares: u64,
    },
    /// Each invocation a few of them, far apart, so that neighbours work on neighbouring iterations.
    Invocations {
        /// Invocations of a workgroup.
        workgroup: u64,
        /// Iterations for each invocation.
        turns: u64,
    },
}

impl Workers {
    /// Reads `workgroup` and `turns`, or else `par` (a word of `words`, the first of which is nobody else) and `shares`.
    ///
    /// # Errors
    /// The parameter that is missing or has no meaning.
    pub fn read(schedule: &Schedule, words: &[&str]) -> Result<Workers, String> {
        if schedule.int("workgroup").is_some() {
            let (workgroup, turns) = (choice::int(schedule, "workgroup")?, choice::int(schedule, "turns")?);
            return Ok(Workers::Invocations { workgroup, turns });
        }
        let (several, shares) = (choice::word(schedule, "par", words)? > 0, choice::shares_of(schedule)?);
        Ok(if several { Workers::Cores { shares } } else { Workers::One })
    }
}

/// The outermost loop, in the language of constraints.
pub(crate) struct Outermost<'o> {
    /// Its iterations.
    pub(crate) count: &'o str,
    /// Iterations of loops inside one of them, at most.
    pub(crate) inside: &'o str,
}

/// Whether kernels for this target run as workgroups of invocations.
pub(crate) fn are_invocations(target: &Target) -> bool {
    target.key.kind == TargetKind::Vulkan
}

/// The parameters of invocations: `workgroup` and `turns`.
pub(crate) fn invocations(space: &mut SpaceBuilder, target: &Target, outermost: &Outermost) {
    let limits = &target.limits;
    let Outermost { count, inside } = outermost;
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let sizes = WORKGROUPS.into_iter().filter(|&size| size == WORKGROUPS[0] || size <= limits.workgroup_invocations);
    space.param("workgroup", sizes.map(signed));
    space.param("turns", TURNS);
    // Invocations or turns without an iteration add nothing.
    space.require("workgroup_used", &format!("workgroup == {} || workgroup < 2*({count})", WORKGROUPS[0]));
    space.require("turns_used", &format!("turns == 1 || workgroup*turns <= {count}"));
    space.require("grid", &format!("ceildiv({count}, workgroup*turns) <= {}", signed(limits.grid_per_dim)));
    space.require("loop_iterations", &format!("turns*(1 + {inside}) <= {}", signed(limits.loop_iterations)));
}

/// The wishes for a default of [`invocations`].
pub(crate) fn wish_invocations() -> [(&'static str, Value); 2] {
    [("workgroup", 64.into()), ("turns", 1.into())]
}

/// What the memory of a device with invocations cannot hold.
///
/// # Errors
/// [`Unsupported`] names the operand.
pub(crate) fn check_memory(workload: &Workload, target: &Target) -> Result<(), Unsupported> {
    if !are_invocations(target) {
        return Ok(());
    }
    for (position, operand) in workload.operands.iter().enumerate() {
        if !matches!(operand.dtype, DType::F32 | DType::I32) {
            let what = format!("type {} on a {} target", operand.dtype.as_str(), target.key.kind.as_str());
            return Err(Unsupported::Operand { operand: operand.name.clone(), what });
        }
        let needed = workload.operand_len(position).saturating_mul(operand.dtype.bytes());
        if needed > target.limits.buffer_bytes {
            let what = format!("operand {} in bytes", operand.name);
            return Err(Unsupported::Limit { what, needed, limit: target.limits.buffer_bytes });
        }
    }
    Ok(())
}

/// Iterations of loops over `extents`, one inside the other, `copies` at a time in the innermost, as text; `copies` is
/// the name of a parameter or a number.
pub(crate) fn nested(extents: &[u64], copies: &str) -> String {
    let Some((last, outer)) = extents.split_last() else { return "0".into() };
    let (mut around, mut total) = (1u64, 0u64);
    for extent in outer {
        around = around.saturating_mul(*extent);
        total = total.saturating_add(around);
    }
    format!("({total} + {around}*({last}/{copies} + {copies}))")
}
