//! Level 1 to level 2: the only pass that knows targets.

pub mod cpu;
pub mod math;
pub mod simt;

use search_space::families::Unsupported;
use search_space::families::attention::AttentionView;
use search_space::families::contraction::ContractionView;
use search_space::families::nest::Nest;
use search_space::target::TargetKind;
use search_space::workload::Op;
use search_space::{Schedule, Target, Workload};

use crate::families::{attention, contraction, map, reduction, rows};
use crate::tile::verify::{self, TileError};
use crate::{lane, tile};

/// Why a schedule could not be lowered.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LowerError {
    /// The workload has no lowering.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The schedule is not one of this workload's space.
    #[error("schedule: {why}")]
    Schedule {
        /// The parameter and the reason.
        why: String,
    },
    /// The tile program breaks a rule: a fault of a family, never of the user.
    #[error("tile program: {0}")]
    Tile(#[from] TileError),
    /// The tile program has no form as workgroups of lanes.
    #[error(transparent)]
    Simt(#[from] simt::SimtError),
    /// A limit of the target is exceeded.
    #[error("{what} needs {needed}, the target allows {limit}")]
    Limit {
        /// The thing.
        what: &'static str,
        /// Needed.
        needed: u64,
        /// Allowed.
        limit: u64,
    },
}

/// A candidate in both levels.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// Level 1.
    pub tile: tile::Program,
    /// Level 2.
    pub lane: lane::Program,
}

impl Lowered {
    /// blake3 (hex) of the level-1 text: candidates with equal hashes on a target are the same kernel.
    pub fn program_hash(&self) -> String {
        hash_of(&self.tile)
    }
}

/// blake3 (hex) of the level-1 text: candidates with equal hashes on a target are the same kernel.
fn hash_of(program: &tile::Program) -> String {
    blake3::hash(program.to_string().as_bytes()).to_hex().to_string()
}

/// The program hash of a schedule, without lowering it to lanes.
///
/// # Errors
/// As [`lower`].
pub fn program_hash(workload: &Workload, target: &Target, schedule: &Schedule) -> Result<String, LowerError> {
    Ok(hash_of(&build(workload, target, schedule)?))
}

/// Builds and verifies level 1.
pub(crate) fn build(workload: &Workload, target: &Target, schedule: &Schedule) -> Result<tile::Program, LowerError> {
    let kind = target.key.kind;
    let program = match (workload.op, kind) {
        (Op::ContractMadd, TargetKind::Cpu) => {
            contraction::cpu::build(&ContractionView::new(workload)?, target, schedule)?
        }
        (Op::ContractMadd, TargetKind::Vulkan) => {
            let view = ContractionView::new(workload)?;
            view.only_f32()?;
            contraction::simt::build(&view, target, schedule)?
        }
        (Op::Map, _) => map::build(&Nest::new(workload)?, schedule)?,
        (Op::ContractAdd | Op::ContractMax, _) => reduction::build(&Nest::new(workload)?, schedule)?,
        (op, _) if op.is_rows() => rows::build(&Nest::new(workload)?, schedule)?,
        (Op::Attention { .. }, TargetKind::Cpu) => attention::build(&AttentionView::new(workload)?, schedule)?,
        (Op::Attention { .. }, TargetKind::Vulkan) => {
            attention::invocations::build(&AttentionView::new(workload)?, schedule)?
        }
        (op, kind) => return Err(Unsupported::Target { op: op.as_str(), kind: kind.as_str() }.into()),
    };
    verify::verify(&program)?;
    Ok(program)
}

/// Builds, verifies and lowers the program of a schedule.
///
/// # Errors
/// [`LowerError`] names the workload's or the schedule's fault.
pub fn lower(workload: &Workload, target: &Target, schedule: &Schedule) -> Result<Lowered, LowerError> {
    let program = build(workload, target, schedule)?;
    let kernels = program
        .kernels
        .iter()
        .map(|kernel| match (workload.op, target.key.kind) {
            (_, TargetKind::Cpu) => Ok(cpu::lower(kernel, target)),
            (Op::ContractMadd, _) => simt::lower(kernel, target),
            // Each invocation works like a core.
            _ => {
                let lowered = cpu::lower(kernel, target);
                simt::check_limits(&lowered, &target.limits)?;
                Ok(lowered)
            }
        })
        .collect::<Result<Vec<_>, LowerError>>()?;
    let lane = lane::Program { kernels, workspace_bytes: program.workspace_bytes.clone() };
    Ok(Lowered { tile: program, lane })
}
