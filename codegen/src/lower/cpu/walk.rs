//! Windows without folds: loops around vectors of loads, expressions and stores.

use super::Lowering;
use crate::index::{Index, Stride};
use crate::lane::{BinOp, CmpOp, Elem, Type, Value};
use crate::lower::math;
use crate::tile::{BinaryOp, Compare, Guard, Place, Scalar, UnaryOp, View};

/// A window dimension of at most this extent is unrolled where it is innermost.
const UNROLL_LIMIT: i64 = 32;
/// Loads, values and stores of a loop body that is written out: compiling takes more than proportionally longer.
const UNROLL_STEPS: i64 = 128;

/// What is done at each coordinate of a window.
pub(super) struct Work<'w> {
    /// Extents.
    pub(super) shape: &'w [Index],
    /// Views read.
    pub(super) args: &'w [View],
    /// Values computed from them, in order.
    pub(super) lets: &'w [Scalar],
    /// Views written, each with the position of its value.
    pub(super) stores: &'w [(View, usize)],
    /// Elements ahead of those read of the first view along the vectors that are asked for.
    pub(super) ahead: u64,
}

impl Work<'_> {
    /// How many vectors a dimension takes.
    fn chunks(&self, dim: usize, lanes: u16) -> Index {
        let lanes = i64::from(lanes);
        (self.shape[dim].clone() + Index::Const(lanes - 1)).floor_div(lanes)
    }
}

/// The dimension that vectors run along, and how many elements they have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vectors {
    pub(super) dim: Option<usize>,
    pub(super) lanes: u16,
}

/// One scalar or vector of a window.
pub(super) struct Point<'p> {
    /// The coordinate of each dimension; that of the vectors' dimension holds the lane.
    pub(super) coords: &'p [Index],
    pub(super) vectors: Vectors,
    /// The lanes that exist; `None` is all.
    pub(super) partial: Option<Value>,
}

