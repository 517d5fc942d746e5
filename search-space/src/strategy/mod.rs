//! Search strategies behind one interface: *ask* for candidates, *tell* what became of them.
//!
//! A strategy is deterministic: its state is a fold over (seed, asks, tells in order). A search is resumed by replaying
//! its event log into a fresh strategy, which then asks for the same next candidates. Strategies know neither clock nor
//! device.

mod evolution;
mod history;
mod random;

use crate::space::{Config, ParameterSpace};
use crate::{Outcome, Schedule};

pub use evolution::Evolution;
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

    /// Reports on candidate `id`. Only the first report on each counts; an unknown `id` and a time that is not a positive
    /// number are ignored.
    fn tell(&mut self, id: u64, told: Told);
}

/// A learned model of time. It must be deterministic: equal calls in equal order give equal predictions.
pub trait Scorer: Send {
    /// Learns from all that is known: configurations and the natural logarithm of their seconds, in order of
    /// measurement. Failed configurations come as slow ones.
    fn fit(&mut self, space: &ParameterSpace, rows: &[(Config, f64)]);

    /// One score per configuration, lower is faster; `None` when nothing was learned yet.
    fn predict(&self, space: &ParameterSpace, configs: &[Config]) -> Option<Vec<f64>>;
}
