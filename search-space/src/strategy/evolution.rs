//! A plain evolutionary strategy, optionally guided by a learned model.
//!
//! - **Start**: the default; then each value of each structural parameter it does not have, everything else as near to
//!   the default as that allows (a change of structure alone tells most per measurement); then samples with exponent 1/2.
//! - **Then**, batch by batch: parents win tournaments among the fastest measured; a child is a mutation (one to three
//!   parameters changed) or a uniform crossover followed by a mutation, made legal by [`ParameterSpace::nearest`]. With
//!   a model many children are bred and the best predicted are asked for. One slot in ten is a random sample, so that no
//!   region is lost for ever.
//!
//! Failed candidates are never parents and are shown to the model as slow; a censored one counts as its lower bound.

use std::collections::BTreeSet;
use std::sync::Arc;

use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::history::History;
use super::{Candidate, Scorer, Strategy, Told};
use crate::space::{Config, ParameterSpace};

/// Fewest candidates of the start, the default included.
const START: usize = 16;
/// Most new rows before the model sees them.
const REFIT_MOST: usize = 64;
/// Fastest measured configurations that may become parents.
const PARENTS: usize = 12;
/// Configurations that meet in one tournament.
const TOURNAMENT: usize = 3;
/// Children bred for each one asked for when a model chooses among them.
const BRED_PER_SLOT: usize = 16;
/// Share of random samples after the start.
const RANDOM_SHARE: f64 = 0.1;
/// Attempts to breed something new before a random sample takes the slot.
const ATTEMPTS: usize = 16;

/// Evolution over [`ParameterSpace::nearest`].
pub struct Evolution {
    history: History,
    rng: ChaCha8Rng,
    /// Candidates of the start not asked for yet, last first.
    start: Vec<Start>,
    /// `(seconds, config)` of the fastest, rising.
    parents: Vec<(f64, Config)>,
    default: Option<Config>,
    scorer: Option<Box<dyn Scorer>>,
    /// Rows the model has seen.
    fitted: usize,
}

enum Start {
    Default(Config),
    /// Nearest to the default, or to a sample where there is none, with this value of this parameter.
    Structure(usize, u16),
    Sample,
}

impl Evolution {
    /// A search of `space`. `default` is the first candidate; when the space does not contain it, its nearest
    /// configuration is. `scorer` is the model that chooses among children.
    pub fn new(
        space: Arc<ParameterSpace>,
        default: Option<Config>,
        scorer: Option<Box<dyn Scorer>>,
        seed: u64,
    ) -> Evolution {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let structural = |(at, param): (usize, &crate::space::Parameter)| {
            (0..if param.structural { param.values.len() } else { 0 })
                .map(move |value| (at, u16::try_from(value).expect("invariant: domains fit u16")))
                .collect::<Vec<_>>()
        };
        let mut forced: Vec<(usize, u16)> = space.params().iter().enumerate().flat_map(structural).collect();
        forced.shuffle(&mut rng);
        let mut start: Vec<Start> = forced.into_iter().map(|(at, value)| Start::Structure(at, value)).collect();
        while start.len() + 1 < START {
            start.push(Start::Sample);
        }
        start.reverse();
        let default = default.and_then(|config| space.nearest(&config, &[], &[]));
        start.extend(default.clone().map(Start::Default));
        Evolution { history: History::new(space), rng, start, parents: Vec::new(), default, scorer, fitted: 0 }
    }

    /// The next candidate of the start; `None` when the start is over or this one is known already.
    fn start(&mut self) -> Option<Candidate> {
        let space = &self.history.space;
        let config = match self.start.pop()? {
            Start::Default(config) => config,
            Start::Sample => space.sample(&mut self.rng, 0.5),
            Start::Structure(param, value) => {
                let near = self.default.clone().unwrap_or_else(|| space.sample(&mut self.rng, 0.5));
                let mut fixed = vec![None; param + 1];
                fixed[param] = Some(value);
                // No configuration may have this value.
                space.nearest(&near, &[], &fixed)?
            }
        };
        self.history.take(config)
    }

    fn parent(&mut self) -> Config {
        let most = self.parents.len();
        let winner = (0..TOURNAMENT).map(|_| self.rng.random_range(0..most)).min();
        self.parents[winner.expect("invariant: a tournament has members")].1.clone()
    }

