//! Level 1 to lanes for one CPU core: windows become loops over vectors, register tiles become slots.
//!
//! ```text
//! copy/map  [d0, .., dv]   =>   for d0 ..: (for chunks of dv): vector load, vector store     (dv: the vector dimension)
//! contract  [m, n, k]      =>   for k, unrolled: load n/w vectors of b; for each m: splat a, fma into its slots
//! pipe steps               =>   nothing: one core sees its own writes in order
//! ```

use crate::atoms::Atom;
use crate::index::{Index, Stride, Var};
use crate::lane::build::Builder;
use crate::lane::{Array, BinOp, Builtin, CmpOp, Kernel as LaneKernel, Mem, Slot, Type, Value};
use crate::tile::{Cond, Guard, Kernel, LoopKind, Place, Scalar, Space, Stmt, UnaryOp, View};

/// Vector width of copies that touch no register tile.
const COPY_LANES: u16 = 16;
/// A window dimension of at most this extent is unrolled where it is innermost.
const UNROLL_LIMIT: i64 = 32;

/// Lowers a verified kernel.
pub fn lower(kernel: &Kernel) -> LaneKernel {
    let mut lowering = Lowering {
        builder: Builder::new(&kernel.name, kernel.phase, kernel.buffers.clone(), [1; 3]),
        kernel,
        memory: vec![None; kernel.tiles.len()],
        registers: vec![None; kernel.tiles.len()],
        next_var: u32::try_from(kernel.vars.len()).expect("invariant: few variables"),
    };
    lowering.place_tiles();
    if has_cores_loop(&kernel.body) {
        lowering.block(&kernel.body);
    } else {
        // Without a loop over the cores all the work is the first core's.
        let core = lowering.builder.builtin(Builtin::Core);
        let zero = lowering.builder.index_const(0);
        let first = lowering.builder.cmp(CmpOp::Eq, core, zero);
        lowering.builder.begin_if(first);
        lowering.block(&kernel.body);
        lowering.builder.end();
    }
    lowering.builder.finish()
}

/// The slots of a register tile: `slots[m][v]`, each `lanes` wide along the last dimension.
#[derive(Clone)]
struct Registers {
    slots: Vec<Vec<Slot>>,
    lanes: u16,
}

struct Lowering<'k> {
    builder: Builder,
    kernel: &'k Kernel,
    memory: Vec<Option<Mem>>,
    registers: Vec<Option<Registers>>,
    next_var: u32,
}

