//! Attention as invocations: each owns a few queries of one head and some columns of their results, and walks over blocks
//! of keys with online softmax. Invocations that share queries and differ in columns compute the same scores.

use super::AttentionView;
use crate::families::contraction::closest;
use crate::families::workers::{self, Outermost, WRITTEN_OUT, Workers};
use crate::families::{SchedulePlan, Unsupported, choice};
use crate::schedule::{Schedule, Value};
use crate::space::SpaceBuilder;
use crate::target::Target;

/// A schedule with typed fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvocationSchedule {
    /// Queries of an invocation.
    pub queries: u64,
    /// Columns of the results of an invocation.
    pub columns: u64,
    /// Keys in a block.
    pub keys: u64,
    /// Terms of a score per iteration of the innermost loop.
    pub ku: u64,
    /// Who runs the blocks of queries and columns.
    pub workers: Workers,
}

impl InvocationSchedule {
    /// Reads the named values.
    ///
    /// # Errors
    /// The parameter that is missing or has no meaning.
    pub fn read(schedule: &Schedule) -> Result<InvocationSchedule, String> {
        Ok(InvocationSchedule {
            queries: choice::int(schedule, "queries")?,
            columns: choice::int(schedule, "columns")?,
            keys: choice::int(schedule, "keys")?,
            ku: choice::int(schedule, "ku")?,
            workers: Workers::Invocations {
                workgroup: choice::int(schedule, "workgroup")?,
                turns: choice::int(schedule, "turns")?,
            },
        })
    }
}

/// Most results that an invocation keeps: they are variables, not an array.
const RESULTS: u64 = 128;
/// Most scores that an invocation keeps.
const SCORES: u64 = 32;
/// Most loads that the loop over blocks of keys contains, and most multiplications: all of them are written out, and
/// drivers take more than proportionally longer to compile more. Mesa's lavapipe takes seconds for this many and did not
/// finish twice as many in ten.
const LOADS: u64 = 512;
const PRODUCTS: u64 = 1280;
/// Columns of the default. With two queries and four keys lavapipe compiles it in a second or two.
const DEFAULT_COLUMNS: u64 = 32;

/// The space of an attention on a target whose kernels run as workgroups, and its default schedule.
///
/// # Errors
/// [`Unsupported`] when the target's memory cannot hold an operand, or the space is empty or too large to compile.
pub fn plan(view: &AttentionView, target: &Target) -> Result<SchedulePlan, Unsupported> {
    workers::check_memory(&view.workload, target)?;
    let (keys, width, depth) = (view.extents[view.axes.n], view.extents[view.axes.e], view.extents[view.axes.d]);
    let up_to = |most: u64, ladder: &[u64], extent: u64| {
        let sizes = choice::blocks(ladder, extent).into_iter();
        sizes.filter(move |size| size.unsigned_abs() <= most)
    };
    let mut space = SpaceBuilder::new();
    space.param("queries", [1u64, 2, 4].into_iter().filter(|&n| n <= view.queries.min(WRITTEN_OUT)).map(signed));
    space.param("columns", up_to(RESULTS, &[4, 8, 16, 32, 64, 128], width));
    space.param("keys", up_to(SCORES, &[1, 2, 4, 8, 16, 32], keys));
    space.param("ku", up_to(64, &[1, 2, 4, 8, 16, 32, 64], depth));
    space.require("result_registers", &format!("columns*queries <= {RESULTS}"));
    space.require("score_registers", &format!("keys*queries <= {SCORES}"));
    space.require("loads_written_out", &format!("keys*columns + ku*(keys + queries) <= {LOADS}"));
    space.require("products_written_out", &format!("keys*queries*(columns + ku) <= {PRODUCTS}"));
    let outermost = Outermost {
        count: &format!("{}*ceildiv({}, queries)*ceildiv({width}, columns)", view.problems(), view.queries),
        // What is left of whole blocks is taken key by key.
        inside: &format!("({keys}/keys + {keys} % keys)*(1 + {depth}/ku + {depth} % ku)"),
    };
    workers::invocations(&mut space, target, &outermost);
    let space = space.build().map_err(|error| Unsupported::Space { why: error.to_string() })?;
    let mut wish: Vec<(&str, Value)> =
        vec![("queries", 2.into()), ("columns", signed(DEFAULT_COLUMNS).into()), ("keys", 4.into()), ("ku", 4.into())];
    wish.extend(workers::wish_invocations());
    let columns_of_all = width.div_ceil(DEFAULT_COLUMNS);
    if view.problems().saturating_mul(view.queries.div_ceil(2)).saturating_mul(columns_of_all) < 64 {
        // Fewer invocations than a workgroup has: rather a smaller one than more invocations that repeat scores.
        wish.retain(|(name, _)| *name != "workgroup");
        wish.push(("workgroup", 32.into()));
    }
    let default = closest(&space, &wish);
    Ok(SchedulePlan { space, default })
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).expect("invariant: small")
}
