//! Input data, poison, and conversion between element types and `f64`.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use search_space::Workload;
use search_space::workload::DType;

use crate::device::{Device, Failure};

/// Buffers of every operand that is read, in operand order.
#[derive(Clone, Debug, PartialEq)]
pub struct Inputs {
    /// Position of the operand, its elements as `f64`, and its bytes.
    buffers: Vec<(usize, Vec<f64>, Vec<u8>)>,
}

impl Inputs {
    /// −1, 0 and 1, dense enough that results vary and sparse enough that every partial sum stays below 2^22.
    pub(super) fn ternary(workload: &Workload) -> Result<Inputs, String> {
        #[expect(clippy::cast_precision_loss, reason = "a density needs no more than 53 bits")]
        let length = super::reduction_length(workload) as f64;
        let density = (2f64.powi(22) / length).sqrt().min(2.0 / 3.0);
        Inputs::generate(workload, 1, |dtype, rng| {
            if rng.random::<f64>() >= density {
                return 0.0;
            }
            if dtype != DType::U8 && rng.random::<bool>() { -1.0 } else { 1.0 }
        })
    }

    /// N(0, 1), rounded to the element type; integers uniform over their range up to ±127.
    pub(super) fn normal(workload: &Workload) -> Result<Inputs, String> {
        Inputs::generate(workload, 2, |dtype, rng| match dtype {
            DType::I8 | DType::I32 => f64::from(rng.random_range(-127i8..=127)),
            DType::U8 => f64::from(rng.random_range(0u8..=255)),
            _ => normal(rng),
        })
    }

