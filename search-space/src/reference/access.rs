//! Reading an operand at a point of the iteration space, directly or from a packed copy with its padding made real.

use super::ReferenceError;
use crate::workload::{Workload, row_major};

/// Columns copied together when packing transposes: two cache lines of the copy.
const STRIP: usize = 16;

/// An operand's buffer as a function of the axes.
pub(super) struct Access<'d> {
    data: &'d [f64],
    base: i64,
    /// Step in memory per axis. Arithmetic wraps: an element inside its bounds has an exact address, whatever the
    /// intermediate sums are, and no other is read.
    steps: Vec<i64>,
    bounds: Vec<Bound>,
    outside: f64,
}

struct Bound {
    offset: i64,
    coefficients: Vec<i64>,
    size: u64,
}

impl<'d> Access<'d> {
    /// Reads operand `i` of a valid workload from `data`, of `operand_len` elements; `outside` where a bound is left.
    pub(super) fn new(workload: &Workload, i: usize, data: &'d [f64], outside: f64) -> Access<'d> {
        let (base, steps) = addresses(workload, i);
        let bounded = workload.operands[i].index.iter().filter_map(|subscript| {
            let coefficients = (0..workload.axes.len()).map(|axis| subscript.coefficient(axis)).collect();
            subscript.bound.map(|size| Bound { offset: subscript.offset, coefficients, size })
        });
        Access { data, base, steps, bounds: bounded.collect(), outside }
    }

    /// The element at `coords`, one coordinate per axis.
    pub(super) fn read(&self, coords: &[u64]) -> f64 {
        // A bounded subscript cannot wrap: extents below 2^31 whose product is below 2^62 sum to less than 2^32, and
        // coefficients are below 2^31.
        let inside = self.bounds.iter().all(|bound| {
            u64::try_from(along(bound.offset, &bound.coefficients, coords)).is_ok_and(|value| value < bound.size)
        });
        if !inside {
            return self.outside;
        }
        let address = usize::try_from(along(self.base, &self.steps, coords));
        self.data[address.expect("invariant: a valid workload reads inside its operands")]
    }
}

impl Access<'_> {
    /// Appends to `line` the `count` elements along `axis` from `coords` on; one element without an axis.
    pub(super) fn read_line(&self, coords: &mut [u64], axis: Option<usize>, count: u64, line: &mut Vec<f64>) {
        let Some(axis) = axis else {
            line.push(self.read(coords));
            return;
        };
        let before = coords[axis];
        if self.bounds.is_empty() {
            let (start, step) = (along(self.base, &self.steps, coords), self.steps[axis]);
            line.extend((0..count).map(|at| {
                let address = usize::try_from(start.wrapping_add(step.wrapping_mul(at.cast_signed())));
                self.data[address.expect("invariant: a valid workload reads inside its operands")]
            }));
        } else {
            for at in before..before + count {
                coords[axis] = at;
                line.push(self.read(coords));
            }
        }
        coords[axis] = before;
    }
}

/// Base address and step per axis of operand `i` in its physical buffer.
pub(super) fn addresses(workload: &Workload, i: usize) -> (i64, Vec<i64>) {
    let mut base = 0i64;
    let mut steps = vec![0i64; workload.axes.len()];
    for (subscript, stride) in workload.operands[i].index.iter().zip(workload.operand_strides(i)) {
        let stride = stride.cast_signed();
        base = base.wrapping_add(subscript.offset.wrapping_mul(stride));
        for (axis, coefficient) in &subscript.terms {
            steps[*axis] = steps[*axis].wrapping_add(coefficient.wrapping_mul(stride));
        }
    }
    (base, steps)
}

/// `start + Σ steps · coords`, wrapping.
pub(super) fn along(start: i64, steps: &[i64], coords: &[u64]) -> i64 {
    steps.iter().zip(coords).fold(start, |sum, (step, at)| sum.wrapping_add(step.wrapping_mul(at.cast_signed())))
}

/// A dense copy of everything the subscripts can reach, padding included, so that no read needs a check.
pub(super) struct Packed {
    pub(super) data: Vec<f64>,
    pub(super) base: isize,
    /// Step in `data` per axis.
    pub(super) steps: Vec<isize>,
}

