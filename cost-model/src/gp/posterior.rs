//! What the process says at a configuration, kept up to date row by row.
//!
//! With the lower factor `L` of the covariance of all rows, a configuration needs `v = L⁻¹ k(rows, x)`: its mean is
//! `v·L⁻¹y`, its variance `k(x, x) − v·v`. A new row appends a row to `L` and one number to each `v`, so that a search
//! that asks about much the same configurations again and again pays for what is new only. `L` does not depend on `y`:
//! a row may be appended while it is being measured, which shrinks the variance around it at once.
//!
//! Source: Rasmussen, Williams (2006), algorithm 2.1; the believer of Ginsbourger, Le Riche, Carraro, "Kriging is
//! well-suited to parallelize optimization" (2010), section 3.2.

use std::collections::HashMap;

use search_space::space::Config;

use super::kernel::Kernel;

/// Columns not asked for in so many calls are forgotten: more than a search makes between two looks at its whole pool.
const KEEP_CALLS: u64 = 16;
/// Least variance of a row that the others do not explain: below, rounding would decide.
const LEAST_VARIANCE: f32 = 1e-4;

/// A configuration with its features, whose inner product is added to the kernel; without any there is nothing to add.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) config: Config,
    pub(super) features: Vec<f32>,
}

/// The factor and the columns under one kernel.
#[derive(Debug, Default)]
pub(super) struct Posterior {
    kernel: Kernel,
    noise: f32,
    rows: Vec<Point>,
    /// Row `i` has `i + 1` numbers.
    factor: Vec<Vec<f32>>,
    columns: HashMap<Config, Column>,
    calls: u64,
}

#[derive(Debug)]
struct Column {
    point: Point,
    variance: f32,
    solved: Vec<f32>,
    used: u64,
}

/// `L⁻¹y` of some values per row.
#[derive(Clone, Debug, Default)]
pub(super) struct Solved(Vec<f32>);

impl Solved {
    /// `yᵀK⁻¹y`.
    pub(super) fn norm(&self) -> f32 {
        dot(&self.0, &self.0)
    }
}

