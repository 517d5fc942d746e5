//! Recorded spaces: what they refuse, and that a replay is fair.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tilewright_search_space::space::{Config, ParameterSpace, SpaceBuilder};
use tilewright_search_space::strategy::Told;
use tilewright_search_space::{Outcome, Recorded, RecordedError, RecordedSpace};

fn space() -> ParameterSpace {
    SpaceBuilder::new().param("a", [1, 2, 4]).param("b", [1, 2]).require("not both", "a * b < 8").build().unwrap()
}

fn ok(seconds: f64) -> Recorded {
    Recorded { outcome: Outcome::Ok, seconds: Some(seconds), at_least_seconds: None, cost: Duration::from_millis(10) }
}

fn failed(outcome: Outcome) -> Recorded {
    Recorded { outcome, seconds: None, at_least_seconds: None, cost: Duration::from_millis(500) }
}

fn cut_off(at_least_seconds: f64) -> Recorded {
    Recorded { seconds: None, at_least_seconds: Some(at_least_seconds), ..ok(1.0) }
}

/// Five configurations: three times and two failures.
fn rows() -> Vec<(Config, Recorded)> {
    vec![
        (vec![2, 0].into(), failed(Outcome::CompileError)),
        (vec![0, 0].into(), ok(0.3)),
        (vec![0, 1].into(), ok(0.1)),
        (vec![1, 0].into(), ok(0.104)),
        (vec![1, 1].into(), failed(Outcome::Wrong)),
    ]
}

fn recorded(rows: Vec<(Config, Recorded)>) -> Result<RecordedSpace, RecordedError> {
    RecordedSpace::new("k-d", "k", "d", space(), rows)
}

#[test]
fn a_replay_counts_distinct_configurations_and_their_cost() {
    let recorded = recorded(rows()).unwrap();
    let mut playback = recorded.play();
    assert_eq!((playback.evaluations(), playback.clock(), playback.best_s()), (0, Duration::ZERO, None));
    // A failure counts and costs like anything else.
    assert_eq!(playback.measure(&vec![2, 0].into()), Told::Failed(Outcome::CompileError));
    assert_eq!((playback.evaluations(), playback.clock(), playback.best_s()), (1, Duration::from_millis(500), None));
    assert_eq!(playback.measure(&vec![0, 0].into()), Told::Time { seconds: 0.3 });
    assert_eq!(playback.measure(&vec![0, 1].into()), Told::Time { seconds: 0.1 });
    assert_eq!(playback.measure(&vec![1, 0].into()), Told::Time { seconds: 0.104 });
    assert_eq!(
        (playback.evaluations(), playback.clock(), playback.best_s()),
        (4, Duration::from_millis(530), Some(0.1))
    );
    // Repeats are free, of successes and of failures.
    assert_eq!(playback.measure(&vec![2, 0].into()), Told::Failed(Outcome::CompileError));
    assert_eq!(playback.measure(&vec![0, 0].into()), Told::Time { seconds: 0.3 });
    assert_eq!((playback.evaluations(), playback.clock()), (4, Duration::from_millis(530)));
    // Another replay starts afresh.
    assert_eq!(recorded.play().evaluations(), 0);
}

#[test]
fn the_judge_knows_all() {
    let recorded = recorded(rows()).unwrap();
    let judge = recorded.judge();
    assert_eq!(judge.optimum_s(), 0.1);
    assert_eq!(judge.times(), [Some(0.1), Some(0.104), Some(0.3), None, None]);
    assert_eq!((judge.within(0.0), judge.within(0.05), judge.within(10.0)), (1, 2, 3));
    assert_eq!(judge.result(&vec![1, 1].into()).map(|row| row.outcome), Some(Outcome::Wrong));
    assert_eq!(judge.result(&vec![2, 1].into()), None);
}

#[test]
fn rows_are_found_by_configuration_whatever_their_order() {
    let recorded = recorded(rows()).unwrap();
    assert_eq!(recorded.len(), 5);
    let found: Vec<(Config, Recorded)> = recorded.rows().map(|(config, row)| (config, *row)).collect();
    assert!(rows().iter().all(|row| found.contains(row)) && found.len() == 5);
}

#[test]
fn sampled_rows_are_distinct_and_repeatable() {
    let recorded = recorded(rows()).unwrap();
    let draw = |seed, n| recorded.sample_rows(n, &mut ChaCha8Rng::seed_from_u64(seed));
    assert_eq!(draw(1, 3), draw(1, 3));
    let mut all: Vec<Config> = draw(2, 100).into_iter().map(|row| row.config).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 5);
    assert!(draw(2, 5).iter().any(|row| row.told == Some(Told::Failed(Outcome::Wrong))));
}

