//! A fast hash for short integer keys that this crate itself made. Not for keys from outside, and never iterated:
//! every map built on it is only looked up, so no order can reach a result.
//!
//! Each word is mixed by a multiplication whose two halves are folded together, so that every bit of a key reaches every
//! bit of the hash. (A hash that only carries upwards piles up sums that differ in few coefficients.)
//!
//! Source: the mixing step of wyhash (Wang Yi).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A look-up table with the fast hash.
pub(super) type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<FastHasher>>;

/// State of the hash.
#[derive(Clone, Copy, Default)]
pub(super) struct FastHasher(u64);

impl FastHasher {
    fn add(&mut self, word: u64) {
        let wide = u128::from(self.0 ^ word ^ 0xa076_1d64_78bd_642f) * 0xe703_7ed1_a0b4_28db;
        #[expect(clippy::cast_possible_truncation, reason = "both halves are wanted")]
        let (low, high) = (wide as u64, (wide >> 64) as u64);
        self.0 = low ^ high;
    }
}

impl Hasher for FastHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.add(u64::from_le_bytes(chunk.try_into().expect("invariant: chunks of eight bytes")));
        }
        for &byte in chunks.remainder() {
            self.add(u64::from(byte));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.add(u64::from(value));
    }

    fn write_u16(&mut self, value: u16) {
        self.add(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.add(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.add(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.add(value as u64);
    }
}
