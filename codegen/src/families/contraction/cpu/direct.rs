//! A convolution without a matrix of its image.
//!
//! ```text
//! weights → panels [group, channels / nr, r, s, c, nr]                     ahead, or at each call
//! for group, image number, block of th·mt rows of pixels
//!   image = the rows and columns those pixels read, with their padding made real        (unless read in place)
//!   for panel of nr channels, tile of th × mr pixels in the schedule's order
//!     acc = 0
//!     for r, s: for c: acc[pixel, channel] += image[pixel·stride + tap·dilation, c] · panel[r, s, c, channel]
//!     out = epilogue(acc)
//! ```
//! Each (r, s) is a loop over c of its own; where the copied image has its channels innermost and neighbouring taps read
//! neighbouring columns, s and c are one loop. One loop body with several taps would read the same pixels again, and a
//! compiler that merges those reads keeps them alive across the taps until the accumulators are spilled. The scheme is
//! that of Georganas et al., "Anatomy of High-Performance Deep Learning Convolutions on SIMD Architectures" (SC 2018).

use search_space::families::contraction::cpu::{CpuSchedule, Pack, Parallel, Tail};
use search_space::families::contraction::image::{ImageView, Window};
use search_space::families::contraction::{ContractionView, OperandMap};
use search_space::workload::DType;

use super::packed::Packed;
use super::signed;
use super::window::{self, copy_image, first_read, place, set, weight};
use crate::atoms::Atom;
use crate::families::contraction::{Names, buffers, epilogue};
use crate::families::nest::store;
use crate::index::Index;
use crate::layout::{Distribution, Layout};
use crate::lower::LowerError;
use crate::tile::{
    Access, Buffer, Cond, Guard, Kernel, LoopKind, Phase, Place, Program, Scalar, Space, Stmt, Tile, View,
};

/// Builds the program.
pub(super) fn build(
    view: &ContractionView,
    image: &ImageView,
    schedule: CpuSchedule,
    atom: Atom,
) -> Result<Program, LowerError> {
    let (image_pack, weights_pack) =
        if image.image_is_a { (schedule.pack_a, schedule.pack_b) } else { (schedule.pack_b, schedule.pack_a) };
    let phase = match weights_pack {
        Pack::Ahead => Phase::Prepack,
        Pack::Panel => Phase::Run,
        Pack::None | Pack::Fused => {
            return Err(LowerError::Schedule { why: "form=direct needs weights that are packed before".into() });
        }
    };
    let padded = image.height.bound.or(image.width.bound).is_some();
    if image_pack == Pack::None && (padded || schedule.tail == Tail::Masked) {
        return Err(LowerError::Schedule { why: "an image with padding cannot be read in place".into() });
    }
    let taps = vec![image.height.taps, image.width.taps];
    let weights = window::panels(view, image, schedule.nv * schedule.vw, taps);
    let mut buffers = buffers(view);
    let operand = buffers[view.weights_side(image).0.operand].clone();
    let pack = weights.kernel("pack_weights", phase, operand.clone(), &weights.taps, &|at, taps| {
        weights.copy(at, taps, (weight(view, image, at, [&taps[0], &taps[1]]), Vec::new()))
    });
    let workspace_bytes = vec![weights.bytes()];
    buffers.push(weights.buffer(&operand.name, Access::Read));
    // What is contiguous in the image stays so, or copying it would be a transposition.
    let inner = image_pack != Pack::None && image.channel_step == 1 && image.width.step != 1;
    let mut family = Family {
        inner,
        view,
        image,
        atom,
        weights,
        names: Names::default(),
        tiles: Vec::new(),
        buffers,
        copied: None,
        schedule,
    };
    if image_pack != Pack::None {
        family.copied = Some(family.image_tile());
    }
    Ok(Program { kernels: vec![pack, family.kernel()], workspace_bytes })
}

struct Family<'a> {
    view: &'a ContractionView,
    image: &'a ImageView,
    schedule: CpuSchedule,
    atom: Atom,
    weights: Packed,
    names: Names,
    tiles: Vec<Tile>,
    buffers: Vec<Buffer>,
    /// The scratch tile `[row, channel, column]` that the image is copied to.
    copied: Option<usize>,
    /// Whether the copy has its channels innermost.
    inner: bool,
}

/// The loops opened so far: a coordinate per axis, the block of pixel rows, the panel.
#[derive(Clone, Debug)]
struct At {
    coords: Vec<Index>,
    batch: Index,
    block: Index,
    panel: Index,
}

/// A register tile of pixels: its first row inside the block and its first column, rows and columns.
struct Pixels {
    row: Index,
    column: Index,
    rows: u64,
    columns: u64,
}

