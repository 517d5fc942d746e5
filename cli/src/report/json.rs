//! The JSON objects that verbs print, one per line. `docs/cli.md` documents them; golden files freeze their fields.

use serde_json::{Map, Value, json};
use tuning_db::Answer;

use super::TrialReport;
use crate::session::{Ended, JobReport, NightReport, VerdictReport};

/// Schema of the lines of `tune`.
pub const TUNE: &str = "tilewright.tune/1";

/// A trial of `tune`.
#[must_use]
pub fn trial(job: &JobReport, trial: &TrialReport<'_>) -> Value {
    json!({
        "schema": TUNE,
        "kind": "trial",
        "workload": job.workload,
        "key": job.key,
        "device": job.device,
        "trial": trial.number,
        "outcome": trial.outcome,
        "time_ms": trial.seconds.map(|s| s * 1e3),
        "best_ms": trial.best_s.map(|s| s * 1e3),
        "schedule": trial.schedule,
    })
}

/// The closing line of `tune` for one workload on one device.
#[must_use]
pub fn workload(job: &JobReport) -> Value {
    let (verdict, speedup, interval, why) = match &job.verdict {
        VerdictReport::Keep { ratio, lo, hi } => ("keep", Some(*ratio), Some([*lo, *hi]), None),
        VerdictReport::NoGain { best } => ("no_gain", best.map(|b| b.0), best.map(|b| [b.1, b.2]), None),
        VerdictReport::None(why) => ("none", None, None, Some(why)),
    };
    let ended = match &job.ended {
        Ended::Limit => "limit",
        Ended::Exhausted => "exhausted",
        Ended::Settled(_) => "settled",
        Ended::Stopped => "stopped",
        Ended::Failed(_) => "failed",
    };
    let message = match &job.ended {
        Ended::Failed(message) => Some(message.clone()),
        _ if job.shows_stored() => Some(job.remarks().join("; ")),
        Ended::Settled(_) => job.ended.reason(),
        Ended::Limit | Ended::Exhausted | Ended::Stopped => why.cloned(),
    };
    let share = job.best_s().and_then(|best| job.share_of_peak(best));
    json!({
        "schema": TUNE,
        "kind": "workload",
        "workload": job.workload,
        "key": job.key,
        "count": job.count,
        "device": job.device,
        "trials": job.trials,
        "default_ms": job.default_s.map(|s| s * 1e3),
        "best_ms": job.best_s().map(|s| s * 1e3),
        "interval_ms": job.answer.as_ref().map(|a| [a.time.lo_ns / 1e6, a.time.hi_ns / 1e6]),
        "verdict": verdict,
        "speedup": speedup,
        "speedup_interval": interval,
        "share_of_peak": share.map(|s| s.0),
        "roof": share.map(|s| s.1.as_str()),
        "schedule": job.answer.as_ref().map(|a| &a.schedule),
        "ended": ended,
        "message": message,
        "outcomes": outcomes(&job.outcomes),
    })
}

/// The last line of `tune`.
#[must_use]
pub fn summary(night: &NightReport) -> Value {
    let spent = night.spent();
    let wall = night.wall.as_secs_f64();
    let distinct: usize = night.jobs.iter().map(|job| job.programs.len()).sum();
    let trials: u64 = night.jobs.iter().map(|job| job.trials_now).sum();
    json!({
        "schema": TUNE,
        "kind": "summary",
        "wall_s": wall,
        "compile_s": spent.compile.as_secs_f64(),
        "verify_s": spent.verify.as_secs_f64(),
        "time_s": spent.time.as_secs_f64(),
        "finals_s": spent.finals.as_secs_f64(),
        "rest_s": night.wall.saturating_sub(spent.total()).as_secs_f64(),
        "trials": trials,
        "distinct": distinct,
        "per_s": distinct as f64 / wall.max(1e-9),
        "interrupted": night.stopped,
        "outcomes": outcomes(&night.outcomes()),
    })
}

/// A look-up's answer.
#[must_use]
pub fn answer(workload: &str, key: &str, device: &str, target: &str, answer: &Answer, now_s: u64) -> Value {
    json!({
        "schema": "tilewright.lookup/1",
        "workload": workload,
        "key": key,
        "device": device,
        "target": target,
        "schedule": answer.schedule,
        "time_ms": answer.time.ns / 1e6,
        "interval_ms": [answer.time.lo_ns / 1e6, answer.time.hi_ns / 1e6],
        "reason": answer.reason.as_str(),
        "generator": answer.generator,
        "provenance": answer.provenance.as_str(),
        "speedup": answer.speedup.map(|s| s.ratio),
        "speedup_interval": answer.speedup.map(|s| [s.lo, s.hi]),
        "samples": answer.samples,
        "runs": answer.runs,
        "age_s": answer.age_s(now_s),
        "program_hash": answer.program_hash,
        "code_hash": answer.code_hash,
    })
}

fn outcomes(counts: &std::collections::BTreeMap<search_space::Outcome, u64>) -> Value {
    Value::Object(counts.iter().map(|(outcome, n)| (outcome.to_string(), json!(n))).collect::<Map<_, _>>())
}
