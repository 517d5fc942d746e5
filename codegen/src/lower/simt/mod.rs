//! Lowers tiles to lanes for targets whose kernels run as workgroups of lanes with shared memory and barriers.
//!
//! Everything a lane does follows from the level-1 text:
//! * a grid loop becomes a workgroup id, a register tile becomes slots as its [`Distribution`](crate::layout::Distribution)
//!   says, a shared tile becomes a shared array;
//! * the **last** dimension of a copy's window (1, 2 or 4 wide) is moved by one lane, as one vector where both sides
//!   allow; the dimensions before it are dealt out to the lanes, the last of them fastest, so that neighbouring lanes
//!   touch neighbouring memory;
//! * of a one-stage pipe, *wait* (all lanes have written) and *release* (all lanes have read) are barriers; *acquire* and
//!   *commit* need none, because the release before and the wait after them already are.
//!
//! It knows no language and no driver; WGSL and CUDA kernels come from the same lanes.

mod access;
mod contract;
mod iterations;
mod registers;

pub use iterations::loop_iterations;

use std::cell::Cell;

use search_space::Target;
use search_space::families::workers::PRIVATE_BYTES;
use search_space::target::Limits;
use search_space::workload::DType;

use super::LowerError;
use super::math::{self, Functions};
use crate::index::{Index, Var};
use crate::lane::build::Builder;
use crate::lane::{self, Array, BinOp, Builtin, CmpOp, Elem, Mem, Type, Value};
use crate::tile::{Cond, Kernel, LoopKind, Pipe, PipeStep, Place, Scalar, Space, Stmt, UnaryOp, View};
use access::{At, Bound};
use registers::Registers;

/// A copy of at most this many rounds is written out; a longer one becomes a loop.
pub const COPY_ROUNDS_WRITTEN_OUT: u64 = 4;

/// Why a tile program has no form as workgroups of lanes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SimtError {
    /// A statement or space that workgroups do not have.
    #[error("kernel {kernel}: {what} cannot run as workgroups of lanes; choose another schedule")]
    Unsupported {
        /// Kernel.
        kernel: String,
        /// The statement or space.
        what: &'static str,
    },
    /// A register tile that does not use each lane equally often.
    #[error(
        "kernel {kernel}: register tile {tile} does not give each of the {lanes} lanes the same number of elements"
    )]
    Distribution {
        /// Kernel.
        kernel: String,
        /// Tile.
        tile: String,
        /// Lanes of the workgroup.
        lanes: u64,
    },
}

/// Where the elements of a tile are.
enum Home {
    Shared(Mem),
    Registers(Registers),
}

/// What the statements of one kernel refer to; fixed once the body is lowered.
struct Scope<'a> {
    kernel: &'a Kernel,
    lanes: u64,
    homes: Vec<Home>,
    names: Names,
}

/// Hands out index variables that the kernel itself does not use, so that a lane's coordinates can be part of an
/// [`Index`] and its constants can be drawn out of it.
struct Names(Cell<u32>);

impl Names {
    fn after(vars: usize) -> Names {
        Names(Cell::new(u32::try_from(vars).expect("invariant: few variables")))
    }

    /// A value as an index.
    fn index(&self, b: &mut Builder, value: Value) -> Index {
        if let Some(constant) = b.constant(value) {
            return Index::Const(constant);
        }
        let var = Var(self.0.replace(self.0.get() + 1));
        b.bind(var, value);
        Index::Var(var)
    }
}

/// Lowers a verified kernel and checks it against the target's limits.
///
/// # Errors
/// [`LowerError::Simt`] when the kernel uses scratch tiles, core loops, pipes of several stages, windows of a shape that
/// varies, element types other than f32, or a register tile spread unevenly over its lanes; [`LowerError::Limit`] when
/// it exceeds a limit.
pub fn lower(kernel: &Kernel, target: &Target) -> Result<lane::Kernel, LowerError> {
    let lowered = lower_kernel(kernel)?;
    check_limits(&lowered, &target.limits)?;
    Ok(lowered)
}

