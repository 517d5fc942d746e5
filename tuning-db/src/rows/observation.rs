//! What became of one candidate on one target: the fact everything else is derived from.

use std::collections::BTreeMap;

use rusqlite::Row;
use search_space::{Outcome, Schedule};

use super::{check_text, integer};
use crate::canonical::{Canonical, samples_json, schedule_json, strings_json};
use crate::{DbError, Id, target_id, workload_id};

/// Which part of the measuring protocol an observation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Found during the search: few samples, enough to drop what is clearly slower.
    Screen,
    /// Measured anew against the default, so that choosing the best does not flatter it. Only these carry answers.
    Final,
}

impl Phase {
    /// The stored text.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Screen => "screen",
            Phase::Final => "final",
        }
    }
}

/// One candidate, compiled, checked and perhaps timed, once.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// Canonical workload key.
    pub workload: String,
    /// Canonical target key.
    pub target: String,
    /// Who turns the schedule into a kernel: `tilewright/1`. A schedule means nothing to another generator.
    pub generator: String,
    /// Named parameter values.
    pub schedule: Schedule,
    /// What became of it.
    pub outcome: Outcome,
    /// Search or final measurement.
    pub phase: Phase,
    /// Nanoseconds per call, in the order measured; empty unless the outcome is `Ok`.
    pub samples_ns: Vec<f64>,
    /// Set when timing was cut off because the candidate was clearly slower, or hung: one call takes at least this
    /// many nanoseconds (a censored observation).
    pub at_least_ns: Option<f64>,
    /// Driver, clocks, governor, power cap, cache state, launch mode, machine ...: what is not in the keys.
    pub environment: BTreeMap<String, String>,
    /// Hash of the lowered program's text; `None` where there is none.
    pub program_hash: Option<String>,
    /// Hash of the compiled code; `None` where there is none.
    pub code_hash: Option<String>,
    /// Distribution of the input values while timing: `normal(0,1)`.
    pub input: String,
    /// Which run of the tuner measured it.
    pub run: String,
    /// Position within the run; with the run it tells repeated measurements of one schedule apart.
    pub sequence: u64,
    /// When, in seconds since 1970-01-01 UTC. The caller has the clock.
    pub measured_at: u64,
}

impl Observation {
    /// The id under which this observation is stored.
    ///
    /// # Errors
    /// [`DbError::InvalidRow`] when it breaks a rule: a failed candidate with a time, a time that is not finite, an
    /// empty key, a number above 2^63.
    pub fn id(&self) -> Result<Id, DbError> {
        Ok(self.stored()?.id())
    }

    /// The columns, after every rule was checked.
    pub(crate) fn stored(&self) -> Result<StoredObservation, DbError> {
        const ROW: &str = "observation";
        for (field, text) in [
            ("workload", &self.workload),
            ("target", &self.target),
            ("generator", &self.generator),
            ("input", &self.input),
            ("run", &self.run),
        ] {
            check_text(ROW, field, text)?;
        }
        for (field, hash) in [("program_hash", &self.program_hash), ("code_hash", &self.code_hash)] {
            hash.as_deref().map_or(Ok(()), |hash| check_text(ROW, field, hash))?;
        }
        if self.outcome != Outcome::Ok && !self.samples_ns.is_empty() {
            return Err(DbError::invalid(ROW, format!("its outcome is {}, so it cannot carry a time", self.outcome)));
        }
        if self.at_least_ns.is_some() && !matches!(self.outcome, Outcome::Ok | Outcome::Timeout) {
            return Err(DbError::invalid(ROW, format!("its outcome is {}, so it has no lower bound", self.outcome)));
        }
        // A time of zero is data (a clock too coarse), an infinite or negative one is a fault of the caller.
        if let Some(bad) = self.samples_ns.iter().chain(&self.at_least_ns).find(|ns| !ns.is_finite() || **ns < 0.0) {
            return Err(DbError::invalid(ROW, format!("a time of {bad} ns is not a time")));
        }
        let stored = StoredObservation {
            workload: workload_id(&self.workload).to_string(),
            target: target_id(&self.target).to_string(),
            generator: self.generator.clone(),
            schedule: schedule_json(&self.schedule),
            outcome: self.outcome.as_str().into(),
            phase: self.phase.as_str().into(),
            samples_ns: samples_json(&self.samples_ns),
            at_least_ns: self.at_least_ns,
            environment: strings_json(&self.environment),
            program_hash: self.program_hash.clone(),
            code_hash: self.code_hash.clone(),
            input: self.input.clone(),
            run: self.run.clone(),
            sequence: integer(ROW, "sequence", self.sequence)?,
            measured_at: integer(ROW, "measured_at", self.measured_at)?,
        };
        check_text(ROW, "schedule", &stored.schedule)?;
        check_text(ROW, "environment", &stored.environment)?;
        check_text(ROW, "samples_ns", &stored.samples_ns)?;
        Ok(stored)
    }
}

