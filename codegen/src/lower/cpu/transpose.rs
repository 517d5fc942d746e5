//! Windows that are written along another dimension than they are read along: blocks of as many rows as a vector has
//! elements are transposed in registers. Copies that turn a matrix are of this kind, and so is storing a register tile
//! whose vectors run across the rows of the output.

use super::Lowering;
use super::walk::{Point, Vectors, Work};
use crate::index::{Index, Stride};
use crate::lane::{CmpOp, Type, Value};
use crate::tile::{Place, View};

/// How a window is turned.
#[derive(Clone, Debug)]
struct Turn {
    /// The dimension along which what is turned is contiguous, or along which its registers run.
    from: usize,
    /// Contiguous in what is written.
    to: usize,
    /// Elements of a vector.
    lanes: u16,
    /// Of each argument, whether it is turned.
    turned: Vec<bool>,
    /// Whether register tiles are read: their coordinates must stay constants.
    registers: bool,
}

/// A block of a window: where it starts and how many elements it has along [`Turn::from`] and [`Turn::to`].
struct Part<'p> {
    coords: &'p [Index],
    along: &'p Index,
    across: &'p Index,
}

impl Lowering<'_> {
    /// Lowers a window as register transposes when that is what it is; `false` leaves it to be walked.
    pub(super) fn transposed(&mut self, work: &Work) -> bool {
        let Some(turn) = self.turn(work) else { return false };
        let outer: Vec<usize> = (0..work.shape.len()).filter(|dim| *dim != turn.from && *dim != turn.to).collect();
        let mut coords: Vec<Index> = (0..work.shape.len()).map(Index::Coord).collect();
        self.blocks(work, &turn, &outer, &mut coords);
        true
    }

    fn turn(&self, work: &Work) -> Option<Turn> {
        let &[(ref dst, _)] = work.stores else { return None };
        let lanes_of = |view: &View| match view.place {
            Place::Buffer(_) => None,
            Place::Tile(tile) => self.registers[tile].as_ref().map(|registers| registers.lanes),
        };
        let one = Stride::Constant(1);
        let long = |dim: usize| work.shape[dim].as_const().is_none_or(|extent| extent > 1);
        let along = |view: &View| (0..work.shape.len()).find(|&dim| long(dim) && self.stride(view, dim) == one);
        let affine = |view: &View, dim: usize| matches!(self.stride(view, dim), Stride::Constant(step) if step != 0);
        if lanes_of(dst).is_some() {
            return None;
        }
        let to = along(dst)?;
        let (mut from, mut lanes, mut turned) = (None, self.lanes, Vec::new());
        let registers = work.args.iter().any(|arg| lanes_of(arg).is_some());
        for arg in work.args {
            let held = lanes_of(arg);
            if held.is_none() && matches!(self.stride(arg, to), Stride::Constant(0 | 1)) {
                turned.push(false);
                continue;
            }
            // Registers run along the last dimension of their window.
            let dim = if held.is_some() { work.shape.len() - 1 } else { along(arg)? };
            if from.is_some_and(|from| from != dim) || dim == to || (held.is_none() && !affine(arg, to)) {
                return None;
            }
            (from, lanes) = (Some(dim), held.unwrap_or(lanes));
            turned.push(true);
        }
        let from = from?;
        // All register tiles of a window have one width; what else is turned takes it.
        let one_width = work.args.iter().filter_map(lanes_of).all(|held| held == lanes);
        let turns = lanes >= 4 && one_width && self.stride(dst, from) != one && affine(dst, from);
        turns.then_some(Turn { from, to, lanes, turned, registers })
    }

    fn blocks(&mut self, work: &Work, turn: &Turn, outer: &[usize], coords: &mut Vec<Index>) {
        if let Some((&dim, rest)) = outer.split_first() {
            return self.each(&work.shape[dim], turn.registers, &mut |this, at| {
                let saved = std::mem::replace(&mut coords[dim], at);
                this.blocks(work, turn, rest, coords);
                coords[dim] = saved;
            });
        }
        // Whole blocks along the source, inside them along the destination, so that lines are finished one by one.
        self.strips(&work.shape[turn.from], turn, &mut |this, start, along| {
            coords[turn.from] = start;
            this.strips(&work.shape[turn.to], turn, &mut |this, begin, across| {
                coords[turn.to] = begin;
                this.block_of(work, turn, &Part { coords, along: &along, across: &across });
            });
        });
        coords[turn.from] = Index::Coord(turn.from);
        coords[turn.to] = Index::Coord(turn.to);
    }

    /// Cuts `0..extent` into strips of a vector's length; the body gets the start and how many there are of them.
    fn strips(&mut self, extent: &Index, turn: &Turn, body: &mut dyn FnMut(&mut Self, Index, Index)) {
        let lanes = i64::from(turn.lanes);
        let whole = extent.clone().floor_div(lanes);
        if whole.as_const() != Some(0) {
            self.each(&whole, turn.registers, &mut |this, strip| {
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

    /// One block: loads and turns what is turned, then computes and stores vector by vector.
    fn block_of(&mut self, work: &Work, turn: &Turn, part: &Part) {
        let (lanes, from, to) = (turn.lanes, turn.from, turn.to);
        let line = |this: &mut Self, dim: usize, count: &Index| {
            let whole = count.as_const() == Some(i64::from(lanes));
            (!whole).then(|| this.first_lanes(Vectors { dim: Some(dim), lanes }, count.clone()))
        };
        let load_lanes = line(self, from, part.along);
        let store_lanes = line(self, to, part.across);
        let at = |dim: usize, step: u16, lane_dim: usize| {
            let mut coords = part.coords.to_vec();
            coords[dim] = coords[dim].clone() + Index::Const(i64::from(step));
            coords[lane_dim] = coords[lane_dim].clone() + Index::Coord(lane_dim);
            coords
        };
        // Rows that are known not to exist are not loaded; those that may not exist are masked.
        let known = |count: &Index| count.as_const().map_or(lanes, |count| u16::try_from(count).unwrap_or(lanes));
        let turned: Vec<Vec<Value>> = work
            .args
            .iter()
            .zip(&turn.turned)
            .map(|(arg, is_turned)| {
                if !is_turned {
                    return Vec::new();
                }
                let zero = Type { elem: self.computed(arg), lanes };
                let rows: Vec<Value> = (0..lanes)
                    .map(|row| {
                        if row >= known(part.across) {
                            return self.number(zero, 0.0);
                        }
                        let view = arg.at(&at(to, row, from));
                        let exists = self.exists(row, part.across, lanes);
                        let partial = self.builder.both(load_lanes, exists);
                        let mask = self.mask(&view, from, lanes, partial);
                        self.read(&view, from, lanes, mask)
                    })
                    .collect();
                self.transpose(&rows)
            })
            .collect();
        for column in 0..known(part.along) {
            let coords = at(from, column, to);
            let exists = self.exists(column, part.along, lanes);
            let partial = self.builder.both(store_lanes, exists);
            let point = Point { coords: &coords, vectors: Vectors { dim: Some(to), lanes }, partial };
            let given: Vec<Option<Value>> =
                turned.iter().map(|columns| columns.get(usize::from(column)).copied()).collect();
            self.point_with(work, &point, &given);
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
