//! Copies whose source is contiguous along one dimension and whose destination along another: blocks of as many rows as
//! a vector has elements are transposed in registers.

use super::Lowering;
use super::walk::Vectors;
use crate::index::{Index, Stride};
use crate::lane::{CmpOp, Type, Value};
use crate::tile::{Place, View};

/// The two dimensions of a transposing copy.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// Contiguous in the source.
    from: usize,
    /// Contiguous in the destination.
    to: usize,
}

impl Lowering<'_> {
    /// Lowers a copy as register transposes when that is what it is; `false` leaves it to be walked.
    pub(super) fn transposed(&mut self, shape: &[Index], dst: &View, src: &View) -> bool {
        let Some(turn) = self.turn(shape, dst, src) else { return false };
        let outer: Vec<usize> = (0..shape.len()).filter(|dim| *dim != turn.from && *dim != turn.to).collect();
        let mut coords: Vec<Index> = (0..shape.len()).map(Index::Coord).collect();
        self.blocks(shape, dst, src, turn, &outer, &mut coords);
        true
    }

    fn turn(&self, shape: &[Index], dst: &View, src: &View) -> Option<Turn> {
        let in_memory = |view: &View| match view.place {
            Place::Buffer(_) => true,
            Place::Tile(tile) => self.registers[tile].is_none(),
        };
        let one = Stride::Constant(1);
        let long = |dim: usize| shape[dim].as_const().is_none_or(|extent| extent > 1);
        let along = |view: &View| (0..shape.len()).find(|&dim| long(dim) && self.stride(view, dim) == one);
        if !in_memory(dst) || !in_memory(src) || self.lanes < 4 {
            return None;
        }
        let (from, to) = (along(src)?, along(dst)?);
        let affine = |view: &View, dim: usize| matches!(self.stride(view, dim), Stride::Constant(step) if step != 0);
        let same = from == to || self.stride(dst, from) == one || self.stride(src, to) == one;
        (!same && affine(src, to) && affine(dst, from)).then_some(Turn { from, to })
    }

    fn blocks(
        &mut self,
        shape: &[Index],
        dst: &View,
        src: &View,
        turn: Turn,
        outer: &[usize],
        coords: &mut Vec<Index>,
    ) {
        if let Some((&dim, rest)) = outer.split_first() {
            return self.each(&shape[dim], false, &mut |this, at| {
                let saved = std::mem::replace(&mut coords[dim], at);
                this.blocks(shape, dst, src, turn, rest, coords);
                coords[dim] = saved;
            });
        }
        // Whole blocks along the source, inside them along the destination, so that lines are finished one by one.
        self.strips(&shape[turn.from], &mut |this, start, count| {
            coords[turn.from] = start;
            this.strips(&shape[turn.to], &mut |this, begin, rows| {
                coords[turn.to] = begin;
                this.block_of(dst, src, turn, coords, [&count, &rows]);
            });
        });
        coords[turn.from] = Index::Coord(turn.from);
        coords[turn.to] = Index::Coord(turn.to);
    }

    /// Cuts `0..extent` into strips of a vector's length; the body gets the start and how many there are of them.
    fn strips(&mut self, extent: &Index, body: &mut dyn FnMut(&mut Self, Index, Index)) {
        let lanes = i64::from(self.lanes);
        let whole = extent.clone().floor_div(lanes);
        if whole.as_const() != Some(0) {
            self.each(&whole, false, &mut |this, strip| {
                body(this, strip * Index::Const(lanes), Index::Const(lanes));
            });
        }
        match extent.as_const() {
            Some(extent) if extent % lanes == 0 => {}
            _ => {
                let start = whole * Index::Const(lanes);
                body(self, start.clone(), extent.clone() - start);
            }
        }
    }

    /// One block: `counts` elements along the source's and the destination's dimension.
    fn block_of(&mut self, dst: &View, src: &View, turn: Turn, coords: &[Index], [along, across]: [&Index; 2]) {
        let lanes = self.lanes;
        let vectors = |dim| Vectors { dim: Some(dim), lanes };
        let whole = |count: &Index| count.as_const() == Some(i64::from(lanes));
        let line = |this: &mut Self, dim: usize, count: &Index| {
            (!whole(count)).then(|| this.first_lanes(vectors(dim), count.clone()))
        };
        let load_lanes = line(self, turn.from, along);
        let store_lanes = line(self, turn.to, across);
        let at = |dim: usize, step: u16, lane_dim: usize| {
            let mut coords = coords.to_vec();
            coords[dim] = coords[dim].clone() + Index::Const(i64::from(step));
            coords[lane_dim] = coords[lane_dim].clone() + Index::Coord(lane_dim);
            coords
        };
        // Rows that are known not to exist are not loaded; those that may not exist are masked.
        let known = |count: &Index| count.as_const().map_or(lanes, |count| u16::try_from(count).unwrap_or(lanes));
        let zero = Type { elem: self.computed(src), lanes };
        let rows: Vec<Value> = (0..lanes)
            .map(|row| {
                if row >= known(across) {
                    return self.number(zero, 0.0);
                }
                let view = src.at(&at(turn.to, row, turn.from));
                let exists = self.exists(row, across, lanes);
                let partial = self.builder.both(load_lanes, exists);
                let mask = self.mask(&view, turn.from, lanes, partial);
                self.read(&view, turn.from, lanes, mask)
            })
            .collect();
        let columns = self.transpose(&rows);
        for (column, value) in (0..lanes).zip(columns) {
            if column >= known(along) {
                break;
            }
            let view = dst.at(&at(turn.from, column, turn.to));
            let exists = self.exists(column, along, lanes);
            let partial = self.builder.both(store_lanes, exists);
            let mask = self.mask(&view, turn.to, lanes, partial);
            self.write(&view, turn.to, value, mask);
        }
    }

    /// `position < count` for all lanes; `None` when that is known.
    fn exists(&mut self, position: u16, count: &Index, lanes: u16) -> Option<Value> {
        if count.as_const().is_some() {
            return None;
        }
        let position = self.builder.index_const(i64::from(position));
        let count = self.builder.index(count);
        let below = self.builder.cmp(CmpOp::Lt, position, count);
        Some(self.builder.splat(below, lanes))
    }

    /// Transposes as many vectors as each has elements (4, 8 or 16).
    pub(super) fn transpose(&mut self, rows: &[Value]) -> Vec<Value> {
        let lanes = rows.len();
        // Blocks of four: the low and high halves of pairs of rows, then of pairs of pairs. Afterwards vector 4k + c
        // holds in block q column 4q + c of rows 4k..4k + 4.
        let mut quads = Vec::with_capacity(lanes);
        for four in rows.chunks(4) {
            let pairs = [0, 2].map(|at| [0, 2].map(|half| self.woven(four[at], four[at + 1], half, 1)));
            for half in [0, 1] {
                for part in [0, 2] {
                    quads.push(self.woven(pairs[0][half], pairs[1][half], part, 2));
                }
            }
        }
        let mut columns = rows.to_vec();
        for c in 0..4 {
            let vectors: Vec<Value> = quads.iter().skip(c).step_by(4).copied().collect();
            for (q, value) in self.turned_blocks(&vectors).into_iter().enumerate() {
                columns[4 * q + c] = value;
            }
        }
        columns
    }

    /// Vector `q` of the result holds block `q` of each of `vectors`.
    fn turned_blocks(&mut self, vectors: &[Value]) -> Vec<Value> {
        if vectors.len() == 1 {
            return vectors.to_vec();
        }
        let [even, odd] = [0, 1].map(|odd| {
            let half: Vec<Value> = vectors.chunks(2).map(|pair| self.blocks_of(pair[0], pair[1], odd)).collect();
            self.turned_blocks(&half)
        });
        even.into_iter().zip(odd).flat_map(<[Value; 2]>::from).collect()
    }

    /// Runs of `run` elements of `a` and `b` in turn, two elements of each, from position `from` of each block of four.
    fn woven(&mut self, a: Value, b: Value, from: u16, run: u16) -> Value {
        let lanes = self.builder.ty(a).lanes;
        let four = if run == 1 { [0, lanes, 1, lanes + 1] } else { [0, 1, lanes, lanes + 1] };
        let order = (0..lanes).step_by(4).flat_map(|block| four.map(|lane| block + from + lane)).collect();
        self.builder.shuffle(a, b, order)
    }

    /// The even (`odd` 0) or odd blocks of four of `a`, then of `b`.
    fn blocks_of(&mut self, a: Value, b: Value, odd: u16) -> Value {
        let lanes = self.builder.ty(a).lanes;
        let mine = (0..lanes / 4).filter(|block| block % 2 == odd).flat_map(|block| 4 * block..4 * block + 4);
        let mine: Vec<u16> = mine.collect();
        let order = mine.iter().copied().chain(mine.iter().map(|lane| lane + lanes)).collect();
        self.builder.shuffle(a, b, order)
    }
}
