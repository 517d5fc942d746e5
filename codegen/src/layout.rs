//! Layouts: from a tile coordinate to an offset in memory, or to the lane and value slot that hold it.
//!
//! Each dimension of a tile is a list of *modes* `(extent:stride)`, innermost first: the coordinate is split into digits
//! of these extents and the digits are weighted with the strides. An optional xor-swizzle is applied to the offset.
//! Row-major, column-major, blocked, panel-packed and padded layouts are all of this form. Questions (injective?
//! which vector width? bank conflicts?) are answered by enumeration: tiles are small.

use std::fmt;

use crate::index::Index;

/// `extent` digits, `stride` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mode {
    /// Number of values of the digit.
    pub extent: u64,
    /// Weight of the digit.
    pub stride: u64,
}

/// `offset ^= ((offset >> shift) & (2^bits − 1)) << base`, which spreads rows over the banks of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Swizzle {
    /// How many bits are mixed.
    pub bits: u32,
    /// Lowest bit that changes.
    pub base: u32,
    /// Distance to the bits mixed in, from bit 0 of the offset.
    pub shift: u32,
}

/// Tile coordinate → offset.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Modes of each dimension, innermost digit first.
    pub dims: Vec<Vec<Mode>>,
    /// Applied to the offset.
    pub swizzle: Option<Swizzle>,
}

/// Register tiles: coordinate → lane of the workgroup, and → slot among the values that lane holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Distribution {
    /// Coordinate → lane (linear index in the workgroup, x fastest).
    pub lanes: Layout,
    /// Coordinate → value slot.
    pub values: Layout,
}

impl Layout {
    /// Dimensions of plain strides.
    pub fn strided(shape: &[u64], strides: &[u64]) -> Layout {
        let dims = shape.iter().zip(strides).map(|(&extent, &stride)| vec![Mode { extent, stride }]).collect();
        Layout { dims, swizzle: None }
    }

    /// Last dimension contiguous, rows `pad` elements longer than needed.
    pub fn row_major(shape: &[u64], pad: u64) -> Layout {
        let mut strides = vec![1; shape.len()];
        for dim in (0..shape.len().saturating_sub(1)).rev() {
            strides[dim] = strides[dim + 1] * (shape[dim + 1] + if dim + 2 == shape.len() { pad } else { 0 });
        }
        Layout::strided(shape, &strides)
    }

    /// Two dimensions `[rows, columns]` stored as panels of `width` columns: inside a panel the columns are
    /// contiguous and rows follow each other, panels follow each other. `columns` must be a multiple of `width`.
    pub fn panels(rows: u64, columns: u64, width: u64) -> Layout {
        assert!(width > 0 && columns.is_multiple_of(width), "invariant: panels divide the columns");
        let inner = Mode { extent: width, stride: 1 };
        let outer = Mode { extent: columns / width, stride: rows * width };
        Layout { dims: vec![vec![Mode { extent: rows, stride: width }], vec![inner, outer]], swizzle: None }
    }

    /// Extent of each dimension.
    pub fn shape(&self) -> Vec<u64> {
        self.dims.iter().map(|modes| modes.iter().map(|mode| mode.extent).product()).collect()
    }

    /// The offset of a coordinate.
    pub fn offset(&self, coord: &[u64]) -> u64 {
        let mut offset = 0;
        for (modes, &value) in self.dims.iter().zip(coord) {
            let mut rest = value;
            for (position, mode) in modes.iter().enumerate() {
                // The outermost digit is not reduced, so that a coordinate outside stays recognisable.
                let digit = if position + 1 == modes.len() { rest } else { rest % mode.extent };
                offset += digit * mode.stride;
                rest /= mode.extent;
            }
        }
        match self.swizzle {
            None => offset,
            Some(Swizzle { bits, base, shift }) => offset ^ (((offset >> shift) & ((1 << bits) - 1)) << base),
        }
    }

