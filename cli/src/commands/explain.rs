//! `explain`: what a search has learned.

use std::path::PathBuf;

use clap::Args;
use cli::explain;
use tuning_db::Database;

use super::arguments::Question;
use super::{Context, Ending, say};

/// Say which parameters matter, and what each single change of the winner is expected to cost
///
/// A model learns from everything stored of the workload on the device. How well it predicts schedules that it has not
/// seen stands above its predictions. The programs of the winner and the default are compared level by level.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Explain {
    #[command(flatten)]
    question: Question,
    /// Tuning database
    #[arg(long, value_name = "FILE")]
    db: PathBuf,
    /// Most changes shown, predicted fastest first; --json has all
    #[arg(long, value_name = "N", default_value_t = 16)]
    changes: usize,
    /// One JSON object on stdout (docs/cli.md)
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  tilewright explain 'matmul m=512 n=512 k=512 dtype=f32' --device cpu --db night.tune
  tilewright explain 'matmul m=512 n=512 k=512 dtype=f32' --device vulkan --db night.tune --changes 100
  tilewright explain 'gemv m=4096 k=4096 dtype=f32' --device cpu --db night.tune --json";

impl Explain {
    pub(super) fn run(&self, context: &Context) -> anyhow::Result<Ending> {
        let database = Database::open(&self.db)?;
        let asked = self.question.ask()?;
        let plan = asked.plan()?;
        let device = asked.spec.to_string();
        let question =
            explain::Question { workload: &asked.workload, target: asked.target(), plan: &plan, device: &device };
        let explanation = match explain::explain(&database, &question) {
            Ok(explanation) => explanation,
            Err(explain::ExplainError::Database(error)) => return Err(error.into()),
            Err(no) => {
                say(&no.to_string());
                return Ok(Ending::No);
            }
        };
        if self.json {
            context.output.json(&explain::json(&explanation))?;
            return Ok(Ending::Done);
        }
        for line in explain::lines(&explanation, self.changes) {
            context.output.line(line)?;
        }
        Ok(Ending::Done)
    }
}
