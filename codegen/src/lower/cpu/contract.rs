//! Contractions into register tiles.

use super::Lowering;
use crate::atoms::Atom;
use crate::index::Index;
use crate::lane::{BinOp, Value};
use crate::tile::{Guard, View};

/// What a contraction does beside multiplying.
#[derive(Clone, Copy)]
pub(super) struct Beside<'v> {
    /// Steps of k that the vectors are asked for ahead.
    pub steps: u64,
    /// Where the vectors are written, too.
    pub keep: Option<&'v View>,
}

impl Lowering<'_> {
    pub(super) fn contract(
        &mut self,
        shape: &[Index; 3],
        acc: usize,
        [a, b]: [&View; 2],
        atom: &Atom,
        unroll: u64,
        beside: Beside,
    ) {
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
                    let at = [Index::ZERO, coord, k.clone()];
                    let view = b.at(&at);
                    let left = columns - start;
                    let partial = (left < i64::from(lanes)).then(|| {
                        let guard = Guard { index: Index::Coord(1), bound: Index::Const(left) };
                        this.guard_mask(&guard, 1, lanes)
                    });
                    let mask = this.mask(&view, 1, lanes, partial);
                    let value = this.read(&view, 1, lanes, mask);
                    if let Some(keep) = beside.keep {
                        let panel = keep.at(&at);
                        let mask = this.mask(&panel, 1, lanes, partial);
                        this.write(&panel, 1, value, mask);
                    }
                    value
                })
                .collect();
            if beside.steps > 0 {
                let later = k.clone() + Index::of(beside.steps);
                for vector in 0..vectors {
                    let start = i64::try_from(vector).expect("invariant: few vectors") * i64::from(lanes);
                    this.ask_for(&b.at(&[Index::ZERO, Index::Const(start), later.clone()]));
                }
            }
            for row in 0..rows {
                let at = Index::Const(i64::try_from(row).expect("invariant: few rows"));
                let view = a.at(&[at, Index::ZERO, k.clone()]);
                let mask = this.mask(&view, usize::MAX, 1, None);
                let scalar = this.read(&view, usize::MAX, 1, mask);
                let splat = this.builder.splat(scalar, lanes);
                for (vector, &column) in columns_of.iter().enumerate() {
                    let slot = registers.slots[row][vector];
                    let sum = this.builder.read(slot);
                    let sum = this.multiply_add(splat, column, sum);
                    this.builder.set(slot, sum);
                }
            }
            // The loads of the next step stay behind this one, or their values take the registers of accumulators.
            this.builder.seam();
        });
    }

    fn multiply_add(&mut self, a: Value, b: Value, sum: Value) -> Value {
        if self.fused && self.builder.ty(sum).elem.is_float() {
            return self.builder.fma(a, b, sum);
        }
        let product = self.builder.bin(BinOp::Mul, a, b);
        self.builder.bin(BinOp::Add, product, sum)
    }
}
