//! Candidates that misbehave inside the worker: each costs its timeout and one restart, is recorded, and never wins.

use super::Bar;

/// Misbehaviour, and the outcome that it must be recorded with.
const FIXTURES: &[(&str, &str)] = &[
    ("hangs", "timeout"),
    ("ignores SIGTERM", "timeout"),
    ("crashes", "crash"),
    ("allocates 64 GiB", "resource_limit"),
    ("writes a wrong number", "wrong"),
    ("writes nothing", "wrong"),
];

pub(super) fn bars() -> Vec<Bar> {
    FIXTURES
        .iter()
        .map(|&(what, outcome)| {
            Bar::new(
                format!("fixture: {what}"),
                format!("{outcome}; at most timeout + one restart; never wins"),
                |_| anyhow::bail!("the worker offers no fixtures yet"),
            )
        })
        .collect()
}
