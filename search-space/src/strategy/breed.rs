//! New configurations from the fastest measured.

use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use crate::space::{Config, ParameterSpace};

/// Configurations that meet in one tournament.
const TOURNAMENT: usize = 3;

/// The fastest measured configurations.
pub(super) struct Parents {
    /// `(seconds, config)`, rising.
    ranked: Vec<(f64, Config)>,
    most: usize,
}

impl Parents {
    /// Keeps the `most` fastest.
    pub(super) fn new(most: usize) -> Parents {
        Parents { ranked: Vec::new(), most }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranked.is_empty()
    }

    pub(super) fn insert(&mut self, seconds: f64, config: Config) {
        let at = self.ranked.partition_point(|(known, _)| *known <= seconds);
        self.ranked.insert(at, (seconds, config));
        self.ranked.truncate(self.most);
    }

    /// The winner of a tournament; there must be a parent.
    pub(super) fn choose(&self, rng: &mut ChaCha8Rng) -> &Config {
        let winner = (0..TOURNAMENT).map(|_| rng.random_range(0..self.ranked.len())).min();
        &self.ranked[winner.expect("invariant: a tournament has members")].1
    }
}

/// Half of the parameters of one, the others of the other, repaired.
pub(super) fn cross(space: &ParameterSpace, a: &Config, b: &Config, rng: &mut ChaCha8Rng) -> Option<Config> {
    let mixed: Vec<u16> = a.iter().zip(b.iter()).map(|(&a, &b)| if rng.random() { a } else { b }).collect();
    legal(space, mixed.into(), &[])
}

/// One to three parameters changed, the others kept as far as the space allows. `None` when nothing can change.
pub(super) fn mutate(space: &ParameterSpace, config: &Config, rng: &mut ChaCha8Rng) -> Option<Config> {
    let open: Vec<usize> = (0..config.len()).filter(|&at| space.params()[at].values.len() > 1).collect();
    let (mut fixed, mut changed) = (vec![None; config.len()], config.to_vec());
    for _ in 0..*[1, 1, 2, 3].choose(rng)? {
        let at = *open.choose(rng)?;
        let (now, size) = (usize::from(config[at]), space.params()[at].values.len());
        // Half the time a step to a neighbouring value, else any other value.
        let next = if rng.random_bool(0.5) {
            let step = rng.random_range(1..=2);
            if rng.random() { (now + step).min(size - 1) } else { now.saturating_sub(step) }
        } else {
            (now + rng.random_range(1..size)) % size
        };
        changed[at] = u16::try_from(next).expect("invariant: domains fit u16");
        fixed[at] = Some(changed[at]);
    }
    legal(space, changed.into(), &fixed)
}

/// `config`, which has the fixed values, or the nearest legal one that has them. To look is cheaper than to search.
fn legal(space: &ParameterSpace, config: Config, fixed: &[Option<u16>]) -> Option<Config> {
    if space.contains(&config) { Some(config) } else { space.nearest(&config, &[], fixed) }
}
