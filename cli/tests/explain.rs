//! `explain` end to end on the processor: its JSON fields are frozen, its refusals say what to do.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use assert_cmd::cargo::cargo_bin_cmd;
use serde_json::Value;

const WORKLOAD: &str = "matmul m=24 n=40 k=56 dtype=f32";

fn tilewright(folder: &Path, arguments: &[&str]) -> Output {
    cargo_bin_cmd!("tilewright").args(arguments).current_dir(folder).timeout(Duration::from_secs(300)).output().unwrap()
}

fn tune(folder: &Path, trials: &str) {
    let arguments =
        ["tune", WORKLOAD, "--device", "cpu", "--strategy", "random", "--trials", trials, "--db", "night.tune"];
    let output = tilewright(folder, &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

fn explain(folder: &Path, workload: &str, more: &[&str]) -> Output {
    let mut arguments = vec!["explain", workload, "--device", "cpu", "--db", "night.tune"];
    arguments.extend(more);
    tilewright(folder, &arguments)
}

/// Every field with the kind of its value; of lists, over all entries.
fn fields(name: &str, value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(_) if ["winner", "default"].contains(&name) => _ = found.insert(format!("{name}: schedule")),
        Value::Object(object) => {
            object.iter().for_each(|(field, value)| fields(&format!("{name}.{field}"), value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| fields(&format!("{name}[]"), item, found)),
        Value::String(_) => _ = found.insert(format!("{name}: text")),
        Value::Number(_) => _ = found.insert(format!("{name}: number")),
        Value::Bool(_) => _ = found.insert(format!("{name}: bool")),
        // Whether a number is known varies.
        Value::Null => {}
    }
}

#[test]
fn an_explanation_for_people_and_for_programs() {
    let folder = tempfile::tempdir().unwrap();
    tune(folder.path(), "6");
    let output = explain(folder.path(), WORKLOAD, &[]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len(), text.lines().count()), (Some(1), 0, 1), "{text}");
    assert!(text.contains("an explanation needs 16") && text.contains("--trials"), "{text}");

    tune(folder.path(), "40");
    let output = explain(folder.path(), WORKLOAD, &["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut names = BTreeSet::new();
    for (field, value) in found.as_object().unwrap() {
        // What the machine decides is tested elsewhere.
        if !["warnings", "winner_ms", "default_ms"].contains(&field.as_str()) {
            fields(field, value, &mut names);
        }
    }
    // Values of parameters are numbers or names, and what was measured of a change varies.
    let varies =
        |name: &String| [".value:", ".from:", ".to:", "measured", "failed:"].iter().any(|part| name.contains(part));
    let names: Vec<&String> = names.iter().filter(|name| !varies(name)).collect();
    insta::assert_snapshot!("explain_fields", names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join("\n"));
    assert_eq!(found["schema"], "tilewright.explain/1");

    let output = explain(folder.path(), WORKLOAD, &["--changes", "2"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["  winner    ", "  model     Spearman", "parameter ", "change ", "bytes, global", "more that are"] {
        assert!(text.contains(part), "{part}: {text}");
    }

    // What is stored instead is named.
    let output = explain(folder.path(), "matmul m=24 n=40 k=57 dtype=f32", &[]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    assert!(text.contains("asked m:p24,n:p40,k:r57"), "{text}");
    let output = tilewright(folder.path(), &["explain", WORKLOAD, "--device", "cpu", "--db", "none.tune"]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}