    /// N(0, 1) with a few NaN, infinities, negative zeros and denormals, also at the first and the last element.
    ///
    /// An operand that meets padding gets neither NaN nor infinity: whether padding is multiplied or skipped is the
    /// kernel's business. Infinities and denormals are in one and the same operand, so that they never meet: devices
    /// that flush denormals would turn their product into NaN, and many do whatever they are asked.
    pub(super) fn hostile(workload: &Workload) -> Result<Inputs, String> {
        let mut inputs = Inputs::normal(workload)?;
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let padded: Vec<usize> = (0..workload.operands.len())
            .filter(|i| workload.operands[*i].index.iter().any(|subscript| subscript.bound.is_some()))
            .collect();
        for (position, (operand, values, bytes)) in inputs.buffers.iter_mut().enumerate() {
            let dtype = workload.operands[*operand].dtype;
            if values.is_empty() || !matches!(dtype, DType::F32 | DType::F64) {
                continue;
            }
            let meets_padding = padded.iter().any(|other| other != operand);
            let mut specials = if position == 0 { vec![1e-40, -1e-42] } else { vec![-0.0] };
            if !meets_padding {
                specials.push(f64::NAN);
                if position == 0 {
                    specials.extend([f64::INFINITY, f64::NEG_INFINITY]);
                }
            }
            let last = values.len() - 1;
            for special in &specials {
                values[rng.random_range(0..=last)] = *special;
            }
            for end in [0, last] {
                values[end] = specials[rng.random_range(0..specials.len())];
            }
            (*values, *bytes) = encode(dtype, values)?;
            poison_gaps(workload, *operand, values, bytes)?;
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

    /// Writes all buffers to a device.
    ///
    /// # Errors
    ///
    /// When the device fails.
    pub fn write<D: Device>(&self, device: &mut D, memory: &mut D::Memory) -> Result<(), Failure> {
        self.buffers.iter().try_for_each(|(operand, _, bytes)| device.write(memory, *operand, bytes))
    }

    fn generate(
        workload: &Workload,
        seed: u64,
        mut element: impl FnMut(DType, &mut ChaCha8Rng) -> f64,
    ) -> Result<Inputs, String> {
        let mut buffers = Vec::new();
        for operand in workload.inputs() {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(u64::try_from(operand).unwrap_or(0));
            let dtype = workload.operands[operand].dtype;
            let values: Vec<f64> = (0..workload.operand_len(operand)).map(|_| element(dtype, &mut rng)).collect();
            let (mut values, mut bytes) = encode(dtype, &values)?;
            poison_gaps(workload, operand, &mut values, &mut bytes)?;
            buffers.push((operand, values, bytes));
        }
        Ok(Inputs { buffers })
    }
}

/// Makes gaps between rows NaN (integers: a large number), so that whoever reads them is found out.
fn poison_gaps(workload: &Workload, operand: usize, values: &mut [f64], bytes: &mut [u8]) -> Result<(), String> {
    let poison = poison(workload.operands[operand].dtype)?;
    let gaps = super::expected::gaps(workload, operand);
    for (at, _) in gaps.iter().enumerate().filter(|(_, gap)| **gap) {
        values[at] = f64::NAN;
        bytes[at * poison.len()..][..poison.len()].copy_from_slice(&poison);
    }
    Ok(())
}

/// One N(0, 1) value (Box and Muller, "A note on the generation of random normal deviates", 1958).
fn normal(rng: &mut ChaCha8Rng) -> f64 {
    // 1 - u is in (0, 1], so the logarithm is finite.
    let (u, v): (f64, f64) = (rng.random(), rng.random());
    (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

/// The bytes that mark memory nobody wrote: a NaN with a payload that no arithmetic gives.
pub(super) fn poison(dtype: DType) -> Result<Vec<u8>, String> {
    Ok(match dtype {
        DType::F32 => 0x7fc5_a5a5u32.to_ne_bytes().to_vec(),
        DType::F64 => 0x7ff8_a5a5_a5a5_a5a5u64.to_ne_bytes().to_vec(),
        DType::I32 => 0x5a5a_a5a5u32.to_ne_bytes().to_vec(),
        DType::I8 | DType::U8 => vec![0x5a],
        DType::F16 | DType::Bf16 => return Err(format!("{} operands are not supported yet", dtype.as_str())),
    })
}

/// Values rounded to the element type, and their bytes.
fn encode(dtype: DType, values: &[f64]) -> Result<(Vec<f64>, Vec<u8>), String> {
    #[expect(clippy::cast_possible_truncation, reason = "rounding to the element type is the point")]
    let bytes: Vec<u8> = match dtype {
        DType::F32 => values.iter().flat_map(|value| (*value as f32).to_ne_bytes()).collect(),
        DType::F64 => values.iter().flat_map(|value| value.to_ne_bytes()).collect(),
        DType::I32 => values.iter().flat_map(|value| (*value as i32).to_ne_bytes()).collect(),
        DType::I8 => values.iter().flat_map(|value| (*value as i8).to_ne_bytes()).collect(),
        DType::U8 => {
            #[expect(clippy::cast_sign_loss, reason = "generated values of this type are not negative")]
            let byte = |value: &f64| *value as u8;
            values.iter().map(byte).collect()
        }
        DType::F16 | DType::Bf16 => return Err(format!("{} operands are not supported yet", dtype.as_str())),
    };
    Ok((decode(dtype, &bytes)?, bytes))
}

/// The elements of a buffer as `f64`.
pub(super) fn decode(dtype: DType, bytes: &[u8]) -> Result<Vec<f64>, String> {
    Ok(match dtype {
        DType::F32 => bytes.as_chunks().0.iter().map(|b| f64::from(f32::from_ne_bytes(*b))).collect(),
        DType::F64 => bytes.as_chunks().0.iter().map(|b| f64::from_ne_bytes(*b)).collect(),
        DType::I32 => bytes.as_chunks().0.iter().map(|b| f64::from(i32::from_ne_bytes(*b))).collect(),
        DType::I8 => bytes.iter().map(|b| f64::from(b.cast_signed())).collect(),
        DType::U8 => bytes.iter().map(|b| f64::from(*b)).collect(),
        DType::F16 | DType::Bf16 => return Err(format!("{} operands are not supported yet", dtype.as_str())),
    })
}
