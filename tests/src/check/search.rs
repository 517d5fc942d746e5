//! The search on recorded measurements: cold, with records of other devices, with misleading ones, on a made-up space, on
//! schedules of our own, and resumed.
//!
//! The recorded spaces are other projects' data and not in the repository: they are looked for in `TILEWRIGHT_REPLAY`, or
//! in `../shared/replay`, and without them their bars are skipped.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::{Bar, Finding, Lab};
use anyhow::{Context, ensure};
use cli::replay;
use cli::session::StrategyKind;
use search_space::strategy::Told;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(40 * 60);
/// Spaces with more configurations are large.
const LARGE: u64 = 1000;
/// A family of kernels needs so many cards for one to be left out.
const LEAST_CARDS: usize = 3;
/// Recorded by `datasets/recorded/README.md`.
const OWN: &str = "datasets/recorded/matmul-512-cpu.json";

/// Results by space.
type Results = BTreeMap<String, Value>;

/// Runs that several bars look at, made when first needed.
#[derive(Default)]
struct Runs {
    cold: OnceCell<Result<Results, String>>,
    informed: OnceCell<Result<Results, String>>,
    misled: OnceCell<Result<Results, String>>,
}

pub(super) fn bars() -> Vec<Bar> {
    let runs = Rc::new(Runs::default());
    let mut bars = Vec::new();
    for (mark, least) in [("25", 0.88), ("50", 0.955), ("100", 0.988), ("200", 0.997)] {
        bars.push(cold(
            &runs,
            &format!("cold @{mark}"),
            &format!("mean of the large spaces >= {least}"),
            move |runs| {
                let mean = mean(runs.values().map(|run| frac(run, mark)));
                Finding::of(mean >= least, format!("{mean:.4}"))
            },
        ));
    }
    bars.push(cold(&runs, "cold hit5", "within 5 % in >= 98 % of the runs", |runs| {
        let mean = mean(runs.values().map(|run| number(run, "hit5")));
        Finding::of(mean >= 0.98, format!("{:.1} %", mean * 100.0))
    }));
    bars.push(cold(&runs, "cold P200", "mean >= 0.80, each >= 0.65", |runs| {
        let mean = mean(runs.values().map(|run| number(run, "p200")));
        let worst = runs.iter().min_by(|a, b| number(a.1, "p200").total_cmp(&number(b.1, "p200")));
        let (name, worst) = worst.map_or(("none", f64::NAN), |(name, run)| (name.as_str(), number(run, "p200")));
        Finding::of(mean >= 0.8 && worst >= 0.65, format!("mean {mean:.3}, worst {worst:.3} ({name})"))
    }));
    bars.push(with(&runs, "small spaces", "coulomb3d not below random: lower 95 % bound of P > -0.05", |runs, lab| {
        let small = runs.cold(lab)?.iter().filter(|(name, _)| name.starts_with("coulomb3d"));
        let bounds: Vec<(&String, f64)> = small.map(|(name, run)| (name, number(run, "p200_low"))).collect();
        ensure!(!bounds.is_empty(), "no coulomb3d among the recorded spaces");
        let said: Vec<String> = bounds.iter().map(|(name, low)| format!("{name} {low:.3}")).collect();
        Ok(Finding::of(bounds.iter().all(|(_, low)| *low > -0.05), said.join(", ")))
    }));
    for (mark, least) in [("1", 0.87), ("5", 0.94), ("10", 0.965), ("25", 0.98), ("50", 0.99)] {
        let wanted = format!("other cards as prior: mean >= {least}");
        bars.push(with(&runs, &format!("prior @{mark}"), &wanted, move |runs, lab| {
            let mean = mean(runs.informed(lab)?.values().map(|run| frac(run, mark)));
            Ok(Finding::of(mean >= least, format!("{mean:.4}")))
        }));
    }
    bars.push(with(&runs, "prior against cold", "@50 on no target more than 0.005 below its cold run", |runs, lab| {
        let (informed, cold) = (runs.informed(lab)?, runs.cold(lab)?);
        let loss = |(name, run): (&String, &Value)| Some((frac(cold.get(name)?, "50") - frac(run, "50"), name.clone()));
        let worst = informed.iter().filter_map(loss).max_by(|a, b| a.0.total_cmp(&b.0)).context("no target")?;
        Ok(Finding::of(worst.0 <= 0.005, format!("at most {:.4} ({})", worst.0.max(0.0), worst.1)))
    }));
    bars.push(with(&runs, "wrong prior", "shuffled times: mean @50 and @100 within 0.02 of cold", |runs, lab| {
        let (misled, cold) = (runs.misled(lab)?, runs.cold(lab)?);
        let mut said = Vec::new();
        let mut good = true;
        for mark in ["50", "100"] {
            let loss = |(name, run): (&String, &Value)| Some(frac(cold.get(name)?, mark) - frac(run, mark));
            let losses: Vec<f64> = misled.iter().filter_map(loss).collect();
            let mean = mean(losses.iter().copied());
            good &= mean <= 0.02;
            said.push(format!("@{mark} {mean:.4} below, at most {:.4}", losses.iter().copied().fold(0.0, f64::max)));
        }
        Ok(Finding::of(good, said.join("; ")))
    }));
    bars.push(Bar::new("made-up space", ">= 10^9 schedules; engine <= 5 ms per evaluation", |lab| {
        let run = &replayed(lab, &["synthetic:1", "--seeds", "30"])?["synthetic:1"];
        let configs = run["configs"].as_f64().or_else(|| run["configs"].as_str()?.parse().ok()).unwrap_or(f64::NAN);
        let ms = number(run, "cpu_ms_per_eval");
        let marks: Vec<String> = ["25", "50", "100", "200"].map(|m| format!("@{m} {:.3}", frac(run, m))).to_vec();
        Ok(Finding::of(configs >= 1e9 && ms <= 5.0, format!("{configs:.1e}; {ms:.2} ms; {}", marks.join(" "))))
    }));
    bars.push(with(&runs, "names do not matter", "parameters renamed p0...: the same results", |runs, lab| {
        let space = space_named(lab, "gemm-RTX_3090")?;
        let renamed = replayed(lab, &[&space, "--anonymous"])?;
        let ordinals = replayed(lab, &[&space, "--ordinals"])?;
        let name = "gemm-RTX_3090";
        let cold = runs.cold(lab)?;
        let same = ["frac", "hit5", "hit1", "p200"].iter().all(|key| renamed[name][key] == cold[name][key]);
        let beside = format!(
            "@50 {:.4}; with ordinals for values {:.4}",
            frac(&renamed[name], "50"),
            frac(&ordinals[name], "50")
        );
        Ok(Finding::of(same, format!("{}; {beside}", if same { "equal" } else { "different" })))
    }));
    bars.push(with(&runs, "engine time", "<= 5 ms of processor time per evaluation on gemm-RTX_3090", |runs, lab| {
        let ms = number(&runs.cold(lab)?["gemm-RTX_3090"], "cpu_ms_per_eval");
        Ok(Finding::of(ms <= 5.0, format!("{ms:.2} ms")))
    }));
    bars.push(Bar::new(
        "own matmul",
        "512^3 on a CPU: best of 60 trials <= best of 300 random ones, median of 10 seeds",
        own,
    ));
    bars.push(Bar::new("resume", "100 random cuts of the log: the same continuation", resume));
    bars
}

