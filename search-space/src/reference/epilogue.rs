//! The steps after a reduction, on one `f64` value.

use crate::workload::{DType, EpilogueStep};

/// Applies `step` to `value`; `operand` is the element of the operand the step names, if it names one.
pub(super) fn apply(step: &EpilogueStep, value: f64, operand: f64) -> f64 {
    match step {
        EpilogueStep::Bias(_) | EpilogueStep::Add(_) => value + operand,
        // Written so that NaN stays NaN, which `f64::max` would turn into zero.
        EpilogueStep::Relu => {
            if value < 0.0 {
                0.0
            } else {
                value
            }
        }
        EpilogueStep::GeluErf => value * normal_cdf(value),
        EpilogueStep::GeluTanh => {
            // Hendrycks and Gimpel, "Gaussian error linear units", section 2.
            let inner = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;
            0.5 * value * (1.0 + (inner * (value + 0.044_715 * value * value * value)).tanh())
        }
        EpilogueStep::Silu => value / (1.0 + (-value).exp()),
        EpilogueStep::Clip(lo, hi) => {
            if value < *lo {
                *lo
            } else if value > *hi {
                *hi
            } else {
                value
            }
        }
        EpilogueStep::Scale(factor) => value * factor,
        EpilogueStep::Cast(dtype) => round_to(value, *dtype),
    }
}

/// Probability that a standard normal variable is below `x`: `erfc(-x / √2) / 2`, without cancellation for small values.
fn normal_cdf(x: f64) -> f64 {
    let z = x.abs() * std::f64::consts::FRAC_1_SQRT_2;
    let upper = 0.5 * erfc(z);
    if x < 0.0 { upper } else { 1.0 - upper }
}

/// Complementary error function for `z >= 0`. Below 2.5 the series of Abramowitz and Stegun 7.1.6, whose terms are all
/// positive; above, the continued fraction 7.1.14, evaluated from its 60th level.
fn erfc(z: f64) -> f64 {
    let bell = (-z * z).exp();
    if z < 2.5 {
        let (mut term, mut sum) = (z, z);
        for n in 1..200 {
            term *= 2.0 * z * z / f64::from(2 * n + 1);
            sum += term;
            if term < sum * 1e-17 {
                break;
            }
        }
        1.0 - std::f64::consts::FRAC_2_SQRT_PI * bell * sum
    } else {
        let tail = (1..=60).rev().fold(z, |tail, n| z + 0.5 * f64::from(n) / tail);
        0.5 * std::f64::consts::FRAC_2_SQRT_PI * bell / tail
    }
}

/// The nearest value of a floating-point type, ties to even. Integers do not reach this: casts to them are refused.
fn round_to(value: f64, dtype: DType) -> f64 {
    // Precision in bits, smallest normal exponent, largest finite value.
    let (precision, least, largest) = match dtype {
        DType::F16 => (11, -14, 65504.0),
        DType::Bf16 => (8, -126, f64::from(f32::from_bits(0x7f7f_0000))),
        DType::F32 => (24, -126, f64::from(f32::MAX)),
        DType::F64 | DType::I8 | DType::U8 | DType::I32 => return value,
    };
    if !value.is_finite() || value == 0.0 {
        return value;
    }
    let bits = i32::try_from(value.abs().to_bits() >> 52).expect("invariant: eleven bits");
    let exponent = (bits - 1023).max(least);
    // A power of two, so that dividing and multiplying is exact.
    let quantum = f64::from(2.0f32).powi(exponent - (precision - 1));
    let rounded = (value / quantum).round_ties_even() * quantum;
    if rounded.abs() > largest { f64::INFINITY.copysign(value) } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activations_match_published_values() {
        // Computed with mpmath at 30 digits.
        let close = |found: f64, wanted: f64| {
            assert!((found - wanted).abs() <= 1e-13 * wanted.abs(), "{found} is not {wanted}");
        };
        close(apply(&EpilogueStep::GeluErf, 1.0, 0.0), 0.841_344_746_068_542_9);
        close(apply(&EpilogueStep::GeluErf, -3.0, 0.0), -0.004_049_694_094_890_287);
        close(apply(&EpilogueStep::GeluErf, -5.0, 0.0), -1.433_257_859_395_973e-6);
        close(apply(&EpilogueStep::GeluTanh, 1.0, 0.0), 0.841_191_990_608_276_8);
        close(apply(&EpilogueStep::Silu, 1.0, 0.0), 0.731_058_578_630_004_9);
        assert_eq!(apply(&EpilogueStep::GeluErf, 0.0, 0.0), 0.0);
    }

    #[test]
    fn plain_steps() {
        assert_eq!(apply(&EpilogueStep::Relu, -2.0, 0.0), 0.0);
        assert_eq!(apply(&EpilogueStep::Relu, 2.0, 0.0), 2.0);
        assert!(apply(&EpilogueStep::Relu, f64::NAN, 0.0).is_nan());
        assert_eq!(apply(&EpilogueStep::Clip(0.0, 6.0), 7.0, 0.0), 6.0);
        assert_eq!(apply(&EpilogueStep::Clip(0.0, 6.0), -7.0, 0.0), 0.0);
        assert!(apply(&EpilogueStep::Clip(0.0, 6.0), f64::NAN, 0.0).is_nan());
        assert_eq!(apply(&EpilogueStep::Scale(0.25), 8.0, 0.0), 2.0);
        assert_eq!(apply(&EpilogueStep::Bias("b".into()), 8.0, 3.0), 11.0);
        assert_eq!(apply(&EpilogueStep::Add("b".into()), 8.0, 3.0), 11.0);
    }

    #[test]
    #[allow(clippy::cast_possible_truncation, reason = "the rounding of the cast is what is compared with")]
    fn rounding_is_to_nearest_even_in_every_float_type() {
        for value in [1.0, 0.1, -3.3e38, 1e-40, 1e-46, 3.5e38, 16_777_217.0, f64::MIN_POSITIVE] {
            let native = f64::from(value as f32);
            assert_eq!(round_to(value, DType::F32), native, "{value}");
        }
        assert_eq!(round_to(2049.0, DType::F16), 2048.0);
        assert_eq!(round_to(2051.0, DType::F16), 2052.0);
        assert_eq!(round_to(65519.0, DType::F16), 65504.0);
        assert_eq!(round_to(65520.0, DType::F16), f64::INFINITY);
        assert_eq!(round_to(3e-8, DType::F16), 5.960_464_477_539_063e-8);
        assert_eq!(round_to(2.9e-8, DType::F16), 0.0);
        assert_eq!(round_to(257.0, DType::Bf16), 256.0);
        assert_eq!(round_to(-259.0, DType::Bf16), -260.0);
        assert!(round_to(f64::NAN, DType::F16).is_nan());
    }
}
