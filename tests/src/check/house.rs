//! The house as a newcomer meets it: the demo, the tests, and what CI runs on a clean clone.

use super::{Bar, Finding, Lab, lab};
use anyhow::Context;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// The demo's promise: answers for so many of the model's workloads on each device.
const DEMO: [(&str, usize); 2] = [("cpu", 5), ("vulkan", 2)];

pub(super) fn bars() -> Vec<Bar> {
    vec![
        Bar::new("demo", "exit 0; answers: 5 on cpu, 2 on vulkan; a real winner on each; a look-up", demo),
        Bar::new("tests", "./dev test green", tests),
        Bar::new("ci", ".ci/run green on a clean clone in < 25 min", ci),
    ]
}

fn shell(folder: &Path, script: &str) -> Command {
    let mut command = Command::new(folder.join(script));
    command.current_dir(folder).stdin(Stdio::null());
    command
}

fn demo(lab: &Lab) -> anyhow::Result<Finding> {
    let database = lab.folder("demo")?.join("demo.tune");
    let mut command = shell(&lab.root, "dev");
    command.arg("demo").env("DEMO_DB", &database);
    let ran = lab::run(command, 20 * MINUTE)?.ok()?;
    let database = database.to_string_lossy();
    let mut measured = Vec::new();
    let mut good = ran.stdout.contains("schedule");
    for (device, least) in DEMO {
        let (answers, winners) = answers(lab, device, &database)?;
        good &= answers >= least && winners > 0;
        measured.push(format!("{device} {answers} answers, {winners} faster than the default"));
    }
    Ok(Finding::of(good, format!("{}; {:.0} s", measured.join(", "), ran.wall.as_secs_f64())))
}

/// How many workloads of the demo model have a measured result on `device`, and how many of these beat the default.
fn answers(lab: &Lab, device: &str, database: &str) -> anyhow::Result<(usize, usize)> {
    let model = lab.root.join("datasets/models/resnet50.onnx");
    let tasks = lab.json(["tasks", "--json", "--model", &model.to_string_lossy()], MINUTE)?;
    let keys: BTreeSet<&str> = tasks.iter().filter_map(|task| task["key"].as_str()).collect();
    let (mut found, mut winners) = (0, 0);
    for key in keys {
        let ran = lab.run(["lookup", key, "--device", device, "--db", database, "--json"], MINUTE)?;
        if ran.code == 0 {
            let answer: serde_json::Value = serde_json::from_str(&ran.stdout).context("lookup --json")?;
            found += usize::from(answer["reason"] == "exact" && answer["time_ms"].is_number());
            // A stored default is an answer; only what its interval put ahead of the default is a winner.
            winners += usize::from(answer["provenance"] == "winner");
        }
    }
    Ok((found, winners))
}

fn tests(lab: &Lab) -> anyhow::Result<Finding> {
    let mut command = shell(&lab.root, "dev");
    command.arg("test");
    let ran = lab::run(command, 30 * MINUTE)?;
    let (mut passed, mut failed) = (0, 0);
    for line in ran.stdout.lines().filter(|line| line.starts_with("test result:")) {
        let count = |word| line.split("; ").find_map(|part| part.rsplit(". ").next()?.strip_suffix(word)?.parse().ok());
        passed += count(" passed").unwrap_or(0u64);
        failed += count(" failed").unwrap_or(0u64);
    }
    Ok(Finding::of(ran.code == 0 && passed > 0, format!("{passed} passed, {failed} failed, exit code {}", ran.code)))
}

fn ci(lab: &Lab) -> anyhow::Result<Finding> {
    if std::env::var_os("CHECK_CI").is_none_or(|value| value != "1") {
        return Ok(Finding::Skipped("takes many minutes and both cores; ask for it with CHECK_CI=1".into()));
    }
    let clone = lab.folder("ci")?.join("clone");
    let mut git = Command::new("git");
    git.args(["clone", "--quiet", "--no-hardlinks"]).arg(&lab.root).arg(&clone).stdin(Stdio::null());
    lab::run(git, MINUTE)?.ok().context("cloning")?;
    let mut command = shell(&clone, ".ci/run");
    command.env_remove("CARGO_TARGET_DIR");
    let ran = lab::run(command, 60 * MINUTE)?;
    let minutes = ran.wall.as_secs_f64() / 60.0;
    Ok(Finding::of(ran.code == 0 && minutes < 25.0, format!("{minutes:.1} min, exit code {}", ran.code)))
}