    /// A new configuration near the parents; `None` when breeding found only known ones.
    fn breed(&mut self) -> Option<Config> {
        for _ in 0..ATTEMPTS {
            let mut child = self.parent();
            if self.rng.random_bool(0.5) {
                let other = self.parent();
                let mixed: Vec<u16> =
                    child.iter().zip(other.iter()).map(|(&a, &b)| if self.rng.random() { a } else { b }).collect();
                child = self.history.space.nearest(&mixed.into(), &[], &[])?;
                // A crossover of unlike parents is new by itself.
                if self.rng.random_bool(0.5) && !self.history.has(&child) {
                    return Some(child);
                }
            }
            if let Some(mutant) = self.mutate(&child)
                && !self.history.has(&mutant)
            {
                return Some(mutant);
            }
        }
        None
    }

    fn mutate(&mut self, config: &Config) -> Option<Config> {
        let space = &self.history.space;
        let open: Vec<usize> = (0..config.len()).filter(|&at| space.params()[at].values.len() > 1).collect();
        let mut fixed = vec![None; config.len()];
        for _ in 0..*[1, 1, 2, 3].choose(&mut self.rng)? {
            let at = *open.choose(&mut self.rng)?;
            let (now, size) = (usize::from(config[at]), space.params()[at].values.len());
            // Half the time a step to a neighbouring value, else any other value.
            let next = if self.rng.random_bool(0.5) {
                let step = self.rng.random_range(1..=2);
                if self.rng.random() { (now + step).min(size - 1) } else { now.saturating_sub(step) }
            } else {
                (now + self.rng.random_range(1..size)) % size
            };
            fixed[at] = Some(u16::try_from(next).expect("invariant: domains fit u16"));
        }
        space.nearest(config, &[], &fixed)
    }

    /// Shows the model what is known when that has grown by half, or by [`REFIT_MOST`] rows: fitting is the dearest
    /// part of a search.
    fn refit(&mut self) {
        let Some(scorer) = &mut self.scorer else { return };
        let known = self.history.results().count();
        if known >= START / 2 && known >= self.fitted + (self.fitted / 2).clamp(START / 2, REFIT_MOST) {
            let rows = self.history.rows();
            if !rows.is_empty() {
                scorer.fit(&self.history.space, &rows);
                self.fitted = known;
            }
        }
    }

    /// Up to `n` children, the best predicted first.
    fn children(&mut self, n: usize) -> Vec<Config> {
        if self.parents.is_empty() || n == 0 {
            return Vec::new();
        }
        let guided = self.fitted > 0;
        let wanted = if guided { n * BRED_PER_SLOT } else { n };
        let mut bred: Vec<Config> = Vec::with_capacity(wanted);
        let mut distinct = BTreeSet::new();
        // Late in a search parents are alike and so are their children: twice the effort, then random samples.
        for _ in 0..2 * wanted {
            let Some(child) = self.breed() else { break };
            if distinct.insert(child.clone()) {
                bred.push(child);
            }
            if bred.len() == wanted {
                break;
            }
        }
        let scores = self.scorer.as_ref().filter(|_| guided).and_then(|s| s.predict(&self.history.space, &bred));
        if let Some(scores) = scores.filter(|scores| scores.len() == bred.len()) {
            let mut order: Vec<usize> = (0..bred.len()).collect();
            // Stable, so that ties keep the order of breeding.
            order.sort_by(|&a, &b| scores[a].total_cmp(&scores[b]));
            return order.into_iter().map(|at| bred[at].clone()).collect();
        }
        bred
    }
}

impl Strategy for Evolution {
    fn name(&self) -> &'static str {
        "evolution"
    }

    fn ask(&mut self, n: usize) -> Vec<Candidate> {
        let mut batch = Vec::with_capacity(n.min(1024));
        while batch.len() < n && !self.start.is_empty() {
            batch.extend(self.start());
        }
        if batch.len() < n {
            self.refit();
            let slots = (batch.len()..n).filter(|_| !self.rng.random_bool(RANDOM_SHARE)).count();
            let last = batch.len() + slots;
            for child in self.children(slots) {
                if batch.len() == last {
                    break;
                }
                batch.extend(self.history.take(child));
            }
        }
        while batch.len() < n {
            match self.history.take_random(&mut self.rng, 0.5) {
                Some(candidate) => batch.push(candidate),
                None => break,
            }
        }
        batch
    }

    fn tell(&mut self, id: u64, told: Told) {
        if !self.history.tell(id, told) {
            return;
        }
        if let Told::Time { seconds } = told {
            let config = self.history.config(id);
            let at = self.parents.partition_point(|(known, _)| *known <= seconds);
            self.parents.insert(at, (seconds, config));
            self.parents.truncate(PARENTS);
        }
    }
}
