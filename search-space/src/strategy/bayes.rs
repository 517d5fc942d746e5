//! Bayesian optimisation: a model that knows how sure it is chooses what to measure, by expected improvement.
//!
//! - **Start**: the default, its structural neighbours, then the farthest of many random points, until there are
//!   [`START`]; see `start`.
//! - **Then**: of a pool of configurations (`pool`) the one with the largest expected improvement (`acquisition`) times
//!   the probability of success. In a large space the choice climbs once more: its own descendants are looked at until
//!   none is better.
//! - **Batches, and candidates in flight**: what is being measured counts with the value that is expected of it, so the
//!   next choice goes where little is known yet.
//! - **Other sources**: records of other devices or shapes give a second model ([`Bayes::with_prior`]). It chooses the
//!   first candidates; then each choice is its own or that of a search that knows nothing else (its start included), by
//!   chance: the longer nothing improved, the less the sources are believed.
//! - **While results are awaited**: the pool takes in random draws and the model computes what does not depend on them
//!   ([`Strategy::think`]), so that a choice is made soon after its turn has come.
//! - **Many rows**: exact posteriors cost the square of the rows. From [`HAND_OVER`] results on, evolution guided by
//!   a cheaper model takes over, with all that is known.
//!
//! Method and constants: docs/search.md has what each part is worth.

use std::sync::Arc;

use rand::RngExt;

use super::acquisition::log_expected;
use super::breed;
use super::evolution::Evolution;
use super::pool::Pool;
use super::start::Fill;
use super::{Candidate, Model, Prediction, Strategy, Told};
use crate::space::{Config, ParameterSpace};

/// Fewest candidates of the start.
const START: usize = 8;
/// Results from which on evolution goes on.
const HAND_OVER: usize = 512;
/// Rounds of climbing from a choice, and descendants looked at in each.
const CLIMB: (usize, usize) = (3, 16);
/// First candidates that are chosen by other sources alone, where there are any.
const BELIEVED: usize = 8;
/// Rounds in which the neighbours of the best expected join them before the first choice, and how many have theirs join.
const ASCENTS: usize = 4;
const TOPS: usize = 16;
/// Points that fill the space where there are other sources.
const FILLED: usize = 2;
/// Probability of a choice by other sources after that, at first and at last.
const BELIEF: (f64, f64) = (0.5, 0.05);
/// Results without an improvement after which that probability has halved.
const FADING: f64 = 2.0;
/// What counts as an improvement, as a share of the time.
const CLEARLY: f64 = 0.005;

/// Bayesian optimisation.
pub struct Bayes {
    /// What is known; goes on alone when there are many rows.
    evolution: Evolution,
    model: Box<dyn Model>,
    pool: Pool,
    prior: Option<Sourced>,
    /// Whether the next choice is that of the model that knows other sources, once that is decided and prepared.
    ready: Option<bool>,
    /// See [`Strategy::expected_gain`].
    gain: Option<f64>,
}

