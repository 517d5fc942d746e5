//! `lookup`: what a compiler asks at build time.

use std::path::PathBuf;

use clap::Args;
use cli::Clock;
use cli::report::json;
use cli::report::units;
use serde_json::json;
use tuning_db::Database;

use super::arguments::Question;
use super::{Context, Ending};

/// Ask a database for the schedule of a workload on a device
///
/// A hit prints the schedule with its time, its interval and what it rests on. A miss is exit code 1 and says which
/// field of the key differs from the nearest record.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Lookup {
    #[command(flatten)]
    question: Question,
    /// Tuning database
    #[arg(long, value_name = "FILE")]
    db: PathBuf,
    /// One JSON object on stdout (docs/cli.md)
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  tilewright lookup 'matmul m=512 n=512 k=512 dtype=f32' --device cpu --db night.tune
  tilewright lookup 'matmul m=512 n=512 k=512 dtype=f32' --device vulkan --db night.tune --json
  tilewright lookup 'gemv m=4096 k=4096 dtype=f32' --device cpu --threads 2 --db night.tune || echo not tuned";

impl Lookup {
    pub(super) fn run(&self, context: &Context) -> anyhow::Result<Ending> {
        let database = Database::open(&self.db)?;
        let asked = self.question.ask()?;
        let (key, target) = (asked.workload.key(), asked.target().key.to_string());
        let (summary, device) = (asked.workload.summary(), asked.spec.to_string());
        let Some(answer) = database.lookup(&key, &target, cli::GENERATOR)? else {
            let miss = database.nearest_fields(&key, &target, cli::GENERATOR)?;
            if self.json {
                context.output.json(&json!({
                    "schema": "tilewright.lookup/1",
                    "workload": summary,
                    "key": key,
                    "device": device,
                    "target": target,
                    "schedule": null,
                    "reason": "miss",
                    "message": miss.to_string(),
                }))?;
            } else {
                super::say(&format!("{summary} on {device}: {miss}"));
            }
            return Ok(Ending::No);
        };
        let now = context.clock.unix_s();
        if self.json {
            context.output.json(&json::answer(&summary, &key, &device, &target, &answer, now))?;
            return Ok(Ending::Done);
        }
        let ms = |ns: f64| units::milliseconds(ns / 1e9);
        let out = &context.output;
        out.line(format!("{summary} on {device}"))?;
        out.line(format!("  schedule    {}", answer.schedule))?;
        let (time, seconds) = (&answer.time, answer.time.ns / 1e9);
        out.line(format!(
            "  time        {} ms ({} .. {}), {}",
            ms(time.ns),
            ms(time.lo_ns),
            ms(time.hi_ns),
            units::gflops(asked.workload.flops(), seconds)
        ))?;
        if let Some(speedup) = answer.speedup {
            let (ratio, lo, hi) = (speedup.ratio, speedup.lo, speedup.hi);
            out.line(format!("  speed-up    {ratio:.2}x over the default ({lo:.2} .. {hi:.2})"))?;
        }
        out.line(format!("  reason      {}; {}", answer.reason.as_str(), answer.provenance.as_str()))?;
        let age = units::duration(std::time::Duration::from_secs(answer.age_s(now)));
        let (samples, runs) = (units::several(answer.samples, "sample"), units::several(answer.runs, "run"));
        out.line(format!("  rests on    {samples} of {runs}, {age} old"))?;
        out.line(format!("  generator   {}", answer.generator))?;
        Ok(Ending::Done)
    }
}
