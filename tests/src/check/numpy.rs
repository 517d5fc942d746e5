//! Matrix products on one core against numpy with its own OpenBLAS, after at most a minute of tuning.

use super::lockstep::{TimedProgram, speed_ratio};
use super::table::{Peers, last_allowed_cores, pinned};
use super::{Bar, Finding, Lab};
use anyhow::Context;
use datasets::suite::Line;
use serde_json::json;
use std::time::Duration;

const ROUNDS: usize = 11;

/// Seconds each side runs for in a round: long enough for many calls, short enough that both see the same machine.
const SECONDS: f64 = 0.4;

pub(super) fn bars() -> Vec<Bar> {
    [(512, 512, 512, 0.85), (1024, 1024, 1024, 0.85), (1000, 999, 1001, 0.8)]
        .into_iter()
        .map(|(m, n, k, least)| {
            Bar::new(
                format!("numpy {m}x{n}x{k}"),
                format!("ours / numpy >= {least}, one thread, <= 60 s tuning"),
                move |lab| compare(lab, m, n, k, least),
            )
        })
        .collect()
}

fn compare(lab: &Lab, m: u64, n: u64, k: u64, least: f64) -> anyhow::Result<Finding> {
    let line = json!({
        "name": format!("{m}x{n}x{k}"), "op": "matmul", "dtype": "f32", "shape": { "M": m, "N": n, "K": k },
        "flops": 2 * m * n * k, "bytes": 4 * (m * k + k * n + m * n),
    });
    let line: Line = serde_json::from_value(line)?;
    let mut peers = Peers::set_up(lab, &["numpy"], 1)?;
    if let Err(error) = peers.prepare(lab, "numpy", &line, false) {
        return Ok(Finding::Skipped(format!("numpy cannot be asked: {error:#}")));
    }
    let database = lab.folder("numpy")?.join("tuned.tune");
    let database = database.to_string_lossy();
    let workload = format!("matmul m={m} n={n} k={k} dtype=f32");
    let tune = ["tune", &workload, "--device", "cpu", "--time", "60s", "--db", &database];
    lab.run(tune, Duration::from_secs(180))?.ok().context("tuning")?;

    // Both run on the same core in turn, so neither can use a second one, nor stand on a quieter one.
    let core = last_allowed_cores(1)?;
    let time = pinned(&core, &lab.tilewright, &["time", &workload, "--device", "cpu", "--db", &database]);
    let mut ours = TimedProgram::start("tilewright time", time, None)?;
    let theirs = peers.alive("numpy").context("numpy ended")?;
    let (ratio, our_ms, their_ms) = speed_ratio(&mut ours, theirs, ROUNDS, SECONDS)?;
    Ok(Finding::of(ratio.median >= least, format!("{ratio}; ours {our_ms:.3} ms, numpy {their_ms:.3} ms")))
}
