//! Simulated annealing with restarts: a baseline.
//!
//! A walk steps from its present configuration to one that differs in one or two parameters, made legal by
//! [`ParameterSpace::nearest`]. A faster one is always accepted, one slower by the factor `r` with probability
//! `r^(-1 / temperature)`. The temperature falls by a constant factor with each result. A walk that is cold, or has
//! accepted nothing for long, ends; the next one starts at the fastest known configuration or at a uniform draw, in turn.
//!
//! A step to a configuration that is known costs nothing: it is accepted or not by the time it had. Failed and censored
//! candidates are never accepted.
//!
//! Source: Kirkpatrick, Gelatt, Vecchi, "Optimization by Simulated Annealing", Science 220, 1983. The energy is the
//! logarithm of the time, so that the temperatures suit kernels of any speed.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::history::History;
use super::{Candidate, Strategy, Told};
use crate::space::{Config, ParameterSpace};

/// Temperature at the start of a walk: a time longer by a third is then accepted with probability 1/e.
const HOT: f64 = 0.3;
/// Factor per result.
const COOLING: f64 = 0.95;
/// Temperature at which a walk ends; reached after some 66 results.
const COLD: f64 = 0.01;
/// Results without an accepted one after which a walk ends.
const PATIENCE: usize = 25;
/// Places by which a step changes a number at most.
const REACH: usize = 2;
/// Steps tried for one candidate, those to known configurations included, before a new walk begins.
const STEPS: usize = 64;

/// Simulated annealing over one and two parameter changes.
pub struct Annealing {
    history: History,
    rng: ChaCha8Rng,
    /// First candidate.
    default: Option<Config>,
    /// Logarithms of the seconds of all successful candidates.
    known: BTreeMap<Config, f64>,
    /// Fastest of all.
    best: Option<Place>,
    walk: Walk,
    /// Walk of each candidate that is not told yet.
    pending: BTreeMap<u64, u64>,
}

#[derive(Clone)]
struct Place {
    config: Config,
    log: f64,
}

/// One walk.
struct Walk {
    /// Number of the walk.
    number: u64,
    /// `None` until its first configuration has a time.
    here: Option<Place>,
    temperature: f64,
    /// Results since the last accepted one.
    refused: usize,
}

impl Walk {
    fn new(number: u64, here: Option<Place>) -> Walk {
        Walk { number, here, temperature: HOT, refused: 0 }
    }

    /// Goes to `place` or stays.
    fn consider(&mut self, place: Place, rng: &mut ChaCha8Rng) -> bool {
        let accepted = match &self.here {
            None => true,
            Some(here) => {
                place.log <= here.log || rng.random::<f64>() < ((here.log - place.log) / self.temperature).exp()
            }
        };
        if accepted {
            self.here = Some(place);
        }
        accepted
    }

    fn over(&self) -> bool {
        self.temperature < COLD || self.refused >= PATIENCE
    }
}

impl Annealing {
    /// A search of `space`. `default` is the first candidate; when the space does not contain it, its nearest
    /// configuration is.
    pub fn new(space: Arc<ParameterSpace>, default: Option<Config>, seed: u64) -> Annealing {
        let default = default.and_then(|config| space.nearest(&config, &[], &[]));
        Annealing {
            history: History::new(space),
            rng: ChaCha8Rng::seed_from_u64(seed),
            default,
            known: BTreeMap::new(),
            best: None,
            walk: Walk::new(0, None),
            pending: BTreeMap::new(),
        }
    }

    /// A legal configuration with one or two parameters changed: numbers by one or two places, names to any other.
    fn step(&mut self, from: &Config) -> Option<Config> {
        let space = &self.history.space;
        let open: Vec<usize> = (0..from.len()).filter(|&at| space.params()[at].values.len() > 1).collect();
        let mut fixed = vec![None; from.len()];
        for _ in 0..self.rng.random_range(1..=2) {
            let at = *open.choose(&mut self.rng)?;
            let (now, size) = (usize::from(from[at]), space.params()[at].values.len());
            let number = space.params()[at].coordinates()[now].is_some();
            let reach = if number { REACH } else { size };
            let near = now.saturating_sub(reach)..(now + reach + 1).min(size);
            let near: Vec<usize> = near.filter(|&value| value != now).collect();
            let next = *near.choose(&mut self.rng)?;
            fixed[at] = Some(u16::try_from(next).expect("invariant: domains fit u16"));
        }
        space.nearest(from, &[], &fixed)
    }

    /// A new configuration beside the walk's place. Free steps to known ones are taken on the way.
    fn beside(&mut self) -> Option<Config> {
        for _ in 0..STEPS {
            let here = self.walk.here.as_ref()?.config.clone();
            let next = self.step(&here)?;
            if let Some(&log) = self.known.get(&next) {
                self.walk.consider(Place { config: next, log }, &mut self.rng);
            } else if !self.history.has(&next) {
                return Some(next);
            }
        }
        None
    }

    fn next(&mut self) -> Option<Candidate> {
        if let Some(first) = self.default.take().and_then(|config| self.history.take(config)) {
            return Some(first);
        }
        if self.walk.over() {
            let number = self.walk.number + 1;
            // The first walk is number 0, so the second starts at the best.
            let here = if number % 2 == 1 { self.best.clone() } else { None };
            self.walk = Walk::new(number, here);
        }
        if self.walk.here.is_some() {
            if let Some(candidate) = self.beside().and_then(|config| self.history.take(config)) {
                return Some(candidate);
            }
            // All around is known.
            self.walk = Walk::new(self.walk.number + 1, None);
        }
        self.history.take_random(&mut self.rng, 1.0)
    }
}

impl Strategy for Annealing {
    fn name(&self) -> &'static str {
        "annealing"
    }

    fn ask(&mut self, n: usize) -> Vec<Candidate> {
        let mut batch = Vec::new();
        while batch.len() < n
            && let Some(candidate) = self.next()
        {
            self.pending.insert(candidate.id, self.walk.number);
            batch.push(candidate);
        }
        batch
    }

    fn tell(&mut self, id: u64, told: Told) {
        if !self.history.tell(id, told) {
            return;
        }
        let place = match told {
            Told::Time { seconds } => Some(Place { config: self.history.config(id).clone(), log: seconds.ln() }),
            Told::Censored { .. } | Told::Failed(_) => None,
        };
        if let Some(place) = &place {
            self.known.insert(place.config.clone(), place.log);
            if self.best.as_ref().is_none_or(|best| place.log < best.log) {
                self.best = Some(place.clone());
            }
        }
        // A late result of a walk that ended is known, and no step of this walk.
        if self.pending.remove(&id) != Some(self.walk.number) {
            return;
        }
        let started = self.walk.here.is_some();
        let accepted = place.is_some_and(|place| self.walk.consider(place, &mut self.rng));
        if started {
            self.walk.temperature *= COOLING;
            self.walk.refused = if accepted { 0 } else { self.walk.refused + 1 };
        }
    }
}
