//! An explanation for people and for programs.

use codegen::analysis::ProgramFeatures;
use cost_model::explain::CrossValidation;
use search_space::Value;
use serde_json::{Value as Json, json};

use super::{Effect, Expected, Explanation, Measured};
use crate::report::{table, units};

/// The line of `explain --json`.
#[must_use]
pub fn json(explanation: &Explanation) -> Json {
    let quality =
        |found: &CrossValidation| json!({ "rows": found.rows, "spearman": found.spearman, "covered": found.covered });
    let programs = explanation.programs.as_ref();
    json!({
        "schema": "tilewright.explain/1",
        "workload": explanation.workload,
        "key": explanation.key,
        "device": explanation.device,
        "target": explanation.target,
        "winner": explanation.winner,
        "winner_is": explanation.winner_is,
        "winner_ms": explanation.winner_s.map(|s| s * 1e3),
        "default": explanation.default,
        "default_ms": explanation.default_s.map(|s| s * 1e3),
        "schedules": explanation.schedules,
        "timed": explanation.timed,
        "bounded": explanation.bounded,
        "failed": explanation.failed,
        "foreign": explanation.foreign,
        "learned": explanation.learned,
        "model": quality(&explanation.process),
        "trees": explanation.trees.as_ref().map(quality),
        "parameters": explanation.parameters.iter().map(effect).collect::<Vec<Json>>(),
        "changes": explanation.changes.iter().map(expected).collect::<Vec<Json>>(),
        "program": programs.map(|(winner, default)| json!({ "winner": winner, "default": default })),
        "warnings": explanation.warnings,
    })
}

fn effect(effect: &Effect) -> Json {
    let end = |end: &Option<(Value, f64)>| end.as_ref().map(|(value, ratio)| json!({ "value": value, "ratio": ratio }));
    json!({
        "name": effect.name,
        "value": effect.value,
        "importance": effect.importance,
        "spread": effect.spread,
        "best": end(&effect.best),
        "worst": end(&effect.worst),
    })
}

fn expected(change: &Expected) -> Json {
    let step = |(name, from, to): &(String, Value, Value)| json!({ "parameter": name, "from": from, "to": to });
    let (measured, at_least, failed) = match change.measured {
        None => (None, None, None),
        Some(Measured::Ratio(ratio)) => (Some(ratio), None, None),
        Some(Measured::AtLeast(ratio)) => (None, Some(ratio), None),
        Some(Measured::Failed(outcome)) => (None, None, Some(outcome)),
    };
    json!({
        "changed": change.changed.iter().map(step).collect::<Vec<Json>>(),
        "ratio": change.ratio,
        "interval": change.interval,
        "success": change.success,
        "measured": measured,
        "measured_at_least": at_least,
        "failed": failed,
    })
}

/// The text for people, with at most `most` changes.
#[must_use]
pub fn lines(explanation: &Explanation, most: usize) -> Vec<String> {
    let ms = |seconds: Option<f64>| seconds.map_or("-".into(), |s| format!("{} ms", units::milliseconds(s)));
    let found = &explanation.process;
    let trees = explanation.trees.as_ref().map(|trees| format!(" (trees {:.2})", trees.spearman));
    let covered = found.covered.map(|share| format!("; {:.0} % of times in their 95 % interval", 100.0 * share));
    let timed = units::several(explanation.timed as u64, "schedule");
    let mut lines = vec![
        format!("{} on {}", explanation.workload, explanation.device),
        format!("  winner    {} ({})", explanation.winner, explanation.winner_is),
        format!("  time      {}, default {}", ms(explanation.winner_s), ms(explanation.default_s)),
        format!(
            "  rests on  {timed} with a time, {} cut off as slower, {} failed",
            explanation.bounded, explanation.failed
        ),
        format!(
            "  model     Spearman {:.2} on schedules it had not seen{}{}",
            found.spearman,
            trees.unwrap_or_default(),
            covered.unwrap_or_default()
        ),
    ];
    lines.extend(explanation.warnings.iter().map(|warning| format!("  warning   {warning}")));

    lines.push(String::new());
    let titles = ["parameter", "winner", "importance", "spread", "best other", "worst"];
    let mut rows = vec![titles.map(String::from).to_vec()];
    rows.extend(explanation.parameters.iter().map(parameter));
    lines.extend(table::columns(&rows, &[2, 3]));

    lines.push(String::new());
    let titles = ["change", "predicted", "95 % interval", "measured"];
    let mut rows = vec![titles.map(String::from).to_vec()];
    rows.extend(explanation.changes.iter().take(most).map(change));
    lines.extend(table::columns(&rows, &[1, 3]));
    if explanation.changes.len() > most {
        lines.push(format!("and {} more that are predicted slower (--changes)", explanation.changes.len() - most));
    }

    if let Some((winner, default)) = &explanation.programs {
        lines.push(String::new());
        lines.extend(programs(winner, default));
    }
    lines.push(String::new());
    lines.push(
        "importance: fall of Spearman when its values are shuffled; spread: time of its slowest value / its".into(),
    );
    lines.push(
        "fastest, all else as in the winner; predicted, measured: time / that of the winner, below 1 is faster".into(),
    );
    lines
}