#[test]
fn rows_that_are_not_one_per_configuration_are_refused() {
    let changed = |change: fn(&mut Vec<(Config, Recorded)>)| {
        let mut rows = rows();
        change(&mut rows);
        recorded(rows).unwrap_err().to_string()
    };
    for (got, wanted) in [
        (
            changed(|rows| _ = rows.pop()),
            "4 of the 5 configurations are recorded; record all of them, or list those that are as a table",
        ),
        (changed(|rows| rows.clear()), "0 of the 5 configurations are recorded"),
        (changed(|rows| rows[4] = rows[1].clone()), "a=1 b=1 is recorded twice; merge its rows into one"),
        (changed(|rows| rows.push(rows[1].clone())), "a=1 b=1 is recorded twice"),
        (changed(|rows| rows[3].0 = vec![2, 1].into()), "row 3 is no configuration of the space"),
        (changed(|rows| rows[3].0 = vec![1].into()), "row 3 is no configuration of the space"),
        (changed(|rows| rows[3].1.seconds = None), "a=2 b=1 is recorded as ok with no time"),
        (changed(|rows| rows[3].1.seconds = Some(0.0)), "a=2 b=1 is recorded as ok with a time of 0 s"),
        (changed(|rows| rows[3].1.seconds = Some(f64::NAN)), "with a time of NaN s"),
        (changed(|rows| rows[3].1.seconds = Some(f64::INFINITY)), "with a time of inf s"),
        (changed(|rows| rows[0].1.seconds = Some(1.0)), "a=4 b=1 is recorded as compile_error with a time of 1 s"),
        (
            changed(|rows| rows[0].1.at_least_seconds = Some(1.0)),
            "a=4 b=1 is recorded as compile_error with a time of 1 s",
        ),
        (changed(|rows| rows[3].1.at_least_seconds = Some(1.0)), "with a time of 0.104 s and at least 1 s"),
        (changed(|rows| rows[3].1 = cut_off(0.0)), "a=2 b=1 is recorded as ok with a time of 0 s"),
        (
            changed(|rows| rows.iter_mut().for_each(|row| row.1 = cut_off(1.0))),
            "none of the 5 recorded configurations has a time, so there is nothing to search for",
        ),
        (
            changed(|rows| rows.iter_mut().for_each(|row| row.1 = failed(Outcome::Crash))),
            "none of the 5 recorded configurations has a time, so there is nothing to search for",
        ),
    ] {
        assert!(got.contains(wanted), "{got}");
    }
}

#[test]
#[should_panic(expected = "strategies propose configurations of their space")]
fn a_stranger_has_no_result() {
    recorded(rows()).unwrap().play().measure(&vec![2, 1].into());
}

#[test]
fn what_was_cut_off_is_told_as_a_bound_and_is_never_the_best() {
    let mut rows = rows();
    rows[1].1 = cut_off(0.25);
    // Below all times, as between two noisy nights; still nothing that a search may end with.
    rows[3].1 = cut_off(0.05);
    let recorded = recorded(rows).unwrap();
    let mut playback = recorded.play();
    assert_eq!(playback.measure(&vec![0, 0].into()), Told::Censored { at_least_seconds: 0.25 });
    assert_eq!(playback.measure(&vec![1, 0].into()), Told::Censored { at_least_seconds: 0.05 });
    assert_eq!((playback.evaluations(), playback.best_s()), (2, None));
    let judge = recorded.judge();
    assert_eq!(judge.times(), [Some(0.1), None, None, None, None]);
    assert_eq!((judge.optimum_s(), judge.within(10.0)), (0.1, 1));
    let mut known: Vec<f64> = judge.known_s().flatten().collect();
    known.sort_by(f64::total_cmp);
    assert_eq!(known, [0.1, 0.1, 0.25]);
}

#[test]
fn a_recording_is_known_by_kernel_device_and_problem_not_by_its_name() {
    let of = |name: &str, kernel: &str, device: &str, problem: Option<&str>| {
        let mut recorded = RecordedSpace::new(name, kernel, device, space(), rows()).unwrap();
        recorded.problem = problem.map(String::from);
        recorded
    };
    let one = of("a", "k", "d", Some("[8]"));
    assert!(one.is_of_the_same(&of("b", "k", "d", Some("[8]"))) && one.is_of_the_same(&of("b", "k", "d", None)));
    for other in [of("a", "k", "d", Some("[9]")), of("a", "k2", "d", None), of("a", "k", "d2", Some("[8]"))] {
        assert!(!one.is_of_the_same(&other));
    }
}
