//! `space`: which schedules a workload has on a device.

use std::time::Instant;

use clap::Args;
use cli::report::units;
use serde_json::json;

use super::arguments::Question;
use super::{Context, Ending};

/// Print the parameters, constraints, exact size and default of a schedule space
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Space {
    #[command(flatten)]
    question: Question,
    /// One JSON object on stdout (docs/cli.md)
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  tilewright space 'matmul m=1000 n=999 k=1001 dtype=f32' --device cpu
  tilewright space 'matmul m=512 n=512 k=512 dtype=f32' --device vulkan
  tilewright space 'gemv m=4096 k=4096 dtype=f32' --device cpu --json";

impl Space {
    pub(super) fn run(&self, context: &Context) -> anyhow::Result<Ending> {
        let asked = self.question.ask()?;
        let start = Instant::now();
        let plan = asked.plan()?;
        let count = plan.space.count();
        let built = start.elapsed();
        let space = &plan.space;
        if self.json {
            let parameters: Vec<_> = space
                .params()
                .iter()
                .map(|p| json!({ "name": p.name, "values": p.values, "structural": p.structural }))
                .collect();
            let constraints: Vec<_> =
                space.constraints().iter().map(|c| json!({ "name": c.name, "text": c.text })).collect();
            context.output.json(&json!({
                "schema": "tilewright.space/1",
                "workload": asked.workload.summary(),
                "key": asked.workload.key(),
                "device": asked.spec,
                "target": asked.target().key,
                // Beyond 2^53 a number would lose digits in most readers.
                "count": count.to_string(),
                "nodes": space.nodes(),
                "ms": built.as_secs_f64() * 1e3,
                "default": plan.default,
                "parameters": parameters,
                "constraints": constraints,
            }))?;
            return Ok(Ending::Done);
        }
        let out = &context.output;
        out.line(format!("{} on {}", asked.workload.summary(), asked.spec))?;
        out.line(format!(
            "  {} schedules, counted in {:.1} ms ({} nodes)",
            units::count(count),
            built.as_secs_f64() * 1e3,
            space.nodes()
        ))?;
        out.line(format!("  default  {}", plan.default))?;
        out.line("parameters")?;
        for parameter in space.params() {
            let values: Vec<String> = parameter.values.iter().map(ToString::to_string).collect();
            out.line(format!("  {}: {}", parameter.name, values.join(" ")))?;
        }
        out.line("constraints")?;
        for constraint in space.constraints() {
            out.line(format!("  {}: {}", constraint.name, constraint.text))?;
        }
        Ok(Ending::Done)
    }
}
