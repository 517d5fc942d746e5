//! What identifies a search beside its workload and target, and the strategy that it stands for.

use std::sync::Arc;

use cost_model::{GaussianProcess, Prior, Source, Trees};
use search_space::space::{Config, ParameterSpace};
use search_space::strategy::{Annealing, Bayes, Evolution, Genetic, Model, RandomSearch, Strategy};

/// How candidates are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrategyKind {
    /// A Gaussian process and expected improvement.
    Gp,
    /// Evolution, guided by the model.
    Evolution,
    /// Uniform draws.
    Random,
    /// A plain genetic algorithm.
    Genetic,
    /// Simulated annealing.
    Annealing,
}

impl StrategyKind {
    /// The word on the command line and in sessions.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            StrategyKind::Gp => "gp",
            StrategyKind::Evolution => "evolution",
            StrategyKind::Random => "random",
            StrategyKind::Genetic => "ga",
            StrategyKind::Annealing => "annealing",
        }
    }

    /// Candidates asked for at once. A strategy that learns from each result is asked one by one; where a model ranks
    /// many children at a time, or generations are bred, that costs less in batches.
    pub(super) fn batch(self) -> usize {
        match self {
            StrategyKind::Gp | StrategyKind::Annealing => 1,
            StrategyKind::Evolution | StrategyKind::Random | StrategyKind::Genetic => 8,
        }
    }
}

/// Which learned model ranks an evolution's children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelKind {
    /// Boosted trees on parameter values.
    Trees,
    /// None.
    None,
}

impl ModelKind {
    /// The word on the command line and in sessions.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ModelKind::Trees => "trees",
            ModelKind::None => "none",
        }
    }
}

/// What identifies a search beside its workload and target. Two runs with the same values continue one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// How candidates are chosen.
    pub strategy: StrategyKind,
    /// Which model helps.
    pub model: ModelKind,
    /// Seed of everything random.
    pub seed: u64,
    /// Fingerprint of what other searches are learned from; 0 for nothing.
    pub sources: u64,
}

impl Method {
    /// Id of the session row that holds the logs of all searches by this method.
    #[must_use]
    pub fn session(&self) -> String {
        let cold = self.cold();
        if self.sources == 0 { cold } else { format!("{cold}-{:016x}", self.sources) }
    }

    /// The id without what is learned from.
    fn cold(&self) -> String {
        format!("{}-{}-{}", self.strategy.as_str(), self.model.as_str(), self.seed)
    }

    /// Whether `session` is that of the same method with other sources.
    #[must_use]
    pub fn differs_in_sources(&self, session: &str) -> bool {
        let rest = session.strip_prefix(&self.cold());
        self.sources != 0 && session != self.session() && rest.is_some_and(|rest| rest.starts_with('-'))
    }

    /// A fresh search of `space`. `sources` are other searches of the same kernel, by positions in `space`; strategies that cannot learn from them leave them aside.
    #[must_use]
    pub fn build(&self, space: &Arc<ParameterSpace>, default: Option<Config>, sources: &[Source]) -> Box<dyn Strategy> {
        let (prior, space, seed) = (|| Prior::new(space, sources), Arc::clone(space), self.seed);
        let trees = || Box::new(Trees::new()) as Box<dyn Model>;
        match self.strategy {
            StrategyKind::Gp => {
                let search = Bayes::new(space, default, Box::new(GaussianProcess::new()), trees(), seed);
                match prior() {
                    None => Box::new(search),
                    Some(prior) => {
                        let fastest = prior.fastest().to_vec();
                        Box::new(search.with_prior(Box::new(GaussianProcess::with_prior(prior)), fastest))
                    }
                }
            }
            StrategyKind::Evolution => {
                let model = (self.model == ModelKind::Trees).then(trees);
                Box::new(Evolution::new(space, default, model, seed))
            }
            StrategyKind::Random => Box::new(RandomSearch::new(space, default, seed)),
            StrategyKind::Genetic => Box::new(Genetic::new(space, default, seed)),
            StrategyKind::Annealing => Box::new(Annealing::new(space, default, seed)),
        }
    }
}
