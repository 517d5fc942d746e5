//! A Gaussian process over the configurations of a space.
//!
//! - **Target**: winsorised log time ([`Winsor`]), or for explanations plain log time, standardised. Failures count as the slowest value, censored times as
//!   their bound; what is being measured as what is expected of it.
//! - **Kernel**: a product of Matérn 5/2 over the `coordinates` of the space; lengths and noise are learned (`hyper`)
//!   when the rows have grown by a quarter, on at most [`FIT_ROWS`] of them.
//! - **Posterior**: exact, over all rows, kept up to date row by row (`posterior`).
//! - **Success**: the same posterior mean over the indicator of what worked.

mod coordinates;
mod hyper;
mod kernel;
mod posterior;

use rand::SeedableRng;
use std::collections::HashMap;

use nalgebra::DMatrix;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use search_space::space::{Config, ParameterSpace};
use search_space::strategy::{Model, Prediction, Row, Told, Winsor};

use coordinates::Coordinate;
use hyper::Hyper;
use kernel::Kernel;
use posterior::{Point, Posterior, Solved};

use crate::prior::{Prior, damped, undamped};

/// Fewest results that say something of lengths.
const LEAST_ROWS: usize = 4;
/// Most rows that lengths and noise are learned from: the fastest half, the others at random.
const FIT_ROWS: usize = 100;
/// The same for rows that no longer change, which are learned from once.
const FIT_ROWS_ONCE: usize = 160;
/// Steps of a fit that goes on from an earlier one, and of a first one or one with fewer than [`FEW_ROWS`] rows.
const STEPS: usize = 10;
const FEW_STEPS: usize = 20;
const FEW_ROWS: usize = 40;
/// Growth of the rows after which lengths and noise are learned again. With more than [`FEW_ROWS`] that takes long, and the
/// lengths of one row earlier are as good, so it is done while results are awaited; the second number is for those who
/// leave no time for that.
const REFIT_GROWTH: f64 = 1.25;
const REFIT_GROWTH_UNPREPARED: f64 = 1.5;
/// Amplitude that is believed beside other sources before anything was measured, and how many measurements that is worth.
const PRIOR_AMPLITUDE: (f64, f64) = (0.1, 4.0);
/// Least probability of success that is ever claimed.
const LEAST_SUCCESS: f64 = 0.02;

/// A Gaussian process. Deterministic: a fit draws its random rows from a seed of its own.
#[derive(Debug, Default)]
pub struct GaussianProcess {
    coordinates: Option<Vec<Coordinate>>,
    hyper: Option<Hyper>,
    /// Results when lengths were learned last.
    fitted: usize,
    posterior: Posterior,
    /// `None` until something can be said.
    target: Option<Target>,
    sources: Option<Sources>,
    /// Whether the log of time is learned as it is.
    plain: bool,
}

#[derive(Debug)]
struct Target {
    scale: Scale,
    /// Value of the best.
    best: f64,
    amplitude: f64,
    time: Solved,
    /// `None` when nothing failed.
    success: Option<(f64, Solved)>,
}

/// What values stand for.
#[derive(Clone, Copy, Debug)]
enum Scale {
    /// Winsorised log time, standardised by mean and deviation.
    Standard(Winsor, f64, f64),
    /// Log time over the best, standardised by mean and deviation.
    Plain(f64, f64, f64),
    /// Damped log time over the best, beside what other sources expect of it.
    OverBest(f64),
}

/// What was measured elsewhere, with what it says of each configuration asked about.
#[derive(Debug)]
struct Sources {
    prior: Prior,
    expected: HashMap<Config, Vec<f32>>,
}

impl Sources {
    /// Asks the sources about configurations that are new.
    fn look_up(&mut self, configs: &[Config]) {
        let new: Vec<Config> = configs.iter().filter(|config| !self.expected.contains_key(*config)).cloned().collect();
        for config in new {
            let expected = self.prior.expect(&config);
            self.expected.insert(config, expected);
        }
    }

    fn features(&self, config: &Config) -> Vec<f32> {
        features(&self.expected[config], self.prior.weights())
    }

    fn mean(&self, config: &Config) -> f64 {
        average(&self.expected[config], self.prior.weights())
    }
}

