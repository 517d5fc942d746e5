//! From a final to the rows that decide look-ups.

use std::collections::BTreeSet;

use measure::{Comparison, Finalist, Finals, FinalsOptions, Verdict};
use search_space::{Outcome, Schedule};
use serde_json::json;
use tuning_db::{Batch, Database, Decision, Observation, Phase, Provenance};

use super::night::{Night, Running};
use super::outcome::{Ended, VerdictReport};
use super::{Bench, SessionError};
use crate::GENERATOR;
use crate::planner::FinalPlan;

impl Night<'_> {
    /// Compares the best with the default and the incumbent in fresh workers, and saves what that says.
    pub(super) fn hold_final(
        &self,
        running: &mut Running,
        bench: &mut dyn Bench,
        plan: FinalPlan,
    ) -> Result<(), SessionError> {
        let result = &mut running.result;
        if running.search.best().is_none() {
            result.verdict = VerdictReport::None("nothing worked, so there was nothing to compare".into());
            return Ok(());
        }
        if running.search.default_quarantined() {
            result.verdict = VerdictReport::None(
                "an earlier run died while the default ran, so nothing can be compared with it; \
                 if that was not its fault, tune again with --retry-quarantined"
                    .into(),
            );
            return Ok(());
        }
        let default = running.search.default.clone();
        let (incumbent, kept) = self.incumbents(running)?;
        let incumbent = incumbent.filter(|schedule| *schedule != default);
        let mut candidates = running.search.finalists(plan.candidates);
        candidates.retain(|schedule| Some(schedule) != incumbent.as_ref());
        let options = FinalsOptions { seed: self.settings.method.seed, ..plan.options };
        let start = self.clock.now();
        let workload = &running.search.workload;
        let finals = match bench.finals(workload, &candidates, &default, incumbent.as_ref(), &options) {
            Ok(finals) => finals,
            Err(error) => {
                running.result.ended = Ended::Failed(format!("the final could not be held: {error}"));
                return Ok(());
            }
        };
        let took = self.clock.now().saturating_sub(start);
        running.result.spent.finals += took;
        tracing::debug!(
            workload = %running.result.workload,
            device = bench.name(),
            candidates = candidates.len(),
            planned = ?running.standing.final_time(&options, candidates.len()),
            ?took,
            "final"
        );
        self.save(running, &finals, incumbent.as_ref(), &kept)
    }

    /// The winner of earlier runs, as far as it is a schedule of the present space, and all schedules ever kept.
    fn incumbents(&self, running: &Running) -> Result<(Option<Schedule>, Vec<Schedule>), SessionError> {
        let database = Database::open(self.writer.path())?;
        let (key, target) = (&running.search.key, running.search.target.key.to_string());
        let winner = database.lookup(key, &target, GENERATOR)?.filter(|a| a.provenance == Provenance::Winner);
        let winner = winner.map(|answer| answer.schedule).filter(|s| running.search.space.config(s).is_ok());
        let verdicts = database.verdicts(key, &target)?.rows;
        let keeps = verdicts.into_iter().filter(|v| v.generator == GENERATOR && v.decision == Decision::Keep);
        let kept: BTreeSet<Schedule> = keeps.map(|verdict| verdict.schedule).collect();
        Ok((winner, kept.into_iter().collect()))
    }

    fn save(
        &self,
        running: &mut Running,
        finals: &Finals,
        incumbent: Option<&Schedule>,
        kept: &[Schedule],
    ) -> Result<(), SessionError> {
        let mut batch = Batch::new();
        for entry in &finals.entries {
            batch = batch.observation(self.final_observation(running, entry));
        }
        let (report, rows) = judge(finals, &running.search.default, incumbent, kept);
        for row in rows {
            let blank = self.blank(running, Phase::Final);
            batch = batch.verdict(tuning_db::Verdict {
                workload: blank.workload,
                target: blank.target,
                generator: blank.generator,
                schedule: row.schedule,
                baseline: running.search.default.clone(),
                decision: row.decision,
                ratio: row.ratio.speedup,
                ratio_lo: row.ratio.low,
                ratio_hi: row.ratio.high,
                run: blank.run,
                sequence: blank.sequence,
                decided_at: blank.measured_at,
            });
        }
        running.search.finish(&json!({ "verdict": finals.verdict, "workers": finals.workers }));
        let events = running.search.take_events();
        self.writer.submit(batch.events(events))?.wait()?;
        running.result.verdict = report;
        Ok(())
    }

    fn final_observation(&self, running: &Running, entry: &Finalist) -> Observation {
        let ok = entry.outcome == Outcome::Ok;
        let hash = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        Observation {
            schedule: entry.schedule.clone(),
            outcome: entry.outcome,
            samples_ns: if ok { entry.samples_ns.clone() } else { Vec::new() },
            program_hash: hash(&entry.kernel.program_hash),
            code_hash: hash(&entry.kernel.code_hash),
            ..self.blank(running, Phase::Final)
        }
    }
}

/// A verdict row to be written: `schedule` against the default.
#[derive(Debug, PartialEq)]
struct Row {
    schedule: Schedule,
    decision: Decision,
    ratio: Comparison,
}

