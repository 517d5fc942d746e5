//! A space of which every configuration was measured, and the fair way to search it again without the device.
//!
//! A search gets results from a [`Playback`] only: it counts each distinct configuration it is asked for once, failed ones
//! too, and adds what they cost to a virtual clock. A [`Judge`] knows everything and is for those who compare searches.
//! Strategies ([`crate::strategy::Strategy`]) are given neither: they see the [`ParameterSpace`] and a [`Told`] for what
//! they asked.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;

use crate::Outcome;
use crate::space::{Config, ParameterSpace};
use crate::strategy::{Row, Told};

/// What was measured of one configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recorded {
    /// What became of it.
    pub outcome: Outcome,
    /// Time of one run, in seconds: only for [`Outcome::Ok`], which has this or a bound.
    pub seconds: Option<f64>,
    /// In place of a time: timing was cut off as clearly slower than others, and one run takes at least this many seconds.
    pub at_least_seconds: Option<f64>,
    /// What it took to compile and measure; zero when that is not known.
    pub cost: Duration,
}

impl Recorded {
    /// What was measured, from what a search is told of it.
    #[must_use]
    pub fn new(told: Told, cost: Duration) -> Recorded {
        let (outcome, seconds, at_least_seconds) = match told {
            Told::Time { seconds } => (Outcome::Ok, Some(seconds), None),
            Told::Censored { at_least_seconds } => (Outcome::Ok, None, Some(at_least_seconds)),
            Told::Failed(outcome) => (outcome, None, None),
        };
        Recorded { outcome, seconds, at_least_seconds, cost }
    }

    /// What a search is told of it.
    pub fn told(&self) -> Told {
        match (self.seconds, self.at_least_seconds) {
            (Some(seconds), _) => Told::Time { seconds },
            (None, Some(at_least_seconds)) => Told::Censored { at_least_seconds },
            (None, None) => Told::Failed(self.outcome),
        }
    }
}

/// Why rows are no recorded space.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordedError {
    /// Fewer rows than configurations.
    #[error("{rows} of the {count} configurations are recorded; record all of them, or list those that are as a table")]
    Missing {
        /// Rows given.
        rows: usize,
        /// Configurations of the space.
        count: u128,
    },
    /// A row for something else.
    #[error("row {row} is no configuration of the space")]
    NotInSpace {
        /// Which row, from 0 in the order given.
        row: usize,
    },
    /// Two rows for one configuration.
    #[error("{schedule} is recorded twice; merge its rows into one")]
    Duplicate {
        /// The configuration as `parameter=value` words.
        schedule: String,
    },
    /// A success without a time or bound, one with both, a failure with one, or a time that is no positive number.
    #[error("{schedule} is recorded as {outcome} with {}; a time must be above 0 and belongs to what is ok",
        seconds.as_ref().map_or("no time".to_owned(), |seconds| format!("a time of {seconds} s")))]
    Time {
        /// The configuration as `parameter=value` words.
        schedule: String,
        /// Its outcome.
        outcome: Outcome,
        /// Its time in seconds, as text.
        seconds: Option<String>,
    },
    /// Nothing worked and was timed to the end.
    #[error("none of the {rows} recorded configurations has a time, so there is nothing to search for")]
    NothingWorks {
        /// How many there are.
        rows: usize,
    },
}

/// A kernel on a device with a result for every configuration of its space.
///
/// ```
/// use std::time::Duration;
/// use tilewright_search_space::space::SpaceBuilder;
/// use tilewright_search_space::strategy::Told;
/// use tilewright_search_space::{Outcome, Recorded, RecordedSpace};
/// let space = SpaceBuilder::new().param("tile", [8, 16]).build()?;
/// let cost = Duration::from_millis(300);
/// let rows = vec![
///     (vec![0].into(), Recorded { outcome: Outcome::Ok, seconds: Some(0.004), at_least_seconds: None, cost }),
///     (vec![1].into(), Recorded { outcome: Outcome::ResourceLimit, seconds: None, at_least_seconds: None, cost }),
/// ];
/// let recorded = RecordedSpace::new("copy-T1000", "copy", "T1000", space, rows)?;
/// let mut playback = recorded.play();
/// assert_eq!(playback.measure(&vec![0].into()), Told::Time { seconds: 0.004 });
/// assert_eq!((playback.evaluations(), playback.clock()), (1, cost));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RecordedSpace {
    /// Name, such as `gemm-RTX_3090`.
    pub name: String,
    /// The kernel.
    pub kernel: String,
    /// The device it ran on.
    pub device: String,
    /// The size of the problem as text, where it is known apart from the kernel.
    pub problem: Option<String>,
    space: Arc<ParameterSpace>,
    /// By number of the configuration.
    rows: Vec<Recorded>,
}

