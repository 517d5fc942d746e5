//! What was measured elsewhere, on other devices or other shapes of the same kernel, as a guess of what is measured here.
//!
//! Each source becomes a model of its own, of log time over the source's best: sources differ in what they are slow at,
//! and which of them is to be believed shows only in measurements here. The model is the mean of a Gaussian process; on
//! recorded kernels it put a faster schedule first than boosted trees did, and is learned sooner (docs/search.md). It is
//! learned twice, the second time over what the first models of the other sources leave: they measured elsewhere in the
//! space, and devices are more alike than not. Slow configurations need not be told apart precisely, so growth beyond
//! [`SLOW`] is damped to a logarithm.
//!
//! Until measurements here tell which source to believe, those of devices that are more alike count for more
//! ([`likeness`]).

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use search_space::space::{Config, ParameterSpace};
use search_space::strategy::{Row, Told};

use crate::gp::{Mean, single};
use crate::trees::logs;

/// Log time over the best from which on growth is damped, and its unit there.
const SLOW: f64 = 0.4;
const UNIT: f64 = 0.3;
/// Fewest rows that a source must have to say anything.
const LEAST_ROWS: usize = 16;
/// Most rows of a source: the fastest half, the rest at random.
const MOST_ROWS: usize = 1000;
/// Fastest configurations of each source that a search looks at first.
const FASTEST: usize = 32;

/// What a source on another maker's device weighs, and how far apart two devices or shapes are for each doubling of a figure
/// that differs. On recorded kernels of two makers the first raised the first choice from .85 to .88 of the optimum, while
/// weighing figures more only lost.
const FOREIGN: f64 = 0.25;
const DOUBLING: f64 = 0.1;

/// One device and shape of the same kernel, with what was measured there.
#[derive(Clone, Debug)]
pub struct Source {
    /// The rows, by positions in the space that is searched.
    pub rows: Vec<Row>,
    /// How alike it is to what is searched, from 0 to 1; see [`likeness`].
    pub likeness: f64,
}

/// How alike two devices or shapes are, from 0 to 1: `akin` if they have the same maker, with the `ratios` of the figures
/// that are known of both, such as their bandwidths.
#[must_use]
pub fn likeness(akin: bool, ratios: impl IntoIterator<Item = f64>) -> f64 {
    let doublings = ratios.into_iter().map(f64::log2).filter(|doublings| doublings.is_finite());
    let apart: f64 = doublings.map(|doublings| (DOUBLING * doublings).powi(2)).sum();
    (-apart).exp() * if akin { 1.0 } else { FOREIGN }
}

/// What the records of other searches of the same space say.
#[derive(Debug)]
pub struct Prior {
    /// Of each source, over its own rows.
    alone: Vec<Mean>,
    /// Of each source, over what the others leave.
    informed: Vec<Mean>,
    /// What each source weighs; 1 together.
    weights: Vec<f64>,
    fastest: Vec<Config>,
}

impl Prior {
    /// Learns from `sources`. Those with fewer than 16 results, or in which
    /// nothing worked, say nothing; `None` when that is all of them.
    #[must_use]
    pub fn new(space: &ParameterSpace, sources: &[Source]) -> Option<Prior> {
        let mut prior = Prior { alone: Vec::new(), informed: Vec::new(), weights: Vec::new(), fastest: Vec::new() };
        let mut kept = Vec::new();
        for source in sources {
            let mut rows = slowness(&source.rows);
            if rows.len() < LEAST_ROWS {
                continue;
            }
            rows.sort_by(|a, b| a.1.total_cmp(&b.1));
            prior.fastest.extend(rows.iter().take(FASTEST).map(|row| row.0.clone()));
            if rows.len() > MOST_ROWS {
                rows[MOST_ROWS / 2..].shuffle(&mut ChaCha8Rng::seed_from_u64(0));
                rows.truncate(MOST_ROWS);
            }
            kept.push(rows);
            prior.weights.push(source.likeness.max(f64::MIN_POSITIVE));
        }
        let all: f64 = prior.weights.iter().sum();
        prior.weights.iter_mut().for_each(|weight| *weight /= all);
        let learn = |rows: &Vec<(&Config, f64)>, others: &dyn Fn(&Config) -> Vec<f32>| {
            let rows: Vec<_> = rows.iter().map(|&(config, value)| (config, value, others(config))).collect();
            Mean::new(space, &rows)
        };
        prior.alone = kept.iter().map(|rows| learn(rows, &|_| Vec::new())).collect();
        prior.informed = kept
            .iter()
            .enumerate()
            .map(|(source, rows)| learn(rows, &|config| without(&prior.expect_alone(config), source)))
            .collect();
        (!kept.is_empty()).then_some(prior)
    }

    fn expect_alone(&self, config: &Config) -> Vec<f32> {
        self.alone.iter().map(|source| single(source.of(config, &[]))).collect()
    }

    /// How many sources say something.
    #[must_use]
    pub fn sources(&self) -> usize {
        self.alone.len()
    }

    /// What each of them weighs until measurements here say more; 1 together.
    #[must_use]
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// The fastest configurations of each source.
    #[must_use]
    pub fn fastest(&self) -> &[Config] {
        &self.fastest
    }