    /// The offset as an index expression.
    pub fn index(&self, coord: &[Index]) -> Index {
        let mut offset = Index::ZERO;
        for (modes, value) in self.dims.iter().zip(coord) {
            let mut inner = 1;
            for (position, mode) in modes.iter().enumerate() {
                let extent = signed(mode.extent);
                let rest = value.clone().floor_div(inner);
                let digit = if position + 1 == modes.len() { rest } else { rest.modulo(extent) };
                offset = offset + digit * Index::of(mode.stride);
                inner *= extent;
            }
        }
        match self.swizzle {
            None => offset,
            Some(Swizzle { bits, base, shift }) => {
                let mixed = offset.clone().floor_div(1 << shift).modulo(1 << bits) * Index::Const(1 << base);
                offset.xor(mixed)
            }
        }
    }

    /// One more than the largest offset: elements to allocate.
    pub fn span(&self) -> u64 {
        if self.swizzle.is_some() {
            return self.coords().map(|coord| self.offset(&coord) + 1).max().unwrap_or(0);
        }
        1 + self.dims.iter().flatten().map(|mode| (mode.extent - 1) * mode.stride).sum::<u64>()
    }

    /// Whether no two coordinates share an offset.
    pub fn is_injective(&self) -> bool {
        // Strides that each step over all smaller digits need no enumeration. A swizzle that reads only bits above those
        // it changes is a permutation.
        let permutes = self.swizzle.is_none_or(|swizzle| swizzle.base + swizzle.bits <= swizzle.shift);
        let mut modes: Vec<Mode> = self.dims.iter().flatten().copied().filter(|mode| mode.extent > 1).collect();
        modes.sort_unstable_by_key(|mode| mode.stride);
        let mut reach = 0;
        let nested = modes.iter().all(|mode| {
            let steps_over = mode.stride > reach;
            reach += (mode.extent - 1) * mode.stride;
            steps_over
        });
        if nested && permutes {
            return true;
        }
        let mut offsets: Vec<u64> = self.coords().map(|coord| self.offset(&coord)).collect();
        let total = offsets.len();
        offsets.sort_unstable();
        offsets.dedup();
        offsets.len() == total
    }

    /// Largest power of two `w` so that each aligned run of `w` coordinates along `dim` is contiguous in memory.
    pub fn vector_width(&self, dim: usize) -> u64 {
        let shape = self.shape();
        let mut width = 1;
        while shape[dim].is_multiple_of(width * 2) {
            let next = width * 2;
            let contiguous = self.coords().all(|mut coord| {
                let here = self.offset(&coord);
                let within = coord[dim] % next;
                coord[dim] -= within;
                let start = self.offset(&coord);
                here == start + within && start.is_multiple_of(next)
            });
            if !contiguous {
                break;
            }
            width = next;
        }
        width
    }

    /// Most lanes that hit the same one of `banks` banks (4-byte words) when `lanes` consecutive coordinates along
    /// `dim` are accessed at once: 1 is conflict-free.
    pub fn bank_conflicts(&self, dim: usize, lanes: u64, banks: u64) -> u64 {
        let mut coord = vec![0; self.dims.len()];
        let mut hits = vec![Vec::new(); usize::try_from(banks).expect("invariant: few banks")];
        for lane in 0..lanes.min(self.shape()[dim]) {
            coord[dim] = lane;
            let offset = self.offset(&coord);
            let bank = &mut hits[usize::try_from(offset % banks).expect("invariant: few banks")];
            if !bank.contains(&offset) {
                bank.push(offset);
            }
        }
        hits.iter().map(|bank| bank.len() as u64).max().unwrap_or(0)
    }

    /// All coordinates, last dimension fastest.
    pub fn coords(&self) -> impl Iterator<Item = Vec<u64>> {
        let shape = self.shape();
        let total: u64 = shape.iter().product();
        (0..total).map(move |mut rest| {
            let mut coord = vec![0; shape.len()];
            for dim in (0..shape.len()).rev() {
                coord[dim] = rest % shape[dim];
                rest /= shape[dim];
            }
            coord
        })
    }
}

