//! Schedules of contractions on the CPU: cache blocks around a register tile, packing, edges, threads.
//!
//! `rows` is the side whose elements are broadcast, `cols` the side along which vectors run; `vec` says which of m and
//! n is `cols`. All sizes count elements.

use super::ContractionView;
use crate::families::{SchedulePlan, Unsupported};
use crate::schedule::{Schedule, Value};
use crate::space::SpaceBuilder;
use crate::target::Target;

/// Which output axis the vectors run along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VectorAxis {
    /// Along n; m is broadcast.
    N,
    /// Along m; n is broadcast.
    M,
}

/// How register tiles that reach over the end are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// No tile reaches over the end (`-`).
    Exact,
    /// Full tiles with guarded loads and stores.
    Masked,
    /// A smaller tile of its own.
    Separate,
    /// The last tile is moved back and overlaps the one before.
    Overlap,
}

/// The loop that is spread over the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parallel {
    /// None (`-`).
    None,
    /// Cache blocks of rows.
    Rows,
    /// Cache blocks of columns.
    Cols,
    /// Batch.
    Batch,
}

/// A cache-level loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopAxis {
    /// `i`, over blocks of rows.
    Rows,
    /// `j`, over blocks of columns.
    Cols,
    /// `p`, over blocks of k.
    K,
}

/// The loop orders, outermost first: three cache loops, then whether rows (`ji`) or columns (`ij`) are innermost.
pub const ORDERS: [&str; 12] = [
    "jpi.ji", "jpi.ij", "ipj.ji", "ipj.ij", "pji.ji", "pji.ij", "pij.ji", "pij.ij", "jip.ji", "jip.ij", "ijp.ji",
    "ijp.ij",
];

/// A schedule with typed fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuSchedule {
    /// Axis of the vectors.
    pub vec: VectorAxis,
    /// Elements of a vector.
    pub vw: u64,
    /// Rows of the register tile.
    pub mr: u64,
    /// Vectors of the register tile.
    pub nv: u64,
    /// Register tiles in a cache block along the rows.
    pub mt: u64,
    /// Register tiles in a cache block along the columns.
    pub nt: u64,
    /// Steps of k in a cache block.
    pub kc: u64,
    /// One of [`ORDERS`].
    pub order: String,
    /// Whether blocks of the row operand are copied to panels.
    pub pack_a: bool,
    /// Whether blocks of the column operand are copied to panels.
    pub pack_b: bool,
    /// Steps of k per iteration of the innermost loop.
    pub ku: u64,
    /// Edges.
    pub tail: Tail,
    /// Threads.
    pub par: Parallel,
}

impl CpuSchedule {
    /// Reads the named values.
    ///
    /// # Errors
    /// The parameter that is missing or has no meaning.
    pub fn read(schedule: &Schedule) -> Result<CpuSchedule, String> {
        let int = |name: &str| {
            let value = schedule.int(name).ok_or_else(|| format!("parameter {name} is missing or not a number"))?;
            u64::try_from(value).ok().filter(|&value| value > 0).ok_or_else(|| format!("{name}={value} must be > 0"))
        };
        let name = |name: &str| schedule.name(name).ok_or_else(|| format!("parameter {name} is missing or a number"));
        let unknown = |name: &str, value: &str| format!("{name}={value} is not known");
        Ok(CpuSchedule {
            vec: match name("vec")? {
                "n" => VectorAxis::N,
                "m" => VectorAxis::M,
                other => return Err(unknown("vec", other)),
            },
            vw: int("vw")?,
            mr: int("mr")?,
            nv: int("nv")?,
            mt: int("mt")?,
            nt: int("nt")?,
            kc: int("kc")?,
            order: match name("order")? {
                order if ORDERS.contains(&order) => order.into(),
                other => return Err(unknown("order", other)),
            },
            pack_a: packed("pack_a", name("pack_a")?)?,
            pack_b: packed("pack_b", name("pack_b")?)?,
            ku: int("ku")?,
            tail: match name("tail")? {
                "-" => Tail::Exact,
                "masked" => Tail::Masked,
                "separate" => Tail::Separate,
                "overlap" => Tail::Overlap,
                other => return Err(unknown("tail", other)),
            },
            par: match name("par")? {
                "-" => Parallel::None,
                "rows" => Parallel::Rows,
                "cols" => Parallel::Cols,
                "batch" => Parallel::Batch,
                other => return Err(unknown("par", other)),
            },
        })
    }

    /// The cache loops, outermost first.
    pub fn cache_order(&self) -> Vec<LoopAxis> {
        let axis = |letter| match letter {
            'i' => LoopAxis::Rows,
            'j' => LoopAxis::Cols,
            _ => LoopAxis::K,
        };
        self.order.chars().take(3).map(axis).collect()
    }

    /// Whether the register loop over rows is the inner one.
    pub fn rows_inside(&self) -> bool {
        self.order.ends_with("ji")
    }
}

fn packed(name: &str, value: &str) -> Result<bool, String> {
    match value {
        "panel" => Ok(true),
        "none" => Ok(false),
        other => Err(format!("{name}={other} is not known")),
    }
}

/// Largest block of packed rows and of packed columns, as multiples of the second-level cache.
const PACK_ROWS_PER_L2: u64 = 4;
const PACK_COLS_PER_L2: u64 = 32;

