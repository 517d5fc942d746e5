//! What the search itself costs: everything that is not compiling, verifying or timing a kernel.

use super::{Bar, Finding, Lab};
use anyhow::Context;
use serde::Deserialize;
use std::time::Duration;

const TRIALS: u64 = 200;

pub(super) fn bars() -> Vec<Bar> {
    vec![
        Bar::new("engine overhead", format!("< 10 % of the wall clock, {TRIALS} trials of matmul 256^3"), |lab| {
            let run = tune(lab)?;
            let share = 1.0 - run.busy_s / run.wall_s;
            let measured = format!("{:.1} % of {:.2} s", share * 100.0, run.wall_s);
            Ok(Finding::of(share < 0.1, measured))
        }),
        Bar::new("engine rate", ">= 20 distinct candidates per second compiled, verified and timed", |lab| {
            let run = tune(lab)?;
            let rate = run.distinct / run.wall_s;
            Ok(Finding::of(rate >= 20.0, format!("{rate:.1} per second, {} distinct", run.distinct)))
        }),
    ]
}

struct Run {
    /// From start of the process to its end.
    wall_s: f64,
    /// Compiling, verifying and timing.
    busy_s: f64,
    /// Different programs among the trials.
    distinct: f64,
}

/// The last line of `tune --json`. A final compiles, verifies and times once more.
#[derive(Deserialize)]
struct Summary {
    trials: u64,
    distinct: u32,
    compile_s: f64,
    verify_s: f64,
    time_s: f64,
    finals_s: f64,
}

fn tune(lab: &Lab) -> anyhow::Result<Run> {
    let database = lab.folder("engine")?.join("engine.tune");
    let database = database.to_string_lossy();
    let trials = TRIALS.to_string();
    let workload = "matmul m=256 n=256 k=256 dtype=f32";
    let arguments =
        ["tune", workload, "--device", "cpu", "--trials", &trials, "--stop-gain", "0", "--db", &database, "--json"];
    let ran = lab.run(arguments, Duration::from_secs(180))?.ok()?;
    let line = ran.stdout.lines().rfind(|line| line.contains(r#""kind":"summary""#));
    let summary: Summary =
        serde_json::from_str(line.context("tune --json gave no closing line")?).context("its closing line")?;
    anyhow::ensure!(summary.trials == TRIALS, "{} trials were run, not {TRIALS}", summary.trials);
    Ok(Run {
        wall_s: ran.wall.as_secs_f64(),
        busy_s: summary.compile_s + summary.verify_s + summary.time_s + summary.finals_s,
        distinct: f64::from(summary.distinct),
    })
}