/// What others expect, times the root of what they weigh, and a constant; nothing without others.
fn features(expected: &[f32], weights: &[f64]) -> Vec<f32> {
    if expected.is_empty() {
        return Vec::new();
    }
    let constant = single((1.0 / expected.len() as f64).sqrt());
    let weighed = expected.iter().zip(weights).map(|(value, weight)| single(weight.sqrt()) * value);
    std::iter::once(constant).chain(weighed).collect()
}

/// [`Sources::features`], nothing without sources.
fn features_of(sources: Option<&Sources>, config: &Config) -> Vec<f32> {
    sources.map_or_else(Vec::new, |sources| sources.features(config))
}

/// The weighed mean of what others expect, 0 without others.
fn average(expected: &[f32], weights: &[f64]) -> f64 {
    expected.iter().zip(weights).map(|(value, weight)| weight * f64::from(*value)).sum()
}

/// `n` equal weights.
fn equal(n: usize) -> Vec<f64> {
    vec![1.0 / n as f64; n]
}

impl GaussianProcess {
    /// A process that has learned nothing.
    #[must_use]
    pub fn new() -> GaussianProcess {
        GaussianProcess::default()
    }

    /// A process over plain log time, for explanations.
    ///
    /// A search compresses what is slower than the median, because it only needs to be known as bad. One amplitude for
    /// both halves is then too little for the fast one: intervals around fast times come out too narrow. Failures have
    /// no time here; what they say is in [`Prediction::success`].
    #[must_use]
    pub fn of_log_time() -> GaussianProcess {
        GaussianProcess { plain: true, ..GaussianProcess::default() }
    }

    /// A process over what remains when `prior` was taken away: its mean is what the sources expect on average, and a
    /// linear kernel over their expectations lets measurements believe some more than others, or none.
    #[must_use]
    pub fn with_prior(prior: Prior) -> GaussianProcess {
        GaussianProcess { sources: Some(Sources { prior, expected: HashMap::new() }), ..GaussianProcess::default() }
    }

    fn point(&self, config: &Config) -> Point {
        Point { config: config.clone(), features: features_of(self.sources.as_ref(), config) }
    }

    /// Learns lengths and noise from at most `most` of `rows`, and begins a new posterior with them.
    fn refit(&mut self, rows: &[(Point, f64)], most: usize) {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by(|&a, &b| rows[a].1.total_cmp(&rows[b].1));
        if order.len() > most {
            let rng = &mut ChaCha8Rng::seed_from_u64(rows.len() as u64);
            order[most / 2..].shuffle(rng);
            order.truncate(most);
        }
        let configs: Vec<&Config> = order.iter().map(|&at| &rows[at].0.config).collect();
        let y: Vec<f64> = order.iter().map(|&at| rows[at].1).collect();
        let inner = |i: usize, j: usize| {
            let (a, b) = (&rows[order[i]].0.features, &rows[order[j]].0.features);
            a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum()
        };
        let given = DMatrix::from_fn(y.len(), y.len(), inner);
        let coordinates = self.coordinates.as_ref().expect("invariant: set before");
        let steps = if rows.len() < FEW_ROWS || self.hyper.is_none() { FEW_STEPS } else { STEPS };
        let hyper = self.hyper.get_or_insert_with(|| Hyper::prior(coordinates.len()));
        if rows.len() >= LEAST_ROWS {
            hyper.fit(coordinates, &configs, &y, &given, steps);
        }
        let lengths: Vec<f64> = hyper.lengths.iter().map(|length| length.exp()).collect();
        self.posterior = Posterior::new(Kernel::new(coordinates, &lengths), hyper.noise.exp());
        self.fitted = rows.len();
    }

