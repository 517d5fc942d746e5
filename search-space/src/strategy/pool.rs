//! The configurations among which a model chooses: kept from one choice to the next, so that a model may keep what it
//! computed for them.
//!
//! A small space is in the pool as a whole. Of a large one, random draws and descendants of the fastest come in with each
//! choice, and the least promising go when there are too many.

use std::collections::BTreeSet;

use rand_chacha::ChaCha8Rng;

use super::breed::{self, Parents};
use super::history::History;
use crate::space::Config;

/// Spaces of up to this many configurations are in the pool as a whole.
const WHOLE: u128 = 8192;
/// Of a larger space the pool keeps this many, and is cut back to them when it holds the second number.
const KEPT: (usize, usize) = (1024, 1536);
/// Random draws at the beginning.
const FIRST: usize = 1024;
/// Random draws that come in with each choice.
const DRAWS: usize = 16;
/// Descendants of the fastest that come in with each choice.
const CHILDREN: usize = 32;

#[derive(Default)]
pub(super) struct Pool {
    configs: Vec<Config>,
    members: BTreeSet<Config>,
    filled: bool,
}

impl Pool {
    pub(super) fn configs(&self) -> &[Config] {
        &self.configs
    }

    /// Whether every configuration that is left is in the pool.
    pub(super) fn is_whole(history: &History) -> bool {
        history.space.count() <= WHOLE
    }

    /// Takes in the space, or random draws from it.
    pub(super) fn draw(&mut self, history: &History, rng: &mut ChaCha8Rng) {
        let space = &history.space;
        if Pool::is_whole(history) {
            if !self.filled {
                (0..space.count()).filter_map(|rank| space.unrank(rank)).for_each(|config| self.add(config, history));
            }
            self.filled = true;
            return;
        }
        for _ in 0..if self.filled { DRAWS } else { FIRST } {
            self.add(space.sample(rng, 1.0), history);
        }
        self.filled = true;
    }

    /// Takes in descendants of the fastest.
    pub(super) fn breed(&mut self, history: &History, parents: &Parents, rng: &mut ChaCha8Rng) {
        let space = &history.space;
        if Pool::is_whole(history) || parents.is_empty() {
            return;
        }
        for at in 0..CHILDREN {
            let parent = parents.choose(rng);
            let child = if at % 4 == 0 {
                breed::cross(space, parent, parents.choose(rng), rng)
            } else {
                breed::mutate(space, parent, rng)
            };
            child.into_iter().for_each(|child| self.add(child, history));
        }
    }

    /// Adds a configuration that is new and was not asked for.
    pub(super) fn add(&mut self, config: Config, history: &History) {
        if !history.has(&config) && self.members.insert(config.clone()) {
            self.configs.push(config);
        }
    }

    /// Drops what was asked for.
    pub(super) fn remove(&mut self, config: &Config) {
        if self.members.remove(config) {
            self.configs.retain(|member| member != config);
        }
    }

    /// Drops the configurations with the lowest scores, given in the order of [`Pool::configs`], when there are too many.
    pub(super) fn prune(&mut self, history: &History, scores: &[f64]) {
        if self.configs.len() < KEPT.1 || Pool::is_whole(history) {
            return;
        }
        let mut order: Vec<usize> = (0..self.configs.len()).collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        order.truncate(KEPT.0);
        order.sort_unstable();
        self.configs = order.into_iter().map(|at| self.configs[at].clone()).collect();
        self.members = self.configs.iter().cloned().collect();
    }
}
