//! Foreign spaces and recorded ones: synthetic files always, the recorded GPU spaces where they are.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "says what was skipped")]

mod forms;
mod published;
mod tables;

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A folder with these files.
fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

/// The error with its causes on one line, as the command line prints it.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let text = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
    assert!(!text.contains('\n'), "one line: {text}");
    text
}

/// Where the recorded GPU spaces are, when they are there.
fn published() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/replay");
    let folder = std::env::var_os("TILEWRIGHT_REPLAY").map_or(beside, PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: no recorded spaces in {}; set TILEWRIGHT_REPLAY (datasets/README.md)", folder.display());
    None
}