/// The space of a contraction on a CPU target and its default schedule.
///
/// # Errors
/// [`Unsupported::Space`] when the space is empty or too large to compile.
pub fn plan(view: &ContractionView, target: &Target) -> Result<SchedulePlan, Unsupported> {
    let (m, n, k) = view.extents();
    let limits = &target.limits;
    let float_bytes = 4;
    let widths: Vec<i64> =
        [1, 4, 8, 16].into_iter().filter(|w| w * float_bytes <= signed(limits.vector_bytes)).collect();
    let longest = m.max(n);
    let mut space = SpaceBuilder::new();
    space.names("vec", &["n", "m"]).structural("vec");
    space.param("vw", widths).structural("vw");
    space.param("mr", (1..=16).chain([20, 24, 30]));
    space.param("nv", [1, 2, 3, 4, 5, 6, 8]);
    space.param("mt", ladder(longest));
    space.param("nt", ladder(longest));
    space.param("kc", steps(k));
    space.names("order", &ORDERS);
    space.names("pack_a", &["none", "panel"]).structural("pack_a");
    space.names("pack_b", &["none", "panel"]).structural("pack_b");
    space.param("ku", [1, 2, 4, 8]);
    space.names("tail", &["-", "masked", "separate", "overlap"]).structural("tail");
    space.names("par", if target.key.threads > 1 { &["-", "rows", "cols", "batch"] } else { &["-"] });

    space.require("registers", &format!("mr*nv + nv + 1 <= {}", limits.vector_registers));
    let (a, b) = (&view.a, &view.b);
    for (vec, rows, cols, row_map, row_group, col_map, col_group) in
        [("n", m, n, a, &view.m, b, &view.n), ("m", n, m, b, &view.n, a, &view.m)]
    {
        let mut on = |name: &str, rule: String| {
            space.require(format!("{name}_{vec}"), &format!("vec == '{vec}' => ({rule})"));
        };
        // No register tile or cache block begins beyond the end.
        on("rows_used", format!("mr <= {rows} && (mt - 1)*mr < {rows}"));
        on("cols_used", format!("(nv - 1)*vw < {cols} && (nt - 1)*(nv*vw) < {cols}"));
        // Full tiles over the end waste work: at most a quarter, except where one tile covers all.
        on("waste_rows", format!("tail == 'masked' => ceildiv({rows}, mr)*mr*4 <= {rows}*5"));
        on("exact", format!("tail == '-' => {rows} % mr == 0 && {cols} % (nv*vw) == 0"));
        on("inexact", format!("{rows} % mr == 0 && {cols} % (nv*vw) == 0 => tail == '-'"));
        on(
            "overlap",
            format!(
                "tail == 'overlap' => mr <= {rows} && nv*vw <= {cols} && kc >= {k} && pack_a == 'none' && pack_b == 'none'"
            ),
        );
        // Rows over the end are not loaded one by one: guarded tiles need rows that were packed with zeros.
        on("masked_rows", format!("tail == 'masked' && pack_a == 'none' => {rows} % mr == 0"));
        let direct_rows = view.linear(row_map, row_group).is_some() && view.linear(row_map, &view.k).is_some();
        if !direct_rows {
            on("rows_packed", "pack_a == 'panel'".into());
        }
        let contiguous = view.linear(col_map, col_group) == Some(1) || cols == 1;
        if !(contiguous && view.linear(col_map, &view.k).is_some()) {
            on("cols_packed", "pack_b == 'panel'".into());
        }
    }
    let cache = |factor: u64| limits.l2_bytes * factor / 4;
    space.require("rows_fit", &format!("pack_a == 'panel' => mt*mr*kc <= {}", cache(PACK_ROWS_PER_L2)));
    space.require("cols_fit", &format!("pack_b == 'panel' => nt*(nv*vw)*kc <= {}", cache(PACK_COLS_PER_L2)));
    if view.batch.extent() == 1 && target.key.threads > 1 {
        space.require("par_batch", "par != 'batch'");
    }
    let space = space.build().map_err(|error| Unsupported::Space { why: error.to_string() })?;
    let default = default_schedule(view, target, &space);
    Ok(SchedulePlan { space, default })
}

/// A textbook blocking brought into the space by [`crate::space::ParameterSpace::nearest`].
fn default_schedule(view: &ContractionView, target: &Target, space: &crate::space::ParameterSpace) -> Schedule {
    let (_, _, k) = view.extents();
    let wide = target.limits.vector_registers >= 32;
    let wish: [(&str, Value); 13] = [
        ("vec", "n".into()),
        ("vw", signed(target.limits.vector_bytes / 4).into()),
        ("mr", if wide { 8 } else { 4 }.into()),
        ("nv", if wide { 3 } else { 2 }.into()),
        ("mt", 16.into()),
        ("nt", 16.into()),
        ("kc", signed(k.min(256)).into()),
        ("order", "jpi.ji".into()),
        ("pack_a", "panel".into()),
        ("pack_b", "panel".into()),
        ("ku", 4.into()),
        ("tail", "separate".into()),
        ("par", if target.key.threads > 1 { "rows" } else { "-" }.into()),
    ];
    super::closest(space, &wish)
}

/// Numbers of register tiles in a block: small integers, then steps of about a third.
fn ladder(longest: u64) -> Vec<i64> {
    let fine =
        [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 42, 48, 64, 86, 96, 128, 171, 192, 256, 342, 512];
    let longest = signed(longest);
    fine.into_iter().filter(|&step| step == 1 || step < longest).collect()
}

/// Block sizes of k: k in 1 to 8 equal parts, and a ladder below it.
fn steps(k: u64) -> Vec<i64> {
    let mut steps: Vec<i64> = (1..=8).map(|parts| signed(k.div_ceil(parts))).collect();
    let ladder = [16, 24, 32, 48, 64, 96, 128, 192, 256, 320, 384, 512, 768, 1024, 2048, 4096];
    steps.extend(ladder.into_iter().filter(|&step| step < signed(k)));
    steps.sort_unstable();
    steps.dedup();
    steps
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).expect("invariant: extents are below 2^62")
}
