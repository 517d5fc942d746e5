//! The compiled space against its definition: every assignment enumerated, every constraint evaluated as written.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tilewright_search_space::space::{Arith, Compare, Config, Expr, Limit, ParameterSpace, SpaceBuilder, SpaceError};
use tilewright_search_space::{Schedule, Value};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// A small system: domains and constraints.
#[derive(Clone, Debug)]
struct System {
    domains: Vec<Vec<Value>>,
    constraints: Vec<Expr>,
}

impl System {
    fn builder(&self) -> SpaceBuilder {
        let mut builder = SpaceBuilder::new();
        for (name, domain) in NAMES.iter().zip(&self.domains) {
            builder.values(*name, domain.clone());
        }
        for (number, constraint) in self.constraints.iter().enumerate() {
            // Through the text, so that printing and parsing take part.
            builder.require(format!("c{number}"), &constraint.to_string());
        }
        builder
    }

    /// Every assignment, with the number of the first constraint it violates.
    fn enumerate(&self) -> Vec<(Config, Option<usize>)> {
        let mut all: Vec<Vec<u16>> = vec![Vec::new()];
        for domain in &self.domains {
            let extend = |prefix: &Vec<u16>| {
                let prefix = prefix.clone();
                (0..domain.len()).map(move |v| [prefix.clone(), vec![u16::try_from(v).unwrap()]].concat())
            };
            all = all.iter().flat_map(extend).collect();
        }
        all.into_iter()
            .map(|positions| {
                let value_of = |name: &str| {
                    let at = NAMES.iter().position(|known| *known == name)?;
                    Some(&self.domains[at][usize::from(positions[at])])
                };
                let broken = self.constraints.iter().position(|constraint| !constraint.holds(&value_of));
                (Config::from(positions), broken)
            })
            .collect()
    }
}

fn term(params: usize) -> impl Strategy<Value = Expr> {
    let leaf = prop_oneof![
        4 => (0..params).prop_map(|at| Expr::Param(NAMES[at].into())),
        2 => (-3i64..20).prop_map(Expr::Int),
        1 => prop_oneof![Just("-"), Just("x")].prop_map(|name| Expr::Name(name.into())),
    ];
    let ops = prop_oneof![
        Just(Arith::Add),
        Just(Arith::Sub),
        Just(Arith::Mul),
        Just(Arith::Mul),
        Just(Arith::Div),
        Just(Arith::Mod),
        Just(Arith::Min),
        Just(Arith::Max),
        Just(Arith::CeilDiv)
    ];
    leaf.prop_recursive(3, 8, 2, move |inner| {
        (ops.clone(), inner.clone(), inner).prop_map(|(op, a, b)| Expr::Arith(op, a.into(), b.into()))
    })
}

fn condition(params: usize) -> impl Strategy<Value = Expr> {
    let compares = prop_oneof![
        Just(Compare::Eq),
        Just(Compare::Ne),
        Just(Compare::Lt),
        Just(Compare::Le),
        Just(Compare::Le),
        Just(Compare::Gt),
        Just(Compare::Ge)
    ];
    let leaf = prop_oneof![
        5 => (compares, term(params), term(params)).prop_map(|(op, a, b)| Expr::Compare(op, a.into(), b.into())),
        1 => (term(params), prop::collection::vec(term(params), 0..4)).prop_map(|(a, list)| Expr::In(a.into(), list)),
    ];
    leaf.prop_recursive(2, 4, 2, |inner| {
        (0..4, inner.clone(), inner).prop_map(|(kind, a, b)| match kind {
            0 => Expr::Not(a.into()),
            1 => Expr::And(a.into(), b.into()),
            2 => Expr::Or(a.into(), b.into()),
            _ => Expr::Implies(a.into(), b.into()),
        })
    })
}

fn domain() -> impl Strategy<Value = Vec<Value>> {
    let ints = |range: std::ops::Range<i64>| prop::collection::btree_set(range, 1..6);
    prop_oneof![
        3 => ints(1..20).prop_map(|set| set.into_iter().map(Value::Int).collect::<Vec<_>>()),
        1 => ints(-4..5).prop_map(|set| set.into_iter().map(Value::Int).collect()),
        1 => ints(0..9).prop_map(|set| [Value::none()].into_iter().chain(set.into_iter().map(Value::Int)).collect()),
        1 => Just(vec!["-".into(), "x".into(), "y".into()]),
    ]
}

