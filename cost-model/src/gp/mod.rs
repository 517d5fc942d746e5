//! A Gaussian process over the configurations of a space.
//!
//! - **Target**: winsorised log time ([`Winsor`]), standardised. Failures count as the slowest value, censored times as
//!   their bound; what is being measured as what is expected of it.
//! - **Kernel**: a product of Matérn 5/2 over the `coordinates` of the space; lengths and noise are learned (`hyper`)
//!   whenever the rows have grown by a quarter, on at most [`FIT_ROWS`] of them.
//! - **Posterior**: exact, over all rows, kept up to date row by row (`posterior`).
//! - **Success**: the same posterior mean over the indicator of what worked.

mod coordinates;
mod hyper;
mod kernel;
mod posterior;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use search_space::space::{Config, ParameterSpace};
use search_space::strategy::{Model, Prediction, Row, Told, Winsor};

use coordinates::Coordinate;
use hyper::Hyper;
use kernel::Kernel;
use posterior::{Linear, Point, Posterior, Solved};

/// Fewest results that say something of lengths.
const LEAST_ROWS: usize = 4;
/// Most rows that lengths and noise are learned from: the fastest half, the others at random.
const FIT_ROWS: usize = 100;
/// Steps of a fit, and of one with fewer than [`FEW_ROWS`] rows.
const STEPS: usize = 10;
const FEW_STEPS: usize = 20;
const FEW_ROWS: usize = 40;
/// Growth of the rows after which lengths and noise are learned again.
const REFIT_GROWTH: f64 = 1.25;
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
    /// `None` until something worked.
    target: Option<Target>,
}

#[derive(Debug)]
struct Target {
    scale: Scale,
    best: f64,
    amplitude: f64,
    time: Solved,
    /// `None` when nothing failed.
    success: Option<(f64, Solved)>,
}

/// Winsorised, then standardised.
#[derive(Clone, Copy, Debug)]
struct Scale {
    winsor: Winsor,
    mean: f64,
    deviation: f64,
}

impl GaussianProcess {
    /// A process that has learned nothing.
    #[must_use]
    pub fn new() -> GaussianProcess {
        GaussianProcess::default()
    }

    /// Learns lengths and noise from `rows` of standardised values, and begins a new posterior with them.
    fn refit(&mut self, rows: &[(&Config, f64)]) {
        let coordinates = self.coordinates.as_ref().expect("invariant: set before");
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by(|&a, &b| rows[a].1.total_cmp(&rows[b].1));
        if order.len() > FIT_ROWS {
            let rng = &mut ChaCha8Rng::seed_from_u64(rows.len() as u64);
            order[FIT_ROWS / 2..].shuffle(rng);
            order.truncate(FIT_ROWS);
        }
        let steps = if rows.len() < FEW_ROWS { FEW_STEPS } else { STEPS };
        let hyper = self.hyper.get_or_insert_with(|| Hyper::prior(coordinates.len()));
        let configs: Vec<&Config> = order.iter().map(|&at| rows[at].0).collect();
        let y: Vec<f64> = order.iter().map(|&at| rows[at].1).collect();
        hyper.fit(coordinates, &configs, &y, steps);
        let lengths: Vec<f64> = hyper.lengths.iter().map(|length| length.exp()).collect();
        self.posterior = Posterior::new(Kernel::new(coordinates, &lengths), Linear::default(), hyper.noise.exp());
        self.fitted = rows.len();
    }
}

impl Model for GaussianProcess {
    fn learn(&mut self, space: &ParameterSpace, rows: &[Row]) {
        self.coordinates.get_or_insert_with(|| coordinates::of(space));
        let times: Vec<f64> = rows.iter().filter_map(|row| time(row.told?)).collect();
        let Some(winsor) = Winsor::of(&times) else {
            self.target = None;
            return;
        };
        // Failures are as bad as the worst; standardised over all results.
        let value = |told: Told| match told {
            Told::Time { seconds } | Told::Censored { at_least_seconds: seconds } => Some(winsor.value(seconds.ln())),
            Told::Failed(_) => None,
        };
        let raw: Vec<Option<Option<f64>>> = rows.iter().map(|row| row.told.map(value)).collect();
        let worst = raw.iter().flatten().flatten().copied().fold(0.0, f64::max);
        let known: Vec<f64> = raw.iter().flatten().map(|value| value.unwrap_or(worst)).collect();
        let n = known.len() as f64;
        let mean = known.iter().sum::<f64>() / n;
        let variance = known.iter().map(|z| (z - mean).powi(2)).sum::<f64>() / n;
        let deviation = if variance > 0.0 { variance.sqrt() } else { 1.0 };
        let scale = Scale { winsor, mean, deviation };
        let y: Vec<Option<f64>> =
            raw.iter().map(|value| Some((value.as_ref()?.unwrap_or(worst) - mean) / deviation)).collect();

        if known.len() >= LEAST_ROWS && known.len() as f64 >= self.fitted as f64 * REFIT_GROWTH {
            let rows: Vec<(&Config, f64)> =
                rows.iter().zip(&y).filter_map(|(row, y)| Some((&row.config, (*y)?))).collect();
            self.refit(&rows);
        }
        if self.hyper.is_none() {
            return;
        }
        for row in &rows[self.posterior.len().min(rows.len())..] {
            self.posterior.push(Point { config: row.config.clone(), features: Vec::new() });
        }
        let time = self.posterior.solve(y.iter().map(|y| y.map(single)));
        let worked = raw.iter().flatten().filter(|value| value.is_some()).count() as f64;
        let success = (worked < n).then(|| {
            let share = worked / n;
            let indicator = |value: &Option<Option<f64>>| {
                value.as_ref().map(|value| single(f64::from(u8::from(value.is_some())) - share))
            };
            (share, self.posterior.solve(raw.iter().map(indicator)))
        });
        self.target = Some(Target {
            scale,
            // The scale begins at the best.
            best: -mean / deviation,
            amplitude: f64::from(time.norm()) / n,
            time,
            success,
        });
    }

    fn predict(&mut self, _: &ParameterSpace, configs: &[Config]) -> Option<Vec<Prediction>> {
        let target = self.target.as_ref()?;
        let none = Solved::default();
        let (share, success) = target.success.as_ref().map_or((1.0, &none), |(share, solved)| (*share, solved));
        let found = self.posterior.at(configs, [&target.time, success], |_| Vec::new());
        let prediction = |(variance, [mean, success]): (f32, [f32; 2])| Prediction {
            mean: f64::from(mean),
            deviation: (f64::from(variance) * target.amplitude).sqrt(),
            success: (share + f64::from(success)).clamp(LEAST_SUCCESS, 1.0),
        };
        Some(found.into_iter().map(prediction).collect())
    }

    fn best(&self) -> Option<f64> {
        self.target.as_ref().map(|target| target.best)
    }

    fn seconds(&self, value: f64) -> Option<f64> {
        let Scale { winsor, mean, deviation } = self.target.as_ref()?.scale;
        Some(winsor.log(value * deviation + mean).exp())
    }
}

/// The log seconds of a result that the scale is taken from.
fn time(told: Told) -> Option<f64> {
    if let Told::Time { seconds } = told { Some(seconds.ln()) } else { None }
}

fn single(value: f64) -> f32 {
    #[expect(clippy::cast_possible_truncation, reason = "standardised values need no more digits")]
    let single = value as f32;
    single
}
