//! A matrix product by instructions that sum several products at once: those of a matrix unit, or of bytes in vectors.
//!
//! ```text
//! for blocks of columns and of rows, in the schedule's order
//!   pack b when its columns are known, a when its rows are: tiles of 16 rows of 64 bytes, zero where there is nothing
//!   for register tiles of the block:  acc = 0;  acc += a · b over all k;  out = epilogue(acc)
//! ```
//! For the matrix unit a packed tile of `a` holds 16 rows of as many k as fit 64 bytes. One of `b` holds the same k of 16
//! columns, in each of its rows as many neighbouring k as fit 4 bytes, column by column; so does one of `a` for vectors,
//! of the rows of a register tile. All of k is summed before anything is rounded.

use search_space::families::contraction::cpu::{CpuSchedule, LoopAxis, Pack, Parallel};
use search_space::families::contraction::{ContractionView, OperandMap};

use super::signed;
use crate::atoms::{Atom, Scope};
use crate::families::contraction::{Names, Point, buffers, element, epilogue};
use crate::families::nest::store;
use crate::index::Index;
use crate::layout::{Distribution, Layout};
use crate::tile::{
    Access, Buffer, Cond, Guard, Kernel, LoopKind, Phase, Place, Program, Scalar, Source, Space, Stmt, Tile, View,
};

/// Columns of a vector; rows and columns of a register of the matrix unit.
const BLOCK: u64 = 16;
/// Bytes of k in a packed tile, and of the k that an instruction sums in one lane.
const ROW_BYTES: u64 = 64;
const WORD_BYTES: u64 = 4;

/// Builds the program.
pub(super) fn build(view: &ContractionView, schedule: CpuSchedule, atom: Atom) -> Program {
    Family::new(view, schedule, atom).program()
}

/// One dimension of the product: its extent, register tile and cache block.
#[derive(Clone, Debug)]
struct Dim {
    extent: u64,
    tile: u64,
    block: u64,
    /// Width of a packed tile.
    packed: u64,
}

/// Where the packed tiles of an operand are: `[tile of rows or columns, tile of k, ...]`.
#[derive(Clone, Debug)]
struct Panels {
    place: Place,
    /// In all batches and blocks, or in one block.
    whole: bool,
}

/// A register tile along one dimension.
#[derive(Clone, Debug)]
struct Piece {
    start: Index,
    /// First packed tile, counted from the block's.
    panel: Index,
    size: u64,
}

/// What is known inside the loops opened so far.
#[derive(Clone, Debug)]
struct At {
    batch: Index,
    row: Option<Index>,
    col: Option<Index>,
}

impl Dim {
    fn blocks(&self) -> u64 {
        self.extent.div_ceil(self.block)
    }

    /// Elements of block `at`.
    fn in_block(&self, at: &Index) -> Index {
        if self.extent.is_multiple_of(self.block) {
            return Index::of(self.block);
        }
        if self.blocks() == 1 {
            return Index::of(self.extent);
        }
        Index::of(self.block).min(Index::of(self.extent) - at.clone() * Index::of(self.block))
    }

    /// Packed tiles of the whole dimension, and of a block.
    fn panels(&self) -> (u64, u64) {
        let all = self.extent.div_ceil(self.packed);
        (all, (self.block / self.packed).min(all))
    }
}

struct Family<'a> {
    view: &'a ContractionView,
    schedule: CpuSchedule,
    atom: Atom,
    rows: Dim,
    cols: Dim,
    k: u64,
    names: Names,
    tiles: Vec<Tile>,
    buffers: Vec<Buffer>,
    panels: [Option<Panels>; 2],
}

