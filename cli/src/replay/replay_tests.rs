//! Replays: what counts, what strategies cannot get for free, and that nothing but the seed decides.

use std::collections::BTreeMap;

use search_space::space::SpaceBuilder;
use search_space::strategy::{Candidate, Row};
use search_space::{Outcome, Recorded, Schedule, Value};

use super::*;

const ALL: [StrategyKind; 5] =
    [StrategyKind::Gp, StrategyKind::Evolution, StrategyKind::Random, StrategyKind::Genetic, StrategyKind::Annealing];

/// A kernel of some 300 schedules, of which one in six fails; `slow` makes another device of it.
fn recorded(name: &str, slow: f64) -> RecordedSpace {
    let mut builder = SpaceBuilder::new();
    let rows = |builder: &SpaceBuilder| {
        let space = builder.build().unwrap();
        (0..space.count()).map(|rank| space.unrank(rank).unwrap()).collect::<Vec<Config>>()
    };
    builder.param("tile", [1, 2, 4, 8, 16, 32]).param("unroll", 1..=10).names("order", &["ij", "ji", "blocked"]);
    builder.param("stages", [1, 2]).require("fits", "tile * unroll <= 100");
    let configs = rows(&builder);
    builder.table(configs.iter().map(|config| config.to_vec()).collect());
    let result = |config: &Config| {
        let at = |param: usize| f64::from(config[param]);
        let failed = config[2] == 1 && config[0].is_multiple_of(2);
        let log = slow * (at(0) - 3.0).powi(2) / 9.0 + (at(1) - 5.0).abs() / 9.0 + at(2) / 3.0 + at(3) * at(1) / 30.0;
        let seconds = (!failed).then(|| 1e-3 * log.exp());
        let outcome = if failed { Outcome::CompileError } else { Outcome::Ok };
        Recorded { outcome, seconds, at_least_seconds: None, cost: Duration::from_millis(500) }
    };
    let rows = configs.iter().map(|config| (config.clone(), result(config))).collect();
    RecordedSpace::new(name, "toy", name, builder.build().unwrap(), rows).unwrap()
}

fn settings(strategy: StrategyKind) -> Settings {
    Settings { strategy, budget: 40, seeds: 3..11, batch: 1, stop_gain: 0.0, prior_rows: 50, threads: 2 }
}

fn run(ground: &dyn Ground, settings: &Settings) -> Replayed {
    replay(ground, &[], settings, &Stop::new(), &|_| {}).unwrap()
}

/// The traces, without the processor time that no two runs share.
fn traces(replayed: &Replayed) -> Vec<(Vec<Option<f64>>, Duration)> {
    replayed.runs.iter().map(|run| (run.best_s.clone(), run.clock)).collect()
}

/// Answers with a fixed list, whatever it is asked or told.
struct Fixed {
    space: Arc<ParameterSpace>,
    list: Vec<Config>,
    next: usize,
    /// Answers with everything at once.
    greedy: bool,
}

impl Strategy for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn ask(&mut self, n: usize) -> Vec<Candidate> {
        let n = if self.greedy { usize::MAX } else { n };
        let batch = self.list[self.next..].iter().take(n);
        let batch: Vec<Candidate> = (self.next as u64..)
            .zip(batch)
            .map(|(id, config)| Candidate { id, config: config.clone(), schedule: self.space.schedule(config) })
            .collect();
        self.next += batch.len();
        batch
    }

    fn tell(&mut self, _: u64, _: Told) {}
}

fn fixed(ground: &RecordedSpace, list: &[Config], greedy: bool, budget: usize) -> Replayed {
    let settings = Settings { budget, seeds: 0..1, ..settings(StrategyKind::Random) };
    let make = |_| -> Box<dyn Strategy> {
        Box::new(Fixed { space: ground.space().clone(), list: list.to_vec(), next: 0, greedy })
    };
    replay_with(ground, &make, 0, &settings, &Stop::new(), &|_| {}).unwrap()
}

#[test]
fn the_same_seeds_give_the_same_searches_on_any_number_of_threads() {
    let ground = recorded("toy-a", 1.0);
    for strategy in ALL {
        let alone = run(&ground, &Settings { threads: 1, ..settings(strategy) });
        let together = run(&ground, &Settings { threads: 5, ..settings(strategy) });
        assert_eq!(traces(&alone), traces(&together), "{}", strategy.as_str());
        assert_eq!((&alone.score.frac, alone.score.p_low), (&together.score.frac, together.score.p_low));
        // The seeds count on from the first.
        let later = run(&ground, &Settings { seeds: 5..11, ..settings(strategy) });
        assert_eq!(traces(&later), traces(&alone)[2..]);
        assert!(alone.runs.iter().all(|run| run.best_s.len() == 40 && run.clock == Duration::from_secs(20)));
        assert!(alone.runs.iter().all(|run| run.best_s[39] == run.best_s.iter().copied().flatten().reduce(f64::min)));
    }
}

