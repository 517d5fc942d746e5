//! What can happen to a tuning database while it is used: each fault is one line on stderr that says what to do.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]
#![expect(clippy::disallowed_methods, reason = "mount and umount are no workers")]
#![allow(clippy::print_stdout, reason = "a skipped test says why")]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use assert_cmd::cargo::{cargo_bin, cargo_bin_cmd};

const WORKLOAD: &str = "matmul m=16 n=16 k=16 dtype=f32";

fn tilewright(folder: &Path, arguments: &[&str]) -> Output {
    cargo_bin_cmd!("tilewright").args(arguments).current_dir(folder).output().unwrap()
}

fn tune<'a>(trials: &'a str, strategy: &'a str) -> [&'a str; 11] {
    ["tune", WORKLOAD, "--device", "cpu", "--trials", trials, "--strategy", strategy, "--db", "night.tune", "-q"]
}

/// The one line of a refusal.
fn refusal(output: &Output) -> String {
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.starts_with("error: ") && stderr.lines().count() == 1, "{stderr}");
    stderr
}

#[test]
fn a_damaged_row_is_refused_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(tilewright(folder.path(), &tune("3", "random")).status.code(), Some(0));
    let path = folder.path().join("night.tune");
    let mut bytes = std::fs::read(&path).unwrap();
    // The samples of the first final.
    let at = bytes.windows(6).position(|window| window == b"final[").unwrap() + 6;
    bytes[at] = if bytes[at] == b'1' { b'2' } else { b'1' };
    std::fs::write(&path, &bytes).unwrap();
    let line = refusal(&tilewright(folder.path(), &tune("5", "random")));
    assert!(
        line.contains("is damaged") && line.contains("tune into a new one") && !line.contains("left out"),
        "{line}"
    );
    assert!(std::fs::read(&path).unwrap() == bytes, "the file was touched");
}

#[test]
fn a_file_that_is_deleted_meanwhile_is_said_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("night.tune");
    let mut command = Command::new(cargo_bin!("tilewright"));
    command.args(tune("100000", "random")).current_dir(folder.path()).stderr(Stdio::piped()).stdout(Stdio::piped());
    let night = command.spawn().unwrap();
    let wal = folder.path().join("night.tune-wal");
    let deadline = Instant::now() + Duration::from_secs(60);
    while std::fs::metadata(&wal).map_or(0, |wal| wal.len()) < 50_000 {
        assert!(Instant::now() < deadline, "nothing was measured");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::fs::remove_file(&path).unwrap();
    let line = refusal(&night.wait_with_output().unwrap());
    assert!(line.contains("was deleted, moved or replaced") && line.contains("run the same command again"), "{line}");
    assert!(!line.contains("read-only"), "{line}");
}

#[test]
fn a_disk_that_fills_is_said_once() {
    let folder = tempfile::tempdir().unwrap();
    let mount = ["-t", "tmpfs", "-o", "size=300k", "tmpfs"];
    if !Command::new("mount").args(mount).arg(folder.path()).output().is_ok_and(|output| output.status.success()) {
        println!("skipped: this user may not mount a tmpfs");
        return;
    }
    let output = tilewright(folder.path(), &tune("100000", "random"));
    let lookup = tilewright(folder.path(), &["db", "info", "night.tune"]);
    Command::new("umount").arg(folder.path()).status().unwrap();
    let line = refusal(&output);
    assert!(line.contains("no space left on the device") && line.contains("run the same command again"), "{line}");
    assert_eq!(lookup.status.code(), Some(0), "{}", String::from_utf8_lossy(&lookup.stderr));
}

#[test]
fn a_replay_of_a_search_that_is_not_stored_names_those_that_are() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(tilewright(folder.path(), &tune("2", "random")).status.code(), Some(0));
    let replay = |workload, more: &[&str]| {
        let all = [&["db", "replay", "night.tune", workload, "--device", "cpu", "--next", "1"], more].concat();
        String::from_utf8(tilewright(folder.path(), &all).stderr).unwrap()
    };
    let line = replay(WORKLOAD, &[]);
    assert!(line.contains("no trial of this search (gp-trees-0)") && line.contains(": random-none-0"), "{line}");
    assert_eq!(line.lines().count(), 1);
    assert_eq!(replay(WORKLOAD, &["--strategy", "random"]), "");
    let line = replay("matmul m=16 n=16 k=17 dtype=f32", &[]);
    assert!(line.contains("no other search of this workload") && !line.contains("random-none-0"), "{line}");
}

#[test]
fn numbers_that_are_none_or_too_large() {
    let folder = tempfile::tempdir().unwrap();
    let (huge, time) = ("99999999999999999999", "99999999999999999999h");
    for (arguments, words) in [
        (&["db", "replay", "night.tune", WORKLOAD, "--device", "cpu", "--next", "0"][..], "0 is not in 1.."),
        (&["db", "replay", "night.tune", WORKLOAD, "--device", "cpu", "--next", huge], "it is too large"),
        (&tune(huge, "random"), "it is too large; no number here exceeds 2^64 - 1"),
        (&tune("x", "random"), "it is no whole number"),
        (&["tune", WORKLOAD, "--device", "cpu", "--db", "night.tune", "--seed", huge], "it is too large"),
        (&["tune", WORKLOAD, "--device", "cpu", "--db", "night.tune", "--time", time], "is too large"),
        (&["replay", "synthetic:1", "--first-seed", huge], "it is too large"),
    ] {
        let line = refusal(&tilewright(folder.path(), arguments));
        assert!(line.contains(words), "{line}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
