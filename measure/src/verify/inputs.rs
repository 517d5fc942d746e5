//! Input data, poison, and conversion between element types and `f64`.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use search_space::Workload;
use search_space::workload::{AxisKind, DType, EpilogueStep, MathMode, Op};

use super::shelf::Bytes;
use super::sketch::{Addresses, for_each_point};
use super::tolerance::shift;
use crate::device::{Device, Failure};

/// The bytes of every operand that is read, in operand order.
#[derive(Clone, Debug)]
pub struct InputBytes {
    buffers: Vec<(usize, Bytes)>,
}

impl InputBytes {
    /// Takes the bytes of every operand that `workload` reads; `None` when they do not fit.
    pub(super) fn new(workload: &Workload, parts: impl ExactSizeIterator<Item = Bytes>) -> Option<InputBytes> {
        let operands = workload.inputs();
        if parts.len() != operands.len() {
            return None;
        }
        let fits = |(operand, bytes): &(usize, Bytes)| {
            workload.operand_len(*operand).checked_mul(workload.operands[*operand].dtype.bytes())
                == Some(bytes.len() as u64)
        };
        let buffers: Vec<(usize, Bytes)> = operands.into_iter().zip(parts).collect();
        buffers.iter().all(fits).then_some(InputBytes { buffers })
    }

    /// Writes all buffers to a device.
    ///
    /// # Errors
    ///
    /// When the device fails.
    pub fn write<D: Device>(&self, device: &mut D, memory: &mut D::Memory) -> Result<(), Failure> {
        self.buffers.iter().try_for_each(|(operand, bytes)| device.write(memory, *operand, bytes))
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.buffers.iter().map(|(_, bytes)| &bytes[..])
    }

    /// Whether the bytes lie in a shelf.
    pub(super) fn is_kept(&self) -> bool {
        self.buffers.iter().all(|(_, bytes)| matches!(bytes, Bytes::Mapped { .. }))
    }
}

/// Buffers of every operand that is read, in operand order, while expected values are computed from them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Inputs {
    /// Position of the operand, its elements as `f64`, and its bytes.
    buffers: Vec<(usize, Vec<f64>, Vec<u8>)>,
}

impl Inputs {
    /// −1, 0 and 1, dense enough that results vary and sparse enough that every partial sum stays below 2^22. Where
    /// sums are too many to compute a second time, also sparse enough that they stay exact in a 16-bit output (eight
    /// deviations), as the product check needs. Maps get integers that are all exact in every type involved, so that
    /// hardly two elements are equal.
    pub(super) fn ternary(workload: &Workload) -> Result<Inputs, String> {
        let multiplied = workload.epilogue.iter().any(|step| matches!(step, EpilogueStep::Mul(_)));
        if workload.op == Op::Map && !multiplied {
            let output = workload.outputs()[0];
            let limit = integer_limit(workload.operands[output].dtype);
            return Inputs::generate(workload, 1, Shape::Plain, |dtype, rng| {
                let limit = limit.min(integer_limit(dtype));
                let signed = ![dtype, workload.operands[output].dtype].contains(&DType::U8);
                f64::from(rng.random_range(if signed { -limit } else { 0 }..=limit))
            });
        }
        #[expect(clippy::cast_precision_loss, reason = "a density needs no more than 53 bits")]
        let length = super::reduction_length(workload) as f64;
        let narrow = workload.outputs().into_iter().map(|output| workload.operands[output].dtype);
        let terms = match narrow.min_by_key(|dtype| integer_limit(*dtype)) {
            Some(dtype @ (DType::F16 | DType::Bf16)) if super::workload_madds(workload) > super::FULL_MADDS => {
                f64::from(2 * integer_limit(dtype) / 8).powi(2)
            }
            _ => 2f64.powi(22),
        };
        let density = (terms / length).sqrt().min(2.0 / 3.0);
        Inputs::generate(workload, 1, Shape::Plain, |dtype, rng| {
            if rng.random::<f64>() >= density {
                return 0.0;
            }
            if dtype != DType::U8 && rng.random::<bool>() { -1.0 } else { 1.0 }
        })
    }

    /// N(0, 1), rounded to the element type; integers uniform over their range up to ±127. Rows of softmax are moved up
    /// and down, rows of norms are made as small as the root of eps or moved, and more: see [`Shape`].
    pub(super) fn normal(workload: &Workload) -> Result<Inputs, String> {
        Inputs::generate(workload, 2, Shape::Numeric, normal_element)
    }

