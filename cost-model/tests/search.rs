//! The model on a synthetic landscape: it ranks unseen configurations, is deterministic, and helps the search.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and its figures are worth a look"
)]

use std::sync::Arc;
use std::time::Instant;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use search_space::space::{Config, ParameterSpace, SpaceBuilder};
use search_space::strategy::{Bayes, Evolution, Model, RandomSearch, Row, Strategy, Told};
use tilewright_cost_model::{GaussianProcess, Prior, Source, Trees};

fn space() -> Arc<ParameterSpace> {
    let mut builder = SpaceBuilder::new();
    builder
        .param("mr", 1..=16)
        .param("nv", 1..=6)
        .param("mc", (1..=40).map(|i| i * 8))
        .param("nc", (1..=40).map(|i| i * 32))
        .param("kc", (1..=40).map(|i| i * 16))
        .names("order", &["jc.pc.ic", "jc.ic.pc", "ic.jc.pc", "pc.jc.ic"])
        .names("pack_a", &["no", "yes"])
        .names("pack_b", &["no", "yes"])
        .param("unroll", [1, 2, 4, 8])
        .names("tail", &["masked", "separate", "overlap"])
        .structural("order")
        .structural("pack_a")
        .structural("pack_b")
        .require("registers", "mr * nv + nv + 1 <= 32")
        .require("whole tiles", "mc % mr == 0")
        .require("whole panels", "nc % (nv * 16) == 0")
        .require("A in L2", "mc * kc * 4 <= 524288")
        .require("B in L3", "nc * kc * 4 <= 2097152");
    Arc::new(builder.build().unwrap())
}

/// Multiplicative penalties, as of register blocking, cache misses and packing.
fn log_seconds(space: &ParameterSpace, config: &Config) -> f64 {
    let schedule = space.schedule(config);
    let int = |name| schedule.int(name).unwrap() as f64;
    let is = |name, value| f64::from(u8::from(schedule.name(name) == Some(value)));
    let (mr, nv) = (int("mr"), int("nv"));
    let loads = (mr + nv) / (mr * nv);
    let block_a = (int("mc") * int("kc") / 40_000.0).log2();
    let block_b = (int("nc") * int("kc") / 150_000.0).log2();
    let reuse = 1.0 + 24.0 / int("kc");
    (0.3 + loads).ln()
        + 0.04 * block_a * block_a
        + 0.03 * block_b * block_b
        + reuse.ln()
        + 0.25 * (1.0 - is("pack_b", "yes")) * (int("nc") / 320.0).log2().max(0.0)
        + 0.15 * is("pack_a", "no") * is("order", "jc.pc.ic")
        + 0.1 * is("order", "pc.jc.ic")
        + 0.05 * (int("unroll").log2() - 2.0).abs()
        + 0.03 * is("tail", "separate")
}

fn rows(known: &[(Config, f64)]) -> Vec<Row> {
    let told = |log: f64| Some(Told::Time { seconds: log.exp() });
    known.iter().map(|(config, log)| Row { config: config.clone(), told: told(*log) }).collect()
}

fn sampled(space: &ParameterSpace, count: usize, seed: u64) -> Vec<(Config, f64)> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let row = |config: Config| (config.clone(), log_seconds(space, &config));
    (0..count).map(|_| row(space.sample(&mut rng, 1.0))).collect()
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    order.iter().enumerate().for_each(|(rank, &at)| ranks[at] = rank as f64);
    ranks
}

fn spearman(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (ranks(a), ranks(b));
    let mean = (a.len() as f64 - 1.0) / 2.0;
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| (x - mean) * (y - mean)).sum::<f64>();
    dot(&a, &b) / (dot(&a, &a) * dot(&b, &b)).sqrt()
}

#[test]
fn unseen_configurations_are_ranked() {
    ranked(|| Box::new(Trees::new()), 0.7);
    ranked(|| Box::new(GaussianProcess::new()), 0.85);
}

/// Spearman's rank correlation on 500 unseen configurations, after 128 known ones, is at least `least`.
fn ranked(new: impl Fn() -> Box<dyn Model>, least: f64) {
    let space = space();
    let mut worst = 1.0f64;
    for seed in 0..5 {
        let (known, unseen) = (sampled(&space, 128, seed), sampled(&space, 500, seed + 100));
        let mut model = new();
        assert!(model.predict(&space, std::slice::from_ref(&known[0].0)).is_none());
        let start = Instant::now();
        model.learn(&space, &rows(&known));
        let fit = start.elapsed();
        let configs: Vec<Config> = unseen.iter().map(|row| row.0.clone()).collect();
        let start = Instant::now();
        let predicted = model.predict(&space, &configs).unwrap();
        let truth: Vec<f64> = unseen.iter().map(|row| row.1).collect();
        let rho = spearman(&predicted.iter().map(|p| p.mean).collect::<Vec<_>>(), &truth);
        println!("seed {seed}: Spearman {rho:.3}, fit {fit:?}, 500 predictions {:?}", start.elapsed());
        worst = worst.min(rho);
        let mut again = new();
        again.learn(&space, &rows(&known));
        assert_eq!(again.predict(&space, &configs).unwrap(), predicted);
    }
    assert!(worst > least, "{worst}");
}

