//! `replay` end to end: its JSON is frozen, its mistakes are one line, and it can be stopped.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use assert_cmd::cargo::{cargo_bin, cargo_bin_cmd};
use serde_json::{Value, json};

fn replay(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = cargo_bin_cmd!("tilewright");
    command.arg("replay").args(arguments).current_dir(folder).timeout(Duration::from_secs(120)).output().unwrap()
}

fn lines(folder: &Path, arguments: &[&str]) -> Vec<Value> {
    let output = replay(folder, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A made-up kernel of 60 schedules on a device that is `slow` in one way or another; some schedules fail.
fn write(folder: &Path, device: &str, slow: f64) -> String {
    let (tiles, unrolls, orders) = ([1, 2, 4, 8, 16], [1, 2, 3, 4], ["ij", "ji", "blocked"]);
    let mut table = "tile,unroll,order,status,time_ms,min_ms,median_ms,std_ms,compile_ms,bench_ms\n".to_owned();
    for (i, tile) in tiles.into_iter().enumerate() {
        for (j, unroll) in unrolls.into_iter().enumerate() {
            for (k, order) in orders.into_iter().enumerate() {
                let ms = 2.0 + slow * (i as f64 - 3.0).powi(2) + 0.5 * (j as f64 - 2.0).abs() + 0.75 * k as f64;
                let result = if tile * unroll >= 48 { "compile_error,".into() } else { format!("ok,{ms}") };
                writeln!(table, "{tile},{unroll},{order},{result},,,,100,400").unwrap();
            }
        }
    }
    let header = json!({
        "format": "replay-space/1",
        "space": format!("toy-{device}"),
        "kernel": "toy",
        "device": device,
        "problem_size": [64, 64],
        "time_unit": "ms",
        "parameters": [
            { "name": "tile", "values": tiles },
            { "name": "unroll", "values": unrolls },
            { "name": "order", "values": orders },
        ],
        "constants": {},
        "constraints": [],
        "columns": table.lines().next().unwrap().split(',').collect::<Vec<_>>(),
        "n_configs": 60,
    });
    std::fs::write(folder.join(format!("toy-{device}.json")), header.to_string()).unwrap();
    std::fs::write(folder.join(format!("toy-{device}.csv")), table).unwrap();
    format!("toy-{device}.json")
}

/// What no two runs share.
fn without_cpu(line: &Value) -> Value {
    let mut line = line.clone();
    let steady = |object: &mut Value| {
        if let Some(cpu) = object.get_mut("cpu_ms_per_eval") {
            assert!(cpu.as_f64().is_some_and(|ms| ms >= 0.0), "{cpu}");
            *cpu = "number".into();
        }
    };
    steady(&mut line);
    if let Some(summary) = line.get_mut("summary") {
        steady(summary);
        steady(&mut summary["large"]);
    }
    line
}

#[test]
fn the_json_of_a_replay_is_frozen() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (write(folder.path(), "a", 1.0), write(folder.path(), "b", 0.25));
    let lines = lines(folder.path(), &[&a, &b, "--strategy", "random", "--budget", "50", "--seeds", "8", "--json"]);
    let text: Vec<String> =
        lines.iter().map(|line| serde_json::to_string_pretty(&without_cpu(line)).unwrap()).collect();
    insta::assert_snapshot!(text.join("\n"));
}

#[test]
fn every_strategy_plays_alone_or_in_batches_with_any_names_and_threads() {
    let folder = tempfile::tempdir().unwrap();
    let a = write(folder.path(), "a", 1.0);
    for strategy in ["gp", "evolution", "random", "ga", "annealing"] {
        let base = [&a, "--strategy", strategy, "--budget", "20", "--seeds", "4", "--json"];
        let run = |more: &[&str]| {
            let all = lines(folder.path(), &[&base[..], more].concat());
            assert_eq!((all.len(), &all[0]["strategy"]), (2, &json!(strategy)));
            without_cpu(&all[0])
        };
        let plain = run(&[]);
        assert_eq!(plain, run(&["--threads", "1"]), "{strategy}");
        assert_eq!(plain, run(&["--anonymous"]), "{strategy}");
        assert_eq!(run(&["--batch", "6"])["batch"], 6);
        assert_eq!(run(&["--ordinals"])["configs"], 60);
        assert_ne!(plain["frac"], run(&["--first-seed", "100"])["frac"], "{strategy}");
    }
}

#[test]
fn a_table_has_a_row_per_space_and_the_means() {
    let folder = tempfile::tempdir().unwrap();
    let a = write(folder.path(), "a", 1.0);
    let output = replay(
        folder.path(),
        &[&a, "synthetic:0", "synthetic:1", "--strategy", "random", "--budget", "30", "--seeds", "2"],
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let starts: Vec<&str> = text.lines().map(|line| line.split("  ").next().unwrap()).collect();
    assert_eq!(starts, ["space", "toy-a", "synthetic:0", "synthetic:1", "mean of 3", "mean of 2 large"], "{text}");
    // Marks up to the budget, and the budget itself.
    let titles = text.lines().next().unwrap();
    assert!(titles.contains("@25") && titles.contains("@30") && !titles.contains("@50"), "{text}");
}

#[test]
fn priors_of_the_space_itself_and_of_other_kernels_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (write(folder.path(), "a", 1.0), write(folder.path(), "b", 0.25));
    let arguments = [&a, "--budget", "5", "--seeds", "2", "--json", "--prior", &a, &b];
    let output = replay(folder.path(), &arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr, "toy-a: 1 of 2 priors fit; the others are this space or have other parameters\n");
    let first: Value = serde_json::from_slice(output.stdout.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
    assert_eq!(first["priors"], 1);
    let other = replay(folder.path(), &["synthetic:1", "--budget", "1", "--seeds", "1", "--prior", &a]);
    assert!(String::from_utf8(other.stderr).unwrap().contains("0 of 1 priors fit"));
    // Whatever it is called; of another problem it is a prior; and one that is named twice is one.
    let text = std::fs::read_to_string(folder.path().join(&a)).unwrap();
    let table = std::fs::read(folder.path().join("toy-a.csv")).unwrap();
    for (name, text) in [("copy", text.replace("toy-a", "another")), ("large", text.replace("[64,64]", "[128,128]"))] {
        assert!(name == "copy" || text.contains("[128,128]"), "{text}");
        std::fs::write(folder.path().join(format!("{name}.json")), text).unwrap();
        std::fs::write(folder.path().join(format!("{name}.csv")), &table).unwrap();
    }
    let base = [&a, "--budget", "1", "--seeds", "1", "--json", "--prior"];
    for (priors, wanted) in [
        (&["copy.json"][..], 0),
        (&["large.json"], 1),
        (&[&b, &b, &format!("./{b}")], 1),
        (&["copy.json", "large.json", &b], 2),
    ] {
        let first = &lines(folder.path(), &[&base[..], priors].concat())[0];
        assert_eq!(first["priors"], wanted, "{priors:?}");
    }
}

#[test]
fn rows_that_break_a_constraint_are_warned_of_once() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (write(folder.path(), "a", 1.0), write(folder.path(), "b", 0.25));
    let path = folder.path().join(&a);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"constraints\":[]", "\"constraints\":[\"tile * unroll < 64\"]")).unwrap();
    let base = [&a, &b, "--budget", "2", "--seeds", "1"];
    let output = replay(folder.path(), &[&base[..], &["--prior", &a]].concat());
    let stderr = String::from_utf8(output.stderr).unwrap();
    // One tile and one unroll of three orders.
    assert_eq!(stderr.matches("warning").count(), 1, "{stderr}");
    assert!(stderr.contains("toy-a.json: 3 of 60 rows break its constraints; the table decides"), "{stderr}");
    let quiet = replay(folder.path(), &[&base[..], &["-q"]].concat());
    assert!(quiet.stderr.is_empty() && quiet.status.success());
}

