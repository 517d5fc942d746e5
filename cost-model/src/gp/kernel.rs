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
}

impl Factor {
    fn at(&self, a: u16, b: u16) -> f32 {
        if self.table.is_empty() {
            return self.compute(a, b);
        }
        self.table[usize::from(a) * self.values + usize::from(b)]
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