fn system() -> impl Strategy<Value = System> {
    (1..=NAMES.len())
        .prop_flat_map(|params| {
            (prop::collection::vec(domain(), params), prop::collection::vec(condition(params), 0..5))
        })
        .prop_map(|(domains, constraints)| System { domains, constraints })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn compiled_space_equals_enumeration(system in system()) {
        let all = system.enumerate();
        let members: BTreeSet<&Config> = all.iter().filter(|(_, broken)| broken.is_none()).map(|(config, _)| config).collect();
        let space = match system.builder().build() {
            Err(SpaceError::Empty { constraint }) => {
                prop_assert!(members.is_empty());
                let number: usize = constraint[1..].parse().unwrap();
                // Without the named constraint and its successors something is left.
                prop_assert!(all.iter().any(|(_, broken)| broken.is_none_or(|first| first >= number)));
                prop_assert!(all.iter().all(|(_, broken)| broken.is_some_and(|first| first <= number)));
                return Ok(());
            }
            built => built.unwrap(),
        };
        prop_assert_eq!(space.count(), members.len() as u128);
        let mut ranks = BTreeSet::new();
        for (config, broken) in &all {
            prop_assert_eq!(space.contains(config), broken.is_none());
            prop_assert_eq!(space.why(config).map(str::to_owned), broken.map(|number| format!("c{number}")));
            prop_assert_eq!(space.config(&space.schedule(config)).is_ok(), broken.is_none());
            if let Some(rank) = space.rank(config) {
                let back = space.unrank(rank);
                prop_assert_eq!(back.as_ref(), Some(config));
                ranks.insert(rank);
            }
        }
        prop_assert_eq!(ranks.len(), members.len());
        prop_assert_eq!(space.unrank(space.count()), None);
    }

    #[test]
    fn nearest_equals_enumeration(system in system(), seed in any::<u64>(), weights in prop::collection::vec(0.1f64..3.0, 5)) {
        let Ok(space) = system.builder().build() else { return Ok(()) };
        let all = system.enumerate();
        let members: Vec<&Config> = all.iter().filter(|(_, broken)| broken.is_none()).map(|(config, _)| config).collect();
        let distance = |a: &Config, b: &Config| -> f64 {
            (0..a.len()).map(|p| weights[p] * space.params()[p].distance(a[p], b[p])).sum()
        };
        for draw in 0..4 {
            let from = &all[usize::try_from(seed.rotate_left(draw * 13) % all.len() as u64).unwrap()].0;
            let other = &all[usize::try_from(seed.rotate_left(draw * 29 + 7) % all.len() as u64).unwrap()].0;
            let fixed: Vec<Option<u16>> =
                (0..other.len()).map(|p| (seed.rotate_right(u32::try_from(p).unwrap() + draw) & 3 == 0).then_some(other[p])).collect();
            let allowed = |config: &Config| (0..fixed.len()).all(|p| fixed[p].is_none_or(|value| config[p] == value));
            let best = members.iter().filter(|config| allowed(config)).map(|config| distance(from, config)).reduce(f64::min);
            let found = space.nearest(from, &weights, &fixed);
            prop_assert_eq!(found.is_some(), best.is_some());
            if let (Some(found), Some(best)) = (found, best) {
                prop_assert!(space.contains(&found) && allowed(&found));
                prop_assert!((distance(from, &found) - best).abs() < 1e-6, "{} instead of {best}", distance(from, &found));
            }
        }
    }

    #[test]
    fn every_configuration_has_two_neighbours(system in system()) {
        let Ok(space) = system.builder().build() else { return Ok(()) };
        let want = usize::try_from(space.count() - 1).unwrap().min(2);
        for rank in 0..space.count().min(200) {
            let config = space.unrank(rank).unwrap();
            let neighbours = space.neighbours(&config);
            prop_assert!(neighbours.len() >= want);
            prop_assert!(neighbours.iter().all(|other| *other != config && space.contains(other)));
        }
    }
}

