//! How a core reaches what a view means: registers, vectors, masks, gathers.

use super::Lowering;
use crate::index::{Index, IndexOp, Stride};
use crate::lane::{Address, BinOp, CmpOp, Elem, Mem, Slot, Value};
use crate::tile::{Guard, Place, Space, View};

/// Alignment of every array that is private to a core, in bytes.
const SCRATCH_ALIGN: u64 = 64;

impl Lowering<'_> {
    /// The memory and flat element index of a view; `None` for register tiles.
    pub(super) fn flat(&self, view: &View) -> Option<(Mem, Index)> {
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

    pub(super) fn stride(&self, view: &View, dim: usize) -> Stride {
        match self.flat(view) {
            Some((_, index)) => index.stride(dim),
            None => view.index.last().map_or(Stride::Constant(0), |index| index.stride(dim)),
        }
    }

    pub(super) fn guard_mask(&mut self, guard: &Guard, dim: usize, lanes: u16) -> Value {
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
    pub(super) fn mask(&mut self, view: &View, dim: usize, lanes: u16, partial: Option<Value>) -> Option<Value> {
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

    pub(super) fn read(&mut self, view: &View, dim: usize, lanes: u16, mask: Option<Value>) -> Value {
        if let Some(slot) = self.registers_at(view, dim) {
            return self.builder.read(slot);
        }
        let (mem, index) = self.flat(view).expect("invariant: not a register tile");
        match index.stride(dim) {
            Stride::Constant(0) if lanes > 1 => {
                // One element for all lanes: it exists when any lane does, because guards that use the lane's
                // coordinate only shorten the window.
                let exists = self.scalar_guards(view, dim);
                let at = self.address(mem, &at_lane(&index, dim, 0));
                let value = self.builder.load(at, 1, exists);
                let value = self.builder.convert(value, self.builder.held(mem).computed());
                self.builder.splat(value, lanes)
            }
            stride if lanes == 1 || matches!(stride, Stride::Constant(0 | 1)) => {
                let at = self.address(mem, &at_lane(&index, dim, 0));
                let value = self.builder.load(at, lanes, mask);
                self.builder.convert(value, self.builder.held(mem).computed())
            }
            _ => {
                let (rest, base) = split_lane(&index, dim);
                let at = self.element_address(mem, &base);
                let indices = self.builder.index_vector(&rest, dim, lanes);
                let value = self.builder.gather(at, indices, mask);
                self.builder.convert(value, self.builder.held(mem).computed())
            }
        }
    }

    /// What the elements of a view are computed with in.
    pub(super) fn computed(&self, view: &View) -> Elem {
        Elem::of(match view.place {
            Place::Buffer(position) => self.kernel.buffers[position].dtype,
            Place::Tile(position) => self.kernel.tiles[position].dtype,
        })
        .computed()
    }

    /// An address with the alignment that is known of it.
    pub(super) fn address(&mut self, mem: Mem, index: &Index) -> Address {
        let (base, bytes) = match mem {
            Mem::Buffer(position) => {
                let buffer = &self.kernel.buffers[position];
                (buffer.align, buffer.dtype.bytes())
            }
            _ => (SCRATCH_ALIGN, self.bytes_of(mem)),
        };
        // The lowest bit set of both together is what divides both.
        let together = base | index.multiple().saturating_mul(bytes);
        let align = 1 << together.trailing_zeros().min(SCRATCH_ALIGN.trailing_zeros());
        self.builder.address(mem, index, align)
    }

    /// Asks for the line `ahead` elements after the first of a view.
    pub(super) fn prefetch(&mut self, view: &View, dim: usize, ahead: u64) {
        let (mem, index) = self.flat(view).expect("invariant: not a register tile");
        let at = self.element_address(mem, &(at_lane(&index, dim, 0) + Index::of(ahead)));
        self.builder.prefetch(at);
    }

    /// An address that is aligned to one element, as those of gathers and scatters.
    pub(super) fn element_address(&mut self, mem: Mem, index: &Index) -> Address {
        let bytes = u32::try_from(self.bytes_of(mem)).expect("invariant: elements are small");
        self.builder.address(mem, index, bytes)
    }

    pub(super) fn bytes_of(&self, mem: Mem) -> u64 {
        match mem {
            Mem::Buffer(position) => self.kernel.buffers[position].dtype.bytes(),
            Mem::Scratch(_) | Mem::Shared(_) => {
                let tile = self.memory.iter().position(|placed| *placed == Some(mem));
                self.kernel.tiles[tile.expect("invariant: every array is a tile")].dtype.bytes()
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

    /// Asks for the memory of a view without coordinates.
    pub(super) fn ask_for(&mut self, view: &View) {
        let (mem, index) = self.flat(view).expect("invariant: not a register tile");
        let at = self.element_address(mem, &index);
        self.builder.prefetch(at);
    }

    /// Asks for the memory of each element of a window of constant shape.
    pub(super) fn ask_for_window(&mut self, shape: &[Index], src: &View) {
        let extents: Vec<i64> = shape
            .iter()
            .map(|extent| extent.as_const().expect("invariant: prefetched windows are constant (verifier)"))
            .collect();
        let count: i64 = extents.iter().product();
        for mut rest in 0..count {
            let mut at = vec![Index::ZERO; extents.len()];
            for (dim, extent) in extents.iter().enumerate().rev() {
                at[dim] = Index::Const(rest % extent);
                rest /= extent;
            }
            self.ask_for(&src.at(&at));
        }
    }

    pub(super) fn write(&mut self, view: &View, dim: usize, value: Value, mask: Option<Value>) {
        if let Some(slot) = self.registers_at(view, dim) {
            return self.builder.set(slot, value);
        }
        let lanes = self.builder.ty(value).lanes;
        let (mem, index) = self.flat(view).expect("invariant: not a register tile");
        let value = self.builder.convert(value, self.builder.held(mem));
        if lanes == 1 || index.stride(dim) == Stride::Constant(1) {
            let at = self.address(mem, &at_lane(&index, dim, 0));
            return self.builder.store(at, value, mask);
        }
        let (rest, base) = split_lane(&index, dim);
        let at = self.element_address(mem, &base);
        let indices = self.builder.index_vector(&rest, dim, lanes);
        self.builder.scatter(at, indices, value, mask);
    }
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
pub(super) fn at_lane(index: &Index, dim: usize, lane: u16) -> Index {
    if !index.uses_coord(dim) {
        return index.clone();
    }
    let mut coords = vec![Index::ZERO; dim + 1];
    coords[dim] = Index::Const(i64::from(lane));
    index.at(&coords)
}