    /// What each source expects of a configuration, as damped log time over the best.
    #[must_use]
    pub fn expect(&self, config: &Config) -> Vec<f32> {
        let alone = self.expect_alone(config);
        let informed = |(at, source): (usize, &Mean)| single(source.of(config, &without(&alone, at)));
        self.informed.iter().enumerate().map(informed).collect()
    }
}

/// All values but one.
fn without(values: &[f32], left_out: usize) -> Vec<f32> {
    values.iter().enumerate().filter(|(at, _)| *at != left_out).map(|(_, value)| *value).collect()
}

/// Log time over the best, damped where it is slow.
pub(crate) fn damped(log_over_best: f64) -> f64 {
    let beyond = log_over_best - SLOW;
    if beyond > 0.0 { SLOW + UNIT * (beyond / UNIT).ln_1p() } else { log_over_best }
}

/// The inverse of [`damped`].
pub(crate) fn undamped(value: f64) -> f64 {
    let beyond = value - SLOW;
    if beyond > 0.0 { SLOW + UNIT * (beyond / UNIT).exp_m1() } else { value }
}

/// Results as damped log time over the best; failures are as slow as the slowest.
fn slowness(rows: &[Row]) -> Vec<(&Config, f64)> {
    let time = |row: &Row| if let Some(Told::Time { seconds }) = row.told { Some(seconds.ln()) } else { None };
    let Some(best) = rows.iter().filter_map(time).reduce(f64::min) else { return Vec::new() };
    logs(rows).into_iter().map(|(config, log)| (config, damped(log - best))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use search_space::Outcome;
    use search_space::space::SpaceBuilder;

    #[test]
    fn damping_is_smooth_and_can_be_undone() {
        for value in [-0.5, 0.0, 0.3, SLOW, 1.5, 4.0] {
            assert!((undamped(damped(value)) - value).abs() < 1e-12);
        }
        assert!((damped(SLOW + 1e-6) - SLOW - 1e-6).abs() < 1e-9);
        assert!(damped(5.0) < 2.0);
    }

    #[test]
    fn a_source_of_another_maker_counts_less_and_figures_hardly_matter() {
        assert_eq!(likeness(true, []), 1.0);
        assert_eq!(likeness(false, [1.0]), FOREIGN);
        let (near, far) = (likeness(true, [2.0, 0.5]), likeness(true, [16.0]));
        assert!(1.0 > near && near > far && far > likeness(false, []), "{near} {far}");
        assert_eq!(likeness(true, [0.0, f64::NAN, f64::INFINITY]), 1.0, "figures that are no figures");
    }

    #[test]
    fn the_more_alike_source_decides_before_anything_was_measured() {
        let space = SpaceBuilder::new().param("x", 1..=64).build().unwrap();
        let rows = |best: f64| {
            let seconds = move |x: u16| 1e-6 * (1.0 + (f64::from(x) - best).abs());
            let row = move |x: u16| Row { config: vec![x].into(), told: Some(Told::Time { seconds: seconds(x) }) };
            (0..64u16).map(row).collect::<Vec<Row>>()
        };
        for (first, second, wanted) in [(1.0, FOREIGN, 0..32), (FOREIGN, 1.0, 32..64)] {
            let sources = [Source { rows: rows(10.0), likeness: first }, Source { rows: rows(50.0), likeness: second }];
            let mut model = crate::GaussianProcess::with_prior(Prior::new(&space, &sources).unwrap());
            let configs: Vec<Config> = (0..64u16).map(|x| vec![x].into()).collect();
            search_space::strategy::Model::learn(&mut model, &space, &[]);
            let means = search_space::strategy::Model::predict(&mut model, &space, &configs).unwrap();
            let fastest = (0..64).min_by(|&a, &b| means[a].mean.total_cmp(&means[b].mean)).unwrap();
            assert!(wanted.contains(&fastest), "{fastest}");
        }
    }

    #[test]
    fn sources_that_know_nothing_are_left_out_and_the_others_rank_what_they_did_not_see() {
        let space = SpaceBuilder::new().param("x", 1..=32).param("y", 1..=32).build().unwrap();
        let seconds = |config: &Config| (1.0 + (f64::from(config[0]) - 20.0).abs() + f64::from(config[1])) * 1e-6;
        let source = |rows: &[Row]| Source { rows: rows.to_vec(), likeness: 0.5 };
        let rows: Vec<Row> = (0..200u32)
            .map(|n| space.unrank(u128::from(n * 37 % 1024)).unwrap())
            .map(|config| Row { told: Some(Told::Time { seconds: seconds(&config) }), config })
            .collect();
        let failed: Vec<Row> =
            rows.iter().map(|row| Row { told: Some(Told::Failed(Outcome::Crash)), ..row.clone() }).collect();
        assert!(Prior::new(&space, &[source(&failed), source(&rows[..10])]).is_none());
        let prior = Prior::new(&space, &[source(&failed), source(&rows)]).unwrap();
        assert_eq!((prior.sources(), prior.fastest().len()), (1, FASTEST));
        let expect = |x, y| prior.expect(&vec![x, y].into())[0];
        assert!(expect(20, 0) < expect(20, 12) && expect(20, 0) < expect(3, 0));
        // Two sources know more than one.
        assert_eq!(Prior::new(&space, &[source(&rows), source(&rows)]).unwrap().expect(&vec![20, 0].into()).len(), 2);
    }
}
