//! What people and programs are shown of replayed searches.

use serde_json::{Map, Value, json};

use super::{Replayed, Score, Settings};
use crate::report::table;

/// Schema of the lines of `replay --json`.
pub const SCHEMA: &str = "tilewright.replay-score/1";

/// Spaces with more schedules than this have a mean of their own: in smaller ones random draws soon know everything.
pub const LARGE: u128 = 1000;

/// The line of one space.
#[must_use]
pub fn space(replayed: &Replayed, settings: &Settings) -> Value {
    let mut line = Map::new();
    line.insert("schema".into(), SCHEMA.into());
    line.insert("space".into(), replayed.space.as_str().into());
    line.insert("kernel".into(), replayed.kernel.as_str().into());
    line.insert("device".into(), replayed.device.as_str().into());
    line.insert("strategy".into(), settings.strategy.as_str().into());
    line.insert("seeds".into(), replayed.runs.len().into());
    line.insert("first_seed".into(), settings.seeds.start.into());
    line.insert("budget".into(), settings.budget.into());
    line.insert("batch".into(), settings.batch.into());
    line.insert("priors".into(), replayed.priors.into());
    line.insert("configs".into(), u64::try_from(replayed.configs).map_or(Value::Null, Value::from));
    line.insert("optimum_ms".into(), (replayed.optimum_s * 1e3).into());
    line.extend(numbers(&replayed.score));
    line.insert("need5".into(), json!(replayed.score.need5));
    line.insert("p200_low".into(), json!(replayed.score.p_low));
    line.insert("clock_s".into(), replayed.score.clock_s.into());
    Value::Object(line)
}

/// The last line: means over all spaces, and over the large ones.
#[must_use]
pub fn summary(all: &[Replayed], settings: &Settings) -> Value {
    let mean_of = |spaces: Vec<&Score>| {
        let mut line = Map::new();
        line.insert("spaces".into(), spaces.len().into());
        line.extend(mean(&spaces).as_ref().map(numbers).unwrap_or_default());
        line
    };
    let mut line = mean_of(all.iter().map(|one| &one.score).collect());
    line.insert("strategy".into(), settings.strategy.as_str().into());
    line.insert("seeds".into(), settings.seeds.clone().count().into());
    line.insert("budget".into(), settings.budget.into());
    line.insert("large".into(), mean_of(large(all)).into());
    json!({ "schema": SCHEMA, "summary": line })
}

/// The figures that spaces and summaries share.
fn numbers(score: &Score) -> Map<String, Value> {
    let frac: Map<String, Value> = score.frac.iter().map(|(mark, frac)| (mark.to_string(), json!(frac))).collect();
    let mut line = Map::new();
    line.insert("frac".into(), frac.into());
    line.insert("hit5".into(), score.hit5.into());
    line.insert("hit1".into(), score.hit1.into());
    line.insert("p200".into(), json!(score.p));
    line.insert("evaluations".into(), score.evaluations.into());
    line.insert("cpu_ms_per_eval".into(), score.cpu_ms_per_eval.into());
    line
}

fn large(all: &[Replayed]) -> Vec<&Score> {
    all.iter().filter(|one| one.configs > LARGE).map(|one| &one.score).collect()
}

/// The mean over spaces; of the score, over those that have one. `None` without spaces.
fn mean(scores: &[&Score]) -> Option<Score> {
    let first = scores.first()?;
    let n = scores.len() as f64;
    let of = |value: &dyn Fn(&Score) -> f64| scores.iter().map(|score| value(score)).sum::<f64>() / n;
    let known = |value: &dyn Fn(&Score) -> Option<f64>| {
        let known: Vec<f64> = scores.iter().filter_map(|score| value(score)).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    };
    let frac = first.frac.iter().enumerate().map(|(at, (mark, _))| (*mark, of(&|score| score.frac[at].1)));
    Some(Score {
        frac: frac.collect(),
        hit5: of(&|score| score.hit5),
        hit1: of(&|score| score.hit1),
        need5: None,
        p: known(&|score| score.p),
        p_low: None,
        evaluations: of(&|score| score.evaluations),
        cpu_ms_per_eval: of(&|score| score.cpu_ms_per_eval),
        clock_s: of(&|score| score.clock_s),
    })
}

/// One row per space, and the means.
#[must_use]
pub fn lines(all: &[Replayed], settings: &Settings) -> Vec<String> {
    let Some(first) = all.first() else { return Vec::new() };
    let mut titles = vec!["space".to_owned(), "schedules".into()];
    titles.extend(first.score.frac.iter().map(|(mark, _)| format!("@{mark}")));
    let p = format!("P{}", settings.budget);
    titles.extend(["hit5", "hit1", "need5", &p, "95 % >", "trials", "CPU ms"].map(String::from));
    let mut rows = vec![titles];
    for one in all {
        let configs = crate::report::units::count(one.configs);
        rows.push(row(one.space.clone(), configs, &one.score));
    }
    let mut means = |name: &str, scores: Vec<&Score>| {
        let title = format!("mean of {}{name}", scores.len());
        if let Some(mean) = mean(&scores).filter(|_| scores.len() > 1) {
            rows.push(row(title, String::new(), &mean));
        }
    };
    means("", all.iter().map(|one| &one.score).collect());
    if large(all).len() < all.len() {
        means(" large", large(all));
    }
    let right: Vec<usize> = (1..rows[0].len()).collect();
    table::columns(&rows, &right)
}

fn row(name: String, configs: String, score: &Score) -> Vec<String> {
    let optional = |value: Option<f64>, digits: usize| value.map_or("-".into(), |value| format!("{value:.digits$}"));
    let mut row = vec![name, configs];
    row.extend(score.frac.iter().map(|(_, frac)| format!("{frac:.3}")));
    row.extend([
        format!("{:.2}", score.hit5),
        format!("{:.2}", score.hit1),
        optional(score.need5, 0),
        optional(score.p, 2),
        optional(score.p_low, 2),
        format!("{:.0}", score.evaluations),
        format!("{:.3}", score.cpu_ms_per_eval),
    ]);
    row
}