impl Lowering<'_> {
    /// Lowers a window without folds.
    pub(super) fn walk(&mut self, work: &Work) {
        let views = work.stores.iter().map(|(view, _)| view).chain(work.args);
        let registers = views.into_iter().find_map(|view| match view.place {
            Place::Tile(tile) => self.registers[tile].clone(),
            Place::Buffer(_) => None,
        });
        let vectors = match &registers {
            Some(registers) => Vectors { dim: Some(work.shape.len() - 1), lanes: registers.lanes },
            None => self.vector_dim(work),
        };
        let dims = 0..work.shape.len();
        let outer: Vec<usize> = dims.clone().filter(|&dim| Some(dim) != vectors.dim).collect();
        let irregular =
            vectors.dim.is_some_and(|dim| work.args.iter().any(|arg| self.stride(arg, dim) == Stride::Irregular));
        let mut coords: Vec<Index> = dims.map(Index::Coord).collect();
        // Index arithmetic of a gather is invariant in the other dimensions, so its chunks go outside the innermost.
        // Register coordinates must stay constants, so those windows are unrolled whole.
        let split = if irregular && registers.is_none() { outer.len().saturating_sub(1) } else { outer.len() };
        self.nest(work, &outer[..split], vectors, &outer[split..], &mut coords);
    }

    /// Which dimension the vectors of a window between memories run along: contiguous in what is written and, if
    /// possible, in what is read; none when every access would be strided.
    fn vector_dim(&self, work: &Work) -> Vectors {
        let mut best: Option<(u32, usize)> = None;
        for (dim, extent) in work.shape.iter().enumerate() {
            let contiguous = work.stores.iter().all(|(view, _)| self.stride(view, dim) == Stride::Constant(1));
            if !contiguous || extent.as_const() == Some(1) {
                continue;
            }
            let rank = work.args.iter().map(|arg| self.ease(arg, dim)).min().unwrap_or(3);
            if rank > best.map_or(0, |(rank, _)| rank) {
                best = Some((rank, dim));
            }
        }
        let Some((_, dim)) = best else { return Vectors { dim: None, lanes: 1 } };
        self.vectors_along(&work.shape[dim], dim)
    }

    /// How well vectors along `dim` suit a view that is read.
    pub(super) fn ease(&self, view: &View, dim: usize) -> u32 {
        match self.stride(view, dim) {
            Stride::Constant(0 | 1) => 3,
            Stride::Irregular => 2,
            Stride::Constant(_) => 0,
        }
    }

    /// Vectors along a dimension: as wide as the target's, unless the whole extent is shorter.
    pub(super) fn vectors_along(&self, extent: &Index, dim: usize) -> Vectors {
        let mut lanes = self.lanes;
        if let Some(extent) = extent.as_const() {
            while lanes > 1 && i64::from(lanes) > extent {
                lanes /= 2;
            }
        }
        Vectors { dim: (lanes > 1).then_some(dim), lanes }
    }

    /// Loops over `outer`, then chunks of the vector dimension, then loops over `inner`.
    fn nest(&mut self, work: &Work, outer: &[usize], vectors: Vectors, inner: &[usize], coords: &mut Vec<Index>) {
        if let Some((&dim, rest)) = outer.split_first() {
            let innermost = rest.is_empty() && inner.is_empty();
            let chunks = vectors.dim.map_or(Some(1), |dim| work.chunks(dim, vectors.lanes).as_const());
            let unroll = innermost && self.unrolls(work, &work.shape[dim], chunks);
            let several = innermost && !unroll && vectors.dim.is_none() && work.shape[dim].as_const() != Some(1);
            let mut body = |this: &mut Self, at: Index| {
                let saved = std::mem::replace(&mut coords[dim], at);
                this.nest(work, rest, vectors, inner, coords);
                coords[dim] = saved;
            };
            if several && self.copies > 1 {
                let extent = self.builder.index(&work.shape[dim]);
                return self.unrolled(extent, self.copies, &mut body);
            }
            return self.each(&work.shape[dim], unroll, &mut body);
        }
        let Some(dim) = vectors.dim else { return self.inner(work, inner, vectors, None, coords) };
        let lanes = i64::from(vectors.lanes);
        let extent = work.shape[dim].clone();
        let chunks = work.chunks(dim, vectors.lanes);
        let unroll = self.unrolls(work, &chunks, Some(1));
        self.each(&chunks, unroll, &mut |this, chunk| {
            let start = chunk.clone() * Index::Const(lanes);
            let saved = std::mem::replace(&mut coords[dim], start.clone() + Index::Coord(dim));
            let partial = match (extent.as_const(), start.as_const()) {
                (Some(extent), Some(start)) if start + lanes <= extent => None,
                (Some(extent), None) if extent % lanes == 0 => None,
                _ => Some(extent.clone() - start),
            };
            this.inner(work, inner, vectors, partial, coords);
            coords[dim] = saved;
        });
    }

    /// Whether a loop of this extent around `copies` points of a window is written out: always with registers, whose
    /// coordinates must be constants, otherwise while it is short.
    fn unrolls(&self, work: &Work, extent: &Index, copies: Option<i64>) -> bool {
        let held = |view: &View| matches!(view.place, Place::Tile(tile) if self.registers[tile].is_some());
        let registers = work.args.iter().any(held) || work.stores.iter().any(|(view, _)| held(view));
        let steps = work.args.len() + work.lets.len() + work.stores.len();
        let steps = i64::try_from(steps).expect("invariant: statements are short");
        let total = extent.as_const().zip(copies).map(|(extent, copies)| extent * copies * steps);
        registers || (is_short(extent) && total.is_some_and(|total| total <= UNROLL_STEPS))
    }

    fn inner(
        &mut self,
        work: &Work,
        inner: &[usize],
        vectors: Vectors,
        partial: Option<Index>,
        coords: &mut Vec<Index>,
    ) {
        if let Some((&dim, rest)) = inner.split_first() {
            return self.each(&work.shape[dim], false, &mut |this, at| {
                let saved = std::mem::replace(&mut coords[dim], at);
                this.inner(work, rest, vectors, partial.clone(), coords);
                coords[dim] = saved;
            });
        }
        let partial = partial.map(|left| self.first_lanes(vectors, left));
        self.point(work, &Point { coords, vectors, partial });
    }

    /// The mask of the first `left` lanes.
    pub(super) fn first_lanes(&mut self, vectors: Vectors, left: Index) -> Value {
        let dim = vectors.dim.unwrap_or(usize::MAX);
        self.guard_mask(&Guard { index: Index::Coord(dim), bound: left }, dim, vectors.lanes)
    }

    /// Runs `body` for `0..extent`, written out or as a loop.
    pub(super) fn each(&mut self, extent: &Index, unroll: bool, body: &mut dyn FnMut(&mut Self, Index)) {
        match extent.as_const() {
            Some(extent) if extent == 1 || unroll => {
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

    /// Loads, computes and stores at one point; gives the values of the lets.
    pub(super) fn point(&mut self, work: &Work, point: &Point) -> Vec<Value> {
        self.point_with(work, point, &[])
    }

    /// As [`Lowering::point`], with the arguments that `given` holds instead of loading them.
    pub(super) fn point_with(&mut self, work: &Work, point: &Point, given: &[Option<Value>]) -> Vec<Value> {
        let Vectors { dim, lanes } = point.vectors;
        let dim = dim.unwrap_or(usize::MAX);
        let args: Vec<Value> = work
            .args
            .iter()
            .enumerate()
            .map(|(position, arg)| {
                if let Some(&Some(value)) = given.get(position) {
                    return value;
                }
                let arg = arg.at(point.coords);
                if position == 0 && work.ahead > 0 && self.stride(&arg, dim) == Stride::Constant(1) {
                    self.prefetch(&arg, dim, work.ahead);
                }
                let mask = self.mask(&arg, dim, lanes, point.partial);
                self.read(&arg, dim, lanes, mask)
            })
            .collect();
        let mut values = Vec::with_capacity(work.lets.len());
        for (position, expr) in work.lets.iter().enumerate() {
            let mut scope = Scope { args: &args, lets: &values, point };
            // A constant is what the place it goes to holds.
            let place = work.stores.iter().find(|(_, value)| *value == position).map(|(view, _)| self.computed(view));
            let elem = self.elem_of(expr, &scope).or(place).unwrap_or(Elem::F32);
            let value = self.scalar(expr, &mut scope, elem);
            values.push(value);
        }
        for (view, value) in work.stores {
            let dst = view.at(point.coords);
            let mask = self.mask(&dst, dim, lanes, point.partial);
            self.write(&dst, dim, values[*value], mask);
        }
        values
    }

    /// What an expression is computed in; `None` for constants, which take the type of what they meet.
    fn elem_of(&self, expr: &Scalar, scope: &Scope) -> Option<Elem> {
        match expr {
            Scalar::Arg(position) => Some(self.builder.ty(scope.args[*position]).elem),
            Scalar::Let(position) => Some(self.builder.ty(scope.lets[*position]).elem),
            Scalar::Const(_) => None,
            Scalar::Position(_) => Some(Elem::I32),
            Scalar::Select(_, parts) => self.elem_of(&parts[2], scope).or_else(|| self.elem_of(&parts[3], scope)),
            Scalar::Unary(UnaryOp::Neg, x) => self.elem_of(x, scope),
            Scalar::Unary(..) => Some(Elem::F32),
            Scalar::Binary(_, lhs, rhs) => self.elem_of(lhs, scope).or_else(|| self.elem_of(rhs, scope)),
        }
    }

    fn scalar(&mut self, expr: &Scalar, scope: &mut Scope, elem: Elem) -> Value {
        let lanes = scope.point.vectors.lanes;
        let ty = Type { elem, lanes };
        match expr {
            Scalar::Arg(position) => self.builder.convert(scope.args[*position], elem),
            Scalar::Let(position) => self.builder.convert(scope.lets[*position], elem),
            #[expect(clippy::cast_possible_truncation, reason = "integer programs have integer constants")]
            Scalar::Const(value) if elem == Elem::I32 => self.builder.int(ty, *value as i64),
            Scalar::Const(value) => self.builder.float(ty, *value),
            Scalar::Position(index) => {
                let dim = scope.point.vectors.dim.unwrap_or(usize::MAX);
                let index = index.at(scope.point.coords);
                let position = if dim == usize::MAX {
                    let scalar = self.builder.index(&index);
                    self.builder.convert(scalar, Elem::I32)
                } else {
                    self.builder.index_vector(&index, dim, lanes)
                };
                self.builder.convert(position, elem)
            }
            Scalar::Select(compare, parts) => {
                let [lhs, rhs, then, otherwise] = &**parts;
                let compared = self.elem_of(lhs, scope).or_else(|| self.elem_of(rhs, scope)).unwrap_or(Elem::F32);
                let lhs = self.scalar(lhs, scope, compared);
                let rhs = self.scalar(rhs, scope, compared);
                let op = match compare {
                    Compare::Lt => CmpOp::Lt,
                    Compare::Le => CmpOp::Le,
                    Compare::Eq => CmpOp::Eq,
                };
                let holds = self.builder.cmp(op, lhs, rhs);
                let then = self.scalar(then, scope, elem);
                let otherwise = self.scalar(otherwise, scope, elem);
                self.builder.select(holds, then, otherwise)
            }
            Scalar::Unary(op, value) => {
                let value = self.scalar(value, scope, elem);
                if *op == UnaryOp::Neg && elem == Elem::I32 {
                    let zero = self.builder.int(ty, 0);
                    return self.builder.bin(BinOp::Sub, zero, value);
                }
                math::unary(&mut self.builder, *op, value, self.functions)
            }
            // A product and a sum are rounded once, which every mode of arithmetic allows.
            Scalar::Binary(BinaryOp::Add, lhs, rhs)
                if self.fused && elem == Elem::F32 && (is_product(lhs) || is_product(rhs)) =>
            {
                let (product, other) = if is_product(lhs) { (lhs, rhs) } else { (rhs, lhs) };
                let Scalar::Binary(_, a, b) = &**product else { unreachable!("invariant: matched above") };
                let a = self.scalar(a, scope, elem);
                let b = self.scalar(b, scope, elem);
                let c = self.scalar(other, scope, elem);
                self.builder.fma(a, b, c)
            }
            Scalar::Binary(op, lhs, rhs) => {
                let lhs = self.scalar(lhs, scope, elem);
                let rhs = self.scalar(rhs, scope, elem);
                self.builder.bin(BinOp::from(*op), lhs, rhs)
            }
        }
    }
}

/// Whether a loop of this extent may be written out.
pub(super) fn is_short(extent: &Index) -> bool {
    extent.as_const().is_some_and(|extent| extent <= UNROLL_LIMIT)
}

/// What an expression may refer to.
struct Scope<'s> {
    args: &'s [Value],
    lets: &'s [Value],
    point: &'s Point<'s>,
}

fn is_product(expr: &Scalar) -> bool {
    matches!(expr, Scalar::Binary(BinaryOp::Mul, ..))
}
