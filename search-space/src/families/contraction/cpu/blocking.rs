//! Blockings of a matrix product: its default and what else a search begins with.

use super::space::signed;
use crate::families::contraction::{ContractionView, OperandMap, closest};
use crate::schedule::{Schedule, Value};
use crate::space::ParameterSpace;
use crate::target::Target;

/// Products with at most so many rows read each element of the columns for so little arithmetic that copying them does
/// not pay.
const STREAM_ROWS: u64 = 64;

/// Steps of k that pay for adding up parts.
const LEAST_PART: u64 = 64;

/// The default of a product: a blocking brought into the space by [`ParameterSpace::nearest`].
pub(super) fn default(view: &ContractionView, target: &Target, space: &ParameterSpace) -> Schedule {
    let (m, n, _) = view.extents();
    let lanes = target.limits.vector_bytes / 4;
    // A product with fewer columns than a vector has elements wastes them, unless vectors run along k.
    if view.has_dots() && m.min(n) < lanes {
        return default_dots(view, target, space);
    }
    let plan = if m <= STREAM_ROWS { Blocking::streamed(view, target) } else { Blocking::fused(view, target) };
    closest(space, &plan.wish(view, target))
}

/// Other blockings of a product that a search begins from.
pub(super) fn starts(view: &ContractionView, target: &Target, space: &ParameterSpace) -> Vec<Schedule> {
    [Blocking::fused, Blocking::streamed, Blocking::in_place, Blocking::packed]
        .map(|blocking| closest(space, &blocking(view, target).wish(view, target)))
        .into()
}

/// Eight rows at once, vectors along k.
pub(super) fn default_dots(view: &ContractionView, target: &Target, space: &ParameterSpace) -> Schedule {
    let (m, n, k) = view.extents();
    let wish: [(&str, Value); 13] = [
        ("form", "dots".into()),
        ("vec", if m >= n { "n" } else { "m" }.into()),
        ("vw", signed(target.limits.vector_bytes / 4).into()),
        ("mr", 8.into()),
        ("nv", 1.into()),
        ("mt", 1.into()),
        ("nt", 1.into()),
        ("kc", signed(k).into()),
        ("order", "jpi.ji".into()),
        ("pack_a", "none".into()),
        ("ku", 4.into()),
        ("tail", "-".into()),
        ("par", if target.key.threads > 1 { "rows" } else { "-" }.into()),
    ];
    closest(space, &wish)
}

/// A register tile with its cache blocks; `rows` and `cols` are tiles of a block.
#[derive(Clone, Debug)]
struct Blocking {
    mr: u64,
    nv: u64,
    rows: u64,
    cols: u64,
    kc: u64,
    order: &'static str,
    pack_rows: bool,
    /// How columns that can be read in place are packed.
    columns: &'static str,
    pf: u64,
}

impl Blocking {
    /// All of k at once as far as the panels of a block stay in the second-level cache, the columns packed by the first
    /// row of tiles.
    fn fused(view: &ContractionView, target: &Target) -> Blocking {
        let (m, _, k) = view.extents();
        let (mr, nv, most) = if wide(target) { (6, 4, 1024) } else { (4, 2, 256) };
        let kc = equal(k, most);
        let rows = (target.limits.l2_bytes / 2 / (4 * mr * kc)).max(1);
        // A panel that all rows are multiplied with at once is not needed again, and its memory serves the next one.
        let cols = if rows * mr >= m { 1 } else { 32 };
        Blocking { mr, nv, rows, cols, kc, order: "jpi.ji", pack_rows: false, columns: "fused", pf: 8 }
    }

    /// Both sides packed, in blocks of a quarter of the second-level cache.
    fn packed(view: &ContractionView, target: &Target) -> Blocking {
        let (_, _, k) = view.extents();
        let (mr, nv, most) = if wide(target) { (6, 4, 512) } else { (4, 2, 256) };
        let kc = equal(k, most);
        let rows = (target.limits.l2_bytes / 4 / (4 * mr * kc)).max(1);
        Blocking { mr, nv, rows, cols: 16, kc, order: "jpi.ji", pack_rows: true, columns: "panel", pf: 0 }
    }

