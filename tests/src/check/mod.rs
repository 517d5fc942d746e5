//! Bars: what the project must show, as commands that measure it. `./dev check NAME` runs a list of them.
//!
//! A bar that cannot run yet fails with the reason; it is skipped only where the machine lacks what it needs or where
//! it has to be asked for. Timed bars compare against a baseline measured in the same minutes on the same machine.

#![allow(
    clippy::disallowed_methods,
    reason = "bars time whole programs; `lab` starts them with a deadline and kills them"
)]

mod bad_input;
mod cpu;
mod engine;
mod fixtures;
mod house;
mod kill;
mod lab;
mod lavapipe;
mod lockstep;
mod models;
mod numpy;
mod ratio;
mod search;
mod spaces;
mod table;

pub use lab::{Lab, Ran, kill_all};
use std::io::Write;
use std::time::Instant;
pub use table::main as table;

/// One thing that must be shown.
pub struct Bar {
    /// Short name, unique in its list; `--only` selects by a part of it.
    pub name: String,
    /// What is wanted, as a person reads it.
    pub wanted: String,
    run: Box<Run>,
}

type Run = dyn Fn(&Lab) -> anyhow::Result<Finding>;

impl Bar {
    /// A bar whose `run` measures; its error is a failure with that reason.
    pub fn new(
        name: impl Into<String>,
        wanted: impl Into<String>,
        run: impl Fn(&Lab) -> anyhow::Result<Finding> + 'static,
    ) -> Bar {
        Bar { name: name.into(), wanted: wanted.into(), run: Box::new(run) }
    }
}

/// What a bar found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// What was measured meets the bar.
    Met(String),
    /// What was measured does not meet the bar.
    Missed(String),
    /// Not measured, and why.
    Skipped(String),
}

impl Finding {
    /// [`Finding::Met`] if `good`, otherwise [`Finding::Missed`], with what was measured.
    pub fn of(good: bool, measured: impl Into<String>) -> Finding {
        if good { Finding::Met(measured.into()) } else { Finding::Missed(measured.into()) }
    }
}

/// How many bars ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Bars that were met.
    pub passed: usize,
    /// Bars that were not met or could not run.
    pub failed: usize,
    /// Bars that were not measured.
    pub skipped: usize,
}

/// The names of the lists.
pub const LISTS: &[&str] = &["night", "search", "cpu"];

/// The bars of the list called `name`.
#[must_use]
pub fn list(name: &str) -> Option<Vec<Bar>> {
    match name {
        "night" => Some(night()),
        "search" => Some(search::bars()),
        "cpu" => Some(cpu::bars()),
        _ => None,
    }
}

/// The first whole path: a real model in, a verified tuning database out, a look-up back, on the CPU and on Vulkan.
fn night() -> Vec<Bar> {
    let mut bars = house::bars();
    bars.extend(models::bars());
    bars.extend(bad_input::bars());
    bars.extend(spaces::bars());
    bars.extend(fixtures::bars());
    bars.extend(engine::bars());
    bars.extend(lavapipe::bars());
    bars.extend(numpy::bars());
    bars.extend(kill::bars());
    bars
}

/// Runs `bars` in order and writes one row of the table for each as it ends, then a closing line.
///
/// # Errors
/// When `out` cannot be written.
pub fn run(bars: &[Bar], lab: &Lab, out: &mut impl Write) -> std::io::Result<Tally> {
    let width =
        |text: fn(&Bar) -> &str, least: usize| bars.iter().map(|b| text(b).chars().count()).fold(least, usize::max);
    let (names, wants) = (width(|b| &b.name, 3), width(|b| &b.wanted, 6));
    writeln!(out, "{:names$} | {:wants$} | verdict | measured", "bar", "wanted")?;
    writeln!(out, "{:-<names$}-|-{:-<wants$}-|---------|---------", "", "")?;
    let mut tally = Tally::default();
    for bar in bars {
        let start = Instant::now();
        let finding = (bar.run)(lab).unwrap_or_else(|error| Finding::Missed(format!("{error:#}")));
        let (word, measured, count) = match finding {
            Finding::Met(measured) => ("pass", measured, &mut tally.passed),
            Finding::Missed(measured) => ("FAIL", measured, &mut tally.failed),
            Finding::Skipped(reason) => ("skipped", reason, &mut tally.skipped),
        };
        *count += 1;
        let measured = measured.trim_end().replace('\n', "; ");
        let seconds = start.elapsed().as_secs_f64();
        writeln!(out, "{:names$} | {:wants$} | {word:7} | {measured} [{seconds:.1} s]", bar.name, bar.wanted)?;
        out.flush()?;
    }
    writeln!(out, "\n{} passed, {} failed, {} skipped", tally.passed, tally.failed, tally.skipped)?;
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_table_counts_each_verdict() {
        let bars = [
            Bar::new("good", ">= 1", |_| Ok(Finding::of(true, "2"))),
            Bar::new("low", ">= 1", |_| Ok(Finding::of(false, "0"))),
            Bar::new("broken", ">= 1", |_| anyhow::bail!("no such device")),
            Bar::new("absent", ">= 1", |_| Ok(Finding::Skipped("no GPU".into()))),
        ];
        let mut out = Vec::new();
        let tally = run(&bars, &Lab::for_tests(), &mut out).unwrap();
        assert_eq!(tally, Tally { passed: 1, failed: 2, skipped: 1 });
        let table = String::from_utf8(out).unwrap();
        assert!(table.contains("broken | >= 1   | FAIL    | no such device ["), "{table}");
        assert!(table.contains("absent | >= 1   | skipped | no GPU ["), "{table}");
    }

    #[test]
    fn names_are_unique_so_that_only_can_choose() {
        for name in LISTS {
            let bars = list(name).unwrap();
            let names: BTreeSet<&str> = bars.iter().map(|bar| bar.name.as_str()).collect();
            assert_eq!(names.len(), bars.len(), "{name}");
        }
    }
}
