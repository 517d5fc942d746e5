//! `tasks`: which workloads a model or a list asks for.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::bail;
use clap::Args;
use cli::report::table::columns;
use cli::report::units;
use datasets::onnx::Bindings;
use datasets::{Task, lists, onnx};
use serde_json::json;

use super::arguments::Sources;
use super::{Context, Ending, say};

/// List the workloads of a model or a list, and how often each occurs
///
/// Each distinct workload is one line. What cannot be read is one summary line on stderr; -v names each node and the
/// reason.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Tasks {
    #[command(flatten)]
    sources: Sources,
    /// One JSON object per workload on stdout (docs/cli.md)
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  tilewright tasks --model datasets/models/resnet50.onnx
  tilewright tasks --model bert.onnx --bind batch=1 -v
  tilewright tasks --model bert.onnx --only rows,map
  tilewright tasks --list night.txt --json";

impl Tasks {
    pub(super) fn run(&self, context: &Context) -> anyhow::Result<Ending> {
        let tasks = read(&self.sources, context)?;
        if tasks.is_empty() {
            bail!("nothing to list; name a file with --model or --list");
        }
        let mut rows = vec![["count", "workload", "GFLOP", "names"].map(String::from).to_vec()];
        for task in &tasks {
            if self.json {
                context.output.json(&json!({
                    "schema": "tilewright.tasks/1",
                    "workload": task.workload.summary(),
                    "key": task.workload.key(),
                    "count": task.count,
                    "flops": task.workload.flops(),
                    "names": task.names,
                }))?;
                continue;
            }
            let more = task.names.len().saturating_sub(1);
            let first = task.names.first().cloned().unwrap_or_default();
            rows.push(vec![
                task.count.to_string(),
                task.workload.summary(),
                units::significant(task.workload.flops() as f64 / 1e9),
                if more > 0 { format!("{first} and {more} more") } else { first },
            ]);
        }
        if !self.json {
            for line in columns(&rows, &[0, 2]) {
                context.output.line(line)?;
            }
        }
        Ok(Ending::Done)
    }
}

/// The tasks of all sources: those of a model first by their share of its arithmetic.
pub(super) fn read(sources: &Sources, context: &Context) -> anyhow::Result<Vec<Task>> {
    let mut tasks = Vec::new();
    if let Some(path) = &sources.model {
        let bindings: Bindings = sources.bind.join(",").parse()?;
        tasks.extend(read_model(path, &bindings, context)?);
    }
    if let Some(path) = &sources.list {
        tasks.extend(lists::read(path)?);
    }
    if !sources.only.is_empty() {
        if sources.model.is_none() && sources.list.is_none() {
            bail!("--only chooses among the workloads of a file; give --model or --list with it");
        }
        tasks.retain(|task| sources.only.iter().any(|kind| kind == task.workload.kind()));
        if tasks.is_empty() {
            bail!("no workload is of the kind {}; `tasks` without --only lists them all", sources.only.join(" or "));
        }
    }
    // The same workload from two sources is one task.
    let mut merged: Vec<Task> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for task in tasks {
        match places.get(&task.workload.key()) {
            Some(place) => {
                merged[*place].count = merged[*place].count.saturating_add(task.count);
                merged[*place].names.extend(task.names);
            }
            None => {
                places.insert(task.workload.key(), merged.len());
                merged.push(task);
            }
        }
    }
    merged.sort_by_key(|task| std::cmp::Reverse(u128::from(task.count) * u128::from(task.workload.flops())));
    Ok(merged)
}

fn read_model(path: &Path, bindings: &Bindings, context: &Context) -> anyhow::Result<Vec<Task>> {
    let model = onnx::read(path, bindings)?;
    if model.tasks.is_empty() {
        let reasons: Vec<String> =
            model.skipped.iter().map(|skipped| format!("{} ({})", skipped.node, skipped.reason)).take(3).collect();
        bail!("\"{}\" has nothing that can be tuned: {}", path.display(), reasons.join("; "));
    }
    if !model.skipped.is_empty() && !context.quiet {
        let hint = if context.verbose > 0 { "" } else { "; -v lists them" };
        say(&format!("{} of the nodes that could be tuned were skipped{hint}", model.skipped.len()));
    }
    for skipped in model.skipped.iter().filter(|_| context.verbose > 0) {
        say(&format!("  skipped {} ({}): {}", skipped.node, skipped.op, skipped.reason));
    }
    if context.verbose == 0 && !context.quiet && !model.other_operators.is_empty() {
        let kinds: Vec<&str> = model.other_operators.keys().map(String::as_str).collect();
        let nodes: u64 = model.other_operators.values().sum();
        say(&format!("{nodes} nodes of other operators are not tuned ({}); -v counts them", kinds.join(", ")));
    }
    if context.verbose > 0 {
        for (operator, n) in &model.other_operators {
            say(&format!("  not tuned: {n} x {operator}"));
        }
    }
    for name in &model.unused_bindings {
        tracing::warn!("--bind {name}: the model has no dimension of that name");
    }
    Ok(model.tasks)
}
