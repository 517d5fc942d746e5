//! Convolutions with windows of 3×3 by Winograd's minimal filtering F(m×m, 3×3): m² outputs of a tile need (m+2)²
//! multiplications per channel instead of 9m².
//!
//! ```text
//! U[group, channels / nr, point, c, nr] = G g Gᵀ                                   ahead, or at each call
//! for group, image number, part of mt·th rows of tiles
//!   image = the pixels those tiles read, channels innermost, their padding made real
//!   for block of th rows of tiles
//!     V[point, tile, c] = Bᵀ d B                                                   vectors along c
//!     for panel of nr channels
//!       for point: M[point, tile, nr] = V[point] · U[point]                        register tiles of mr tiles
//!       pixels[row, column, nr] = Aᵀ M A                                           vectors along the channels
//!       out = epilogue(pixels)                                                     transposed where pixels are contiguous
//! ```
//! Blocks are a few rows of tiles, so that V and M of a block stay in the second-level cache while the panels of U
//! stream by.

use search_space::families::contraction::ContractionView;
use search_space::families::contraction::cpu::{CpuSchedule, Pack, Parallel};
use search_space::families::contraction::image::ImageView;
use search_space::workload::DType;

use super::filtering::{Filtering, both_sides, filtering};
use super::packed::Packed;
use super::window::{self, copy_image, place, set, weight};
use crate::atoms::Atom;
use crate::families::contraction::{Names, buffers, epilogue};
use crate::families::nest::store;
use crate::index::Index;
use crate::layout::{Distribution, Layout};
use crate::lower::LowerError;
use crate::tile::{Access, Buffer, Guard, Kernel, LoopKind, Phase, Place, Program, Scalar, Space, Stmt, Tile, View};

/// Elements added to the rows of V and M, so that the points of a tile do not all fall into the same cache sets.
const SPREAD: u64 = 16;

/// Builds the program of F(`outputs`×`outputs`, 3×3).
pub(super) fn build(
    view: &ContractionView,
    image: &ImageView,
    outputs: u64,
    schedule: CpuSchedule,
    atom: Atom,
) -> Result<Program, LowerError> {
    let refused = |why: &str| LowerError::Schedule { why: format!("form=winograd{outputs} {why}") };
    let filtering = filtering(outputs).ok_or_else(|| refused("is not known"))?;
    if !view.has_winograd(image) {
        return Err(refused("needs windows of 3x3 moved by one, and math=fast"));
    }
    let (image_pack, weights_pack) =
        if image.image_is_a { (schedule.pack_a, schedule.pack_b) } else { (schedule.pack_b, schedule.pack_a) };
    let phase = match weights_pack {
        Pack::Ahead => Phase::Prepack,
        Pack::Panel => Phase::Run,
        Pack::None | Pack::Fused => return Err(refused("needs weights that are packed before")),
    };
    if image_pack != Pack::Panel {
        return Err(refused("needs a packed image"));
    }
    let points = filtering.input.len() as u64;
    let weights = window::panels(view, image, schedule.nv * schedule.vw, vec![points * points]);
    let mut buffers = buffers(view);
    let operand = buffers[view.weights_side(image).0.operand].clone();
    let pack = transform_weights(view, image, filtering, &weights, phase, operand.clone());
    let workspace_bytes = vec![weights.bytes()];
    buffers.push(weights.buffer(&operand.name, Access::Read));
    let family =
        Family { view, image, schedule, atom, filtering, weights, names: Names::default(), tiles: Vec::new(), buffers };
    Ok(Program { kernels: vec![pack, family.kernel()], workspace_bytes })
}

/// The kernel that fills the panels with `G g Gᵀ`.
fn transform_weights(
    view: &ContractionView,
    image: &ImageView,
    filtering: &Filtering,
    weights: &Packed,
    phase: Phase,
    operand: Buffer,
) -> Kernel {
    weights.kernel("transform_weights", phase, operand, &[], &|at, _| {
        let taps = filtering.weights[0].len() as u64;
        let args = (0..taps * taps).map(|tap| {
            let index = weight(view, image, at, [&Index::of(tap / taps), &Index::of(tap % taps)]);
            View { place: Place::Buffer(0), index: vec![index], guards: at.guards.clone() }
        });
        let args: Vec<View> = args.collect();
        let mut lets = Vec::new();
        let inputs: Vec<Scalar> = (0..args.len()).map(Scalar::Arg).collect();
        let values = both_sides(filtering.weights, &inputs, &mut lets);
        let stores = (0u64..).zip(values).map(|(point, value)| (weights.filled(at, &[Index::of(point)]), value));
        let stores = stores.collect();
        Stmt::Sweep { shape: weights.window(), args, lets, stores, folds: Vec::new(), accumulators: 1, ahead: 0 }
    })
}

