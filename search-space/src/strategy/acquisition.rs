//! How much a measurement is expected to improve on the best so far.
//!
//! ```text
//! EI = σ (φ(u) + u Φ(u)),   u = (best − μ) / σ
//! ```
//! As a logarithm: far from the best the improvement underflows long before the order of candidates stops to matter.
//!
//! Sources: Jones, Schonlau, Welch, "Efficient Global Optimization of Expensive Black-Box Functions" (1998), equation 15;
//! Ament et al., "Unexpected Improvements to Expected Improvement" (2023) for the logarithm.

use std::f64::consts::{PI, SQRT_2};

use super::Prediction;

/// Below this many deviations the closed form cancels, and its asymptotic series is used.
const FAR: f64 = -6.0;

/// The logarithm of the expected improvement on `best` times the probability of success. Never NaN: what cannot be
/// computed improves nothing.
pub(super) fn log_expected(prediction: &Prediction, best: f64) -> f64 {
    // What is sought is the value, whatever a measurement of it would say.
    let Prediction { mean, deviation, success, noise: _ } = *prediction;
    let gain = best - mean;
    let log = if deviation > 0.0 {
        deviation.ln() + log_unit(gain / deviation)
    } else if gain > 0.0 {
        gain.ln()
    } else {
        f64::NEG_INFINITY
    };
    let log = log + success.ln();
    if log.is_nan() { f64::NEG_INFINITY } else { log }
}

/// `ln(φ(u) + u Φ(u))`.
fn log_unit(u: f64) -> f64 {
    let log_density = -0.5 * u * u - 0.5 * (2.0 * PI).ln();
    if u > FAR {
        let share = 0.5 * libm::erfc(-u / SQRT_2);
        return (log_density.exp() + u * share).ln();
    }
    // φ(u) (1/u² − 3/u⁴ + 15/u⁶)
    let square = u * u;
    log_density - square.ln() + (1.0 - 3.0 / square + 15.0 / (square * square)).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(mean: f64, deviation: f64, success: f64) -> f64 {
        log_expected(&Prediction { mean, deviation, success, noise: 0.0 }, 0.0)
    }

    #[test]
    fn improvement_is_the_integral() {
        for (mean, deviation) in [(0.0, 1.0), (1.0, 0.5), (-0.3, 0.2), (2.0, 1.0)] {
            // Midpoints over ten deviations.
            let steps = 200_000;
            let integral: f64 = (0..steps)
                .map(|i| {
                    let x = -10.0 + 20.0 * (f64::from(i) + 0.5) / f64::from(steps);
                    (-(mean + deviation * x)).max(0.0) * (-0.5 * x * x).exp() / (2.0 * PI).sqrt() * 20.0
                        / f64::from(steps)
                })
                .sum();
            assert!((log(mean, deviation, 1.0).exp() - integral).abs() < 1e-6 * integral, "{mean} {deviation}");
        }
    }

    #[test]
    fn it_is_ordered_far_from_the_best_and_never_a_nan() {
        let far: Vec<f64> = (1..60).map(|u| log(f64::from(u), 1.0, 1.0)).collect();
        assert!(far.windows(2).all(|pair| pair[0] > pair[1] && pair[1].is_finite()), "{far:?}");
        assert!((log(5.999, 1.0, 1.0) - log(6.001, 1.0, 1.0)).abs() < 0.02);
        assert_eq!(log(-1.0, 0.0, 1.0), 0.0);
        for (mean, deviation, success) in [(1.0, 0.0, 1.0), (f64::NAN, 1.0, 1.0), (0.0, f64::NAN, 1.0), (0.0, 1.0, 0.0)]
        {
            assert_eq!(log(mean, deviation, success), f64::NEG_INFINITY);
        }
        assert!(log(0.0, 1.0, 0.5) < log(0.0, 1.0, 1.0));
    }
}
