//! Search strategies behind one interface: *ask* for candidates, *tell* what became of them.
//!
//! A strategy is deterministic: its state is a fold over (seed, asks, tells in order). A search is resumed by replaying
//! its event log into a fresh strategy, which then asks for the same next candidates. Strategies know neither clock nor
//! device.

mod acquisition;
mod annealing;
mod bayes;
mod breed;
mod evolution;
mod genetic;
mod history;
mod pool;
mod random;
mod start;

use crate::space::{Config, ParameterSpace};
use crate::{Outcome, Schedule};

pub use annealing::Annealing;
pub use bayes::Bayes;
pub use evolution::Evolution;
pub use genetic::Genetic;
pub use random::RandomSearch;

/// A schedule to be tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Number within the search, from 0 in the order of asking.
    pub id: u64,
    /// Positions in the space.
    pub config: Config,
    /// The same as named values.
    pub schedule: Schedule,
}

/// What became of a candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Told {
    /// Verified and timed.
    Time {
        /// Time of one run, in seconds.
        seconds: f64,
    },
    /// Verified, and dropped as clearly slower before its time was known well.
    Censored {
        /// A lower bound on the time of one run, in seconds.
        at_least_seconds: f64,
    },
    /// Not usable.
    Failed(Outcome),
}

/// A source of candidates. No candidate is asked for twice.
pub trait Strategy: Send {
    /// The name by which users choose it.
    fn name(&self) -> &'static str;

    /// Up to `n` further candidates; fewer only when the space holds no more, none when it is exhausted.
    fn ask(&mut self, n: usize) -> Vec<Candidate>;

    /// Does what can be done for the next choice before the results of the last are known, so that it costs no time while
    /// they are measured. Left out, it happens later: calls change nothing but when work is done.
    fn think(&mut self) {}

    /// By what share of the best time the candidate asked for last is expected to shorten it, the chance that it does not
    /// counted in; `None` when that is not known, as for candidates of the start.
    fn expected_gain(&self) -> Option<f64> {
        None
    }

    /// Reports on candidate `id`. Only the first report on each counts; an unknown `id` and a time that is not a positive
    /// number are ignored.
    fn tell(&mut self, id: u64, told: Told);
}

/// A candidate and what is known of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Positions in the space.
    pub config: Config,
    /// `None` while it is being measured.
    pub told: Option<Told>,
}

/// What a model says of one configuration, in a unit of its own: lower is faster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// The value expected.
    pub mean: f64,
    /// How sure the model is of it, as a standard deviation; 0 for a model that cannot say.
    pub deviation: f64,
    /// How far a measurement lies from the value it should have, as a standard deviation, which is not part of
    /// `deviation`; 0 for a model that cannot say.
    pub noise: f64,
    /// Probability that it works at all; 1 for a model that cannot say.
    pub success: f64,
}

/// A learned model of time. It must be deterministic: equal calls in equal order give equal predictions.
///
/// Its unit is its own, and may change whenever it learns: predictions are compared with each other and with
/// [`Model::best`], never kept.
pub trait Model: Send {
    /// Learns from all that is known. Within one search rows are only ever added at the end, and `told` goes from `None`
    /// to a result once, so that a model may do only what is new.
    fn learn(&mut self, space: &ParameterSpace, rows: &[Row]);

    /// Does what can be done before the results of the last rows are known: `learn` and `predict` cost less after it. What
    /// they say may depend on it.
    fn prepare(&mut self, _space: &ParameterSpace, _rows: &[Row], _configs: &[Config]) {}

    /// One prediction per configuration; `None` when too little was learned.
    fn predict(&mut self, space: &ParameterSpace, configs: &[Config]) -> Option<Vec<Prediction>>;

    /// The value of the fastest row learned from, in the unit of the predictions.
    fn best(&self) -> Option<f64>;

    /// The seconds that a predicted value stands for, for explanations; `None` when nothing was learned.
    fn seconds(&self, value: f64) -> Option<f64>;
}

/// The learning target of the models here: log seconds as distance from the best in units of the median's, compressed
/// above the median. What is worse than the median only needs to be known as bad.
///
/// ```text
/// z = (ln t − ln best) / (ln median − ln best);   z > 1  becomes  1 + 0.2 ln z
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Winsor {
    best: f64,
    scale: f64,
}

impl Winsor {
    /// The scale given by these log seconds; `None` when there are none.
    #[must_use]
    pub fn of(logs: &[f64]) -> Option<Winsor> {
        let mut sorted = logs.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&best, &median) = (sorted.first()?, sorted.get(sorted.len() / 2)?);
        // When half the rows tie with the best, the rest are measured from there by the same unit as times.
        Some(Winsor { best, scale: if median > best { median - best } else { 1.0 } })
    }

    /// The value of log seconds.
    #[must_use]
    pub fn value(&self, log: f64) -> f64 {
        let z = (log - self.best) / self.scale;
        if z > 1.0 { 1.0 + 0.2 * z.ln() } else { z }
    }

    /// The log seconds of a value.
    #[must_use]
    pub fn log(&self, value: f64) -> f64 {
        let z = if value > 1.0 { ((value - 1.0) / 0.2).exp() } else { value };
        self.best + z * self.scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn winsorising_keeps_order_compresses_the_slow_half_and_can_be_undone() {
        let values = |logs: &[f64]| -> Vec<f64> {
            let winsor = Winsor::of(logs).unwrap();
            for &log in logs {
                assert!((winsor.log(winsor.value(log)) - log).abs() < 1e-9 * (1.0 + log.abs()));
            }
            logs.iter().map(|&log| winsor.value(log)).collect()
        };
        assert_eq!(values(&[2.0, 1.0, 3.0]), [1.0, 0.0, 1.0 + 0.2 * 2f64.ln()]);
        assert_eq!(values(&[1.0, 1.0, 1.0, 1.5]), [0.0, 0.0, 0.0, 0.5]);
        assert_eq!(Winsor::of(&[]), None);
        let slow = values(&[0.0, 1.0, 1.0, 2.0, 1000.0]);
        assert!(slow[3] < slow[4] && slow[4] < 2.5);
    }
}
