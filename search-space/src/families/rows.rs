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
    /// How many groups (or blocks of columns) ahead of the one whose input is read for the last time the memory of the
    /// input is asked for; 0 asks for none.
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
    space.param("ahead", if asks { vec![0, 1, 2, 4] } else { vec![0] }).structural("ahead");
    let chained = matches!(workload.op, Op::RowsSoftmax | Op::RowsLayerNorm { .. } | Op::RowsRmsNorm { .. });
    let chained = chained && !invocations && rows > 1;
    space.param("chain", if chained { vec![1, 4, 16, 64, 256] } else { vec![1] }).structural("chain");
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
        space.require("stream_vectors", &format!("store == 'stream' => block % {lanes} == 0"));
        // What passes hand on must fit the cache, or the next one fetches it again.
        let fits = (target.limits.l2_bytes / 4).max(cols);
        space.require("rows_fit", &format!("group == 1 || group*{cols} <= {fits}"));
    }
    space.require("blocks_used", &format!("block == {cols} || block*2 <= {cols}"));
    let space = space.build().map_err(|error| Unsupported::Space { why: error.to_string() })?;
    let mut wish: Vec<(&str, Value)> = vec![
        ("group", if cols <= 1024 && !invocations { 4 } else { 1 }.into()),
        ("block", i64::try_from(cols).unwrap_or(i64::MAX).into()),
        ("acc", 4.into()),
        ("ahead", 0.into()),
        ("chain", 1.into()),
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