/// What a final means for the winner, for the incumbent it beat, and for all that was ever `kept` when nothing won.
fn judge(
    finals: &Finals,
    default: &Schedule,
    incumbent: Option<&Schedule>,
    kept: &[Schedule],
) -> (VerdictReport, Vec<Row>) {
    let three = |c: &Comparison| (c.speedup, c.low, c.high);
    if matches!(finals.verdict, Verdict::NoGain { .. }) && finals.entries.iter().all(|entry| entry.schedule == *default)
    {
        let why = "only the default was measured, so there was nothing to compare with it; give it more time";
        return (VerdictReport::None(why.into()), Vec::new());
    }
    let mut rows = Vec::new();
    let report = match &finals.verdict {
        Verdict::Winner { entry, over_default } => {
            let schedule = finals.entries[*entry].schedule.clone();
            // An incumbent that the new winner beats is no longer to be answered.
            if let (Some(old), Some(over)) = (incumbent.filter(|old| **old != schedule), &finals.over_incumbent)
                && over.low > 1.0
                && over.speedup > 0.0
            {
                let ratio = Comparison {
                    speedup: over_default.speedup / over.speedup,
                    low: (over_default.low / over.high).min(over_default.speedup / over.speedup),
                    high: (over_default.high / over.low).max(over_default.speedup / over.speedup),
                };
                rows.push(Row { schedule: old.clone(), decision: Decision::Demote, ratio });
            }
            rows.push(Row { schedule, decision: Decision::Keep, ratio: *over_default });
            let (ratio, lo, hi) = three(over_default);
            VerdictReport::Keep { ratio, lo, hi }
        }
        Verdict::NoGain { best, .. } => {
            // The fastest of those kept was in this final, and nothing was shown to be faster than the default.
            let unsure = Comparison { speedup: 1.0, low: 1.0, high: 1.0 };
            let ratio = best.unwrap_or(unsure);
            let old = kept.iter().filter(|old| *old != default);
            rows.extend(old.map(|old| Row { schedule: old.clone(), decision: Decision::NoGain, ratio }));
            rows.push(Row { schedule: default.clone(), decision: Decision::NoGain, ratio: unsure });
            VerdictReport::NoGain { best: best.as_ref().map(three) }
        }
        Verdict::NoDefault { message } => VerdictReport::None(format!("the default failed in the final: {message}")),
    };
    (report, rows)
}

#[cfg(test)]
mod tests {
    use measure::{FinalistRole, KernelInfo};

    use super::*;

    fn schedule(x: i64) -> Schedule {
        [("x", x.into())].into_iter().collect()
    }

    fn finals(verdict: Verdict, over_incumbent: Option<Comparison>) -> Finals {
        let entry = |role, x| Finalist {
            role,
            schedule: schedule(x),
            outcome: Outcome::Ok,
            kernel: KernelInfo::default(),
            samples_ns: vec![1.0],
            message: None,
        };
        let entries = vec![entry(FinalistRole::Candidate, 1), entry(FinalistRole::Default, 0)];
        Finals { entries, verdict, over_incumbent, workers: 3 }
    }

    const FASTER: Comparison = Comparison { speedup: 2.0, low: 1.8, high: 2.2 };

    #[test]
    fn a_winner_is_kept_and_an_incumbent_it_beats_is_demoted() {
        let verdict = Verdict::Winner { entry: 0, over_default: FASTER };
        let (report, rows) = judge(&finals(verdict.clone(), None), &schedule(0), None, &[]);
        assert_eq!(report, VerdictReport::Keep { ratio: 2.0, lo: 1.8, hi: 2.2 });
        assert_eq!(rows, [Row { schedule: schedule(1), decision: Decision::Keep, ratio: FASTER }]);

        let (_, rows) = judge(&finals(verdict.clone(), Some(FASTER)), &schedule(0), Some(&schedule(7)), &[]);
        assert_eq!((rows[0].decision, &rows[0].schedule), (Decision::Demote, &schedule(7)));
        assert!(rows[0].ratio.low <= rows[0].ratio.speedup && rows[0].ratio.speedup <= rows[0].ratio.high);
        // An incumbent that may be as fast stays.
        let even = Comparison { speedup: 1.01, low: 0.98, high: 1.03 };
        assert_eq!(judge(&finals(verdict, Some(even)), &schedule(0), Some(&schedule(7)), &[]).1.len(), 1);
    }

    #[test]
    fn no_gain_leaves_the_default_and_takes_the_incumbent_back() {
        let best = Comparison { speedup: 1.01, low: 0.99, high: 1.03 };
        let verdict = Verdict::NoGain { entry: 1, best: Some(best) };
        let (report, rows) = judge(&finals(verdict, None), &schedule(0), Some(&schedule(7)), &[schedule(7)]);
        assert_eq!(report, VerdictReport::NoGain { best: Some((1.01, 0.99, 1.03)) });
        assert!(rows.iter().all(|row| row.decision == Decision::NoGain));
        assert_eq!(rows.iter().map(|row| &row.schedule).collect::<Vec<_>>(), [&schedule(7), &schedule(0)]);
    }
}