    /// The scale of these results, and the value of each; `None` before something worked.
    fn values(&self, rows: &[Row]) -> Option<(Scale, Vec<Option<f64>>)> {
        // An explanation takes bounds for times, of which a good default leaves few others.
        let time = |row: &Row| match row.told? {
            Told::Time { seconds } => Some(seconds.ln()),
            Told::Censored { at_least_seconds } if self.plain => Some(at_least_seconds.ln()),
            Told::Censored { .. } | Told::Failed(_) => None,
        };
        let times: Vec<f64> = rows.iter().filter_map(time).collect();
        let winsor = Winsor::of(&times)?;
        let best = winsor.log(0.0);
        let value = |told: Told| match told {
            Told::Time { seconds } | Told::Censored { at_least_seconds: seconds } => Some(match self.sources {
                Some(_) => damped(seconds.ln() - best),
                None if self.plain => seconds.ln() - best,
                None => winsor.value(seconds.ln()),
            }),
            Told::Failed(_) => None,
        };
        // A search takes failures for as bad as the worst; in an explanation they have no time.
        let worst = rows.iter().filter_map(|row| value(row.told?)).fold(0.0, f64::max);
        let failed = (!self.plain).then_some(worst);
        let raw: Vec<Option<f64>> = rows.iter().map(|row| value(row.told?).or(failed)).collect();
        if let Some(sources) = &self.sources {
            let y = rows.iter().zip(raw).map(|(row, value)| Some(value? - sources.mean(&row.config))).collect();
            return Some((Scale::OverBest(best), y));
        }
        let known: Vec<f64> = raw.iter().copied().flatten().collect();
        let mean = known.iter().sum::<f64>() / known.len() as f64;
        let variance = known.iter().map(|z| (z - mean).powi(2)).sum::<f64>() / known.len() as f64;
        let deviation = if variance > 0.0 { variance.sqrt() } else { 1.0 };
        let y = raw.into_iter().map(|value| Some((value? - mean) / deviation)).collect();
        let scale =
            if self.plain { Scale::Plain(best, mean, deviation) } else { Scale::Standard(winsor, mean, deviation) };
        Some((scale, y))
    }

    /// Takes in rows, and learns lengths and noise again when their results have grown by `growth` since;
    /// `None` when there is nothing to say yet.
    fn extend(&mut self, space: &ParameterSpace, rows: &[Row], growth: f64) -> Option<(Scale, Vec<Option<f64>>)> {
        self.coordinates.get_or_insert_with(|| coordinates::of(space));
        if let Some(sources) = &mut self.sources {
            sources.look_up(&rows.iter().map(|row| row.config.clone()).collect::<Vec<_>>());
        }
        // Other sources say something before anything was measured here.
        let nothing = || self.sources.as_ref().map(|_| (Scale::OverBest(0.0), vec![None; rows.len()]));
        let (scale, y) = self.values(rows).or_else(nothing)?;
        let known = y.iter().flatten().count();
        let growth = if known < FEW_ROWS { REFIT_GROWTH } else { growth };
        let enough = known >= LEAST_ROWS && known as f64 >= self.fitted as f64 * growth;
        if enough || self.hyper.is_none() && self.sources.is_some() {
            let rows: Vec<(Point, f64)> =
                rows.iter().zip(&y).filter_map(|(row, y)| Some((self.point(&row.config), (*y)?))).collect();
            self.refit(&rows, FIT_ROWS);
        }
        self.hyper.as_ref()?;
        for row in &rows[self.posterior.len().min(rows.len())..] {
            self.posterior.push(self.point(&row.config));
        }
        Some((scale, y))
    }
}

impl Model for GaussianProcess {
    fn prepare(&mut self, space: &ParameterSpace, rows: &[Row], configs: &[Config]) {
        if self.extend(space, rows, REFIT_GROWTH).is_some() {
            if let Some(sources) = &mut self.sources {
                sources.look_up(configs);
            }
            let sources = self.sources.as_ref();
            self.posterior.at(configs, [], |config| features_of(sources, config));
        }
    }

    fn learn(&mut self, space: &ParameterSpace, rows: &[Row]) {
        let Some((scale, y)) = self.extend(space, rows, REFIT_GROWTH_UNPREPARED) else {
            self.target = None;
            return;
        };
        let known = y.iter().flatten().count();
        let time = self.posterior.solve(y.iter().map(|y| y.map(single)));
        let worked = |told: &Option<Told>| told.map(|told| !matches!(told, Told::Failed(_)));
        let told = rows.iter().filter(|row| row.told.is_some()).count();
        let share = rows.iter().filter(|row| worked(&row.told) == Some(true)).count() as f64 / told.max(1) as f64;
        let success = (share < 1.0 && known > 0).then(|| {
            let indicator = |row: &Row| Some(single(f64::from(u8::from(worked(&row.told)?)) - share));
            (share, self.posterior.solve(rows.iter().map(indicator)))
        });
        let (believed, weight) = if self.sources.is_some() { PRIOR_AMPLITUDE } else { (0.0, 0.0) };
        let amplitude = (f64::from(time.norm()) + weight * believed) / (known as f64 + weight);
        // The scale begins at the best.
        let best = match scale {
            Scale::Standard(_, mean, deviation) | Scale::Plain(_, mean, deviation) => -mean / deviation,
            Scale::OverBest(_) => 0.0,
        };
        self.target = Some(Target { scale, best, amplitude, time, success });
    }