fn chain() -> ParameterSpace {
    SpaceBuilder::new()
        .param("a", 1..=6)
        .param("b", 1..=6)
        .param("c", 1..=4)
        .names("d", &["x", "y"])
        .require("divides", "b % a == 0")
        .require("bounded", "b * c <= 12")
        .require("y is rare", "d == 'y' => a == 5")
        .build()
        .unwrap()
}

/// Pearson's statistic of `draws` samples against the uniform distribution, in standard deviations above its mean.
fn excess(space: &ParameterSpace, exponent: f64, draws: usize) -> f64 {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut seen: BTreeMap<u128, usize> = BTreeMap::new();
    for _ in 0..draws {
        *seen.entry(space.rank(&space.sample(&mut rng, exponent)).unwrap()).or_default() += 1;
    }
    let members = usize::try_from(space.count()).unwrap();
    let expected = draws as f64 / members as f64;
    let square = |count: usize| (count as f64 - expected).powi(2) / expected;
    let statistic: f64 = (0..space.count()).map(|rank| square(seen.get(&rank).copied().unwrap_or(0))).sum();
    let freedom = members as f64 - 1.0;
    (statistic - freedom) / (2.0 * freedom).sqrt()
}

#[test]
fn exponent_one_is_uniform_and_one_half_is_not() {
    let space = chain();
    assert!(excess(&space, 1.0, 20_000).abs() < 4.0);
    // The general walk agrees with the exact one where they meet, and the test has the power to see a difference.
    assert!(excess(&space, 1.0 - 1e-12, 20_000).abs() < 4.0);
    assert!(excess(&space, 0.5, 20_000) > 20.0);
}

#[test]
fn rare_structure_is_seen_with_exponent_one_half() {
    let mut builder = SpaceBuilder::new();
    builder.names("kind", &["plain", "rare"]);
    for name in ["a", "b", "c", "d", "e", "f"] {
        builder.param(name, 1..=10).require("rare is fixed", &format!("kind == 'rare' => {name} == 1"));
    }
    let space = builder.build().unwrap();
    assert_eq!(space.count(), 1_000_001);
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let rare = |exponent: f64, rng: &mut ChaCha8Rng| (0..4000).filter(|_| space.sample(rng, exponent)[0] == 1).count();
    assert_eq!(rare(1.0, &mut rng), 0);
    assert!(rare(0.5, &mut rng) > 0);
    assert!(rare(0.0, &mut rng) > 1500 || rare(0.25, &mut rng) > 50);
}

#[test]
fn a_schedule_is_explained() {
    let space = chain();
    let schedule = |pairs: &[(&str, Value)]| pairs.iter().cloned().collect::<Schedule>();
    let base = [("a", 2.into()), ("b", 4.into()), ("c", 3.into()), ("d", "x".into())];
    assert_eq!(space.why_schedule(&schedule(&base)), None);
    let with = |name: &str, value: Value| {
        let mut changed = schedule(&base);
        changed.set(name, value);
        space.why_schedule(&changed).unwrap().to_string()
    };
    assert_eq!(with("c", 4.into()), "constraint `bounded` forbids it: b * c <= 12");
    assert_eq!(with("a", 3.into()), "constraint `divides` forbids it: b % a == 0");
    assert_eq!(with("c", 7.into()), "`c` cannot be `7`; its values are 1, 2, 3, 4");
    assert_eq!(with("q", 7.into()), "`q` is no parameter of this space; it has `a`, `b`, `c`, `d`");
    assert_eq!(space.why_schedule(&schedule(&base[1..])).unwrap().to_string(), "the schedule does not set `a`");
}

fn error(declare: impl Fn(&mut SpaceBuilder)) -> String {
    let mut builder = SpaceBuilder::new();
    builder.param("a", 1..=50).param("b", 1..=50).names("n", &["x", "y"]);
    declare(&mut builder);
    builder.build().unwrap_err().to_string()
}

