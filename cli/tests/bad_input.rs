//! What a person gets wrong: each is one clear line on stderr, exit code 2, and nothing is written.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use assert_cmd::cargo::cargo_bin_cmd;

const WORKLOAD: &str = "matmul m=16 n=16 k=16 dtype=f32";

/// Every file below `folder` with its bytes.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            found.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
    found
}

/// Runs `arguments` in `folder`; the answer must be one line with all of `words` in it.
fn refused(folder: &Path, arguments: &[&str], words: &[&str]) {
    let before = contents(folder);
    let output = cargo_bin_cmd!("tilewright").args(arguments).current_dir(folder).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let about = format!("{arguments:?}: {stderr}");
    assert_eq!(output.status.code(), Some(2), "{about}");
    assert!(stderr.starts_with("error: ") && stderr.lines().count() == 1, "{about}");
    for word in words {
        assert!(stderr.contains(word), "no {word:?} in {about}");
    }
    assert!(output.stdout.is_empty(), "{about}");
    assert_eq!(contents(folder), before, "something was written: {about}");
}

/// Runs `tune` with the arguments that are wrong in one way.
fn tune(words: &[&str], more: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["tune", "--db", "night.tune"];
    arguments.extend(more);
    refused(folder.path(), &arguments, words);
}

#[test]
fn suites_that_cannot_be_run() {
    let folder = tempfile::tempdir().unwrap();
    let line =
        r#"{"name": "a", "op": "matmul", "dtype": "f32", "shape": {"M": 8, "N": 8, "K": 8}, "flops": 1, "bytes": 1}"#;
    std::fs::write(folder.path().join("good.json"), format!(r#"{{"version": 1, "workloads": [{line}]}}"#)).unwrap();
    std::fs::write(folder.path().join("broken.json"), "{").unwrap();
    std::fs::write(folder.path().join("old.json"), r#"{"version": 0, "workloads": []}"#).unwrap();
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    let bench = |more: &[&str], words: &[&str]| {
        let mut arguments = vec!["bench", "--json", "out.json"];
        arguments.extend(more);
        refused(folder.path(), &arguments, words);
    };
    bench(&["--workloads", "none.json"], &["none.json"]);
    bench(&["--workloads", "broken.json"], &["broken.json", "not the JSON"]);
    bench(&["--workloads", "old.json"], &["old.json", "version 0"]);
    bench(&["--workloads", "good.json", "--only", "b"], &["--only \"b\"", "there are a"]);
    bench(&["--workloads", "good.json", "--threads", "0"], &["0"]);
    bench(&["--workloads", "good.json", "--threads", "1000"], &["1000 threads"]);
    bench(&["--workloads", "good.json", "--time-per", "0s"], &["0s"]);
    bench(&["--workloads", "good.json", "--db", "out.json"], &["same file", "out.json"]);
    bench(&["--workloads", "good.json", "--missing"], &["--db"]);
    let nowhere = ["bench", "--workloads", "good.json", "--json"];
    refused(folder.path(), &[&nowhere[..], &["folder"]].concat(), &["cannot write --json", "folder"]);
    refused(folder.path(), &[&nowhere[..], &["no/where.json"]].concat(), &["cannot write --json", "no/where.json"]);
}

#[test]
fn sizes_that_no_workload_has() {
    for (text, word) in [
        ("matmul m=0 n=16 k=16 dtype=f32", "m"),
        ("matmul m=-1 n=16 k=16 dtype=f32", "-1"),
        ("matmul m=99999999999 n=16 k=16 dtype=f32", "99999999999"),
        ("matmul m=16 n=16 dtype=f32", "k"),
        ("matrix m=16", "matrix"),
        ("tw1;contract.madd", "tw1"),
        ("", "workload"),
    ] {
        tune(&[word], &[text, "--device", "cpu", "--trials", "2"]);
    }
}

#[test]
fn limits_of_zero_and_unreadable_ones() {
    for (flag, value) in [("--time", "0"), ("--time", "0s"), ("--time", "-5s"), ("--time", "soon"), ("--trials", "0")] {
        tune(&[flag, "invalid value"], &[WORKLOAD, "--device", "cpu", &format!("{flag}={value}")]);
    }
    tune(&["--timeout"], &[WORKLOAD, "--device", "cpu", "--timeout", "0"]);
    tune(&["--threads"], &[WORKLOAD, "--device", "cpu", "--threads", "0"]);
    tune(&["--top"], &[WORKLOAD, "--device", "cpu", "--top", "0"]);
    tune(&["--top", "vulkan=1"], &[WORKLOAD, "--device", "cpu", "--top", "vulkan=1"]);
}

#[test]
fn devices_that_are_not_there() {
    tune(&["abacus", "cpu and vulkan"], &[WORKLOAD, "--device", "abacus"]);
    tune(&["vulkan:99"], &[WORKLOAD, "--device", "vulkan:99"]);
    tune(&["given twice"], &[WORKLOAD, "--device", "cpu", "--device", "cpu"]);
    tune(&["--device"], &[WORKLOAD]);
}

#[test]
fn nothing_to_tune() {
    tune(&["nothing to tune", "--model"], &["--device", "cpu"]);
    // A softmax of binary64 has a key, but no lowering yet.
    let key = "tw1;rows.softmax;m:p16,n:r16;in.x=f64[m,n]@s(16,1)a64;out.y=f64[m,n]@s(16,1)a64;acc=f64;epi=-;math=ieee;det=fixed;ws=0";
    tune(&["nothing can be tuned", "rows.softmax", "f64"], &[key, "--device", "cpu"]);
}

#[test]
fn models_that_are_none() {
    let folder = tempfile::tempdir().unwrap();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets/models/resnet50.onnx");
    let whole = std::fs::read(model).unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    write("cut.onnx", &whole[..whole.len() / 2]);
    write("letter.onnx", b"Dear sir or madam,\n\nthis is no model.\n");
    write("empty.onnx", b"");
    write("list.txt", b"matmul m=16 n=16\n");
    // A graph of one node of type LSTM: ModelProto { ir_version 1: 8, graph 7, opset_import 8 }.
    let node = [&[0x0a, 10][..], &[0x12, 1, b'y', 0x22, 4], b"LSTM", &[]].concat();
    let node = [&[0x0a, u8::try_from(node.len() - 2).unwrap()][..], &node[2..]].concat();
    let graph = [&[0x3a, u8::try_from(node.len()).unwrap()][..], &node].concat();
    write("lstm.onnx", &[&[0x08, 8][..], &graph, &[0x42, 2, 0x10, 17]].concat());
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    for (name, word) in [
        ("cut.onnx", "cut.onnx"),
        ("letter.onnx", "letter.onnx"),
        ("empty.onnx", "is empty"),
        ("folder", "folder"),
        ("missing.onnx", "missing.onnx"),
        ("lstm.onnx", "LSTM"),
    ] {
        refused(folder.path(), &["tasks", "--model", name], &[word]);
        refused(folder.path(), &["tune", "--model", name, "--device", "cpu", "--db", "night.tune"], &[word]);
    }
    refused(folder.path(), &["tasks", "--list", "list.txt"], &["list.txt:1"]);
    refused(folder.path(), &["tasks"], &["--model"]);
    refused(folder.path(), &["tasks", "--bind", "n=1"], &["--model"]);
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets/models/resnet50.onnx");
    let model = model.to_str().unwrap();
    refused(folder.path(), &["tasks", "--model", model, "--only", "attention", "-q"], &["attention", "--only"]);
    refused(folder.path(), &["tasks", "--model", model, "--only", "fft"], &["fft", "rows"]);
    refused(folder.path(), &["tasks", "--only", "conv"], &["--only", "--model"]);
}

#[test]
fn databases_that_are_none() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    std::fs::write(folder.path().join("letter"), "Dear sir or madam,\n".repeat(100)).unwrap();
    for (db, word) in
        [("folder", "folder"), ("letter", "letter"), ("not/there.tune", "not"), ("/dev/full", "/dev/full")]
    {
        let arguments = ["tune", WORKLOAD, "--device", "cpu", "--trials", "2", "--db", db];
        refused(folder.path(), &arguments, &[word]);
    }
    for arguments in [
        &["lookup", WORKLOAD, "--device", "cpu", "--db", "missing.tune"][..],
        &["db", "info", "missing.tune"],
        &["show", WORKLOAD, "--device", "cpu", "--db", "missing.tune"],
        &["time", WORKLOAD, "--device", "cpu", "--db", "missing.tune"],
    ] {
        refused(folder.path(), arguments, &["missing.tune"]);
    }
}

#[test]
fn schedules_that_the_space_does_not_have() {
    let folder = tempfile::tempdir().unwrap();
    for (text, word) in [("mr", "NAME=VALUE"), ("mr=1 mr=2", "given twice"), ("mr=1", "--schedule"), ("x=1", "x")] {
        refused(folder.path(), &["show", WORKLOAD, "--device", "cpu", "--schedule", text], &[word]);
    }
    refused(folder.path(), &["show", WORKLOAD, "--device", "cpu", "--as", "wgsl"], &["wgsl", "Vulkan"]);
    refused(folder.path(), &["show", WORKLOAD, "--device", "cpu", "--as", "ptx"], &["ptx", "possible values"]);
}

#[test]
fn verbs_that_are_none() {
    let folder = tempfile::tempdir().unwrap();
    refused(folder.path(), &[], &["--help"]);
    refused(folder.path(), &["tnue"], &["tnue"]);
    refused(folder.path(), &["tune", WORKLOAD, "--device", "cpu"], &["--db"]);
    refused(folder.path(), &["db"], &["--help"]);
}

#[test]
fn sources_that_are_none() {
    let more = [WORKLOAD, "--device", "cpu", "--trials", "2", "--strategy", "gp", "--from"];
    let with = |extra: &[&'static str]| more.iter().copied().chain(extra.iter().copied()).collect::<Vec<_>>();
    tune(&["missing.tune"], &with(&["missing.tune"]));
    let random = [WORKLOAD, "--device", "cpu", "--trials", "2", "--strategy", "random", "--from", "missing.tune"];
    tune(&["--strategy gp", "random"], &random);
    // A file cannot be learned from while it is tuned into.
    let folder = tempfile::tempdir().unwrap();
    let made = ["tune", WORKLOAD, "--device", "cpu", "--trials", "1", "--db", "night.tune", "-q"];
    cargo_bin_cmd!("tilewright").args(made).current_dir(folder.path()).assert().success();
    let mut itself = vec!["tune", "--db", "night.tune"];
    itself.extend(with(&["./night.tune"]));
    refused(folder.path(), &itself, &["night.tune", "name a copy of it"]);
}

#[test]
fn recordings_that_cannot_be_made() {
    let folder = tempfile::tempdir().unwrap();
    refused(folder.path(), &["db", "record", "missing.tune", "out.json"], &["missing.tune"]);
    refused(folder.path(), &["db", "record", "missing.tune", "out.csv"], &["out.csv", "NAME.json"]);
}
