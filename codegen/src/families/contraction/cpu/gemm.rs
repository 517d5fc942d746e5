//! The level-1 program of a contraction on the CPU: cache blocks around a register tile.
//!
//! ```text
//! for jc, pc, ic in the schedule's order                 cache blocks of nc columns, kc steps of k, mc rows
//!   (pack b when jc and pc are known, a when ic and pc are)
//!   for jr, ir in the schedule's order                   register tiles
//!     acc = 0;  for k: acc += a · b;  out = epilogue(out + acc)
//! ```
//! This is the blocking of Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (ACM TOMS 2008),
//! with the loop order, the packing and the treatment of the edges left to the schedule. *Rows* are the side whose
//! elements are broadcast and *columns* the side along which vectors run; `vec` chooses which of m and n is which.

use search_space::families::contraction::cpu::{CpuSchedule, LoopAxis, Pack, Parallel, Tail, VectorAxis};
use search_space::families::contraction::{ContractionView, OperandMap};

use super::packed::Packed;
use super::parts::Parts;
use super::signed;
use crate::atoms::Atom;
use crate::families::contraction::{Names, Point, buffers, element, epilogue};
use crate::families::nest::store;
use crate::index::Index;
use crate::layout::{Distribution, Layout};
use crate::lower::LowerError;
use crate::tile::{
    Access, BinaryOp, Buffer, Cond, Guard, Kernel, LoopKind, Phase, Place, Program, Scalar, Space, Stmt, Tile, View,
};

/// Bytes of a line of the caches.
const LINE_BYTES: u64 = 64;

/// Builds the program.
///
/// # Errors
/// [`LowerError::Schedule`] when register tiles would reach over an end that `tail` says nothing of.
pub(super) fn build(view: &ContractionView, schedule: CpuSchedule, atom: Atom) -> Result<Program, LowerError> {
    let family = Family::new(view, schedule, atom);
    let (tail, fused) = (family.schedule.tail, family.schedule.pack_b == Pack::Fused);
    for (name, dim) in [("rows", &family.rows), ("columns", &family.cols)] {
        let (extent, tile) = (dim.extent, dim.tile);
        let why = match tail {
            Tail::Exact if dim.remainder() != 0 => format!("{extent} {name} are not whole tiles of {tile}"),
            Tail::Overlap if extent < tile => format!("{extent} {name} are fewer than a tile of {tile}"),
            _ if fused && name == "rows" && extent < tile => format!("no tile of {tile} rows is there to pack columns"),
            _ => continue,
        };
        return Err(LowerError::Schedule { why });
    }
    Ok(family.program())
}

/// Where the panels of an operand are.
#[derive(Clone, Debug)]
enum Panels {
    /// In a scratch tile `[panel, k, element]` that holds one block.
    Block(usize),
    /// In a buffer that a kernel of the prepack phase filled.
    Ahead(usize, Packed),
}

/// How a register tile gets the vectors of its columns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Columns {
    /// From where the schedule has them.
    Found,
    /// From the operand, into the panel.
    Fused,
}

/// One dimension of the product: its extent, register tile and cache block.
#[derive(Clone, Debug)]
struct Dim {
    extent: u64,
    tile: u64,
    block: u64,
}

/// A register tile along one dimension: where it starts, in which panel it lies, how long it is.
#[derive(Clone, Debug)]
struct Piece {
    start: Index,
    panel: Index,
    size: u64,
    /// Whether the tile may reach over the end.
    guarded: bool,
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
    rows_packed: Option<Panels>,
    cols_packed: Option<Panels>,
    /// Partial sums and their buffer, where the cores share the reduction.
    parts: Option<(usize, Parts)>,
}

/// What is known inside the loops opened so far.
#[derive(Clone, Debug, Default)]
struct Blocks {
    batch: Option<Index>,
    row: Option<Index>,
    col: Option<Index>,
    k: Option<Index>,
}

