//! Sums and maxima: reductions and pooling, in one stage or, to keep several workers busy, in two.

use super::choice;
use super::nest::Nest;
use super::workers::{self, Outermost, Workers};
use super::{SchedulePlan, Unsupported, contraction};
use crate::schedule::{Schedule, Value};
use crate::space::SpaceBuilder;
use crate::target::Target;

/// A schedule with typed fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReductionSchedule {
    /// Results computed together, along the last axis that is kept.
    pub block: u64,
    /// Steps of the outermost reduced axis taken before the next results are turned to.
    pub depth: u64,
    /// Independent partial results.
    pub accumulators: u64,
    /// Elements ahead of the one read that are asked for; 0 asks for none.
    pub ahead: u64,
    /// Parts of the outermost reduced axis that are summed apart, then together.
    pub parts: u64,
    /// Who runs the parts, or the blocks of results where there is one part.
    pub workers: Workers,
}

const PAR: [&str; 3] = ["-", "results", "parts"];

impl ReductionSchedule {
    /// Reads the named values.
    ///
    /// # Errors
    /// The parameter that is missing or has no meaning.
    pub fn read(schedule: &Schedule) -> Result<ReductionSchedule, String> {
        let ahead = schedule.int("ahead").and_then(|ahead| u64::try_from(ahead).ok());
        Ok(ReductionSchedule {
            block: choice::int(schedule, "block")?,
            depth: choice::int(schedule, "depth")?,
            accumulators: choice::int(schedule, "acc")?,
            ahead: ahead.ok_or("parameter ahead is missing or not a number")?,
            parts: choice::int(schedule, "parts")?,
            workers: Workers::read(schedule, &PAR)?,
        })
    }
}

/// The space of a reduction and its default schedule.
///
/// # Errors
/// [`Unsupported`] when the target's memory cannot hold an operand, or the space is empty or too large to compile.
pub fn plan(nest: &Nest, target: &Target) -> Result<SchedulePlan, Unsupported> {
    workers::check_memory(&nest.workload, target)?;
    let invocations = workers::are_invocations(target);
    let (kept, reduced) = (nest.axes(false), nest.axes(true));
    let last = kept.last().map_or(1, |&axis| nest.extents[axis]);
    let outermost = nest.extents[reduced[0]];
    let results = nest.count(&kept);
    let threads = target.key.threads;
    let mut space = SpaceBuilder::new();
    let blocks = choice::blocks(&[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096], last);
    let fits = |block: &i64| !invocations || block.unsigned_abs() <= workers::WRITTEN_OUT.min(last);
    space.param("block", blocks.into_iter().filter(fits));
    space.param("depth", choice::blocks(&[1, 2, 4, 8, 16, 32, 64, 256, 1024], outermost));
    space.param("acc", [1, 2, 4, 8, 12]);
    space.param("ahead", if invocations { vec![0] } else { vec![0, 256, 512, 1024, 2048, 8192] });
    let most = if invocations { 1024 } else { threads * 8 };
    let several = invocations || threads > 1;
    let fits = |parts: &u64| *parts == 1 || (several && *parts <= outermost && *parts <= most);
    let parts = [1u64, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024].into_iter().filter(fits);
    let parts = parts.filter(|&parts| invocations || parts <= 64);
    space.param("parts", parts.map(|parts| i64::try_from(parts).expect("invariant: small"))).structural("parts");
    let room = nest.workload.workspace_bytes / 4;
    space.require("workspace", &format!("parts == 1 || parts*{results} <= {room}"));
    if invocations {
        require_invocations(nest, &mut space, target);
    } else {
        space.names("par", if threads > 1 { &PAR } else { &PAR[..1] }).structural("par");
        space.require("parts_spread", "par == 'parts' => parts > 1");
        space.require("parts_used", "parts > 1 => par == 'parts'");
    }
    let space = space.build().map_err(|error| Unsupported::Space { why: error.to_string() })?;
    let split = threads > 1 && results < threads;
    let parts = if invocations && results < FEW_RESULTS {
        i64::try_from(outermost.isqrt()).unwrap_or(1)
    } else if split {
        i64::try_from(threads).unwrap_or(1)
    } else {
        1
    };
    let mut wish: Vec<(&str, Value)> = vec![
        ("block", if invocations { 1 } else { 16 }.into()),
        ("depth", i64::try_from(outermost).unwrap_or(i64::MAX).into()),
        ("acc", 8.into()),
        ("ahead", 1024.into()),
        ("parts", parts.into()),
    ];
    if invocations {
        wish.extend(workers::wish_invocations());
    } else {
        let par = match (split, threads) {
            (true, _) => "parts",
            (false, 1) => "-",
            (false, _) => "results",
        };
        wish.push(("par", par.into()));
    }
    let default = contraction::closest(&space, &wish);
    Ok(SchedulePlan { space, default })
}

/// Fewer results than this keep no device busy by themselves.
const FEW_RESULTS: u64 = 64;

/// The parameters of invocations, each of which computes one block of results of one part.
fn require_invocations(nest: &Nest, space: &mut SpaceBuilder, target: &Target) {
    let (kept, reduced) = (nest.axes(false), nest.axes(true));
    let last = kept.last().map_or(1, |&axis| nest.extents[axis]);
    let others = nest.count(&kept) / last;
    let (outermost, inner) = (nest.extents[reduced[0]], &reduced[1..]);
    let inner: Vec<u64> = inner.iter().map(|&axis| nest.extents[axis]).collect();
    // A walk over `depth` steps of the outermost reduced axis and all of the others.
    let walk = if inner.is_empty() {
        "(depth/acc + acc)".into()
    } else {
        format!("depth*(1 + {})", workers::nested(&inner, "acc"))
    };
    let length = format!("ceildiv({outermost}, parts)");
    let steps = format!("ceildiv({length}, min(depth, {length}))");
    let outermost = Outermost {
        count: &format!("parts*{others}*ceildiv({last}, block)"),
        inside: &format!("2*block + {steps}*(1 + block*(1 + {walk})) + block*(1 + parts)"),
    };
    workers::invocations(space, target, &outermost);
}
