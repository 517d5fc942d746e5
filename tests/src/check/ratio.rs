//! Ratios of two things timed in pairs: the median, and how sure it is; also the geometric mean of several medians.

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
        Ratio::geometric(&[ratios])
    }

    /// The geometric mean of the medians of several lists, each resampled by itself; the rounds are those of the
    /// shortest. `None` of no lists, or when one is empty.
    #[must_use]
    pub(super) fn geometric(lists: &[&[f64]]) -> Option<Ratio> {
        let rounds = lists.iter().map(|list| list.len()).min()?;
        let middle = mean(lists.iter().map(|list| median(list)))?;
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let mut draw = |list: &&[f64]| {
            let resample: Vec<f64> = list.iter().map(|_| list[rng.random_range(0..list.len())]).collect();
            median(&resample)
        };
        let mut means: Vec<f64> = (0..2000).filter_map(|_| mean(lists.iter().map(&mut draw))).collect();
        means.sort_by(f64::total_cmp);
        Some(Ratio { median: middle, low: means[50], high: means[1949], rounds })
    }
}

/// The geometric mean; of a single value that value itself. `None` when one is missing.
fn mean(values: impl ExactSizeIterator<Item = Option<f64>>) -> Option<f64> {
    let n = values.len();
    let values: Vec<f64> = values.collect::<Option<_>>()?;
    match values[..] {
        [] => None,
        [value] => Some(value),
        _ => Some((values.iter().map(|value| value.ln()).sum::<f64>() / n as f64).exp()),
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
    fn several_medians_have_a_geometric_mean_with_an_interval() {
        let (fast, slow) = ([1.9, 2.0, 2.1], [0.5, 0.5, 0.5]);
        let both = Ratio::geometric(&[&fast, &slow]).unwrap();
        assert!((both.median - 1.0).abs() < 1e-12 && both.low < 1.0 && both.high > 1.0, "{both}");
        assert!(both.low > 0.97 && both.high < 1.03, "{both}");
        assert_eq!(Ratio::geometric(&[&slow]), Ratio::of(&slow));
        assert_eq!(Ratio::geometric(&[]), None);
        assert_eq!(Ratio::geometric(&[&fast, &[]]), None, "a line without a round is no line");
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