/// How one dimension is cut: whole tiles, and one smaller tile at the end.
struct Cut {
    whole: u64,
    rest: u64,
}

impl Cut {
    fn new(extent: u64, tile: u64, tail: Tail) -> Cut {
        if tail == Tail::Separate {
            return Cut { whole: extent / tile, rest: extent % tile };
        }
        Cut { whole: extent.div_ceil(tile), rest: 0 }
    }
}

impl Family<'_> {
    /// Rows of pixels in a block: no more than there are tiles of rows.
    fn block_rows(&self) -> u64 {
        let tiles = self.image.height.pixels.div_ceil(self.schedule.th);
        self.schedule.mt.min(tiles) * self.schedule.th
    }

    fn blocks(&self) -> u64 {
        self.image.height.pixels.div_ceil(self.block_rows())
    }

    /// Whether tiles reach over the last row or column.
    fn over(&self, window: &Window, tile: u64) -> bool {
        self.schedule.tail == Tail::Masked && !window.pixels.is_multiple_of(tile)
    }

    /// Rows, channels and columns of the copied part of the image.
    fn copied_shape(&self) -> [u64; 3] {
        let (height, width) = (&self.image.height, &self.image.width);
        let columns = if self.over(width, self.schedule.mr) {
            width.pixels.next_multiple_of(self.schedule.mr)
        } else {
            width.pixels
        };
        [height.span(self.block_rows()), self.image.channels.extent(), width.span(columns)]
    }

    /// A tile `[row, channel, column]`, or `[row, (column, channel)]` with the channels innermost.
    fn image_tile(&mut self) -> usize {
        let [rows, channels, columns] = self.copied_shape();
        let shape = if self.inner { vec![rows, columns * channels] } else { vec![rows, channels, columns] };
        let space = Space::Scratch(Layout::row_major(&shape, 0));
        self.tiles.push(Tile { name: "image".into(), shape, dtype: DType::F32, space });
        self.tiles.len() - 1
    }

    /// An element of the copied image. With the channels innermost, those beyond the last are the next column's.
    fn copied_at(&self, tile: usize, row: Index, channel: Index, column: Index) -> View {
        let index = if self.inner {
            vec![row, column * Index::of(self.image.channels.extent()) + channel]
        } else {
            vec![row, channel, column]
        };
        View { place: Place::Tile(tile), index, guards: Vec::new() }
    }

    fn kernel(mut self) -> Kernel {
        let at = At {
            coords: vec![Index::ZERO; self.view.workload.axes.len()],
            batch: Index::ZERO,
            block: Index::ZERO,
            panel: Index::ZERO,
        };
        let body = self.open("batch", self.view.batch.extent(), Parallel::Batch, |family, batch| {
            let mut at = at.clone();
            set(&mut at.coords, &family.view.batch, &batch);
            at.batch = batch;
            family.open("outer", family.image.outer.extent(), Parallel::None, |family, outer| {
                set(&mut at.coords, &family.image.outer, &outer);
                family.open("rows", family.blocks(), Parallel::Rows, |family, block| {
                    at.block = block;
                    let mut stmts: Vec<Stmt> =
                        family.copied.map(|tile| family.copy_image(tile, &at)).into_iter().collect();
                    stmts.extend(family.tile_loops(&at));
                    stmts
                })
            })
        });
        Kernel {
            name: "contraction".into(),
            phase: Phase::Run,
            buffers: self.buffers,
            workgroup: [1; 3],
            vars: self.names.0,
            tiles: self.tiles,
            pipes: Vec::new(),
            body,
        }
    }

    /// `for name in 0..extent`, over the cores when the schedule says so; a single serial iteration needs no loop.
    fn open(
        &mut self,
        name: &str,
        extent: u64,
        parallel: Parallel,
        body: impl FnOnce(&mut Self, Index) -> Vec<Stmt>,
    ) -> Vec<Stmt> {
        let spread = parallel != Parallel::None && self.schedule.par == parallel;
        if extent == 1 && !spread {
            return body(self, Index::ZERO);
        }
        let kind = if spread { LoopKind::Cores } else { LoopKind::Serial };
        let var = self.names.var(name);
        let body = body(self, Index::Var(var));
        vec![Stmt::For { var, extent: Index::of(extent), kind, body }]
    }

    /// The first pixel row of the block.
    fn block_start(&self, at: &At) -> Index {
        at.block.clone() * Index::of(self.block_rows())
    }

    fn copy_image(&self, tile: usize, at: &At) -> Stmt {
        let dst = self.copied_at(tile, Index::Coord(0), Index::Coord(1), Index::Coord(2));
        let last = (self.blocks() - 1) * self.block_rows();
        copy_image(self.view, self.image, &at.coords, (dst, self.copied_shape()), (&self.block_start(at), last))
    }

    fn tile_loops(&mut self, at: &At) -> Vec<Stmt> {
        let panels = self.weights.extent.div_ceil(self.weights.width);
        if self.schedule.rows_inside() {
            return self.open("panel", panels, Parallel::Cols, |family, panel| {
                let at = At { panel, ..at.clone() };
                family.pixel_loops(at.block.clone(), &mut |family, pixels| family.micro(&at, pixels))
            });
        }
        self.pixel_loops(at.block.clone(), &mut |family, pixels| {
            family.open("panel", panels, Parallel::Cols, |family, panel| {
                family.micro(&At { panel, ..at.clone() }, pixels)
            })
        })
    }

    /// Walks the register tiles of pixels of a block, rows outside.
    fn pixel_loops(&mut self, block: Index, body: &mut dyn FnMut(&mut Self, &Pixels) -> Vec<Stmt>) -> Vec<Stmt> {
        let (th, tail) = (self.schedule.th, self.schedule.tail);
        let (height, rows, blocks) = (self.image.height.pixels, self.block_rows(), self.blocks());
        let mut row = |family: &mut Self, row: Index, count: u64| family.column_loop(&row, count, body);
        // All blocks but the last are whole.
        let last = Cut::new(height - (blocks - 1) * rows, th, tail);
        let whole = if blocks == 1 {
            Index::of(last.whole)
        } else {
            Index::of(rows / th).min(Index::of(Cut::new(height, th, tail).whole) - block.clone() * Index::of(rows / th))
        };
        let mut stmts = match whole.as_const() {
            Some(0) => Vec::new(),
            Some(1) => row(self, Index::ZERO, th),
            _ => {
                let var = self.names.var("row");
                let body = row(self, Index::Var(var) * Index::of(th), th);
                vec![Stmt::For { var, extent: whole, kind: LoopKind::Serial, body }]
            }
        };
        if last.rest > 0 {
            let rest = row(self, Index::of(last.whole * th), last.rest);
            if blocks == 1 {
                stmts.extend(rest);
            } else {
                let cond = Cond::Eq(block, Index::of(blocks - 1));
                stmts.push(Stmt::If { cond, then: rest, otherwise: Vec::new() });
            }
        }
        stmts
    }

    fn column_loop(
        &mut self,
        row: &Index,
        rows: u64,
        body: &mut dyn FnMut(&mut Self, &Pixels) -> Vec<Stmt>,
    ) -> Vec<Stmt> {
        let mr = self.schedule.mr;
        let cut = Cut::new(self.image.width.pixels, mr, self.schedule.tail);
        let mut tile = |family: &mut Self, column: Index, columns: u64| {
            body(family, &Pixels { row: row.clone(), column, rows, columns })
        };
        let mut stmts = self.open("column", cut.whole, Parallel::None, |family, at| {
            if cut.whole == 0 { Vec::new() } else { tile(family, at * Index::of(mr), mr) }
        });
        if cut.rest > 0 {
            stmts.extend(tile(self, Index::of(cut.whole * mr), cut.rest));
        }
        stmts
    }

    fn accumulator(&mut self, pixels: u64) -> usize {
        let shape = vec![pixels, self.weights.width];
        let name = format!("acc_{pixels}");
        if let Some(found) = self.tiles.iter().position(|tile| tile.name == name) {
            return found;
        }
        let space = Space::Register(Distribution::single_lane(&shape));
        self.tiles.push(Tile { name, shape, dtype: DType::F32, space });
        self.tiles.len() - 1
    }

    fn micro(&mut self, at: &At, pixels: &Pixels) -> Vec<Stmt> {
        let acc = self.accumulator(pixels.rows * pixels.columns);
        let (height_taps, width_taps) = (self.image.height.taps, self.image.width.taps);
        let mut stmts = vec![Stmt::Fill { tile: acc, value: 0.0 }];
        let fused = self.fused();
        stmts.extend(self.open("r", height_taps, Parallel::None, |family, r| {
            let taps = if fused { 1 } else { width_taps };
            family.open("s", taps, Parallel::None, |family, s| vec![family.tap(at, pixels, acc, r, s)])
        }));
        stmts.extend(self.store(at, pixels, acc));
        stmts
    }

    /// Whether the taps of a row and the channels are one loop: in the copied image column x + 1 begins where column x
    /// ends, as the weights of tap s + 1 do where those of tap s end.
    fn fused(&self) -> bool {
        self.inner && self.image.width.dilation == 1
    }

    /// `acc += image · weights` over the channels of one tap, or of all taps of a row.
    fn tap(&self, at: &At, pixels: &Pixels, acc: usize, r: Index, s: Index) -> Stmt {
        let (height, width) = (&self.image.height, &self.image.width);
        let columns = signed(pixels.columns);
        let (y, x) = if pixels.rows == 1 {
            (Index::ZERO, Index::Coord(0))
        } else {
            (Index::Coord(0).floor_div(columns), Index::Coord(0).modulo(columns))
        };
        let row = (pixels.row.clone() + y) * Index::of(height.stride) + r.clone() * Index::of(height.dilation);
        let column = (pixels.column.clone() + x) * Index::of(width.stride) + s.clone() * Index::of(width.dilation);
        let channels = self.weights.steps;
        let steps = if self.fused() { width.taps * channels } else { channels };
        let a = match self.copied {
            Some(tile) => self.copied_at(tile, row, Index::Coord(2), column),
            None => {
                let (map, _) = self.view.image_side(self.image);
                let index = first_read(self.view, self.image, &at.coords, self.block_start(at))
                    + row * Index::Const(height.step)
                    + Index::Coord(2) * Index::Const(self.image.channel_step)
                    + column * Index::Const(width.step);
                View { place: Place::Buffer(map.operand), index: vec![index], guards: Vec::new() }
            }
        };
        let panels = self.buffers.len() - 1;
        let b =
            self.weights.view(panels, at.batch.clone(), at.panel.clone(), &[r, s], Index::Coord(2), Index::Coord(1));
        Stmt::Contract {
            shape: [pixels.rows * pixels.columns, self.weights.width, steps].map(Index::of),
            acc,
            a,
            b,
            atom: self.atom,
            unroll: self.schedule.ku,
            prefetch: self.schedule.pf,
            keep: None,
            wake: 0,
        }
    }

    /// `out = epilogue(acc)`, a row of pixels at a time unless rows follow each other in all that is touched.
    fn store(&self, at: &At, pixels: &Pixels, acc: usize) -> Vec<Stmt> {
        let (height, width) = (&self.image.height, &self.image.width);
        let follows = |map: &OperandMap| match (height.pixel, width.pixel) {
            (Some(y), Some(x)) => map.strides[y] == map.strides[x] * signed(width.pixels),
            _ => false,
        };
        let joined = pixels.columns == width.pixels
            && follows(&self.view.out)
            && self.view.side.iter().all(|map| follows(map) && map.guards.is_empty());
        let (maps, length) = if joined { (1, pixels.rows * pixels.columns) } else { (pixels.rows, pixels.columns) };
        (0..maps).map(|y| self.store_run(at, pixels, acc, y, length)).collect()
    }

    /// Stores `length` pixels that begin `y` rows below the first of the tile.
    fn store_run(&self, at: &At, pixels: &Pixels, acc: usize, y: u64, length: u64) -> Stmt {
        let (height, width) = (&self.image.height, &self.image.width);
        let channel = at.panel.clone() * Index::of(self.weights.width) + Index::Coord(1);
        let row = self.block_start(at) + pixels.row.clone() + Index::of(y);
        let column = pixels.column.clone() + Index::Coord(0);
        let mut coords = at.coords.clone();
        set(&mut coords, self.view.weights_side(self.image).1, &channel);
        for (window, value) in [(height, &row), (width, &column)] {
            window.pixel.into_iter().for_each(|axis| coords[axis] = value.clone());
        }
        let mut guards = Vec::new();
        if self.over(height, self.schedule.th) {
            // Joined rows are counted as columns of the first one.
            let (index, bound) = if length > pixels.columns {
                (row.clone() * Index::of(width.pixels) + column.clone(), height.pixels * width.pixels)
            } else {
                (row.clone(), height.pixels)
            };
            guards.push(Guard { index, bound: Index::of(bound) });
        }
        if self.over(width, self.schedule.mr) {
            guards.push(Guard { index: column, bound: Index::of(width.pixels) });
        }
        if !self.weights.extent.is_multiple_of(self.weights.width) {
            guards.push(Guard { index: channel, bound: Index::of(self.weights.extent) });
        }
        let (out, out_guards) = place(&self.view.out, &coords);
        guards.extend(out_guards);
        let mut lets = Vec::new();
        let (expr, side) = epilogue(self.view, Scalar::Arg(0), 1, &|map| place(map, &coords), &mut lets);
        let start = Index::of(y * pixels.columns);
        let held = vec![Index::Coord(0) + start, Index::Coord(1)];
        let mut args = vec![View { place: Place::Tile(acc), index: held, guards: Vec::new() }];
        // Side operands exist where the output does.
        args.extend(side.into_iter().map(|mut view| {
            view.guards.extend(guards.iter().cloned());
            view
        }));
        let dst = View { place: Place::Buffer(self.view.out.operand), index: vec![out], guards };
        store(vec![Index::of(length), Index::of(self.weights.width)], dst, args, lets, expr)
    }
}