impl Packed {
    /// Packs operand `i`; the subscript that uses axis `inner` becomes contiguous.
    pub(super) fn new(
        workload: &Workload,
        i: usize,
        data: &[f64],
        inner: Option<usize>,
        outside: f64,
    ) -> Result<Packed, ReferenceError> {
        let operand = &workload.operands[i];
        let mut order: Vec<usize> = (0..operand.index.len()).collect();
        order.sort_by_key(|d| inner.is_some_and(|axis| operand.index[*d].coefficient(axis) != 0));
        let ranges: Vec<(i128, i128)> = order.iter().map(|d| workload.subscript_range(&operand.index[*d])).collect();
        let elements =
            ranges.iter().try_fold(1u128, |product, (lo, hi)| product.checked_mul((hi - lo + 1).cast_unsigned()));
        let elements = elements.unwrap_or(u128::MAX);
        let total = usize::try_from(elements).ok().filter(|total| *total as u64 <= super::MAX_ELEMENTS);
        let total = total.ok_or_else(|| ReferenceError::TooLarge { operand: operand.name.clone(), elements })?;
        let small = "invariant: the product of the sizes is at most 2^30";
        let size = |(lo, hi): &(i128, i128)| u64::try_from(hi - lo + 1).expect(small);
        let shape: Vec<u64> = ranges.iter().map(size).collect();
        let strides: Vec<isize> =
            row_major(&shape).iter().map(|stride| isize::try_from(*stride).expect(small)).collect();

        let mut packed = Packed { data: vec![outside; total], base: 0, steps: vec![0; workload.axes.len()] };
        for ((d, (lo, _)), stride) in order.iter().zip(&ranges).zip(&strides) {
            let subscript = &operand.index[*d];
            let first = isize::try_from(i128::from(subscript.offset) - lo).expect(small);
            packed.base += first * stride;
            // An axis of extent 1 never moves; its coefficient may be any number.
            for (axis, coefficient) in subscript.terms.iter().filter(|term| workload.axes[term.0].extent.max() > 1) {
                packed.steps[*axis] += isize::try_from(*coefficient).expect(small) * stride;
            }
        }

        // Copy row by row what lies inside the operand; the rest keeps `outside`. When another dimension became the
        // contiguous one this is a transposition, done in strips so that each cache line is used while it is there.
        let sizes = workload.operand_shape(i);
        let memory = workload.operand_strides(i);
        let low = |d: usize| i64::try_from(ranges[d].0).expect("invariant: bounded subscripts fit 64 bits");
        let inside = |d: usize, at: u64| {
            let value = low(d).wrapping_add(at.cast_signed());
            u64::try_from(value).ok().filter(|value| *value < sizes[order[d]])
        };
        let Some(last) = shape.len().checked_sub(1) else {
            packed.data.copy_from_slice(data);
            return Ok(packed);
        };
        let width = usize::try_from(shape[last]).expect(small);
        let strip = if order[last] == last { width } else { STRIP };
        // Columns inside the operand.
        let column = |value: i64| usize::try_from(value.saturating_sub(low(last))).unwrap_or(0).min(width);
        let columns = column(0)..column(sizes[order[last]].cast_signed());
        let memory_step = usize::try_from(memory[order[last]]).expect(small);
        for first in (0..width).step_by(strip) {
            let (from, to) = (first.max(columns.start), (first + strip).min(columns.end));
            let mut at = vec![0u64; last];
            for row in packed.data.chunks_mut(width) {
                let start = (0..last).try_fold(0u64, |sum, d| Some(sum + inside(d, at[d])? * memory[order[d]]));
                if let (Some(start), true) = (start, from < to) {
                    let step = inside(last, from as u64).expect("invariant: columns are inside");
                    let address = usize::try_from(start + step * memory[order[last]]);
                    let address = address.expect("invariant: the buffer is in memory");
                    if memory_step == 1 {
                        row[from..to].copy_from_slice(&data[address..address + to - from]);
                    } else {
                        let places = row[from..to].iter_mut().enumerate();
                        places.for_each(|(i, place)| *place = data[address + i * memory_step]);
                    }
                }
                advance(&mut at, &shape[..last]);
            }
        }
        Ok(packed)
    }
}

/// Steps `at` to the next point below `extents`, last coordinate fastest; false when it wrapped to the first.
pub(super) fn advance(at: &mut [u64], extents: &[u64]) -> bool {
    for (coordinate, extent) in at.iter_mut().zip(extents).rev() {
        *coordinate += 1;
        if *coordinate < *extent {
            return true;
        }
        *coordinate = 0;
    }
    false
}

/// Moves `coords` to `values` along `axes`.
pub(super) fn set(coords: &mut [u64], axes: &[usize], values: &[u64]) {
    for (axis, value) in axes.iter().zip(values) {
        coords[*axis] = *value;
    }
}