    /// N(0, 1) with a few NaN, infinities, negative zeros and denormals, also at the first and the last element.
    ///
    /// An operand that meets padding gets neither NaN nor infinity: whether padding is multiplied or skipped is the
    /// kernel's business. Infinities and denormals are in one and the same operand, so that they never meet: devices
    /// that flush denormals would turn their product into NaN, and many do whatever they are asked. For the same reason
    /// no denormal meets a logarithm. Attention gets no infinities, as whether a vanishing weight is zero is the
    /// kernel's business, and NaN in keys and values only where every query sees them; its scores are moved up and
    /// down instead ([`Shape::Hostile`]). Nor are there any where arithmetic may be rearranged (`math=fast`): a transform
    /// such as Winograd's spreads them over all outputs of its tile.
    pub(super) fn hostile(workload: &Workload) -> Result<Inputs, String> {
        let mut inputs = Inputs::generate(workload, 2, Shape::Hostile, normal_element)?;
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let padded: Vec<usize> = (0..workload.operands.len())
            .filter(|i| workload.operands[*i].index.iter().any(|subscript| subscript.bound.is_some()))
            .collect();
        let logarithm = workload.epilogue.contains(&EpilogueStep::Log);
        for (position, (operand, values, bytes)) in inputs.buffers.iter_mut().enumerate() {
            let dtype = workload.operands[*operand].dtype;
            if values.is_empty() || !dtype.is_float() {
                continue;
            }
            let meets_padding = padded.iter().any(|other| other != operand);
            let mut specials = match (position, dtype) {
                (0, _) if logarithm => vec![0.5],
                (0, DType::F16) => vec![3e-7, -1e-6],
                (0, _) => vec![1e-40, -1e-42],
                _ => vec![-0.0],
            };
            let nan = match workload.op {
                Op::Attention { causal, .. } => position == 0 || !causal,
                _ => true,
            };
            if !meets_padding && nan && workload.math != MathMode::Fast {
                specials.push(f64::NAN);
                if position == 0 && !matches!(workload.op, Op::Attention { .. }) {
                    specials.extend([f64::INFINITY, f64::NEG_INFINITY]);
                }
            }
            let last = values.len() - 1;
            let mut places: Vec<usize> = specials.iter().map(|_| rng.random_range(0..=last)).collect();
            for (place, special) in places.iter().zip(&specials) {
                values[*place] = *special;
            }
            for end in [0, last] {
                values[end] = specials[rng.random_range(0..specials.len())];
                places.push(end);
            }
            let width = width(dtype);
            for place in places {
                let element = encode(dtype, &mut values[place..=place]);
                bytes[place * width..][..width].copy_from_slice(&element);
            }
            poison_gaps(workload, *operand, values, bytes);
        }
        Ok(inputs)
    }

    /// The buffers as `f64`, for the reference.
    pub(super) fn values(&self) -> Vec<&[f64]> {
        self.buffers.iter().map(|(_, values, _)| values.as_slice()).collect()
    }

    /// The elements of the operand at position `operand`.
    pub(super) fn of(&self, operand: usize) -> Option<&[f64]> {
        self.buffers.iter().find(|(position, ..)| *position == operand).map(|(_, values, _)| values.as_slice())
    }

    /// What the device is given; the elements as `f64`, twice as many bytes and more, are dropped.
    pub(super) fn into_bytes(self) -> InputBytes {
        InputBytes { buffers: self.buffers.into_iter().map(|(i, _, bytes)| (i, Bytes::Own(bytes))).collect() }
    }

    fn generate(
        workload: &Workload,
        seed: u64,
        shape: Shape,
        mut element: impl FnMut(DType, &mut ChaCha8Rng) -> f64,
    ) -> Result<Inputs, String> {
        let mut buffers = Vec::new();
        for operand in workload.inputs() {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(u64::try_from(operand).unwrap_or(0));
            let dtype = workload.operands[operand].dtype;
            let length = usize::try_from(workload.operand_len(operand));
            let length = length.map_err(|_| format!("operand {:?} is too large", workload.operands[operand].name))?;
            let mut block: Vec<f64> = (0..length.min(PERIOD)).map(|_| element(dtype, &mut rng)).collect();
            shape.apply_to_each(workload, operand, &mut block);
            let block_bytes = encode(dtype, &mut block);
            let mut values = repeat(block, length);
            let mut bytes = repeat(block_bytes, length * width(dtype));
            if shape.apply(workload, operand, &mut values) {
                bytes = encode(dtype, &mut values);
            }
            poison_gaps(workload, operand, &mut values, &mut bytes);
            buffers.push((operand, values, bytes));
        }
        Ok(Inputs { buffers })
    }
}

