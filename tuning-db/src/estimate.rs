//! The time of a kernel from its samples: the median, with an interval that assumes no distribution.

/// An estimate with its 95 % interval, in nanoseconds per call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Median.
    pub ns: f64,
    /// Lower end of the interval.
    pub lo_ns: f64,
    /// Upper end of the interval.
    pub hi_ns: f64,
}

/// The median of `samples` (nanoseconds) and the order statistics that enclose the true median with at least 95 %
/// (Conover, *Practical Nonparametric Statistics*, 3rd ed., section 3.2, normal approximation, which up to 200 samples
/// never falls below 95 %; a test computes the exact coverage). With fewer than six samples no pair does: then the
/// interval is the whole range. `None` without samples.
///
/// Samples are taken as independent; those of one block are not quite, so the interval is a little too narrow. The view
/// `confidence` computes the same.
pub(crate) fn estimate(samples: &mut [f64]) -> Option<Estimate> {
    samples.sort_by(f64::total_cmp);
    let n = samples.len();
    let last = n.checked_sub(1)?;
    let skipped = ranks_skipped(n);
    let ns = f64::midpoint(samples[last / 2], samples[n / 2]);
    Some(Estimate { ns, lo_ns: samples[skipped], hi_ns: samples[last - skipped] })
}

/// How many samples at each end lie outside the interval.
fn ranks_skipped(n: usize) -> usize {
    // Rank r, counted from 1, is far enough from the middle when (n + 1 - 2r)^2 >= 1.96^2 n.
    let far = |r: usize| n + 1 > 2 * r && 10_000 * (n + 1 - 2 * r).pow(2) >= 38_416 * n;
    (1..=n / 2).take_while(|r| far(*r)).last().map_or(0, |r| r - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_sets() {
        assert_eq!(estimate(&mut []), None);
        assert_eq!(estimate(&mut [7.0]), Some(Estimate { ns: 7.0, lo_ns: 7.0, hi_ns: 7.0 }));
        assert_eq!(estimate(&mut [3.0, 1.0]), Some(Estimate { ns: 2.0, lo_ns: 1.0, hi_ns: 3.0 }));
        let mut ten: Vec<f64> = (1..=10).rev().map(f64::from).collect();
        assert_eq!(estimate(&mut ten), Some(Estimate { ns: 5.5, lo_ns: 2.0, hi_ns: 9.0 }));
    }

    #[test]
    fn the_interval_covers_the_median_with_95_percent() {
        for n in 6..=200_usize {
            // P(the true median is inside) = 1 - 2 P(Binomial(n, 1/2) <= skipped).
            let mut term = 0.5_f64.powi(i32::try_from(n).unwrap());
            let mut below = term;
            for k in 1..=ranks_skipped(n) {
                term *= f64::from(u32::try_from(n + 1 - k).unwrap()) / f64::from(u32::try_from(k).unwrap());
                below += term;
            }
            let coverage = 1.0 - 2.0 * below;
            assert!(coverage >= 0.95 && (coverage < 0.99 || n < 10), "n = {n}: {coverage}");
        }
    }
}
