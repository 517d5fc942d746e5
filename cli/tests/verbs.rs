//! The verbs end to end on the processor, and the JSON lines that other programs read: field names and kinds of values
//! are frozen by snapshots, values that vary are normalised.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use assert_cmd::cargo::{cargo_bin, cargo_bin_cmd};
use serde_json::Value;

const WORKLOAD: &str = "matmul m=24 n=40 k=56 dtype=f32";

fn tilewright(folder: &Path, arguments: &[&str]) -> Output {
    cargo_bin_cmd!("tilewright").args(arguments).current_dir(folder).timeout(Duration::from_secs(300)).output().unwrap()
}

/// Runs a verb that must end with `code`, and reads its JSON lines.
fn json(folder: &Path, code: i32, arguments: &[&str]) -> Vec<Value> {
    let output = tilewright(folder, arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Texts that say the same on every machine and in every run.
const STABLE: &[&str] = &["schema", "kind", "workload", "key", "device", "reason", "generator", "resource"];

/// `value` with what varies replaced by the kind of it. Objects whose names vary are kept as one of them.
fn shape(name: &str, value: &Value) -> Value {
    match value {
        Value::String(text) if STABLE.contains(&name) => text.clone().into(),
        Value::String(_) => "text".into(),
        Value::Number(_) => "number".into(),
        Value::Bool(_) => "bool".into(),
        Value::Array(items) => items.first().map_or(Value::Array(vec![]), |first| vec![shape("", first)].into()),
        Value::Object(fields) if ["schedule", "default", "environment", "targets", "outcomes"].contains(&name) => {
            fields.values().next().map_or(Value::Null, |_| "object of values".into())
        }
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), shape(name, value))).collect(),
        Value::Null => Value::Null,
    }
}

fn freeze(name: &str, lines: &[Value]) {
    let shapes: Vec<String> =
        lines.iter().map(|line| serde_json::to_string_pretty(&shape("", line)).unwrap()).collect();
    insta::assert_snapshot!(name, shapes.join("\n"));
}

