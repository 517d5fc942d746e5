//! The event log of a search, as it is stored: what was asked and what was told, in order.
//!
//! A search is a fold over this log, so the log is all that a later run needs. Bodies are JSON; `docs/cli.md` shows them.

use search_space::strategy::Told;
use search_space::{Outcome, Schedule};
use serde::{Deserialize, Serialize};
use tuning_db::Event;

/// Kind of an event that holds an [`Ask`].
pub const ASK: &str = "ask";
/// Kind of an event that holds a [`Tell`].
pub const TELL: &str = "tell";
/// Kind of an event that marks a finished final.
pub const FINAL: &str = "final";

/// A batch of candidates that the strategy proposed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    /// How many were asked for.
    pub n: usize,
    /// Number of the first; the others follow.
    pub first: u64,
    /// What was proposed. A replay must propose the same.
    pub schedules: Vec<Schedule>,
}

/// What the strategy was told of one candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tell {
    /// Number of the candidate.
    pub id: u64,
    /// Where the result comes from.
    pub by: By,
    /// The result.
    pub result: Result,
    /// What happened, for a candidate that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Where a result comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// It was measured: a trial, with an observation in the same commit.
    Trial,
    /// The same program had been measured on this target.
    SameProgram,
    /// A run died while it ran; it is never run again.
    Quarantine,
}

/// [`Told`] as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Result {
    /// Seconds of one call.
    Time(f64),
    /// One call takes at least these seconds.
    AtLeast(f64),
    /// Not usable.
    Failed(Outcome),
}

impl From<Told> for Result {
    fn from(told: Told) -> Result {
        match told {
            Told::Time { seconds } => Result::Time(seconds),
            Told::Censored { at_least_seconds } => Result::AtLeast(at_least_seconds),
            Told::Failed(outcome) => Result::Failed(outcome),
        }
    }
}

impl From<Result> for Told {
    fn from(result: Result) -> Told {
        match result {
            Result::Time(seconds) => Told::Time { seconds },
            Result::AtLeast(at_least_seconds) => Told::Censored { at_least_seconds },
            Result::Failed(outcome) => Told::Failed(outcome),
        }
    }
}

/// Writes the events of one stream with their numbers.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Session.
    pub session: String,
    /// Name within the session.
    pub name: String,
    /// Number of the next event.
    pub next: u64,
}

impl Stream {
    /// The next event of `kind`.
    pub fn event(&mut self, kind: &str, body: &impl Serialize) -> Event {
        let body = serde_json::to_value(body).expect("invariant: an event body is plain data");
        let sequence = self.next;
        self.next += 1;
        Event { session: self.session.clone(), stream: self.name.clone(), sequence, kind: kind.into(), body }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn told_survives_the_log_to_the_last_bit() {
        let seconds = 0.1 + 0.2;
        for told in [Told::Time { seconds }, Told::Censored { at_least_seconds: seconds }, Told::Failed(Outcome::Wrong)]
        {
            let tell = Tell { id: 7, by: By::Trial, result: told.into(), message: None };
            let text = serde_json::to_string(&tell).unwrap();
            assert_eq!(Told::from(serde_json::from_str::<Tell>(&text).unwrap().result), told, "{text}");
        }
    }
}
