//! `check NAME [--only TEXT]`: runs the bars of a list and prints what was wanted, what was measured and the verdict.
//!
//! Exits 0 when no bar failed, 1 when one did, 2 on wrong usage. Timings need an otherwise quiet machine.

use std::io::Write;
use std::process::ExitCode;
use tilewright_tests::check::{self, Lab, Tally};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut out = std::io::stdout();
    let (name, only) = match words[..] {
        [name] if !name.starts_with('-') => (name, ""),
        [name, "--only", text] | ["--only", text, name] => (name, text),
        _ => return usage("usage: check NAME [--only TEXT]"),
    };
    let Some(bars) = check::list(name) else {
        return usage(&format!("no list of bars is called {name:?}; there are: {}", check::LISTS.join(", ")));
    };
    let bars: Vec<_> = bars.into_iter().filter(|bar| bar.name.contains(only)).collect();
    if bars.is_empty() {
        return usage(&format!("no bar of {name} contains {only:?}"));
    }
    let lab = match Lab::open() {
        Ok(lab) => lab,
        Err(error) => return usage(&format!("error: {error:#}")),
    };
    let interrupted = ctrlc::set_handler(|| {
        check::kill_all();
        std::process::exit(130);
    });
    if let Err(error) = interrupted {
        return usage(&format!("error: cannot handle Ctrl-C: {error}"));
    }
    match check::run(&bars, &lab, &mut out) {
        Ok(Tally { failed: 0, .. }) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => usage(&format!("error: cannot write the table: {error}")),
    }
}

fn usage(message: &str) -> ExitCode {
    // Nothing sensible is left to do when stderr is closed too.
    let _ = writeln!(std::io::stderr(), "{message}");
    ExitCode::from(2)
}
