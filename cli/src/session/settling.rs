//! When a search is over: nothing that it might try next promises much.

use std::collections::VecDeque;

use search_space::strategy::Strategy;

/// So many candidates in a row must promise little. One alone may be a whim of the model, which learns its lengths anew now
/// and then.
pub(super) const PATIENCE: usize = 16;

/// What the last candidates of a search were expected to gain, see [`Strategy::expected_gain`].
#[derive(Clone, Debug, Default)]
pub struct Settling {
    gains: VecDeque<f64>,
}

impl Settling {
    /// Takes in what the strategy expects of the candidate that it was just asked for.
    pub fn asked(&mut self, strategy: &dyn Strategy) {
        match strategy.expected_gain() {
            Some(gain) => self.gains.push_back(gain),
            None => self.gains.clear(),
        }
        if self.gains.len() > PATIENCE {
            self.gains.pop_front();
        }
    }

    /// Whether each of the last candidates was expected to shorten the best time by less than this share of it; never while
    /// candidates are chosen for other reasons.
    #[must_use]
    pub fn is_below(&self, share: f64) -> bool {
        self.gains.len() == PATIENCE && self.gains.iter().all(|gain| *gain < share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use search_space::strategy::{Candidate, Told};

    struct Expects(Option<f64>);

    impl Strategy for Expects {
        fn name(&self) -> &'static str {
            "expects"
        }

        fn ask(&mut self, _: usize) -> Vec<Candidate> {
            Vec::new()
        }

        fn expected_gain(&self) -> Option<f64> {
            self.0
        }

        fn tell(&mut self, _: u64, _: Told) {}
    }

    #[test]
    fn one_candidate_that_promises_more_or_nothing_begins_the_count_anew() {
        let mut settling = Settling::default();
        let mut ask = |gain: Option<f64>, times: usize| {
            (0..times).for_each(|_| settling.asked(&Expects(gain)));
            settling.is_below(0.01)
        };
        assert!(!ask(Some(0.001), PATIENCE - 1));
        assert!(ask(Some(0.009), 1));
        assert!(!ask(Some(0.01), 1));
        assert!(!ask(Some(0.001), PATIENCE - 1));
        assert!(ask(Some(0.0), 1));
        assert!(!ask(None, 1));
        assert!(!ask(Some(0.001), PATIENCE - 1));
        assert!(ask(Some(0.001), 1));
    }
}
