//! Register tiles: which coordinates the slots of a lane stand for.

use super::Names;
use crate::index::Index;
use crate::lane::build::Builder;
use crate::lane::{BinOp, Builtin, Slot, Type};
use crate::layout::{Distribution, Mode};

/// The part of a register tile that one lane holds. Slot `i` holds `width` consecutive elements along the last
/// dimension, the first of them at coordinate `base + offsets[i]`.
pub(super) struct Registers {
    /// Slots, vectors of `width` elements.
    pub(super) slots: Vec<Slot>,
    /// Elements of a slot: 1, 2 or 4.
    pub(super) width: u16,
    /// Constant part of the coordinate of each slot's first element.
    pub(super) offsets: Vec<Vec<i64>>,
    /// Part of each coordinate that depends on the lane.
    pub(super) base: Vec<Index>,
    /// A number that divides `base`, for each dimension; 0 when the base is 0.
    pub(super) factors: Vec<i64>,
}

impl Registers {
    /// Declares the slots. `None` when the distribution is not a bijection from coordinates to lanes times values, or
    /// splits its dimensions differently for lanes and for values.
    pub(super) fn new(b: &mut Builder, names: &Names, distribution: &Distribution, lanes: u64) -> Option<Registers> {
        let (lane_dims, value_dims) = (&distribution.lanes.dims, &distribution.values.dims);
        if lane_dims.len() != value_dims.len() || !distribution.is_injective() {
            return None;
        }
        let elements: u64 = distribution.lanes.shape().iter().product();
        let per_lane = elements / lanes;
        if !elements.is_multiple_of(lanes)
            || distribution.values_per_lane() != per_lane
            || distribution.lanes.span() > lanes
        {
            return None;
        }
        let lane = b.builtin(Builtin::Lane);
        let (mut base, mut factors) = (Vec::new(), Vec::new());
        // Digits held as values: (dimension, coordinate step, extent, value stride).
        let mut digits = Vec::new();
        for (dim, (lane_modes, value_modes)) in lane_dims.iter().zip(value_dims).enumerate() {
            if lane_modes.len() != value_modes.len() {
                return None;
            }
            let (mut coordinate, mut factor, mut inner) = (b.index_const(0), 0, 1u64);
            for (&Mode { extent, stride }, value) in lane_modes.iter().zip(value_modes) {
                if extent != value.extent || (extent > 1 && (stride == 0) == (value.stride == 0)) {
                    return None;
                }
                if extent > 1 && stride > 0 {
                    let (stride_value, extent_value) = (b.index_const(signed(stride)), b.index_const(signed(extent)));
                    let digit = b.bin(BinOp::Div, lane, stride_value);
                    // The outermost digit of the lane number needs no remainder.
                    let digit = if stride * extent == lanes { digit } else { b.bin(BinOp::Rem, digit, extent_value) };
                    let step = b.index_const(signed(inner));
                    let part = b.bin(BinOp::Mul, digit, step);
                    coordinate = b.bin(BinOp::Add, coordinate, part);
                    factor = gcd(factor, signed(inner));
                } else if extent > 1 {
                    digits.push((dim, signed(inner), extent, value.stride));
                }
                inner *= extent;
            }
            base.push(names.index(b, coordinate));
            factors.push(factor);
        }
        let last = lane_dims.len() - 1;
        let run = digits.iter().find(|&&(dim, step, _, stride)| (dim, step, stride) == (last, 1, 1));
        let width =
            [4, 2].into_iter().find(|width| run.is_some_and(|&(_, _, extent, _)| extent.is_multiple_of(*width)));
        let width = width.unwrap_or(1);
        let mut offsets = vec![Vec::new(); usize::try_from(per_lane / width).ok()?];
        for mut number in 0..per_lane {
            let (mut offset, mut value) = (vec![0; lane_dims.len()], 0);
            for &(dim, step, extent, stride) in &digits {
                offset[dim] += step * signed(number % extent);
                value += stride * (number % extent);
                number /= extent;
            }
            if value.is_multiple_of(width) {
                offsets[usize::try_from(value / width).ok()?] = offset;
            }
        }
        let width = u16::try_from(width).ok()?;
        let slots = offsets.iter().map(|_| b.slot(Type::F32.with_lanes(width))).collect();
        Some(Registers { slots, width, offsets, base, factors })
    }
}

/// Greatest common divisor; `gcd(0, x) = x`.
pub(super) fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).expect("invariant: extents are below 2^62")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use crate::tile::Phase;

    fn modes(list: &[(u64, u64)]) -> Vec<Mode> {
        list.iter().map(|&(extent, stride)| Mode { extent, stride }).collect()
    }

    fn distribution(lanes: [&[(u64, u64)]; 2], values: [&[(u64, u64)]; 2]) -> Distribution {
        let layout = |dims: [&[(u64, u64)]; 2]| Layout { dims: dims.map(modes).to_vec(), swizzle: None };
        Distribution { lanes: layout(lanes), values: layout(values) }
    }

    #[test]
    fn offsets_follow_the_layout() {
        // Rows: 2 values inside 2 lanes; columns: runs of 4, then 3 lanes, then 2 runs.
        let spread = distribution(
            [&[(2, 0), (2, 3)], &[(4, 0), (3, 1), (2, 0)]],
            [&[(2, 8), (2, 0)], &[(4, 1), (3, 0), (2, 4)]],
        );
        let mut b = Builder::new("k", Phase::Run, Vec::new(), [6, 1, 1]);
        let registers = Registers::new(&mut b, &Names::after(0), &spread, 6).unwrap();
        assert_eq!((registers.width, registers.slots.len()), (4, 4));
        assert_eq!(registers.offsets, [[0, 0], [0, 12], [1, 0], [1, 12]]);
        assert_eq!(registers.factors, [2, 4]);
    }

    #[test]
    fn uneven_distributions_are_refused() {
        let mut b = Builder::new("k", Phase::Run, Vec::new(), [4, 1, 1]);
        // Two lanes hold everything: lanes 2 and 3 would be idle.
        let half = distribution([&[(2, 1)], &[(4, 0)]], [&[(2, 0)], &[(4, 1)]]);
        assert!(Registers::new(&mut b, &Names::after(0), &half, 4).is_none());
        assert!(Registers::new(&mut b, &Names::after(0), &half, 2).is_some());
        // Two coordinates in one place.
        let twice = distribution([&[(2, 1)], &[(2, 0)]], [&[(2, 0)], &[(2, 0)]]);
        assert!(Registers::new(&mut b, &Names::after(0), &twice, 2).is_none());
    }
}
