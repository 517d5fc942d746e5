//! `time`: times one kernel on demand, so that another program can be timed in turn with it.

use std::io::{BufRead, stdin};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use measure::{After, Measured, ScreenOptions};
use search_space::Outcome;
use serde_json::json;

use super::arguments::{Choice, Question};
use super::{Context, Ending, say};

/// Time a stored or given schedule whenever told to on stdin
///
/// Reads lines `go SECONDS` from stdin and answers each with one JSON line: the median and the least nanoseconds of one
/// call, and the number of samples. The kernel is verified before each answer. Ends with stdin.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Time {
    #[command(flatten)]
    question: Question,
    /// Time the schedule that a look-up in this database answers
    #[arg(long, value_name = "FILE", conflicts_with = "schedule", required_unless_present = "schedule")]
    db: Option<PathBuf>,
    /// Time this schedule: 'a=1 b=2 ...', or default
    #[arg(long, value_name = "SCHEDULE")]
    schedule: Option<String>,
    /// Read the whole output once after each call, inside of its time; on the processor
    #[arg(long)]
    reader: bool,
}

const EXAMPLES: &str = "\
Examples:
  echo go 1 | tilewright time 'matmul m=512 n=512 k=512 dtype=f32' --device cpu --db night.tune
  echo go 1 | tilewright time 'matmul m=512 n=512 k=512 dtype=f32' --device cpu --schedule default
  echo go 1 | tilewright time 'matmul m=256 n=256 k=256 dtype=f32' --device vulkan --db night.tune";

/// Samples that no budget is large enough for.
const MOST_SAMPLES: u32 = 1 << 24;

impl Time {
    pub(super) fn run(&self, context: &Context) -> anyhow::Result<Ending> {
        let mut asked = self.question.ask()?;
        let choice = match (&self.db, &self.schedule) {
            (Some(path), _) => Choice::Stored(path),
            (None, text) => Choice::Given(text.as_deref().unwrap_or("default")),
        };
        let Some(schedule) = choice.schedule(&asked)? else {
            say(&format!("{} is not in the database for {}; `lookup` says why", asked.workload.summary(), asked.spec));
            return Ok(Ending::No);
        };
        let after = if self.reader { After::ReadOutputs } else { After::Nothing };
        let mut measure = |options: &ScreenOptions| -> anyhow::Result<Measured> {
            let measured = asked.device.measure(&asked.workload, &schedule, options)?;
            if measured.outcome != Outcome::Ok {
                bail!("{schedule}: {}: {}", measured.outcome, measured.message.unwrap_or_default());
            }
            Ok(measured)
        };
        // Loads the workload and computes what outputs are compared with, before anybody waits for a time.
        measure(&ScreenOptions::default())?;
        for line in stdin().lock().lines() {
            let line = line.context("reading stdin")?;
            let seconds = line.trim().strip_prefix("go ").and_then(|text| text.trim().parse::<f64>().ok());
            let Some(seconds) = seconds.filter(|s| s.is_finite() && *s > 0.0 && *s < 3600.0) else {
                bail!("unknown request {line:?}; known: go SECONDS");
            };
            // The program beside this one does not repeat what was disturbed, so neither does this one.
            let options = ScreenOptions {
                samples: MOST_SAMPLES,
                budget_ns: seconds * 1e9,
                repeats: 0,
                after,
                ..ScreenOptions::default()
            };
            let measured = measure(&options)?;
            let least = measured.samples_ns.iter().copied().min_by(f64::total_cmp);
            context.output.json(&json!({
                "schema": "tilewright.time/1",
                "median_ns": measured.median_ns(),
                "min_ns": least,
                "samples": measured.samples_ns.len(),
            }))?;
        }
        Ok(Ending::Done)
    }
}
