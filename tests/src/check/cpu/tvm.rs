//! Against the tuning time of TVM MetaSchedule: how long our tuner takes to reach what TVM ended with.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Instant;

use anyhow::Context;
use serde_json::Value;

use super::{Bar, Finding, Lab};
use crate::check::lab::Group;

/// TVM 0.27 with 64 trials of its MetaSchedule on one quiet core of the reference machine: 242 s of wall time, and
/// 115 GFLOP/s at their end.
const TVM_S: f64 = 242.0;
const TVM_FLOPS_PER_S: f64 = 115e9;

const WORKLOAD: &str = "matmul m=512 n=512 k=512 dtype=f32";
const FLOPS: f64 = 2.0 * 512.0 * 512.0 * 512.0;

pub(super) fn bar() -> Bar {
    let text = format!("512x512x512 at TVM's final 115 GFLOP/s after <= {:.1} s (1/20 of its 242 s)", TVM_S / 20.0);
    Bar::new("tvm", text, reach)
}

/// Tunes from nothing, and watches the trials come in. Every trial counts from the start of the program, so the start of
/// the device and the first compilation are in it.
fn reach(lab: &Lab) -> anyhow::Result<Finding> {
    let database = lab.folder("tvm")?.join("tuned.tune");
    let mut command = lab.command(["tune", WORKLOAD, "--device", "cpu", "--time", "30s", "-q", "--json", "--db"]);
    command.arg(&database).stdout(Stdio::piped());
    let start = Instant::now();
    let mut group = Group::start(command)?;
    let lines = BufReader::new(group.child.stdout.take().context("tune has no output")?).lines();
    let (mut best, mut reached, mut trials) = (f64::INFINITY, None, 0u32);
    for line in lines {
        let line: Value = serde_json::from_str(&line.context("reading from tune")?).context("a line of tune")?;
        let Some(ms) = line["best_ms"].as_f64().filter(|_| line["kind"] == "trial") else { continue };
        trials += 1;
        best = best.min(ms);
        if FLOPS / (ms / 1e3) >= TVM_FLOPS_PER_S && reached.is_none() {
            reached = Some((start.elapsed().as_secs_f64(), trials));
        }
    }
    let end = FLOPS / (best / 1e3) / 1e9;
    Ok(match reached {
        Some((seconds, at)) => Finding::of(
            seconds <= TVM_S / 20.0,
            format!("after {seconds:.2} s, trial {at}; {trials} trials end at {end:.0} GFLOP/s"),
        ),
        None => Finding::Missed(format!("never: {trials} trials end at {end:.0} GFLOP/s")),
    })
}