/// Adds ten random schedules of a small matmul.
fn tune(folder: &Path, n: usize, file: &str) {
    let mut tune = cargo_bin_cmd!("tilewright");
    tune.args(["tune", &format!("matmul m=24 n={n} k=56 dtype=f32"), "--device", "cpu", "--db", file, "-q"]);
    tune.args(["--strategy", "random", "--trials", "10"]).current_dir(folder).timeout(Duration::from_secs(300));
    assert!(tune.output().unwrap().status.success());
}

fn record(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = cargo_bin_cmd!("tilewright");
    command
        .args(["db", "record"])
        .args(arguments)
        .current_dir(folder)
        .timeout(Duration::from_secs(120))
        .output()
        .unwrap()
}

#[test]
fn a_database_replays_with_its_own_clock() {
    let folder = tempfile::tempdir().unwrap();
    tune(folder.path(), 40, "night.tune");
    let arguments = ["night.tune", "--workload", "matmul m=24 n=40 k=56 dtype=f32", "--device", "cpu"];
    let rest = ["--strategy", "random", "--seeds", "3", "--json"];
    let all = lines(folder.path(), &[&arguments[..], &rest].concat());
    assert_eq!((&all[0]["space"], &all[0]["configs"]), (&json!("night"), &json!(10)));
    // All of it was searched, so the best was found and everything was paid for.
    assert_eq!((&all[0]["hit1"], &all[0]["frac"]["200"]), (&json!(1.0), &json!(1.0)));
    assert!(all[0]["clock_s"].as_f64().unwrap() > 0.01, "{}", all[0]);

    // What is not stored is a no.
    let output = replay(folder.path(), &["night.tune", "--workload", "matmul m=1 n=2 k=3 dtype=f32"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{stderr}");
    assert!(stderr.starts_with("no measurements of ") && stderr.contains("24x40x56"), "{stderr}");
    let output = record(folder.path(), &["night.tune", "no.json", "--device", "vulkan"]);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!folder.path().join("no.json").exists());
}

#[test]
fn a_recording_and_a_copy_of_a_database_are_the_space_itself_and_its_other_workloads_are_priors() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    tune(place, 40, "night.tune");
    assert!(record(place, &["night.tune", "mine.json"]).status.success());
    std::fs::copy(place.join("night.tune"), place.join("copy.tune")).unwrap();
    tune(place, 48, "night.tune");
    let priors = |space: &[&str], prior: &str| {
        let rest = ["--budget", "3", "--seeds", "1", "--json", "--prior", prior];
        lines(place, &[space, &rest].concat())[0]["priors"].clone()
    };
    assert_eq!(priors(&["mine.json"], "copy.tune"), 0);
    assert_eq!(priors(&["copy.tune"], "mine.json"), 0);
    // The question chooses the space, not the prior: of the two workloads one is another.
    let asked = ["night.tune", "--workload", "matmul m=24 n=40 k=56 dtype=f32"];
    assert_eq!(priors(&asked, "night.tune"), 1);
    assert_eq!(priors(&["mine.json"], "night.tune"), 1);

    // A recording of the one is not replaced by one of the other.
    let other = ["night.tune", "mine.json", "--workload", "matmul m=24 n=48 k=56 dtype=f32"];
    let output = record(place, &other);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.starts_with("error: ") && stderr.contains("is a recording of matmul 24x40x56 f32 on tt1;cpu"),
        "{stderr}"
    );
    assert!(record(place, &["copy.tune", "mine.json"]).status.success());
}

