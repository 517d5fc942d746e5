//! A suite's results as one JSON document, with the fields of the peers' figures; docs/cli.md describes them.

use serde_json::{Value, json};

use super::{Entry, Options, Round, Timed};

/// Schema of the document.
pub const BENCH: &str = "tilewright.bench/1";

/// Name among the peers.
pub const NAME: &str = "tilewright";

/// What holds for all lines.
#[derive(Clone, Debug)]
pub struct Circumstances {
    /// Device as users name it.
    pub device: String,
    /// What it calls itself.
    pub name: String,
    /// Key of its target.
    pub target: String,
    /// Seconds since 1970-01-01 UTC when the run began.
    pub start: u64,
    /// Load averages of 1, 5 and 15 minutes when it began, where they are known.
    pub load_start: Option<[f64; 3]>,
    /// The same when the last line was done.
    pub load_end: Option<[f64; 3]>,
}

/// The document.
#[must_use]
pub fn document(circumstances: &Circumstances, options: &Options, entries: &[Entry]) -> Value {
    json!({
        "schema": BENCH,
        "threads": options.threads,
        "clock": "wall",
        "cache": "warm",
        "rounds": options.rounds,
        "secs": options.round.as_secs_f64(),
        "time_per_s": options.time_per.as_secs_f64(),
        "device": circumstances.device,
        "device_name": circumstances.name,
        "target": circumstances.target,
        "start": circumstances.start,
        "load_start": circumstances.load_start,
        "load_end": circumstances.load_end,
        "results": entries.iter().map(result).collect::<Vec<_>>(),
    })
}

/// One line.
#[must_use]
pub fn result(entry: &Entry) -> Value {
    let line = &entry.line;
    let ours = match &entry.result {
        Ok(timed) => measured(entry, timed),
        Err(why) => json!({ "ok": false, "why": why, "prep_s": entry.tuned.as_secs_f64(), "trials": entry.trials }),
    };
    json!({
        "name": line.name,
        "flops": line.flops,
        "bytes": line.bytes,
        "unit": if line.flops.is_some() { "GFLOP/s" } else { "GB/s" },
        "math": entry.math.as_str(),
        "key": entry.key,
        "peers": { NAME: ours },
        "best": entry.result.is_ok().then_some(NAME),
    })
}

/// Billions of operations per second, or of bytes where the line counts those.
#[must_use]
pub fn rate(flops: Option<u64>, bytes: u64, ns: f64) -> f64 {
    flops.unwrap_or(bytes) as f64 / ns
}

fn measured(entry: &Entry, timed: &Timed) -> Value {
    let (min, median) = (timed.min_ns(), timed.median_ns());
    let slowest = timed.rounds.iter().map(|round| round.min_ns).fold(0.0, f64::max);
    let share = timed.share();
    json!({
        "ok": true,
        "prep_s": entry.tuned.as_secs_f64(),
        "trials": entry.trials,
        // A kernel is compared with the reference before it is timed.
        "check": "ok",
        "rounds": timed.rounds.iter().map(round).collect::<Vec<_>>(),
        "min_ms": min / 1e6,
        "med_ms": median / 1e6,
        "spread": slowest / min,
        "rate": rate(entry.line.flops, entry.line.bytes, min),
        "share": share.map(|share| share.0),
        "roof": share.map(|share| share.1.as_str()),
        "prepack_ms": timed.prepack_ns / 1e6,
        "schedule": timed.answer.schedule,
        "provenance": timed.answer.provenance.as_str(),
        "speedup": timed.answer.speedup.map(|speedup| speedup.ratio),
    })
}

fn round(round: &Round) -> Value {
    json!({
        "min": round.min_ns / 1e6,
        "med": round.median_ns / 1e6,
        "wall_min": round.min_ns / 1e6,
        "n": round.samples,
        "at": round.at.as_secs_f64(),
        "share": round.share.map(|share| share.0),
    })
}
