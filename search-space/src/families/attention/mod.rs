//! Attention on the CPU: blocks of queries along the lanes of vectors, blocks of keys with online softmax. Elsewhere each
//! invocation takes its own queries ([`vulkan`]).

pub mod vulkan;

use super::choice;
use super::contraction::{OperandMap, closest, fixed_extents, operand_map};
use super::workers::Workers;
use super::{SchedulePlan, Unsupported};
use crate::schedule::{Schedule, Value};
use crate::space::SpaceBuilder;
use crate::target::Target;
use crate::workload::{AttentionAxes, DType, EpilogueStep, MathMode, Op, Role, Storage, Workload};

/// An attention with its axes sorted.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionView {
    /// The workload.
    pub workload: Workload,
    /// Factor of the scores.
    pub scale: f64,
    /// Whether queries see only the keys up to their own place.
    pub causal: bool,
    /// Axes by part.
    pub axes: AttentionAxes,
    /// Extent of each axis.
    pub extents: Vec<u64>,
    /// Independent problems: batch axes, and query heads that do not lie one after the other.
    pub batch: Vec<usize>,
    /// Queries of one problem: those of all query heads that share keys, where they lie one after the other.
    pub queries: u64,
    /// Maps of q, k, v and the output; strides by axis.
    pub maps: Vec<OperandMap>,
}

impl AttentionView {
    /// Sorts the axes of an attention.
    ///
    /// # Errors
    /// [`Unsupported`] names the first property that has no lowering.
    pub fn new(workload: &Workload) -> Result<AttentionView, Unsupported> {
        let Op::Attention { scale, causal } = workload.op else {
            return Err(Unsupported::Operation { op: workload.op.as_str() });
        };
        let extents = fixed_extents(workload)?;
        for operand in &workload.operands {
            let what = if !operand.dtype.is_float() || operand.dtype == DType::F64 {
                format!("type {}", operand.dtype.as_str())
            } else if operand.role == Role::InOut {
                "an in-out operand".into()
            } else if operand.prologue.is_some() {
                "a prologue".into()
            } else if operand.alias.is_some() {
                "an alias".into()
            } else if operand.storage == Storage::Free {
                "a free layout".into()
            } else {
                continue;
            };
            return Err(Unsupported::Operand { operand: operand.name.clone(), what });
        }
        if let Some(step) = workload.epilogue.iter().find(|step| matches!(step, EpilogueStep::Cast(_))) {
            return Err(Unsupported::Epilogue { step: step.word().into() });
        }
        let axes = workload.attention_axes().map_err(|_| Unsupported::Shape { why: "not an attention".into() })?;
        let maps: Vec<OperandMap> = (0..workload.operands.len()).map(|i| operand_map(workload, i)).collect();
        if let Some(map) = maps.iter().find(|map| !map.guards.is_empty()) {
            let operand = workload.operands[map.operand].name.clone();
            return Err(Unsupported::Operand { operand, what: "padding".into() });
        }
        let follows = |group: usize| {
            let rows = i64::try_from(extents[axes.m]).unwrap_or(i64::MAX);
            // What the epilogue reads must follow too; operands that ignore both axes do.
            maps.iter().all(|map| {
                rows == 1 && map.strides[axes.m] == 0
                    || map.strides[axes.m].checked_mul(rows) == Some(map.strides[group])
            })
        };
        let fused = axes.group.filter(|&group| follows(group));
        let own = [Some(axes.m), Some(axes.e), Some(axes.n), Some(axes.d), fused];
        let batch = (0..extents.len()).filter(|axis| !own.contains(&Some(*axis))).collect();
        let queries = extents[axes.m] * fused.map_or(1, |group| extents[group]);
        Ok(AttentionView {
            workload: workload.clone(),
            scale: scale.get(),
            causal,
            axes,
            extents,
            batch,
            queries,
            maps,
        })
    }

    /// Independent problems.
    pub fn problems(&self) -> u64 {
        self.batch.iter().map(|&axis| self.extents[axis]).product()
    }
}

