//! Which contractions are found in real model graphs, counted with their distinct shapes.

use super::{Bar, Finding, Lab};
use anyhow::{Context, ensure};
use std::collections::BTreeMap;
use std::time::Duration;

/// File, and how often each kind of contraction stands in it.
const MODELS: &[(&str, &[(&str, u64)])] = &[
    ("light_resnet50.onnx", &[("conv", 53), ("matmul", 1)]),
    ("light_squeezenet.onnx", &[("conv", 26)]),
    ("bert_base_seq128.onnx", &[("matmul", 96)]),
];

pub(super) fn bars() -> Vec<Bar> {
    MODELS
        .iter()
        .map(|&(file, wanted)| {
            let text: Vec<String> = wanted.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
            Bar::new(format!("tasks {file}"), format!("{}, each shape once", text.join(" + ")), move |lab| {
                count(lab, file, wanted)
            })
        })
        .collect()
}

fn count(lab: &Lab, file: &str, wanted: &[(&str, u64)]) -> anyhow::Result<Finding> {
    let Some(path) = lab.model(file) else {
        return Ok(Finding::Skipped(format!("{file} is not here; set TILEWRIGHT_MODELS to its folder")));
    };
    let tasks = lab.json(
        ["tasks", "--json", "--only", "conv,matmul", "--model", &path.to_string_lossy()],
        Duration::from_secs(30),
    )?;
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let mut keys = BTreeMap::new();
    for task in &tasks {
        let text = |field: &str| task[field].as_str().with_context(|| format!("no {field} in {task}"));
        let (workload, key) = (text("workload")?, text("key")?);
        let times = task["count"].as_u64().with_context(|| format!("no count in {task}"))?;
        let names = task["names"].as_array().map_or(0, Vec::len);
        ensure!(names as u64 == times, "{workload} is counted {times} times but names {names} nodes");
        ensure!(keys.insert(key, workload).is_none(), "{workload} is listed twice");
        *counts.entry(kind_of(workload)).or_default() += times;
    }
    let good = wanted.iter().all(|(kind, count)| counts.get(kind) == Some(count)) && counts.len() == wanted.len();
    let found: Vec<String> = counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    Ok(Finding::of(good, format!("{}, {} shapes", found.join(" + "), tasks.len())))
}

/// What a summary such as `batched matmul 12x128x128x64 f32` is counted as; a product with one row is still a product.
fn kind_of(summary: &str) -> &str {
    let words = [("conv", "conv"), ("matmul", "matmul"), ("gemv", "matmul")];
    let found = words.iter().find(|(word, _)| summary.contains(word));
    found.map_or_else(|| summary.split(' ').next().unwrap_or_default(), |(_, kind)| kind)
}