impl Runs {
    fn cold(&self, lab: &Lab) -> anyhow::Result<&Results> {
        let run = || {
            let spaces = spaces(lab)?;
            replayed(lab, &spaces.iter().map(String::as_str).collect::<Vec<_>>())
        };
        kept(&self.cold, run)
    }

    fn informed(&self, lab: &Lab) -> anyhow::Result<&Results> {
        kept(&self.informed, || left_out(lab, &["--budget", "50"]))
    }

    fn misled(&self, lab: &Lab) -> anyhow::Result<&Results> {
        kept(&self.misled, || left_out(lab, &["--budget", "100", "--shuffle-priors"]))
    }
}

fn kept(
    cell: &OnceCell<Result<Results, String>>,
    run: impl FnOnce() -> anyhow::Result<Results>,
) -> anyhow::Result<&Results> {
    cell.get_or_init(|| run().map_err(|error| format!("{error:#}")))
        .as_ref()
        .map_err(|error| anyhow::anyhow!("{error}"))
}

/// A bar on recorded spaces, skipped where there are none.
fn with(
    runs: &Rc<Runs>,
    name: &str,
    wanted: &str,
    judge: impl Fn(&Runs, &Lab) -> anyhow::Result<Finding> + 'static,
) -> Bar {
    let runs = Rc::clone(runs);
    Bar::new(name, wanted, move |lab| match folder(lab) {
        None => Ok(Finding::Skipped("no recorded spaces; set TILEWRIGHT_REPLAY (datasets/README.md)".into())),
        Some(_) => judge(&runs, lab),
    })
}

/// A bar on the cold runs of the large spaces.
fn cold(runs: &Rc<Runs>, name: &str, wanted: &str, judge: impl Fn(&Results) -> Finding + 'static) -> Bar {
    with(runs, name, wanted, move |runs, lab| {
        let large = |run: &Value| run["configs"].as_u64().is_some_and(|configs| configs > LARGE);
        let large: Results = runs.cold(lab)?.clone().into_iter().filter(|(_, run)| large(run)).collect();
        ensure!(!large.is_empty(), "no large spaces");
        Ok(judge(&large))
    })
}

/// Where the recorded spaces are.
fn folder(lab: &Lab) -> Option<PathBuf> {
    let folder = match std::env::var_os("TILEWRIGHT_REPLAY") {
        Some(folder) => PathBuf::from(folder),
        None => lab.root.parent()?.join("shared/replay"),
    };
    Some(folder).filter(|folder| folder.is_dir())
}