#[test]
fn names_tell_strategies_nothing() {
    let plain = recorded("toy-a", 1.0);
    for strategy in ALL {
        let anonymous = disguised(recorded("toy-a", 1.0), Disguise { anonymous: true, ordinals: false }).unwrap();
        assert_eq!(anonymous.space().params()[2].name, "p2");
        assert_eq!(anonymous.space().constraints()[0].text, "p0 * p1 <= 100");
        assert_eq!(traces(&run(&plain, &settings(strategy))), traces(&run(&anonymous, &settings(strategy))));
        let ordinals = disguised(recorded("toy-a", 1.0), Disguise { anonymous: false, ordinals: true }).unwrap();
        assert_eq!(ordinals.space().params()[0].values, (0..6).map(Value::Int).collect::<Vec<_>>());
        assert_eq!((ordinals.len(), ordinals.space().constraints().len()), (plain.len(), 0));
        assert_eq!(run(&ordinals, &settings(strategy)).optimum_s, plain.judge().optimum_s());
    }
}

#[test]
fn failures_cost_evaluations() {
    let ground = recorded("toy-a", 1.0);
    let (failing, working): (Vec<_>, Vec<_>) = ground.rows().partition(|(_, row)| row.seconds.is_none());
    let configs = |rows: &[(Config, &Recorded)]| rows.iter().map(|(config, _)| config.clone()).collect::<Vec<_>>();
    let mut list = configs(&failing[..7]);
    list.extend(configs(&working[..5]));
    let replayed = fixed(&ground, &list, false, 200);
    assert_eq!(replayed.runs[0].best_s.len(), 12);
    assert_eq!(replayed.runs[0].best_s.iter().filter(|best| best.is_none()).count(), 7);
    assert_eq!(replayed.runs[0].clock, Duration::from_secs(6));
    // @5 lies within the failures.
    assert_eq!(replayed.score.frac[1], (5, 0.0));
    let spared = fixed(&ground, &list[7..], false, 200);
    assert!(spared.score.p > replayed.score.p);
}

#[test]
fn repeats_neither_count_nor_go_on_for_ever() {
    let ground = recorded("toy-a", 1.0);
    let list: Vec<Config> = ground.rows().take(8).map(|(config, _)| config).collect();
    let twice: Vec<Config> = list.iter().flat_map(|config| [config.clone(), list[0].clone(), config.clone()]).collect();
    assert_eq!(traces(&fixed(&ground, &list, false, 6)), traces(&fixed(&ground, &twice, false, 6)));
    let stuck = fixed(&ground, &vec![list[0].clone(); 3 * MOST_REPEATS], false, 6);
    assert_eq!(stuck.runs[0].best_s.len(), 1);
}

#[test]
fn nobody_measures_more_than_the_budget() {
    let ground = recorded("toy-a", 1.0);
    let list: Vec<Config> = ground.rows().map(|(config, _)| config).collect();
    let greedy = fixed(&ground, &list, true, 6);
    // Asked for one at a time it may answer with all it has: one is measured, the rest was never asked for.
    assert_eq!(greedy.runs[0].best_s.len(), 1);
    for batch in [1, 7, 64] {
        let batched = run(&ground, &Settings { batch, ..settings(StrategyKind::Random) });
        assert!(batched.runs.iter().all(|run| run.best_s.len() == 40), "batches of {batch}");
    }
}

#[test]
fn a_small_space_is_searched_to_its_end() {
    let ground = recorded("toy-a", 1.0);
    for strategy in ALL {
        let all = run(&ground, &Settings { budget: 100_000, seeds: 0..2, ..settings(strategy) });
        assert!(all.runs.iter().all(|run| run.best_s.len() == ground.len()), "{}", strategy.as_str());
        assert!(all.runs.iter().all(|run| run.best_s[ground.len() - 1] == Some(all.optimum_s)));
        assert_eq!(all.score.hit1, 1.0);
    }
}

#[test]
fn random_draws_score_like_random_draws() {
    let ground = recorded("toy-a", 1.0);
    let random = run(&ground, &Settings { seeds: 0..300, ..settings(StrategyKind::Random) });
    assert!(random.score.p.unwrap().abs() < 0.1, "{:?}", random.score);
}

