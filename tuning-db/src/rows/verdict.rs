//! What a comparison of final measurements concluded.

use rusqlite::Row;
use search_space::Schedule;

use super::{check_text, integer};
use crate::canonical::{Canonical, schedule_json};
use crate::{DbError, Id, target_id, workload_id};

/// The conclusion of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Decision {
    /// The schedule is faster than the baseline: the 95 % interval of the ratio lies above 1.
    Keep,
    /// The schedule is no longer to be answered: slower, or found wanting later.
    Demote,
    /// No difference was shown: the baseline stays.
    NoGain,
}

impl Decision {
    /// Every decision.
    pub const ALL: [Decision; 3] = [Decision::Keep, Decision::Demote, Decision::NoGain];

    /// The stored text.
    pub fn as_str(self) -> &'static str {
        match self {
            Decision::Keep => "keep",
            Decision::Demote => "demote",
            Decision::NoGain => "no_gain",
        }
    }
}

/// A schedule compared with a baseline, usually the default schedule, in one final measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Canonical workload key.
    pub workload: String,
    /// Canonical target key.
    pub target: String,
    /// Who turns the schedules into kernels.
    pub generator: String,
    /// The schedule judged.
    pub schedule: Schedule,
    /// What it was compared with.
    pub baseline: Schedule,
    /// Conclusion.
    pub decision: Decision,
    /// Time of the baseline / time of the schedule; above 1 the schedule is faster.
    pub ratio: f64,
    /// Lower end of the 95 % interval of the ratio.
    pub ratio_lo: f64,
    /// Upper end of the 95 % interval of the ratio.
    pub ratio_hi: f64,
    /// Which run of the tuner decided.
    pub run: String,
    /// Position within the run.
    pub sequence: u64,
    /// When, in seconds since 1970-01-01 UTC.
    pub decided_at: u64,
}

impl Verdict {
    /// The id under which this verdict is stored.
    ///
    /// # Errors
    /// [`DbError::InvalidRow`] when it breaks a rule: a `Keep` whose interval reaches 1, an interval without its
    /// ratio inside, a number that is not finite and positive.
    pub fn id(&self) -> Result<Id, DbError> {
        Ok(self.stored()?.id())
    }

    /// The columns, after every rule was checked.
    pub(crate) fn stored(&self) -> Result<StoredVerdict, DbError> {
        const ROW: &str = "verdict";
        for (field, text) in
            [("workload", &self.workload), ("target", &self.target), ("generator", &self.generator), ("run", &self.run)]
        {
            check_text(ROW, field, text)?;
        }
        let (lo, ratio, hi) = (self.ratio_lo, self.ratio, self.ratio_hi);
        if ![lo, ratio, hi].iter().all(|x| x.is_finite() && *x > 0.0) || lo > ratio || ratio > hi {
            return Err(DbError::invalid(
                ROW,
                format!("ratio {ratio} in {lo}..{hi} is not an estimate in its interval"),
            ));
        }
        if self.decision == Decision::Keep && lo <= 1.0 {
            return Err(DbError::invalid(
                ROW,
                format!("it keeps a schedule although the interval {lo}..{hi} of the speed-up does not lie above 1"),
            ));
        }
        let stored = StoredVerdict {
            workload: workload_id(&self.workload).to_string(),
            target: target_id(&self.target).to_string(),
            generator: self.generator.clone(),
            schedule: schedule_json(&self.schedule),
            baseline: schedule_json(&self.baseline),
            decision: self.decision.as_str().into(),
            ratio,
            ratio_lo: lo,
            ratio_hi: hi,
            run: self.run.clone(),
            sequence: integer(ROW, "sequence", self.sequence)?,
            decided_at: integer(ROW, "decided_at", self.decided_at)?,
        };
        check_text(ROW, "schedule", &stored.schedule)?;
        check_text(ROW, "baseline", &stored.baseline)?;
        Ok(stored)
    }
}

/// The columns that `StoredVerdict::read` expects, in order, the id first.
pub(crate) const VERDICT_COLUMNS: &str = "id, workload, target, generator, schedule, baseline, decision, ratio, \
     ratio_lo, ratio_hi, run, sequence, decided_at";

/// A verdict as its columns hold it.
#[derive(Clone, Debug)]
pub(crate) struct StoredVerdict {
    pub(crate) workload: String,
    pub(crate) target: String,
    pub(crate) generator: String,
    pub(crate) schedule: String,
    pub(crate) baseline: String,
    pub(crate) decision: String,
    pub(crate) ratio: f64,
    pub(crate) ratio_lo: f64,
    pub(crate) ratio_hi: f64,
    pub(crate) run: String,
    pub(crate) sequence: i64,
    pub(crate) decided_at: i64,
}

impl StoredVerdict {
    pub(crate) fn id(&self) -> Id {
        Canonical::new("verdict")
            .field("workload", Some(&self.workload))
            .field("target", Some(&self.target))
            .field("generator", Some(&self.generator))
            .field("schedule", Some(&self.schedule))
            .field("baseline", Some(&self.baseline))
            .field("decision", Some(&self.decision))
            .real("ratio", Some(self.ratio))
            .real("ratio_lo", Some(self.ratio_lo))
            .real("ratio_hi", Some(self.ratio_hi))
            .field("run", Some(&self.run))
            .integer("sequence", self.sequence)
            .integer("decided_at", self.decided_at)
            .id()
    }

    /// Reads the columns after the id.
    pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<StoredVerdict> {
        Ok(StoredVerdict {
            workload: row.get(1)?,
            target: row.get(2)?,
            generator: row.get(3)?,
            schedule: row.get(4)?,
            baseline: row.get(5)?,
            decision: row.get(6)?,
            ratio: row.get(7)?,
            ratio_lo: row.get(8)?,
            ratio_hi: row.get(9)?,
            run: row.get(10)?,
            sequence: row.get(11)?,
            decided_at: row.get(12)?,
        })
    }

    /// The verdict, given the keys its ids stand for; `None` when a column is not of the expected form.
    pub(crate) fn parse(self, workload: &str, target: &str) -> Option<Verdict> {
        Some(Verdict {
            workload: workload.into(),
            target: target.into(),
            schedule: serde_json::from_str(&self.schedule).ok()?,
            baseline: serde_json::from_str(&self.baseline).ok()?,
            decision: Decision::ALL.into_iter().find(|decision| decision.as_str() == self.decision)?,
            ratio: self.ratio,
            ratio_lo: self.ratio_lo,
            ratio_hi: self.ratio_hi,
            sequence: u64::try_from(self.sequence).ok()?,
            decided_at: u64::try_from(self.decided_at).ok()?,
            generator: self.generator,
            run: self.run,
        })
    }
}
