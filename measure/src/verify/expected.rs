//! Expected outputs, in full or at chosen points, and the comparison.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use search_space::workload::DType;
use search_space::{Workload, reference};

use super::inputs::{Inputs, decode, decode_one, encode, width};
use super::shelf::Bytes;
use super::tolerance::Tolerance;

/// Most chosen points, and most multiply-adds spent on them: some tenth of a second.
pub(super) const MAX_POINTS: usize = 1 << 12;
const POINT_MADDS: u64 = 1 << 24;
/// Elements of a full comparison that are decoded together.
const BLOCK: usize = 1 << 12;

/// How values are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Class {
    /// Equal as numbers of the output's type.
    Bits,
    /// The same class (NaN, infinity of a sign, finite), and finite ones within a tolerance and one unit of the output's
    /// type.
    Within(Tolerance),
}

/// What an output must hold.
#[derive(Debug)]
pub(super) struct Expected {
    dtype: DType,
    class: Class,
    /// `None`: the values are the whole buffer. Otherwise the positions they belong to, 64 bits each.
    positions: Option<Bytes>,
    /// As `f64`.
    values: Bytes,
}

impl Expected {
    /// Evaluates the reference, in full up to `full_madds` multiply-adds, beyond that at `most_points` points.
    pub(super) fn new(
        workload: &Workload,
        inputs: &Inputs,
        full_madds: u64,
        most_points: usize,
        class: Class,
    ) -> Result<Expected, String> {
        let output = workload.outputs()[0];
        let dtype = workload.operands[output].dtype;
        let data = inputs.values();
        if super::workload_madds(workload) <= full_madds {
            let mut outputs = reference::evaluate(workload, &data).map_err(|error| error.to_string())?;
            let values = Bytes::Own(encode(DType::F64, &mut outputs.swap_remove(0)));
            return Ok(Expected { dtype, class, positions: None, values });
        }
        let points = points(workload, most_points);
        let mut values = reference::evaluate_points(workload, &data, &points).map_err(|error| error.to_string())?;
        let position = |point: &Vec<u64>| {
            let address = reference::output_address(workload, output, point).and_then(|at| usize::try_from(at).ok());
            let address = address.ok_or_else(|| format!("point {point:?} is outside the output"))?;
            Ok((address as u64).to_ne_bytes())
        };
        let positions = points.iter().map(position).collect::<Result<Vec<[u8; 8]>, String>>()?;
        let positions = Some(Bytes::Own(positions.into_flattened()));
        Ok(Expected { dtype, class, positions, values: Bytes::Own(encode(DType::F64, &mut values)) })
    }

    /// Positions, which are none where all is compared, and values.
    pub(super) fn parts(&self) -> [&[u8]; 2] {
        [self.positions.as_ref().map_or(&[], |positions| &positions[..]), &self.values]
    }

    /// What [`Expected::new`] gave, from its parts; `None` when they do not fit.
    pub(super) fn restore(workload: &Workload, class: Class, [positions, values]: [Bytes; 2]) -> Option<Expected> {
        let output = workload.outputs()[0];
        let full = positions.is_empty();
        let wanted =
            if full { usize::try_from(workload.operand_len(output)).ok()?.checked_mul(8)? } else { positions.len() };
        let positions = if full { None } else { Some(positions) };
        let expected = Expected { dtype: workload.operands[output].dtype, class, positions, values };
        (expected.values.len() == wanted).then_some(expected)
    }

    /// Compares the bytes of the output's buffer; elements in `gaps` are not compared.
    pub(super) fn compare(&self, found: &[u8], gaps: &[bool], name: impl Fn(usize) -> String) -> Result<(), String> {
        let mut first = None;
        let mut wrong = 0u64;
        let mut look = |at: usize, is: f64, wanted: f64| {
            if !self.agree(is, wanted) {
                wrong += 1;
                first.get_or_insert((at, is, wanted));
            }
        };
        let values = self.values.as_chunks::<8>().0;
        match &self.positions {
            None => {
                // Block by block, as decoding the whole buffer would cost more memory traffic than comparing.
                let width = width(self.dtype);
                for (start, block) in (0..values.len()).step_by(BLOCK).zip(values.chunks(BLOCK)) {
                    let bytes = found.get(start * width..).unwrap_or(&[]);
                    let is = decode(self.dtype, &bytes[..bytes.len().min(block.len() * width)]);
                    if gaps.is_empty() && self.all_agree(&is, block) {
                        continue;
                    }
                    let is = is.into_iter().chain(std::iter::repeat(f64::NAN));
                    for ((at, wanted), is) in (start..).zip(block).zip(is) {
                        if !gaps.get(at).copied().unwrap_or(false) {
                            look(at, is, f64::from_ne_bytes(*wanted));
                        }
                    }
                }
            }
            Some(positions) => positions.as_chunks::<8>().0.iter().zip(values).for_each(|(at, wanted)| {
                let at = usize::try_from(u64::from_ne_bytes(*at)).unwrap_or(usize::MAX);
                let is = decode_one(self.dtype, found, at).unwrap_or(f64::NAN);
                look(at, is, f64::from_ne_bytes(*wanted));
            }),
        }
        match first {
            None => Ok(()),
            Some((at, is, wanted)) => {
                let of = values.len();
                Err(format!("{} is {is}, expected {wanted}; {wrong} of {of} compared elements differ", name(at)))
            }
        }
    }

