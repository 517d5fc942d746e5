//! Contractions on register tiles: which elements of the factors a lane loads at each step of k, and how.

use std::collections::BTreeMap;

use super::access::{At, Bound};
use super::registers::{Registers, gcd};
use super::{Home, Scope, SimtError};
use crate::index::Index;
use crate::lane::Value;
use crate::lane::build::Builder;
use crate::tile::View;

/// Coordinates of a contraction are `(m, n, k)`.
const K: usize = 2;

/// One factor as a lane sees it: at each step of k it needs the elements at `starts` along its own dimension.
struct Factor {
    bound: Bound,
    dim: usize,
    /// Constant part of the coordinate of each vector (or element), ascending.
    starts: Vec<i64>,
    /// Elements of a vector; 1 for scalars.
    width: u16,
    load: Load,
    /// Vectors along k that later steps take elements of.
    held: Vec<Value>,
}

/// How the elements are brought in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    /// One load each, scalar or vector.
    Each,
    /// Vectors that are no run of memory.
    Gather,
    /// One vector for this many neighbouring scalars.
    Neighbours(u16),
    /// One vector for this many steps of k.
    Steps(u16),
}

/// Lowers `acc[m, n] += Σ_k a[m, k] · b[k, n]`.
pub(super) fn lower(
    scope: &Scope,
    b: &mut Builder,
    shape: &[Index; 3],
    acc: usize,
    left: &View,
    right: &View,
    unroll: u64,
) -> Result<(), SimtError> {
    let Home::Registers(registers) = &scope.homes[acc] else {
        return Err(scope.unsupported("a contraction into memory"));
    };
    let extents = scope.window(shape)?;
    let unroll = i64::try_from(unroll.max(1)).unwrap_or(extents[K]).min(extents[K]);
    let slots: BTreeMap<(i64, i64), usize> =
        registers.offsets.iter().enumerate().map(|(slot, offset)| ((offset[0], offset[1]), slot)).collect();
    // A tail of k begins at a multiple of `unroll` too, but its steps need not fill a vector along k.
    let steps = if extents[K] % unroll == 0 { unroll } else { gcd(unroll, extents[K]) };
    let left = Factor::new(scope, registers, left, 0, steps)?;
    let right = Factor::new(scope, registers, right, 1, steps)?;
    let mut factors = (left, right);
    let hi = b.index_const(extents[K]);
    scope.steps(b, hi, u64::try_from(unroll).unwrap_or(1), |b, at, copy| {
        let at = scope.names.index(b, at);
        step(b, registers, &slots, &mut factors, at, copy, unroll);
        Ok(())
    })
}

/// One step of k: `k = at + copy`, where `at` is a multiple of `unroll`.
fn step(
    b: &mut Builder,
    registers: &Registers,
    slots: &BTreeMap<(i64, i64), usize>,
    (left, right): &mut (Factor, Factor),
    at: Index,
    copy: i64,
    unroll: i64,
) {
    let factors = [registers.factors[0], registers.factors[1], at.as_const().unwrap_or(unroll)];
    let coords = [registers.base[0].clone(), registers.base[1].clone(), at];
    let at = At { coords: &coords, factors: &factors, inside: None };
    let columns = right.values(b, &at, copy);
    let rows = left.values(b, &at, copy);
    for (&m, &a) in left.starts.iter().zip(&rows) {
        let a = b.splat(a, right.width);
        for (&n, &column) in right.starts.iter().zip(&columns) {
            let slot = registers.slots[slots[&(m, n)]];
            let sum = b.read(slot);
            let sum = b.fma(a, column, sum);
            b.set(slot, sum);
        }
    }
}

impl Factor {
    fn new(scope: &Scope, registers: &Registers, view: &View, dim: usize, steps: i64) -> Result<Factor, SimtError> {
        let bound = scope.bound(view)?;
        let mut starts: Vec<i64> = registers.offsets.iter().map(|offset| offset[dim]).collect();
        starts.sort_unstable();
        starts.dedup();
        let width = if dim == 1 { registers.width } else { 1 };
        // Loads of a step of k begin at a multiple of `steps`, whichever loop or tail they are in.
        let factors = [registers.factors[0], registers.factors[1], steps];
        let at = At { coords: &[], factors: &factors, inside: None };
        let is_run = |start: i64, along: usize, width: u16| bound.moved(dim, start).is_run(&at, along, width);
        let neighbours = |width: u16| {
            starts.len().is_multiple_of(usize::from(width))
                && starts.chunks(usize::from(width)).all(|run| {
                    let consecutive = run.windows(2).all(|pair| pair[1] == pair[0] + 1);
                    consecutive && is_run(run[0], dim, width)
                })
        };
        let along_k = |width: u16| steps % i64::from(width) == 0 && starts.iter().all(|&start| is_run(start, K, width));
        let load = if width > 1 {
            if starts.iter().all(|&start| is_run(start, dim, width)) { Load::Each } else { Load::Gather }
        } else if let Some(width) = [4, 2].into_iter().find(|&width| neighbours(width)) {
            Load::Neighbours(width)
        } else if let Some(width) = [4, 2].into_iter().find(|&width| along_k(width)) {
            Load::Steps(width)
        } else {
            Load::Each
        };
        Ok(Factor { bound, dim, starts, width, load, held: Vec::new() })
    }

    /// The values at step `k = at + copy`, one for each start.
    fn values(&mut self, b: &mut Builder, at: &At, copy: i64) -> Vec<Value> {
        let here = |start: i64| {
            let mut offsets = [0, 0, copy];
            offsets[self.dim] = start;
            self.bound.shifted(&offsets)
        };
        match self.load {
            Load::Each => self.starts.iter().map(|&start| here(start).load(b, at, self.width)).collect(),
            Load::Gather => self.starts.iter().map(|&start| here(start).gather(b, at, self.dim, self.width)).collect(),
            Load::Neighbours(width) => {
                let mut values = Vec::with_capacity(self.starts.len());
                for run in self.starts.chunks(usize::from(width)) {
                    let vector = here(run[0]).load(b, at, width);
                    values.extend((0..width).map(|element| b.extract(vector, element)));
                }
                values
            }
            Load::Steps(width) => {
                let element = copy % i64::from(width);
                if element == 0 {
                    self.held = self.starts.iter().map(|&start| here(start).load(b, at, width)).collect();
                }
                let element = u16::try_from(element).unwrap_or(0);
                self.held.iter().map(|&vector| b.extract(vector, element)).collect()
            }
        }
    }
}
