//! Bayesian optimisation: a model that knows how sure it is chooses what to measure, by expected improvement.
//!
//! - **Start**: the default, its structural neighbours, then the farthest of many random points, until there are
//!   [`START`]; see `start`.
//! - **Then**: of a pool of configurations (`pool`) the one with the largest expected improvement (`acquisition`) times
//!   the probability of success. In a large space the choice climbs once more: its own descendants are looked at until
//!   none is better.
//! - **Batches, and candidates in flight**: what is being measured counts with the value that is expected of it, so the
//!   next choice goes where little is known yet.
//! - **Many rows**: exact posteriors cost the square of the rows. From [`HAND_OVER`] results on, evolution guided by
//!   a cheaper model takes over, with all that is known.
//!
//! Method and constants: docs/search.md has what each part is worth.

use std::sync::Arc;

use super::acquisition::log_expected;
use super::breed;
use super::evolution::Evolution;
use super::pool::Pool;
use super::start::Fill;
use super::{Candidate, Model, Strategy, Told};
use crate::space::{Config, ParameterSpace};

/// Fewest candidates of the start.
const START: usize = 8;
/// Results from which on evolution goes on.
const HAND_OVER: usize = 512;
/// Rounds of climbing from a choice, and descendants looked at in each.
const CLIMB: (usize, usize) = (3, 16);

/// Bayesian optimisation.
pub struct Bayes {
    /// What is known; goes on alone when there are many rows.
    evolution: Evolution,
    model: Box<dyn Model>,
    pool: Pool,
}

impl Bayes {
    /// A search of `space`. `default` is the first candidate; when the space does not contain it, its nearest
    /// configuration is. `model` says how sure it is; `late` need not, and is for many rows.
    pub fn new(
        space: Arc<ParameterSpace>,
        default: Option<Config>,
        model: Box<dyn Model>,
        late: Box<dyn Model>,
        seed: u64,
    ) -> Bayes {
        let evolution = Evolution::starting(space, default, Some(late), seed, Fill::Farthest, START);
        Bayes { evolution, model, pool: Pool::default() }
    }

    /// The candidate with the largest expected improvement; `None` when the model cannot say.
    fn choose(&mut self) -> Option<Candidate> {
        let Evolution { history, rng, parents, .. } = &mut self.evolution;
        let space = Arc::clone(&history.space);
        self.model.learn(&space, history.rows());
        let best = self.model.best()?;
        self.pool.refresh(history, parents, rng);
        let scores = improvements(self.model.as_mut(), &space, self.pool.configs(), best)?;
        let (at, mut score) = largest(&scores)?;
        let mut choice = self.pool.configs()[at].clone();
        for _ in 0..if Pool::is_whole(history) { 0 } else { CLIMB.0 } {
            let children = (0..CLIMB.1).filter_map(|_| breed::mutate(&space, &choice, rng));
            let children: Vec<Config> = children.filter(|child| !history.has(child)).collect();
            let Some((at, best_child)) = largest(&improvements(self.model.as_mut(), &space, &children, best)?) else {
                break;
            };
            if best_child <= score {
                break;
            }
            (choice, score) = (children[at].clone(), best_child);
        }
        self.pool.prune(&scores);
        self.pool.remove(&choice);
        history.take(choice)
    }
}

/// The logarithms of the expected improvements.
fn improvements(model: &mut dyn Model, space: &ParameterSpace, configs: &[Config], best: f64) -> Option<Vec<f64>> {
    let predictions = model.predict(space, configs)?;
    (predictions.len() == configs.len()).then(|| predictions.iter().map(|p| log_expected(p, best)).collect())
}

/// The first of the largest, with its place.
fn largest(scores: &[f64]) -> Option<(usize, f64)> {
    scores.iter().copied().enumerate().reduce(|best, next| if next.1 > best.1 { next } else { best })
}

impl Strategy for Bayes {
    fn name(&self) -> &'static str {
        "gp"
    }

    fn ask(&mut self, n: usize) -> Vec<Candidate> {
        let mut batch = Vec::with_capacity(n.min(1024));
        while batch.len() < n && !self.evolution.start.is_over() {
            let Evolution { history, rng, start, .. } = &mut self.evolution;
            batch.extend(start.next(history, rng));
        }
        if self.evolution.history.told() >= HAND_OVER {
            batch.extend(self.evolution.ask(n - batch.len()));
            return batch;
        }
        while batch.len() < n {
            let chosen = self.choose().or_else(|| {
                let Evolution { history, rng, .. } = &mut self.evolution;
                history.take_random(rng, 0.5)
            });
            match chosen {
                Some(candidate) => batch.push(candidate),
                None => break,
            }
        }
        batch
    }

    fn tell(&mut self, id: u64, told: Told) {
        self.evolution.tell(id, told);
    }
}
