//! Schedule spaces: exact counts in a fraction of a second, uniform draws, fast neighbours.

use super::{Bar, Finding, Lab};
use anyhow::Context;
use std::time::Duration;

/// Workloads whose spaces are counted on both devices.
const WORKLOADS: &[&str] = &[
    "matmul m=4096 n=4096 k=4096 dtype=f32",
    "matmul m=1000 n=999 k=1001 dtype=f32",
    "conv2d n=1 c=128 h=28 w=28 k=128 r=3 s=3 pad=1 dtype=f32",
];

const DEVICES: [&str; 2] = ["cpu", "vulkan"];

pub(super) fn bars() -> Vec<Bar> {
    let mut bars = Vec::new();
    for workload in WORKLOADS {
        for device in DEVICES {
            let name: Vec<&str> = workload.split(' ').take(4).collect();
            bars.push(Bar::new(
                format!("space {} {device}", name.join(" ")),
                "counted exactly in < 0.3 s",
                move |lab| {
                    let (count, ms) = space(lab, workload, device)?;
                    Ok(Finding::of(count > 0 && ms < 300.0, format!("{count} in {ms:.1} ms")))
                },
            ));
        }
    }
    bars.push(Bar::new("largest space", ">= 10^8 valid schedules", |lab| {
        let mut largest = 0;
        for device in DEVICES {
            largest = largest.max(space(lab, WORKLOADS[0], device)?.0);
        }
        Ok(Finding::of(largest >= 100_000_000, largest.to_string()))
    }));
    bars
}

/// The exact count, and the milliseconds that building the space and counting took.
fn space(lab: &Lab, workload: &str, device: &str) -> anyhow::Result<(u128, f64)> {
    let answer = lab.json(["space", workload, "--device", device, "--json"], Duration::from_secs(30))?;
    let space = answer.first().context("no answer")?;
    // A string, because JSON numbers do not hold 128 bits.
    let count = space["count"].as_str().context("no count")?.parse().context("the count")?;
    Ok((count, space["count_ms"].as_f64().context("no count_ms")?))
}
