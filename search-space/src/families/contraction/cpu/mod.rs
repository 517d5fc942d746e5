//! Schedules of contractions on the CPU: cache blocks around a register tile, packing, edges, threads.
//!
//! `rows` is the side whose elements are broadcast, `cols` the side along which vectors run; `vec` says which of m and
//! n is `cols`. All sizes count elements. A convolution may also be computed without making a matrix of its image:
//! [`Form`] says how.

mod blocking;
mod matrix;
mod space;

use crate::schedule::Schedule;

pub use space::plan;

/// How a contraction is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As a matrix product; the image of a convolution is packed as if it were a matrix.
    Gemm,
    /// As dot products: vectors along the reduction, for operands that are contiguous along it.
    Dots,
    /// As a convolution: a register tile of pixels times channels walks over the taps of the window.
    Direct,
    /// As a sum over the window at each pixel, for groups of one output channel (depthwise).
    Stencil,
    /// By Winograd's minimal filtering F(m×m, 3×3) with this m, 2 or 4: products of transformed tiles of the image and
    /// transformed weights.
    Winograd(u64),
    /// As a matrix product on the processor's matrix unit.
    Tile,
    /// As a matrix product by an instruction that sums four products of bytes in each lane.
    Bytes,
}

/// Where the panels of a packed operand come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pack {
    /// The operand is read in place.
    None,
    /// Copied at each call.
    Panel,
    /// Copied at each call by the first row of register tiles, which reads the operand in place; of the column operand
    /// of [`Form::Gemm`].
    Fused,
    /// Copied once by a kernel of the prepack phase; for operands whose layout is free.
    Ahead,
}

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
    /// Blocks of k, whose sums are added up by a second kernel (split-K); of [`Form::Gemm`].
    K,
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
    /// How it is computed; schedules that do not say mean [`Form::Gemm`].
    pub form: Form,
    /// Axis of the vectors.
    pub vec: VectorAxis,
    /// Elements of a vector.
    pub vw: u64,
    /// Rows of the register tile; of [`Form::Direct`], pixels of one row of the image; of [`Form::Winograd`], tiles.
    pub mr: u64,
    /// Rows of pixels in a register tile of [`Form::Direct`], rows of tiles that are transformed together by
    /// [`Form::Winograd`], otherwise 1.
    pub th: u64,
    /// Vectors of the register tile.
    pub nv: u64,
    /// Register tiles in a cache block along the rows; with an image, units of `th` rows in the part that is copied at once.
    pub mt: u64,
    /// Register tiles in a cache block along the columns.
    pub nt: u64,
    /// Steps of k in a cache block.
    pub kc: u64,
    /// One of [`ORDERS`].
    pub order: String,
    /// Panels of the row operand.
    pub pack_a: Pack,
    /// Panels of the column operand.
    pub pack_b: Pack,
    /// Steps of k per iteration of the innermost loop.
    pub ku: u64,
    /// Steps of k that factors are asked for ahead, of [`Form::Gemm`] the columns; 0 is not at all.
    pub pf: u64,
    /// Steps of the matrix unit along k after which it stores a register for nobody, so that its stores stay fast; 0 is
    /// never.
    pub wake: u64,
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
            form: match schedule.name("form") {
                None | Some("gemm") => Form::Gemm,
                Some("dots") => Form::Dots,
                Some("direct") => Form::Direct,
                Some("stencil") => Form::Stencil,
                Some("tile") => Form::Tile,
                Some("bytes") => Form::Bytes,
                Some("winograd2") => Form::Winograd(2),
                Some("winograd4") => Form::Winograd(4),
                Some(other) => return Err(unknown("form", other)),
            },
            vec: match name("vec")? {
                "n" => VectorAxis::N,
                "m" => VectorAxis::M,
                other => return Err(unknown("vec", other)),
            },
            vw: int("vw")?,
            mr: int("mr")?,
            th: if schedule.int("th").is_some() { int("th")? } else { 1 },
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
            pf: if schedule.int("pf").is_some_and(|steps| steps != 0) { int("pf")? } else { 0 },
            wake: if schedule.int("wake").is_some_and(|steps| steps != 0) { int("wake")? } else { 0 },
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
                "k" => Parallel::K,
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

fn packed(name: &str, value: &str) -> Result<Pack, String> {
    match value {
        "none" => Ok(Pack::None),
        "panel" => Ok(Pack::Panel),
        "fused" => Ok(Pack::Fused),
        "ahead" => Ok(Pack::Ahead),
        other => Err(format!("{name}={other} is not known")),
    }
}
