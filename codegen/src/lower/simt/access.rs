//! Accesses of one lane to memory: addresses, masks, and when neighbouring elements can be moved as one vector.

use super::registers::gcd;
use super::{Home, Scope, SimtError};
use crate::index::{Index, IndexOp, Stride};
use crate::lane::build::Builder;
use crate::lane::{Address, CmpOp, Elem, Mem, Type, Value};
use crate::tile::{Guard, Place, Space, View};

/// The coordinates at which a lane works.
pub(super) struct At<'a> {
    /// Each window coordinate: a constant, or a variable bound in the builder.
    pub(super) coords: &'a [Index],
    /// A number that divides each coordinate; 0 when the coordinate is 0.
    pub(super) factors: &'a [i64],
    /// Holds when the lane takes part at all.
    pub(super) inside: Option<Value>,
}

/// A view as a memory and one flat element index.
#[derive(Clone)]
pub(super) struct Bound {
    mem: Mem,
    /// Alignment of element 0 in bytes.
    align: u64,
    /// Flat element index over window coordinates.
    index: Index,
    guards: Vec<Guard>,
}

impl Scope<'_> {
    /// The memory of a view.
    pub(super) fn bound(&self, view: &View) -> Result<Bound, SimtError> {
        let guards = view.guards.clone();
        match view.place {
            Place::Buffer(position) => {
                let align = self.kernel.buffers[position].align;
                Ok(Bound { mem: Mem::Buffer(position), align, index: view.index[0].clone(), guards })
            }
            Place::Tile(position) => match (&self.homes[position], &self.kernel.tiles[position].space) {
                (Home::Shared(mem), Space::Shared(layout)) => {
                    Ok(Bound { mem: *mem, align: 16, index: layout.index(&view.index), guards })
                }
                _ => Err(self.unsupported("an access to part of a register tile")),
            },
        }
    }
}

impl Bound {
    /// The same with constants added to the coordinates.
    pub(super) fn shifted(&self, offsets: &[i64]) -> Bound {
        let coords: Vec<Index> =
            offsets.iter().enumerate().map(|(dim, &offset)| Index::Coord(dim) + Index::Const(offset)).collect();
        let at = |index: &Index| index.at(&coords);
        let guards = self.guards.iter().map(|g| Guard { index: at(&g.index), bound: at(&g.bound) }).collect();
        Bound { mem: self.mem, align: self.align, index: at(&self.index), guards }
    }

    /// The same, `step` further along `dim`.
    pub(super) fn moved(&self, dim: usize, step: i64) -> Bound {
        let mut offsets = vec![0; self.rank().max(dim + 1)];
        offsets[dim] = step;
        self.shifted(&offsets)
    }

    fn rank(&self) -> usize {
        let used = |index: &Index| (0..MAX_RANK).rev().find(|&dim| index.uses_coord(dim)).map_or(0, |dim| dim + 1);
        let guards = self.guards.iter().flat_map(|guard| [used(&guard.index), used(&guard.bound)]);
        guards.fold(used(&self.index), usize::max)
    }

    /// Whether the element is the same for all values of a coordinate.
    pub(super) fn ignores(&self, dim: usize) -> bool {
        !self.index.uses_coord(dim)
            && self.guards.iter().all(|guard| !guard.index.uses_coord(dim) && !guard.bound.uses_coord(dim))
    }

    /// Whether `width` elements along `dim` are one aligned run of memory that exists as a whole or not at all.
    pub(super) fn is_run(&self, at: &At, dim: usize, width: u16) -> bool {
        let wide = i64::from(width);
        let aligned = |index: &Index| factor(index, at.factors) % wide == 0;
        width == 1
            || matches!(width, 2 | 4)
                && self.index.stride(dim) == Stride::Constant(1)
                && aligned(&self.index)
                && self.align.is_multiple_of(4 * u64::from(width))
                && self.guards.iter().all(|guard| match guard.index.stride(dim) {
                    _ if guard.bound.uses_coord(dim) => false,
                    Stride::Constant(0) => true,
                    Stride::Constant(1) => aligned(&guard.index) && aligned(&guard.bound),
                    _ => false,
                })
    }