/// Elements after which inputs repeat, as random numbers take longer than large kernels. A prime: rows repeat only
/// after that many of them, so that no two rows, tiles or operands are alike, and a kernel that reads the wrong element
/// gets the right value only when it is off by a multiple of this, which no row, tile or stride of a usual size is.
const PERIOD: usize = 1_048_573;

/// `block` laid end to end until there are `length` elements.
fn repeat<T: Copy>(mut block: Vec<T>, length: usize) -> Vec<T> {
    let period = block.len();
    if period == 0 || period >= length {
        return block;
    }
    block.reserve_exact(length - period);
    while block.len() < length {
        block.extend_from_within(..period.min(length - block.len()));
    }
    block
}

/// Bytes of one element.
pub(super) fn width(dtype: DType) -> usize {
    usize::try_from(dtype.bytes()).unwrap_or(1)
}

/// What is done to random values so that a check sees more.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    Plain,
    /// Row `i` of softmax is moved by +120, 0 or −120 (f64: eight times that), so that `exp` without the subtraction
    /// of the maximum overflows or vanishes, and nothing else changes. Row `i` of a norm is multiplied by √eps, so
    /// that eps matters, left alone, or moved by 1. What meets a logarithm is positive, what goes into a maximum is
    /// negative, so that one that starts with zero, or takes padding for zero, is seen.
    Numeric,
    /// As `Numeric`; and the scores of query `i` of an attention are moved as rows of softmax are, through a first
    /// column of ones in the keys. Not in the numeric check: the larger scores would cost it precision.
    Hostile,
}

impl Shape {
    /// What is done to each element wherever it is.
    fn apply_to_each(self, workload: &Workload, operand: usize, values: &mut [f64]) {
        if self == Shape::Plain || !workload.factors().contains(&operand) {
            return;
        }
        let dtype = workload.operands[operand].dtype;
        if workload.op == Op::ContractMax && dtype != DType::U8 {
            values.iter_mut().for_each(|value| *value = -value.abs());
        }
        if dtype.is_float() && workload.op == Op::Map && workload.epilogue.contains(&EpilogueStep::Log) {
            values.iter_mut().for_each(|value| *value = value.abs());
        }
    }

    /// What is done to elements according to where they are; whether that was anything.
    fn apply(self, workload: &Workload, operand: usize, values: &mut [f64]) -> bool {
        let factors = workload.factors();
        let float = workload.operands[operand].dtype.is_float();
        if self == Shape::Plain || !float || !factors.contains(&operand) {
            return false;
        }
        let moved = |row: u64| {
            let most = shift(workload.acc);
            [most, 0.0, -most][usize::try_from(row % 3).unwrap_or(0)]
        };
        let reduced = |axis: &usize| workload.axes[*axis].kind == AxisKind::Reduction;
        let (inner, outer): (Vec<usize>, Vec<usize>) = (0..workload.axes.len()).partition(reduced);
        match workload.op {
            Op::RowsSoftmax | Op::RowsLogSoftmax => {
                change(workload, operand, values, &outer, &inner, |row, value| value + moved(row));
            }
            Op::RowsLayerNorm { eps } | Op::RowsRmsNorm { eps } => {
                let small = if eps.get() > 0.0 { eps.get().sqrt() } else { 1.0 };
                change(workload, operand, values, &outer, &inner, |row, value| match row % 3 {
                    0 => value * small,
                    1 => value,
                    _ => value + 1.0,
                });
            }
            Op::Attention { scale, .. } if self == Shape::Hostile && scale.get() != 0.0 => {
                let Ok(axes) = workload.attention_axes() else { return false };
                match factors.iter().position(|factor| *factor == operand) {
                    // Every point of these axes has its first column replaced.
                    Some(0) => {
                        let heads: Vec<usize> = outer.iter().copied().filter(|axis| *axis != axes.m).collect();
                        change(workload, operand, values, &[axes.m], &heads, |row, _| moved(row) / scale.get());
                    }
                    Some(1) => change(workload, operand, values, &outer, &[axes.n], |_, _| 1.0),
                    _ => return false,
                }
            }
            _ => return false,
        }
        true
    }
}

