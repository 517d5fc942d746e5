//! Kernels of the processor against every peer on the whole suite: `./dev check cpu`.
//!
//! Each line is tuned for 30 seconds (`CHECK_CPU_TIME=10` for less), then timed beside the peers (the joint table, `tests/peers/table`). The whole list
//! takes an hour and a half, half of it with 10 seconds; `--only TEXT` tunes the lines of the chosen bars alone. `CHECK_CPU_DB=FILE` keeps the database, and
//! lines that it has answers for are not tuned again. A bar is missed only when the upper end of its 95 % interval lies
//! below it; a line without a kernel misses its bars with the reason.

mod families;
mod judge;
mod measured;
mod tvm;

use std::rc::Rc;

use anyhow::Context;
use serde_json::Value;

use super::ratio::Ratio;
use super::table::Row;
use super::{Bar, Finding, Lab};
use families::Family;
use judge::{Judged, Mark, judge};
use measured::{Measured, TIME_PER, Way};

/// A bar over lines: its name, the lines, and what is wanted of the best peer's time ÷ ours.
struct Wanted {
    name: &'static str,
    chosen: fn(&datasets::suite::Line) -> bool,
    threads: usize,
    math: Math,
    reader: bool,
    mark: Mark,
}

/// Which kernels of convolutions take part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Math {
    Ieee,
    Fast,
    /// Whichever was measured to be faster.
    Faster,
}

const fn wanted(
    name: &'static str,
    chosen: fn(&datasets::suite::Line) -> bool,
    mean: f64,
    each: Option<f64>,
) -> Wanted {
    Wanted { name, chosen, threads: 1, math: Math::Ieee, reader: false, mark: Mark { mean, each } }
}

fn table() -> Vec<Wanted> {
    vec![
        wanted("models f32", |line| Family::of(line) == Family::Model, 1.05, Some(0.92)),
        wanted("bf16 and int8", |line| Family::of(line) == Family::Narrow, 1.0, None),
        Wanted { math: Math::Fast, ..wanted("conv fast", |line| Family::of(line) == Family::Conv, 1.3, Some(0.9)) },
        wanted("conv ieee", |line| Family::of(line) == Family::Conv, 1.03, Some(0.9)),
        wanted("memory alone", |line| Family::of(line) == Family::Memory, 1.6, Some(0.97)),
        Wanted { reader: true, ..wanted("memory read", |line| Family::of(line) == Family::Memory, 1.6, Some(0.97)) },
        Wanted { math: Math::Faster, ..wanted("whole list, 1 thread", |_| true, 1.25, None) },
        Wanted { math: Math::Faster, threads: 2, ..wanted("whole list, 2 threads", |_| true, 1.15, None) },
    ]
}

pub(super) fn bars() -> Vec<Bar> {
    let shared = Rc::new(Measured::default());
    let mut bars = Vec::new();
    for name in ["mm_512", "mm_1024", "mm_2048", "mm_1000"] {
        let shared = Rc::clone(&shared);
        let text = "ours / numpy >= 1.0, ours / best peer >= 0.95";
        bars.push(Bar::new(format!("square {name}"), text, move |lab| square(lab, &shared, name)));
    }
    let share = Rc::clone(&shared);
    bars.push(Bar::new("share of mm_512", ">= 0.85 of the fma peak measured beside it", move |lab| {
        share_of_peak(lab, &share, "mm_512")
    }));
    for name in ["decode_m1_4096", "decode_m16_11008"] {
        let shared = Rc::clone(&shared);
        let text = "ours / best peer >= 0.95";
        bars.push(Bar::new(format!("gemv {name}"), text, move |lab| gemv(lab, &shared, name)));
    }
    for wanted in table() {
        let shared = Rc::clone(&shared);
        let each = wanted.mark.each.map_or(String::new(), |each| format!(", none under {each}"));
        let text = format!("geometric mean over the best peers >= {}{each}", wanted.mark.mean);
        bars.push(Bar::new(wanted.name, text, move |lab| lines(lab, &shared, &wanted)));
    }
    let tuned = Rc::clone(&shared);
    let text = format!("<= {} s for each line at 1 thread", TIME_PER.as_secs());
    bars.push(Bar::new("time of tuning", text, move |lab| tuning(lab, &tuned)));
    bars.push(tvm::bar());
    bars.push(Bar::new("profiles", "docs/measurements.md has the three worst lines with their reasons", profiles));
    bars
}

fn one_thread(name: &str) -> Way {
    Way { name: name.into(), threads: 1, fast: false, reader: false }
}