    /// Whether all elements agree, without a look at those that need one: false says nothing.
    fn all_agree(&self, is: &[f64], wanted: &[[u8; 8]]) -> bool {
        let Tolerance { absolute, relative } = match self.class {
            Class::Bits => Tolerance { absolute: 0.0, relative: 0.0 },
            Class::Within(tolerance) => tolerance,
        };
        // No way out of the loop, so that it works on many elements at once. What is not finite is never near.
        is.len() == wanted.len()
            && is.iter().zip(wanted).fold(true, |all, (is, wanted)| {
                let wanted = f64::from_ne_bytes(*wanted);
                let off = (is - wanted).abs();
                all & (off <= absolute + relative * wanted.abs()) & (off < f64::INFINITY)
            })
    }

    fn agree(&self, is: f64, wanted: f64) -> bool {
        if is == wanted {
            return true;
        }
        if wanted.is_nan() || is.is_nan() {
            return wanted.is_nan() == is.is_nan();
        }
        let Class::Within(Tolerance { absolute, relative }) = self.class else {
            return is == self.dtype.round(wanted);
        };
        if !is.is_finite() || !wanted.is_finite() {
            return is == self.dtype.round(wanted);
        }
        let (off, allowed) = ((is - wanted).abs(), absolute + relative * wanted.abs());
        // Rounding takes longer than all the rest and is seldom needed.
        off <= allowed || is == self.dtype.round(wanted) || off <= allowed + self.dtype.unit(wanted)
    }
}

/// Output points worth looking at: lines along every axis through the corners, then random ones.
fn points(workload: &Workload, most: usize) -> Vec<Vec<u64>> {
    let extents: Vec<u64> =
        reference::output_axes(workload).iter().map(|axis| workload.axes[*axis].extent.max()).collect();
    let affordable = POINT_MADDS / super::reduction_length(workload).max(1);
    let wanted = usize::try_from(affordable).unwrap_or(most).clamp(64, most.max(64));
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let mut points = Vec::new();
    // Lines may take three quarters; on long ones every n-th element, always with both ends.
    let long: Vec<usize> = (0..extents.len()).filter(|axis| extents[*axis] > 1).collect();
    let per_line = u64::try_from(wanted * 3 / 4 / (2 * long.len()).max(1)).unwrap_or(1).max(2);
    for axis in &long {
        for at_end in [false, true] {
            let mut point: Vec<u64> = extents.iter().map(|extent| if at_end { extent - 1 } else { 0 }).collect();
            let steps = per_line.min(extents[*axis]);
            for step in 0..steps {
                point[*axis] = step * (extents[*axis] - 1) / (steps - 1).max(1);
                points.push(point.clone());
            }
        }
    }
    while points.len() < wanted {
        points.push(extents.iter().map(|extent| rng.random_range(0..*extent)).collect());
    }
    points
}

/// Which elements of an operand's buffer lie in gaps between rows; empty when none do.
pub(super) fn gaps(workload: &Workload, operand: usize) -> Vec<bool> {
    let (shape, strides) = (workload.operand_shape(operand), workload.operand_strides(operand));
    let length = workload.operand_len(operand);
    let elements = shape.iter().fold(1u64, |product, dim| product.saturating_mul(*dim));
    // Overlapping rows would need a count of distinct addresses; as many elements as places means none is free.
    if elements == length && strides == search_space::workload::row_major(&shape) {
        return Vec::new();
    }
    let Ok(places) = usize::try_from(length) else { return Vec::new() };
    let mut gaps = vec![true; places];
    let mut addresses = vec![0usize];
    for (dim, stride) in shape.iter().zip(&strides) {
        let step = usize::try_from(*stride).unwrap_or(0);
        let dim = usize::try_from(*dim).unwrap_or(0);
        addresses = addresses.iter().flat_map(|base| (0..dim).map(move |i| base + i * step)).collect();
    }
    for address in addresses {
        if let Some(gap) = gaps.get_mut(address) {
            *gap = false;
        }
    }
    if gaps.contains(&true) { gaps } else { Vec::new() }
}
