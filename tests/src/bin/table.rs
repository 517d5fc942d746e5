//! The joint table of our winners and the peers; `tests/peers/table --help` says how it is asked for.

use std::io::Write;
use std::process::ExitCode;

use tilewright_tests::check;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let interrupted = ctrlc::set_handler(|| {
        check::kill_all();
        std::process::exit(130);
    });
    let ran = interrupted.map_err(anyhow::Error::from).and_then(|()| check::table(&arguments, &mut std::io::stdout()));
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing sensible is left to do when stderr is closed too.
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::from(2)
        }
    }
}
