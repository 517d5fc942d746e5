//! A plain evolutionary strategy, optionally guided by a learned model.
//!
//! - **Start**: the default, its structural neighbours, then samples with exponent 1/2 (`start`).
//! - **Then**, batch by batch: parents win tournaments among the fastest measured; a child is a mutation (one to three
//!   parameters changed) or a uniform crossover followed by a mutation, made legal by [`ParameterSpace::nearest`]. With
//!   a model many children are bred and the best predicted are asked for. One slot in ten is a random sample, so that no
//!   region is lost for ever.
//!
//! Failed candidates are never parents and are shown to the model as slow; a censored one counts as its lower bound.

use std::collections::BTreeSet;
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::breed::{self, Parents};
use super::history::History;
use super::start::{Fill, Start};
use super::{Candidate, Model, Strategy, Told};
use crate::space::{Config, ParameterSpace};

/// Fewest candidates of the start, the default included.
const START: usize = 16;
/// Most new rows before the model sees them.
const REFIT_MOST: usize = 64;
/// Fastest measured configurations that may become parents.
const PARENTS: usize = 12;
/// Children bred for each one asked for when a model chooses among them.
const BRED_PER_SLOT: usize = 16;
/// Share of random samples after the start.
const RANDOM_SHARE: f64 = 0.1;
/// Attempts to breed something new before a random sample takes the slot.
const ATTEMPTS: usize = 16;

/// Evolution over [`ParameterSpace::nearest`].
pub struct Evolution {
    pub(super) history: History,
    pub(super) rng: ChaCha8Rng,
    pub(super) start: Start,
    pub(super) parents: Parents,
    model: Option<Box<dyn Model>>,
    /// Results the model has seen.
    fitted: usize,
}

impl Evolution {
    /// A search of `space`. `default` is the first candidate; when the space does not contain it, its nearest
    /// configuration is. `model` is what chooses among children.
    pub fn new(
        space: Arc<ParameterSpace>,
        default: Option<Config>,
        model: Option<Box<dyn Model>>,
        seed: u64,
    ) -> Evolution {
        Evolution::starting(space, default, model, seed, Fill::Random, START)
    }

    /// As [`Evolution::new`], with a start of its own.
    pub(super) fn starting(
        space: Arc<ParameterSpace>,
        default: Option<Config>,
        model: Option<Box<dyn Model>>,
        seed: u64,
        fill: Fill,
        least: usize,
    ) -> Evolution {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let start = Start::new(&space, default, fill, least, &mut rng);
        Evolution { history: History::new(space), rng, start, parents: Parents::new(PARENTS), model, fitted: 0 }
    }

    /// [`Strategy::tell`]; whether the report counted.
    pub(super) fn take_in(&mut self, id: u64, told: Told) -> bool {
        let counts = self.history.tell(id, told);
        if let (true, Told::Time { seconds }) = (counts, told) {
            self.parents.insert(seconds, self.history.config(id).clone());
        }
        counts
    }

    /// A new configuration near the parents; `None` when breeding found only known ones.
    fn breed(&mut self) -> Option<Config> {
        let space = &self.history.space;
        for _ in 0..ATTEMPTS {
            let mut child = self.parents.choose(&mut self.rng).clone();
            if self.rng.random_bool(0.5) {
                let other = self.parents.choose(&mut self.rng);
                child = breed::cross(space, &child, other, &mut self.rng)?;
                // A crossover of unlike parents is new by itself.
                if self.rng.random_bool(0.5) && !self.history.has(&child) {
                    return Some(child);
                }
            }
            if let Some(mutant) = breed::mutate(space, &child, &mut self.rng)
                && !self.history.has(&mutant)
            {
                return Some(mutant);
            }
        }
        None
    }

    /// Shows the model what is known when that has grown by half, or by [`REFIT_MOST`] rows: fitting is the dearest
    /// part of a search.
    fn refit(&mut self) {
        let Some(model) = &mut self.model else { return };
        let known = self.history.told();
        if known >= START / 2 && known >= self.fitted + (self.fitted / 2).clamp(START / 2, REFIT_MOST) {
            model.learn(&self.history.space, self.history.rows());
            self.fitted = known;
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
        let model = self.model.as_mut().filter(|_| guided);
        let predictions = model.and_then(|model| model.predict(&self.history.space, &bred));
        if let Some(predictions) = predictions.filter(|predictions| predictions.len() == bred.len()) {
            let mut order: Vec<usize> = (0..bred.len()).collect();
            // Stable, so that ties keep the order of breeding.
            order.sort_by(|&a, &b| predictions[a].mean.total_cmp(&predictions[b].mean));
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
        while batch.len() < n && !self.start.is_over() {
            batch.extend(self.start.next(&mut self.history, &mut self.rng));
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
        self.take_in(id, told);
    }
}