/// A square product against numpy, which is OpenBLAS, and against the best peer.
fn square(lab: &Lab, shared: &Measured, name: &str) -> anyhow::Result<Finding> {
    let row = shared.row(lab, &one_thread(name))?;
    let ratio = |ratios: Result<Vec<f64>, String>| Ratio::of(&ratios.map_err(anyhow::Error::msg)?).context("no rounds");
    let (numpy, best) = (ratio(row.ratios("numpy"))?, ratio(row.ratios_to_best())?);
    let peer = row.best_peer().unwrap_or_default();
    Ok(Finding::of(numpy.high >= 1.0 && best.high >= 0.95, format!("numpy {numpy}; best peer {peer} {best}")))
}

fn gemv(lab: &Lab, shared: &Measured, name: &str) -> anyhow::Result<Finding> {
    let row = shared.row(lab, &one_thread(name))?;
    let ratio = Ratio::of(&row.ratios_to_best().map_err(anyhow::Error::msg)?).context("no rounds")?;
    Ok(Finding::of(ratio.high >= 0.95, format!("{} {ratio}", row.best_peer().unwrap_or_default())))
}

/// The share of the roofline in each of `bench`'s rounds, where the peak was measured beside the kernel.
fn share_of_peak(lab: &Lab, shared: &Measured, name: &str) -> anyhow::Result<Finding> {
    let tuned = shared.tuned(lab, &one_thread(name))?;
    let rounds = tuned["rounds"].as_array().with_context(|| reason(&tuned))?;
    let shares: Vec<f64> = rounds.iter().filter_map(|round| round["share"].as_f64()).collect();
    let share = Ratio::of(&shares).context("no peak was measured")?;
    Ok(Finding::of(share.high >= 0.85, format!("{share} of {}", tuned["roof"].as_str().unwrap_or("an unknown roof"))))
}

/// Why `bench` has no figures of a line.
fn reason(tuned: &Value) -> String {
    tuned["why"].as_str().unwrap_or("bench gives no reason").to_owned()
}

/// A bar over lines of the table.
fn lines(lab: &Lab, shared: &Measured, wanted: &Wanted) -> anyhow::Result<Finding> {
    let mut judged = Vec::new();
    let mut ieee = Vec::new();
    for line in shared.lines(lab)?.iter().filter(|line| (wanted.chosen)(line)) {
        let row = |fast: bool| {
            let way = Way { name: line.name.clone(), threads: wanted.threads, fast, reader: wanted.reader };
            shared.row(lab, &way)
        };
        let strict = match wanted.math {
            Math::Fast if line.has_math() => None,
            _ => Some(row(false)?),
        };
        let loose = match wanted.math {
            Math::Ieee => None,
            _ if line.has_math() => Some(row(true)?),
            _ => None,
        };
        ieee.extend(strict.as_deref().map(one));
        judged.extend(judge::faster(strict.as_deref(), loose.as_deref()).map(one));
    }
    let mut finding = judge(&judged, wanted.mark);
    if wanted.math == Math::Faster {
        // Beside it, what it would be without the looser mathematics.
        let strict = judge::mean(&ieee).map_or("none".into(), |mean| mean.to_string());
        let (Finding::Met(text) | Finding::Missed(text) | Finding::Skipped(text)) = &mut finding;
        text.push_str(&format!("; math=ieee {strict}"));
    }
    Ok(finding)
}

fn one(row: &Row) -> Judged {
    Judged { name: row.line.name.clone(), peer: row.best_peer().map(str::to_owned), ratios: row.ratios_to_best() }
}

/// The longest time that any line was tuned for.
fn tuning(lab: &Lab, shared: &Measured) -> anyhow::Result<Finding> {
    let mut longest: Option<(f64, String)> = None;
    for line in shared.lines(lab)? {
        let tuned = shared.tuned(lab, &one_thread(&line.name))?;
        let seconds = tuned["prep_s"].as_f64().filter(|seconds| *seconds > 0.0);
        if let Some(seconds) = seconds.filter(|s| longest.as_ref().is_none_or(|longest| *s > longest.0)) {
            longest = Some((seconds, line.name));
        }
    }
    let Some((seconds, name)) = longest else {
        return Ok(Finding::Skipped("CHECK_CPU_DB had answers for all lines, so nothing was tuned".into()));
    };
    Ok(Finding::of(seconds <= TIME_PER.as_secs_f64(), format!("at most {seconds:.1} s ({name})")))
}

/// Whether the worst lines were looked into: their section of the measurements.
fn profiles(lab: &Lab) -> anyhow::Result<Finding> {
    let path = lab.root.join("docs/measurements.md");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    Ok(match judge::profiled(&text) {
        0 => Finding::Skipped("docs/measurements.md has no section \"Profiles of the worst lines\" yet".into()),
        n => Finding::of(n >= 3, format!("{n} lines")),
    })
}
