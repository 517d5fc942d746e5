//! The steps after an operation, on one `f64` value.

use crate::workload::EpilogueStep;

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
        // The complement keeps the small values on the left exact.
        EpilogueStep::GeluErf => value * 0.5 * libm::erfc(-value * std::f64::consts::FRAC_1_SQRT_2),
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
        EpilogueStep::Mul(_) => value * operand,
        EpilogueStep::Exp => value.exp(),
        EpilogueStep::Log => value.ln(),
        EpilogueStep::Tanh => value.tanh(),
        EpilogueStep::Erf => libm::erf(value),
        EpilogueStep::Cast(dtype) => dtype.round(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::DType;

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
        close(apply(&EpilogueStep::Exp, -2.5, 0.0), 0.082_084_998_623_898_8);
        close(apply(&EpilogueStep::Log, 10.0, 0.0), std::f64::consts::LN_10);
        close(apply(&EpilogueStep::Tanh, 0.5, 0.0), 0.462_117_157_260_009_76);
        close(apply(&EpilogueStep::Erf, 0.5, 0.0), 0.520_499_877_813_046_5);
        assert_eq!(apply(&EpilogueStep::GeluErf, 0.0, 0.0), 0.0);
        assert_eq!(apply(&EpilogueStep::Log, 0.0, 0.0), f64::NEG_INFINITY);
        assert!(apply(&EpilogueStep::Log, -1.0, 0.0).is_nan());
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
        assert_eq!(apply(&EpilogueStep::Mul("b".into()), 8.0, 3.0), 24.0);
        assert_eq!(apply(&EpilogueStep::Cast(DType::F16), 2049.0, 0.0), 2048.0);
    }
}
