//! `space --file`: what is printed for people and for programs, and what is refused.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::process::Output;

use assert_cmd::cargo::cargo_bin_cmd;
use serde_json::Value;

const SPACE: &str = "\
name = 'blocked'
structural = ['order']
[parameters]
mc = [8, 16, 32]
kc = { range = [8, 16, 8] }
order = ['mn', 'nm']
[constraints]
'fits the cache' = 'mc * kc <= 256'
";

const HEADER: &str = r#"{"format": "replay-space/1", "space": "copy-T1", "kernel": "copy", "device": "T1",
    "parameters": [{"name": "tile", "values": [8, 16]}], "constraints": ["tile <= 16", "fits(tile)"]}"#;

fn space(folder: &Path, arguments: &[&str]) -> Output {
    cargo_bin_cmd!("tilewright").arg("space").args(arguments).current_dir(folder).output().unwrap()
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in
        [("space.toml", SPACE), ("copy.json", HEADER), ("copy.csv", "tile,status,time_ms\n16,ok,2\n8,invalid,\n")]
    {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// The answer for people, without the time it took.
fn text(folder: &Path, arguments: &[&str]) -> String {
    let output = space(folder, arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let (before, after) = text.split_once("counted in ").unwrap();
    format!("{before}counted in T ms{}", after.split_once(" ms").unwrap().1)
}

#[test]
fn a_file_is_shown_like_a_workload() {
    let folder = folder();
    insta::assert_snapshot!("by_hand", text(folder.path(), &["--file", "space.toml"]));
    insta::assert_snapshot!("recorded", text(folder.path(), &["--file", "copy.json"]));
}

#[test]
fn a_file_has_the_schema_of_a_workload() {
    let folder = folder();
    let output = space(folder.path(), &["--file", "space.toml", "--json"]);
    let mut line: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(line["ms"].as_f64().unwrap() > 0.0);
    line["ms"] = Value::Null;
    insta::assert_snapshot!("by_hand_json", serde_json::to_string_pretty(&line).unwrap());
    let output = space(folder.path(), &["--file", "copy.json", "--json"]);
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&line["recorded_on"], &line["count"]), (&"T1".into(), &"2".into()));
    // The table decides, so a constraint that is not understood is only a warning.
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("`fits(tile)`, byte 0: the function `fits` cannot be translated"), "{stderr}");
}

#[test]
fn contradictions_and_bad_files_are_one_line() {
    let folder = folder();
    std::fs::remove_file(folder.path().join("copy.csv")).unwrap();
    for (arguments, words) in [
        (&["--file", "space.toml", "--device", "cpu"][..], &["--file", "--device"][..]),
        (&["matmul m=1 n=1 k=1 dtype=f32", "--file", "space.toml", "--device", "cpu"], &["--file"]),
        (&["--file", "space.toml", "--threads", "2"], &["--threads"]),
        (&[], &["--device"]),
        (&["--file", "none.toml"], &["none.toml", "cannot read"]),
        (&["--file", "."], &["directory", "a parameter space"]),
        (&["--file", "copy.json"], &["copy.json", "fits(tile)"]),
    ] {
        let output = space(folder.path(), arguments);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty() && stderr.starts_with("error: ") && stderr.lines().count() == 1, "{stderr}");
        assert!(words.iter().all(|word| stderr.contains(word)), "{arguments:?}: {stderr}");
    }
}