/// A driver may accept a kernel over its limits and do nothing, or stop a loop early, so this is checked before.
///
/// # Errors
/// [`LowerError::Limit`] names the first limit exceeded.
pub fn check_limits(kernel: &lane::Kernel, limits: &Limits) -> Result<(), LowerError> {
    let largest = kernel.buffers.iter().map(|buffer| buffer.len * buffer.dtype.bytes()).max().unwrap_or(0);
    let private = kernel.scratch.iter().map(|array| array.len * array.dtype.bytes()).sum();
    for (what, needed, limit) in [
        ("workgroup memory in bytes", kernel.shared_bytes(), limits.shared_bytes),
        ("memory of an invocation in bytes", private, PRIVATE_BYTES),
        ("invocations of a workgroup", kernel.workgroup.iter().product(), limits.workgroup_invocations),
        ("workgroups along a grid dimension", kernel.grid.into_iter().fold(0, u64::max), limits.grid_per_dim),
        ("loop iterations of an invocation", loop_iterations(kernel), limits.loop_iterations),
        ("bytes of a buffer", largest, limits.buffer_bytes),
    ] {
        if needed > limit {
            return Err(LowerError::Limit { what, needed, limit });
        }
    }
    Ok(())
}

fn lower_kernel(kernel: &Kernel) -> Result<lane::Kernel, SimtError> {
    let mut builder = Builder::new(&kernel.name, kernel.phase, kernel.buffers.clone(), kernel.workgroup);
    let lanes = kernel.workgroup.iter().product();
    let mut scope = Scope { kernel, lanes, homes: Vec::new(), names: Names::after(kernel.vars.len()) };
    if kernel.buffers.iter().map(|b| b.dtype).chain(kernel.tiles.iter().map(|t| t.dtype)).any(|t| t != DType::F32) {
        return Err(scope.unsupported("an element type other than f32"));
    }
    for tile in &kernel.tiles {
        let home = match &tile.space {
            Space::Scratch(_) => return Err(scope.unsupported("a scratch tile")),
            Space::Shared(layout) => {
                let array = Array { name: tile.name.clone(), dtype: tile.dtype, len: layout.span() };
                Home::Shared(builder.shared(array))
            }
            Space::Register(distribution) => {
                let registers = Registers::new(&mut builder, &scope.names, distribution, lanes);
                Home::Registers(registers.ok_or_else(|| SimtError::Distribution {
                    kernel: kernel.name.clone(),
                    tile: tile.name.clone(),
                    lanes,
                })?)
            }
        };
        scope.homes.push(home);
    }
    scope.block(&mut builder, &kernel.body)?;
    Ok(builder.finish())
}

