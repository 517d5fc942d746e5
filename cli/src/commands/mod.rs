//! The verbs, and how every one of them starts, logs and fails.
//!
//! Exit codes: 0 done; 1 it ran, but the answer is "no"; 2 usage or environment; 130 interrupted. Errors are one line on
//! stderr, answers alone go to stdout.

mod arguments;
mod bench;
mod db;
mod devices;
mod doctor;
mod dry_run;
mod explain;
mod interrupt;
mod lookup;
mod replay;
mod show;
mod space;
mod tasks;
mod time;
mod tune;
mod worker;

use std::io::{IsTerminal, stderr, stdout};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgAction, Parser, Subcommand};
use cli::report::Output;
use cli::{Clock, SystemClock};
use tracing_subscriber::EnvFilter;

/// Tunes compute kernels for your devices and remembers the winners
///
/// Tilewright reads a model or a workload, searches schedules of each kernel on real devices, verifies and times every
/// candidate, and stores what it found in one file that a compiler asks at build time.
#[derive(Parser)]
#[command(name = "tilewright", version, propagate_version = true, after_long_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    /// Say more: -v for each candidate, -vv for everything. RUST_LOG overrides it
    #[arg(short, long, global = true, action = ArgAction::Count, display_order = 900)]
    verbose: u8,
    /// Say nothing but answers and errors
    #[arg(short, long, global = true, display_order = 901)]
    quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  tilewright devices
  tilewright tune 'matmul m=512 n=512 k=512 dtype=f32' --device cpu --time 30s --db night.tune
  tilewright lookup 'matmul m=512 n=512 k=512 dtype=f32' --device cpu --db night.tune

Exit codes: 0 done; 1 the answer is no; 2 usage or environment error; 130 interrupted.";

#[derive(Subcommand)]
enum Verb {
    Devices(devices::Devices),
    Doctor(doctor::Doctor),
    Tasks(tasks::Tasks),
    Tune(Box<tune::Tune>),
    Lookup(lookup::Lookup),
    Explain(explain::Explain),
    Show(show::Show),
    Space(space::Space),
    Time(time::Time),
    Replay(Box<replay::Replay>),
    Bench(Box<bench::Bench>),
    Db(db::Db),
    #[command(hide = true)]
    Worker(worker::Worker),
}

/// What every verb gets.
struct Context {
    /// For answers.
    output: Output,
    /// Started with the process.
    clock: SystemClock,
    /// `-q`.
    quiet: bool,
    /// `-v`, counted.
    verbose: u8,
}

/// How a verb ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// It did what was asked.
    Done,
    /// It ran, but the answer is no.
    No,
    /// It was interrupted after it had saved everything.
    Interrupted,
}

/// Runs the program.
pub(crate) fn run() -> ExitCode {
    let clock = SystemClock::start();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    log_to_stderr(arguments.verbose, arguments.quiet);
    let context = Context { output: Output::new(stdout()), clock, quiet: arguments.quiet, verbose: arguments.verbose };
    let ending = match &arguments.verb {
        Verb::Devices(verb) => verb.run(&context),
        Verb::Doctor(verb) => verb.run(&context),
        Verb::Tasks(verb) => verb.run(&context),
        Verb::Tune(verb) => verb.run(&context),
        Verb::Lookup(verb) => verb.run(&context),
        Verb::Explain(verb) => verb.run(&context),
        Verb::Show(verb) => verb.run(&context),
        Verb::Space(verb) => verb.run(&context),
        Verb::Time(verb) => verb.run(&context),
        Verb::Replay(verb) => verb.run(&context),
        Verb::Bench(verb) => verb.run(&context),
        Verb::Db(verb) => verb.run(&context),
        Verb::Worker(verb) => verb.run(),
    };
    tracing::debug!(took = ?context.clock.now(), "done");
    match ending {
        Ok(Ending::Done) => ExitCode::SUCCESS,
        Ok(Ending::No) => ExitCode::from(1),
        Ok(Ending::Interrupted) => ExitCode::from(130),
        Err(error) => {
            say(&format!("error: {}", one_line(&format!("{error:#}"))));
            ExitCode::from(2)
        }
    }
}

/// Help and version go to stdout; a mistake is one line on stderr.
fn refuse(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // A reader that left is no error here either.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.render().to_string();
    let text = if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        "error: no verb given; `tilewright --help` lists them".to_owned()
    } else {
        // clap's first paragraph says what is wrong; usage and tips follow it.
        let text = one_line(text.split("\n\n").next().unwrap_or(&text));
        // Words of the language's library, which say nothing about numbers to people.
        text.replace("number too large to fit in target type", "it is too large; no number here exceeds 2^64 - 1")
            .replace("invalid digit found in string", "it is no whole number")
    };
    say(&text);
    ExitCode::from(2)
}

/// All lines as one, without runs of blanks.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// One line on stderr.
fn say(text: &str) {
    use std::io::Write;
    // Nobody is left to tell when stderr is gone.
    let _ = writeln!(stderr(), "{text}");
}

fn log_to_stderr(verbose: u8, quiet: bool) {
    let default = match (quiet, verbose) {
        (true, _) => "error",
        // The first failure of each class is in the closing table in full.
        (false, 0) => "warn,tilewright_measure=error",
        (false, 1) => "info,tilewright=debug,cli=debug,tilewright_measure=debug,tilewright_tuning_db=debug",
        (false, _) => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let color = stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).with_ansi(color);
    // A subscriber that is set already would be a test's own.
    let _ = subscriber.try_init();
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn flags_do_not_clash_and_every_verb_has_three_examples() {
        let mut command = Arguments::command();
        command.build();
        command.clone().debug_assert();
        let shown = |verb: &&clap::Command| verb.get_name() != "help" && !verb.is_hide_set();
        let leaves = command.get_subcommands().filter(shown).flat_map(|verb| match verb.has_subcommands() {
            true => verb.get_subcommands().filter(shown).collect(),
            false => vec![verb],
        });
        for verb in leaves {
            let help = verb.clone().render_long_help().to_string();
            let example = |line: &&str| {
                let line = line.trim_start();
                line.starts_with("tilewright ") || line.starts_with("echo go 1 | tilewright ")
            };
            let examples = help.lines().filter(example).count();
            assert!(examples >= 3, "{} has {examples} examples:\n{help}", verb.get_name());
            let short = verb.clone().render_help().to_string();
            assert!(short.lines().count() <= 40, "-h of {} does not fit a screen:\n{short}", verb.get_name());
        }
    }

    #[test]
    fn a_message_of_several_lines_becomes_one() {
        assert_eq!(one_line("error: a\n  --b <B>\n"), "error: a --b <B>");
    }
}