#[test]
fn nothing_to_learn_is_no_prediction() {
    let space = space();
    let config = space.unrank(0).unwrap();
    let mut model = Trees::new();
    model.learn(&space, &[]);
    assert_eq!(model.predict(&space, std::slice::from_ref(&config)), None);
    model.learn(&space, &[Row { config: config.clone(), told: None }]);
    assert_eq!(model.predict(&space, std::slice::from_ref(&config)), None);
    model.learn(&space, &rows(&[(config.clone(), -3.0)]));
    assert_eq!(model.predict(&space, &[config]).unwrap().len(), 1);
}

fn best_of(space: &ParameterSpace, mut strategy: impl Strategy, trials: usize, batch: usize) -> f64 {
    let (mut best, mut left) = (f64::INFINITY, trials);
    while left > 0 {
        for candidate in strategy.ask(left.min(batch)) {
            let log = log_seconds(space, &candidate.config);
            best = best.min(log);
            strategy.tell(candidate.id, Told::Time { seconds: log.exp() });
            left -= 1;
        }
    }
    best
}

#[test]
fn the_model_helps_the_search() {
    let space = space();
    let seeds = 20u32;
    let mean = |run: &dyn Fn(u64) -> f64| (0..u64::from(seeds)).map(run).sum::<f64>() / f64::from(seeds);
    let random = mean(&|seed| best_of(&space, RandomSearch::new(space.clone(), None, seed), 100, 16));
    let plain = mean(&|seed| best_of(&space, Evolution::new(space.clone(), None, None, seed), 100, 16));
    let start = Instant::now();
    let guided =
        mean(&|seed| best_of(&space, Evolution::new(space.clone(), None, Some(Box::new(Trees::new())), seed), 100, 16));
    let each = start.elapsed() / (seeds * 100);
    let bayes = |seed| Bayes::new(space.clone(), None, Box::new(GaussianProcess::new()), Box::new(Trees::new()), seed);
    let start = Instant::now();
    let process = mean(&|seed| best_of(&space, bayes(seed), 60, 1));
    let each_process = start.elapsed() / (seeds * 60);
    println!(
        "mean ln(best of 100): random {random:.3}, evolution {plain:.3}, with trees {guided:.3} ({each:?} a trial); \
         of 60: Gaussian process {process:.3} ({each_process:?} a trial)"
    );
    assert!(guided < random - 0.05 && guided < plain);
    assert!(process < guided, "60 trials of it are worth more than 100");
}

#[test]
fn other_sources_help_and_wrong_ones_cost_little() {
    let space = space();
    // Another device: the same landscape on another scale.
    let source = |seed: u64, wrong: bool| {
        let mut known = sampled(&space, 400, seed);
        if wrong {
            let logs: Vec<f64> = known.iter().rev().map(|row| row.1).collect();
            known.iter_mut().zip(logs).for_each(|(row, log)| row.1 = log);
        }
        let rows = rows(&known.into_iter().map(|(config, log)| (config, 1.3 * log + 2.0)).collect::<Vec<_>>());
        Source { rows, likeness: 1.0 }
    };
    let bayes = |prior: Option<Prior>, seed: u64| {
        let search = Bayes::new(space.clone(), None, Box::new(GaussianProcess::new()), Box::new(Trees::new()), seed);
        match prior {
            None => search,
            Some(prior) => {
                let fastest = prior.fastest().to_vec();
                search.with_prior(Box::new(GaussianProcess::with_prior(prior)), fastest)
            }
        }
    };
    let seeds = 6u32;
    let mean = |trials: usize, prior: &dyn Fn(u64) -> Option<Prior>| {
        let run = |seed: u64| best_of(&space, bayes(prior(seed), seed), trials, 1);
        (0..u64::from(seeds)).map(run).sum::<f64>() / f64::from(seeds)
    };
    let right = |seed: u64| Prior::new(&space, &[source(seed + 50, false)]);
    let wrong = |seed: u64| Prior::new(&space, &[source(seed + 50, true)]);
    let (informed, cold) = (mean(4, &right), mean(4, &|_| None));
    let (misled, late) = (mean(60, &wrong), mean(60, &|_| None));
    println!("ln(best of 4): {informed:.3}, cold {cold:.3}; ln(best of 60): misled {misled:.3}, cold {late:.3}");
    assert!(informed < cold - 0.1, "{informed} {cold}");
    assert!(misled < late + 0.03, "{misled} {late}");
}

#[test]
fn what_is_expected_to_be_gained_falls_as_the_search_settles() {
    let space = space();
    let mut search = Bayes::new(space.clone(), None, Box::new(GaussianProcess::new()), Box::new(Trees::new()), 1);
    let mut gains = Vec::new();
    for _ in 0..120 {
        let candidate = search.ask(1).remove(0);
        gains.push(search.expected_gain());
        search.tell(candidate.id, Told::Time { seconds: log_seconds(&space, &candidate.config).exp() });
    }
    assert_eq!(gains[0], None, "nothing is known at the start");
    let mean = |gains: &[Option<f64>]| gains.iter().flatten().sum::<f64>() / gains.len() as f64;
    let (early, late) = (mean(&gains[10..20]), mean(&gains[110..]));
    assert!(gains[10..].iter().all(|gain| gain.is_some_and(|gain| (0.0..1.0).contains(&gain))), "{gains:?}");
    assert!(early > 0.02 && late < early / 4.0, "{early} {late}");
}