    /// Columns read in place, over so few steps of k that their rows stay in the translation buffer.
    fn in_place(view: &ContractionView, target: &Target) -> Blocking {
        let (m, _, k) = view.extents();
        let (mr, nv) = if wide(target) { (8, 3) } else { (4, 2) };
        Blocking {
            mr,
            nv,
            rows: m.div_ceil(mr).min(32),
            cols: 16,
            kc: equal(k, 128),
            order: "jip.ji",
            pack_rows: true,
            columns: "none",
            pf: 8,
        }
    }

    /// For few rows: a few rows of the columns' operand at a time, from end to end, asked for ahead; the sums stay in
    /// the second-level cache.
    fn streamed(view: &ContractionView, target: &Target) -> Blocking {
        let (m, _, k) = view.extents();
        let (most, nv) = if wide(target) { (9, 3) } else { (5, 2) };
        let mr = equal(m, most);
        let sums = target.limits.l2_bytes / 8 / (4 * m.min(STREAM_ROWS));
        Blocking {
            mr,
            nv,
            rows: m.div_ceil(mr),
            cols: (sums * 4 / (nv * target.limits.vector_bytes)).max(1),
            kc: equal(k, 32),
            order: "jpi.ji",
            pack_rows: false,
            columns: "none",
            pf: 16,
        }
    }

    /// The schedule to come close to.
    fn wish(&self, view: &ContractionView, target: &Target) -> Vec<(&'static str, Value)> {
        let (m, n, k) = view.extents();
        let readable =
            |map: &OperandMap, group| view.linear(map, group).is_some() && view.linear(map, &view.k).is_some();
        let rows_in_place = readable(&view.a, &view.m) && !self.pack_rows;
        let cols_in_place = readable(&view.b, &view.n) && (view.linear(&view.b, &view.n) == Some(1) || n == 1);
        let lanes = target.limits.vector_bytes / 4;
        let (mr, nv) = (self.mr.min(m), self.nv.min(n.div_ceil(lanes)));
        let threads = target.key.threads;
        let (row_tiles, col_tiles) = (m.div_ceil(mr), n.div_ceil(nv * lanes));
        // Two blocks for each core, of the columns, as each core packs for itself what it multiplies with.
        let split = |tiles: u64, block: u64| block.min((tiles / (threads * 2)).max(1));
        let (par, rows, cols) = match threads {
            1 => ("-", self.rows, self.cols),
            _ if view.batch.extent() >= threads => ("batch", self.rows, self.cols),
            _ if col_tiles >= 2 * threads => ("cols", self.rows, split(col_tiles, self.cols)),
            _ if row_tiles.max(col_tiles) < 2 * threads && k >= LEAST_PART * threads => ("k", self.rows, self.cols),
            _ => ("rows", split(row_tiles, self.rows), self.cols),
        };
        let (kc, order) = if par == "k" { (equal(k, k.div_ceil(threads)), "pji.ji") } else { (self.kc, self.order) };
        let pack_b = match (view.is_free(&view.b), cols_in_place) {
            (true, _) => "ahead",
            (false, true) if par == "rows" && self.columns == "fused" => "panel",
            (false, true) => self.columns,
            (false, false) => "panel",
        };
        let pack_a = match (rows_in_place, view.is_free(&view.a)) {
            (true, _) => "none",
            (false, true) => "ahead",
            (false, false) => "panel",
        };
        let exact = m.is_multiple_of(mr) && n.is_multiple_of(nv * lanes);
        let ahead = if pack_b == "panel" { 0 } else { self.pf };
        vec![
            ("form", "gemm".into()),
            ("vec", "n".into()),
            ("vw", signed(lanes).into()),
            ("mr", signed(mr).into()),
            ("nv", signed(nv).into()),
            ("mt", signed(rows).into()),
            ("nt", signed(cols).into()),
            ("kc", signed(kc).into()),
            ("order", order.into()),
            ("pack_a", pack_a.into()),
            ("pack_b", pack_b.into()),
            ("ku", 4.into()),
            ("pf", signed(ahead).into()),
            ("tail", if exact { "-" } else { "separate" }.into()),
            ("par", par.into()),
        ]
    }
}

fn wide(target: &Target) -> bool {
    target.limits.vector_registers >= 32
}

/// Equal parts of at most `most` each, rather than full ones and a rest.
fn equal(extent: u64, most: u64) -> u64 {
    extent.div_ceil(extent.div_ceil(most).max(1)).max(1)
}
