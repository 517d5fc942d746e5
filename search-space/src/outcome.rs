//! What became of a candidate. A failed candidate is data, not an error: it is stored, counted and told to the search.

use serde::{Deserialize, Serialize};

/// The class of result of compiling, checking and timing one candidate. The text forms are stored in databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// Compiled, verified and timed.
    Ok,
    /// The schedule could not be lowered, or the compiler or driver refused the kernel.
    CompileError,
    /// A limit of the target was exceeded (shared memory, invocations, registers, memory of the worker).
    ResourceLimit,
    /// The kernel ran and its output did not match the reference.
    Wrong,
    /// The deadline passed; the worker was killed.
    Timeout,
    /// The worker died while working on this candidate.
    Crash,
    /// The device was lost or reset while working on this candidate.
    LostDevice,
}

impl Outcome {
    /// Every outcome, in the order in which reports list them.
    pub const ALL: [Outcome; 7] = [
        Outcome::Ok,
        Outcome::CompileError,
        Outcome::ResourceLimit,
        Outcome::Wrong,
        Outcome::Timeout,
        Outcome::Crash,
        Outcome::LostDevice,
    ];

    /// The text stored in databases and printed by `--json`.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::CompileError => "compile_error",
            Outcome::ResourceLimit => "resource_limit",
            Outcome::Wrong => "wrong",
            Outcome::Timeout => "timeout",
            Outcome::Crash => "crash",
            Outcome::LostDevice => "lost_device",
        }
    }

    /// The outcome whose stored text is `text`.
    pub fn parse(text: &str) -> Option<Outcome> {
        Outcome::ALL.into_iter().find(|outcome| outcome.as_str() == text)
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        for outcome in Outcome::ALL {
            assert_eq!(Outcome::parse(outcome.as_str()), Some(outcome));
        }
        assert_eq!(Outcome::parse("fine"), None);
    }
}
