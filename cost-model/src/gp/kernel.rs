//! The covariance: a product over coordinates of Matérn 5/2 in distance / length.
//!
//! Source: Rasmussen, Williams, "Gaussian Processes for Machine Learning" (2006), section 4.2, equation 4.17. Domains are
//! finite, so the product of a parameter's coordinates is a table over pairs of its values.

use search_space::space::Config;

use super::coordinates::Coordinate;

/// Parameters with more values get no table: it would be larger than what it saves.
const MOST_VALUES: usize = 256;

/// Matérn 5/2 at `distance / length`, and its derivative by the logarithm of the length, divided by the value.
pub(super) fn matern(ratio: f64) -> (f64, f64) {
    let x = 5f64.sqrt() * ratio;
    let polynomial = 1.0 + x + x * x / 3.0;
    (polynomial * (-x).exp(), x * x * (1.0 + x) / (3.0 * polynomial))
}

/// The covariance of two configurations, 1 where they are equal.
#[derive(Clone, Debug, Default)]
pub(super) struct Kernel {
    factors: Vec<Factor>,
}

/// The factor of one parameter.
#[derive(Clone, Debug)]
struct Factor {
    param: usize,
    values: usize,
    /// Row by row; empty for a large domain.
    table: Vec<f32>,
    coordinates: Vec<(Coordinate, f64)>,
}

impl Kernel {
    /// The kernel with these lengths, one per coordinate.
    pub(super) fn new(coordinates: &[Coordinate], lengths: &[f64]) -> Kernel {
        let mut factors: Vec<Factor> = Vec::new();
        for (coordinate, &length) in coordinates.iter().zip(lengths) {
            match factors.last_mut().filter(|factor| factor.param == coordinate.param) {
                Some(factor) => factor.coordinates.push((coordinate.clone(), length)),
                None => factors.push(Factor {
                    param: coordinate.param,
                    values: coordinate.places.len(),
                    table: Vec::new(),
                    coordinates: vec![(coordinate.clone(), length)],
                }),
            }
        }
        for factor in factors.iter_mut().filter(|factor| factor.values <= MOST_VALUES) {
            let all = || (0u16..).take(factor.values);
            let table = all().flat_map(|a| all().map(move |b| (a, b))).map(|(a, b)| factor.compute(a, b)).collect();
            factor.table = table;
        }
        Kernel { factors }
    }

    /// The covariance of `a` and `b`.
    pub(super) fn of(&self, a: &Config, b: &Config) -> f32 {
        self.factors.iter().map(|factor| factor.at(a[factor.param], b[factor.param])).product()
    }

    /// The covariances with `a`, as a function.
    pub(super) fn with<'a>(&'a self, a: &'a Config) -> impl Fn(&Config) -> f32 + 'a {
        let lines: Vec<(&Factor, &[f32])> =
            self.factors.iter().map(|factor| (factor, factor.line(a[factor.param]))).collect();
        move |b| {
            let factor = |(factor, line): &(&Factor, &[f32])| match line.get(usize::from(b[factor.param])) {
                Some(value) => *value,
                None => factor.compute(a[factor.param], b[factor.param]),
            };
            // Two products: each multiplication waits for the one before.
            let (pairs, rest) = lines.as_chunks::<2>();
            let [even, odd] = pairs.iter().fold([1.0, 1.0], |[even, odd], [a, b]| [even * factor(a), odd * factor(b)]);
            even * odd * rest.iter().map(factor).product::<f32>()
        }
    }
}

impl Factor {
    fn at(&self, a: u16, b: u16) -> f32 {
        self.line(a).get(usize::from(b)).copied().unwrap_or_else(|| self.compute(a, b))
    }

    /// The values with `a`; empty for a large domain.
    fn line(&self, a: u16) -> &[f32] {
        let from = usize::from(a) * self.values;
        self.table.get(from..from + self.values).unwrap_or_default()
    }

    #[expect(clippy::cast_possible_truncation, reason = "a covariance needs no more digits than the data has")]
    fn compute(&self, a: u16, b: u16) -> f32 {
        self.coordinates.iter().map(|(c, length)| matern(c.distance(a, b) / length).0).product::<f64>() as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_domains_and_lines_give_the_same_as_tables() {
        let coordinate = |param, values: usize| Coordinate {
            param,
            places: (0..values).map(|i| i as f64 / (values - 1) as f64).collect(),
            category: false,
        };
        let coordinates = [coordinate(0, 300), coordinate(1, 4), coordinate(1, 4)];
        let kernel = Kernel::new(&coordinates, &[0.5, 1.0, 2.0]);
        let (a, b) = (Config::from(vec![10, 3]), Config::from(vec![250, 1]));
        let wanted: f64 =
            [(240.0 / 299.0, 0.5), (2.0 / 3.0, 1.0), (2.0 / 3.0, 2.0)].map(|(d, l)| matern(d / l).0).iter().product();
        assert!((f64::from(kernel.of(&a, &b)) - wanted).abs() < 1e-6);
        assert_eq!((kernel.with(&a)(&b), kernel.of(&b, &b)), (kernel.of(&a, &b), 1.0));
    }

    #[test]
    fn matern_falls_from_one_and_its_derivative_is_right() {
        assert_eq!(matern(0.0), (1.0, 0.0));
        for ratio in [0.1, 0.5, 1.0, 3.0] {
            let (value, slope) = matern(ratio);
            // Longer by a factor of 1 + h: the ratio shrinks by it.
            let h = 1e-6;
            let numeric = (matern(ratio / (1.0 + h)).0 - value) / h.ln_1p() / value;
            assert!((numeric - slope).abs() < 1e-4, "{ratio}: {numeric} {slope}");
            assert!(value < 1.0 && value > matern(ratio * 1.1).0);
        }
    }
}
