//! `tune --dry-run`: what a night would do.

use std::time::Duration;

use cli::planner::first_split;
use cli::report::table::columns;
use cli::report::{json, units};
use serde_json::json;

use super::tune::Planned;
use super::{Context, Ending};

/// Prints what is planned; no device is touched beyond its identity, and nothing is written.
pub(super) fn print(planned: &Planned, as_json: bool, context: &Context) -> anyhow::Result<Ending> {
    let out = &context.output;
    let seconds = planned_seconds(planned);
    let mut rows = vec![["workload", "count", "device", "schedules", "planned", "default"].map(String::from).to_vec()];
    for (job, seconds) in planned.jobs.iter().zip(seconds) {
        let device = planned.devices[job.bench].spec().to_string();
        let count = job.plan.space.count();
        if as_json {
            out.json(&json!({
                "schema": json::TUNE,
                "kind": "planned",
                "workload": job.workload.summary(),
                "key": job.workload.key(),
                "count": job.count,
                "device": device,
                "schedules": count.to_string(),
                "planned_s": seconds,
                "default": job.plan.default,
            }))?;
            continue;
        }
        let time = match (seconds, planned.limit.trials) {
            (Some(seconds), _) => format!("about {}", units::duration(Duration::from_secs_f64(seconds))),
            (None, Some(trials)) => format!("{trials} trials"),
            (None, None) => "-".into(),
        };
        rows.push(vec![
            job.workload.summary(),
            job.count.to_string(),
            device,
            units::count(count),
            time,
            job.plan.default.to_string(),
        ]);
    }
    if as_json {
        out.json(&json!({ "schema": json::TUNE, "kind": "configuration", "effective": planned.effective }))?;
        return Ok(Ending::Done);
    }
    for line in columns(&rows, &[1, 3]) {
        out.line(line)?;
    }
    out.line("")?;
    out.line("configuration")?;
    for (name, value) in planned.effective.as_object().into_iter().flatten() {
        out.line(format!("  {name}: {value}"))?;
    }
    Ok(Ending::Done)
}

/// The first guess for each job; devices with a physical resource of their own do not share time.
fn planned_seconds(planned: &Planned) -> Vec<Option<f64>> {
    let Some(time) = planned.limit.time else { return vec![None; planned.jobs.len()] };
    let resource = |job: usize| &planned.devices[planned.jobs[job].bench].identity().resource;
    let mut seconds = vec![None; planned.jobs.len()];
    for job in 0..planned.jobs.len() {
        if seconds[job].is_some() {
            continue;
        }
        let together: Vec<usize> = (0..planned.jobs.len()).filter(|other| resource(*other) == resource(job)).collect();
        let weight = |at: &usize| planned.jobs[*at].count as f64 * planned.jobs[*at].workload.flops() as f64;
        let weights: Vec<f64> = together.iter().map(weight).collect();
        for (at, share) in together.iter().zip(first_split(time, &weights)) {
            seconds[*at] = Some(share);
        }
    }
    seconds
}