#[test]
fn a_night_from_tune_to_lookup() {
    let folder = tempfile::tempdir().unwrap();
    let tune = ["tune", WORKLOAD, "--device", "cpu", "--trials", "12", "--db", "night.tune", "--json"];
    let lines = json(folder.path(), 0, &tune);
    let kind = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).cloned().collect::<Vec<Value>>();
    let (trials, workloads, summaries) = (kind("trial"), kind("workload"), kind("summary"));
    assert_eq!((trials.len(), workloads.len(), summaries.len()), (12, 1, 1));
    assert_eq!(trials.iter().map(|t| t["trial"].as_u64().unwrap()).collect::<Vec<_>>(), (1..=12).collect::<Vec<_>>());
    let ok = trials.iter().find(|trial| trial["time_ms"].is_number()).unwrap();
    freeze("tune_trial", std::slice::from_ref(ok));
    let summary = &summaries[0];
    assert_eq!(summary["trials"], 12);
    let parts = ["compile_s", "verify_s", "time_s", "finals_s", "rest_s"];
    let sum: f64 = parts.iter().map(|part| summary[part].as_f64().unwrap()).sum();
    assert!((sum / summary["wall_s"].as_f64().unwrap() - 1.0).abs() < 0.01, "{summary}");
    freeze("tune_summary", &summaries);
    let mut fields: Vec<&String> = workloads[0].as_object().unwrap().keys().collect();
    fields.sort();
    insta::assert_snapshot!("tune_workload_fields", format!("{fields:?}"));

    // The same command finds everything done.
    let again = json(folder.path(), 0, &tune);
    assert_eq!(again.last().unwrap()["trials"], 0);

    let found = json(folder.path(), 0, &["lookup", WORKLOAD, "--device", "cpu", "--db", "night.tune", "--json"]);
    assert_eq!(found[0]["schedule"], workloads[0]["schedule"]);
    let mut fields: Vec<&String> = found[0].as_object().unwrap().keys().collect();
    fields.sort();
    insta::assert_snapshot!("lookup_fields", format!("{fields:?}"));
    assert_eq!((&found[0]["reason"], &found[0]["generator"]), (&"exact".into(), &"tilewright/1".into()));

    let other = "matmul m=24 n=40 k=57 dtype=f32";
    let miss = json(folder.path(), 1, &["lookup", other, "--device", "cpu", "--db", "night.tune", "--json"]);
    assert!(miss[0]["message"].as_str().unwrap().contains("asked m:p24,n:p40,k:r57"), "{}", miss[0]);
    freeze("lookup_miss", &miss);
    let miss = tilewright(folder.path(), &["lookup", other, "--device", "cpu", "--db", "night.tune"]);
    assert!(miss.stdout.is_empty(), "a miss is no answer");
    assert_eq!(String::from_utf8(miss.stderr).unwrap().lines().count(), 1);

    freeze("db_info", &json(folder.path(), 0, &["db", "info", "night.tune", "--json"]));
    let replay = ["db", "replay", "night.tune", WORKLOAD, "--device", "cpu", "--next", "2", "--json"];
    freeze("db_replay", &json(folder.path(), 0, &replay));

    // What the replay proposes is what the next run measures.
    let proposed: Vec<Value> =
        json(folder.path(), 0, &replay).into_iter().map(|mut line| line["schedule"].take()).collect();
    let mut more = tune;
    more[5] = "14";
    let next = json(folder.path(), 0, &more);
    let next: Vec<&Value> = next.iter().filter(|l| l["kind"] == "trial").map(|l| &l["schedule"]).collect();
    // One, since each choice follows from the results before it.
    assert_eq!(next[..1], proposed.iter().collect::<Vec<_>>());

    let mut time = cargo_bin_cmd!("tilewright");
    time.args(["time", WORKLOAD, "--device", "cpu", "--db", "night.tune"]).current_dir(folder.path());
    let output = time.write_stdin("go 0.01\ngo 0.01\n").output().unwrap();
    let answers: Vec<Value> =
        String::from_utf8(output.stdout).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!((output.status.code(), answers.len()), (Some(0), 2));
    freeze("time", &answers[..1]);
    for form in ["tile", "lane", "llvm", "asm", "schedule"] {
        let shown = ["show", WORKLOAD, "--device", "cpu", "--db", "night.tune", "--as", form];
        let output = tilewright(folder.path(), &shown);
        assert_eq!(output.status.code(), Some(0), "{form}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!output.stdout.is_empty(), "{form}");
    }
}

#[test]
fn a_night_learns_from_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let old = ["tune", WORKLOAD, "--device", "cpu", "--trials", "40", "--db", "old.tune", "--strategy", "random", "-q"];
    assert_eq!(tilewright(folder.path(), &old).status.code(), Some(0));
    let trials = |db: &str, from: &[&str]| -> Vec<Value> {
        let mut all =
            vec!["tune", WORKLOAD, "--device", "cpu", "--trials", "6", "--db", db, "--json", "--strategy", "gp"];
        all.extend(from);
        let lines = json(folder.path(), 0, &all);
        lines.into_iter().filter(|line| line["kind"] == "trial").map(|mut line| line["schedule"].take()).collect()
    };
    let (alone, informed) = (trials("alone.tune", &[]), trials("new.tune", &["--from", "old.tune"]));
    assert_eq!((alone.len(), &alone[0]), (6, &informed[0]), "the default comes first");
    assert_ne!(alone[1..], informed[1..]);
    // The same command goes on where it ended, whatever the order of the files; without the source it is another search.
    assert!(trials("new.tune", &["--from", "old.tune", "--from", "./old.tune"]).is_empty());
    assert!(!trials("new.tune", &[]).is_empty());
    // What is learned from is said, and when it has changed.
    let tune = |workload: &str, db: &str, from: &str| {
        let all = ["tune", workload, "--device", "cpu", "--trials", "3", "--db", db, "--from", from];
        let output = tilewright(folder.path(), &all);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stderr).unwrap()
    };
    let said = tune(WORKLOAD, "new.tune", "old.tune");
    assert!(said.contains("learns from matmul 24x40x56 f32 on tt1;cpu;") && said.contains(" 40 schedules"), "{said}");
    assert!(!said.contains("new searches begin"), "{said}");
    let said = tune("gemv m=64 k=64 dtype=f32", "new.tune", "old.tune");
    assert!(said.contains("no search in the files of --from has enough"), "{said}");
    assert_eq!(
        tilewright(folder.path(), &["tune", WORKLOAD, "--device", "cpu", "--trials", "3", "--db", "old.tune", "-q"])
            .status
            .code(),
        Some(0)
    );
    let said = tune(WORKLOAD, "new.tune", "old.tune");
    assert!(said.contains("so new searches begin"), "{said}");
}

