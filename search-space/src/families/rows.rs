//! Softmax, norms and arg-max: groups of rows, passes over their columns. On a CPU the cores share the groups, elsewhere
//! each invocation takes its own.

use super::choice::{self, STORES, Store};
use super::nest::Nest;
use super::workers::{self, Outermost, WRITTEN_OUT, Workers};
use super::{SchedulePlan, Unsupported, contraction};
use crate::schedule::{Schedule, Value};
use crate::space::SpaceBuilder;
use crate::target::Target;
use crate::workload::{MathMode, Op};

/// How mean and variance are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moments {
    /// Sums and sums of squares of the distance to the row's first element, in one pass.
    Shifted,
    /// The mean first, then the squares of the distance to it.
    TwoPass,
}

/// A schedule with typed fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowsSchedule {
    /// Rows that take each pass together.
    pub group: u64,
    /// Columns of a block of the online softmax; all columns: one block, no rescaling.
    pub block: u64,
    /// Independent partial results of each reduction.
    pub accumulators: u64,
    /// Elements that are asked for ahead of those read, where a pass reads the input for the last time, or a chain for
    /// the first: of the group or block that comes next. 0 asks for none.
    pub ahead: u64,
    /// Groups that follow each other, each written while the reductions of the next are taken; 1: each by itself.
    pub chain: u64,
    /// Layer norm.
    pub moments: Moments,
    /// Whether exponentials may be short.
    pub short_exp: bool,
    /// How the output is stored.
    pub store: Store,
    /// Who runs the groups.
    pub workers: Workers,
}

const MOMENTS: [&str; 3] = ["-", "shifted", "two_pass"];
const EXP: [&str; 3] = ["-", "full", "short"];
const CHAINS: [i64; 5] = [1, 4, 16, 64, 256];
const PAR: [&str; 2] = ["-", "rows"];

impl RowsSchedule {
    /// Reads the named values.
    ///
    /// # Errors
    /// The parameter that is missing or has no meaning.
    pub fn read(schedule: &Schedule) -> Result<RowsSchedule, String> {
        // Schedules that do not say ask for nothing.
        let ahead = schedule.get("ahead").map_or(Some(0), |_| schedule.int("ahead"));
        let ahead = ahead.and_then(|ahead| u64::try_from(ahead).ok()).ok_or("parameter ahead is not a number")?;
        Ok(RowsSchedule {
            group: choice::int(schedule, "group")?,
            block: choice::int(schedule, "block")?,
            accumulators: choice::int(schedule, "acc")?,
            ahead,
            chain: schedule.get("chain").map_or(Ok(1), |_| choice::int(schedule, "chain"))?,
            moments: if choice::word(schedule, "moments", &MOMENTS)? == 2 {
                Moments::TwoPass
            } else {
                Moments::Shifted
            },
            short_exp: choice::word(schedule, "exp", &EXP)? == 2,
            store: choice::store(schedule)?,
            workers: Workers::read(schedule, &PAR)?,
        })
    }
}

