//! Lengths and noise, learned by the marginal posterior.
//!
//! ```text
//! K = R(lengths) + given + noise·I      amplitude = yᵀK⁻¹y / n      (profiled out)
//! ln p = −n/2 ln amplitude − ½ ln|K| + ln prior(lengths, noise)
//! ```
//! Priors are normal on the logarithms: in few dimensions measurements soon outweigh them, before that they keep a
//! handful of points from being explained by noise or by one parameter alone. Steps follow the sign of the gradient.
//!
//! Sources: Rasmussen, Williams (2006), equations 5.8 and 5.9; Riedmiller, Braun, "A direct adaptive method for faster
//! backpropagation learning: the RPROP algorithm" (1993).

use nalgebra::{Cholesky, DMatrix, DVector};
use search_space::space::Config;

use super::coordinates::Coordinate;
use super::kernel::matern;

/// Mean and standard deviation of the log of a length; coordinates are scaled to 1.
const LENGTH_PRIOR: (f64, f64) = (0.3, 0.4);
/// Mean and standard deviation of the log of the noise, as a share of the amplitude.
const NOISE_PRIOR: (f64, f64) = (-4.6, 1.0);
/// First step of a logarithm, and the bounds of all steps.
const STEP: (f64, f64, f64) = (0.1, 1e-3, 0.5);

/// Logarithms of what the covariance is made of.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Hyper {
    /// One per coordinate.
    pub(super) lengths: Vec<f64>,
    pub(super) noise: f64,
}

impl Hyper {
    /// The most likely before anything is known.
    pub(super) fn prior(coordinates: usize) -> Hyper {
        Hyper { lengths: vec![LENGTH_PRIOR.0; coordinates], noise: NOISE_PRIOR.0 }
    }

    /// Takes `steps` steps towards what explains `y` at `configs` best; `y` has a mean of about 0. `given` is a part of
    /// the covariance that is not learned.
    pub(super) fn fit(
        &mut self,
        coordinates: &[Coordinate],
        configs: &[&Config],
        y: &[f64],
        given: &DMatrix<f64>,
        steps: usize,
    ) {
        let pairs = Pairs::new(coordinates, configs);
        let mut step = vec![STEP.0; self.lengths.len() + 1];
        let mut last = vec![0.0; step.len()];
        for _ in 0..steps {
            let Some(gradient) = self.gradient(&pairs, y, given) else { return };
            for (at, gradient) in gradient.into_iter().enumerate() {
                let same = gradient * last[at];
                let factor = if same > 0.0 {
                    1.2
                } else if same < 0.0 {
                    0.5
                } else {
                    1.0
                };
                step[at] = (step[at] * factor).clamp(STEP.1, STEP.2);
                last[at] = gradient;
                let change = step[at] * if gradient == 0.0 { 0.0 } else { gradient.signum() };
                match self.lengths.get_mut(at) {
                    Some(length) => *length += change,
                    None => self.noise += change,
                }
            }
        }
    }

    /// The gradient of the log posterior by the lengths and the noise; `None` when the covariance is not definite.
    fn gradient(&self, pairs: &Pairs<'_>, y: &[f64], given: &DMatrix<f64>) -> Option<Vec<f64>> {
        let n = y.len();
        let tables = pairs.tables(&self.lengths);
        let correlation = pairs.correlation(&tables);
        let mut k = &correlation + given;
        let noise = self.noise.exp();
        (0..n).for_each(|i| k[(i, i)] += noise);
        let cholesky = Cholesky::new(k)?;
        let inverse = cholesky.inverse();
        let alpha = &inverse * DVector::from_column_slice(y);
        let amplitude = (alpha.dot(&DVector::from_column_slice(y)) / n as f64).max(f64::MIN_POSITIVE);
        // ½ (ααᵀ/amplitude − K⁻¹), of which all derivatives are inner products.
        let weight = |i: usize, j: usize| 0.5 * (alpha[i] * alpha[j] / amplitude - inverse[(i, j)]);
        let mut gradient: Vec<f64> =
            self.lengths.iter().map(|length| (LENGTH_PRIOR.0 - length) / LENGTH_PRIOR.1.powi(2)).collect();
        for i in 0..n {
            for j in 0..i {
                // Off the diagonal every pair counts twice.
                let shared = 2.0 * weight(i, j) * correlation[(i, j)];
                pairs.add_slopes(&tables, i, j, shared, &mut gradient);
            }
        }
        let trace: f64 = (0..n).map(|i| weight(i, i)).sum();
        gradient.push(noise * trace + (NOISE_PRIOR.0 - self.noise) / NOISE_PRIOR.1.powi(2));
        gradient.iter().all(|slope| slope.is_finite()).then_some(gradient)
    }
}

/// The rows of a fit, by the distinct values that occur in each coordinate.
struct Pairs<'a> {
    coordinates: &'a [Coordinate],
    /// Per coordinate the positions that occur.
    occurring: Vec<Vec<u16>>,
    /// Per row and coordinate, which of them.
    which: Vec<Vec<u16>>,
}

/// Per coordinate, value and slope of the kernel for each pair of occurring positions.
type Tables = Vec<Vec<(f64, f64)>>;

