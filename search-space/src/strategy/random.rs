//! Uniform random search without repetition: the baseline every other strategy must beat.

use std::sync::Arc;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::history::History;
use super::{Candidate, Strategy, Told};
use crate::space::{Config, ParameterSpace};

/// Draws configurations uniformly, each at most once.
pub struct RandomSearch {
    history: History,
    default: Option<Config>,
    rng: ChaCha8Rng,
}

impl RandomSearch {
    /// A search of `space`. `default` is the first candidate; when the space does not contain it, its nearest
    /// configuration is.
    pub fn new(space: Arc<ParameterSpace>, default: Option<Config>, seed: u64) -> RandomSearch {
        let default = default.and_then(|config| space.nearest(&config, &[], &[]));
        RandomSearch { history: History::new(space), default, rng: ChaCha8Rng::seed_from_u64(seed) }
    }
}

impl Strategy for RandomSearch {
    fn name(&self) -> &'static str {
        "random"
    }

    fn ask(&mut self, n: usize) -> Vec<Candidate> {
        let mut batch = Vec::new();
        while batch.len() < n {
            let first = self.default.take().and_then(|config| self.history.take(config));
            match first.or_else(|| self.history.take_random(&mut self.rng, 1.0)) {
                Some(candidate) => batch.push(candidate),
                None => break,
            }
        }
        batch
    }

    fn tell(&mut self, id: u64, told: Told) {
        self.history.tell(id, told);
    }
}