struct Family<'a> {
    view: &'a ContractionView,
    image: &'a ImageView,
    schedule: CpuSchedule,
    atom: Atom,
    filtering: &'a Filtering,
    weights: Packed,
    names: Names,
    tiles: Vec<Tile>,
    buffers: Vec<Buffer>,
}

/// The scratch tiles of the kernel.
#[derive(Clone, Copy)]
struct Scratch {
    /// `[row, channel, column]`, channels innermost.
    image: usize,
    /// V.
    inputs: usize,
    /// M.
    products: usize,
    /// `[row, column, nr]`.
    pixels: usize,
}

/// The loops opened so far.
#[derive(Clone, Debug)]
struct At {
    coords: Vec<Index>,
    batch: Index,
    /// Part of the image that was copied.
    part: Index,
    /// Block of tiles inside the part.
    block: Index,
    panel: Index,
}

impl Family<'_> {
    /// Inputs of a tile along one dimension.
    fn inputs(&self) -> u64 {
        self.filtering.input.len() as u64
    }

    fn points(&self) -> u64 {
        self.inputs() * self.inputs()
    }

    /// Tiles in a row of tiles.
    fn columns(&self) -> u64 {
        self.image.width.pixels.div_ceil(self.filtering.outputs)
    }

    /// Blocks of `th` rows of tiles; the last may reach over the end.
    fn blocks(&self) -> u64 {
        self.image.height.pixels.div_ceil(self.filtering.outputs * self.schedule.th)
    }

    /// Blocks of tiles in a part of the image.
    fn part_blocks(&self) -> u64 {
        self.schedule.mt.min(self.blocks())
    }

    /// Tiles in a block.
    fn block_tiles(&self) -> u64 {
        self.schedule.th * self.columns()
    }

    fn scratch(&mut self, name: &str, shape: Vec<u64>, layout: Layout) -> usize {
        self.tiles.push(Tile { name: name.into(), shape, dtype: DType::F32, space: Space::Scratch(layout) });
        self.tiles.len() - 1
    }

    fn scratch_tiles(&mut self) -> Scratch {
        let (outputs, channels) = (self.filtering.outputs, self.weights.steps);
        let (rows, columns) = (self.part_blocks() * self.schedule.th * outputs + 2, self.columns() * outputs + 2);
        let image = vec![rows, channels, columns];
        let layout = Layout::strided(&image, &[columns * channels, 1, channels]);
        let image = self.scratch("image", image, layout);
        let inputs = vec![self.points(), self.block_tiles(), channels];
        let layout = Layout::row_major(&inputs, SPREAD);
        let inputs = self.scratch("inputs", inputs, layout);
        let products = vec![self.points(), self.block_tiles(), self.weights.width];
        let layout = Layout::row_major(&products, SPREAD);
        let products = self.scratch("products", products, layout);
        let pixels = vec![self.schedule.th * outputs, self.columns() * outputs, self.weights.width];
        let layout = Layout::row_major(&pixels, 0);
        let pixels = self.scratch("pixels", pixels, layout);
        Scratch { image, inputs, products, pixels }
    }

    fn kernel(mut self) -> Kernel {
        let scratch = self.scratch_tiles();
        let mut at = At {
            coords: vec![Index::ZERO; self.view.workload.axes.len()],
            batch: Index::ZERO,
            part: Index::ZERO,
            block: Index::ZERO,
            panel: Index::ZERO,
        };
        let parts = self.blocks().div_ceil(self.part_blocks());
        let panels = self.weights.extent.div_ceil(self.weights.width);
        let body = self.open("batch", self.view.batch.extent(), Parallel::Batch, |family, batch| {
            set(&mut at.coords, &family.view.batch, &batch);
            at.batch = batch;
            family.open("outer", family.image.outer.extent(), Parallel::None, |family, outer| {
                set(&mut at.coords, &family.image.outer, &outer);
                family.open("part", parts, Parallel::Rows, |family, part| {
                    at.part = part;
                    let mut stmts = vec![family.copy_image(scratch, &at)];
                    stmts.extend(family.block_loop(parts, &mut at, &mut |family, at| {
                        let mut stmts = vec![family.transform_inputs(scratch, at)];
                        stmts.extend(family.open("panel", panels, Parallel::Cols, |family, panel| {
                            let at = At { panel, ..at.clone() };
                            let mut stmts = family.multiply(scratch, &at);
                            stmts.push(family.transform_outputs(scratch));
                            stmts.push(family.store(scratch, &at));
                            stmts
                        }));
                        stmts
                    }));
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

    /// Walks the blocks of a part; the last part may have fewer.
    fn block_loop(&mut self, parts: u64, at: &mut At, body: &mut dyn FnMut(&mut Self, &At) -> Vec<Stmt>) -> Vec<Stmt> {
        let most = self.part_blocks();
        if most == 1 {
            return body(self, at);
        }
        let mut extent = Index::of(most);
        if parts * most != self.blocks() {
            extent = extent.min(Index::of(self.blocks()) - at.part.clone() * Index::of(most));
        }
        let var = self.names.var("block");
        at.block = Index::Var(var);
        let body = body(self, at);
        at.block = Index::ZERO;
        vec![Stmt::For { var, extent, kind: LoopKind::Serial, body }]
    }

    fn copy_image(&self, scratch: Scratch, at: &At) -> Stmt {
        let rows = self.part_blocks() * self.schedule.th * self.filtering.outputs;
        let last = (self.blocks().div_ceil(self.part_blocks()) - 1) * rows;
        let shape = &self.tiles[scratch.image].shape;
        let shape = [shape[0], shape[1], shape[2]];
        let index = (0..3).map(Index::Coord).collect();
        let dst = View { place: Place::Tile(scratch.image), index, guards: Vec::new() };
        let start = at.part.clone() * Index::of(rows);
        copy_image(self.view, self.image, &at.coords, (dst, shape), (&start, last))
    }

    /// `V = Bᵀ d B` for the tiles of a block; coordinates are row of tiles, tile, channel.
    fn transform_inputs(&self, scratch: Scratch, at: &At) -> Stmt {
        let (outputs, size) = (Index::of(self.filtering.outputs), self.inputs());
        let first = at.block.clone() * Index::of(self.schedule.th * self.filtering.outputs);
        let read = |point: u64| {
            let row = first.clone() + Index::Coord(0) * outputs.clone() + Index::of(point / size);
            let column = Index::Coord(1) * outputs.clone() + Index::of(point % size);
            View { place: Place::Tile(scratch.image), index: vec![row, Index::Coord(2), column], guards: Vec::new() }
        };
        let tile = Index::Coord(0) * Index::of(self.columns()) + Index::Coord(1);
        let write = |point: u64| {
            let index = vec![Index::of(point), tile.clone(), Index::Coord(2)];
            View { place: Place::Tile(scratch.inputs), index, guards: Vec::new() }
        };
        let mut lets = Vec::new();
        let args: Vec<View> = (0..self.points()).map(read).collect();
        let inputs: Vec<Scalar> = (0..args.len()).map(Scalar::Arg).collect();
        let values = both_sides(self.filtering.input, &inputs, &mut lets);
        let stores = (0u64..).zip(values).map(|(point, value)| (write(point), value)).collect();
        let shape = [self.schedule.th, self.columns(), self.weights.steps].map(Index::of).to_vec();
        Stmt::Sweep { shape, args, lets, stores, folds: Vec::new(), accumulators: 1, ahead: 0 }
    }

    /// `M = V · U` at every point.
    fn multiply(&mut self, scratch: Scratch, at: &At) -> Vec<Stmt> {
        let (tiles, mr) = (self.block_tiles(), self.schedule.mr);
        self.open("point", self.points(), Parallel::None, |family, point| {
            let mut stmts = family.open("tile", tiles / mr, Parallel::None, |family, group| {
                family.micro(scratch, at, &point, &(group * Index::of(mr)), mr)
            });
            if tiles % mr != 0 {
                stmts.extend(family.micro(scratch, at, &point, &Index::of(tiles / mr * mr), tiles % mr));
            }
            stmts
        })
    }

    fn micro(&mut self, scratch: Scratch, at: &At, point: &Index, first: &Index, count: u64) -> Vec<Stmt> {
        let acc = self.accumulator(count);
        let tile = first.clone() + Index::Coord(0);
        let a = vec![point.clone(), tile.clone(), Index::Coord(2)];
        let b = self.weights.view(
            self.buffers.len() - 1,
            at.batch.clone(),
            at.panel.clone(),
            std::slice::from_ref(point),
            Index::Coord(2),
            Index::Coord(1),
        );
        let contract = Stmt::Contract {
            shape: [count, self.weights.width, self.weights.steps].map(Index::of),
            acc,
            a: View { place: Place::Tile(scratch.inputs), index: a, guards: Vec::new() },
            b,
            atom: self.atom,
            unroll: self.schedule.ku,
            prefetch: self.schedule.pf,
            keep: None,
            wake: 0,
        };
        let product = vec![point.clone(), tile, Index::Coord(1)];
        let copy = Stmt::Copy {
            shape: vec![Index::of(count), Index::of(self.weights.width)],
            dst: View { place: Place::Tile(scratch.products), index: product, guards: Vec::new() },
            src: View { place: Place::Tile(acc), index: vec![Index::Coord(0), Index::Coord(1)], guards: Vec::new() },
        };
        vec![Stmt::Fill { tile: acc, value: 0.0 }, contract, copy]
    }

    fn accumulator(&mut self, rows: u64) -> usize {
        let shape = vec![rows, self.weights.width];
        let name = format!("acc_{rows}");
        if let Some(found) = self.tiles.iter().position(|tile| tile.name == name) {
            return found;
        }
        let space = Space::Register(Distribution::single_lane(&shape));
        self.tiles.push(Tile { name, shape, dtype: DType::F32, space });
        self.tiles.len() - 1
    }

    /// `pixels = Aᵀ M A`; coordinates are row of tiles, tile, channel of the panel.
    fn transform_outputs(&self, scratch: Scratch) -> Stmt {
        let outputs = self.filtering.outputs;
        let tile = Index::Coord(0) * Index::of(self.columns()) + Index::Coord(1);
        let read = |point: u64| {
            let index = vec![Index::of(point), tile.clone(), Index::Coord(2)];
            View { place: Place::Tile(scratch.products), index, guards: Vec::new() }
        };
        let write = |pixel: u64| {
            let row = Index::Coord(0) * Index::of(outputs) + Index::of(pixel / outputs);
            let column = Index::Coord(1) * Index::of(outputs) + Index::of(pixel % outputs);
            View { place: Place::Tile(scratch.pixels), index: vec![row, column, Index::Coord(2)], guards: Vec::new() }
        };
        let mut lets = Vec::new();
        let args: Vec<View> = (0..self.points()).map(read).collect();
        let inputs: Vec<Scalar> = (0..args.len()).map(Scalar::Arg).collect();
        let values = both_sides(self.filtering.output, &inputs, &mut lets);
        let stores = (0u64..).zip(values).map(|(pixel, value)| (write(pixel), value)).collect();
        let shape = [self.schedule.th, self.columns(), self.weights.width].map(Index::of).to_vec();
        Stmt::Sweep { shape, args, lets, stores, folds: Vec::new(), accumulators: 1, ahead: 0 }
    }

    /// `out = epilogue(pixels)`; coordinates are row, column, channel of the panel.
    fn store(&self, scratch: Scratch, at: &At) -> Stmt {
        let (height, width) = (&self.image.height, &self.image.width);
        let rows = self.schedule.th * self.filtering.outputs;
        let block = at.part.clone() * Index::of(self.part_blocks()) + at.block.clone();
        let row = block * Index::of(rows) + Index::Coord(0);
        let channel = at.panel.clone() * Index::of(self.weights.width) + Index::Coord(2);
        let mut coords = at.coords.clone();
        set(&mut coords, self.view.weights_side(self.image).1, &channel);
        for (window, value) in [(height, &row), (width, &Index::Coord(1))] {
            window.pixel.into_iter().for_each(|axis| coords[axis] = value.clone());
        }
        let (out, mut guards) = place(&self.view.out, &coords);
        if self.blocks() * rows != height.pixels {
            guards.push(Guard { index: row, bound: Index::of(height.pixels) });
        }
        if !self.weights.extent.is_multiple_of(self.weights.width) {
            guards.push(Guard { index: channel, bound: Index::of(self.weights.extent) });
        }
        let mut lets = Vec::new();
        let (expr, side) = epilogue(self.view, Scalar::Arg(0), 1, &|map| place(map, &coords), &mut lets);
        let held = (0..3).map(Index::Coord).collect();
        let mut args = vec![View { place: Place::Tile(scratch.pixels), index: held, guards: Vec::new() }];
        // Side operands exist where the output does.
        args.extend(side.into_iter().map(|mut view| {
            view.guards.extend(guards.iter().cloned());
            view
        }));
        let shape = [rows, width.pixels, self.weights.width].map(Index::of).to_vec();
        let dst = View { place: Place::Buffer(self.view.out.operand), index: vec![out], guards };
        store(shape, dst, args, lets, expr)
    }
}
