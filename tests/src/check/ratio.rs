//! Ratios of two things timed in pairs: the median, and how sure it is.

use rand::{RngExt as _, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A median of paired ratios with its bootstrap 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ratio {
    /// The median.
    pub(super) median: f64,
    /// Lower end of the interval.
    pub(super) low: f64,
    /// Upper end of the interval.
    pub(super) high: f64,
    /// Pairs that it rests on.
    pub(super) rounds: usize,
}

/// The median of `values`; the mean of the middle two for an even number of them; `None` of no values.
#[must_use]
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

impl Ratio {
    /// The median of `ratios` and its percentile bootstrap interval (Efron and Tibshirani, *An Introduction to the
    /// Bootstrap*, section 13.3; 2,000 resamples, fixed seed); `None` of no ratios.
    #[must_use]
    pub(super) fn of(ratios: &[f64]) -> Option<Ratio> {
        let middle = median(ratios)?;
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let mut medians: Vec<f64> = (0..2000)
            .filter_map(|_| {
                let resample: Vec<f64> = ratios.iter().map(|_| ratios[rng.random_range(0..ratios.len())]).collect();
                median(&resample)
            })
            .collect();
        medians.sort_by(f64::total_cmp);
        Some(Ratio { median: middle, low: medians[50], high: medians[1949], rounds: ratios.len() })
    }
}

impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.3} [{:.3}, {:.3}] over {} rounds", self.median, self.low, self.high, self.rounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn one_outlier_moves_neither_the_median_nor_the_interval_far() {
        let ratio = Ratio::of(&[0.9, 0.91, 0.92, 0.93, 0.94, 0.95, 0.96, 0.97, 50.0]).unwrap();
        assert_eq!((ratio.median, ratio.rounds), (0.94, 9));
        assert!(ratio.low < ratio.median && ratio.median < ratio.high && ratio.high < 1.0, "{ratio}");
        assert_eq!(Ratio::of(&[]), None);
        assert_eq!(
            Ratio::of(&[0.9, 0.91, 0.92, 0.93, 0.94, 0.95, 0.96, 0.97, 50.0]),
            Some(ratio),
            "the same each time"
        );
    }
}