impl Distribution {
    /// Everything in one lane, last dimension fastest.
    pub fn single_lane(shape: &[u64]) -> Distribution {
        Distribution { lanes: Layout::strided(shape, &vec![0; shape.len()]), values: Layout::row_major(shape, 0) }
    }

    /// Whether each coordinate has its own (lane, value).
    pub fn is_injective(&self) -> bool {
        let mut seen: Vec<(u64, u64)> =
            self.lanes.coords().map(|coord| (self.lanes.offset(&coord), self.values.offset(&coord))).collect();
        let total = seen.len();
        seen.sort_unstable();
        seen.dedup();
        seen.len() == total
    }

    /// How many values one lane holds.
    pub fn values_per_lane(&self) -> u64 {
        self.values.span()
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (dim, modes) in self.dims.iter().enumerate() {
            f.write_str(if dim > 0 { ", " } else { "" })?;
            for (position, mode) in modes.iter().enumerate() {
                write!(f, "{}{}:{}", if position > 0 { " " } else { "" }, mode.extent, mode.stride)?;
            }
        }
        f.write_str("]")?;
        match self.swizzle {
            None => Ok(()),
            Some(Swizzle { bits, base, shift }) => write!(f, "^{bits},{base},{shift}"),
        }
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).expect("invariant: extents are below 2^62")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panel_offsets_match_a_literal_table() {
        let layout = Layout::panels(2, 4, 2);
        let offsets: Vec<u64> = layout.coords().map(|coord| layout.offset(&coord)).collect();
        // [row, column]: panel 0 holds columns 0 and 1 of both rows, then panel 1.
        assert_eq!(offsets, [0, 1, 4, 5, 2, 3, 6, 7]);
        assert!(layout.is_injective());
        assert_eq!((layout.span(), layout.vector_width(1), layout.vector_width(0)), (8, 2, 1));
        assert_eq!(layout.to_string(), "[2:2, 2:1 2:4]");
    }

    #[test]
    fn index_expression_agrees_with_offset() {
        let swizzled =
            Layout { swizzle: Some(Swizzle { bits: 2, base: 0, shift: 3 }), ..Layout::row_major(&[4, 8], 0) };
        for layout in [Layout::panels(3, 12, 4), Layout::row_major(&[3, 5], 3), swizzled] {
            let index = layout.index(&[Index::Coord(0), Index::Coord(1)]);
            assert!(layout.is_injective());
            for coord in layout.coords() {
                let signed: Vec<i64> = coord.iter().map(|&c| c as i64).collect();
                assert_eq!(index.eval(&|_| 0, &signed), layout.offset(&coord) as i64);
            }
        }
    }

    #[test]
    fn overlapping_strides_are_found() {
        // A swizzle that reads the bits it changes maps offsets 2 and 3 to one place.
        let folded = Swizzle { bits: 1, base: 1, shift: 1 };
        assert!(!Layout { swizzle: Some(folded), ..Layout::strided(&[4], &[1]) }.is_injective());
        assert!(!Layout::strided(&[4, 4], &[2, 1]).is_injective());
        assert!(
            !Distribution { lanes: Layout::strided(&[4], &[0]), values: Layout::strided(&[4], &[0]) }.is_injective()
        );
    }

    #[test]
    fn padding_and_swizzle_remove_bank_conflicts() {
        let plain = Layout::row_major(&[32, 32], 0);
        assert_eq!(plain.bank_conflicts(0, 32, 32), 32);
        assert_eq!(Layout::row_major(&[32, 32], 1).bank_conflicts(0, 32, 32), 1);
        let swizzled = Layout { swizzle: Some(Swizzle { bits: 5, base: 0, shift: 5 }), ..plain };
        assert_eq!(swizzled.bank_conflicts(0, 32, 32), 1);
    }
}