impl<'a> Family<'a> {
    fn new(view: &'a ContractionView, schedule: CpuSchedule, atom: Atom) -> Family<'a> {
        let (m, n, k) = view.extents();
        let cols = schedule.nv * schedule.vw;
        Family {
            view,
            atom,
            rows: Dim {
                extent: m,
                tile: schedule.mr,
                block: schedule.mr * schedule.mt,
                packed: if atom.scope == Scope::Matrix { BLOCK } else { schedule.mr },
            },
            cols: Dim { extent: n, tile: cols, block: cols * schedule.nt, packed: BLOCK },
            k,
            schedule,
            names: Names::default(),
            tiles: Vec::new(),
            buffers: buffers(view),
            panels: [None, None],
        }
    }

    fn dim(&self, rows: bool) -> &Dim {
        if rows { &self.rows } else { &self.cols }
    }

    fn operand(&self, rows: bool) -> &'a OperandMap {
        if rows { &self.view.a } else { &self.view.b }
    }

    /// Steps of k in a packed tile, and how many packed tiles all of k takes.
    fn depth(&self) -> (u64, u64) {
        let depth = ROW_BYTES / self.atom.factors[0].bytes();
        (depth, self.k.div_ceil(depth))
    }

    fn program(mut self) -> Program {
        let mut program = Program { kernels: Vec::new(), workspace_bytes: Vec::new() };
        for rows in [true, false] {
            let panels = self.room(rows, &mut program);
            self.panels[usize::from(!rows)] = Some(panels);
        }
        program.kernels.push(self.kernel());
        program
    }

    /// Room for the packed tiles of an operand: a scratch tile, or a workspace buffer and the kernel that fills it.
    fn room(&mut self, rows: bool, program: &mut Program) -> Panels {
        let (pack, name) = if rows { (self.schedule.pack_a, "rows") } else { (self.schedule.pack_b, "cols") };
        let dtype = self.atom.factors[usize::from(!rows)];
        let (whole, block) = self.dim(rows).panels();
        let (depth, steps) = self.depth();
        let elements = steps * depth * self.dim(rows).packed;
        if pack != Pack::Ahead {
            let shape = vec![block * elements];
            let space = Space::Scratch(Layout::row_major(&shape, 0));
            self.tiles.push(Tile { name: format!("{name}_packed"), shape, dtype, space });
            return Panels { place: Place::Tile(self.tiles.len() - 1), whole: false };
        }
        let batch = self.view.batch.extent();
        let len = batch * whole * elements;
        let source = Source::Workspace(program.workspace_bytes.len());
        program.workspace_bytes.push(len * dtype.bytes());
        let buffer =
            |access| Buffer { name: format!("{name}_packed"), source, dtype, len, align: 64, access, stream: false };
        program.kernels.push(self.ahead(rows, buffer(Access::Write)));
        self.buffers.push(buffer(Access::Read));
        Panels { place: Place::Buffer(self.buffers.len() - 1), whole: true }
    }

    /// The kernel that packs an operand once, a packed tile wide at a time.
    fn ahead(&self, rows: bool, packed: Buffer) -> Kernel {
        let mut names = Names::default();
        let (batch_var, panel_var) = (names.var("batch"), names.var("panel"));
        let (batch, panel) = (Index::Var(batch_var), Index::Var(panel_var));
        let (whole, _) = self.dim(rows).panels();
        let first = batch.clone() * Index::of(whole) + panel.clone();
        let place = Place::Buffer(1);
        let copy = self.copy(
            rows,
            (place, first),
            (Place::Buffer(0), batch, panel * Index::of(self.dim(rows).packed)),
            Index::Const(1),
        );
        let inner = Stmt::For { var: panel_var, extent: Index::of(whole), kind: LoopKind::Cores, body: vec![copy] };
        let extent = Index::of(self.view.batch.extent());
        let body = vec![Stmt::For { var: batch_var, extent, kind: LoopKind::Serial, body: vec![inner] }];
        let operand = Buffer { access: Access::Read, ..self.buffers[self.operand(rows).operand].clone() };
        Kernel {
            name: format!("pack_{}", packed.name),
            phase: Phase::Prepack,
            buffers: vec![operand, packed],
            workgroup: [1; 3],
            vars: names.0,
            tiles: Vec::new(),
            pipes: Vec::new(),
            body,
        }
    }

