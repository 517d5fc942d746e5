//! `space`: which schedules a workload has on a device, or which configurations a file declares.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use cli::report::units;
use search_space::space::ParameterSpace;
use serde_json::{Value, json};

use super::arguments::{Processor, Question};
use super::{Context, Ending};

/// Print the parameters, constraints and exact size of a space
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Space {
    /// Workload: a key, or sugar such as 'matmul m=512 n=512 k=512 dtype=f32'
    #[arg(required_unless_present = "file")]
    workload: Option<String>,
    /// Device: cpu, cpu:threads=N, vulkan, vulkan:N
    #[arg(long, value_name = "DEVICE", required_unless_present = "file")]
    device: Option<String>,
    /// Threads of the CPU device [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    threads: Option<u64>,
    #[command(flatten)]
    processor: Processor,
    /// File that declares a space of its own (docs/spaces.md): TOML, Kernel Tuner's JSON, or a recorded space
    #[arg(long, value_name = "FILE", conflicts_with_all = ["workload", "device", "threads", "cpu_features"])]
    file: Option<PathBuf>,
    /// One JSON object on stdout (docs/cli.md)
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  tilewright space 'matmul m=1000 n=999 k=1001 dtype=f32' --device cpu
  tilewright space 'gemv m=4096 k=4096 dtype=f32' --device cpu --json
  tilewright space --file space.toml";

impl Space {
    pub(super) fn run(&self, context: &Context) -> anyhow::Result<Ending> {
        match (&self.file, &self.workload, &self.device) {
            (None, Some(workload), Some(device)) => {
                let (workload, device) = (workload.clone(), device.clone());
                let processor = self.processor.clone();
                self.of_workload(context, &Question { workload, device, threads: self.threads, processor })
            }
            (Some(file), ..) => self.of_file(context, file),
            (None, ..) => unreachable!("invariant: clap asks for a workload and a device, or a file"),
        }
    }

    fn of_workload(&self, context: &Context, question: &Question) -> anyhow::Result<Ending> {
        let asked = question.ask()?;
        let start = Instant::now();
        let plan = asked.plan()?;
        let built = start.elapsed();
        if self.json {
            let mut line = described(&plan.space, built);
            line["workload"] = asked.workload.summary().into();
            line["key"] = json!(asked.workload.key());
            line["device"] = json!(asked.spec);
            line["target"] = json!(asked.target().key);
            line["default"] = json!(plan.default);
            context.output.json(&line)?;
            return Ok(Ending::Done);
        }
        context.output.line(format!("{} on {}", asked.workload.summary(), asked.spec))?;
        let default = format!("  default  {}", plan.default);
        print(context, &plan.space, "schedules", built, Some(default))
    }

    fn of_file(&self, context: &Context, file: &Path) -> anyhow::Result<Ending> {
        let start = Instant::now();
        let found = datasets::spaces::read(file).context("--file")?;
        let built = start.elapsed();
        for problem in &found.untranslated {
            tracing::warn!("left out, because the table decides: {problem}");
        }
        if self.json {
            let mut line = described(&found.space, built);
            line["file"] = json!(file);
            line["name"] = found.name.into();
            line["kernel"] = found.kernel.into();
            line["recorded_on"] = found.device.into();
            context.output.json(&line)?;
            return Ok(Ending::Done);
        }
        let device = found.device.map(|device| format!(" on {device}")).unwrap_or_default();
        context.output.line(format!("{}{device}, from {}", found.name, file.display()))?;
        print(context, &found.space, "configurations", built, None)
    }
}

/// The line for programs, without what only workloads or only files have.
fn described(space: &ParameterSpace, built: Duration) -> Value {
    let parameters: Vec<_> = space
        .params()
        .iter()
        .map(|p| json!({ "name": p.name, "values": p.values, "structural": p.structural }))
        .collect();
    let constraints: Vec<_> = space.constraints().iter().map(|c| json!({ "name": c.name, "text": c.text })).collect();
    json!({
        "schema": "tilewright.space/1",
        "workload": null,
        "key": null,
        "device": null,
        "target": null,
        // Beyond 2^53 a number would lose digits in most readers.
        "count": space.count().to_string(),
        "nodes": space.nodes(),
        "ms": built.as_secs_f64() * 1e3,
        "default": null,
        "parameters": parameters,
        "constraints": constraints,
    })
}

fn print(
    context: &Context,
    space: &ParameterSpace,
    members: &str,
    built: Duration,
    default: Option<String>,
) -> anyhow::Result<Ending> {
    let out = &context.output;
    out.line(format!(
        "  {} {members}, counted in {:.1} ms ({} nodes)",
        units::count(space.count()),
        built.as_secs_f64() * 1e3,
        space.nodes()
    ))?;
    if let Some(default) = default {
        out.line(default)?;
    }
    out.line("parameters")?;
    for parameter in space.params() {
        let values: Vec<String> = parameter.values.iter().map(ToString::to_string).collect();
        out.line(format!("  {}: {}", parameter.name, values.join(" ")))?;
    }
    out.line("constraints")?;
    for constraint in space.constraints() {
        if constraint.name == constraint.text {
            out.line(format!("  {}", constraint.text))?;
        } else {
            out.line(format!("  {}: {}", constraint.name, constraint.text))?;
        }
    }
    Ok(Ending::Done)
}
