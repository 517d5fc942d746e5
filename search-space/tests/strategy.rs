//! Strategies: determinism, replay, exhaustion, use of failures, and that evolution beats random.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use tilewright_search_space::Outcome;
use tilewright_search_space::space::{Config, ParameterSpace, SpaceBuilder};
use tilewright_search_space::strategy::{
    Annealing, Bayes, Candidate, Evolution, Genetic, Model, Prediction, RandomSearch, Row, Strategy, Told,
};

fn space() -> Arc<ParameterSpace> {
    let mut builder = SpaceBuilder::new();
    builder
        .param("mr", 1..=16)
        .param("nv", 1..=6)
        .param("mc", (1..=40).map(|i| i * 8))
        .param("kc", (1..=40).map(|i| i * 16))
        .names("order", &["jc.pc.ic", "jc.ic.pc", "ic.jc.pc", "pc.jc.ic"])
        .names("pack", &["no", "yes"])
        .param("unroll", [1, 2, 4, 8])
        .structural("order")
        .structural("pack")
        .require("registers", "mr * nv + nv + 1 <= 32")
        .require("whole tiles", "mc % mr == 0")
        .require("cache", "mc * kc * 4 <= 262144")
        .require("pack pays", "pack == 'yes' => kc >= 64");
    Arc::new(builder.build().unwrap())
}

/// A smooth synthetic time with interactions.
fn seconds(space: &ParameterSpace, config: &Config) -> f64 {
    let schedule = space.schedule(config);
    let int = |name| schedule.int(name).unwrap() as f64;
    let off = |name, best: f64| (int(name) / best).log2().abs();
    let pack = if schedule.name("pack") == Some("yes") { 0.8 } else { 1.0 + int("kc") / 640.0 };
    let order = if schedule.name("order") == Some("pc.jc.ic") { 0.9 } else { 1.2 };
    1e-3 * pack * order * (1.0 + 0.3 * off("mr", 6.0) + 0.4 * off("nv", 4.0) + 0.1 * off("mc", 96.0) * off("kc", 256.0))
}

/// The nearest measured configuration: crude, but learned and deterministic.
#[derive(Default)]
struct NearestRow(Vec<(Config, f64)>);

fn log_seconds(row: &Row) -> Option<f64> {
    match row.told? {
        Told::Time { seconds } | Told::Censored { at_least_seconds: seconds } => Some(seconds.ln()),
        Told::Failed(_) => None,
    }
}

impl Model for NearestRow {
    fn learn(&mut self, _: &ParameterSpace, rows: &[Row]) {
        self.0 = rows.iter().filter_map(|row| Some((row.config.clone(), log_seconds(row)?))).collect();
    }

    fn predict(&mut self, space: &ParameterSpace, configs: &[Config]) -> Option<Vec<Prediction>> {
        let distance =
            |a: &Config, b: &Config| -> f64 { (0..a.len()).map(|at| space.params()[at].distance(a[at], b[at])).sum() };
        let predict = |config: &Config| {
            let nearest = self.0.iter().min_by(|a, b| distance(&a.0, config).total_cmp(&distance(&b.0, config)));
            let (nearest, mean) = nearest.unwrap();
            Prediction { mean: *mean, deviation: 0.1 * distance(nearest, config), noise: 0.0, success: 1.0 }
        };
        (!self.0.is_empty()).then(|| configs.iter().map(predict).collect())
    }

    fn best(&self) -> Option<f64> {
        self.0.iter().map(|row| row.1).reduce(f64::min)
    }

    fn seconds(&self, value: f64) -> Option<f64> {
        Some(value.exp())
    }
}

fn bayes(space: &Arc<ParameterSpace>, default: Option<Config>, seed: u64) -> Bayes {
    Bayes::new(space.clone(), default, Box::new(NearestRow::default()), Box::new(NearestRow::default()), seed)
}

fn strategies(space: &Arc<ParameterSpace>, seed: u64) -> [Box<dyn Strategy>; 6] {
    let default = space.unrank(space.count() / 2);
    [
        Box::new(RandomSearch::new(space.clone(), default.clone(), seed)),
        Box::new(Evolution::new(space.clone(), default.clone(), None, seed)),
        Box::new(Evolution::new(space.clone(), default.clone(), Some(Box::new(NearestRow::default())), seed)),
        Box::new(Genetic::new(space.clone(), default.clone(), seed)),
        Box::new(Annealing::new(space.clone(), default.clone(), seed)),
        Box::new(bayes(space, default, seed)),
    ]
}