/// The columns that `StoredObservation::read` expects, in order, the id first.
pub(crate) const OBSERVATION_COLUMNS: &str = "id, workload, target, generator, schedule, outcome, phase, samples_ns, \
     at_least_ns, environment, program_hash, code_hash, input, run, sequence, measured_at";

/// An observation as its columns hold it. The hash is taken over this text, so a row is judged before it is parsed.
#[derive(Clone, Debug)]
pub(crate) struct StoredObservation {
    pub(crate) workload: String,
    pub(crate) target: String,
    pub(crate) generator: String,
    pub(crate) schedule: String,
    pub(crate) outcome: String,
    pub(crate) phase: String,
    pub(crate) samples_ns: String,
    pub(crate) at_least_ns: Option<f64>,
    pub(crate) environment: String,
    pub(crate) program_hash: Option<String>,
    pub(crate) code_hash: Option<String>,
    pub(crate) input: String,
    pub(crate) run: String,
    pub(crate) sequence: i64,
    pub(crate) measured_at: i64,
}

impl StoredObservation {
    pub(crate) fn id(&self) -> Id {
        Canonical::new("observation")
            .field("workload", Some(&self.workload))
            .field("target", Some(&self.target))
            .field("generator", Some(&self.generator))
            .field("schedule", Some(&self.schedule))
            .field("outcome", Some(&self.outcome))
            .field("phase", Some(&self.phase))
            .field("samples_ns", Some(&self.samples_ns))
            .real("at_least_ns", self.at_least_ns)
            .field("environment", Some(&self.environment))
            .field("program_hash", self.program_hash.as_deref())
            .field("code_hash", self.code_hash.as_deref())
            .field("input", Some(&self.input))
            .field("run", Some(&self.run))
            .integer("sequence", self.sequence)
            .integer("measured_at", self.measured_at)
            .id()
    }

    /// Reads the columns after the id.
    pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<StoredObservation> {
        Ok(StoredObservation {
            workload: row.get(1)?,
            target: row.get(2)?,
            generator: row.get(3)?,
            schedule: row.get(4)?,
            outcome: row.get(5)?,
            phase: row.get(6)?,
            samples_ns: row.get(7)?,
            at_least_ns: row.get(8)?,
            environment: row.get(9)?,
            program_hash: row.get(10)?,
            code_hash: row.get(11)?,
            input: row.get(12)?,
            run: row.get(13)?,
            sequence: row.get(14)?,
            measured_at: row.get(15)?,
        })
    }

    /// Whether a look-up depends on this row.
    pub(crate) fn decides(&self) -> bool {
        self.phase == "final" || self.failed_running()
    }

    /// Whether the kernel ran and did not behave.
    pub(crate) fn failed_running(&self) -> bool {
        matches!(self.outcome.as_str(), "wrong" | "timeout" | "crash" | "lost_device")
    }

    /// Whether the row may carry an answer, as long as its program never failed.
    pub(crate) fn carries_time(&self) -> bool {
        self.phase == "final" && self.outcome == "ok" && self.at_least_ns.is_none() && self.samples_ns != "[]"
    }

    /// The observation, given the keys its ids stand for; `None` when a column is not of the expected form (a row
    /// of a newer minor build, or made by hand).
    pub(crate) fn parse(self, workload: &str, target: &str) -> Option<Observation> {
        Some(Observation {
            workload: workload.into(),
            target: target.into(),
            schedule: serde_json::from_str(&self.schedule).ok()?,
            outcome: Outcome::parse(&self.outcome)?,
            phase: [Phase::Screen, Phase::Final].into_iter().find(|phase| phase.as_str() == self.phase)?,
            samples_ns: serde_json::from_str(&self.samples_ns).ok()?,
            at_least_ns: self.at_least_ns,
            environment: serde_json::from_str(&self.environment).ok()?,
            sequence: u64::try_from(self.sequence).ok()?,
            measured_at: u64::try_from(self.measured_at).ok()?,
            generator: self.generator,
            program_hash: self.program_hash,
            code_hash: self.code_hash,
            input: self.input,
            run: self.run,
        })
    }
}