impl Blocks {
    fn batch(&self) -> Index {
        self.batch.clone().expect("invariant: the batch loop is outermost")
    }
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

    fn remainder(&self) -> u64 {
        self.extent % self.tile
    }
}

impl<'a> Family<'a> {
    fn new(view: &'a ContractionView, schedule: CpuSchedule, atom: Atom) -> Family<'a> {
        let (m, n, k) = view.extents();
        let (rows, cols) = if schedule.vec == VectorAxis::N { (m, n) } else { (n, m) };
        let nr = schedule.nv * schedule.vw;
        Family {
            view,
            atom,
            rows: Dim { extent: rows, tile: schedule.mr, block: schedule.mr * schedule.mt },
            cols: Dim { extent: cols, tile: nr, block: nr * schedule.nt },
            k,
            schedule,
            names: Names::default(),
            tiles: Vec::new(),
            buffers: buffers(view),
            rows_packed: None,
            cols_packed: None,
            parts: None,
        }
    }

    fn program(mut self) -> Program {
        let mut program = Program { kernels: Vec::new(), workspace_bytes: Vec::new() };
        self.rows_packed = self.panels(true, &mut program);
        self.cols_packed = self.panels(false, &mut program);
        self.parts = self.parts(&mut program);
        let sum = self
            .parts
            .as_ref()
            .map(|(_, parts)| parts.kernel(self.view, &|batch, row, col| self.point(batch, row, col, Index::ZERO)));
        program.kernels.push(self.kernel());
        program.kernels.extend(sum);
        program
    }

    fn parts(&mut self, program: &mut Program) -> Option<(usize, Parts)> {
        if self.schedule.par != Parallel::K {
            return None;
        }
        let parts = Parts {
            workspace: program.workspace_bytes.len(),
            count: self.k.div_ceil(self.schedule.kc),
            batch: self.view.batch.extent(),
            rows: self.rows.extent,
            cols: self.cols.extent,
            dtype: self.atom.acc,
        };
        program.workspace_bytes.push(parts.bytes());
        self.buffers.push(parts.buffer(Access::Write));
        Some((self.buffers.len() - 1, parts))
    }

    /// Makes room for the panels of an operand: a scratch tile, or a workspace buffer and the kernel that fills it.
    fn panels(&mut self, rows: bool, program: &mut Program) -> Option<Panels> {
        let (pack, blocks, name) = if rows {
            (self.schedule.pack_a, self.schedule.mt, "row_panels")
        } else {
            (self.schedule.pack_b, self.schedule.nt, "col_panels")
        };
        let dim = if rows { &self.rows } else { &self.cols };
        match pack {
            Pack::None => None,
            Pack::Panel | Pack::Fused => {
                let shape = vec![blocks, self.schedule.kc.min(self.k), dim.tile];
                let space = Space::Scratch(Layout::row_major(&shape, 0));
                self.tiles.push(Tile { name: name.into(), shape, dtype: self.atom.acc, space });
                Some(Panels::Block(self.tiles.len() - 1))
            }
            Pack::Ahead => {
                let packed = Packed {
                    workspace: program.workspace_bytes.len(),
                    batch: self.view.batch.extent(),
                    extent: dim.extent,
                    width: dim.tile,
                    taps: Vec::new(),
                    steps: self.k,
                    dtype: self.atom.acc,
                };
                let map = self.operand(rows);
                let operand = self.buffers[map.operand].clone();
                let kernel = packed.kernel(&format!("pack_{name}"), Phase::Prepack, operand.clone(), &[], &|at, _| {
                    let zero = Index::ZERO;
                    let (row, col) = if rows { (at.position.clone(), zero) } else { (zero, at.position.clone()) };
                    let point = self.point(at.batch.clone(), row, col, at.step.clone());
                    packed.copy(at, &[], element(self.view, map, &point))
                });
                program.kernels.push(kernel);
                program.workspace_bytes.push(packed.bytes());
                self.buffers.push(packed.buffer(&operand.name, Access::Read));
                Some(Panels::Ahead(self.buffers.len() - 1, packed))
            }
        }
    }

    fn kernel(mut self) -> Kernel {
        let batch = self.view.batch.extent();
        let kind = if self.schedule.par == Parallel::Batch { LoopKind::Cores } else { LoopKind::Serial };
        let body = self.open("batch", batch, kind, |family, at| {
            let blocks = Blocks { batch: Some(at), ..Blocks::default() };
            family.cache_loops(0, &blocks)
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

    /// `for name in 0..extent`; a single iteration needs no loop.
    fn open(
        &mut self,
        name: &str,
        extent: u64,
        kind: LoopKind,
        body: impl FnOnce(&mut Self, Index) -> Vec<Stmt>,
    ) -> Vec<Stmt> {
        // A loop over the cores stays even for one iteration: it is what keeps the other cores from running it too.
        if extent == 1 && kind == LoopKind::Serial {
            return body(self, Index::ZERO);
        }
        let var = self.names.var(name);
        let body = body(self, Index::Var(var));
        vec![Stmt::For { var, extent: Index::of(extent), kind, body }]
    }

    fn cache_loops(&mut self, depth: usize, blocks: &Blocks) -> Vec<Stmt> {
        let Some(&axis) = self.schedule.cache_order().get(depth) else { return self.register_loops(blocks) };
        let (name, extent, parallel) = match axis {
            LoopAxis::Rows => ("ic", self.rows.blocks(), Parallel::Rows),
            LoopAxis::Cols => ("jc", self.cols.blocks(), Parallel::Cols),
            LoopAxis::K => ("pc", self.k.div_ceil(self.schedule.kc), Parallel::K),
        };
        let kind = if self.schedule.par == parallel { LoopKind::Cores } else { LoopKind::Serial };
        self.open(name, extent, kind, |family, at| {
            let mut inner = blocks.clone();
            match axis {
                LoopAxis::Rows => inner.row = Some(at),
                LoopAxis::Cols => inner.col = Some(at),
                LoopAxis::K => inner.k = Some(at),
            }
            let mut stmts = Vec::new();
            // Each operand is packed as soon as its block is known.
            if let (Some(col), Some(k), Some(Panels::Block(tile))) = (&inner.col, &inner.k, &family.cols_packed)
                && axis != LoopAxis::Rows
                && family.schedule.pack_b != Pack::Fused
            {
                stmts.push(family.pack(*tile, &inner, k, col, false));
            }
            if let (Some(row), Some(k), Some(Panels::Block(tile))) = (&inner.row, &inner.k, &family.rows_packed)
                && axis != LoopAxis::Cols
            {
                stmts.push(family.pack(*tile, &inner, k, row, true));
            }
            stmts.extend(family.cache_loops(depth + 1, &inner));
            stmts
        })
    }

    fn steps_of_k(&self, at: &Index) -> Index {
        Dim { extent: self.k, tile: 1, block: self.schedule.kc }.in_block(at)
    }

    fn point(&self, batch: Index, row: Index, col: Index, k: Index) -> Point {
        let (m, n) = if self.schedule.vec == VectorAxis::N { (row, col) } else { (col, row) };
        Point { batch, m, n, k }
    }

    fn operand(&self, rows: bool) -> &'a OperandMap {
        if rows == (self.schedule.vec == VectorAxis::N) { &self.view.a } else { &self.view.b }
    }

    /// `panels[p, k, e] = operand(k, p · tile + e)`, zero outside.
    fn pack(&self, tile: usize, blocks: &Blocks, k: &Index, at: &Index, rows: bool) -> Stmt {
        let dim = if rows { &self.rows } else { &self.cols };
        let start = at.clone() * Index::of(dim.block);
        let position = start + Index::Coord(0) * Index::of(dim.tile) + Index::Coord(2);
        let step = k.clone() * Index::of(self.schedule.kc) + Index::Coord(1);
        let (row, col) = if rows { (position.clone(), Index::ZERO) } else { (Index::ZERO, position.clone()) };
        let (index, mut guards) = element(self.view, self.operand(rows), &self.point(blocks.batch(), row, col, step));
        if dim.remainder() != 0 {
            guards.push(Guard { index: position, bound: Index::of(dim.extent) });
        }
        let panels = (dim.in_block(at) + Index::of(dim.tile - 1)).floor_div(signed(dim.tile));
        Stmt::Copy {
            shape: vec![panels, self.steps_of_k(k), Index::of(dim.tile)],
            dst: View {
                place: Place::Tile(tile),
                index: vec![Index::Coord(0), Index::Coord(1), Index::Coord(2)],
                guards: Vec::new(),
            },
            src: View { place: Place::Buffer(self.operand(rows).operand), index: vec![index], guards },
        }
    }

    fn register_loops(&mut self, blocks: &Blocks) -> Vec<Stmt> {
        if self.schedule.rows_inside() {
            self.pieces(blocks, false, &mut |family, col| {
                let col = col.clone();
                family.pieces(blocks, true, &mut |family, row| family.micro(blocks, row, &col))
            })
        } else {
            self.pieces(blocks, true, &mut |family, row| {
                let row = row.clone();
                family.pieces(blocks, false, &mut |family, col| family.micro(blocks, &row, col))
            })
        }
    }

    /// Walks the register tiles of a block along one dimension.
    fn pieces(
        &mut self,
        blocks: &Blocks,
        rows: bool,
        body: &mut dyn FnMut(&mut Self, &Piece) -> Vec<Stmt>,
    ) -> Vec<Stmt> {
        let dim = if rows { self.rows.clone() } else { self.cols.clone() };
        let at = if rows { blocks.row.clone() } else { blocks.col.clone() };
        let at = at.expect("invariant: all cache loops are open");
        let (size, block_start) = (dim.in_block(&at), at.clone() * Index::of(dim.block));
        let (tile, remainder) = (signed(dim.tile), dim.remainder());
        let tail = self.schedule.tail;
        let whole = if tail == Tail::Separate { 0 } else { tile - 1 };
        let trips = (size + Index::Const(whole)).floor_div(tile);
        let name = if rows { "ir" } else { "jr" };
        let mut stmts = Vec::new();
        let mut piece = |family: &mut Self, panel: Index, size: u64, guarded: bool| {
            let mut start = block_start.clone() + panel.clone() * Index::Const(tile);
            if tail == Tail::Overlap && remainder != 0 {
                start = start.min(Index::Const(signed(dim.extent) - tile));
            }
            body(family, &Piece { start, panel, size, guarded })
        };
        let guarded = remainder != 0 && tail == Tail::Masked;
        match trips.as_const() {
            Some(0) => {}
            Some(1) => stmts.extend(piece(self, Index::ZERO, dim.tile, guarded)),
            _ => {
                let var = self.names.var(name);
                let body = piece(self, Index::Var(var), dim.tile, guarded);
                stmts.push(Stmt::For { var, extent: trips.clone(), kind: LoopKind::Serial, body });
            }
        }
        if tail == Tail::Separate && remainder != 0 {
            let last = piece(self, trips, remainder, false);
            if dim.blocks() == 1 {
                stmts.extend(last);
            } else {
                let cond = Cond::Eq(at, Index::of(dim.blocks() - 1));
                stmts.push(Stmt::If { cond, then: last, otherwise: Vec::new() });
            }
        }
        stmts
    }

    fn accumulator(&mut self, rows: u64, cols: u64) -> usize {
        let shape = vec![rows, cols];
        if let Some(found) = self.tiles.iter().position(|tile| tile.name.starts_with("acc") && tile.shape == shape) {
            return found;
        }
        let space = Space::Register(Distribution::single_lane(&shape));
        self.tiles.push(Tile { name: format!("acc_{rows}x{cols}"), shape, dtype: self.atom.acc, space });
        self.tiles.len() - 1
    }

    fn micro(&mut self, blocks: &Blocks, row: &Piece, col: &Piece) -> Vec<Stmt> {
        let acc = self.accumulator(row.size, col.size);
        let at_k = blocks.k.clone().expect("invariant: all cache loops are open");
        let step = at_k.clone() * Index::of(self.schedule.kc) + Index::Coord(2);
        let row_at = row.start.clone() + Index::Coord(0);
        let col_at = col.start.clone() + Index::Coord(1);
        let factor = |rows: bool, packed: bool| {
            let (piece, position, coord) = if rows { (row, &row_at, 0) } else { (col, &col_at, 1) };
            match if rows { &self.rows_packed } else { &self.cols_packed } {
                _ if !packed => {}
                None => {}
                Some(Panels::Block(tile)) => {
                    let index = vec![piece.panel.clone(), Index::Coord(2), Index::Coord(coord)];
                    return View { place: Place::Tile(*tile), index, guards: Vec::new() };
                }
                Some(Panels::Ahead(buffer, packed)) => {
                    let (block, panels) =
                        if rows { (&blocks.row, self.schedule.mt) } else { (&blocks.col, self.schedule.nt) };
                    let block = block.clone().expect("invariant: all cache loops are open");
                    let panel = block * Index::of(panels) + piece.panel.clone();
                    return packed.view(*buffer, blocks.batch(), panel, &[], step.clone(), Index::Coord(coord));
                }
            }
            let (at_row, at_col) = if rows { (position.clone(), Index::ZERO) } else { (Index::ZERO, position.clone()) };
            let map = self.operand(rows);
            let (index, mut guards) =
                element(self.view, map, &self.point(blocks.batch(), at_row, at_col, step.clone()));
            if piece.guarded {
                let dim = if rows { &self.rows } else { &self.cols };
                guards.push(Guard { index: position.clone(), bound: Index::of(dim.extent) });
            }
            View { place: Place::Buffer(map.operand), index: vec![index], guards }
        };
        // A panel that was just packed is near.
        let fused = self.schedule.pack_b == Pack::Fused;
        let contract = |columns: Columns| Stmt::Contract {
            shape: [Index::of(row.size), Index::of(col.size), self.steps_of_k(&at_k)],
            acc,
            a: factor(true, true),
            b: factor(false, columns == Columns::Found),
            atom: self.atom,
            unroll: self.schedule.ku,
            prefetch: if fused == (columns == Columns::Fused) { self.schedule.pf } else { 0 },
            keep: (columns == Columns::Fused).then(|| factor(false, true)),
            wake: 0,
        };
        let mut stmts = self.prefetch_partial(blocks, row, col);
        stmts.push(Stmt::Fill { tile: acc, value: 0.0 });
        // A smaller tile is never the first.
        if self.schedule.pack_b == Pack::Fused && row.size == self.rows.tile {
            let first = Cond::Eq(row.start.clone(), Index::ZERO);
            let (then, otherwise) = (vec![contract(Columns::Fused)], vec![contract(Columns::Found)]);
            stmts.push(Stmt::If { cond: first, then, otherwise });
        } else {
            stmts.push(contract(Columns::Found));
        }
        stmts.extend(self.store(blocks, acc, row, col, &at_k));
        stmts
    }

    /// Asks for the partial sums that the tile is added to, which the other tiles have driven from the nearer caches.
    fn prefetch_partial(&self, blocks: &Blocks, row: &Piece, col: &Piece) -> Vec<Stmt> {
        let dtype = self.view.workload.operands[self.view.out.operand].dtype;
        let line = i64::try_from(LINE_BYTES / dtype.bytes()).expect("invariant: a line is small");
        let columns = if self.schedule.vec == VectorAxis::N { &self.view.n } else { &self.view.m };
        let once = self.k.div_ceil(self.schedule.kc) == 1 || self.parts.is_some();
        if once || self.view.linear(&self.view.out, columns) != Some(1) {
            return Vec::new();
        }
        let row_at = row.start.clone() + Index::Coord(0);
        let col_at = col.start.clone() + Index::Coord(1) * Index::Const(line);
        let point = self.point(blocks.batch(), row_at, col_at, Index::ZERO);
        let (index, _) = element(self.view, &self.view.out, &point);
        let src = View { place: Place::Buffer(self.view.out.operand), index: vec![index], guards: Vec::new() };
        vec![Stmt::Prefetch {
            shape: vec![Index::of(row.size), Index::of(col.size.div_ceil(LINE_BYTES / dtype.bytes()))],
            src,
        }]
    }

    /// `out = epilogue(acc)`; with k in several blocks the output holds the partial sums in between.
    fn store(&self, blocks: &Blocks, acc: usize, row: &Piece, col: &Piece, at_k: &Index) -> Vec<Stmt> {
        let row_at = row.start.clone() + Index::Coord(0);
        let col_at = col.start.clone() + Index::Coord(1);
        let point = self.point(blocks.batch(), row_at.clone(), col_at.clone(), Index::ZERO);
        let (index, out_guards) = element(self.view, &self.view.out, &point);
        let mut guards = Vec::new();
        for (piece, position, dim) in [(row, &row_at, &self.rows), (col, &col_at, &self.cols)] {
            if piece.guarded {
                guards.push(Guard { index: position.clone(), bound: Index::of(dim.extent) });
            }
        }
        let acc = View { place: Place::Tile(acc), index: vec![Index::Coord(0), Index::Coord(1)], guards: Vec::new() };
        if let Some((buffer, parts)) = &self.parts {
            let mut dst = parts.view(*buffer, at_k.clone(), blocks.batch(), row_at, col_at);
            dst.guards = guards;
            return vec![Stmt::Copy { shape: vec![Index::of(row.size), Index::of(col.size)], dst, src: acc }];
        }
        guards.splice(0..0, out_guards);
        let out = View { place: Place::Buffer(self.view.out.operand), index: vec![index], guards };
        let shape = vec![Index::of(row.size), Index::of(col.size)];
        let write = |args, lets, expr| store(shape.clone(), out.clone(), args, lets, expr);
        // In the first block of k there is no partial sum yet: the guard makes it read as zero.
        let mut before = out.clone();
        before.guards.push(Guard { index: at_k.clone() - Index::Const(1), bound: Index::of(self.k) });
        let finish = |partial: bool| {
            let mut args = vec![acc.clone()];
            let mut value = Scalar::Arg(0);
            if partial {
                args.push(before.clone());
                value = Scalar::Binary(BinaryOp::Add, Box::new(Scalar::Arg(1)), Box::new(value));
            }
            let mut lets = Vec::new();
            let at = |map: &OperandMap| element(self.view, map, &point);
            let (expr, mut side) = epilogue(self.view, value, args.len(), &at, &mut lets);
            // Side operands exist where the output does.
            side.iter_mut().for_each(|view| view.guards.extend(out.guards.iter().cloned()));
            args.extend(side);
            vec![write(args, lets, expr)]
        };
        let blocks_of_k = self.k.div_ceil(self.schedule.kc);
        if blocks_of_k == 1 {
            return finish(false);
        }
        if self.view.workload.epilogue.is_empty() {
            return finish(true);
        }
        let sum = Scalar::Binary(BinaryOp::Add, Box::new(Scalar::Arg(1)), Box::new(Scalar::Arg(0)));
        let partial = vec![write(vec![acc.clone(), before.clone()], Vec::new(), sum)];
        let last = Cond::Eq(at_k.clone(), Index::of(blocks_of_k - 1));
        vec![Stmt::If { cond: last, then: finish(true), otherwise: partial }]
    }
}