impl RecordedSpace {
    /// A recorded space from one row for each configuration, in any order.
    ///
    /// # Errors
    /// Rows that are not exactly one for each configuration, contradict themselves, or of which none is ok.
    pub fn new(
        name: impl Into<String>,
        kernel: impl Into<String>,
        device: impl Into<String>,
        space: ParameterSpace,
        rows: Vec<(Config, Recorded)>,
    ) -> Result<RecordedSpace, RecordedError> {
        let given = rows.len();
        // Asked first, so that there is a place for each number.
        if space.count() > given as u128 {
            return Err(RecordedError::Missing { rows: given, count: space.count() });
        }
        let mut by_rank: Vec<Option<Recorded>> = vec![None; given];
        for (row, (config, recorded)) in rows.into_iter().enumerate() {
            let rank = space.rank(&config).and_then(|rank| usize::try_from(rank).ok());
            let rank = rank.ok_or(RecordedError::NotInSpace { row })?;
            let schedule = || space.schedule(&config).to_string();
            let usable = match (recorded.seconds, recorded.at_least_seconds) {
                (Some(seconds), None) | (None, Some(seconds)) => {
                    recorded.outcome == Outcome::Ok && seconds > 0.0 && seconds.is_finite()
                }
                (Some(_), Some(_)) => false,
                (None, None) => recorded.outcome != Outcome::Ok,
            };
            if !usable {
                let seconds = match (recorded.seconds, recorded.at_least_seconds) {
                    (Some(seconds), Some(bound)) => Some(format!("{seconds} s and at least {bound}")),
                    (seconds, bound) => seconds.or(bound).map(|seconds| seconds.to_string()),
                };
                return Err(RecordedError::Time { schedule: schedule(), outcome: recorded.outcome, seconds });
            }
            if by_rank[rank].replace(recorded).is_some() {
                return Err(RecordedError::Duplicate { schedule: schedule() });
            }
        }
        let rows: Option<Vec<Recorded>> = by_rank.into_iter().collect();
        let rows =
            rows.expect("invariant: at least as many rows as configurations, none of them a stranger or a repeat");
        if rows.iter().all(|row| row.seconds.is_none()) {
            return Err(RecordedError::NothingWorks { rows: rows.len() });
        }
        let (name, kernel, device) = (name.into(), kernel.into(), device.into());
        Ok(RecordedSpace { name, kernel, device, problem: None, space: Arc::new(space), rows })
    }

    /// Whether both are recordings of one kernel on one device, whatever they are called: then one tells the results of
    /// the other. The sizes of their problems count where both are known.
    pub fn is_of_the_same(&self, other: &RecordedSpace) -> bool {
        let problems = self.problem.as_ref().zip(other.problem.as_ref());
        self.kernel == other.kernel && self.device == other.device && problems.is_none_or(|(a, b)| a == b)
    }

    /// The space, for strategies.
    pub fn space(&self) -> &Arc<ParameterSpace> {
        &self.space
    }

