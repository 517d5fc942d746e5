//! Copies of elements of 8 or 16 bits as they are, without converting them: in vectors, interleaved, or transposed.
//!
//! ```text
//! rows       dst[.., e] = src[.., e]                        vectors along e
//! interleave dst[.., c, q] = src[.., q, c]                  the vectors of 4 bytes' worth of q, woven into each other
//! words      dst[.., d, c, q] = src[.., c, d, q]            words of 4 bytes in blocks of registers, transposed
//! ```
//! These are what packing for the matrix unit is made of; other copies go through the type they are computed in.

use super::Lowering;
use super::access::at_lane;
use super::walk::{Vectors, is_short};
use crate::index::{Index, Stride};
use crate::lane::{Elem, Type, Value};
use crate::tile::View;

/// Bytes of a group of neighbouring elements that stay together.
const WORD: i64 = 4;

/// A copy between memories of one element type.
struct Move<'m> {
    shape: &'m [Index],
    dst: &'m View,
    src: &'m View,
    elem: Elem,
    bytes: i64,
}

impl Lowering<'_> {
    /// Lowers a copy of narrow elements; `false` leaves it to be walked.
    pub(super) fn packed(&mut self, shape: &[Index], dst: &View, src: &View) -> bool {
        let (Some((to, _)), Some((from, _))) = (self.flat(dst), self.flat(src)) else { return false };
        let elem = self.builder.held(to);
        let bytes = i64::try_from(self.bytes_of(to)).expect("invariant: elements are small");
        if elem != self.builder.held(from) || bytes >= WORD || !dst.guards.is_empty() {
            return false;
        }
        let dims = || 0..shape.len();
        let long = |dim: usize| shape[dim].as_const() != Some(1);
        let one = Stride::Constant(1);
        let Some(inner) = dims().find(|&dim| long(dim) && self.stride(dst, dim) == one) else { return false };
        let copy = Move { shape, dst, src, elem, bytes };
        let group = WORD / bytes;
        let grouped = Stride::Constant(group);
        if shape[inner].as_const() == Some(group)
            && let Some(across) = dims().find(|&dim| long(dim) && self.stride(dst, dim) == grouped)
        {
            if self.stride(src, across) == one {
                return self.interleave(&copy, inner, across);
            }
            let depth = dims().find(|&dim| long(dim) && self.stride(src, dim) == grouped);
            if let Some(depth) = depth.filter(|&depth| self.stride(src, inner) == one && depth != across) {
                return self.words(&copy, inner, across, depth);
            }
        }
        self.stride(src, inner) == one && self.runs(&copy, inner)
    }

    /// Elements that follow each other in both memories.
    fn runs(&mut self, copy: &Move, inner: usize) -> bool {
        let widest = i64::try_from(self.vector_bytes).expect("invariant: vectors are short") / copy.bytes;
        let extent = copy.shape[inner].clone();
        let mut lanes = widest;
        while extent.as_const().is_some_and(|extent| lanes > extent) {
            lanes /= 2;
        }
        if lanes < 2 {
            return false;
        }
        let narrow = lanes_of(lanes);
        self.over(copy, &[inner], &mut |this, coords| {
            let chunks = (extent.clone() + Index::Const(lanes - 1)).floor_div(lanes);
            this.each(&chunks, true, &mut |this, chunk| {
                let start = chunk * Index::Const(lanes);
                let whole = match (extent.as_const(), start.as_const()) {
                    (Some(extent), Some(start)) => start + lanes <= extent,
                    (Some(extent), None) => extent % lanes == 0,
                    _ => false,
                };
                let left = extent.clone() - start.clone();
                let vectors = Vectors { dim: Some(inner), lanes: narrow };
                let partial = (!whole).then(|| this.first_lanes(vectors, left));
                coords[inner] = start + Index::Coord(inner);
                let value = this.taken(&copy.src.at(coords), inner, narrow, partial);
                this.put(&copy.dst.at(coords), inner, value, partial);
            });
        });
        true
    }

    /// Words made of elements of several rows.
    fn interleave(&mut self, copy: &Move, inner: usize, across: usize) -> bool {
        let group = WORD / copy.bytes;
        let Some(lanes) = self.lanes_dividing(&copy.shape[across]) else { return false };
        let chunks = copy.shape[across].clone().floor_div(lanes);
        self.over(copy, &[inner, across], &mut |this, coords| {
            this.each(&chunks, true, &mut |this, chunk| {
                coords[across] = chunk * Index::Const(lanes) + Index::Coord(across);
                let mut rows = Vec::new();
                for row in 0..group {
                    coords[inner] = Index::Const(row);
                    rows.push(this.taken(&copy.src.at(coords), across, lanes_of(lanes), None));
                }
                // The even rows, then the odd ones, so that two steps of weaving restore the order of four.
                while rows.len() > 1 {
                    let half = rows.len() / 2;
                    rows = (0..half).map(|at| this.woven_with(rows[at], rows[at + half])).collect();
                }
                coords[inner] = Index::ZERO;
                this.put(&copy.dst.at(coords), across, rows[0], None);
            });
        });
        true
    }

    /// Words of rows, transposed.
    fn words(&mut self, copy: &Move, inner: usize, across: usize, depth: usize) -> bool {
        let group = WORD / copy.bytes;
        let (Some(rows), Some(columns)) =
            (self.lanes_dividing(&copy.shape[across]), self.lanes_dividing(&copy.shape[depth]))
        else {
            return false;
        };
        let lanes = rows.min(columns);
        if lanes < 4 {
            return false;
        }
        let narrow = Type { elem: copy.elem, lanes: lanes_of(lanes * group) };
        let wide = Type { elem: Elem::I32, lanes: lanes_of(lanes) };
        let [rows, columns] = [across, depth].map(|dim| copy.shape[dim].clone().floor_div(lanes));
        self.over(copy, &[inner, across, depth], &mut |this, coords| {
            this.each(&rows, true, &mut |this, row| {
                this.each(&columns, true, &mut |this, column| {
                    let mut words = Vec::new();
                    for at in 0..lanes {
                        // The lanes run along the words and the elements inside them.
                        let lane = Index::Coord(depth);
                        coords[across] = row.clone() * Index::Const(lanes) + Index::Const(at);
                        coords[depth] = column.clone() * Index::Const(lanes) + lane.clone().floor_div(group);
                        coords[inner] = lane.modulo(group);
                        let value = this.taken(&copy.src.at(coords), depth, narrow.lanes, None);
                        words.push(this.builder.reinterpret(value, wide));
                    }
                    let turned = this.transpose(&words);
                    for (value, at) in turned.into_iter().zip(0..) {
                        coords[across] = row.clone() * Index::Const(lanes);
                        coords[depth] = column.clone() * Index::Const(lanes) + Index::Const(at);
                        coords[inner] = Index::ZERO;
                        let value = this.builder.reinterpret(value, narrow);
                        this.put(&copy.dst.at(coords), depth, value, None);
                    }
                });
            });
        });
        true
    }

    /// Loops over all dimensions but some, in order.
    fn over(&mut self, copy: &Move, without: &[usize], body: &mut dyn FnMut(&mut Self, &mut Vec<Index>)) {
        let dims: Vec<usize> = (0..copy.shape.len()).filter(|dim| !without.contains(dim)).collect();
        self.over_each(copy.shape, &dims, &mut vec![Index::ZERO; copy.shape.len()], body);
    }

    fn over_each(
        &mut self,
        shape: &[Index],
        dims: &[usize],
        coords: &mut Vec<Index>,
        body: &mut dyn FnMut(&mut Self, &mut Vec<Index>),
    ) {
        let Some((&dim, rest)) = dims.split_first() else { return body(self, coords) };
        let unroll = rest.is_empty() && is_short(&shape[dim]);
        self.each(&shape[dim], unroll, &mut |this, at| {
            coords[dim] = at;
            this.over_each(shape, rest, coords, body);
        });
    }

    /// Words of a vector, no more than there are and a divisor of them.
    fn lanes_dividing(&self, extent: &Index) -> Option<i64> {
        let extent = extent.as_const()?;
        let mut lanes = i64::try_from(self.vector_bytes).expect("invariant: vectors are short") / WORD;
        while lanes > 1 && extent % lanes != 0 {
            lanes /= 2;
        }
        (lanes > 1).then_some(lanes)
    }

    /// Consecutive elements as memory holds them; those that do not exist are zero.
    fn taken(&mut self, view: &View, dim: usize, lanes: u16, partial: Option<Value>) -> Value {
        let mask = self.mask(view, dim, lanes, partial);
        let (mem, index) = self.flat(view).expect("invariant: not a register tile");
        let at = self.address(mem, &at_lane(&index, dim, 0));
        self.builder.load(at, lanes, mask)
    }

    fn put(&mut self, view: &View, dim: usize, value: Value, mask: Option<Value>) {
        let (mem, index) = self.flat(view).expect("invariant: not a register tile");
        let at = self.address(mem, &at_lane(&index, dim, 0));
        self.builder.store(at, value, mask);
    }

    /// Elements of `a` and `b` in turn.
    fn woven_with(&mut self, a: Value, b: Value) -> Value {
        let lanes = self.builder.ty(a).lanes;
        self.builder.shuffle(a, b, (0..lanes).flat_map(|lane| [lane, lane + lanes]).collect())
    }
}

fn lanes_of(lanes: i64) -> u16 {
    u16::try_from(lanes).expect("invariant: vectors are short")
}