#[test]
fn mistakes_are_named() {
    let large = i64::MAX;
    for (got, wanted) in [
        (error(|b| _ = b.param("a", [1])), "parameter `a` is declared twice; give each parameter its own name"),
        (
            error(|b| _ = b.param("c", [])),
            "parameter `c` has no values; give it at least one (`-` if it does not apply)",
        ),
        (error(|b| _ = b.names("c", &["x", "x"])), "parameter `c` lists the value `x` twice"),
        (error(|b| _ = b.structural("q")), "`structural` names `q`, which is no parameter of the space"),
        (error(|b| _ = b.param("c", 0..70_000)), "parameter `c` has 70000 values; at most 65535 are supported"),
        (error(|b| _ = b.require("r", "q == 1")), "constraint `r` names `q`, which is no parameter of the space"),
        (error(|b| _ = b.require("r", "a ==")), "constraint `r` cannot be read"),
        (
            error(|b| _ = b.require("r", "a && b == 1")),
            "constraint `r`: `a` is a value where a condition (compare it with something) is needed",
        ),
        (
            error(|b| _ = b.require("r", "(a == 1) + b == 1")),
            "constraint `r`: `a == 1` is a condition where a value is needed",
        ),
        (
            error(|b| _ = b.require("r", &format!("a * {large} * {large} * {large} > 0"))),
            "constraint `r` can reach numbers above 1e30; use smaller values or divide earlier",
        ),
        (
            error(|b| _ = b.require("one", "a > 30").require("two", "a + b < 30").require("three", "n == 'x'")),
            "no configuration satisfies the constraints; the first that leaves none is `two`",
        ),
        (
            error(|b| _ = b.require("never", "1 == 2")),
            "no configuration satisfies the constraints; the first that leaves none is `never`",
        ),
        (
            error(|b| _ = (0..130).fold(b, |b, number| b.param(format!("p{number}"), [1]))),
            "the space has 133 parameters; at most 128 are supported",
        ),
    ] {
        assert_eq!(got, wanted);
    }
}

#[test]
fn a_count_beyond_128_bits_is_an_error() {
    let build = |params: usize| {
        let mut builder = SpaceBuilder::new();
        for number in 0..params {
            builder.param(format!("p{number}"), 0..=255);
        }
        builder
    };
    assert_eq!(build(15).build().unwrap().count(), 1 << 120);
    assert_eq!(build(16).build().unwrap_err(), SpaceError::CountOverflow);
    // The same inside one component.
    let mut joined = build(17);
    joined.require("all", &format!("{} >= 1", (0..17).map(|n| format!("p{n}")).collect::<Vec<_>>().join(" + ")));
    assert_eq!(joined.build().unwrap_err(), SpaceError::CountOverflow);
}

/// Twelve parameters of forty values.
fn wide(limit: usize) -> SpaceBuilder {
    let mut builder = SpaceBuilder::new();
    for number in 0..12 {
        builder.param(format!("p{number}"), 1..=40);
    }
    builder.node_limit(limit);
    builder
}

#[test]
fn a_constraint_too_wide_by_itself_is_named() {
    // No two prefixes leave the same residual, so without the limit this would not end.
    let terms: Vec<String> = (0..12u32).map(|number| format!("{} * p{number}", 41i64.pow(number))).collect();
    let mut builder = wide(5000);
    builder.require("harmless", "p0 <= 39").require("endless", &format!("({}) % 1000003 < 500000", terms.join(" + ")));
    let SpaceError::TooWide { parameter, constraints, limit } = builder.build().unwrap_err() else {
        panic!("the constraint is too wide")
    };
    assert!(parameter.starts_with('p'));
    assert_eq!((constraints.as_str(), limit), ("endless", Limit::Nodes(5000)));
}

#[test]
fn constraints_too_wide_together_are_named() {
    // Each alone has as few residuals as its divisor; together they have the product.
    let weights = [1, 2, 3, 5, 7, 11, 4];
    let mut builder = SpaceBuilder::new();
    (0..7).for_each(|number| _ = builder.param(format!("p{number}"), 1..=12));
    for (turn, divisor) in [13, 17, 19, 23].into_iter().enumerate() {
        let terms: Vec<String> =
            (0..7).map(|at| format!("{} * p{at}", weights[(at * (turn + 1) + turn) % 7])).collect();
        builder.require(format!("mod{divisor}"), &format!("({}) % {divisor} == 0", terms.join(" + ")));
    }
    builder.node_limit(60_000);
    let SpaceError::TooWide { parameter, constraints, .. } = builder.build().unwrap_err() else {
        panic!("the constraints are too wide together")
    };
    assert!(parameter.starts_with('p'));
    assert_eq!(constraints, "mod13`, `mod17`, `mod19`, `mod23");
}

