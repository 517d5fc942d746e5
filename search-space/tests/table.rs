//! A space given as a table against the table itself.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "the speed is printed, not asserted")]

use std::collections::BTreeSet;
use std::time::Instant;

use proptest::prelude::*;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tilewright_search_space::space::{Config, ParameterSpace, Rejection, SpaceBuilder, SpaceError};

/// Every assignment to domains of these sizes.
fn product(sizes: &[u16]) -> Vec<Vec<u16>> {
    sizes.iter().fold(vec![Vec::new()], |all, &size| {
        all.iter().flat_map(|prefix| (0..size).map(move |v| [prefix.as_slice(), &[v]].concat())).collect()
    })
}

/// Parameters `p0`, `p1`, ... with the values 1, 2, 4, ... and a constraint that some rows break.
fn builder(sizes: &[u16]) -> SpaceBuilder {
    let mut builder = SpaceBuilder::new();
    for (number, &size) in sizes.iter().enumerate() {
        builder.param(format!("p{number}"), (0..size).map(|v| 1i64 << v));
    }
    builder.require("small", "p0 <= 4");
    builder
}

/// Sizes, the rows of a table in some order, and all assignments.
fn table() -> impl Strategy<Value = (Vec<u16>, Vec<Vec<u16>>, Vec<Vec<u16>>)> {
    (prop::collection::vec(1u16..6, 1..5), any::<u64>(), 0.02f64..1.0).prop_map(|(sizes, seed, share)| {
        let all = product(&sizes);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut rows: Vec<Vec<u16>> = all.iter().filter(|_| rng.random::<f64>() < share).cloned().collect();
        rows.shuffle(&mut rng);
        if rows.is_empty() {
            rows.push(all[0].clone());
        }
        (sizes, rows, all)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_space_is_the_table((sizes, rows, all) in table()) {
        let space = builder(&sizes).table(rows.clone()).build().unwrap();
        let members: BTreeSet<Config> = rows.into_iter().map(Config::from).collect();
        prop_assert_eq!(space.count(), members.len() as u128);
        let mut ranks = BTreeSet::new();
        for config in all.into_iter().map(Config::from) {
            let member = members.contains(&config);
            prop_assert_eq!(space.contains(&config), member);
            prop_assert_eq!(space.rank(&config).is_some(), member);
            if let Some(rank) = space.rank(&config) {
                prop_assert!(ranks.insert(rank) && rank < space.count());
                prop_assert_eq!(space.unrank(rank), Some(config.clone()));
            }
            // What is no member is explained by a constraint it breaks, else by the table; a member by nothing.
            let broken = space.params()[0].values[usize::from(config[0])] > 4.into();
            let wanted = if member { None } else if broken { Some("small") } else { Some("table") };
            prop_assert_eq!(space.why(&config), wanted);
            match space.config(&space.schedule(&config)) {
                Ok(found) => prop_assert!(member && found == config),
                Err(Rejection::NotListed { rows }) => prop_assert!(wanted == Some("table") && rows == space.count()),
                Err(Rejection::Constraint { constraint, .. }) => prop_assert_eq!(Some(constraint.as_str()), wanted),
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
        prop_assert_eq!(space.unrank(space.count()), None);
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for exponent in [0.0, 0.5, 1.0] {
            prop_assert!((0..20).all(|_| members.contains(&space.sample(&mut rng, exponent))));
        }
    }

    #[test]
    fn nearest_and_neighbours_stay_in_the_table((sizes, rows, all) in table(), seed in any::<u64>()) {
        let space = builder(&sizes).table(rows.clone()).build().unwrap();
        let members: BTreeSet<Config> = rows.into_iter().map(Config::from).collect();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let distance = |a: &Config, b: &Config| -> f64 {
            space.params().iter().enumerate().map(|(at, param)| param.distance(a[at], b[at])).sum()
        };
        for _ in 0..5 {
            let from = Config::from(all[rng.random_range(0..all.len())].clone());
            let mut fixed = vec![None; sizes.len()];
            let at = rng.random_range(0..sizes.len());
            fixed[at] = rng.random::<bool>().then(|| rng.random_range(0..sizes[at]));
            let allowed = members.iter().filter(|config| fixed[at].is_none_or(|value| config[at] == value));
            let best = allowed.map(|config| distance(&from, config)).reduce(f64::min);
            let found = space.nearest(&from, &[], &fixed);
            prop_assert_eq!(found.is_some(), best.is_some());
            if let (Some(found), Some(best)) = (found, best) {
                prop_assert!(members.contains(&found) && (distance(&from, &found) - best).abs() < 1e-6);
            }
            if members.contains(&from) {
                let neighbours = space.neighbours(&from);
                prop_assert!(neighbours.len() >= members.len().saturating_sub(1).min(2));
                prop_assert!(neighbours.iter().all(|other| *other != from && members.contains(other)));
            }
        }
    }
}

fn error(rows: Vec<Vec<u16>>) -> String {
    builder(&[3, 2]).table(rows).build().unwrap_err().to_string()
}

#[test]
fn wrong_tables_are_refused() {
    for (got, wanted) in [
        (error(vec![]), "the table of the space has no rows; list at least one configuration"),
        (error(vec![vec![0, 0], vec![1]]), "row 1 of the table has 1 positions; the space has 2 parameters"),
        (
            error(vec![vec![0, 0], vec![1, 2]]),
            "row 1 of the table has position 2 for parameter `p1`, which has 2 values",
        ),
        (
            error(vec![vec![2, 1], vec![0, 0], vec![2, 1]]),
            "the table of the space lists p0=4 p1=2 twice; list each configuration once",
        ),
    ] {
        assert_eq!(got, wanted);
    }
    let limited = builder(&[3, 2]).node_limit(2).table(vec![vec![0, 0], vec![0, 1], vec![1, 0]]).build();
    assert_eq!(limited.unwrap_err(), SpaceError::TableTooLarge { rows: 3, limit: 2 });
    let limited = builder(&[3, 2]).work_limit(1000, 100).table(vec![vec![0, 0], vec![2, 1]]).build();
    let wanted =
        "the table of the space, of 2 rows, needs more than 100 bytes to compile; keep fewer rows or parameters";
    assert_eq!(limited.unwrap_err().to_string(), wanted);
}

#[test]
fn constraints_inform_but_must_be_well_formed() {
    let with = |text: &str| builder(&[3, 2]).require("more", text).table(vec![vec![0, 0], vec![2, 1]]).build();
    // Row two breaks the constraint and is a member all the same.
    let space = with("p0 * p1 < 8").unwrap();
    assert_eq!((space.count(), space.constraints()[1].text.as_str()), (2, "p0 * p1 < 8"));
    assert_eq!(space.why(&vec![2, 1].into()), None);
    assert!(matches!(with("q < 8"), Err(SpaceError::UnknownParameter { .. })));
    assert!(matches!(with("p0 < "), Err(SpaceError::Parse { .. })));
}

#[test]
fn a_space_without_parameters_has_one_row() {
    let space = SpaceBuilder::new().table(vec![vec![]]).build().unwrap();
    assert_eq!((space.count(), space.unrank(0)), (1, Some(vec![].into())));
}

/// As many rows and parameters as the largest of the recorded spaces, drawn at random: the hardest to merge.
fn large() -> (SpaceBuilder, Vec<Vec<u16>>) {
    let sizes = [4, 4, 3, 3, 3, 3, 4, 4, 2, 2];
    let mut rows = product(&sizes);
    rows.shuffle(&mut ChaCha8Rng::seed_from_u64(5));
    rows.truncate(18_000);
    (builder(&sizes), rows)
}

#[test]
fn a_large_table_is_built_fast() {
    let (mut builder, rows) = large();
    let start = Instant::now();
    let space: ParameterSpace = builder.table(rows).build().unwrap();
    let built = start.elapsed();
    let start = Instant::now();
    let found = space.neighbours(&space.unrank(9_000).unwrap());
    println!(
        "{} rows: {} nodes in {built:?}; {} neighbours in {:?}",
        space.count(),
        space.nodes(),
        found.len(),
        start.elapsed()
    );
    assert_eq!(space.count(), 18_000);
}
