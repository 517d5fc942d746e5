//! Two forms of a matrix product that pack both factors and sum `mr` rows times `nv` vectors of 16 columns at once.
//! `tile` runs on the processor's matrix unit, whose registers hold 16×16 sums or 16 rows of 64 bytes of a factor; `bytes`
//! on vectors whose lanes sum four products of bytes.

use super::space::signed;
use crate::families::contraction::{ContractionView, closest};
use crate::schedule::{Schedule, Value};
use crate::space::{ParameterSpace, SpaceBuilder};
use crate::target::{Limits, Target};
use crate::workload::DType;

/// Registers of the unit.
const REGISTERS: u64 = 8;
/// Rows (or columns) of a register.
const BLOCK: u64 = 16;
/// Bytes of k in a row of a factor's register.
const STEP_BYTES: u64 = 64;
/// Steps of k between stores that keep the unit's stores fast.
pub(super) const WAKES: [i64; 4] = [0, 4, 8, 16];
/// Largest block of packed rows and of packed columns, as multiples of the second-level cache.
const ROWS_PER_L2: u64 = 2;
const COLS_PER_L2: u64 = 4;

/// The constraints of the form `tile`.
pub(super) fn tile(space: &mut SpaceBuilder, view: &ContractionView, l2_bytes: u64) {
    whole(space, view, "tile", l2_bytes, BLOCK);
    let rows = format!("ceildiv(mr, {BLOCK})");
    // One register for each block of sums, and for one step of each factor.
    let rule = format!("form == 'tile' => (mr % {BLOCK} == 0 && {rows}*nv + {rows} + nv <= {REGISTERS})");
    space.require("tile_registers", &rule);
    space.require("asleep", "form != 'tile' => wake == 0");
    // There is something left to do after the first of these stores.
    let steps = view.extents().2.div_ceil(STEP_BYTES / view.factors()[0].bytes());
    space.require("wakes_used", &format!("wake == 0 || wake < {steps}"));
}

/// The constraints of the form `bytes`.
pub(super) fn bytes(space: &mut SpaceBuilder, view: &ContractionView, limits: &Limits) {
    whole(space, view, "bytes", limits.l2_bytes, 1);
    // The sums, a step of `b` and the sums of `b` itself, a word of `a` and the signs of bytes.
    let rule = format!("form == 'bytes' => mr*nv + 2*nv + 2 <= {}", limits.vector_registers);
    space.require("bytes_registers", &rule);
}

/// The constraints of forms that pack both factors and sum all of k at once, with packed tiles of `rows` rows.
fn whole(space: &mut SpaceBuilder, view: &ContractionView, form: &str, l2_bytes: u64, rows: u64) {
    let (m, n, k) = view.extents();
    let mut on = |name: &str, rule: String| {
        space.require(format!("{form}_{name}"), &format!("form == '{form}' => ({rule})"));
    };
    on("vec", format!("vec == 'n' && vw == {BLOCK}"));
    // No register tile or cache block begins beyond the end.
    on("rows_used", format!("mr < {} && (mt - 1)*mr < {m}", m + rows));
    on("cols_used", format!("nv*vw < {} && (nt - 1)*(nv*vw) < {n}", n + BLOCK));
    on("whole_k", format!("kc == {k}"));
    on("order", "order in ['jpi.ji', 'jpi.ij', 'ipj.ji', 'ipj.ij']".into());
    on("packed", "pack_a != 'none' && pack_b != 'none'".into());
    on("ahead", "pf <= 4".into());
    on("tail", "tail == 'separate'".into());
    let size = |dtype: DType| dtype.bytes() * k;
    let [a, b] = view.factors().map(size);
    on("rows_fit", format!("mt > 1 && pack_a == 'panel' => mt*mr*{a} <= {}", l2_bytes * ROWS_PER_L2));
    on("cols_fit", format!("nt > 1 && pack_b == 'panel' => nt*(nv*vw)*{b} <= {}", l2_bytes * COLS_PER_L2));
}

/// Two by two registers of the matrix unit over blocks of 256 rows, fewer where those do not fit half the second-level
/// cache; or two vectors and as many rows as the registers hold, over blocks of some 240 rows. Rows that make one block
/// are packed once, and every panel of columns is best used while it is still in the cache; else rows are packed for each
/// block of columns, and those should be few.
pub(super) fn default(view: &ContractionView, target: &Target, tile: bool, space: &ParameterSpace) -> Schedule {
    let (m, n, k) = view.extents();
    let l2_bytes = target.limits.l2_bytes;
    let [row, column] = view.factors().map(|dtype| (k * dtype.bytes()).max(1));
    let rows = if tile { (l2_bytes / 2 / row / 32).clamp(1, 8) } else { 20 };
    let budget = match tile {
        true if rows * 32 >= m => l2_bytes / 8,
        true => l2_bytes * 2,
        false => l2_bytes / 2,
    };
    let columns = (budget / column).clamp(64, n.max(64));
    let packed = |map| if view.is_free(map) { "ahead" } else { "panel" };
    let wish: [(&str, Value); 15] = [
        ("form", if tile { "tile" } else { "bytes" }.into()),
        ("vec", "n".into()),
        ("vw", signed(BLOCK).into()),
        ("mr", if tile { 32 } else { 12 }.into()),
        ("nv", 2.into()),
        ("mt", signed(rows).into()),
        ("nt", signed(columns / 32).into()),
        ("kc", signed(k).into()),
        ("order", "jpi.ji".into()),
        ("pack_a", packed(&view.a).into()),
        ("pack_b", packed(&view.b).into()),
        ("ku", 2.into()),
        ("pf", if tile { 2 } else { 1 }.into()),
        ("wake", 8.into()),
        ("tail", "separate".into()),
    ];
    closest(space, &wish)
}
