//! Rows that stay in the file they were written to: sessions, their event logs, candidates about to run, peaks.

use search_space::Schedule;
use serde_json::Value;

use crate::Id;
use crate::canonical::Canonical;

/// One tuning night.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// Chosen by the caller, unique in the file.
    pub id: String,
    /// The command line, to print and to resume.
    pub command: String,
    /// Seed of the search.
    pub seed: u64,
    /// Name of the search strategy.
    pub strategy: String,
    /// Start, in seconds since 1970-01-01 UTC.
    pub started_at: u64,
    /// End; `None` while it runs, or when it was interrupted.
    pub ended_at: Option<u64>,
    /// The effective configuration, a JSON object.
    pub settings: Value,
}

/// One entry of the log from which a search is resumed.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Which session; it must have been saved before.
    pub session: String,
    /// Which search of the session (one per workload and target, say); `""` for the session itself.
    pub stream: String,
    /// 0, 1, 2, ... within the stream: a gap is reported when the log is read.
    pub sequence: u64,
    /// `ask`, `tell`, `final` ...
    pub kind: String,
    /// What was asked or told.
    pub body: Value,
}

/// A candidate that is about to run, or was left behind by a run that died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Canonical workload key.
    pub workload: String,
    /// Canonical target key.
    pub target: String,
    /// Who turns the schedule into a kernel.
    pub generator: String,
    /// Named parameter values.
    pub schedule: Schedule,
}

/// What a device can do at best, measured on this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Peak {
    /// Target key or device name.
    pub device: String,
    /// Quantity with its unit: `fma_f32_flops_per_s`.
    pub what: String,
    /// Value in that unit.
    pub value: f64,
    /// When, in seconds since 1970-01-01 UTC.
    pub measured_at: u64,
}

/// The hash stored beside an event.
pub(crate) fn event_hash(session: &str, stream: &str, sequence: i64, kind: &str, body: &str) -> Id {
    Canonical::new("event")
        .field("session", Some(session))
        .field("stream", Some(stream))
        .integer("sequence", sequence)
        .field("kind", Some(kind))
        .field("body", Some(body))
        .id()
}