/// Four parameters of 4096 values, of which hardly two prefixes leave the same residual.
fn hostile() -> SpaceBuilder {
    let mut builder = SpaceBuilder::new();
    ["a", "b", "c", "d"].into_iter().for_each(|name| _ = builder.param(name, 1..=4096));
    builder.require("s", "a * b % (c + d) == 17");
    builder
}

#[test]
fn work_and_memory_are_bounded_and_not_only_nodes() {
    // Far below two million nodes this took gigabytes and minutes.
    for builder in [&mut hostile(), hostile().require("t", "a * b == c * d")] {
        let error = builder.build().unwrap_err();
        let SpaceError::TooWide { constraints, limit, .. } = &error else { panic!("{error}") };
        assert!(!matches!(limit, Limit::Nodes(_)) && constraints.contains('s'), "{error}");
    }
    // Small enough, and refused all the same when less is allowed.
    let small = |steps, bytes| chain_of(40).work_limit(steps, bytes).build();
    assert!(small(10_000_000, 10_000_000).is_ok());
    for (steps, bytes, wanted) in [(1000, 10_000_000, Limit::Steps(1000)), (10_000_000, 1000, Limit::Bytes(1000))] {
        let error = small(steps, bytes).unwrap_err();
        assert!(matches!(&error, SpaceError::TooWide { limit, .. } if *limit == wanted), "{error}");
    }
}

/// Parameters of `values` values, each at most the next, and nothing that two of them could agree on early.
fn chain_of(values: i64) -> SpaceBuilder {
    let mut builder = SpaceBuilder::new();
    ["a", "b", "c", "d"].into_iter().for_each(|name| _ = builder.param(name, 1..=values));
    builder.require("ab", "a <= b").require("bc", "b <= c").require("cd", "c <= d");
    builder
}

#[test]
fn the_first_constraint_that_leaves_nothing_is_found_among_many() {
    // One try for each constraint would pass the limit of steps.
    let mut builder = chain_of(100);
    (0..1000).for_each(|number| _ = builder.require(format!("c{number}"), &format!("a + {number} * b != 1")));
    builder.require("nothing", "a > d").require("more", "b > d");
    let error = builder.build().unwrap_err();
    assert_eq!(error, SpaceError::Empty { constraint: "nothing".into() });
}

#[test]
fn a_space_without_parameters_has_one_configuration() {
    let space = SpaceBuilder::new().build().unwrap();
    let config = space.unrank(0).unwrap();
    assert_eq!((space.count(), space.rank(&config), space.neighbours(&config).len()), (1, Some(0), 0));
}

#[test]
fn what_does_not_fit_the_space_is_refused() {
    let space = chain();
    let config = space.unrank(0).unwrap();
    let (short, outside) = (Config::from(vec![0, 0]), Config::from(vec![0, 0, 4, 0]));
    for wrong in [&short, &outside] {
        assert!(!space.contains(wrong) && space.rank(wrong).is_none() && space.neighbours(wrong).is_empty());
        assert_eq!(space.nearest(wrong, &[], &[]), None);
    }
    assert_eq!(space.nearest(&config, &[], &[Some(6)]), None);
    assert_eq!(space.nearest(&config, &[], &[Some(900)]), None);
    assert_eq!(space.nearest(&config, &[f64::NAN, -1.0, f64::INFINITY], &[]), Some(config));
}

#[test]
fn values_too_large_to_tell_apart_by_logarithm_still_differ() {
    let space = SpaceBuilder::new().param("a", [i64::MAX - 1, i64::MAX]).param("b", [7]).build().unwrap();
    assert_eq!(space.params()[0].distance(0, 1), 0.5);
    assert_eq!(space.params()[1].distance(0, 0), 0.0);
    assert_eq!(space.neighbours(&space.unrank(0).unwrap()).len(), 1);
}
