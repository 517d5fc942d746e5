//! Sums and maxima on the CPU: reductions and pooling, in one stage or, to keep several cores busy, in two.

use super::choice;
use super::nest::Nest;
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
    /// What is spread over the cores.
    pub parallel: Spread,
}

/// What is spread over the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Nothing (`-`).
    Nothing,
    /// Blocks of results.
    Results,
    /// The parts of each result.
    Parts,
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
            parallel: [Spread::Nothing, Spread::Results, Spread::Parts][choice::word(schedule, "par", &PAR)?],
        })
    }
}

/// The space of a reduction on a CPU target and its default schedule.
///
/// # Errors
/// [`Unsupported::Space`] when the space is empty or too large to compile.
pub fn plan(nest: &Nest, target: &Target) -> Result<SchedulePlan, Unsupported> {
    let (kept, reduced) = (nest.axes(false), nest.axes(true));
    let last = kept.last().map_or(1, |&axis| nest.extents[axis]);
    let outermost = nest.extents[reduced[0]];
    let results = nest.count(&kept);
    let threads = target.key.threads;
    let mut space = SpaceBuilder::new();
    space.param("block", choice::blocks(&[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096], last));
    space.param("depth", choice::blocks(&[1, 2, 4, 8, 16, 32, 64, 256, 1024], outermost));
    space.param("acc", [1, 2, 4, 8, 12]);
    space.param("ahead", [0, 256, 512, 1024, 2048, 8192]);
    let most = |parts: &u64| *parts == 1 || (threads > 1 && *parts <= outermost && *parts <= threads * 8);
    let parts = [1u64, 2, 4, 8, 16, 32, 64].into_iter().filter(most);
    space.param("parts", parts.map(|parts| i64::try_from(parts).expect("invariant: small"))).structural("parts");
    space.names("par", if threads > 1 { &PAR } else { &PAR[..1] }).structural("par");
    space.require("parts_spread", "par == 'parts' => parts > 1");
    space.require("parts_used", "parts > 1 => par == 'parts'");
    let room = nest.workload.workspace_bytes / 4;
    space.require("workspace", &format!("parts == 1 || parts*{results} <= {room}"));
    let space = space.build().map_err(|error| Unsupported::Space { why: error.to_string() })?;
    let split = threads > 1 && results < threads;
    let wish: [(&str, Value); 6] = [
        ("block", 16.into()),
        ("depth", i64::try_from(outermost).unwrap_or(i64::MAX).into()),
        ("acc", 8.into()),
        ("ahead", 1024.into()),
        ("parts", if split { i64::try_from(threads).unwrap_or(1) } else { 1 }.into()),
        (
            "par",
            if split {
                "parts"
            } else if threads > 1 {
                "results"
            } else {
                "-"
            }
            .into(),
        ),
    ];
    let default = contraction::closest(&space, &wish);
    Ok(SchedulePlan { space, default })
}