    fn predict(&mut self, _: &ParameterSpace, configs: &[Config]) -> Option<Vec<Prediction>> {
        let target = self.target.as_ref()?;
        if let Some(sources) = &mut self.sources {
            sources.look_up(configs);
        }
        let none = Solved::default();
        let (share, success) = target.success.as_ref().map_or((1.0, &none), |(share, solved)| (*share, solved));
        let sources = self.sources.as_ref();
        let found = self.posterior.at(configs, [&target.time, success], |config| features_of(sources, config));
        let noise = (self.posterior.noise() * target.amplitude).sqrt();
        let prediction = |(config, (variance, [mean, success])): (&Config, (f32, [f32; 2]))| Prediction {
            mean: sources.map_or(0.0, |sources| sources.mean(config)) + f64::from(mean),
            deviation: (f64::from(variance) * target.amplitude).sqrt(),
            noise,
            success: (share + f64::from(success)).clamp(LEAST_SUCCESS, 1.0),
        };
        Some(configs.iter().zip(found).map(prediction).collect())
    }

    fn best(&self) -> Option<f64> {
        self.target.as_ref().map(|target| target.best)
    }

    fn seconds(&self, value: f64) -> Option<f64> {
        match self.target.as_ref()?.scale {
            Scale::Standard(winsor, mean, deviation) => Some(winsor.log(value * deviation + mean).exp()),
            Scale::Plain(best, mean, deviation) => Some((best + value * deviation + mean).exp()),
            Scale::OverBest(best) => Some((best + undamped(value)).exp()),
        }
    }
}

/// The mean of a process over rows that no longer change: of values, or of what remains of them when what others expect
/// was taken away.
#[derive(Debug)]
pub(crate) struct Mean {
    process: GaussianProcess,
    weights: Vec<f32>,
    centre: f64,
}

impl Mean {
    /// Learns from configurations, values, and what others expect of each configuration.
    pub(crate) fn new(space: &ParameterSpace, rows: &[(&Config, f64, Vec<f32>)]) -> Mean {
        // Which of the others is more alike to this one is not known.
        let weights = equal(rows.first().map_or(0, |row| row.2.len()));
        let rest = |row: &(&Config, f64, Vec<f32>)| row.1 - average(&row.2, &weights);
        let centre = rows.iter().map(rest).sum::<f64>() / rows.len().max(1) as f64;
        let point =
            |row: &(&Config, f64, Vec<f32>)| Point { config: row.0.clone(), features: features(&row.2, &weights) };
        let rows: Vec<(Point, f64)> = rows.iter().map(|row| (point(row), rest(row) - centre)).collect();
        let mut process = GaussianProcess { coordinates: Some(coordinates::of(space)), ..GaussianProcess::default() };
        process.refit(&rows, FIT_ROWS_ONCE);
        let (points, values): (Vec<Point>, Vec<f64>) = rows.into_iter().unzip();
        points.into_iter().for_each(|point| process.posterior.push(point));
        let solved = process.posterior.solve(values.into_iter().map(|value| Some(single(value))));
        Mean { weights: process.posterior.weights(&solved), process, centre }
    }

    /// The value expected of a configuration of which others expect `expected`.
    pub(crate) fn of(&self, config: &Config, expected: &[f32]) -> f64 {
        let weights = equal(expected.len());
        let point = Point { config: config.clone(), features: features(expected, &weights) };
        self.centre + average(expected, &weights) + f64::from(self.process.posterior.mean(&point, &self.weights))
    }
}

/// In single precision, in which posteriors are kept.
pub(crate) fn single(value: f64) -> f32 {
    #[expect(clippy::cast_possible_truncation, reason = "standardised values need no more digits")]
    let single = value as f32;
    single
}
