//! What a search has asked for and been told.

use std::collections::BTreeSet;
use std::sync::Arc;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::{Candidate, Row, Told};
use crate::space::{Config, ParameterSpace};

/// Random draws before the unseen configurations are looked for one by one.
const DRAWS: usize = 32;

/// The candidates of one search with their results.
pub(super) struct History {
    pub(super) space: Arc<ParameterSpace>,
    /// Numbers of all configurations asked for.
    seen: BTreeSet<u128>,
    /// By candidate id.
    rows: Vec<Row>,
    /// How many of them were told of.
    told: usize,
}

impl History {
    pub(super) fn new(space: Arc<ParameterSpace>) -> History {
        History { space, seen: BTreeSet::new(), rows: Vec::new(), told: 0 }
    }

    /// The configuration of candidate `id`, which was asked for.
    pub(super) fn config(&self, id: u64) -> &Config {
        let id = usize::try_from(id).expect("invariant: an id counts candidates in memory");
        &self.rows[id].config
    }

    /// Makes `config` a candidate; `None` when it is no configuration or was asked for before.
    pub(super) fn take(&mut self, config: Config) -> Option<Candidate> {
        if !self.seen.insert(self.space.rank(&config)?) {
            return None;
        }
        let id = self.rows.len() as u64;
        let schedule = self.space.schedule(&config);
        self.rows.push(Row { config: config.clone(), told: None });
        Some(Candidate { id, config, schedule })
    }

    /// Whether `config` was asked for before.
    pub(super) fn has(&self, config: &Config) -> bool {
        self.space.rank(config).is_some_and(|rank| self.seen.contains(&rank))
    }

    /// A candidate drawn with [`ParameterSpace::sample`], or when those drawn are all known, the next unknown one after
    /// a random place; `None` when the space is exhausted.
    pub(super) fn take_random(&mut self, rng: &mut ChaCha8Rng, exponent: f64) -> Option<Candidate> {
        if self.exhausted() {
            return None;
        }
        for _ in 0..DRAWS {
            let config = self.space.sample(rng, exponent);
            if let Some(candidate) = self.take(config) {
                return Some(candidate);
            }
        }
        let count = self.space.count();
        let mut rank = rng.random_range(0..count);
        while self.seen.contains(&rank) {
            rank = if rank + 1 == count { 0 } else { rank + 1 };
        }
        let config = self.space.unrank(rank)?;
        self.take(config)
    }

    /// Stores a result; false when it does not count.
    pub(super) fn tell(&mut self, id: u64, told: Told) -> bool {
        let sound = match told {
            Told::Time { seconds } | Told::Censored { at_least_seconds: seconds } => {
                seconds.is_finite() && seconds > 0.0
            }
            Told::Failed(_) => true,
        };
        let Some(id) = usize::try_from(id).ok().filter(|_| sound) else { return false };
        match self.rows.get_mut(id) {
            Some(Row { told: slot @ None, .. }) => {
                *slot = Some(told);
                self.told += 1;
                true
            }
            _ => false,
        }
    }

    /// All candidates in the order of asking.
    pub(super) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// How many candidates were told of.
    pub(super) fn told(&self) -> usize {
        self.told
    }

    /// Whether every configuration was asked for.
    pub(super) fn exhausted(&self) -> bool {
        self.seen.len() as u128 >= self.space.count()
    }
}
