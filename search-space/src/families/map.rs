//! Elementwise chains, transposes and copies: blocks of two axes, the one along which the output is
//! contiguous and the one along which the input is.

use super::choice::{self, STORES, Store};
use super::nest::Nest;
use super::workers::{self, COPIES, Outermost, Workers};
use super::{SchedulePlan, Unsupported, contraction};
use crate::schedule::{Schedule, Value};
use crate::space::SpaceBuilder;
use crate::target::Target;

/// The loop that is outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outer {
    /// Over blocks of rows.
    Rows,
    /// Over blocks of columns.
    Cols,
}

/// A schedule with typed fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapSchedule {
    /// Elements of a block along the second axis.
    pub rows: u64,
    /// Elements of a block along the output's contiguous axis.
    pub cols: u64,
    /// Order of the two loops over blocks.
    pub outer: Outer,
    /// How the output is stored.
    pub store: Store,
    /// Who runs the blocks.
    pub workers: Workers,
}

const CPU_LENGTHS: [u64; 11] = [16, 32, 48, 64, 128, 256, 512, 1024, 4096, 16384, 65536];
const OUTER: [&str; 2] = ["rows", "cols"];
const PAR: [&str; 2] = ["-", "blocks"];

impl MapSchedule {
    /// Reads the named values.
    ///
    /// # Errors
    /// The parameter that is missing or has no meaning.
    pub fn read(schedule: &Schedule) -> Result<MapSchedule, String> {
        Ok(MapSchedule {
            rows: choice::int(schedule, "rows")?,
            cols: choice::int(schedule, "cols")?,
            outer: [Outer::Rows, Outer::Cols][choice::word(schedule, "outer", &OUTER)?],
            store: choice::store(schedule)?,
            workers: Workers::read(schedule, &PAR)?,
        })
    }
}

/// The two axes that blocks are cut from: `(rows, cols)`. Columns are where the output is contiguous (or steps least),
/// rows where the input is, or else the axis next to the columns; with one axis both are the same.
pub fn axes(nest: &Nest) -> (usize, usize) {
    let least = |map: &contraction::OperandMap, without: Option<usize>| {
        let steps = (0..nest.extents.len()).filter(|&axis| Some(axis) != without && nest.extents[axis] > 1);
        steps.min_by_key(|&axis| match map.strides[axis].unsigned_abs() {
            0 => u64::MAX,
            step => step,
        })
    };
    let cols = least(nest.out(), None).unwrap_or(0);
    let input = least(nest.factor(), None).filter(|&axis| axis != cols);
    (input.or_else(|| least(nest.out(), Some(cols))).unwrap_or(cols), cols)
}

/// The space of a map and its default schedule.
///
/// # Errors
/// [`Unsupported`] when the target's memory cannot hold an operand, or the space is empty or too large to compile.
pub fn plan(nest: &Nest, target: &Target) -> Result<SchedulePlan, Unsupported> {
    workers::check_memory(&nest.workload, target)?;
    let invocations = workers::are_invocations(target);
    let (rows, cols) = axes(nest);
    let lanes = (target.limits.vector_bytes / 4).max(1);
    let (row_count, col_count) = (if rows == cols { 1 } else { nest.extents[rows] }, nest.extents[cols]);
    let mut space = SpaceBuilder::new();
    space.param("rows", choice::blocks(&[1, 2, 4, 8, 16, 32, 48, 64, 128, 256, 512], row_count));
    let lengths: &[u64] = if invocations { &[1, 2, 4, 8, 16, 32, 64, 256, 1024] } else { &CPU_LENGTHS };
    space.param("cols", choice::blocks(lengths, col_count));
    space.names("outer", &OUTER);
    space.names("store", if invocations { &STORES[..1] } else { &STORES }).structural("store");
    if invocations {
        let others = nest.extents.iter().product::<u64>() / (row_count * col_count);
        let outermost = Outermost {
            count: &format!("{others}*ceildiv({row_count}, rows)*ceildiv({col_count}, cols)"),
            inside: &format!("rows*(1 + cols/{COPIES} + {COPIES})"),
        };
        workers::invocations(&mut space, target, &outermost);
    } else {
        space.names("par", if target.key.threads > 1 { &PAR } else { &PAR[..1] });
        choice::shares(&mut space, target);
        if !nest.whole_vectors(nest.out(), cols, lanes) {
            space.require("whole_vectors", "store == 'plain'");
        }
        choice::stream_far(&mut space, target, &nest.workload);
        space.require("stream_vectors", &format!("store == 'stream' => cols % {lanes} == 0"));
    }
    let mut space = space.build().map_err(|error| Unsupported::Space { why: error.to_string() })?;
    // Turned blocks: two neighbouring lines of the output are finished together, from few enough rows of the input that
    // their lines stay in the first-level cache. Of those measured on an AVX-512 core the best for 4096 x 4096. Blocks that
    // are not turned have 256 elements, with which 2^20 GELUs took a sixth less time than with 4096.
    let turned = nest.factor().strides[cols] != 1;
    let mut wish: Vec<(&str, Value)> = vec![
        ("rows", if turned && !invocations { 64 } else { 1 }.into()),
        ("cols", if invocations { 4 } else { if turned { 32 } else { 256 } }.into()),
        ("outer", if invocations { "rows" } else { "cols" }.into()),
        ("store", "plain".into()),
    ];
    if invocations {
        wish.extend(workers::wish_invocations());
    } else {
        wish.push(("par", if target.key.threads > 1 { "blocks" } else { "-" }.into()));
        wish.push(("shares", 1.into()));
    }
    let default = contraction::closest(&space, &wish);
    if !invocations {
        let streaming = wish.iter().map(|(name, value)| match *name {
            "store" => (*name, "stream".into()),
            _ => (*name, value.clone()),
        });
        let start = contraction::closest(&space, &streaming.collect::<Vec<_>>());
        space.start_from([start]);
    }
    Ok(SchedulePlan { space, default })
}
