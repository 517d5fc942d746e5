//! Contractions of bytes whose instruction sums four products in each lane: words of four steps of k.
//!
//! The instruction multiplies unsigned bytes by signed ones. Where both are signed, 128 is added to those of `a`, which
//! flips one bit, and 128 times the sum of `b` is taken from the result: one more instruction per vector of `b`.

use super::Lowering;
use super::matrix::Panel;
use crate::atoms::Atom;
use crate::index::Index;
use crate::lane::{BinOp, Elem, Type, Value};
use crate::tile::View;
use search_space::workload::DType;

/// The sign bit of each byte of a word.
const SIGNS: i64 = 0x8080_8080_u32.cast_signed() as i64;

impl Lowering<'_> {
    pub(super) fn byte_sums(
        &mut self,
        depth: &Index,
        acc: usize,
        [a, b]: [&View; 2],
        atom: &Atom,
        unroll: u64,
        prefetch: u64,
    ) {
        let registers = self.registers[acc].clone().expect("invariant: accumulators are register tiles (verifier)");
        let (rows, vectors) = (registers.slots.len(), registers.slots[0].len());
        let lanes = registers.lanes;
        let step = i64::try_from(atom.shape.2).expect("invariant: atoms are small");
        let at = |position: usize| i64::try_from(position).expect("invariant: register tiles are small");
        let row_panels: Vec<Panel> = (0..rows).map(|row| self.panel(a, [at(row), 0], step, [0, 0], 0)).collect();
        let start = |vector: usize| at(vector) * i64::from(lanes);
        let col_panels: Vec<Panel> = (0..vectors).map(|v| self.panel(b, [0, start(v)], step, [0, 0], 0)).collect();
        let words = Type { elem: Elem::I32, lanes };
        let flipped = atom.factors == [DType::I8, DType::I8];
        let signs = self.builder.int(words, SIGNS);
        let zero = self.builder.int(words, 0);
        let excess: Vec<_> = (0..if flipped { vectors } else { 0 }).map(|_| self.builder.slot(words)).collect();
        for slot in &excess {
            self.builder.set(*slot, zero);
        }
        let trips = self.builder.index(&depth.clone().floor_div(step));
        let unroll = i64::try_from(unroll).expect("invariant: unroll factors are small");
        self.unrolled(trips, unroll, &mut |this, at| {
            let columns: Vec<Value> = col_panels.iter().map(|panel| this.word(panel, at.clone(), lanes)).collect();
            if prefetch > 0 {
                for panel in &col_panels {
                    let line = this.block_at(panel, at.clone() + Index::of(prefetch), 0);
                    this.builder.prefetch(line);
                }
            }
            for (slot, &column) in excess.iter().zip(&columns) {
                this.add_dot(*slot, signs, column);
            }
            for (row, panel) in row_panels.iter().enumerate() {
                let word = this.word(panel, at.clone(), 1);
                let mut splat = this.builder.splat(word, lanes);
                if flipped {
                    splat = this.builder.bin(BinOp::Xor, splat, signs);
                }
                for (vector, &column) in columns.iter().enumerate() {
                    let slot = registers.slots[row][vector];
                    // The unsigned factor comes first.
                    match atom.factors {
                        [DType::I8, DType::U8] => this.add_dot(slot, column, splat),
                        _ => this.add_dot(slot, splat, column),
                    }
                }
            }
            this.builder.seam();
        });
        for (vector, slot) in excess.into_iter().enumerate() {
            let excess = self.builder.read(slot);
            for row in &registers.slots {
                let sum = self.builder.read(row[vector]);
                let sum = self.builder.bin(BinOp::Sub, sum, excess);
                self.builder.set(row[vector], sum);
            }
        }
    }

    /// Words of four bytes that follow each other.
    fn word(&mut self, panel: &Panel, step: Index, lanes: u16) -> Value {
        let at = self.block_at(panel, step, 0);
        let bytes = self.builder.load(at, 4 * lanes, None);
        self.builder.reinterpret(bytes, Type { elem: Elem::I32, lanes })
    }

    /// `slot += unsigned · signed`.
    fn add_dot(&mut self, slot: crate::lane::Slot, unsigned: Value, signed: Value) {
        let bytes = |elem, lanes: u16| Type { elem, lanes: 4 * lanes };
        let lanes = self.builder.ty(unsigned).lanes;
        let unsigned = self.builder.reinterpret(unsigned, bytes(Elem::U8, lanes));
        let signed = self.builder.reinterpret(signed, bytes(Elem::I8, lanes));
        let sum = self.builder.read(slot);
        let sum = self.builder.dot(sum, unsigned, signed);
        self.builder.set(slot, sum);
    }
}
