//! Two timed programs in turn: each stays alive with its data ready and times itself only when told to.
//!
//! The protocol is one line each way on standard input and output. To prepare, a program is started (and some are sent
//! a line of JSON that describes the work, which some answer); it answers each `go SECONDS` with `{"median_ns": .., "min_ns": .., "calls": ..}`,
//! the nanoseconds of one call. The order within a round is random and a round's two times are divided, so a slow phase
//! of the machine, which lasts for seconds, cancels.

use super::lab::Group;
use super::ratio::Ratio;
use anyhow::{Context, bail};
use rand::{RngExt as _, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

/// Something that can be told to time itself for some seconds.
pub(super) trait Timer {
    /// The median time of one call, in nanoseconds, over about `seconds`.
    ///
    /// # Errors
    /// When it cannot be timed.
    fn median_ns(&mut self, seconds: f64) -> anyhow::Result<f64>;
}

/// A program that speaks the protocol; it is killed when this is dropped.
pub(super) struct TimedProgram {
    name: String,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _group: Group,
}

#[derive(Deserialize)]
struct Answer {
    median_ns: f64,
}

impl TimedProgram {
    /// Starts `command`, and sends it the line `prepare` if there is one.
    ///
    /// # Errors
    /// When it cannot be started or told.
    pub(super) fn start(name: &str, mut command: Command, prepare: Option<&str>) -> anyhow::Result<TimedProgram> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut group = Group::start(command)?;
        let (Some(input), Some(output)) = (group.child.stdin.take(), group.child.stdout.take()) else {
            bail!("{name} has no pipes")
        };
        let mut program = TimedProgram { name: name.to_owned(), input, output: BufReader::new(output), _group: group };
        if let Some(line) = prepare {
            program.tell(line)?;
        }
        Ok(program)
    }

    /// Sends a line of JSON and reads the line that answers it.
    ///
    /// # Errors
    /// When it ends, or answers something else.
    pub(super) fn ask<T: DeserializeOwned>(&mut self, line: &str) -> anyhow::Result<T> {
        self.tell(line)?;
        let mut line = String::new();
        if self.output.read_line(&mut line).with_context(|| format!("reading from {}", self.name))? == 0 {
            bail!("{} ended without an answer", self.name);
        }
        serde_json::from_str(&line).with_context(|| format!("{} answered {:?}", self.name, line.trim_end()))
    }

    fn tell(&mut self, line: &str) -> anyhow::Result<()> {
        writeln!(self.input, "{line}")
            .and_then(|()| self.input.flush())
            .with_context(|| format!("telling {}", self.name))
    }
}

impl Timer for TimedProgram {
    fn median_ns(&mut self, seconds: f64) -> anyhow::Result<f64> {
        let answer: Answer = self.ask(&format!("go {seconds}"))?;
        if !(answer.median_ns.is_finite() && answer.median_ns > 0.0) {
            bail!("{} answered a median of {} ns", self.name, answer.median_ns);
        }
        Ok(answer.median_ns)
    }
}

/// How many times `ours` is as fast as `theirs` (their time ÷ our time): the median over `rounds` pairs, after one round
/// that warms both and is not counted. Also the median milliseconds of each.
///
/// # Errors
/// When one of them cannot be timed.
pub(super) fn speed_ratio(
    ours: &mut dyn Timer,
    theirs: &mut dyn Timer,
    rounds: usize,
    seconds: f64,
) -> anyhow::Result<(Ratio, f64, f64)> {
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let (mut ratios, mut our_ms, mut their_ms) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=rounds {
        let (our_ns, their_ns) = if rng.random::<bool>() {
            let first = ours.median_ns(seconds)?;
            (first, theirs.median_ns(seconds)?)
        } else {
            let first = theirs.median_ns(seconds)?;
            (ours.median_ns(seconds)?, first)
        };
        if round > 0 {
            ratios.push(their_ns / our_ns);
            our_ms.push(our_ns / 1e6);
            their_ms.push(their_ns / 1e6);
        }
    }
    let ratio = Ratio::of(&ratios).context("no rounds")?;
    let middle = |values: &[f64]| super::ratio::median(values).unwrap_or(f64::NAN);
    Ok((ratio, middle(&our_ms), middle(&their_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A timer whose every second call falls into a slow phase shared by both.
    struct Steady {
        ns: f64,
        calls: usize,
    }

    impl Timer for Steady {
        fn median_ns(&mut self, _: f64) -> anyhow::Result<f64> {
            self.calls += 1;
            Ok(if self.calls.is_multiple_of(2) { self.ns * 3.0 } else { self.ns })
        }
    }

    #[test]
    fn a_slow_phase_of_the_machine_cancels() {
        let (mut ours, mut theirs) = (Steady { ns: 100.0, calls: 0 }, Steady { ns: 250.0, calls: 0 });
        let (ratio, ..) = speed_ratio(&mut ours, &mut theirs, 9, 0.1).unwrap();
        assert_eq!((ratio.median, ratio.low, ratio.high, ratio.rounds), (2.5, 2.5, 2.5, 9));
        assert_eq!(ours.calls, 10, "one round more than counted");
    }

    #[test]
    fn programs_are_told_and_answer() {
        let mut command = Command::new("sh");
        command.args(["-c", r#"read work; while read go s; do echo '{"median_ns": 5e3, "calls": 7}'; done"#]);
        let mut program = TimedProgram::start("a shell", command, Some(r#"{"m": 1}"#)).unwrap();
        assert_eq!(program.median_ns(0.01).unwrap(), 5e3);
        assert_eq!(program.median_ns(0.01).unwrap(), 5e3);
    }

    #[test]
    fn programs_that_break_are_named() {
        for (script, want) in [
            ("read go; exit 0", "a shell ended without an answer"),
            ("read go; echo no such kernel; cat", "a shell answered \"no such kernel\""),
            (r#"read go; echo '{"median_ns": 0}'; cat"#, "a shell answered a median of 0 ns"),
        ] {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            let error = TimedProgram::start("a shell", command, None).unwrap().median_ns(0.01).unwrap_err();
            assert_eq!(error.to_string(), want);
        }
    }
}