#[test]
fn a_replay_can_be_stopped() {
    let stop = Stop::new();
    let ground = recorded("toy-a", 1.0);
    let done = |_| {
        stop.ask();
    };
    assert_eq!(replay(&ground, &[], &settings(StrategyKind::Random), &stop, &done), None);
    assert_eq!(
        replay(&ground, &[], &Settings { seeds: 4..4, ..settings(StrategyKind::Random) }, &Stop::new(), &|_| {}),
        None
    );
}

/// Another device's records, with the parameters in another order, one more tile and one less order.
fn foreign() -> RecordedSpace {
    let mut builder = SpaceBuilder::new();
    builder.names("order", &["blocked", "ij"]).param("unroll", 1..=10).param("stages", [1, 2]);
    builder.param("tile", [1, 2, 4, 8, 16, 32, 64]).param("vector", [1]);
    let space = builder.build().unwrap();
    let row = |rank| {
        let seconds = 1.0 + rank as f64;
        let cost = Duration::ZERO;
        let recorded = Recorded { outcome: Outcome::Ok, seconds: Some(seconds), at_least_seconds: None, cost };
        (space.unrank(rank).unwrap(), recorded)
    };
    let rows = (0..space.count()).map(row).collect();
    RecordedSpace::new("toy-b", "toy", "b", builder.build().unwrap(), rows).unwrap()
}

fn seconds(row: &Row) -> u64 {
    let Some(Told::Time { seconds }) = row.told else { panic!("{row:?} has no time") };
    seconds.to_bits()
}

#[test]
fn priors_are_matched_by_names_and_values() {
    let (ground, source) = (recorded("toy-a", 1.0), foreign());
    let prior = Prior::of(&source, ground.space()).unwrap();
    let theirs: BTreeMap<u64, Schedule> =
        source.rows().map(|(config, row)| (row.seconds.unwrap().to_bits(), source.space().schedule(&config))).collect();
    let rows = prior.draw(100, 5, 0);
    // Of seven tiles one is unknown here.
    assert!((70..100).contains(&rows.len()), "{}", rows.len());
    for row in &rows {
        let (own, their) = (ground.space().schedule(&row.config), &theirs[&seconds(row)]);
        for name in ["tile", "unroll", "order", "stages"] {
            assert_eq!(own.get(name), their.get(name));
        }
    }
    assert_eq!(prior.draw(10_000, 5, 0).len(), source.len() * 6 / 7);
    assert_eq!(rows, prior.draw(100, 5, 0));
    assert_ne!(rows, prior.draw(100, 6, 0));
    assert_ne!(rows, prior.draw(100, 5, 1));
}

#[test]
fn shuffled_priors_are_wrong() {
    let (ground, source) = (recorded("toy-a", 1.0), foreign());
    let right = Prior::of(&source, ground.space()).unwrap().draw(10_000, 5, 0);
    let wrong = Prior::of(&source, ground.space()).unwrap().shuffled(true).draw(10_000, 5, 0);
    let truth: BTreeMap<&Config, u64> = right.iter().map(|row| (&row.config, seconds(row))).collect();
    assert!(wrong.iter().filter(|row| truth[&row.config] == seconds(row)).count() < right.len() / 20);
}

#[test]
fn another_kernel_is_no_prior() {
    let ground = recorded("toy-a", 1.0);
    let other = |build: &dyn Fn(&mut SpaceBuilder)| {
        let mut builder = SpaceBuilder::new();
        build(&mut builder);
        let space = builder.build().unwrap();
        let cost = Duration::ZERO;
        let recorded = Recorded { outcome: Outcome::Ok, seconds: Some(1.0), at_least_seconds: None, cost };
        let rows = (0..space.count()).map(|rank| (space.unrank(rank).unwrap(), recorded)).collect();
        let source = RecordedSpace::new("other", "other", "b", space, rows).unwrap();
        Prior::of(&source, ground.space()).is_some()
    };
    let same = |b: &mut SpaceBuilder| {
        b.param("tile", [1, 2]).param("unroll", [1]).names("order", &["ij"]).param("stages", [1]);
    };
    assert!(other(&same));
    // One parameter more, one less, and no value in common.
    assert!(!other(&|b| {
        same(b);
        b.param("vector", [1, 2]);
    }));
    assert!(!other(&|b| {
        b.param("tile", [1, 2]).param("unroll", [1]).names("order", &["ij"]);
    }));
    assert!(!other(&|b| {
        b.param("tile", [3, 5]).param("unroll", [1]).names("order", &["ij"]).param("stages", [1]);
    }));
}