/// A suite of three lines: one to tune, one that nobody can, one of a small product.
fn suite(folder: &Path) {
    let line = |name: &str, op: &str, m: u64| {
        serde_json::json!({
            "name": name, "op": op, "dtype": "f32", "shape": {"M": m, "N": 40, "K": 56},
            "flops": 2 * m * 40 * 56, "bytes": 4 * (m * 56 + 56 * 40 + m * 40),
        })
    };
    let lines = [line("small", "matmul", 24), line("strange", "fft", 24), line("smaller", "matmul", 16)];
    let document = serde_json::json!({ "version": 1, "workloads": lines });
    std::fs::write(folder.join("suite.json"), document.to_string()).unwrap();
}

#[test]
fn a_suite_on_one_thread_and_then_on_two() {
    let folder = tempfile::tempdir().unwrap();
    suite(folder.path());
    let bench = |more: &[&str], code: i32| -> (Value, String) {
        let mut all =
            vec!["bench", "--workloads", "suite.json", "--time-per", "2s", "--round", "10ms", "--rounds", "2"];
        all.extend(["--json", "out.json"]);
        all.extend(more);
        let output = tilewright(folder.path(), &all);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{more:?}: {stderr}");
        let written = std::fs::read(folder.path().join("out.json")).unwrap();
        (serde_json::from_slice(&written).unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    let ours = |document: &Value, at: usize| document["results"][at]["peers"]["tilewright"].clone();
    // Nothing is known of one thread yet.
    let (document, _) = bench(&["--threads", "2", "--only", "small", "--db", "night.tune"], 1);
    assert!(ours(&document, 0)["why"].as_str().unwrap().contains("run with --threads 1 first"), "{document}");

    let (document, said) = bench(&["--db", "night.tune"], 0);
    let mut frozen = document.clone();
    // A number, or null where the default won.
    frozen["results"][0]["peers"]["tilewright"]["speedup"] = 1.into();
    freeze("bench", &[frozen]);
    let names: Vec<&str> =
        document["results"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["small", "strange", "smaller"], "a line that cannot be generated stops nothing");
    assert_eq!(ours(&document, 1)["why"], "unsupported: no workload text is known for operation \"fft\"");
    assert!(said.lines().count() == 3 && said.contains("strange") && said.contains("unsupported: "), "{said}");
    let first = ours(&document, 0);
    assert!(first["prep_s"].as_f64().unwrap() > 0.0 && first["trials"].as_u64().unwrap() > 0, "{first}");
    assert_eq!(first["rounds"].as_array().unwrap().len(), 2);

    // With an answer in the file, only what won is measured.
    let (document, _) = bench(&["--db", "night.tune", "--missing", "--only", "small"], 0);
    assert_eq!((document["results"].as_array().unwrap().len(), &ours(&document, 0)["trials"]), (1, &0.into()));
    assert_eq!(ours(&document, 0)["schedule"], first["schedule"]);

    // On two threads only what the threads open is searched: at most 20 schedules with their values, and the default.
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() >= 2) {
        let (document, _) = bench(&["--db", "night.tune", "--threads", "2", "--only", "smaller"], 0);
        let two = ours(&document, 0);
        assert_eq!((document["threads"].as_u64(), &two["check"]), (Some(2), &"ok".into()));
        assert!((1..=81).contains(&two["trials"].as_u64().unwrap()), "{two}");
    }
}

#[test]
fn an_interrupted_suite_keeps_what_was_measured_and_goes_on() {
    use std::io::{BufRead, Read};
    let folder = tempfile::tempdir().unwrap();
    suite(folder.path());
    #[expect(clippy::disallowed_methods, reason = "the program under test, killed when the test is done with it")]
    let mut command = Command::new(cargo_bin("tilewright"));
    command.args(["bench", "--workloads", "suite.json", "--time-per", "2s", "--round", "10ms", "--json", "out.json"]);
    command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut rows = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    rows.read_line(&mut first).unwrap();
    signal("-INT", &child);
    rows.read_to_string(&mut String::new()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let written: Value = serde_json::from_slice(&std::fs::read(folder.path().join("out.json")).unwrap()).unwrap();
    assert_eq!(written["results"][0]["peers"]["tilewright"]["ok"], true, "{written}");
    assert!(!folder.path().join("out.tune-wal").exists(), "the database is closed");
    let info = json(folder.path(), 0, &["db", "info", "out.tune", "--json"]).remove(0);
    assert_eq!(info["problems"], Value::Array(vec![]));
    let go_on = ["bench", "--workloads", "suite.json", "--missing", "--db", "out.tune", "--json", "out.json"];
    let more = [&go_on[..], &["--time-per", "1s", "--round", "10ms"]].concat();
    assert_eq!(tilewright(folder.path(), &more).status.code(), Some(0));
    let written: Value = serde_json::from_slice(&std::fs::read(folder.path().join("out.json")).unwrap()).unwrap();
    assert_eq!(written["results"].as_array().unwrap().len(), 3);
    assert_eq!(written["results"][0]["peers"]["tilewright"]["trials"], 0, "it had an answer");
}

#[test]
fn lines_for_programs() {
    let folder = tempfile::tempdir().unwrap();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets/models/resnet50.onnx");
    let tasks = json(folder.path(), 0, &["tasks", "--model", model.to_str().unwrap(), "--json"]);
    insta::assert_snapshot!("tasks", serde_json::to_string_pretty(&tasks[0]).unwrap());
    let flops = |task: &Value| task["count"].as_f64().unwrap() * task["flops"].as_f64().unwrap();
    assert!(tasks.windows(2).all(|pair| flops(&pair[0]) >= flops(&pair[1])), "the largest share first");
    let only = |kinds: &str| {
        json(folder.path(), 0, &["tasks", "--model", model.to_str().unwrap(), "--only", kinds, "--json"]).len()
    };
    assert_eq!((tasks.len(), only("conv"), only("conv,matmul"), only("reduction")), (26, 23, 24, 2));
    let devices = json(folder.path(), 0, &["devices", "--json"]);
    let cpu = devices.iter().find(|device| device["device"] == "cpu").unwrap();
    freeze("devices", std::slice::from_ref(cpu));
    freeze("space", &json(folder.path(), 0, &["space", WORKLOAD, "--device", "cpu", "--json"]));
    let dry = ["tune", WORKLOAD, "--device", "cpu", "--time", "10s", "--dry-run", "--json"];
    freeze("tune_dry_run", &json(folder.path(), 0, &dry));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a dry run writes nothing");
}

#[test]
fn every_option_has_effect() {
    let folder = tempfile::tempdir().unwrap();
    let effective = |arguments: &[&str]| {
        let mut all = vec!["tune", WORKLOAD, "--device", "cpu", "--dry-run", "--json"];
        all.extend(arguments);
        json(folder.path(), 0, &all).pop().unwrap()["effective"].clone()
    };
    let default = effective(&[]);
    assert_eq!(default["time_s"], 60.0);
    for (arguments, field, value) in [
        (&["--time", "2m"][..], "time_s", Value::from(120.0)),
        (&["--trials", "5"], "trials", 5.into()),
        (&["--seed", "9"], "seed", 9.into()),
        (&["--strategy", "random"], "strategy", "random".into()),
        (&["--strategy", "evolution", "--model-scorer", "none"], "model_scorer", "none".into()),
        (&["--stop-gain", "0.01"], "stop_gain", 0.01.into()),
        (&["--timeout", "3s"], "timeout_s", 3.0.into()),
        (&["--threads", "2"], "devices", vec!["cpu:threads=2"].into()),
        (&["--retry-quarantined"], "retry_quarantined", true.into()),
    ] {
        let changed = effective(arguments);
        assert_eq!(changed[field], value, "{arguments:?}");
        assert_ne!(changed[field], default[field], "{arguments:?}");
    }
}

#[test]
fn the_time_limit_of_a_candidate_reaches_the_worker() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "tune",
        WORKLOAD,
        "--device",
        "fixture:hang/2",
        "--trials",
        "4",
        "--timeout",
        "1s",
        "--db",
        "n.tune",
        "--json",
    ];
    let lines = json(folder.path(), 0, &arguments);
    let summary = lines.last().unwrap();
    assert!(summary["outcomes"]["timeout"].as_u64().is_some_and(|n| n > 0), "{summary}");
    assert!(summary["wall_s"].as_f64().unwrap() < 60.0, "{summary}");
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let program = cargo_bin("tilewright");
    let script = format!(
        "(sleep 0.2; {0} tasks --json --model {1}; echo $? >&2) | true",
        program.display(),
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets/models/resnet50.onnx").display()
    );
    let output = assert_cmd::Command::new("sh").args(["-c", &script]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.trim().lines().last(), Some("0"), "{said}");
}