/// A model that knows other sources.
struct Sourced {
    model: Box<dyn Model>,
    /// What was fast there; looked at first.
    fastest: Vec<Config>,
    /// Candidates it chose.
    chosen: usize,
    /// The fastest time known when it was last clearly improved on, and how many results came since.
    best_s: f64,
    since: usize,
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
        Bayes { evolution, model, pool: Pool::default(), prior: None, ready: None, gain: None }
    }

    /// The same search, with a model that knows other sources. `fastest` are the configurations that were fast there.
    #[must_use]
    pub fn with_prior(mut self, model: Box<dyn Model>, fastest: Vec<Config>) -> Bayes {
        self.evolution.start.shorten(FILLED);
        self.prior = Some(Sourced { model, fastest, chosen: 0, best_s: f64::INFINITY, since: 0 });
        self
    }

    /// Whether the next choice is that of the model that knows other sources.
    fn believes(&mut self) -> bool {
        let Some(prior) = &self.prior else { return false };
        if prior.chosen < BELIEVED {
            return true;
        }
        let fading = BELIEF.0 * 0.5f64.powf(prior.since as f64 / FADING);
        self.evolution.rng.random_bool(fading.max(BELIEF.1))
    }

    /// Decides whose choice is the next, and prepares it.
    fn prepare(&mut self) -> bool {
        if let Some(believe) = self.ready {
            return believe;
        }
        let believe = !self.evolution.start.is_at_default() && self.believes();
        self.ready = Some(believe);
        if !believe && !self.evolution.start.is_over() {
            return believe;
        }
        let Evolution { history, rng, .. } = &mut self.evolution;
        let model = match &mut self.prior {
            Some(prior) if believe => {
                prior.fastest.drain(..).for_each(|config| self.pool.add(config, history));
                prior.chosen += 1;
                prior.model.as_mut()
            }
            _ => self.model.as_mut(),
        };
        self.pool.draw(history, rng);
        model.prepare(&history.space, history.rows(), self.pool.configs());
        believe
    }

    /// The candidate with the largest expected improvement; `None` when the model cannot say.
    fn choose(&mut self, believe: bool) -> Option<Candidate> {
        let Evolution { history, rng, parents, .. } = &mut self.evolution;
        let space = Arc::clone(&history.space);
        let model = match &mut self.prior {
            Some(prior) if believe => prior.model.as_mut(),
            _ => self.model.as_mut(),
        };
        model.learn(&space, history.rows());
        let best = model.best()?;
        // The fastest may have come in while this choice was prepared.
        self.pool.breed(history, parents, rng);
        // Before the first result there is nothing to improve on, and what is expected decides. Everything depends on this
        // one choice, so it is looked for longer.
        let best = (history.told() > 0).then_some(best);
        let mut scores = improvements(model, &space, self.pool.configs(), best)?;
        for _ in 0..if best.is_none() && !Pool::is_whole(history) { ASCENTS } else { 0 } {
            let mut order: Vec<usize> = (0..scores.len()).collect();
            order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
            let tops: Vec<Config> = order.iter().take(TOPS).map(|&at| self.pool.configs()[at].clone()).collect();
            let before = self.pool.configs().len();
            tops.iter().flat_map(|top| space.neighbours(top)).for_each(|config| self.pool.add(config, history));
            scores.extend(improvements(model, &space, &self.pool.configs()[before..], best)?);
        }
        let (at, mut score) = largest(&scores)?;
        let mut choice = self.pool.configs()[at].clone();
        for _ in 0..if Pool::is_whole(history) { 0 } else { CLIMB.0 } {
            let children = (0..CLIMB.1).filter_map(|_| breed::mutate(&space, &choice, rng));
            let children: Vec<Config> = children.filter(|child| !history.has(child)).collect();
            let Some((at, best_child)) = largest(&improvements(model, &space, &children, best)?) else { break };
            if best_child <= score {
                break;
            }
            (choice, score) = (children[at].clone(), best_child);
        }
        // The improvement is in the unit of the model.
        let seconds = |by: f64| model.seconds(best? - by);
        self.gain = seconds(0.0).zip(seconds(score.exp())).map(|(now, then)| 1.0 - then / now);
        self.pool.prune(history, &scores);
        self.pool.remove(&choice);
        history.take(choice)
    }
}

/// The logarithms of the expected improvements on `best`; without it the expected values, the lowest first.
fn improvements(
    model: &mut dyn Model,
    space: &ParameterSpace,
    configs: &[Config],
    best: Option<f64>,
) -> Option<Vec<f64>> {
    let predictions = model.predict(space, configs)?;
    let score = |p: &Prediction| best.map_or(-p.mean, |best| log_expected(p, best));
    (predictions.len() == configs.len()).then(|| predictions.iter().map(score).collect())
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
        while batch.len() < n {
            if self.evolution.history.told() >= HAND_OVER {
                self.gain = None;
                batch.extend(self.evolution.ask(n - batch.len()));
                break;
            }
            let believe = self.prepare();
            (self.ready, self.gain) = (None, None);
            if !believe && !self.evolution.start.is_over() {
                let Evolution { history, rng, start, .. } = &mut self.evolution;
                batch.extend(start.next(history, rng));
                continue;
            }
            let chosen = self.choose(believe).or_else(|| {
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

    fn think(&mut self) {
        if self.evolution.history.told() < HAND_OVER {
            self.prepare();
        }
    }

    fn expected_gain(&self) -> Option<f64> {
        self.gain
    }

    fn tell(&mut self, id: u64, told: Told) {
        // At the latest: what is prepared must not depend on whether there was time for it.
        self.think();
        if !self.evolution.take_in(id, told) {
            return;
        }
        if let Some(prior) = &mut self.prior {
            prior.since += 1;
            if let Told::Time { seconds } = told
                && seconds < prior.best_s * (1.0 - CLEARLY)
            {
                prior.best_s = seconds;
                prior.since = 0;
            }
        }
    }
}