#[test]
#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "a program under test is no worker")]
fn a_full_disk_leaves_an_older_recording_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    tune(folder.path(), 40, "night.tune");
    assert!(record(folder.path(), &["night.tune", "mine.json"]).status.success());
    let files = || {
        let all = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let mut all: Vec<_> = all.filter(|path| !path.ends_with("night.tune")).collect();
        all.sort();
        all.into_iter().map(|path| (std::fs::read(&path).unwrap(), path)).collect::<Vec<_>>()
    };
    let before = files();
    // No file may grow, as on a full disk.
    let script = "trap '' XFSZ; ulimit -f 0; exec \"$0\" db record night.tune mine.json";
    let mut limited = Command::new("sh");
    let output =
        limited.args(["-c", script]).arg(cargo_bin!("tilewright")).current_dir(folder.path()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.starts_with("error: cannot write") && stderr.contains("mine."), "{stderr}");
    assert!(files() == before, "{stderr}");
}

#[test]
#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "a program under test is no worker")]
fn a_pipe_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let a = write(folder.path(), "a", 1.0);
    assert!(Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap().success());
    for arguments in [&["replay", "pipe"][..], &["replay", &a, "--prior", "pipe"], &["db", "record", "pipe", "x.json"]]
    {
        let mut command = cargo_bin_cmd!("tilewright");
        let output =
            command.args(arguments).current_dir(folder.path()).timeout(Duration::from_secs(20)).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains("pipe"), "{arguments:?}: {stderr}");
    }
}

#[test]
fn mistakes_are_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let a = write(folder.path(), "a", 1.0);
    std::fs::write(folder.path().join("empty.json"), "").unwrap();
    std::fs::write(folder.path().join("hand.toml"), "[parameters]\na = [1, 2]\n").unwrap();
    for (arguments, wanted) in [
        (&["missing.json"][..], "missing.json"),
        (&["empty.json"], "empty.json"),
        (&["synthetic:x"], "write for example synthetic:1"),
        (&["synthetic:1", "--anonymous"], "--anonymous and --ordinals are for recorded spaces"),
        (&[&a, "--prior", "missing.json"], "missing.json"),
        (&[&a, "--budget", "0"], "no number of 1 or more"),
        (&[&a, "--budget", "99999999999999999999"], "is above the largest number here"),
        (&[&a, "--prior", &a, "--prior-rows", "0"], "no number of 1 or more"),
        (
            &[&a, "--prior", &a, "--strategy", "evolution"],
            "--prior is for --strategy gp; evolution does not learn from",
        ),
        (&[&a, "--prior", &a, "--strategy", "random"], "--prior is for --strategy gp"),
        (&["hand.toml"], "hand.toml\" declares a space, but has no measurements"),
        (&[&a, "--prior", "hand.toml"], "declares a space, but has no measurements"),
        (&[&a, "--batch=-1"], "--batch"),
        (&[&a, "--strategy", "luck"], "luck"),
        (&[&a, "--shuffle-priors"], "--prior"),
        (&[&a, "--first-seed", "18446744073709551615", "--seeds", "2"], "exceed 2^64"),
        (&[&a, "--workload", "nonsense"], "nonsense"),
        (&[], "SPACE"),
    ] {
        let output = replay(folder.path(), arguments);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("error: ") && stderr.lines().count() == 1, "{arguments:?}: {stderr}");
        assert!(stderr.contains(wanted) && output.stdout.is_empty(), "{arguments:?}: {stderr}");
    }
}

#[test]
#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "a program under test is no worker")]
fn an_interrupted_replay_ends_with_130() {
    let folder = tempfile::tempdir().unwrap();
    let a = write(folder.path(), "a", 1.0);
    let child = Command::new(cargo_bin!("tilewright"))
        .args(["replay", &a, "synthetic:1", "--strategy", "random", "--seeds", "1000000", "--json"])
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(700));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(130), 0));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.ends_with("interrupted: 0 of 2 spaces finished\n"), "{stderr}");
}