impl Lowering<'_> {
    fn place_tiles(&mut self) {
        let kernel = self.kernel;
        for (position, tile) in kernel.tiles.iter().enumerate() {
            match &tile.space {
                Space::Scratch(layout) | Space::Shared(layout) => {
                    let array = Array { name: tile.name.clone(), dtype: tile.dtype, len: layout.span() };
                    self.memory[position] = Some(self.builder.scratch(array));
                }
                Space::Register(_) => {
                    let lanes = atom_of(&kernel.body, position).map_or(1, |atom| atom.shape.1);
                    let lanes = u16::try_from(lanes).expect("invariant: atoms are narrow");
                    let ty = Type::F32.with_lanes(lanes);
                    let vectors = tile.shape[1].div_ceil(u64::from(lanes));
                    let row = |builder: &mut Builder| (0..vectors).map(|_| builder.slot(ty)).collect();
                    let slots = (0..tile.shape[0]).map(|_| row(&mut self.builder)).collect();
                    self.registers[position] = Some(Registers { slots, lanes });
                }
            }
        }
    }

    fn fresh(&mut self) -> Var {
        self.next_var += 1;
        Var(self.next_var - 1)
    }

    fn block(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            self.stmt(stmt);
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::For { var, extent, kind, body } => self.for_stmt(*var, extent, *kind, body),
            Stmt::If { cond, then, otherwise } => {
                let cond = self.cond(cond);
                match self.builder.constant(cond) {
                    Some(0) => self.block(otherwise),
                    Some(_) => self.block(then),
                    None => {
                        self.builder.begin_if(cond);
                        self.block(then);
                        self.builder.begin_else();
                        self.block(otherwise);
                        self.builder.end();
                    }
                }
            }
            Stmt::Fill { tile, value } => self.fill(*tile, *value),
            Stmt::Copy { shape, dst, src } => self.walk(shape, dst, std::slice::from_ref(src), &Scalar::Arg(0)),
            Stmt::Map { shape, dst, args, expr } => self.walk(shape, dst, args, expr),
            Stmt::Contract { shape, acc, a, b, atom, unroll } => self.contract(shape, *acc, a, b, atom, *unroll),
            Stmt::Pipe { .. } => {}
        }
    }

    fn cond(&mut self, cond: &Cond) -> Value {
        let (op, lhs, rhs) = match cond {
            Cond::Lt(lhs, rhs) => (CmpOp::Lt, lhs, rhs),
            Cond::Eq(lhs, rhs) => (CmpOp::Eq, lhs, rhs),
        };
        let lhs = self.builder.index(lhs);
        let rhs = self.builder.index(rhs);
        self.builder.cmp(op, lhs, rhs)
    }

    /// Opens `for var in (lo..hi).step_by(step)`.
    fn begin(&mut self, var: Var, lo: Value, hi: Value, step: Value) {
        let index = self.builder.begin_for(lo, hi, step);
        self.builder.bind(var, index);
    }

    fn for_stmt(&mut self, var: Var, extent: &Index, kind: LoopKind, body: &[Stmt]) {
        let extent = self.builder.index(extent);
        let (zero, one) = (self.builder.index_const(0), self.builder.index_const(1));
        match kind {
            LoopKind::Cores => {
                let core = self.builder.builtin(Builtin::Core);
                let cores = self.builder.builtin(Builtin::Cores);
                self.begin(var, core, extent, cores);
                self.block(body);
                self.builder.end();
            }
            LoopKind::Unroll(factor) => {
                let factor = i64::try_from(factor).expect("invariant: unroll factors are small");
                self.unrolled(extent, factor, &mut |this, at| {
                    let at = this.builder.index(&at);
                    this.builder.bind(var, at);
                    this.block(body);
                });
            }
            LoopKind::Serial | LoopKind::Grid(_) => {
                self.begin(var, zero, extent, one);
                self.block(body);
                self.builder.end();
            }
        }
    }

    /// `factor` copies of the body per iteration, then single copies for the rest. The body gets the index of its
    /// copy as a variable plus a constant, so that addresses keep the constant as displacement.
    fn unrolled(&mut self, extent: Value, factor: i64, body: &mut dyn FnMut(&mut Self, Index)) {
        let zero = self.builder.index_const(0);
        let step = self.builder.index_const(factor);
        let rest = self.builder.bin(BinOp::Rem, extent, step);
        let main = self.builder.bin(BinOp::Sub, extent, rest);
        match self.builder.constant(main) {
            Some(0) => {}
            Some(trips) if trips == factor => (0..factor).for_each(|copy| body(self, Index::Const(copy))),
            _ => {
                let var = self.fresh();
                self.begin(var, zero, main, step);
                (0..factor).for_each(|copy| body(self, Index::Var(var) + Index::Const(copy)));
                self.builder.end();
            }
        }
        if self.builder.constant(rest) != Some(0) {
            let var = self.fresh();
            let one = self.builder.index_const(1);
            self.begin(var, main, extent, one);
            body(self, Index::Var(var));
            self.builder.end();
        }
    }

    fn fill(&mut self, tile: usize, value: f64) {
        if let Some(registers) = self.registers[tile].clone() {
            let value = self.builder.float(Type::F32.with_lanes(registers.lanes), value);
            for slot in registers.slots.into_iter().flatten() {
                self.builder.set(slot, value);
            }
            return;
        }
        let tile_shape = self.kernel.tiles[tile].shape.clone();
        let index = (0..tile_shape.len()).map(Index::Coord).collect();
        let dst = View { place: Place::Tile(tile), index, guards: Vec::new() };
        let shape: Vec<Index> = tile_shape.into_iter().map(Index::of).collect();
        self.walk(&shape, &dst, &[], &Scalar::Const(value));
    }

    /// The memory and flat element index of a view; `None` for register tiles.
    fn flat(&self, view: &View) -> Option<(Mem, Index)> {
        match view.place {
            Place::Buffer(buffer) => Some((Mem::Buffer(buffer), view.index[0].clone())),
            Place::Tile(tile) => {
                let (Space::Scratch(layout) | Space::Shared(layout)) = &self.kernel.tiles[tile].space else {
                    return None;
                };
                let mem = self.memory[tile].expect("invariant: memory tiles are placed");
                Some((mem, layout.index(&view.index)))
            }
        }
    }

    fn stride(&self, view: &View, dim: usize) -> Stride {
        match self.flat(view) {
            Some((_, index)) => index.stride(dim),
            None => view.index.last().map_or(Stride::Constant(0), |index| index.stride(dim)),
        }
    }

    /// `dst = expr(args)` over a window.
    fn walk(&mut self, shape: &[Index], dst: &View, args: &[View], expr: &Scalar) {
        let views: Vec<&View> = std::iter::once(dst).chain(args).collect();
        let registers = views.iter().find_map(|view| match view.place {
            Place::Tile(tile) => self.registers[tile].clone(),
            Place::Buffer(_) => None,
        });
        let plan = match &registers {
            Some(registers) => WalkPlan { dim: Some(shape.len() - 1), lanes: registers.lanes },
            None => self.vector_dim(shape, dst, args),
        };
        let outer: Vec<usize> = (0..shape.len()).filter(|&dim| Some(dim) != plan.dim).collect();
        let irregular = plan.dim.is_some_and(|dim| args.iter().any(|arg| self.stride(arg, dim) == Stride::Irregular));
        let mut coords: Vec<Index> = (0..shape.len()).map(Index::Coord).collect();
        // Index arithmetic of a gather is invariant in the other dimensions, so its chunks go outside the innermost.
        // Register coordinates must stay constants, so those windows are unrolled whole.
        let split = if irregular && registers.is_none() { outer.len().saturating_sub(1) } else { outer.len() };
        let work = Walk { shape, dst, args, expr, lanes: plan.lanes };
        self.nest(&work, &outer[..split], plan.dim, &outer[split..], &mut coords);
    }

    /// Which dimension the vectors of a window between memories run along: contiguous in the destination and, if
    /// possible, in the source; none when every access would be strided.
    fn vector_dim(&self, shape: &[Index], dst: &View, args: &[View]) -> WalkPlan {
        let mut best: Option<(u32, usize)> = None;
        for (dim, extent) in shape.iter().enumerate() {
            if self.stride(dst, dim) != Stride::Constant(1) || extent.as_const() == Some(1) {
                continue;
            }
            let rank = |arg: &View| match self.stride(arg, dim) {
                Stride::Constant(0 | 1) => 3,
                Stride::Irregular => 2,
                Stride::Constant(_) => 0,
            };
            let rank = args.iter().map(rank).min().unwrap_or(3);
            if rank > best.map_or(0, |(rank, _)| rank) {
                best = Some((rank, dim));
            }
        }
        let Some((_, dim)) = best else { return WalkPlan { dim: None, lanes: 1 } };
        let mut lanes = COPY_LANES;
        if let Some(extent) = shape[dim].as_const() {
            while lanes > 1 && i64::from(lanes) > extent {
                lanes /= 2;
            }
        }
        WalkPlan { dim: (lanes > 1).then_some(dim), lanes }
    }

    /// Loops over `outer`, then chunks of the vector dimension, then loops over `inner`.
    fn nest(&mut self, work: &Walk, outer: &[usize], vector: Option<usize>, inner: &[usize], coords: &mut Vec<Index>) {
        if let Some((&dim, rest)) = outer.split_first() {
            let innermost = rest.is_empty() && inner.is_empty();
            return self.each(&work.shape[dim], innermost, &mut |this, at| {
                let saved = std::mem::replace(&mut coords[dim], at);
                this.nest(work, rest, vector, inner, coords);
                coords[dim] = saved;
            });
        }
        if let Some(dim) = vector {
            let lanes = i64::from(work.lanes);
            let extent = work.shape[dim].clone();
            let chunks = (extent.clone() + Index::Const(lanes - 1)).floor_div(lanes);
            return self.each(&chunks, true, &mut |this, chunk| {
                let start = chunk.clone() * Index::Const(lanes);
                let saved = std::mem::replace(&mut coords[dim], start.clone() + Index::Coord(dim));
                let partial = match (extent.as_const(), start.as_const()) {
                    (Some(extent), Some(start)) if start + lanes <= extent => None,
                    (Some(extent), None) if extent % lanes == 0 => None,
                    _ => Some(extent.clone() - start),
                };
                this.inner(work, inner, Some((dim, partial)), coords);
                coords[dim] = saved;
            });
        }
        self.inner(work, inner, None, coords);
    }

    fn inner(&mut self, work: &Walk, inner: &[usize], vector: Option<(usize, Option<Index>)>, coords: &mut Vec<Index>) {
        let Some((&dim, rest)) = inner.split_first() else { return self.point(work, vector, coords) };
        self.each(&work.shape[dim], false, &mut |this, at| {
            let saved = std::mem::replace(&mut coords[dim], at);
            this.inner(work, rest, vector.clone(), coords);
            coords[dim] = saved;
        });
    }

    /// Runs `body` for `0..extent`: unrolled when short and innermost (or touching registers), else as a loop.
    fn each(&mut self, extent: &Index, unroll: bool, body: &mut dyn FnMut(&mut Self, Index)) {
        match extent.as_const() {
            Some(extent) if extent == 1 || (unroll && extent <= UNROLL_LIMIT) => {
                (0..extent).for_each(|at| body(self, Index::Const(at)));
            }
            _ => {
                let var = self.fresh();
                let extent = self.builder.index(extent);
                let (zero, one) = (self.builder.index_const(0), self.builder.index_const(1));
                self.begin(var, zero, extent, one);
                body(self, Index::Var(var));
                self.builder.end();
            }
        }
    }

    /// One scalar or vector of a window.
    fn point(&mut self, work: &Walk, vector: Option<(usize, Option<Index>)>, coords: &[Index]) {
        let (dim, lanes) = vector.as_ref().map_or((usize::MAX, 1), |(dim, _)| (*dim, work.lanes));
        let partial = vector.and_then(|(_, partial)| partial).map(|left| {
            let guard = Guard { index: Index::Coord(dim), bound: left };
            self.guard_mask(&guard, dim, lanes)
        });
        let values: Vec<Value> = work
            .args
            .iter()
            .map(|arg| {
                let arg = arg.at(coords);
                let mask = self.mask(&arg, dim, lanes, partial);
                self.read(&arg, dim, lanes, mask)
            })
            .collect();
        let value = self.scalar(work.expr, &values, lanes);
        let dst = work.dst.at(coords);
        let mask = self.mask(&dst, dim, lanes, partial);
        self.write(&dst, dim, value, mask);
    }

    fn guard_mask(&mut self, guard: &Guard, dim: usize, lanes: u16) -> Value {
        let uses = guard.index.uses_coord(dim) && dim != usize::MAX;
        let (index, bound) = if uses {
            (self.builder.index_vector(&guard.index, dim, lanes), self.builder.index_vector(&guard.bound, dim, lanes))
        } else {
            (self.builder.index(&guard.index), self.builder.index(&guard.bound))
        };
        let below = self.builder.cmp(CmpOp::Lt, index, bound);
        let zero = self.builder.int(self.builder.ty(index), 0);
        let above = self.builder.cmp(CmpOp::Le, zero, index);
        let both = self.builder.bin(BinOp::And, above, below);
        self.builder.splat(both, if uses { 1 } else { lanes })
    }

    /// Where all guards of a view hold; `None` is everywhere.
    fn mask(&mut self, view: &View, dim: usize, lanes: u16, partial: Option<Value>) -> Option<Value> {
        let mut mask = partial;
        for guard in &view.guards {
            let one = self.guard_mask(guard, dim, lanes);
            if self.builder.constant(one) == Some(1) {
                continue;
            }
            mask = self.builder.both(mask, Some(one));
        }
        mask
    }

    fn registers_at(&self, view: &View, dim: usize) -> Option<Slot> {
        let Place::Tile(tile) = view.place else { return None };
        let registers = self.registers[tile].as_ref()?;
        let row = view.index[0].as_const().expect("invariant: register coordinates are constants (verifier)");
        let column = at_lane(&view.index[1], dim, 0).as_const();
        let column = column.expect("invariant: register coordinates are constants (verifier)");
        let position = |value: i64| usize::try_from(value).expect("invariant: coordinates are not negative");
        Some(registers.slots[position(row)][position(column) / usize::from(registers.lanes)])
    }

    fn read(&mut self, view: &View, dim: usize, lanes: u16, mask: Option<Value>) -> Value {
        if let Some(slot) = self.registers_at(view, dim) {
            return self.builder.read(slot);
        }
        let (mem, index) = self.flat(view).expect("invariant: not a register tile");
        match index.stride(dim) {
            Stride::Constant(0) if lanes > 1 => {
                // One element for all lanes: it exists when any lane does, because guards that use the lane's
                // coordinate only shorten the window.
                let exists = self.scalar_guards(view, dim);
                let at = self.builder.address(mem, &at_lane(&index, dim, 0), 4);
                let value = self.builder.load(at, 1, exists);
                self.builder.splat(value, lanes)
            }
            stride if lanes == 1 || matches!(stride, Stride::Constant(0 | 1)) => {
                let at = self.builder.address(mem, &at_lane(&index, dim, 0), 4);
                self.builder.load(at, lanes, mask)
            }
            _ => {
                let (rest, base) = split_lane(&index, dim);
                let at = self.builder.address(mem, &base, 4);
                let indices = self.builder.index_vector(&rest, dim, lanes);
                self.builder.gather(at, indices, mask)
            }
        }
    }

    fn scalar_guards(&mut self, view: &View, dim: usize) -> Option<Value> {
        let mut mask = None;
        for guard in view.guards.iter().filter(|guard| !guard.index.uses_coord(dim)) {
            let one = self.guard_mask(guard, usize::MAX, 1);
            if self.builder.constant(one) != Some(1) {
                mask = self.builder.both(mask, Some(one));
            }
        }
        mask
    }

    fn write(&mut self, view: &View, dim: usize, value: Value, mask: Option<Value>) {
        if let Some(slot) = self.registers_at(view, dim) {
            return self.builder.set(slot, value);
        }
        let lanes = self.builder.ty(value).lanes;
        let (mem, index) = self.flat(view).expect("invariant: not a register tile");
        if lanes == 1 || index.stride(dim) == Stride::Constant(1) {
            let at = self.builder.address(mem, &at_lane(&index, dim, 0), 4);
            return self.builder.store(at, value, mask);
        }
        let (rest, base) = split_lane(&index, dim);
        let at = self.builder.address(mem, &base, 4);
        let indices = self.builder.index_vector(&rest, dim, lanes);
        self.builder.scatter(at, indices, value, mask);
    }

    fn scalar(&mut self, expr: &Scalar, args: &[Value], lanes: u16) -> Value {
        match expr {
            Scalar::Arg(position) => args[*position],
            Scalar::Const(value) => self.builder.float(Type::F32.with_lanes(lanes), *value),
            Scalar::Unary(UnaryOp::Neg, value) => {
                let value = self.scalar(value, args, lanes);
                self.builder.neg(value)
            }
            Scalar::Binary(op, lhs, rhs) => {
                let lhs = self.scalar(lhs, args, lanes);
                let rhs = self.scalar(rhs, args, lanes);
                let op = BinOp::from(*op);
                self.builder.bin(op, lhs, rhs)
            }
        }
    }

    fn contract(&mut self, shape: &[Index; 3], acc: usize, a: &View, b: &View, atom: &Atom, unroll: u64) {
        let registers = self.registers[acc].clone().expect("invariant: accumulators are register tiles (verifier)");
        let lanes = u16::try_from(atom.shape.1).expect("invariant: atoms are narrow");
        let columns = shape[1].as_const().expect("invariant: n is constant (verifier)");
        let extent = self.builder.index(&shape[2]);
        let unroll = i64::try_from(unroll).expect("invariant: unroll factors are small");
        let (rows, vectors) = (registers.slots.len(), registers.slots[0].len());
        self.unrolled(extent, unroll, &mut |this, k| {
            let columns_of: Vec<Value> = (0..vectors)
                .map(|vector| {
                    let start = i64::try_from(vector).expect("invariant: few vectors") * i64::from(lanes);
                    let coord = Index::Const(start) + Index::Coord(1);
                    let view = b.at(&[Index::ZERO, coord, k.clone()]);
                    let left = columns - start;
                    let partial = (left < i64::from(lanes)).then(|| {
                        let guard = Guard { index: Index::Coord(1), bound: Index::Const(left) };
                        this.guard_mask(&guard, 1, lanes)
                    });
                    let mask = this.mask(&view, 1, lanes, partial);
                    this.read(&view, 1, lanes, mask)
                })
                .collect();
            for row in 0..rows {
                let at = Index::Const(i64::try_from(row).expect("invariant: few rows"));
                let view = a.at(&[at, Index::ZERO, k.clone()]);
                let mask = this.mask(&view, usize::MAX, 1, None);
                let scalar = this.read(&view, usize::MAX, 1, mask);
                let splat = this.builder.splat(scalar, lanes);
                for (vector, &column) in columns_of.iter().enumerate() {
                    let slot = registers.slots[row][vector];
                    let sum = this.builder.read(slot);
                    let sum = this.builder.fma(splat, column, sum);
                    this.builder.set(slot, sum);
                }
            }
        });
    }
}

