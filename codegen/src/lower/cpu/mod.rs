//! Level 1 to lanes for one CPU core: windows become loops over vectors, register tiles become slots. An invocation of a
//! device whose kernels run as workgroups is a core without vectors, with its own arrays.
//!
//! ```text
//! copy/map  [d0, .., dv]   =>   for d0 ..: (for chunks of dv): vector load, vector store     (dv: the vector dimension)
//! contract  [m, n, k]      =>   for k, unrolled: load n/w vectors of b; for each m: splat a, fma into its slots
//! pipe steps               =>   nothing: one core sees its own writes in order
//! ```

mod access;
mod byte_sums;
mod contract;
mod fold;
mod matrix;
mod packing;
mod transpose;
mod walk;

use search_space::Target;
use search_space::target::TargetKind;

use super::math::Functions;
use crate::atoms::{Atom, Scope};
use crate::index::{Index, Var};
use crate::lane::build::Builder;
use crate::lane::matrix::Matrix;
use crate::lane::{Array, BinOp, Builtin, CmpOp, Elem, Kernel as LaneKernel, Mem, Slot, Type, Value};
use crate::tile::{Cond, Kernel, LoopKind, Place, Scalar, Space, Stmt, View};
use contract::Beside;
use walk::Work;

/// Lowers a verified kernel.
pub fn lower(kernel: &Kernel, target: &Target) -> LaneKernel {
    let has = |feature: &str| target.key.features.contains(feature);
    let invocation = target.key.kind == TargetKind::Vulkan;
    let functions = match (has("avx512f"), has("avx512vl")) {
        _ if invocation => Functions::Exponential,
        (true, true) => Functions::Scaling { least_lanes: 4 },
        (true, false) => Functions::Scaling { least_lanes: 16 },
        _ => Functions::Arithmetic,
    };
    let widest = if invocation { 1 } else { (target.limits.vector_bytes / 4).clamp(1, 16) };
    let mut lowering = Lowering {
        builder: Builder::new(&kernel.name, kernel.phase, kernel.buffers.clone(), kernel.workgroup),
        kernel,
        memory: vec![None; kernel.tiles.len()],
        registers: vec![None; kernel.tiles.len()],
        matrices: vec![None; kernel.tiles.len()],
        vector_bytes: target.limits.vector_bytes,
        lanes: u16::try_from(widest).expect("invariant: at most 16"),
        functions,
        fused: invocation || has("fma") || has("avx512f"),
        wake: None,
        copies: if invocation { search_space::families::workers::COPIES } else { 1 },
        next_var: u32::try_from(kernel.vars.len()).expect("invariant: few variables"),
    };
    lowering.place_tiles();
    let matrix = lowering.matrices.iter().any(Option::is_some);
    if matrix {
        lowering.builder.matrix(Matrix::Configure);
    }
    if has_cores_loop(&kernel.body) {
        lowering.block(&kernel.body);
    } else {
        // Without a loop over the cores all the work is the first core's; of one workgroup there are no others.
        let core = lowering.builder.builtin(if invocation { Builtin::Lane } else { Builtin::Core });
        let zero = lowering.builder.index_const(0);
        let first = lowering.builder.cmp(CmpOp::Eq, core, zero);
        lowering.builder.begin_if(first);
        lowering.block(&kernel.body);
        lowering.builder.end();
    }
    if matrix {
        lowering.builder.matrix(Matrix::Release);
    }
    if kernel.buffers.iter().any(|buffer| buffer.stream) {
        lowering.builder.fence();
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
    /// Register tiles of the matrix unit.
    matrices: Vec<Option<matrix::Blocks>>,
    vector_bytes: u64,
    /// Where registers of the matrix unit are stored for nobody, once there is such a place.
    wake: Option<Mem>,
    /// Elements of a vector of windows that touch no register tile.
    lanes: u16,
    functions: Functions,
    /// Whether the target multiplies and adds in one instruction; elsewhere that would be a call for each element.
    fused: bool,
    /// Scalars of a window without folds per iteration of its innermost loop.
    copies: i64,
    next_var: u32,
}

impl Lowering<'_> {
    fn place_tiles(&mut self) {
        let kernel = self.kernel;
        for (position, tile) in kernel.tiles.iter().enumerate() {
            if !is_used(&kernel.body, position) {
                continue;
            }
            match &tile.space {
                Space::Scratch(layout) | Space::Shared(layout) => {
                    let array = Array { name: tile.name.clone(), dtype: tile.dtype, len: layout.span() };
                    self.memory[position] = Some(self.builder.scratch(array));
                }
                Space::Register(_) => {
                    let atom = atom_of(&kernel.body, position);
                    if atom.is_some_and(|atom| atom.scope == Scope::Matrix) {
                        self.matrices[position] = Some(matrix::Blocks::of(&tile.shape));
                        continue;
                    }
                    let lanes = atom.map_or(1, |atom| atom.shape.1);
                    let lanes = u16::try_from(lanes).expect("invariant: atoms are narrow");
                    let ty = Type { elem: Elem::of(tile.dtype).computed(), lanes };
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
            Stmt::Copy { shape, dst, src } => {
                if !self.matrix_copy(dst, src) && !self.packed(shape, dst, src) {
                    self.map(shape, dst, std::slice::from_ref(src), &Scalar::Arg(0));
                }
            }
            Stmt::Map { shape, dst, args, expr } => self.map(shape, dst, args, expr),
            Stmt::Sweep { shape, args, lets, stores, folds, accumulators, ahead } => {
                let work = Work { shape, args, lets, stores, ahead: *ahead };
                if folds.is_empty() { self.window(&work) } else { self.fold(&work, folds, *accumulators) }
            }
            Stmt::Contract { shape, acc, a, b, atom, unroll, prefetch, keep, wake } => {
                match self.matrix_of(Place::Tile(*acc)) {
                    Some(blocks) => {
                        let steps = matrix::Steps { unroll: *unroll, prefetch: *prefetch, wake: *wake };
                        self.matrix_contract((&shape[2], blocks), [a, b], atom, steps);
                    }
                    None if atom.shape.2 > 1 => self.byte_sums(&shape[2], *acc, [a, b], atom, *unroll, *prefetch),
                    None => {
                        let beside = Beside { steps: *prefetch, keep: keep.as_ref() };
                        self.contract(shape, *acc, [a, b], atom, *unroll, beside);
                    }
                }
            }
            Stmt::Prefetch { shape, src } => self.ask_for_window(shape, src),
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
            LoopKind::Cores | LoopKind::Shares(_) => {
                if let LoopKind::Shares(shares) = kind {
                    self.builder.set_shares(shares);
                }
                let core = self.builder.builtin(Builtin::Core);
                let cores = self.builder.builtin(Builtin::Cores);
                self.begin(var, core, extent, cores);
                self.block(body);
                self.builder.end();
            }
            LoopKind::Invocations(turns) => self.invocations(var, extent, turns, body),
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

    /// One iteration for each invocation, `turns` times.
    fn invocations(&mut self, var: Var, extent: Value, turns: u64, body: &[Stmt]) {
        let total = self.builder.constant(extent).and_then(|extent| u64::try_from(extent).ok());
        let total = total.expect("invariant: the outermost loop has a constant length");
        let width: u64 = self.kernel.workgroup.iter().product();
        let groups = total.div_ceil(width * turns).max(1);
        let constant = |value: u64| i64::try_from(value).expect("invariant: extents are below 2^62");
        self.builder.set_grid(0, groups);
        let mut core = self.builder.builtin(Builtin::Lane);
        if groups > 1 {
            let group = self.builder.builtin(Builtin::Group(0));
            let width = self.builder.index_const(constant(width));
            let first = self.builder.bin(BinOp::Mul, group, width);
            core = self.builder.bin(BinOp::Add, core, first);
        }
        let all = groups * width * turns;
        if turns == 1 {
            return self.iteration(var, core, (all > total).then_some(extent), body);
        }
        let (zero, one) = (self.builder.index_const(0), self.builder.index_const(1));
        let (turns, step) =
            (self.builder.index_const(constant(turns)), self.builder.index_const(constant(groups * width)));
        let turn = self.builder.begin_for(zero, turns, one);
        let offset = self.builder.bin(BinOp::Mul, turn, step);
        let at = self.builder.bin(BinOp::Add, core, offset);
        self.iteration(var, at, (all > total).then_some(extent), body);
        self.builder.end();
    }

    /// The body at one index, if that is below the bound.
    fn iteration(&mut self, var: Var, at: Value, bound: Option<Value>, body: &[Stmt]) {
        if let Some(bound) = bound {
            let inside = self.builder.cmp(CmpOp::Lt, at, bound);
            self.builder.begin_if(inside);
        }
        self.builder.bind(var, at);
        self.block(body);
        if bound.is_some() {
            self.builder.end();
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
        if let Some(blocks) = self.matrices[tile] {
            return self.matrix_zero(blocks);
        }
        if let Some(registers) = self.registers[tile].clone() {
            let ty = self.builder.slot_ty(registers.slots[0][0]);
            let value = self.number(ty, value);
            for slot in registers.slots.into_iter().flatten() {
                self.builder.set(slot, value);
            }
            return;
        }
        let tile_shape = self.kernel.tiles[tile].shape.clone();
        let index = (0..tile_shape.len()).map(Index::Coord).collect();
        let dst = View { place: Place::Tile(tile), index, guards: Vec::new() };
        let shape: Vec<Index> = tile_shape.into_iter().map(Index::of).collect();
        self.map(&shape, &dst, &[], &Scalar::Const(value));
    }

    /// `dst = expr(args)` over a window.
    fn map(&mut self, shape: &[Index], dst: &View, args: &[View], expr: &Scalar) {
        let stores = [(dst.clone(), 0)];
        self.window(&Work { shape, args, lets: std::slice::from_ref(expr), stores: &stores, ahead: 0 });
    }

    /// A window without folds.
    fn window(&mut self, work: &Work) {
        if !self.transposed(work) {
            self.walk(work);
        }
    }

    /// A constant of any type.
    fn number(&mut self, ty: Type, value: f64) -> Value {
        if ty.elem.is_float() {
            return self.builder.float(ty, value);
        }
        #[expect(clippy::cast_possible_truncation, reason = "integer programs have integer constants")]
        self.builder.int(ty, value as i64)
    }
}

fn has_cores_loop(stmts: &[Stmt]) -> bool {
    stmts.iter().any(|stmt| match stmt {
        Stmt::For { kind, body, .. } => kind.is_cores() || has_cores_loop(body),
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

/// Whether a statement reads or writes the tile.
fn is_used(stmts: &[Stmt], tile: usize) -> bool {
    let is = |view: &View| view.place == Place::Tile(tile);
    stmts.iter().any(|stmt| match stmt {
        Stmt::For { body, .. } => is_used(body, tile),
        Stmt::If { then, otherwise, .. } => is_used(then, tile) || is_used(otherwise, tile),
        Stmt::Fill { tile: filled, .. } => *filled == tile,
        Stmt::Copy { dst, src, .. } => is(dst) || is(src),
        Stmt::Map { dst, args, .. } => is(dst) || args.iter().any(is),
        Stmt::Sweep { args, stores, folds, .. } => {
            args.iter().any(is) || stores.iter().any(|(view, _)| is(view)) || folds.iter().any(|fold| is(&fold.into))
        }
        Stmt::Contract { acc, a, b, keep, .. } => *acc == tile || is(a) || is(b) || keep.as_ref().is_some_and(is),
        Stmt::Prefetch { src, .. } => is(src),
        Stmt::Pipe { .. } => false,
    })
}