/// The space of a row pass and its default schedule.
///
/// # Errors
/// [`Unsupported`] when the target's memory cannot hold an operand, or the space is empty or too large to compile.
pub fn plan(nest: &Nest, target: &Target) -> Result<SchedulePlan, Unsupported> {
    let workload = &nest.workload;
    workers::check_memory(workload, target)?;
    let (kept, reduced) = (nest.axes(false), nest.axes(true));
    let (rows, cols) = (nest.count(&kept), nest.count(&reduced));
    if cols >= 1 << 31 {
        return Err(Unsupported::Limit { what: "a row".into(), needed: cols, limit: (1 << 31) - 1 });
    }
    let lanes = (target.limits.vector_bytes / 4).max(1);
    let exponential = matches!(workload.op, Op::RowsSoftmax | Op::RowsLogSoftmax);
    let mut space = SpaceBuilder::new();
    // Where the columns are strided, the rows are what vectors run along, and a group is several of those.
    let invocations = workers::are_invocations(target);
    let most = if invocations { rows.min(WRITTEN_OUT) } else { rows };
    let groups = [1u64, 2, 4, 8, 16, 32, 64].into_iter().filter(|&group| group <= most);
    space.param("group", groups.map(|group| i64::try_from(group).expect("invariant: small")));
    let one_axis = reduced.len() == 1;
    let ladder: &[u64] = if exponential && one_axis { &[512, 1024, 2048, 3200, 4096, 8192] } else { &[] };
    space.param("block", choice::blocks(ladder, cols)).structural("block");
    space.param("acc", [1, 2, 4, 8]);
    // What follows in memory can be asked for where vectors read one element after the other, in a pass after the first.
    let last = reduced[reduced.len() - 1];
    let asks = !invocations && workload.op != Op::RowsArgMax && nest.factor().strides[last] == 1;
    space.param("ahead", if asks { vec![0, 512, 1024, 2048, 4096, 8192] } else { vec![0] });
    let chained = matches!(workload.op, Op::RowsSoftmax | Op::RowsLayerNorm { .. } | Op::RowsRmsNorm { .. });
    let chained = chained && !invocations && rows > 1;
    space.param("chain", if chained { CHAINS.to_vec() } else { vec![1] }).structural("chain");
    if chained {
        space.require("chain_whole", &format!("chain == 1 || {rows} % group == 0"));
        space.require("chain_used", &format!("chain == 1 || chain*group < 4*{rows}"));
        // Moments of two passes are not taken in one.
        space.require("chain_moments", "chain == 1 || moments != 'two_pass'");
    }
    let moments = matches!(workload.op, Op::RowsLayerNorm { .. });
    space.names("moments", if moments { &MOMENTS[1..] } else { &MOMENTS[..1] }).structural("moments");
    let exp = match (exponential, workload.math) {
        (false, _) => &EXP[..1],
        (true, MathMode::Ieee) => &EXP[1..2],
        (true, _) => &EXP[1..],
    };
    space.names("exp", exp);
    space.names("store", if invocations { &STORES[..1] } else { &STORES }).structural("store");
    if invocations {
        // A pass runs over the columns once, or `acc` at a time where it reduces.
        let columns: Vec<u64> = reduced.iter().map(|&axis| nest.extents[axis]).collect();
        let blocks = format!("ceildiv({cols}, block)");
        let passes = |copies: &str| match one_axis {
            // The last block counts like the others.
            true => format!("{blocks}*(block/{copies} + {copies})"),
            false => workers::nested(&columns, copies),
        };
        let (folded, walked) = (passes("acc"), passes(&workers::COPIES.to_string()));
        let walked = if workload.op == Op::RowsArgMax { "0" } else { &walked };
        let outermost = Outermost {
            count: &format!("ceildiv({rows}, group)"),
            inside: &format!("{blocks}*8 + group*(2*{folded} + {walked} + {blocks}*(3*acc + 10))"),
        };
        workers::invocations(&mut space, target, &outermost);
        // A maximum is kept for each block.
        space.require("private_arrays", &format!("{blocks} == 1 || {blocks}*group <= {}", 4 * WRITTEN_OUT));
    } else {
        space.names("par", if target.key.threads > 1 { &PAR } else { &PAR[..1] });
        choice::shares(&mut space, target);
        if workload.op == Op::RowsArgMax || !nest.whole_vectors(nest.out(), last, lanes) {
            space.require("whole_vectors", "store == 'plain'");
        }
        choice::stream_far(&mut space, target, workload);
        space.require("stream_vectors", &format!("store == 'stream' => block % {lanes} == 0"));
        // What passes hand on must fit the cache, or the next one fetches it again.
        let fits = (target.limits.l2_bytes / 4).max(cols);
        space.require("rows_fit", &format!("group == 1 || group*{cols} <= {fits}"));
    }
    space.require("blocks_used", &format!("block == {cols} || block*2 <= {cols}"));
    let space = space.build().map_err(|error| Unsupported::Space { why: error.to_string() })?;
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    // As many rows as make a group that the first-level cache holds besides the next one, which is asked for meanwhile.
    let group = [16, 8, 4, 2].into_iter().find(|group| group * cols <= 2048 && !invocations).unwrap_or(1);
    // Short rows pass so quickly that a chain only takes up the first-level cache. In long ones it writes while it reads,
    // which pays for its copy of the exponentials where writing goes to memory.
    let bytes = |map: &contraction::OperandMap| {
        workload.operand_len(map.operand).saturating_mul(workload.operands[map.operand].dtype.bytes())
    };
    let beyond = bytes(nest.factor()).saturating_add(bytes(nest.out())) > target.limits.l2_bytes;
    let chains = chained && cols > 256 && (!exponential || beyond);
    let chain = if chains { chain_for(rows.div_ceil(group), target.key.threads) } else { 1 };
    let online = workload.op == Op::RowsSoftmax && one_axis && cols > 4096 && !invocations;
    let ahead = match group * cols {
        _ if !asks => 0,
        _ if chains || online => 1024,
        next @ ..=8192 => next,
        _ => 0,
    };
    let mut wish: Vec<(&str, Value)> = vec![
        ("group", signed(group).into()),
        ("block", if online { 1024 } else { signed(cols) }.into()),
        // Rows that pass together are independent by themselves.
        ("acc", if group >= 8 { 1 } else { 4 }.into()),
        ("ahead", signed(ahead).into()),
        ("chain", chain.into()),
        ("moments", if moments { "shifted" } else { "-" }.into()),
        ("exp", if exponential { "full" } else { "-" }.into()),
        ("store", "plain".into()),
    ];
    if invocations {
        wish.extend(workers::wish_invocations());
    } else {
        wish.push(("par", if target.key.threads > 1 { "rows" } else { "-" }.into()));
        wish.push(("shares", 1.into()));
    }
    let default = contraction::closest(&space, &wish);
    Ok(SchedulePlan { space, default })
}

