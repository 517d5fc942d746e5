//! Element types and rounding to them.

use serde::{Deserialize, Serialize};

/// The element type of an operand or an accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// IEEE binary64.
    F64,
    /// Signed 8-bit integer.
    I8,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 32-bit integer.
    I32,
}

impl DType {
    /// Every element type.
    pub const ALL: [DType; 7] = [DType::F32, DType::F16, DType::Bf16, DType::F64, DType::I8, DType::U8, DType::I32];

    /// Size of one element in bytes.
    pub fn bytes(self) -> u64 {
        match self {
            DType::I8 | DType::U8 => 1,
            DType::F16 | DType::Bf16 => 2,
            DType::F32 | DType::I32 => 4,
            DType::F64 => 8,
        }
    }

    /// The name used in keys.
    pub fn as_str(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::F64 => "f64",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::I32 => "i32",
        }
    }

    /// Whether this is a floating-point type.
    pub fn is_float(self) -> bool {
        !matches!(self, DType::I8 | DType::U8 | DType::I32)
    }

    /// The nearest value of a floating-point type, ties to even; too large ones become infinite, NaN stays. For
    /// integers and f64 the value itself.
    pub fn round(self, value: f64) -> f64 {
        let largest = match self {
            DType::F16 => 65504.0,
            DType::Bf16 => f64::from(f32::from_bits(0x7f7f_0000)),
            DType::F32 => f64::from(f32::MAX),
            DType::F64 | DType::I8 | DType::U8 | DType::I32 => return value,
        };
        if !value.is_finite() || value == 0.0 {
            return value;
        }
        let quantum = self.unit(value);
        let rounded = (value / quantum).round_ties_even() * quantum;
        if rounded.abs() > largest { f64::INFINITY.copysign(value) } else { rounded }
    }

    /// Distance of neighbouring values of a floating-point type at the size of a finite `value` (its unit in the last
    /// place, a power of two); 0 for integers.
    pub fn unit(self, value: f64) -> f64 {
        // Precision in bits and smallest normal exponent.
        let (precision, least) = match self {
            DType::F16 => (11, -14),
            DType::Bf16 => (8, -126),
            DType::F32 => (24, -126),
            DType::F64 => (53, -1022),
            DType::I8 | DType::U8 | DType::I32 => return 0.0,
        };
        let bits = i32::try_from(value.abs().to_bits() >> 52).expect("invariant: eleven bits");
        2f64.powi((bits - 1023).max(least) - (precision - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::cast_possible_truncation, reason = "the rounding of the cast is what is compared with")]
    fn rounding_is_to_nearest_even_in_every_float_type() {
        for value in [1.0, 0.1, -3.3e38, 1e-40, 1e-46, 3.5e38, 16_777_217.0, f64::MIN_POSITIVE] {
            let native = f64::from(value as f32);
            assert_eq!(DType::F32.round(value), native, "{value}");
        }
        assert_eq!(DType::F16.round(2049.0), 2048.0);
        assert_eq!(DType::F16.round(2051.0), 2052.0);
        assert_eq!(DType::F16.round(65519.0), 65504.0);
        assert_eq!(DType::F16.round(65520.0), f64::INFINITY);
        assert_eq!(DType::F16.round(3e-8), 5.960_464_477_539_063e-8);
        assert_eq!(DType::F16.round(2.9e-8), 0.0);
        assert_eq!(DType::Bf16.round(257.0), 256.0);
        assert_eq!(DType::Bf16.round(-259.0), -260.0);
        assert!(DType::F16.round(f64::NAN).is_nan());
        assert_eq!(DType::I8.round(0.5), 0.5);
    }

    #[test]
    fn units_are_those_of_the_binade() {
        assert_eq!(DType::F32.unit(1.0), f64::from(f32::EPSILON));
        assert_eq!(DType::F64.unit(1.5), f64::EPSILON);
        assert_eq!(DType::Bf16.unit(-3.0), 2f64.powi(-6));
        assert_eq!(DType::F16.unit(0.0), 2f64.powi(-24));
        assert_eq!(DType::I32.unit(5.0), 0.0);
    }
}
