//! Order statistics and the bootstrap.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::Comparison;

/// The median; of an even number, the mean of the middle two. `None` when there are no values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// Mean of the values without the smallest and the largest fifth. As robust against a block that something else ran
/// in as a median, with a smoother bootstrap distribution for the small numbers of blocks we have. `0` of no values.
pub fn trimmed_mean(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let cut = values.len() / 5;
    let kept = &values[cut..values.len() - cut];
    if kept.is_empty() { 0.0 } else { kept.iter().sum::<f64>() / count(kept.len()) }
}

/// Mean over workers of the trimmed mean of log ratios: the centre that [`compare`] bootstraps.
pub fn centre(workers: &[Vec<f64>]) -> f64 {
    workers.iter().map(|ratios| trimmed_mean(&mut ratios.clone())).sum::<f64>() / count(workers.len().max(1))
}

/// Speed-up with its 95 % interval, from log ratios per block in each of several workers.
///
/// Percentile bootstrap over blocks, stratified by worker (Efron and Tibshirani, *An Introduction to the Bootstrap*,
/// chapter 13): within each worker as many blocks are drawn with replacement as there are. Blocks, not launches, are
/// resampled because launches of one block share a state of the machine.
///
/// # Panics
///
/// When a worker has no block.
pub fn compare(workers: &[Vec<f64>], resamples: u32, rng: &mut ChaCha8Rng) -> Comparison {
    let mut centres: Vec<f64> = (0..resamples.max(40))
        .map(|_| {
            let drawn: Vec<Vec<f64>> = workers
                .iter()
                .map(|ratios| ratios.iter().map(|_| ratios[rng.random_range(0..ratios.len())]).collect())
                .collect();
            centre(&drawn)
        })
        .collect();
    centres.sort_by(f64::total_cmp);
    // Rounded outwards, so that few resamples widen the interval rather than narrow it.
    let tail = centres.len() / 40;
    let (low, high) = (centres[tail.saturating_sub(1)], centres[centres.len() - tail.max(1)]);
    Comparison { speedup: centre(workers).exp(), low: low.exp(), high: high.exp() }
}

/// A small count as a float.
fn count(n: usize) -> f64 {
    u32::try_from(n).map_or(f64::INFINITY, f64::from)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn medians_and_trimmed_means() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(trimmed_mean(&mut [1e9, 1.0, 2.0, 3.0, -1e9]), 2.0);
        assert_eq!(trimmed_mean(&mut []), 0.0);
    }

    #[test]
    fn the_interval_covers_the_truth_about_as_often_as_it_says() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let truth: f64 = 0.05;
        let mut covered = 0;
        for _ in 0..400 {
            let mut worker = || -> Vec<f64> {
                (0..16)
                    .map(|_| {
                        let bell: f64 = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
                        truth + 0.02 * bell
                    })
                    .collect()
            };
            let workers = [worker(), worker()];
            let found = compare(&workers, 300, &mut rng);
            covered += u32::from(found.low < truth.exp() && truth.exp() < found.high);
        }
        assert!(covered >= 360, "covered {covered} of 400");
    }
}