/// Replaces the elements of an operand at every point of some axes: `edit` gets the rank of the point among those of
/// `outer` and the value. Points that share an element change it once.
fn change(
    workload: &Workload,
    operand: usize,
    values: &mut [f64],
    outer: &[usize],
    inner: &[usize],
    edit: impl Fn(u64, f64) -> f64,
) {
    let Some(extents) = workload.fixed_extents() else { return };
    let axes: Vec<usize> = (0..extents.len())
        .filter(|axis| (outer.contains(axis) || inner.contains(axis)) && workload.operands[operand].uses(*axis))
        .collect();
    let mut coords = vec![0; extents.len()];
    let before = values.to_vec();
    let addresses = Addresses::new(workload, operand);
    for_each_point(&extents, &axes, &mut coords, &mut |coords| {
        let rank = outer.iter().fold(0, |rank, axis| rank * extents[*axis] + coords[*axis]);
        if let Some(at) = addresses.at(coords)
            && let (Some(value), Some(old)) = (values.get_mut(at), before.get(at))
        {
            *value = edit(rank, *old);
        }
    });
}

/// Integers up to this magnitude are exact in a type, with room for two of them to be added.
fn integer_limit(dtype: DType) -> i32 {
    match dtype {
        DType::F32 | DType::F64 | DType::I32 => 1 << 20,
        DType::F16 => 1 << 10,
        DType::Bf16 => 1 << 7,
        DType::I8 | DType::U8 => 63,
    }
}

/// Makes gaps between rows NaN (integers: a large number), so that whoever reads them is found out.
fn poison_gaps(workload: &Workload, operand: usize, values: &mut [f64], bytes: &mut [u8]) {
    let poison = poison(workload.operands[operand].dtype);
    let gaps = super::expected::gaps(workload, operand);
    for (at, _) in gaps.iter().enumerate().filter(|(_, gap)| **gap) {
        values[at] = f64::NAN;
        bytes[at * poison.len()..][..poison.len()].copy_from_slice(&poison);
    }
}

fn normal_element(dtype: DType, rng: &mut ChaCha8Rng) -> f64 {
    match dtype {
        DType::I8 | DType::I32 => f64::from(rng.random_range(-127i8..=127)),
        DType::U8 => f64::from(rng.random_range(0u8..=255)),
        _ => normal(rng),
    }
}