    /// Loads `width` consecutive elements; elements that do not exist are 0. The elements must be a run.
    pub(super) fn load(&self, b: &mut Builder, at: &At, width: u16) -> Value {
        let mask = self.mask(b, at);
        if mask.is_some_and(|mask| b.constant(mask) == Some(0)) {
            return b.float(Type::F32.with_lanes(width), 0.0);
        }
        let mask = mask.map(|mask| b.splat(mask, width));
        let address = self.address(b, at, width);
        b.load(address, width, mask)
    }

    /// Loads `width` elements along `dim` that need not be a run.
    pub(super) fn gather(&self, b: &mut Builder, at: &At, dim: usize, width: u16) -> Value {
        let mut mask: Option<Value> = at.inside.map(|inside| b.splat(inside, width));
        let ty = Type { elem: Elem::I32, lanes: width };
        let mut coords = at.coords.to_vec();
        coords[dim] = coords[dim].clone() + Index::Coord(dim);
        for guard in &self.guards {
            let index = b.index_vector(&guard.index.at(&coords), dim, width);
            let bound = b.index_vector(&guard.bound.at(&coords), dim, width);
            let below = b.cmp(CmpOp::Lt, index, bound);
            mask = b.both(mask, Some(below));
            if !is_non_negative(&guard.index) {
                let zero = b.int(ty, 0);
                let above = b.cmp(CmpOp::Le, zero, index);
                mask = b.both(mask, Some(above));
            }
        }
        let indices = b.index_vector(&self.index.at(&coords), dim, width);
        let zero = b.index_const(0);
        b.gather(Address { mem: self.mem, index: zero, offset: 0, align: 4 }, indices, mask)
    }

    /// Stores a run of elements, as many as `value` has; elements that do not exist are left alone.
    pub(super) fn store(&self, b: &mut Builder, at: &At, value: Value) {
        let width = b.ty(value).lanes;
        let mask = self.mask(b, at);
        if mask.is_some_and(|mask| b.constant(mask) == Some(0)) {
            return;
        }
        let mask = mask.map(|mask| b.splat(mask, width));
        let address = self.address(b, at, width);
        b.store(address, value, mask);
    }

    fn address(&self, b: &mut Builder, at: &At, width: u16) -> Address {
        b.address(self.mem, &self.index.at(at.coords), 4 * u32::from(width))
    }

    fn mask(&self, b: &mut Builder, at: &At) -> Option<Value> {
        let mut mask = at.inside;
        for guard in &self.guards {
            let index = b.index(&guard.index.at(at.coords));
            let bound = b.index(&guard.bound.at(at.coords));
            let below = b.cmp(CmpOp::Lt, index, bound);
            mask = b.both(mask, Some(below));
            if !is_non_negative(&guard.index) {
                let zero = b.index_const(0);
                let above = b.cmp(CmpOp::Le, zero, index);
                mask = b.both(mask, Some(above));
            }
        }
        mask.filter(|&mask| b.constant(mask) != Some(1))
    }
}

/// Windows have fewer dimensions than this.
const MAX_RANK: usize = 8;

/// A number that divides the index, given one for each coordinate; 0 when the index is 0.
fn factor(index: &Index, coords: &[i64]) -> i64 {
    match index {
        Index::Const(value) => value.abs(),
        Index::Var(_) => 1,
        Index::Coord(dim) => coords[*dim],
        Index::Op(op, args) => {
            let (lhs, rhs) = (factor(&args.0, coords), factor(&args.1, coords));
            match op {
                IndexOp::Add | IndexOp::Sub | IndexOp::Min | IndexOp::Max | IndexOp::Mod => gcd(lhs, rhs),
                IndexOp::Mul => lhs.saturating_mul(rhs),
                IndexOp::FloorDiv | IndexOp::Xor => 1,
            }
        }
    }
}

/// Whether the form of the index shows that it is never negative; coordinates and loop variables never are.
fn is_non_negative(index: &Index) -> bool {
    match index {
        Index::Const(value) => *value >= 0,
        Index::Var(_) | Index::Coord(_) => true,
        Index::Op(op, args) => match op {
            IndexOp::Sub => false,
            IndexOp::FloorDiv => is_non_negative(&args.0),
            IndexOp::Mod => true,
            IndexOp::Max => is_non_negative(&args.0) || is_non_negative(&args.1),
            IndexOp::Add | IndexOp::Mul | IndexOp::Min | IndexOp::Xor => {
                is_non_negative(&args.0) && is_non_negative(&args.1)
            }
        },
    }
}