fn answer(space: &ParameterSpace, candidate: &Candidate) -> Told {
    let seconds = seconds(space, &candidate.config);
    match candidate.id % 7 {
        3 => Told::Failed(Outcome::Wrong),
        5 => Told::Censored { at_least_seconds: seconds / 2.0 },
        _ => Told::Time { seconds },
    }
}

#[test]
fn replaying_the_log_gives_the_same_next_candidates() {
    let space = space();
    for which in 0..6 {
        let mut original = strategies(&space, 5).into_iter().nth(which).unwrap();
        let mut log: Vec<(usize, Vec<(u64, Told)>)> = Vec::new();
        for round in 0..12 {
            let n = [16, 1, 5][round % 3];
            let mut tells: Vec<(u64, Told)> =
                original.ask(n).iter().map(|candidate| (candidate.id, answer(&space, candidate))).collect();
            // Answers may come late and out of order.
            tells.reverse();
            tells.iter().for_each(|&(id, told)| original.tell(id, told));
            log.push((n, tells));
        }
        let mut resumed = strategies(&space, 5).into_iter().nth(which).unwrap();
        // Time to think, at any moment, changes nothing.
        for (round, (n, tells)) in log.iter().enumerate() {
            resumed.ask(*n);
            if round % 2 == 0 {
                resumed.think();
            }
            for (at, &(id, told)) in tells.iter().enumerate() {
                resumed.tell(id, told);
                if at % 4 == round % 4 {
                    resumed.think();
                }
            }
        }
        let next = original.ask(16);
        assert_eq!(next, resumed.ask(16), "{}", original.name());
        let other = strategies(&space, 6).into_iter().nth(which).unwrap().ask(16);
        assert_ne!(
            next.iter().map(|c| &c.config).collect::<Vec<_>>(),
            other.iter().map(|c| &c.config).collect::<Vec<_>>()
        );
    }
}

#[test]
fn the_default_comes_first_and_every_structural_value_is_started_with() {
    let space = space();
    for mut strategy in strategies(&space, 1) {
        let first = strategy.ask(1);
        assert_eq!(Some(&first[0].config), space.unrank(space.count() / 2).as_ref(), "{}", strategy.name());
    }
    for seed in 0..20 {
        let start = Evolution::new(space.clone(), None, None, seed).ask(16);
        for param in [4, 5] {
            let shown: BTreeSet<u16> = start.iter().map(|candidate| candidate.config[param]).collect();
            assert_eq!(shown.len(), space.params()[param].values.len());
        }
    }
}

#[test]
fn a_start_with_a_default_changes_its_structure_alone() {
    let space = space();
    let default = space.unrank(space.count() / 2).unwrap();
    let start = Evolution::new(space.clone(), Some(default.clone()), None, 3).ask(16);
    // Three other orders and one other packing.
    let mut shown = BTreeSet::new();
    for candidate in &start[1..5] {
        let structure = [4, 5].into_iter().find(|&at| candidate.config[at] != default[at]).unwrap();
        let mut fixed = vec![None; structure + 1];
        fixed[structure] = Some(candidate.config[structure]);
        assert_eq!(Some(&candidate.config), space.nearest(&default, &[], &fixed).as_ref());
        shown.insert((structure, candidate.config[structure]));
    }
    assert_eq!(shown.len(), 4);
    assert!(start[5..].iter().any(|candidate| candidate.config[..4] != default[..4]));
}

#[test]
fn a_structural_value_is_started_with_where_the_space_says() {
    let mut builder = SpaceBuilder::new();
    builder.names("form", &["a", "b", "c"]).structural("form").param("x", 1..=1000).param("y", 1..=1000);
    let mut space = builder.build().unwrap();
    let schedule = |form: &str, x: i64, y: i64| {
        let values = [("form", form.into()), ("x", x.into()), ("y", y.into())];
        values.into_iter().collect::<tilewright_search_space::Schedule>()
    };
    let default = space.config(&schedule("a", 1, 1)).unwrap();
    // One that is no member is left out.
    space.start_from([schedule("b", 700, 800), schedule("c", 5, 2000)]);
    assert_eq!(space.starts().len(), 1);
    let space = Arc::new(space);
    let mut search = bayes(&space, Some(default), 1);
    let first: BTreeSet<String> = (0..3).map(|_| search.ask(1)[0].schedule.to_string()).collect();
    let wanted = [schedule("a", 1, 1), schedule("b", 700, 800), schedule("c", 1, 1)];
    assert_eq!(first, wanted.iter().map(ToString::to_string).collect());
}

