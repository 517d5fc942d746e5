//! A plain generational genetic algorithm: a baseline.
//!
//! - **First generation**: the default and uniform draws.
//! - **Each further one**: the fastest of the generation before and its two best parents are the pool; a child has two
//!   tournament winners as parents, takes each parameter from one of them (uniform crossover), changes each with
//!   probability 1/parameters to another value (mutation), and is made legal by [`ParameterSpace::nearest`]. A child that
//!   is known mutates once more; after some attempts a uniform draw takes its place.
//!
//! A generation is bred child by child from a pool that stands until the generation is asked for, so batches of any size
//! give the same search when results come in between. Failed and censored candidates are never parents.
//!
//! Source: Goldberg, "Genetic Algorithms in Search, Optimization, and Machine Learning", 1989; uniform crossover: Syswerda,
//! ICGA 1989.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::history::History;
use super::{Candidate, Strategy, Told};
use crate::space::{Config, ParameterSpace};

/// Candidates of one generation, and most parents.
const POPULATION: usize = 20;
/// Parents that outlive their generation.
const ELITE: usize = 2;
/// Parents that meet in one tournament.
const TOURNAMENT: usize = 3;
/// Share of children with two parents.
const CROSSOVER: f64 = 0.9;
/// Mutations of one child before a uniform draw takes its place.
const ATTEMPTS: usize = 16;

/// A generational genetic algorithm.
pub struct Genetic {
    history: History,
    rng: ChaCha8Rng,
    /// First candidate.
    default: Option<Config>,
    /// `(seconds, config)` of the parents, rising.
    pool: Vec<(f64, Config)>,
    /// The same of what was told during this generation, in order of telling.
    members: Vec<(f64, Config)>,
    /// Candidates of this generation asked for.
    asked: usize,
}

impl Genetic {
    /// A search of `space`. `default` is the first candidate; when the space does not contain it, its nearest
    /// configuration is.
    pub fn new(space: Arc<ParameterSpace>, default: Option<Config>, seed: u64) -> Genetic {
        let default = default.and_then(|config| space.nearest(&config, &[], &[]));
        let rng = ChaCha8Rng::seed_from_u64(seed);
        Genetic { history: History::new(space), rng, default, pool: Vec::new(), members: Vec::new(), asked: 0 }
    }

    /// The pool of the next generation.
    fn turn_over(&mut self) {
        self.pool.truncate(ELITE);
        self.pool.append(&mut self.members);
        // Stable: among equals the elder comes first.
        self.pool.sort_by(|a, b| a.0.total_cmp(&b.0));
        self.pool.truncate(POPULATION);
        self.asked = 0;
    }

    fn parent(&mut self) -> Option<Config> {
        let most = self.pool.len();
        if most == 0 {
            return None;
        }
        let winner = (0..TOURNAMENT).map(|_| self.rng.random_range(0..most)).min()?;
        Some(self.pool[winner].1.clone())
    }

    /// A new configuration of two parents; `None` when there are no parents or all attempts were known.
    fn child(&mut self) -> Option<Config> {
        let mut child = self.parent()?;
        if self.rng.random_bool(CROSSOVER) {
            let other = self.parent()?;
            let mixed = child.iter().zip(other.iter()).map(|(&a, &b)| if self.rng.random() { a } else { b });
            child = mixed.collect::<Vec<u16>>().into();
        }
        for _ in 0..ATTEMPTS {
            child = self.mutate(&child);
            // What the mutation broke is repaired; the space is never empty.
            let legal = self.history.space.nearest(&child, &[], &[])?;
            if !self.history.has(&legal) {
                return Some(legal);
            }
        }
        None
    }

    fn mutate(&mut self, config: &Config) -> Config {
        let space = &self.history.space;
        let chance = 1.0 / config.len() as f64;
        let mut values = config.to_vec();
        for (value, param) in values.iter_mut().zip(space.params()) {
            let size = param.values.len();
            if size > 1 && self.rng.random_bool(chance) {
                let other = (usize::from(*value) + self.rng.random_range(1..size)) % size;
                *value = u16::try_from(other).expect("invariant: domains fit u16");
            }
        }
        values.into()
    }

    fn next(&mut self) -> Option<Candidate> {
        if let Some(first) = self.default.take().and_then(|config| self.history.take(config)) {
            return Some(first);
        }
        if self.asked == POPULATION {
            self.turn_over();
        }
        let child = self.child().and_then(|config| self.history.take(config));
        child.or_else(|| self.history.take_random(&mut self.rng, 1.0))
    }
}

impl Strategy for Genetic {
    fn name(&self) -> &'static str {
        "ga"
    }

    fn ask(&mut self, n: usize) -> Vec<Candidate> {
        let mut batch = Vec::new();
        while batch.len() < n
            && let Some(candidate) = self.next()
        {
            self.asked += 1;
            batch.push(candidate);
        }
        batch
    }

    fn tell(&mut self, id: u64, told: Told) {
        if self.history.tell(id, told)
            && let Told::Time { seconds } = told
        {
            self.members.push((seconds, self.history.config(id).clone()));
        }
    }
}