/// A schedule with typed fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionSchedule {
    /// Elements of a vector.
    pub vw: u64,
    /// Vectors of queries in a block.
    pub nv: u64,
    /// Keys in a block.
    pub keys: u64,
    /// Keys of a register tile of scores.
    pub mk: u64,
    /// Columns of a register tile of results.
    pub me: u64,
    /// Steps per iteration of the innermost loops.
    pub ku: u64,
    /// Independent partial results of each maximum and sum.
    pub accumulators: u64,
    /// Whether exponentials may be short.
    pub short_exp: bool,
    /// Who runs the blocks of queries.
    pub workers: Workers,
}

const EXP: [&str; 2] = ["full", "short"];
const PAR: [&str; 2] = ["-", "queries"];

impl AttentionSchedule {
    /// Reads the named values.
    ///
    /// # Errors
    /// The parameter that is missing or has no meaning.
    pub fn read(schedule: &Schedule) -> Result<AttentionSchedule, String> {
        Ok(AttentionSchedule {
            vw: choice::int(schedule, "vw")?,
            nv: choice::int(schedule, "nv")?,
            keys: choice::int(schedule, "keys")?,
            mk: choice::int(schedule, "mk")?,
            me: choice::int(schedule, "me")?,
            ku: choice::int(schedule, "ku")?,
            accumulators: choice::int(schedule, "acc")?,
            short_exp: choice::word(schedule, "exp", &EXP)? == 1,
            workers: Workers::read(schedule, &PAR)?,
        })
    }
}

/// The space of an attention on a CPU target and its default schedule.
///
/// # Errors
/// [`Unsupported::Space`] when the space is empty or too large to compile.
pub fn plan(view: &AttentionView, target: &Target) -> Result<SchedulePlan, Unsupported> {
    let limits = &target.limits;
    let widest = (limits.vector_bytes / 4).max(1);
    let (keys, width, depth) = (view.extents[view.axes.n], view.extents[view.axes.e], view.extents[view.axes.d]);
    let signed = |value: u64| i64::try_from(value).expect("invariant: extents are below 2^31");
    let rows = |extent: u64| (1..=14).filter(move |&rows| rows == 1 || rows <= signed(extent));
    let mut space = SpaceBuilder::new();
    space.param("vw", [4, 8, 16].into_iter().filter(|&vw| vw <= signed(widest).max(4))).structural("vw");
    space.param("nv", [1, 2, 3, 4, 6]);
    space.param("keys", choice::blocks(&[16, 32, 48, 64, 96, 128, 192, 256, 384, 512], keys));
    space.param("mk", rows(keys));
    space.param("me", rows(width));
    space.param("ku", [1, 2, 4, 8]);
    space.param("acc", [1, 2, 4]);
    space.names("exp", if view.workload.math == MathMode::Ieee { &EXP[..1] } else { &EXP });
    space.names("par", if target.key.threads > 1 { &PAR } else { &PAR[..1] });
    choice::shares(&mut space, target);
    let registers = limits.vector_registers;
    space.require("score_registers", &format!("mk*nv + nv + 1 <= {registers}"));
    space.require("result_registers", &format!("me*nv + nv + 1 <= {registers}"));
    // A block of queries that is mostly beyond the end wastes its lanes.
    space.require("queries_used", &format!("nv == 1 || (nv - 1)*vw < {}", view.queries));
    let held = limits.l2_bytes.max(1 << 18) / 4;
    space.require("block_fits", &format!("nv*vw*(keys + {depth} + {width}) <= {held} || nv == 1"));
    let space = space.build().map_err(|error| Unsupported::Space { why: error.to_string() })?;
    // Few queries at a time leave scores and values in the first-level cache; the rows of a register tile are what the
    // registers hold, but so that the tiles of a block are alike: on an AVX-512 core 3 to 10 % faster than 4 x 6.
    let wide = registers >= 32;
    let even = |extent: u64| signed(extent.div_ceil(extent.div_ceil(if wide { 14 } else { 4 })));
    let block = keys.min(128);
    let wish: [(&str, Value); 10] = [
        ("shares", 1.into()),
        ("vw", signed(widest).into()),
        ("nv", 2.into()),
        ("keys", signed(block).into()),
        ("mk", even(block).into()),
        ("me", even(width).into()),
        ("ku", 4.into()),
        ("acc", 4.into()),
        ("exp", "full".into()),
        ("par", if target.key.threads > 1 { "queries" } else { "-" }.into()),
    ];
    let default = closest(&space, &wish);
    Ok(SchedulePlan { space, default })
}