    /// The element of the packed tiles that begin at `first` for a row (or column) and a step of k.
    fn packed(&self, rows: bool, (place, first): (Place, Index), position: &Index, step: &Index) -> View {
        let (depth, steps) = self.depth();
        let width = self.dim(rows).packed;
        let (block, deep) = (signed(width), signed(depth));
        let tile = (first + position.clone().floor_div(block)) * Index::of(steps) + step.clone().floor_div(deep);
        let (inside, at) = (position.clone().modulo(block), step.clone().modulo(deep));
        let group = signed(self.group(rows));
        let element =
            at.clone().floor_div(group) * Index::Const(block * group) + inside * Index::Const(group) + at.modulo(group);
        View { place, index: vec![tile * Index::of(width * depth) + element], guards: Vec::new() }
    }

    /// Neighbouring k that lie together in a packed tile.
    fn group(&self, rows: bool) -> u64 {
        let bytes = if rows && self.atom.scope == Scope::Matrix { ROW_BYTES } else { WORD_BYTES };
        bytes / self.atom.factors[usize::from(!rows)].bytes()
    }

    /// Packs `count` tiles from position `start` of an operand.
    fn copy(
        &self,
        rows: bool,
        (packed, first): (Place, Index),
        (operand, batch, start): (Place, Index, Index),
        count: Index,
    ) -> Stmt {
        let (depth, steps) = self.depth();
        let (group, width) = (self.group(rows), self.dim(rows).packed);
        let map = self.operand(rows);
        // Where neighbours along the packed dimension lie together, whole rows of memory are read before the next.
        let own = if rows { &self.view.m } else { &self.view.n };
        let along = self.view.linear(map, own) == Some(1);
        let (panel, tile) = if along { (Index::Coord(1), Index::Coord(0)) } else { (Index::Coord(0), Index::Coord(1)) };
        let outer = if along { [Index::of(steps), count] } else { [count, Index::of(steps)] };
        let mut shape = outer.to_vec();
        shape.extend([depth / group, width, group].map(Index::of));
        let [part, inside, at] = [2, 3, 4].map(Index::Coord);
        let position = start + panel.clone() * Index::of(width) + inside.clone();
        let step = tile.clone() * Index::of(depth) + part.clone() * Index::of(group) + at.clone();
        let zero = Index::ZERO;
        let (m, n) = if rows { (position.clone(), zero) } else { (zero, position.clone()) };
        let (index, mut guards) = element(self.view, map, &Point { batch, m, n, k: step.clone() });
        for (index, extent, whole) in [(position, self.dim(rows).extent, width), (step, self.k, depth)] {
            if !extent.is_multiple_of(whole) {
                guards.push(Guard { index, bound: Index::of(extent) });
            }
        }
        let tile = (first + panel) * Index::of(steps) + tile;
        let element = part * Index::of(width * group) + inside * Index::of(group) + at;
        let dst = View { place: packed, index: vec![tile * Index::of(width * depth) + element], guards: Vec::new() };
        Stmt::Copy { shape, dst, src: View { place: operand, index: vec![index], guards } }
    }

