//! Answering "which schedule": exact look-up over facts whose hashes were checked, and what is near when there is none.
//!
//! # Which schedule is answered
//! Per workload, target and generator, in this order (the view `winner` says the same in SQL):
//! 1. A schedule can be answered only if a *final* observation of it is verified and timed, and its program (by
//!    `program_hash`; by schedule where there is none) never ran and failed (wrong, timeout, crash, lost device).
//! 2. The newest verdict on a schedule is its standing. A demoted schedule is not answered.
//! 3. Schedules whose standing is *keep* come first, then the baseline of the newest verdict (the default), then any
//!    other. Among equals the smallest median time of all their final samples wins, then the smallest text.
//!
//! Nothing depends on the order in which rows came into the file, so a merged file answers the same from any order.

use std::collections::{BTreeMap, BTreeSet};

use search_space::Schedule;

use crate::estimate::{Estimate, estimate};
use crate::read::{Database, Snapshot};
use crate::rows::{StoredObservation, StoredVerdict};
use crate::{DbError, Id, id_text, target_id, workload_id};

/// Why a look-up answered what it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The workload, the target and the generator are those asked for.
    Exact,
}

impl Reason {
    /// The text printed by `--json`.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Exact => "exact",
        }
    }
}

/// What an answer rests on, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Provenance {
    /// A verdict keeps it: faster than the default, the interval says so.
    Winner,
    /// Nothing was shown to be faster than it.
    Default,
    /// Verified and timed in a final measurement, but no verdict speaks of it.
    BestFinal,
}

impl Provenance {
    /// The text printed by `--json` and used by the view `winner`.
    pub fn as_str(self) -> &'static str {
        match self {
            Provenance::Winner => "winner",
            Provenance::Default => "default",
            Provenance::BestFinal => "best_final",
        }
    }
}

/// A ratio of times with its 95 % interval; above 1: faster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speedup {
    /// Time of the default / time of the schedule.
    pub ratio: f64,
    /// Lower end of the interval.
    pub lo: f64,
    /// Upper end of the interval.
    pub hi: f64,
}

/// The answer of a look-up.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The schedule to use.
    pub schedule: Schedule,
    /// Who turns it into a kernel: the generator asked for.
    pub generator: String,
    /// Why it is the answer to this question.
    pub reason: Reason,
    /// What it rests on.
    pub provenance: Provenance,
    /// Expected time of one call.
    pub time: Estimate,
    /// How many final samples the time rests on.
    pub samples: u64,
    /// In how many runs they were taken.
    pub runs: u64,
    /// When it was last measured, in seconds since 1970-01-01 UTC.
    pub measured_at: u64,
    /// Hash of the program last measured: unless lowering gives the same again, the time is aged.
    pub program_hash: Option<String>,
    /// Hash of the code last measured.
    pub code_hash: Option<String>,
    /// What the winner was compared with, and its time where it was measured.
    pub default: Option<(Schedule, Option<Estimate>)>,
    /// Speed-up of the winner over that.
    pub speedup: Option<Speedup>,
}

impl Answer {
    /// Seconds since the last measurement; 0 when the clock went backwards.
    pub fn age_s(&self, now_s: u64) -> u64 {
        now_s.saturating_sub(self.measured_at)
    }
}

impl Database {
    /// The schedule to use for exactly this workload on exactly this target; `None` when nothing verified is stored
    /// (then [`Database::nearest_fields`] says what is near).
    ///
    /// # Errors
    /// [`DbError::Damaged`] when a row on which the answer depends was altered or lost: another answer could follow
    /// from what is left, so none is given. Errors of SQLite.
    pub fn lookup(&self, workload_key: &str, target_key: &str, generator: &str) -> Result<Option<Answer>, DbError> {
        let snapshot = self.snapshot()?;
        let (workload, target) = (workload_id(workload_key).to_string(), target_id(target_key).to_string());
        let (observations, verdicts) = decisive_rows(&snapshot, &workload, &target, generator)?;
        let Some(found) = decide(&observations, &verdicts) else { return Ok(None) };
        let unreadable = || DbError::damaged_row(self.path(), "schedule", &id_text(None));
        let parse = |text: &str| serde_json::from_str::<Schedule>(text).map_err(|_| unreadable());
        Ok(Some(Answer {
            schedule: parse(found.schedule)?,
            generator: generator.into(),
            reason: Reason::Exact,
            provenance: found.provenance,
            time: found.timed.time,
            samples: found.timed.samples,
            runs: found.timed.runs,
            measured_at: u64::try_from(found.timed.newest.measured_at).unwrap_or(0),
            program_hash: found.timed.newest.program_hash.clone(),
            code_hash: found.timed.newest.code_hash.clone(),
            default: match found.kept {
                Some(verdict) => Some((parse(&verdict.baseline)?, found.baseline_time)),
                None => None,
            },
            speedup: found.kept.map(|v| Speedup { ratio: v.ratio, lo: v.ratio_lo, hi: v.ratio_hi }),
        }))
    }
}