/// The chain for so many groups: on one core the shortest that holds them all, else the longest that leaves each core one.
fn chain_for(groups: u64, threads: u64) -> i64 {
    let holds = |chain: &&i64| **chain >= i64::try_from(groups).unwrap_or(i64::MAX);
    let leaves = |chain: &&i64| chain.unsigned_abs().saturating_mul(threads) <= groups;
    let last = CHAINS[CHAINS.len() - 1];
    if threads == 1 {
        CHAINS.iter().find(holds).copied().unwrap_or(last)
    } else {
        CHAINS.iter().rev().find(leaves).copied().unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::cpu_target;
    use crate::workload::Workload;

    fn planned(text: &str, threads: u64) -> SchedulePlan {
        let target = cpu_target("icelake-server", &["avx512f"], 64, threads);
        plan(&Nest::new(&Workload::parse(text).unwrap()).unwrap(), &target).unwrap()
    }

    #[test]
    fn outputs_that_caches_hold_are_not_stored_past_them() {
        // The target's second-level cache has 256 KiB.
        for (rows, allowed) in [(255, false), (256, true)] {
            let plan = planned(&format!("rmsnorm rows={rows} cols=1024 dtype=f32"), 1);
            let mut streams = plan.default.clone();
            streams.set("store", "stream");
            assert_eq!(plan.space.why_schedule(&streams).is_none(), allowed, "{rows} rows");
        }
    }

    #[test]
    fn long_rows_begin_chained_and_every_core_has_a_chain() {
        let chain = |text, threads| planned(text, threads).default.int("chain");
        assert_eq!(chain("layernorm rows=128 cols=768 dtype=f32", 1), Some(64));
        assert_eq!(chain("layernorm rows=128 cols=768 dtype=f32", 4), Some(16));
        assert_eq!(chain("layernorm rows=3 cols=768 dtype=f32", 4), Some(1));
        assert_eq!(chain("softmax rows=1536 cols=128 dtype=f32", 1), Some(1));
        assert_eq!(chain("softmax rows=32 cols=512 dtype=f32", 1), Some(1));
        assert_eq!(chain("softmax rows=33 cols=1024 dtype=f32", 1), Some(64));
        assert_eq!(chain("argmax rows=128 cols=768 dtype=f32", 1), Some(1));
    }

    #[test]
    fn schedules_without_the_newer_parameters_mean_neither() {
        let plan = planned("softmax rows=64 cols=2048 dtype=f32", 1);
        let older: Schedule = plan
            .default
            .iter()
            .filter(|(name, _)| !["ahead", "chain"].contains(name))
            .map(|(name, value)| (name, value.clone()))
            .collect();
        let read = RowsSchedule::read(&older).unwrap();
        assert_eq!((read.ahead, read.chain), (0, 1));
    }
}