struct WalkPlan {
    dim: Option<usize>,
    lanes: u16,
}

struct Walk<'w> {
    shape: &'w [Index],
    dst: &'w View,
    args: &'w [View],
    expr: &'w Scalar,
    lanes: u16,
}

impl View {
    /// The view with coordinates replaced.
    pub fn at(&self, coords: &[Index]) -> View {
        let guard = |guard: &Guard| Guard { index: guard.index.at(coords), bound: guard.bound.at(coords) };
        View {
            place: self.place,
            index: self.index.iter().map(|index| index.at(coords)).collect(),
            guards: self.guards.iter().map(guard).collect(),
        }
    }
}

/// Splits into the part that uses the lane's coordinate and the rest.
fn split_lane(index: &Index, dim: usize) -> (Index, Index) {
    use crate::index::IndexOp;
    match index {
        Index::Op(IndexOp::Add, args) => {
            let ((lane_l, rest_l), (lane_r, rest_r)) = (split_lane(&args.0, dim), split_lane(&args.1, dim));
            (lane_l + lane_r, rest_l + rest_r)
        }
        index if index.uses_coord(dim) => (index.clone(), Index::ZERO),
        index => (Index::ZERO, index.clone()),
    }
}

/// The index of one lane: the lane's coordinate, the only one left, becomes a constant.
fn at_lane(index: &Index, dim: usize, lane: u16) -> Index {
    if !index.uses_coord(dim) {
        return index.clone();
    }
    let mut coords = vec![Index::ZERO; dim + 1];
    coords[dim] = Index::Const(i64::from(lane));
    index.at(&coords)
}

fn has_cores_loop(stmts: &[Stmt]) -> bool {
    stmts.iter().any(|stmt| match stmt {
        Stmt::For { kind, body, .. } => *kind == LoopKind::Cores || has_cores_loop(body),
        Stmt::If { then, otherwise, .. } => has_cores_loop(then) || has_cores_loop(otherwise),
        _ => false,
    })
}

/// The atom of the first contraction into a register tile.
fn atom_of(stmts: &[Stmt], tile: usize) -> Option<Atom> {
    stmts.iter().find_map(|stmt| match stmt {
        Stmt::Contract { acc, atom, .. } if *acc == tile => Some(*atom),
        Stmt::For { body, .. } => atom_of(body, tile),
        Stmt::If { then, otherwise, .. } => atom_of(then, tile).or_else(|| atom_of(otherwise, tile)),
        _ => None,
    })
}