/// The headers of the recorded spaces.
fn spaces(lab: &Lab) -> anyhow::Result<Vec<String>> {
    let folder = folder(lab).context("no recorded spaces")?;
    let mut spaces = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            spaces.push(path.to_string_lossy().into_owned());
        }
    }
    spaces.sort();
    Ok(spaces)
}

fn space_named(lab: &Lab, name: &str) -> anyhow::Result<String> {
    let named = |path: &String| Path::new(path).file_stem().is_some_and(|stem| stem == name);
    spaces(lab)?.into_iter().find(named).with_context(|| format!("no recorded space {name}"))
}

/// Runs `replay` with these arguments.
fn replayed(lab: &Lab, arguments: &[&str]) -> anyhow::Result<Results> {
    let lines = lab.json(["replay", "--json"].iter().chain(arguments), LIMIT)?;
    let named = |line: Value| Some((line["space"].as_str()?.to_owned(), line));
    Ok(lines.into_iter().filter_map(named).collect())
}

/// Each card of a family with the others as priors.
fn left_out(lab: &Lab, arguments: &[&str]) -> anyhow::Result<Results> {
    let mut families: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for space in spaces(lab)? {
        let text = std::fs::read_to_string(&space).with_context(|| space.clone())?;
        let header: Value = serde_json::from_str(&text).with_context(|| space.clone())?;
        families.entry(header["kernel"].as_str().unwrap_or_default().to_owned()).or_default().push(space);
    }
    let mut results = Results::new();
    for cards in families.values().filter(|cards| cards.len() >= LEAST_CARDS) {
        // A space is no prior of itself.
        let all = cards.iter().map(String::as_str);
        let every: Vec<&str> = all.clone().chain(["--prior"]).chain(all).chain(arguments.iter().copied()).collect();
        results.extend(replayed(lab, &every)?);
    }
    Ok(results)
}

fn number(run: &Value, key: &str) -> f64 {
    run[key].as_f64().unwrap_or(f64::NAN)
}

fn frac(run: &Value, mark: &str) -> f64 {
    run["frac"][mark].as_f64().unwrap_or(f64::NAN)
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    values.iter().sum::<f64>() / values.len() as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}

/// The search against five times as many random draws, on measurements of our own.
fn own(lab: &Lab) -> anyhow::Result<Finding> {
    let recorded = datasets::recorded::read(&lab.root.join(OWN))?;
    let best = |kind: StrategyKind, budget: usize, seed: u64| {
        let mut strategy = replay::strategy(kind, recorded.space(), &[], seed);
        let mut play = recorded.play();
        while play.evaluations() < budget {
            let Some(candidate) = strategy.ask(1).pop() else { break };
            strategy.tell(candidate.id, play.measure(&candidate.config));
        }
        play.best_s().unwrap_or(f64::INFINITY)
    };
    let runs = |kind, budget| median((0..10).map(|seed| best(kind, budget, seed)).collect());
    let (ours, random) = (runs(StrategyKind::Gp, 60), runs(StrategyKind::Random, 300));
    let optimum = recorded.judge().optimum_s();
    let measured = format!(
        "{:.3} ms of 60, {:.3} ms of 300 random; best of all {} {:.3} ms",
        ours * 1e3,
        random * 1e3,
        recorded.len(),
        optimum * 1e3
    );
    Ok(Finding::of(recorded.len() >= 3000 && ours <= random, measured))
}

/// A log of asks and tells, replayed up to a cut into a fresh strategy, which must then go on as the first one did.
fn resume(_: &Lab) -> anyhow::Result<Finding> {
    const ASKS: usize = 60;
    const CUTS: usize = 100;
    let ground = replay::Synthetic::new(3)?;
    let space = Arc::clone(replay::Ground::space(&ground));
    let fresh = || replay::strategy(StrategyKind::Gp, &space, &[], 5);
    let mut play = replay::Ground::play(&ground);
    let mut log: Vec<(u64, search_space::Schedule, Told)> = Vec::new();
    let mut first = fresh();
    for _ in 0..ASKS {
        let candidate = first.ask(1).pop().context("a candidate")?;
        let told = play.measure(&candidate.config);
        first.tell(candidate.id, told);
        log.push((candidate.id, candidate.schedule, told));
    }
    let mut state = 0x9e37_79b9_u64;
    for _ in 0..CUTS {
        // Numbers as good as random from a counter.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let cut = usize::try_from((state >> 33) % (ASKS as u64 - 1))?;
        let mut resumed = fresh();
        for (at, (id, schedule, told)) in log.iter().take(ASKS.min(cut + 10)).enumerate() {
            let candidate = resumed.ask(1).pop().context("a candidate")?;
            ensure!(candidate.id == *id && candidate.schedule == *schedule, "after a cut at {cut}, ask {at} differs");
            resumed.tell(*id, *told);
        }
    }
    Ok(Finding::Met(format!("{CUTS} cuts of {ASKS} asks")))
}