/// A tune that was started and has shown its first trial.
fn started(folder: &Path) -> (std::process::Child, std::io::BufReader<std::process::ChildStdout>) {
    use std::io::BufRead;
    #[expect(clippy::disallowed_methods, reason = "the program under test, killed when the test is done with it")]
    let mut command = Command::new(cargo_bin("tilewright"));
    command.args(["tune", WORKLOAD, "--device", "cpu", "--time", "100s", "--db", "night.tune", "--json"]);
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    lines.read_line(&mut first).unwrap();
    assert!(first.contains("\"trial\""), "{first}");
    (child, lines)
}

fn signal(name: &str, child: &std::process::Child) {
    assert_cmd::Command::new("kill").args([name, &child.id().to_string()]).assert().success();
}

#[test]
fn interrupted_once_it_saves_and_says_how_far_it_came() {
    use std::io::Read;
    for name in ["-INT", "-TERM"] {
        let folder = tempfile::tempdir().unwrap();
        let (mut child, mut lines) = started(folder.path());
        signal(name, &child);
        let mut rest = String::new();
        lines.read_to_string(&mut rest).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{name}");
        let summary: Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
        assert_eq!(summary["interrupted"], true);
        // Nothing that was counted is missing, the file is closed and sound, and the next run goes on.
        let info = json(folder.path(), 0, &["db", "info", "night.tune", "--json"]).remove(0);
        assert_eq!(info["rows"]["observation"], summary["trials"]);
        assert!(!folder.path().join("night.tune-wal").exists());
        let trials = summary["trials"].as_u64().unwrap() + 1;
        let more =
            ["tune", WORKLOAD, "--device", "cpu", "--trials", &trials.to_string(), "--db", "night.tune", "--json"];
        assert_eq!(json(folder.path(), 0, &more).last().unwrap()["trials"], 1);
    }
}

#[test]
fn interrupted_twice_it_stops_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (mut child, lines) = started(folder.path());
    signal("-INT", &child);
    signal("-INT", &child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    drop(lines);
    let info = json(folder.path(), 0, &["db", "info", "night.tune", "--json"]).remove(0);
    assert!(info["rows"]["observation"].as_u64().unwrap() >= 1 && info["problems"] == Value::Array(vec![]));
}

#[test]
fn help_goes_to_stdout_and_messages_have_no_colour_in_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&["--help"][..], &["tune", "--help"], &["db", "info", "-h"], &["--version"]] {
        let output = tilewright(folder.path(), arguments);
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{arguments:?}");
        assert!(!output.stdout.contains(&0x1b), "{arguments:?}");
    }
}
