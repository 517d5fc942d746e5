//! Ctrl-C during `check`: what it started runs in process groups of its own, which the terminal does not reach.

#![allow(clippy::disallowed_methods, reason = "the program started is the thing under test")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn within(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !done() {
        if start.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Whether process `id` is there and not merely waiting to be collected.
fn runs(id: &str) -> bool {
    let status = std::fs::read_to_string(Path::new("/proc").join(id).join("status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains("zombie") && !line.contains("dead"))
}

#[test]
fn an_interrupted_check_leaves_nothing_running() {
    let folder = tempfile::tempdir().unwrap();
    let (program, ids) = (folder.path().join("tilewright"), folder.path().join("ids"));
    // The program and a child of it, both of which would outlive the check.
    let text = format!("#!/bin/sh\nsleep 120 &\necho $$ $! > {0}.part\nmv {0}.part {0}\nsleep 120\n", ids.display());
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut check = Command::new(env!("CARGO_BIN_EXE_check"))
        .args(["night", "--only", "bad input: m=0"])
        .env("TILEWRIGHT_BIN", &program)
        .env("TMPDIR", folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert!(within(Duration::from_secs(20), || ids.exists()), "the program was started");
    let ids = std::fs::read_to_string(&ids).unwrap();
    assert!(ids.split_whitespace().all(runs), "{ids}");

    // SAFETY: the check was not waited for, so its number is its own.
    unsafe { libc::kill(i32::try_from(check.id()).unwrap(), libc::SIGINT) };
    assert_eq!(check.wait().unwrap().code(), Some(130));
    assert!(within(Duration::from_secs(5), || !ids.split_whitespace().any(runs)), "{ids} are left");
}