    /// Number of configurations, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a recorded space is never empty")]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// A fresh search of it: nothing asked, the clock at zero.
    pub fn play(&self) -> Playback<'_> {
        Playback {
            recorded: self,
            asked: vec![false; self.rows.len()],
            evaluations: 0,
            clock: Duration::ZERO,
            best: None,
        }
    }

    /// All results, for measures of quality. Never for a search.
    pub fn judge(&self) -> Judge<'_> {
        let mut times: Vec<Option<f64>> = self.rows.iter().map(|row| row.seconds).collect();
        let key = |time: &Option<f64>| time.unwrap_or(f64::INFINITY);
        times.sort_by(|a, b| key(a).total_cmp(&key(b)));
        Judge { recorded: self, times }
    }

    /// Every configuration with what was measured, in order of number: for priors and exports.
    pub fn rows(&self) -> impl Iterator<Item = (Config, &Recorded)> {
        (0u128..).zip(&self.rows).map(|(rank, row)| (self.config(rank), row))
    }

    /// `n` distinct configurations drawn uniformly, failed ones included (all of them when there are fewer), as rows: the
    /// form in which records of another device are given to a search.
    pub fn sample_rows(&self, n: usize, rng: &mut impl Rng) -> Vec<Row> {
        let drawn = rand::seq::index::sample(rng, self.rows.len(), n.min(self.rows.len()));
        let row = |rank: usize| Row { config: self.config(rank as u128), told: Some(self.rows[rank].told()) };
        drawn.into_iter().map(row).collect()
    }

    fn config(&self, rank: u128) -> Config {
        self.space.unrank(rank).expect("invariant: there is one row per configuration")
    }
}

/// The device of a replayed search: the only way in which a search gets results.
#[derive(Clone, Debug)]
pub struct Playback<'a> {
    recorded: &'a RecordedSpace,
    asked: Vec<bool>,
    evaluations: usize,
    clock: Duration,
    best: Option<f64>,
}

impl Playback<'_> {
    /// The recorded result of `config`. The first time it counts as an evaluation and costs its time, whether it worked
    /// or failed; a repeat is free.
    ///
    /// # Panics
    /// When `config` is no configuration of the space.
    pub fn measure(&mut self, config: &Config) -> Told {
        let rank = self.recorded.space.rank(config).and_then(|rank| usize::try_from(rank).ok());
        let rank = rank.expect("invariant: strategies propose configurations of their space");
        let row = &self.recorded.rows[rank];
        if !std::mem::replace(&mut self.asked[rank], true) {
            self.evaluations += 1;
            self.clock = self.clock.saturating_add(row.cost);
            self.best = self.best.into_iter().chain(row.seconds).min_by(f64::total_cmp);
        }
        row.told()
    }

    /// How many distinct configurations were measured.
    pub fn evaluations(&self) -> usize {
        self.evaluations
    }

    /// The time that compiling and measuring them took when they were recorded.
    pub fn clock(&self) -> Duration {
        self.clock
    }

    /// The fastest time measured so far, in seconds.
    pub fn best_s(&self) -> Option<f64> {
        self.best
    }
}

/// All results of a recorded space, for measures of quality.
#[derive(Clone, Debug)]
pub struct Judge<'a> {
    recorded: &'a RecordedSpace,
    times: Vec<Option<f64>>,
}

impl Judge<'_> {
    /// The fastest time, in seconds.
    pub fn optimum_s(&self) -> f64 {
        self.times[0].expect("invariant: something works")
    }

    /// The times of all configurations in rising order, in seconds; those that failed or were cut off are `None` and come
    /// last.
    pub fn times(&self) -> &[Option<f64>] {
        &self.times
    }

    /// What is known of the time of each configuration, in any order, in seconds: its time, or its bound, or `None` when it
    /// failed. A bound below the fastest time, as between two noisy nights, is raised to that: the fastest is not there.
    pub fn known_s(&self) -> impl Iterator<Item = Option<f64>> {
        let optimum_s = self.optimum_s();
        self.recorded.rows.iter().map(move |row| row.seconds.or(row.at_least_seconds.map(|bound| bound.max(optimum_s))))
    }

    /// How many configurations are at most `fraction` slower than the fastest: 0.05 means up to 1.05 times its time.
    pub fn within(&self, fraction: f64) -> usize {
        let limit = self.optimum_s() * (1.0 + fraction);
        self.times.partition_point(|time| time.is_some_and(|seconds| seconds <= limit))
    }

    /// The result of one configuration; `None` when it is none of the space.
    pub fn result(&self, config: &Config) -> Option<&Recorded> {
        let rank = usize::try_from(self.recorded.space.rank(config)?).ok()?;
        self.recorded.rows.get(rank)
    }
}
