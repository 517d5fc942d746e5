//! Windows with folds: partial results in registers, put together at the end.
//!
//! ```text
//! vectors along a folded dimension  =>  for the kept ..: for chunks: acc[i % A] = op(acc, v);  tree over lanes
//! vectors along a kept dimension    =>  for chunks of the kept ..: for the folded: acc[i % A] = op(acc, v)
//! ```
//!
//! Up to a vector's worth of rows share one tree when the last kept dimension is that short: sixteen sums of sixteen
//! lanes take 30 shuffles together instead of 64.

use super::Lowering;
use super::walk::{Point, Vectors, Work};
use crate::index::{Index, Stride};
use crate::lane::{BinOp, CmpOp, Elem, Slot, Type, Value};
use crate::tile::{Fold, FoldOp, View};

/// Vectors of one row that are unrolled when the rows share a tree.
const UNROLLED_VECTORS: i64 = 128;

/// A window with folds and how it is walked.
struct Folded<'f> {
    work: &'f Work<'f>,
    folds: &'f [Fold],
    vectors: Vectors,
    /// Folded dimensions without that of the vectors, outermost first.
    folded: Vec<usize>,
    accumulators: usize,
}

impl Lowering<'_> {
    /// Lowers a window with folds.
    pub(super) fn fold(&mut self, work: &Work, folds: &[Fold], accumulators: u64) {
        let kept = |dim: usize| folds[0].into.index.iter().any(|index| index.uses_coord(dim));
        let vectors = self.fold_vectors(work, folds, &kept);
        let apart = |dim: &usize| Some(*dim) != vectors.dim;
        let dims = || (0..work.shape.len()).filter(apart);
        let (outer, folded): (Vec<usize>, Vec<usize>) = dims().partition(|&dim| kept(dim));
        // More partial results than turns would only be put together again.
        let turns = match (vectors.dim.filter(|&dim| !kept(dim)), folded.last()) {
            (Some(dim), _) => work.shape[dim].as_const().map(|extent| extent / i64::from(vectors.lanes)),
            (None, Some(&dim)) => work.shape[dim].as_const(),
            (None, None) => Some(1),
        };
        let turns = turns.and_then(|turns| u64::try_from(turns.max(1)).ok()).unwrap_or(u64::MAX);
        let accumulators = usize::try_from(accumulators.clamp(1, turns)).expect("invariant: few accumulators");
        let folded = Folded { work, folds, vectors, folded, accumulators };
        let mut coords: Vec<Index> = (0..work.shape.len()).map(Index::Coord).collect();
        self.kept_loops(&folded, &outer, vectors.dim.is_some_and(kept), &mut coords);
    }

    /// The dimension along which everything is contiguous or constant; stores and kept results decide before reads.
    fn fold_vectors(&self, work: &Work, folds: &[Fold], kept: &dyn Fn(usize) -> bool) -> Vectors {
        let mut best: Option<(u32, usize)> = None;
        for (dim, extent) in work.shape.iter().enumerate() {
            let contiguous = |view: &View| self.stride(view, dim) == Stride::Constant(1);
            let stores = work.stores.iter().all(|(view, _)| contiguous(view));
            let results = !kept(dim) || folds.iter().all(|fold| contiguous(&fold.into));
            if !stores || !results || extent.as_const() == Some(1) {
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

    fn kept_loops(&mut self, of: &Folded, outer: &[usize], vertical: bool, coords: &mut Vec<Index>) {
        if let Some((&dim, rest)) = outer.split_first() {
            if rest.is_empty() && !vertical && self.share_tree(of, dim) {
                return self.rows_together(of, dim, coords);
            }
            return self.each(&of.work.shape[dim].clone(), false, &mut |this, at| {
                let saved = std::mem::replace(&mut coords[dim], at);
                this.kept_loops(of, rest, vertical, coords);
                coords[dim] = saved;
            });
        }
        match of.vectors.dim {
            Some(dim) if vertical => {
                let lanes = i64::from(of.vectors.lanes);
                let extent = of.work.shape[dim].clone();
                let chunks = (extent.clone() + Index::Const(lanes - 1)).floor_div(lanes);
                self.each(&chunks, false, &mut |this, chunk| {
                    let start = chunk * Index::Const(lanes);
                    let saved = std::mem::replace(&mut coords[dim], start.clone() + Index::Coord(dim));
                    let whole = extent.as_const().is_some_and(|extent| extent % lanes == 0);
                    let partial = (!whole).then(|| this.first_lanes(of.vectors, extent.clone() - start));
                    let results = this.results(of, partial, coords);
                    for (fold, value) in of.folds.iter().zip(results) {
                        this.fold_into(fold, value, coords, dim, partial);
                    }
                    coords[dim] = saved;
                });
            }
            _ => {
                let results = self.results(of, None, coords);
                for (fold, value) in of.folds.iter().zip(results) {
                    let value = self.across(fold.op, &[value]);
                    self.fold_into(fold, value, coords, usize::MAX, None);
                }
            }
        }
    }

    /// Whether the rows along `dim` are few enough to share one tree, and their results lie together.
    fn share_tree(&self, of: &Folded, dim: usize) -> bool {
        let Some(rows) = of.work.shape[dim].as_const() else { return false };
        let lanes = i64::from(of.vectors.lanes);
        let together = of.folds.iter().all(|fold| self.stride(&fold.into, dim) == Stride::Constant(1));
        of.vectors.dim.is_some() && together && rows > 1 && rows <= lanes && rows & (rows - 1) == 0
    }

    fn rows_together(&mut self, of: &Folded, dim: usize, coords: &mut Vec<Index>) {
        let rows = of.work.shape[dim].as_const().expect("invariant: checked by share_tree");
        let saved = coords[dim].clone();
        let mut results: Vec<Vec<Value>> = vec![Vec::new(); of.folds.len()];
        for row in 0..rows {
            coords[dim] = Index::Const(row);
            for (fold, value) in self.results(of, None, coords).into_iter().enumerate() {
                results[fold].push(value);
            }
        }
        coords[dim] = Index::Coord(dim);
        for (fold, values) in of.folds.iter().zip(results) {
            let value = self.across(fold.op, &values);
            self.fold_into(fold, value, coords, dim, None);
        }
        coords[dim] = saved;
    }

    /// `into = op(into, value)` for the lanes along `dim`.
    fn fold_into(&mut self, fold: &Fold, value: Value, coords: &[Index], dim: usize, partial: Option<Value>) {
        let into = fold.into.at(coords);
        let lanes = self.builder.ty(value).lanes;
        let mask = self.mask(&into, dim, lanes, partial);
        let before = self.read(&into, dim, lanes, mask);
        let value = self.builder.convert(value, self.builder.ty(before).elem);
        let value = self.step(fold.op, before, value);
        self.write(&into, dim, value, mask);
    }

    /// Walks the folded dimensions at fixed kept coordinates; the result of each fold, still one for each lane.
    fn results(&mut self, of: &Folded, partial: Option<Value>, coords: &mut Vec<Index>) -> Vec<Value> {
        let mut state = Partials { slots: vec![Vec::new(); of.folds.len()], turn: 0 };
        for (fold, slots) in of.folds.iter().zip(&mut state.slots) {
            let ty = Type { elem: self.computed(&fold.into), lanes: of.vectors.lanes };
            let identity = self.identity(fold.op, ty);
            for _ in 0..of.accumulators {
                let slot = self.builder.slot(ty);
                self.builder.set(slot, identity);
                slots.push(slot);
            }
        }
        self.folded_loops(of, &of.folded, partial, coords, &mut state);
        of.folds
            .iter()
            .zip(&state.slots)
            .map(|(fold, slots)| {
                let mut values: Vec<Value> = slots.iter().map(|&slot| self.builder.read(slot)).collect();
                while values.len() > 1 {
                    let half = values.len().div_ceil(2);
                    for at in half..values.len() {
                        values[at - half] = self.step(fold.op, values[at - half], values[at]);
                    }
                    values.truncate(half);
                }
                values[0]
            })
            .collect()
    }

    fn folded_loops(
        &mut self,
        of: &Folded,
        folded: &[usize],
        partial: Option<Value>,
        coords: &mut Vec<Index>,
        state: &mut Partials,
    ) {
        let horizontal = of.vectors.dim.filter(|&dim| coords[dim] == Index::Coord(dim));
        match (folded.split_first(), horizontal) {
            (Some((&dim, rest)), _) if !rest.is_empty() || horizontal.is_some() => {
                self.each(&of.work.shape[dim].clone(), false, &mut |this, at| {
                    let saved = std::mem::replace(&mut coords[dim], at);
                    this.folded_loops(of, rest, partial, coords, state);
                    coords[dim] = saved;
                });
            }
            (Some((&dim, _)), _) => {
                let extent = of.work.shape[dim].clone();
                self.turns(&extent, of.accumulators, &mut |this, at| {
                    let saved = std::mem::replace(&mut coords[dim], at);
                    this.accumulate(of, partial, coords, state);
                    coords[dim] = saved;
                });
            }
            (None, Some(dim)) => self.chunks(of, dim, coords, state),
            (None, None) => self.accumulate(of, partial, coords, state),
        }
    }

    /// Vectors along the folded dimension `dim`, the last one partial.
    fn chunks(&mut self, of: &Folded, dim: usize, coords: &mut [Index], state: &mut Partials) {
        let lanes = i64::from(of.vectors.lanes);
        let extent = of.work.shape[dim].clone();
        let whole = extent.clone().floor_div(lanes);
        self.turns(&whole, of.accumulators, &mut |this, chunk| {
            coords[dim] = chunk * Index::Const(lanes) + Index::Coord(dim);
            this.accumulate(of, None, coords, state);
        });
        if extent.as_const().is_none_or(|extent| extent % lanes != 0) {
            let start = whole * Index::Const(lanes);
            let partial = self.first_lanes(of.vectors, extent - start.clone());
            coords[dim] = start + Index::Coord(dim);
            self.accumulate(of, Some(partial), coords, state);
        }
        coords[dim] = Index::Coord(dim);
    }

    /// Runs `body` for `0..extent`, whole when short, otherwise `copies` at a time.
    fn turns(&mut self, extent: &Index, copies: usize, body: &mut dyn FnMut(&mut Self, Index)) {
        if let Some(extent) = extent.as_const().filter(|&extent| extent <= UNROLLED_VECTORS / 4) {
            return (0..extent).for_each(|at| body(self, Index::Const(at)));
        }
        let extent = self.builder.index(extent);
        self.unrolled(extent, i64::try_from(copies).expect("invariant: few accumulators"), body);
    }

    fn accumulate(&mut self, of: &Folded, partial: Option<Value>, coords: &[Index], state: &mut Partials) {
        let point = Point { coords, vectors: of.vectors, partial };
        let values = self.point(of.work, &point);
        let turn = state.turn % of.accumulators;
        state.turn += 1;
        for (fold, slots) in of.folds.iter().zip(&state.slots) {
            let slot = slots[turn];
            let ty = self.builder.slot_ty(slot);
            let mut value = self.builder.convert(values[fold.value], ty.elem);
            if let Some(mask) = partial {
                let identity = self.identity(fold.op, ty);
                value = self.builder.select(mask, value, identity);
            }
            let before = self.builder.read(slot);
            let after = self.step(fold.op, before, value);
            self.builder.set(slot, after);
        }
    }

    fn identity(&mut self, op: FoldOp, ty: Type) -> Value {
        if ty.elem == Elem::F32 {
            return self.builder.float(ty, op.identity());
        }
        let value = match op {
            FoldOp::Add => 0,
            FoldOp::Min => i64::from(i32::MAX),
            FoldOp::Max | FoldOp::NanMax => i64::from(i32::MIN),
        };
        self.builder.int(ty, value)
    }

    /// `op(before, value)`.
    fn step(&mut self, op: FoldOp, before: Value, value: Value) -> Value {
        match op {
            FoldOp::Add => self.builder.bin(BinOp::Add, before, value),
            FoldOp::Min => self.builder.bin(BinOp::Min, value, before),
            FoldOp::Max => self.builder.bin(BinOp::Max, value, before),
            FoldOp::NanMax => {
                // The right operand of a maximum wins when one is NaN: a new NaN is taken, an old one kept.
                let larger = self.builder.bin(BinOp::Max, before, value);
                if self.builder.ty(before).elem != Elem::F32 {
                    return larger;
                }
                let ordered = self.builder.cmp(CmpOp::Eq, before, before);
                self.builder.select(ordered, larger, before)
            }
        }
    }

    /// Folds the lanes of each of `rows` vectors: element `r` of the result belongs to row `r`. The number of rows is a
    /// power of two, at most that of the lanes.
    fn across(&mut self, op: FoldOp, rows: &[Value]) -> Value {
        let lanes = usize::from(self.builder.ty(rows[0]).lanes);
        let mut values = rows.to_vec();
        // Each vector holds `copies` partial results of each of its rows, those of one row side by side.
        let mut copies = lanes;
        while values.len() > 1 {
            values = values.chunks(2).map(|pair| self.halve(op, pair[0], pair[1], copies)).collect();
            copies /= 2;
        }
        let mut value = values[0];
        while copies > 1 {
            let lanes = usize::from(self.builder.ty(value).lanes);
            let (low, high) = (picked(lanes, copies, 0), picked(lanes, copies, 1));
            let low = self.builder.shuffle(value, value, low);
            let high = self.builder.shuffle(value, value, high);
            value = self.step(op, low, high);
            copies /= 2;
        }
        value
    }

    /// One level of the tree for two vectors: half as many partial results of twice as many rows.
    fn halve(&mut self, op: FoldOp, a: Value, b: Value, copies: usize) -> Value {
        let lanes = usize::from(self.builder.ty(a).lanes);
        let both = |half: usize| {
            let mine = picked(lanes, copies, half);
            let offset = u16::try_from(lanes).expect("invariant: short vectors");
            mine.iter().copied().chain(mine.iter().map(|lane| lane + offset)).collect::<Vec<u16>>()
        };
        let low = self.builder.shuffle(a, b, both(0));
        let high = self.builder.shuffle(a, b, both(1));
        self.step(op, low, high)
    }
}

struct Partials {
    /// `slots[fold][accumulator]`.
    slots: Vec<Vec<Slot>>,
    /// Which accumulator is next.
    turn: usize,
}

/// Every other one of the `copies` partial results of each row: the even (`half` 0) or odd ones.
fn picked(lanes: usize, copies: usize, half: usize) -> Vec<u16> {
    (0..lanes)
        .step_by(copies)
        .flat_map(|row| (row + half..row + copies).step_by(2))
        .map(|lane| u16::try_from(lane).expect("invariant: short vectors"))
        .collect()
}