    fn kernel(mut self) -> Kernel {
        let kind = if self.schedule.par == Parallel::Batch { LoopKind::Cores } else { LoopKind::Serial };
        let body = self.open("batch", self.view.batch.extent(), kind, |family, batch| {
            family.cache_loops(0, &At { batch, row: None, col: None })
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

    /// `for name in 0..extent`; a single serial iteration needs no loop.
    fn open(
        &mut self,
        name: &str,
        extent: u64,
        kind: LoopKind,
        body: impl FnOnce(&mut Self, Index) -> Vec<Stmt>,
    ) -> Vec<Stmt> {
        if extent == 1 && kind == LoopKind::Serial {
            return body(self, Index::ZERO);
        }
        let var = self.names.var(name);
        let body = body(self, Index::Var(var));
        vec![Stmt::For { var, extent: Index::of(extent), kind, body }]
    }

    fn cache_loops(&mut self, depth: usize, at: &At) -> Vec<Stmt> {
        let mut order: Vec<LoopAxis> =
            self.schedule.cache_order().into_iter().filter(|axis| *axis != LoopAxis::K).collect();
        // What is one block is known from the start, and packed once.
        order.sort_by_key(|axis| self.dim(*axis == LoopAxis::Rows).blocks() > 1);
        let Some(&axis) = order.get(depth) else { return self.register_loops(at) };
        let rows = axis == LoopAxis::Rows;
        let (name, parallel) = if rows { ("ic", Parallel::Rows) } else { ("jc", Parallel::Cols) };
        let kind = if self.schedule.par == parallel { LoopKind::Cores } else { LoopKind::Serial };
        self.open(name, self.dim(rows).blocks(), kind, |family, block| {
            let mut inner = at.clone();
            *(if rows { &mut inner.row } else { &mut inner.col }) = Some(block.clone());
            let mut stmts = Vec::new();
            let panels = family.panels[usize::from(!rows)].clone().expect("invariant: there is room");
            if !panels.whole {
                let dim = family.dim(rows);
                let count = (dim.in_block(&block) + Index::of(dim.packed - 1)).floor_div(signed(dim.packed));
                let operand = Place::Buffer(family.operand(rows).operand);
                let from = (operand, at.batch.clone(), block * Index::of(dim.block));
                stmts.push(family.copy(rows, (panels.place, Index::ZERO), from, count));
            }
            stmts.extend(family.cache_loops(depth + 1, &inner));
            stmts
        })
    }

    fn register_loops(&mut self, at: &At) -> Vec<Stmt> {
        let outer_rows = !self.schedule.rows_inside();
        self.pieces(at, outer_rows, &mut |family, outer| {
            let outer = outer.clone();
            family.pieces(at, !outer_rows, &mut |family, inner| {
                let (row, col) = if outer_rows { (&outer, inner) } else { (inner, &outer) };
                family.micro(at, row, col)
            })
        })
    }

    /// Walks the register tiles of a block along one dimension: whole ones, and a smaller one at the end.
    fn pieces(&mut self, at: &At, rows: bool, body: &mut dyn FnMut(&mut Self, &Piece) -> Vec<Stmt>) -> Vec<Stmt> {
        let dim = self.dim(rows).clone();
        let block = if rows { at.row.clone() } else { at.col.clone() };
        let block = block.expect("invariant: all cache loops are open");
        let rest = dim.extent % dim.tile;
        let whole = dim.in_block(&block).floor_div(signed(dim.tile));
        let mut piece = |family: &mut Self, tile: Index, size: u64| {
            let start = block.clone() * Index::of(dim.block) + tile.clone() * Index::of(dim.tile);
            body(family, &Piece { start, panel: tile * Index::of(dim.tile / dim.packed), size })
        };
        let mut stmts = match whole.as_const() {
            Some(0) => Vec::new(),
            Some(1) => piece(self, Index::ZERO, dim.tile),
            _ => {
                let var = self.names.var(if rows { "ir" } else { "jr" });
                let body = piece(self, Index::Var(var), dim.tile);
                vec![Stmt::For { var, extent: whole.clone(), kind: LoopKind::Serial, body }]
            }
        };
        if rest > 0 {
            let last = piece(self, whole, rest);
            if dim.blocks() == 1 {
                stmts.extend(last);
            } else {
                let cond = Cond::Eq(block, Index::of(dim.blocks() - 1));
                stmts.push(Stmt::If { cond, then: last, otherwise: Vec::new() });
            }
        }
        stmts
    }

    /// A tile of sums: in registers, or where they are stored.
    fn sums(&mut self, name: &str, rows: u64, cols: u64) -> usize {
        let whole = if self.atom.scope == Scope::Matrix { BLOCK } else { 1 };
        let shape = vec![rows.next_multiple_of(whole), cols.next_multiple_of(BLOCK)];
        let name = format!("{name}_{}x{}", shape[0], shape[1]);
        if let Some(found) = self.tiles.iter().position(|tile| tile.name == name) {
            return found;
        }
        let space = if name.starts_with("acc") {
            Space::Register(Distribution::single_lane(&shape))
        } else {
            Space::Scratch(Layout::row_major(&shape, 0))
        };
        self.tiles.push(Tile { name, shape, dtype: self.atom.acc, space });
        self.tiles.len() - 1
    }

    fn micro(&mut self, at: &At, row: &Piece, col: &Piece) -> Vec<Stmt> {
        let acc = self.sums("acc", row.size, col.size);
        let factor = |rows: bool| {
            let panels = self.panels[usize::from(!rows)].as_ref().expect("invariant: there is room");
            let piece = if rows { row } else { col };
            let mut first = piece.panel.clone();
            if panels.whole {
                let dim = self.dim(rows);
                let block = if rows { &at.row } else { &at.col }.clone().expect("invariant: all cache loops are open");
                first =
                    at.batch.clone() * Index::of(dim.panels().0) + block * Index::of(dim.block / dim.packed) + first;
            }
            self.packed(rows, (panels.place, first), &Index::Coord(usize::from(!rows)), &Index::Coord(2))
        };
        let (depth, steps) = self.depth();
        let shape = [self.tiles[acc].shape[0], self.tiles[acc].shape[1], depth * steps].map(Index::of);
        let contract = Stmt::Contract {
            shape,
            acc,
            a: factor(true),
            b: factor(false),
            atom: self.atom,
            unroll: self.schedule.ku,
            prefetch: self.schedule.pf,
            keep: None,
            wake: self.schedule.wake,
        };
        let mut stmts = vec![Stmt::Fill { tile: acc, value: 0.0 }, contract];
        stmts.extend(self.store(at, acc, row, col));
        stmts
    }

    /// `out = epilogue(acc)`: straight from the registers where the output holds sums as they are.
    fn store(&mut self, at: &At, acc: usize, row: &Piece, col: &Piece) -> Vec<Stmt> {
        let tile = |tile: usize| View {
            place: Place::Tile(tile),
            index: vec![Index::Coord(0), Index::Coord(1)],
            guards: Vec::new(),
        };
        let whole: Vec<Index> = self.tiles[acc].shape.iter().map(|&extent| Index::of(extent)).collect();
        let (m, n) = (row.start.clone() + Index::Coord(0), col.start.clone() + Index::Coord(1));
        let point = Point { batch: at.batch.clone(), m, n, k: Index::ZERO };
        let (view, out) = (self.view, &self.view.out);
        let (index, guards) = element(view, out, &point);
        let dst = View { place: Place::Buffer(out.operand), index: vec![index], guards };
        let matrix = self.atom.scope == Scope::Matrix;
        let exact = matrix && [row, col].iter().all(|piece| piece.size.is_multiple_of(BLOCK));
        let plain = view.workload.operands[out.operand].dtype == self.atom.acc && view.workload.epilogue.is_empty();
        let linear = view.linear(out, &view.m).is_some() && view.linear(out, &view.n) == Some(1);
        if exact && plain && linear && dst.guards.is_empty() {
            return vec![Stmt::Copy { shape: whole, dst, src: tile(acc) }];
        }
        // The registers of a matrix unit can only be copied.
        let sums = if matrix { self.sums("sums", row.size, col.size) } else { acc };
        let mut lets = Vec::new();
        let (expr, mut side) = epilogue(view, Scalar::Arg(0), 1, &|map| element(view, map, &point), &mut lets);
        // Side operands exist where the output does.
        side.iter_mut().for_each(|view| view.guards.extend(dst.guards.iter().cloned()));
        let mut args = vec![tile(sums)];
        args.extend(side);
        let shape = vec![Index::of(row.size), Index::of(col.size)];
        let copy = matrix.then(|| Stmt::Copy { shape: whole, dst: tile(sums), src: tile(acc) });
        copy.into_iter().chain([store(shape, dst, args, lets, expr)]).collect()
    }
}