/// One N(0, 1) value (Box and Muller, "A note on the generation of random normal deviates", 1958).
fn normal(rng: &mut ChaCha8Rng) -> f64 {
    // 1 - u is in (0, 1], so the logarithm is finite.
    let (u, v): (f64, f64) = (rng.random(), rng.random());
    (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

/// The bytes that mark memory nobody wrote: a NaN with a payload that no arithmetic gives.
pub(super) fn poison(dtype: DType) -> Vec<u8> {
    match dtype {
        DType::F32 => 0x7fc5_a5a5u32.to_ne_bytes().to_vec(),
        DType::F64 => 0x7ff8_a5a5_a5a5_a5a5u64.to_ne_bytes().to_vec(),
        DType::F16 => 0x7fa5u16.to_ne_bytes().to_vec(),
        // Not what the poison of an f32 gap becomes when it is cut off.
        DType::Bf16 => 0x7fe5u16.to_ne_bytes().to_vec(),
        DType::I32 => 0x5a5a_a5a5u32.to_ne_bytes().to_vec(),
        DType::I8 | DType::U8 => vec![0x5a],
    }
}

/// Whether any element is poison.
pub(super) fn holds_poison(dtype: DType, bytes: &[u8]) -> bool {
    fn any<const N: usize>(bytes: &[u8], poison: &[u8]) -> bool {
        let (elements, ([poison, ..], _)) = (bytes.as_chunks::<N>().0, poison.as_chunks::<N>()) else { return false };
        // Without a way out in the inner loop, so that it works on many elements at once.
        elements.chunks(1 << 10).any(|block| block.iter().fold(false, |found, element| found | (element == poison)))
    }
    let poison = poison(dtype);
    match poison.len() {
        1 => any::<1>(bytes, &poison),
        2 => any::<2>(bytes, &poison),
        4 => any::<4>(bytes, &poison),
        _ => any::<8>(bytes, &poison),
    }
}

/// Rounds values to the element type and gives their bytes.
#[expect(clippy::cast_possible_truncation, reason = "rounding to the element type is the point")]
pub(super) fn encode(dtype: DType, values: &mut [f64]) -> Vec<u8> {
    #[expect(clippy::cast_sign_loss, reason = "generated values of this type are not negative")]
    let byte = |value: f64| value as u8;
    match dtype {
        DType::F32 => convert(values, |value| value as f32, f64::from, f32::to_ne_bytes),
        DType::F64 => convert(values, |value| value, |value| value, f64::to_ne_bytes),
        DType::F16 => convert(values, half_bits, half_value, u16::to_ne_bytes),
        DType::Bf16 => convert(values, brain_bits, brain_value, u16::to_ne_bytes),
        DType::I32 => convert(values, |value| value as i32, f64::from, i32::to_ne_bytes),
        DType::I8 => convert(values, |value| value as i8, f64::from, i8::to_ne_bytes),
        DType::U8 => convert(values, byte, f64::from, u8::to_ne_bytes),
    }
}

fn convert<T: Copy, const N: usize>(
    values: &mut [f64],
    to: impl Fn(f64) -> T,
    from: impl Fn(T) -> f64,
    bytes_of: impl Fn(T) -> [u8; N],
) -> Vec<u8> {
    let mut bytes = vec![0; values.len() * N];
    for (value, place) in values.iter_mut().zip(bytes.as_chunks_mut::<N>().0) {
        let element = to(*value);
        *value = from(element);
        *place = bytes_of(element);
    }
    bytes
}

/// The elements of a buffer as `f64`.
pub(super) fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    match dtype {
        DType::F32 => bytes.as_chunks().0.iter().map(|b| f64::from(f32::from_ne_bytes(*b))).collect(),
        DType::F64 => bytes.as_chunks().0.iter().map(|b| f64::from_ne_bytes(*b)).collect(),
        DType::F16 => bytes.as_chunks().0.iter().map(|b| half_value(u16::from_ne_bytes(*b))).collect(),
        DType::Bf16 => bytes.as_chunks().0.iter().map(|b| brain_value(u16::from_ne_bytes(*b))).collect(),
        DType::I32 => bytes.as_chunks().0.iter().map(|b| f64::from(i32::from_ne_bytes(*b))).collect(),
        DType::I8 => bytes.iter().map(|b| f64::from(b.cast_signed())).collect(),
        DType::U8 => bytes.iter().map(|b| f64::from(*b)).collect(),
    }
}

/// One element as `f64`.
pub(super) fn decode_one(dtype: DType, bytes: &[u8], at: usize) -> Option<f64> {
    let width = width(dtype);
    decode(dtype, bytes.get(at.checked_mul(width)?..)?.get(..width)?).first().copied()
}

/// The bits of the nearest bfloat16 value: the upper half of a binary32.
#[expect(clippy::cast_possible_truncation, reason = "the value was rounded, the lower half is zero")]
fn brain_bits(value: f64) -> u16 {
    ((DType::Bf16.round(value) as f32).to_bits() >> 16) as u16
}

fn brain_value(bits: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(bits) << 16))
}

/// The bits of the nearest binary16 value.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "fields of a binary16 fit 16 bits")]
fn half_bits(value: f64) -> u16 {
    let sign = if value.is_sign_negative() { 0x8000u16 } else { 0 };
    let rounded = DType::F16.round(value).abs();
    if rounded.is_nan() {
        return sign | 0x7e00;
    }
    if rounded.is_infinite() {
        return sign | 0x7c00;
    }
    // In units of its last place the value is an integer; the leading bit of a normal one raises the exponent field.
    let unit = DType::F16.unit(rounded);
    let exponent = (unit.log2() as i32 + 24).max(0) as u16;
    sign | ((exponent << 10) + (rounded / unit) as u16)
}

fn half_value(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => fraction * 2f64.powi(-24),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_binary16_goes_there_and_back() {
        for bits in 0..=u16::MAX {
            let value = half_value(bits);
            if value.is_nan() {
                assert_eq!(half_bits(value) & 0x7e00, 0x7e00);
            } else {
                assert_eq!(half_bits(value), bits, "{value}");
            }
        }
        assert_eq!(half_bits(1.0), 0x3c00);
        assert_eq!(half_bits(1e9), 0x7c00);
        assert_eq!(half_value(0x3555), 0.333_251_953_125);
    }

    #[test]
    fn bytes_hold_the_rounded_values() {
        for dtype in DType::ALL {
            let mut values = [1.0, 3.0, 100.3];
            let bytes = encode(dtype, &mut values);
            assert_eq!(values[..2], [1.0, 3.0]);
            assert_eq!(decode(dtype, &bytes), values);
            let kept = if dtype.is_float() { dtype.round(100.3) } else { 100.0 };
            assert_eq!(values[2], kept, "{}", dtype.as_str());
            assert!(decode(dtype, &poison(dtype))[0].is_nan() == dtype.is_float());
        }
    }
}
