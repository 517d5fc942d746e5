//! Memory for kernels under test: aligned, typed, with a border that nothing may write. And targets for this host.

#![allow(clippy::cast_sign_loss, reason = "bits of numbers whose sign is apart")]

use search_space::workload::DType;
use search_space::{Target, samples};
use tilewright_codegen::emit::llvm;

/// Bytes before and after each buffer that no kernel may touch; a multiple of the alignment.
const BORDER: usize = 256;
const BORDER_BYTE: u8 = 0xC9;

/// Elements at an address that is a multiple of 64, as workloads promise of their operands.
pub(crate) struct Aligned {
    store: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// `values` as elements of a type that holds them exactly.
    pub(crate) fn new(dtype: DType, values: &[f64]) -> Aligned {
        let mut body = Vec::new();
        for &value in values {
            body.extend(encode(dtype, value));
        }
        Aligned::of(&body)
    }

    /// Bytes that are NaN in every floating-point type.
    pub(crate) fn poisoned(bytes: u64) -> Aligned {
        Aligned::of(&[0xff, 0x7f].repeat(usize::try_from(bytes).unwrap().div_ceil(2)))
    }

    fn of(body: &[u8]) -> Aligned {
        let mut store = vec![BORDER_BYTE; body.len() + 2 * BORDER + 64];
        let start = store.as_ptr().align_offset(64) + BORDER;
        store[start..start + body.len()].copy_from_slice(body);
        Aligned { store, start, len: body.len() }
    }

    /// The first element.
    pub(crate) fn start(&mut self) -> *mut u8 {
        self.store[self.start..].as_mut_ptr()
    }

    /// The first `count` elements.
    pub(crate) fn values(&self, dtype: DType, count: usize) -> Vec<f64> {
        let width = usize::try_from(dtype.bytes()).unwrap();
        self.store[self.start..self.start + self.len].chunks(width).take(count).map(|one| decode(dtype, one)).collect()
    }

    /// Whether nothing beside the elements was written.
    pub(crate) fn intact(&self) -> bool {
        let (before, rest) = self.store.split_at(self.start);
        before.iter().chain(&rest[self.len..]).all(|byte| *byte == BORDER_BYTE)
    }
}

fn encode(dtype: DType, value: f64) -> Vec<u8> {
    match dtype {
        DType::F32 => (value as f32).to_le_bytes().to_vec(),
        DType::Bf16 => ((value as f32).to_bits() >> 16).to_le_bytes()[..2].to_vec(),
        DType::F16 => half(value).to_le_bytes().to_vec(),
        DType::I32 => (value as i32).to_le_bytes().to_vec(),
        DType::I8 => (value as i8).to_le_bytes().to_vec(),
        DType::U8 => (value as u8).to_le_bytes().to_vec(),
        DType::F64 => value.to_le_bytes().to_vec(),
    }
}

fn decode(dtype: DType, bytes: &[u8]) -> f64 {
    let mut word = [0u8; 4];
    word[..bytes.len().min(4)].copy_from_slice(&bytes[..bytes.len().min(4)]);
    let bits = u32::from_le_bytes(word);
    match dtype {
        DType::F32 => f64::from(f32::from_bits(bits)),
        DType::Bf16 => f64::from(f32::from_bits(bits << 16)),
        DType::F16 => {
            let (exponent, fraction) = (bits >> 10 & 31, f64::from(bits & 1023));
            let sign = if bits >> 15 & 1 == 1 { -1.0 } else { 1.0 };
            sign * match exponent {
                0 => fraction * 2f64.powi(-24),
                31 if fraction == 0.0 => f64::INFINITY,
                31 => f64::NAN,
                _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent as i32 - 15),
            }
        }
        DType::I32 => f64::from(bits as i32),
        DType::I8 => f64::from(bits as i8),
        DType::U8 => f64::from(bits as u8),
        DType::F64 => f64::from_le_bytes(bytes.try_into().unwrap()),
    }
}

/// The bits of a value that binary16 holds exactly.
fn half(value: f64) -> u16 {
    let sign = u16::from(value.is_sign_negative()) << 15;
    if value.is_nan() {
        return 0x7e00;
    }
    if value.is_infinite() {
        return sign | 0x7c00;
    }
    let size = value.abs();
    let exponent = if size < 2f64.powi(-14) { -14 } else { size.log2().floor() as i32 };
    let steps = (size * 2f64.powi(10 - exponent)) as u16;
    // A normal number has its eleventh bit set, which the field of the exponent absorbs.
    if steps < 1024 { sign | steps } else { sign | ((exponent + 14) as u16 * 1024 + steps) }
}

/// A target of this host with vectors of a width.
pub(crate) fn cpu_target(vector_bytes: u64, threads: u64) -> Target {
    let (arch, host) = llvm::host_cpu();
    let wanted: &[&str] = match vector_bytes {
        64 => &["avx", "avx2", "avx512bf16", "avx512bw", "avx512dq", "avx512f", "avx512vl", "f16c", "fma"],
        32 => &["avx", "avx2", "f16c", "fma"],
        _ => &[],
    };
    let features: Vec<&str> = host.iter().map(String::as_str).filter(|feature| wanted.contains(feature)).collect();
    let arch = if vector_bytes == 64 { &arch } else { "x86-64" };
    samples::cpu_target(arch, &features, vector_bytes, threads)
}

/// The widest vectors this host has.
pub(crate) fn widest() -> u64 {
    let (_, features) = llvm::host_cpu();
    match () {
        () if features.iter().any(|feature| feature == "avx512f") => 64,
        () if features.iter().any(|feature| feature == "avx2") => 32,
        () => 16,
    }
}