#[test]
fn a_default_outside_the_space_is_repaired() {
    let space = space();
    let outside = Config::from(vec![15, 5, 39, 39, 0, 1, 0]);
    assert_eq!(space.why(&outside), Some("registers"));
    let first = Evolution::new(space.clone(), Some(outside.clone()), None, 1).ask(1).remove(0);
    assert_eq!(Some(first.config), space.nearest(&outside, &[], &[]));
}

#[test]
fn a_small_space_is_asked_for_completely_and_once() {
    let mut builder = SpaceBuilder::new();
    builder.param("a", 1..=8).param("b", 1..=8).names("c", &["x", "y"]).structural("c").require("r", "a * b <= 20");
    let space = Arc::new(builder.build().unwrap());
    for mut strategy in strategies(&space, 9) {
        let mut seen = BTreeSet::new();
        loop {
            let batch = strategy.ask(7);
            if batch.is_empty() {
                break;
            }
            for candidate in batch {
                assert_eq!(candidate.id, seen.len() as u64);
                assert!(space.contains(&candidate.config) && space.config(&candidate.schedule).is_ok());
                strategy.tell(candidate.id, Told::Time { seconds: 1.0 + candidate.id as f64 });
                assert!(seen.insert(candidate.config), "{} repeats", strategy.name());
            }
        }
        assert_eq!(seen.len() as u128, space.count(), "{}", strategy.name());
        assert!(strategy.ask(1).is_empty());
    }
}

fn best_of(space: &ParameterSpace, strategy: &mut dyn Strategy, trials: usize) -> f64 {
    let mut best = f64::INFINITY;
    let mut left = trials;
    while left > 0 {
        for candidate in strategy.ask(left.min(16)) {
            let seconds = seconds(space, &candidate.config);
            best = best.min(seconds);
            strategy.tell(candidate.id, Told::Time { seconds });
            left -= 1;
        }
    }
    best
}

#[test]
fn what_learns_beats_random() {
    let space = space();
    let mut total = [0.0; 5];
    for seed in 0..20 {
        // The last needs a model that is faster than the one here: see the cost model's tests.
        for (sum, mut strategy) in total.iter_mut().zip(strategies(&space, seed)).take(5) {
            *sum += best_of(&space, strategy.as_mut(), 100).ln() / 20.0;
        }
    }
    println!("mean ln(best of 100): random, evolution, evolution with a model, ga, annealing {total:.3?}");
    assert!(total[1..].iter().all(|&learned| learned < total[0] - 0.02));
}

#[test]
fn a_space_in_which_nothing_works_is_asked_for_completely() {
    let mut builder = SpaceBuilder::new();
    builder.param("a", 1..=9).param("b", 1..=9).require("r", "a + b <= 12");
    let space = Arc::new(builder.build().unwrap());
    for mut strategy in strategies(&space, 2) {
        let mut asked = 0;
        while let Some(candidate) = strategy.ask(1).pop() {
            let censored = Told::Censored { at_least_seconds: 1e-9 };
            strategy.tell(candidate.id, if asked % 2 == 0 { Told::Failed(Outcome::Crash) } else { censored });
            asked += 1;
        }
        assert_eq!(asked, space.count(), "{}", strategy.name());
    }
}

#[test]
fn failed_and_censored_candidates_are_no_parents() {
    // Half the space fails; its members look best by their neighbours' times otherwise.
    let space = space();
    let mut strategy = Evolution::new(space.clone(), None, None, 4);
    let mut failed_late = 0;
    for round in 0..12 {
        for candidate in strategy.ask(16) {
            let packed = candidate.schedule.name("pack") == Some("yes");
            failed_late += usize::from(packed && round >= 6);
            let told = match (packed, candidate.id % 2) {
                (false, _) => Told::Time { seconds: seconds(&space, &candidate.config) },
                (true, 0) => Told::Failed(Outcome::Crash),
                (true, _) => Told::Censored { at_least_seconds: 1e-9 },
            };
            strategy.tell(candidate.id, told);
        }
    }
    // Mutation still tries it now and then; as parents they would fill half of the batches.
    assert!(failed_late < 96 / 3, "{failed_late} of 96");
}

