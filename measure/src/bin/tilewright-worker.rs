//! A worker on its own, for tests of this crate. The command line carries the same worker behind a hidden verb.

use std::process::ExitCode;

fn main() -> ExitCode {
    let device = std::env::args().skip_while(|argument| argument != "--device").nth(1);
    let Some(Ok(spec)) = device.map(|text| text.parse()) else { return ExitCode::from(2) };
    match tilewright_measure::serve(&spec) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