impl<'a> Pairs<'a> {
    fn new(coordinates: &'a [Coordinate], configs: &[&Config]) -> Pairs<'a> {
        let occurring: Vec<Vec<u16>> = coordinates
            .iter()
            .map(|coordinate| {
                let mut values: Vec<u16> = configs.iter().map(|config| config[coordinate.param]).collect();
                values.sort_unstable();
                values.dedup();
                values
            })
            .collect();
        let place = |values: &Vec<u16>, value: u16| {
            let place = values.binary_search(&value).expect("invariant: collected from these rows");
            u16::try_from(place).expect("invariant: no more distinct positions than positions")
        };
        let row = |config: &&Config| {
            coordinates.iter().zip(&occurring).map(|(c, values)| place(values, config[c.param])).collect()
        };
        let which = configs.iter().map(row).collect();
        Pairs { coordinates, occurring, which }
    }

    fn tables(&self, lengths: &[f64]) -> Tables {
        let table = |((coordinate, values), length): ((&Coordinate, &Vec<u16>), &f64)| {
            let length = length.exp();
            let pairs = values.iter().flat_map(|&a| values.iter().map(move |&b| (a, b)));
            pairs.map(|(a, b)| matern(coordinate.distance(a, b) / length)).collect()
        };
        self.coordinates.iter().zip(&self.occurring).zip(lengths).map(table).collect()
    }

    fn at(&self, coordinate: usize, i: usize, j: usize) -> usize {
        let (a, b) = (self.which[i][coordinate], self.which[j][coordinate]);
        usize::from(a) * self.occurring[coordinate].len() + usize::from(b)
    }

    fn correlation(&self, tables: &Tables) -> DMatrix<f64> {
        let n = self.which.len();
        let mut matrix = DMatrix::identity(n, n);
        for i in 0..n {
            for j in 0..i {
                let value = (0..tables.len()).map(|c| tables[c][self.at(c, i, j)].0).product();
                matrix[(i, j)] = value;
                matrix[(j, i)] = value;
            }
        }
        matrix
    }

    fn add_slopes(&self, tables: &Tables, i: usize, j: usize, shared: f64, gradient: &mut [f64]) {
        for (c, table) in tables.iter().enumerate() {
            gradient[c] += shared * table[self.at(c, i, j)].1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The log posterior itself.
    fn posterior(hyper: &Hyper, pairs: &Pairs<'_>, y: &[f64], given: &DMatrix<f64>) -> f64 {
        let mut k = pairs.correlation(&pairs.tables(&hyper.lengths)) + given;
        (0..y.len()).for_each(|i| k[(i, i)] += hyper.noise.exp());
        let cholesky = Cholesky::new(k).unwrap();
        let y = DVector::from_column_slice(y);
        let amplitude = y.dot(&cholesky.solve(&y)) / y.len() as f64;
        let normal = |x: f64, (mean, sd): (f64, f64)| -0.5 * ((x - mean) / sd).powi(2);
        -0.5 * y.len() as f64 * amplitude.ln() - cholesky.l().diagonal().map(f64::ln).sum()
            + hyper.lengths.iter().map(|&length| normal(length, LENGTH_PRIOR)).sum::<f64>()
            + normal(hyper.noise, NOISE_PRIOR)
    }

    fn example() -> (Vec<Coordinate>, Vec<Config>, Vec<f64>) {
        let places: Vec<f64> = (0..9).map(|i| f64::from(i) / 8.0).collect();
        let coordinates: Vec<Coordinate> =
            (0..3).map(|param| Coordinate { param, places: places.clone(), category: param == 2 }).collect();
        let configs: Vec<Config> = (0..30u16).map(|i| vec![i % 9, (i * 7 + i / 9) % 9, (i * 4) % 5].into()).collect();
        // Only the first matters.
        let y: Vec<f64> = configs.iter().map(|config| (f64::from(config[0]) - 3.9) / 2.6).collect();
        (coordinates, configs, y)
    }

    #[test]
    fn the_gradient_is_the_posteriors() {
        let (coordinates, configs, y) = example();
        let pairs = Pairs::new(&coordinates, &configs.iter().collect::<Vec<_>>());
        let hyper = Hyper { lengths: vec![-0.5, 0.2, 0.6], noise: -3.0 };
        let feature = DVector::from_fn(y.len(), |i, _| (i as f64 * 0.7).sin());
        let given = &feature * feature.transpose();
        let gradient = hyper.gradient(&pairs, &y, &given).unwrap();
        for (at, slope) in gradient.iter().enumerate() {
            let moved = |by: f64| {
                let mut moved = hyper.clone();
                *moved.lengths.get_mut(at).unwrap_or(&mut moved.noise) += by;
                posterior(&moved, &pairs, &y, &given)
            };
            let numeric = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            assert!((numeric - slope).abs() < 1e-4 * (1.0 + slope.abs()), "{at}: {numeric} {slope}");
        }
    }

    #[test]
    fn a_parameter_that_does_not_matter_gets_a_long_length() {
        let (coordinates, configs, y) = example();
        let mut hyper = Hyper::prior(3);
        let given = DMatrix::zeros(y.len(), y.len());
        hyper.fit(&coordinates, &configs.iter().collect::<Vec<_>>(), &y, &given, 40);
        assert!(hyper.lengths[1] > hyper.lengths[0] + 0.2, "{hyper:?}");
        assert!(hyper.noise < NOISE_PRIOR.0 + 0.1, "{hyper:?}");
    }
}