fn parameter(effect: &Effect) -> Vec<String> {
    let end = |end: &Option<(Value, f64)>| {
        end.as_ref().map_or("-".into(), |(value, ratio)| format!("{value} ({})", times(*ratio)))
    };
    let importance = format!("{:.3}", effect.importance.max(0.0));
    let (best, worst) = (end(&effect.best), end(&effect.worst));
    vec![effect.name.clone(), effect.value.to_string(), importance, times(effect.spread), best, worst]
}

fn change(change: &Expected) -> Vec<String> {
    let step = |(name, from, to): &(String, Value, Value)| format!("{name} {from} -> {to}");
    let text = match change.changed.split_first() {
        None => String::new(),
        Some((first, [])) => step(first),
        Some((first, others)) => {
            format!("{} (with {})", step(first), others.iter().map(step).collect::<Vec<_>>().join(", "))
        }
    };
    let measured = match change.measured {
        None => "-".into(),
        Some(Measured::Ratio(ratio)) => times(ratio),
        Some(Measured::AtLeast(ratio)) => format!("> {}", times(ratio)),
        Some(Measured::Failed(outcome)) => outcome.to_string(),
    };
    let [lo, hi] = change.interval.map(times);
    vec![text, times(change.ratio), format!("{lo} .. {hi}"), measured]
}

/// The winner's program beside the default's.
fn programs(winner: &ProgramFeatures, default: &ProgramFeatures) -> Vec<String> {
    let mut rows = vec![["program", "winner", "default"].map(String::from).to_vec()];
    let mut row = |name: &str, of: &dyn Fn(&ProgramFeatures) -> String| {
        rows.push(vec![name.into(), of(winner), of(default)]);
    };
    row("operations", &|program| units::scaled(program.operations, ""));
    row("on padding", &|program| format!("{:.1} %", 100.0 * program.waste));
    let mut names: Vec<&str> = Vec::new();
    for level in winner.levels().iter().chain(&default.levels()) {
        if !names.contains(&level.name) {
            names.push(level.name);
        }
    }
    for name in names {
        row(&format!("bytes, {name}"), &|program| {
            let levels = program.levels();
            levels.iter().find(|level| level.name == name).map_or("-".into(), |level| {
                format!("{} ({} op/B)", units::scaled(level.bytes, "B"), units::significant(level.reuse))
            })
        });
    }
    row("registers in use", &|program| format!("{:.0} %", 100.0 * program.register_pressure));
    row("busy threads", &|program| format!("{:.0} %", 100.0 * program.balance));
    type Count = fn(&ProgramFeatures) -> f64;
    let counts: [(&str, Count); 8] = [
        ("vector width", |program| program.vector_width),
        ("sums in flight", |program| program.accumulators),
        ("register tiles", |program| program.register_tiles),
        ("steps of a tile", |program| program.steps),
        ("work items", |program| program.work_items),
        ("lanes", |program| program.lanes),
        ("barriers", |program| program.barriers),
        ("bytes held", |program| program.packed_held_bytes + program.shared_held_bytes),
    ];
    for (name, of) in counts {
        // What neither program has is not worth a line.
        if of(winner) > 1.0 || of(default) > 1.0 {
            row(name, &|program| units::scaled(of(program), ""));
        }
    }
    table::columns(&rows, &[1, 2])
}

/// A ratio of times.
fn times(ratio: f64) -> String {
    if ratio < 10.0 { format!("{ratio:.2}x") } else { format!("{}x", units::significant(ratio)) }
}
