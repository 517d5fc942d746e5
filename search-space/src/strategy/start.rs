//! The first candidates of a search: the default, its structural neighbours, then points that fill the space.
//!
//! A change of structure alone tells most per measurement: each value of each structural parameter that the default does
//! not have is tried with everything else as near to the default as that allows, or at a start that the space names for
//! it. Without a default they are tried at random points.

use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::Candidate;
use super::history::History;
use crate::space::{Config, ParameterSpace};

/// Draws of which the farthest from all others is taken.
const DRAWS: usize = 64;
/// Draws when rare choices are to be seen, see [`ParameterSpace::sample`].
const EXPONENT: f64 = 0.5;

/// How the start is filled up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    /// With random samples.
    Random,
    /// Each with the one of many random samples that is farthest from all candidates so far (maximin).
    Farthest,
}

enum Step {
    Default(Config),
    /// This value of this parameter.
    Structure(usize, u16),
    Fill(Fill),
}

/// The candidates of the start not asked for yet.
pub(super) struct Start {
    /// Last first.
    steps: Vec<Step>,
    default: Option<Config>,
}

impl Start {
    /// A start of at least `least` candidates. A `default` outside the space is repaired.
    pub(super) fn new(
        space: &ParameterSpace,
        default: Option<Config>,
        fill: Fill,
        least: usize,
        rng: &mut ChaCha8Rng,
    ) -> Start {
        let default = default.and_then(|config| space.nearest(&config, &[], &[]));
        let values = |(at, param): (usize, &crate::space::Parameter)| {
            let values = (0u16..).take(if param.structural { param.values.len() } else { 0 });
            values.map(move |value| Step::Structure(at, value)).collect::<Vec<_>>()
        };
        let mut steps: Vec<Step> = space.params().iter().enumerate().flat_map(values).collect();
        steps.shuffle(rng);
        while steps.len() + 1 < least {
            steps.push(Step::Fill(fill));
        }
        steps.reverse();
        steps.extend(default.clone().map(Step::Default));
        Start { steps, default }
    }

    /// Leaves out points that only fill the space, beyond `most` of them.
    pub(super) fn shorten(&mut self, most: usize) {
        let mut left = most;
        // The next steps are at the end; which points fill is drawn later, so it does not matter which of them go.
        self.steps.retain(|step| {
            let fill = matches!(step, Step::Fill(_));
            let keep = !fill || left > 0;
            left -= usize::from(fill && keep);
            keep
        });
    }

    pub(super) fn is_over(&self) -> bool {
        self.steps.is_empty()
    }

    /// Whether the default comes next.
    pub(super) fn is_at_default(&self) -> bool {
        matches!(self.steps.last(), Some(Step::Default(_)))
    }

    /// The next candidate; `None` when the start is over or this one is known already.
    pub(super) fn next(&mut self, history: &mut History, rng: &mut ChaCha8Rng) -> Option<Candidate> {
        let space = &history.space;
        let config = match self.steps.pop()? {
            Step::Default(config) => config,
            Step::Fill(Fill::Random) => space.sample(rng, EXPONENT),
            Step::Fill(Fill::Farthest) => farthest(history, rng),
            Step::Structure(param, value) => {
                let made_for = space.starts().iter().find(|start| start[param] == value).cloned();
                let near = made_for.or_else(|| self.default.clone());
                let near = near.unwrap_or_else(|| space.sample(rng, EXPONENT));
                let mut fixed = vec![None; param + 1];
                fixed[param] = Some(value);
                // No configuration may have this value.
                space.nearest(&near, &[], &fixed)?
            }
        };
        history.take(config)
    }
}

/// Of many random configurations the one farthest from the nearest candidate.
fn farthest(history: &History, rng: &mut ChaCha8Rng) -> Config {
    let space = &history.space;
    let mut best = (f64::NEG_INFINITY, space.sample(rng, EXPONENT));
    if history.rows().is_empty() {
        return best.1;
    }
    for _ in 0..DRAWS {
        let config = space.sample(rng, EXPONENT);
        let nearest = history.rows().iter().map(|row| distance(space, &row.config, &config)).fold(f64::MAX, f64::min);
        if nearest > best.0 {
            best = (nearest, config);
        }
    }
    best.1
}

/// Sum over the parameters.
fn distance(space: &ParameterSpace, a: &Config, b: &Config) -> f64 {
    space.params().iter().enumerate().map(|(at, param)| param.distance(a[at], b[at])).sum()
}
