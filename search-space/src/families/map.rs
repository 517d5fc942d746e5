//! Elementwise chains, transposes and copies on the CPU: blocks of two axes, the one along which the output is
//! contiguous and the one along which the input is.

use super::choice::{self, STORES, Store};
use super::nest::Nest;
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
    /// Whether the blocks are spread over the cores.
    pub parallel: bool,
    /// Shares of the work for each core, taken by whoever is free; 1 divides it beforehand.
    pub shares: u64,
}

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
            parallel: choice::word(schedule, "par", &PAR)? == 1,
            shares: choice::shares_of(schedule)?,
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

/// The space of a map on a CPU target and its default schedule.
///
/// # Errors
/// [`Unsupported::Space`] when the space is empty or too large to compile.
pub fn plan(nest: &Nest, target: &Target) -> Result<SchedulePlan, Unsupported> {
    let (rows, cols) = axes(nest);
    let lanes = (target.limits.vector_bytes / 4).max(1);
    let (row_count, col_count) = (if rows == cols { 1 } else { nest.extents[rows] }, nest.extents[cols]);
    let mut space = SpaceBuilder::new();
    space.param("rows", choice::blocks(&[1, 2, 4, 8, 16, 32, 48, 64, 128, 256, 512], row_count));
    space.param("cols", choice::blocks(&[16, 32, 48, 64, 128, 256, 512, 1024, 4096, 16384, 65536], col_count));
    space.names("outer", &OUTER);
    space.names("store", &STORES).structural("store");
    space.names("par", if target.key.threads > 1 { &PAR } else { &PAR[..1] });
    choice::shares(&mut space, target);
    if !nest.whole_vectors(nest.out(), cols, lanes) {
        space.require("whole_vectors", "store == 'plain'");
    }
    space.require("stream_vectors", &format!("store == 'stream' => cols % {lanes} == 0"));
    let space = space.build().map_err(|error| Unsupported::Space { why: error.to_string() })?;
    let turned = nest.factor().strides[cols] != 1;
    let wish: [(&str, Value); 6] = [
        ("shares", 1.into()),
        ("rows", if turned { 32 } else { 1 }.into()),
        ("cols", if turned { 64 } else { 4096 }.into()),
        ("outer", "cols".into()),
        ("store", "plain".into()),
        ("par", if target.key.threads > 1 { "blocks" } else { "-" }.into()),
    ];
    let default = contraction::closest(&space, &wish);
    Ok(SchedulePlan { space, default })
}
