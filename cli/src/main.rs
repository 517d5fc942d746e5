//! The `tilewright` program: one verb per file in `commands/`, and what all of them share.

#![forbid(unsafe_code)]

mod commands;

use std::process::ExitCode;

fn main() -> ExitCode {
    commands::run()
}