impl Posterior {
    pub(super) fn new(kernel: Kernel, noise: f64) -> Posterior {
        #[expect(clippy::cast_possible_truncation, reason = "a share of the amplitude")]
        let noise = noise as f32;
        Posterior { kernel, noise, ..Posterior::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Variance of a measurement around its value, as a share of the amplitude.
    pub(super) fn noise(&self) -> f64 {
        f64::from(self.noise)
    }

    fn covariance(&self, a: &Point, b: &Point) -> f32 {
        self.kernel.of(&a.config, &b.config) + dot(&a.features, &b.features)
    }

    /// Adds a row.
    pub(super) fn push(&mut self, point: Point) {
        let mut row: Vec<f32> = Vec::with_capacity(self.rows.len() + 1);
        self.extend(&point, &mut row);
        let left = self.covariance(&point, &point) + self.noise - dot(&row, &row);
        row.push(left.max(LEAST_VARIANCE).sqrt());
        self.factor.push(row);
        self.rows.push(point);
    }

    /// Appends to `solved` what the rows beyond it contribute to `L⁻¹k`.
    fn extend(&self, point: &Point, solved: &mut Vec<f32>) {
        if solved.len() == self.rows.len() {
            return;
        }
        let kernel = self.kernel.with(&point.config);
        for at in solved.len()..self.rows.len() {
            let (row, other) = (&self.factor[at], &self.rows[at]);
            let covariance = kernel(&other.config) + dot(&other.features, &point.features);
            solved.push((covariance - dot(&row[..at], solved)) / row[at]);
        }
    }

    /// `L⁻¹y`; `None` in `values` stands for what is expected of the row by those before it.
    pub(super) fn solve(&self, values: impl IntoIterator<Item = Option<f32>>) -> Solved {
        let mut solved: Vec<f32> = Vec::with_capacity(self.rows.len());
        for (row, value) in self.factor.iter().zip(values) {
            let at = solved.len();
            let left = value.map_or(0.0, |value| (value - dot(&row[..at], &solved)) / row[at]);
            solved.push(left);
        }
        Solved(solved)
    }

    /// `K⁻¹y` from `L⁻¹y`: with it the mean of a configuration is one inner product with its covariances.
    pub(super) fn weights(&self, solved: &Solved) -> Vec<f32> {
        let mut left = solved.0.clone();
        for at in (0..left.len()).rev() {
            let row = &self.factor[at];
            let weight = left[at] / row[at];
            left[at] = weight;
            left[..at].iter_mut().zip(row).for_each(|(left, factor)| *left -= weight * factor);
        }
        left
    }

    /// The mean at a point, with the weights of [`Posterior::weights`].
    pub(super) fn mean(&self, point: &Point, weights: &[f32]) -> f32 {
        let kernel = self.kernel.with(&point.config);
        let covariance = |row: &Point| kernel(&row.config) + dot(&row.features, &point.features);
        self.rows.iter().zip(weights).map(|(row, weight)| weight * covariance(row)).sum()
    }

    /// For each configuration the variance, and the mean of each of `targets`. `features` gives those of a configuration
    /// that was not asked about lately.
    pub(super) fn at<const N: usize>(
        &mut self,
        configs: &[Config],
        targets: [&Solved; N],
        mut features: impl FnMut(&Config) -> Vec<f32>,
    ) -> Vec<(f32, [f32; N])> {
        self.calls += 1;
        let mut columns = std::mem::take(&mut self.columns);
        let found = configs
            .iter()
            .map(|config| {
                // Looked up first: most are known, and an entry would clone its key.
                if !columns.contains_key(config) {
                    let point = Point { config: config.clone(), features: features(config) };
                    let variance = self.covariance(&point, &point);
                    columns.insert(config.clone(), Column { point, variance, solved: Vec::new(), used: 0 });
                }
                let column = columns.get_mut(config).expect("invariant: inserted above");
                let before = column.solved.len();
                self.extend(&column.point, &mut column.solved);
                column.variance -= dot(&column.solved[before..], &column.solved[before..]);
                column.used = self.calls;
                (column.variance.max(0.0), targets.map(|target| dot(&target.0, &column.solved)))
            })
            .collect();
        // Which columns stay does not depend on the order in which they are visited.
        columns.retain(|_, column| column.used + KEEP_CALLS > self.calls);
        self.columns = columns;
        found
    }
}

/// An inner product with partial sums, which the compiler can keep in vector registers, added up as a tree: most are
/// short, and a chain of additions at the end would take longer than the rest.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (a_long, a_rest) = a.as_chunks::<16>();
    let (b_long, b_rest) = b.as_chunks::<16>();
    let mut long = [0.0f32; 16];
    for (a, b) in a_long.iter().zip(b_long) {
        for lane in 0..16 {
            long[lane] += a[lane] * b[lane];
        }
    }
    let mut short: [f32; 4] =
        std::array::from_fn(|lane| (long[lane] + long[lane + 4]) + (long[lane + 8] + long[lane + 12]));
    let (a_short, a_rest) = a_rest.as_chunks::<4>();
    let (b_short, b_rest) = b_rest.as_chunks::<4>();
    for (a, b) in a_short.iter().zip(b_short) {
        for lane in 0..4 {
            short[lane] += a[lane] * b[lane];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    (short[0] + short[1]) + (short[2] + short[3]) + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_products_of_any_length() {
        for n in [0, 1, 3, 15, 16, 17, 40, 100] {
            let (a, b): (Vec<f32>, Vec<f32>) = (0..n).map(|i| (i as f32, 1.0 / (i + 1) as f32)).unzip();
            let wanted: f64 = a.iter().zip(&b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            assert!((f64::from(dot(&a, &b)) - wanted).abs() <= 1e-5 * (1.0 + wanted), "{n}");
        }
    }
}