/// Every row a look-up depends on, its hash checked, and all of them there.
fn decisive_rows(
    snapshot: &Snapshot<'_>,
    workload: &str,
    target: &str,
    generator: &str,
) -> Result<(Vec<StoredObservation>, Vec<StoredVerdict>), DbError> {
    let key = [workload, target, generator];
    let observations = snapshot.decisive_observations(key)?;
    let verdicts = snapshot.verdicts(key)?;
    let digest = observations.iter().map(|row| row.0).chain(verdicts.iter().map(|row| row.0));
    let found = (observations.len() + verdicts.len(), digest.fold(Id::ZERO, Id::toggled));
    if snapshot.tally(key)? != found {
        return Err(snapshot.damaged(format!("the set of rows of workload {workload:.12} on target {target:.12}")));
    }
    Ok((observations.into_iter().map(|(_, row)| row).collect(), verdicts.into_iter().map(|(_, row)| row).collect()))
}

/// A schedule's final measurements, pooled.
struct Timed<'a> {
    time: Estimate,
    samples: u64,
    runs: u64,
    newest: &'a StoredObservation,
}

struct Found<'a> {
    schedule: &'a str,
    timed: Timed<'a>,
    provenance: Provenance,
    /// The verdict that keeps it.
    kept: Option<&'a StoredVerdict>,
    baseline_time: Option<Estimate>,
}

/// The rule at the top of this file.
fn decide<'a>(observations: &'a [StoredObservation], verdicts: &'a [StoredVerdict]) -> Option<Found<'a>> {
    let failed: BTreeSet<(Option<&str>, &str)> =
        observations.iter().filter(|o| o.failed_running()).map(program).collect();
    let mut finals: BTreeMap<&str, Vec<&StoredObservation>> = BTreeMap::new();
    for row in observations.iter().filter(|row| row.carries_time() && !failed.contains(&program(row))) {
        finals.entry(&row.schedule).or_default().push(row);
    }
    let mut timed: BTreeMap<&str, Timed<'_>> =
        finals.into_iter().filter_map(|(schedule, rows)| Some((schedule, pool(&rows)?))).collect();

    let age = |verdict: &&StoredVerdict| (verdict.decided_at, verdict.id());
    let mut standing: BTreeMap<&str, &StoredVerdict> = BTreeMap::new();
    for verdict in verdicts {
        let newest = standing.entry(&verdict.schedule).or_insert(verdict);
        *newest = std::cmp::max_by_key(*newest, verdict, age);
    }
    let default = standing.values().copied().max_by_key(age).map(|verdict| verdict.baseline.as_str());

    let class = |schedule: &str| match standing.get(schedule).map(|verdict| verdict.decision.as_str()) {
        Some("demote") => None,
        Some("keep") => Some(Provenance::Winner),
        _ if default == Some(schedule) => Some(Provenance::Default),
        _ => Some(Provenance::BestFinal),
    };
    let candidates = timed.iter().filter_map(|(schedule, timed)| Some((class(schedule)?, timed.time.ns, *schedule)));
    let (provenance, _, schedule) =
        candidates.min_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(b.2)))?;
    let kept = standing.get(schedule).copied().filter(|_| provenance == Provenance::Winner);
    let baseline_time = kept.and_then(|verdict| timed.get(verdict.baseline.as_str())).map(|timed| timed.time);
    let timed = timed.remove(schedule)?;
    Some(Found { schedule, timed, provenance, kept, baseline_time })
}

/// What must not have failed: the program, or the schedule where no program is known.
fn program(row: &StoredObservation) -> (Option<&str>, &str) {
    match &row.program_hash {
        Some(hash) => (Some(hash), ""),
        None => (None, &row.schedule),
    }
}

fn pool<'a>(rows: &[&'a StoredObservation]) -> Option<Timed<'a>> {
    let mut samples: Vec<f64> = Vec::new();
    for row in rows {
        samples.extend(serde_json::from_str::<Vec<f64>>(&row.samples_ns).ok()?);
    }
    let runs: BTreeSet<&str> = rows.iter().map(|row| row.run.as_str()).collect();
    let newest = rows.iter().copied().max_by_key(|row| (row.measured_at, row.id()))?;
    Some(Timed {
        time: estimate(&mut samples)?,
        samples: u64::try_from(samples.len()).ok()?,
        runs: u64::try_from(runs.len()).ok()?,
        newest,
    })
}