impl Scope<'_> {
    fn unsupported(&self, what: &'static str) -> SimtError {
        SimtError::Unsupported { kernel: self.kernel.name.clone(), what }
    }

    fn block(&self, b: &mut Builder, body: &[Stmt]) -> Result<(), SimtError> {
        body.iter().try_for_each(|stmt| self.stmt(b, stmt))
    }

    fn stmt(&self, b: &mut Builder, stmt: &Stmt) -> Result<(), SimtError> {
        match stmt {
            Stmt::For { var, extent, kind, body } => match kind {
                LoopKind::Cores | LoopKind::Shares(_) | LoopKind::Invocations(_) => {
                    Err(self.unsupported("a loop over cores"))
                }
                LoopKind::Grid(dim) => {
                    let groups = extent.as_const().and_then(|extent| u64::try_from(extent).ok());
                    b.set_grid(*dim, groups.ok_or_else(|| self.unsupported("a grid of varying size"))?);
                    let dim = u8::try_from(*dim).map_err(|_| self.unsupported("a fourth grid dimension"))?;
                    let group = if groups == Some(1) { b.index_const(0) } else { b.builtin(Builtin::Group(dim)) };
                    b.bind(*var, group);
                    self.block(b, body)
                }
                LoopKind::Serial => {
                    let hi = b.index(extent);
                    self.steps(b, hi, 1, |b, at, _| {
                        b.bind(*var, at);
                        self.block(b, body)
                    })
                }
                LoopKind::Unroll(copies) => {
                    let hi = b.index(extent);
                    self.steps(b, hi, *copies, |b, at, copy| {
                        let copy = b.index_const(copy);
                        let value = b.bin(BinOp::Add, at, copy);
                        b.bind(*var, value);
                        self.block(b, body)
                    })
                }
            },
            Stmt::If { cond, then, otherwise } => {
                let (op, lhs, rhs) = match cond {
                    Cond::Lt(lhs, rhs) => (CmpOp::Lt, lhs, rhs),
                    Cond::Eq(lhs, rhs) => (CmpOp::Eq, lhs, rhs),
                };
                let (lhs, rhs) = (b.index(lhs), b.index(rhs));
                let cond = b.cmp(op, lhs, rhs);
                let (mut first, mut second) = (Ok(()), Ok(()));
                b.if_else(cond, |b| first = self.block(b, then), |b| second = self.block(b, otherwise));
                first.and(second)
            }
            Stmt::Copy { shape, dst, src } => self.copy(b, shape, dst, src),
            Stmt::Fill { tile, value } => {
                let Home::Registers(registers) = &self.homes[*tile] else {
                    return Err(self.unsupported("a fill of a shared tile"));
                };
                for &slot in &registers.slots {
                    let value = b.float(b.slot_ty(slot), *value);
                    b.set(slot, value);
                }
                Ok(())
            }
            Stmt::Map { shape, dst, args, expr } => self.map(b, shape, dst, args, expr),
            Stmt::Sweep { .. } => Err(self.unsupported("a sweep")),
            Stmt::Contract { keep: Some(_), .. } => Err(self.unsupported("a factor that is packed on the way")),
            Stmt::Prefetch { .. } => Ok(()),
            Stmt::Contract { shape, acc, a, b: right, unroll, .. } => {
                contract::lower(self, b, shape, *acc, a, right, *unroll)
            }
            Stmt::Pipe { pipe, step } => self.pipe(b, &self.kernel.pipes[*pipe], *step),
        }
    }

    /// `hi` iterations, `copies` of the body per step; what does not fill a step is written out after the loop.
    fn steps(
        &self,
        b: &mut Builder,
        hi: Value,
        copies: u64,
        mut body: impl FnMut(&mut Builder, Value, i64) -> Result<(), SimtError>,
    ) -> Result<(), SimtError> {
        let copies = i64::try_from(copies.max(1)).expect("invariant: small unroll factors");
        let zero = b.index_const(0);
        let mut result = Ok(());
        let whole = match b.constant(hi) {
            Some(total) => total / copies * copies,
            None if copies == 1 => {
                let one = b.index_const(1);
                b.for_loop(zero, hi, one, |b, at| result = body(b, at, 0));
                return result;
            }
            None => return Err(self.unsupported("an unrolled loop of varying length")),
        };
        let (end, step) = (b.index_const(whole), b.index_const(copies));
        b.for_loop(zero, end, step, |b, at| {
            result = (0..copies).try_for_each(|copy| body(b, at, copy));
        });
        let rest = b.constant(hi).map_or(0, |total| total - whole);
        result.and_then(|()| (0..rest).try_for_each(|copy| body(b, end, copy)))
    }

    fn pipe(&self, b: &mut Builder, pipe: &Pipe, step: PipeStep) -> Result<(), SimtError> {
        if pipe.stages > 1 {
            return Err(self.unsupported("a pipe of several stages"));
        }
        let shared = pipe.tiles.iter().any(|&tile| matches!(self.homes[tile], Home::Shared(_)));
        if shared && matches!(step, PipeStep::Wait | PipeStep::Release) {
            b.barrier();
        }
        Ok(())
    }

    /// Extents of a window that do not vary.
    fn window(&self, shape: &[Index]) -> Result<Vec<i64>, SimtError> {
        let extents = shape.iter().map(Index::as_const).collect::<Option<_>>();
        extents.ok_or_else(|| self.unsupported("a window whose shape varies"))
    }

    fn copy(&self, b: &mut Builder, shape: &[Index], dst: &View, src: &View) -> Result<(), SimtError> {
        let extents = self.window(shape)?;
        let Some((&width, dealt)) = extents.split_last() else {
            return Err(self.unsupported("a copy of a single element"));
        };
        let (dst, src) = (self.bound(dst)?, self.bound(src)?);
        let groups: i64 = dealt.iter().product();
        let lanes = i64::try_from(self.lanes).expect("invariant: few lanes");
        let rounds = u64::try_from(groups).unwrap_or(0).div_ceil(self.lanes);
        let round = |b: &mut Builder, first: Value, covered: bool| {
            let lane = b.builtin(Builtin::Lane);
            let group = b.bin(BinOp::Add, lane, first);
            let inside = (!covered).then(|| {
                let end = b.index_const(groups);
                b.cmp(CmpOp::Lt, group, end)
            });
            let mut coords = vec![Index::ZERO; extents.len()];
            let mut rest = group;
            for (dim, &extent) in dealt.iter().enumerate().rev() {
                let extent = b.index_const(extent);
                let coord = if dim == 0 { rest } else { b.bin(BinOp::Rem, rest, extent) };
                coords[dim] = self.names.index(b, coord);
                rest = b.bin(BinOp::Div, rest, extent);
            }
            let at = At { coords: &coords, factors: &copy_factors(extents.len()), inside };
            self.copy_run(b, &dst, &src, &at, width);
        };
        if rounds <= COPY_ROUNDS_WRITTEN_OUT {
            for i in 0..i64::try_from(rounds).expect("invariant: few rounds") {
                let first = b.index_const(i * lanes);
                round(b, first, (i + 1) * lanes <= groups);
            }
        } else {
            let (zero, end, step) = (b.index_const(0), b.index_const(groups), b.index_const(lanes));
            // All lanes run the same number of rounds, so the loop stays uniform.
            b.for_loop(zero, end, step, |b, first| round(b, first, groups % lanes == 0));
        }
        Ok(())
    }

    /// Moves `width` elements along the last dimension of a window.
    fn copy_run(&self, b: &mut Builder, dst: &Bound, src: &Bound, at: &At, width: i64) {
        let dim = at.coords.len() - 1;
        let lanes = u16::try_from(width).unwrap_or(u16::MAX);
        if src.is_run(at, dim, lanes) && dst.is_run(at, dim, lanes) {
            let value = src.load(b, at, lanes);
            return dst.store(b, at, value);
        }
        let vector = src.is_run(at, dim, lanes).then(|| src.load(b, at, lanes));
        for element in 0..width {
            let (dst, src) = (dst.moved(dim, element), src.moved(dim, element));
            let value = match vector {
                Some(vector) => b.extract(vector, u16::try_from(element).unwrap_or(u16::MAX)),
                None => src.load(b, at, 1),
            };
            dst.store(b, at, value);
        }
    }

    fn map(&self, b: &mut Builder, shape: &[Index], dst: &View, args: &[View], expr: &Scalar) -> Result<(), SimtError> {
        let extents = self.window(shape)?;
        let registers = args.iter().find_map(|view| self.whole_registers(view, &extents));
        let Some((position, registers)) = registers else {
            return Err(self.unsupported("a map that reads no whole register tile"));
        };
        let held = |view: &View| view.place == Place::Tile(position);
        let dst = self.bound(dst)?;
        let args: Vec<Option<Bound>> = args
            .iter()
            .map(|view| if held(view) { Ok(None) } else { self.bound(view).map(Some) })
            .collect::<Result<_, _>>()?;
        let dim = extents.len() - 1;
        let at = At { coords: &registers.base, factors: &registers.factors, inside: None };
        for (&slot, offset) in registers.slots.iter().zip(&registers.offsets) {
            let here = |bound: &Bound| bound.shifted(offset);
            let dst = here(&dst);
            let args: Vec<Option<Bound>> = args.iter().map(|arg| arg.as_ref().map(here)).collect();
            let width = registers.width;
            let vector = dst.is_run(&at, dim, width)
                && args.iter().flatten().all(|arg| arg.ignores(dim) || arg.is_run(&at, dim, width));
            if vector {
                let values: Vec<Value> = args
                    .iter()
                    .map(|arg| match arg {
                        None => b.read(slot),
                        Some(arg) if arg.ignores(dim) => {
                            let value = arg.load(b, &at, 1);
                            b.splat(value, width)
                        }
                        Some(arg) => arg.load(b, &at, width),
                    })
                    .collect();
                let value = self.scalar(b, expr, &values, Type::F32.with_lanes(width))?;
                dst.store(b, &at, value);
                continue;
            }
            let content = b.read(slot);
            for element in 0..width {
                let step = i64::from(element);
                let values: Vec<Value> = args
                    .iter()
                    .map(|arg| match arg {
                        None => b.extract(content, element),
                        Some(arg) => arg.moved(dim, step).load(b, &at, 1),
                    })
                    .collect();
                let value = self.scalar(b, expr, &values, Type::F32)?;
                dst.moved(dim, step).store(b, &at, value);
            }
        }
        Ok(())
    }

    /// The value of a scalar expression.
    fn scalar(&self, b: &mut Builder, expr: &Scalar, args: &[Value], ty: Type) -> Result<Value, SimtError> {
        debug_assert_eq!(ty.elem, Elem::F32, "invariant: checked by lower_kernel");
        Ok(match expr {
            Scalar::Arg(position) => args[*position],
            Scalar::Const(value) => b.float(ty, *value),
            Scalar::Unary(op, x) => {
                let x = self.scalar(b, x, args, ty)?;
                match op {
                    // WGSL's own logarithm is as good as a polynomial.
                    UnaryOp::Log => b.math(*op, x),
                    op => math::unary(b, *op, x, Functions::Exponential),
                }
            }
            Scalar::Binary(op, lhs, rhs) => {
                let op = BinOp::from(*op);
                let (lhs, rhs) = (self.scalar(b, lhs, args, ty)?, self.scalar(b, rhs, args, ty)?);
                b.bin(op, lhs, rhs)
            }
            Scalar::Let(_) | Scalar::Position(_) | Scalar::Select(..) => {
                return Err(self.unsupported("positions and choices"));
            }
        })
    }

    /// The register tile that a view reads element by element, as a whole.
    fn whole_registers(&self, view: &View, extents: &[i64]) -> Option<(usize, &Registers)> {
        let Place::Tile(position) = view.place else { return None };
        let Home::Registers(registers) = &self.homes[position] else { return None };
        let shape = &self.kernel.tiles[position].shape;
        let same = shape.len() == extents.len()
            && shape.iter().zip(extents).all(|(&s, &e)| i64::try_from(s) == Ok(e))
            && view.index.iter().enumerate().all(|(dim, index)| *index == Index::Coord(dim));
        same.then_some((position, registers))
    }
}

/// Coordinates of a copy begin anywhere, except that of the dimension moved as a whole, which begins at 0.
fn copy_factors(rank: usize) -> Vec<i64> {
    let mut factors = vec![1; rank];
    factors[rank - 1] = 0;
    factors
}