#[test]
fn unsound_reports_are_ignored() {
    let space = space();
    let [mut sound, mut spoilt] = [0, 1].map(|_| strategies(&space, 4).into_iter().nth(2).unwrap());
    for strategy in [&mut sound, &mut spoilt] {
        for candidate in strategy.ask(16).iter().skip(5) {
            strategy.tell(candidate.id, Told::Time { seconds: seconds(&space, &candidate.config) });
        }
    }
    for (id, seconds) in [(0, f64::NAN), (1, -1.0), (2, 0.0), (3, f64::INFINITY)] {
        spoilt.tell(id, Told::Time { seconds });
        spoilt.tell(id, Told::Censored { at_least_seconds: seconds });
    }
    // A second report on one candidate, and candidates that were never asked for.
    for id in [9, 16, 99, u64::MAX] {
        spoilt.tell(id, Told::Time { seconds: 1e-12 });
    }
    for _ in 0..3 {
        let next = sound.ask(16);
        assert_eq!(next, spoilt.ask(16));
        for candidate in next {
            let told = Told::Time { seconds: seconds(&space, &candidate.config) };
            sound.tell(candidate.id, told);
            spoilt.tell(candidate.id, told);
        }
    }
}

/// A model that answers nonsense.
struct Broken(usize);

impl Model for Broken {
    fn learn(&mut self, _: &ParameterSpace, _: &[Row]) {}

    fn predict(&mut self, _: &ParameterSpace, configs: &[Config]) -> Option<Vec<Prediction>> {
        Some(vec![
            Prediction { mean: f64::NAN, deviation: f64::NAN, noise: f64::NAN, success: f64::NAN };
            configs.len() * self.0
        ])
    }

    fn best(&self) -> Option<f64> {
        Some(f64::NAN)
    }

    fn seconds(&self, _: f64) -> Option<f64> {
        None
    }
}

#[test]
fn a_broken_model_does_not_stop_the_search() {
    let space = space();
    for scores_per_config in [0, 1, 2] {
        let mut strategy = Evolution::new(space.clone(), None, Some(Box::new(Broken(scores_per_config))), 3);
        for _ in 0..4 {
            let batch = strategy.ask(16);
            assert_eq!(batch.len(), 16);
            for candidate in batch {
                strategy.tell(candidate.id, Told::Time { seconds: seconds(&space, &candidate.config) });
            }
        }
    }
}

/// Remembers what it was shown.
struct Spy(Arc<Mutex<Vec<Row>>>);

impl Model for Spy {
    fn learn(&mut self, _: &ParameterSpace, rows: &[Row]) {
        *self.0.lock().unwrap() = rows.to_vec();
    }

    fn predict(&mut self, _: &ParameterSpace, _: &[Config]) -> Option<Vec<Prediction>> {
        None
    }

    fn best(&self) -> Option<f64> {
        None
    }

    fn seconds(&self, _: f64) -> Option<f64> {
        None
    }
}

#[test]
fn the_model_sees_every_candidate_in_the_order_of_asking() {
    let space = space();
    let shown = Arc::new(Mutex::new(Vec::new()));
    let mut strategy = Evolution::new(space, None, Some(Box::new(Spy(shown.clone()))), 3);
    let asked = strategy.ask(16);
    let told = |id: u64| match id {
        2 => Some(Told::Failed(Outcome::Timeout)),
        3 => Some(Told::Censored { at_least_seconds: 0.25 }),
        4 => None,
        id => Some(Told::Time { seconds: 1e-3 * (id + 1) as f64 }),
    };
    for candidate in asked.iter().rev() {
        told(candidate.id).into_iter().for_each(|told| strategy.tell(candidate.id, told));
    }
    strategy.ask(16);
    let wanted = |candidate: &Candidate| Row { config: candidate.config.clone(), told: told(candidate.id) };
    assert_eq!(*shown.lock().unwrap(), asked.iter().map(wanted).collect::<Vec<_>>());
}
