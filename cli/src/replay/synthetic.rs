//! A made-up kernel: more than 10^9 schedules, too many to list, and yet a known optimum.
//!
//! Everything is drawn from a seed: a dozen or more parameters (powers of two, multiples, switches, named choices),
//! constraints between them, and one legal configuration that is made the fastest. The time of a configuration is
//!
//! ```text
//! 1 ms · exp(separable + interacting + cliffs + roughness)
//! ```
//!
//! where every term is 0 at the chosen configuration and at least 0 elsewhere, and the separable one is above 0 for any
//! difference: so it is the only optimum, without a search. The terms imitate what kernels do:
//!
//! - *separable*: each parameter costs by its distance from the best value; multiples also for lacking factors of two;
//! - *interacting*: pairs whose distances must cancel or agree, which makes narrow valleys;
//! - *cliffs*: products above a capacity cost a constant at once (registers spill, a cache overflows);
//! - *failures*: products above a hard limit and some pairs of choices do not work at all;
//! - *roughness*: up to 2 % that depend on everything, as an unlucky alignment would.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use search_space::space::{Config, ParameterSpace, SpaceBuilder, SpaceError};
use search_space::strategy::Told;
use search_space::{Outcome, Value};

use super::score::Yardstick;
use super::{Ground, Play};

/// Fewest schedules.
const LEAST: u128 = 1_000_000_000;
/// Parameters at first; more are added until there are enough schedules.
const PARAMETERS: usize = 12;
/// Time of the optimum, in seconds.
const OPTIMUM_S: f64 = 1e-3;
/// Uniform draws that stand for the space in the random baseline.
const SAMPLE: usize = 100_000;
/// Runs of one measurement.
const RUNS: f64 = 10.0;
/// Time to compile one schedule.
const COMPILE: Duration = Duration::from_secs(1);

/// A made-up kernel with a known optimum.
pub struct Synthetic {
    name: String,
    seed: u64,
    space: Arc<ParameterSpace>,
    optimum: Config,
    /// For each parameter the place of each value.
    places: Vec<Vec<f64>>,
    /// For each parameter the cost of the whole distance.
    weights: Vec<f64>,
    /// `(one, other, sign, cost)`.
    pairs: Vec<(usize, usize, f64, f64)>,
    /// Products of two parameters above a capacity cost this much.
    cliffs: Vec<(Product, f64)>,
    /// What does not work.
    failures: Vec<Failure>,
}

/// `one * other > most`.
struct Product {
    one: usize,
    other: usize,
    most: i64,
}

enum Failure {
    /// A limit of the device.
    Limit(Product),
    /// Two values that do not go together.
    Clash { one: (usize, u16), other: (usize, u16) },
}

impl Synthetic {
    /// The kernel of `seed`; equal seeds give equal kernels.
    ///
    /// # Errors
    /// When its space cannot be built, which would be a fault of this module.
    pub fn new(seed: u64) -> Result<Synthetic, SpaceError> {
        for parameters in PARAMETERS.. {
            let made = Synthetic::with(seed, parameters)?;
            if made.space.count() >= LEAST {
                return Ok(made);
            }
        }
        unreachable!("more parameters give more schedules")
    }

    fn with(seed: u64, parameters: usize) -> Result<Synthetic, SpaceError> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let domains: Vec<Vec<Value>> = (0..parameters).map(|at| domain(at, &mut rng)).collect();
        let best: Vec<u16> = domains
            .iter()
            .map(|values| u16::try_from(rng.random_range(0..values.len())).expect("invariant: domains are short"))
            .collect();
        let optimum = Config::from(best);
        let mut numbers: Vec<usize> = (0..parameters).filter(|&at| largest(&domains[at]) > 1).collect();
        numbers.shuffle(&mut rng);
        let mut products = numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).cycle();
        let mut product = |room: f64| {
            let (one, other) = products.next().expect("invariant: there are numbers");
            Product::above(&domains, &optimum, one, other, room)
        };
        let mut builder = SpaceBuilder::new();
        for (at, values) in domains.iter().enumerate() {
            builder.values(format!("p{at}"), values.clone());
        }
        for limit in [product(0.5), product(0.4)] {
            let Product { one, other, most } = limit;
            builder.require(format!("p{one} and p{other} fit"), &format!("p{one} * p{other} <= {most}"));
        }
        let cliffs = [(product(0.25), 0.4), (product(0.15), 0.8), (product(0.3), 0.3)].into();
        let mut failures = vec![Failure::Limit(product(0.35))];
        let space = Arc::new(builder.build()?);
        let places = domains.iter().zip(space.params()).map(|(values, param)| {
            let mut order: Vec<f64> = (0..values.len()).map(|at| at as f64 / values.len() as f64).collect();
            order.shuffle(&mut rng);
            param.coordinates().iter().zip(order).map(|(place, other)| place.unwrap_or(other)).collect()
        });
        let places = places.collect();
        // A few parameters matter most, as in real kernels.
        let weights = (0..parameters).map(|_| 0.03 + 0.7 * rng.random::<f64>().powi(3)).collect();
        let all: Vec<usize> = (0..parameters).collect();
        let two = |rng: &mut ChaCha8Rng| {
            let mut two = all.sample(rng, 2).copied();
            two.next().zip(two.next()).expect("invariant: there are two parameters")
        };
        let mut pairs = Vec::new();
        for _ in 0..parameters {
            let (one, other) = two(&mut rng);
            pairs.push((one, other, if rng.random() { 1.0 } else { -1.0 }, 0.4 * rng.random::<f64>().powi(2)));
        }
        while failures.len() < 4 {
            let (one, other) = two(&mut rng);
            let mut value = |at: usize| {
                u16::try_from(rng.random_range(0..domains[at].len())).expect("invariant: domains are short")
            };
            let (one, other) = ((one, value(one)), (other, value(other)));
            // One value of the optimum may clash, not both.
            if optimum[one.0] != one.1 || optimum[other.0] != other.1 {
                failures.push(Failure::Clash { one, other });
            }
        }
        let name = format!("synthetic:{seed}");
        Ok(Synthetic { name, seed, space, optimum, places, weights, pairs, cliffs, failures })
    }

    /// The fastest configuration.
    #[must_use]
    pub fn optimum(&self) -> &Config {
        &self.optimum
    }

    /// Time of one run, or why there is none.
    ///
    /// # Errors
    /// The outcome of a configuration that fails. Whatever is not in the space is a compile error.
    pub fn seconds(&self, config: &Config) -> Result<f64, Outcome> {
        if !self.space.contains(config) {
            return Err(Outcome::CompileError);
        }
        for failure in &self.failures {
            match failure {
                Failure::Limit(product) if product.exceeded(&self.space, config) => return Err(Outcome::ResourceLimit),
                Failure::Clash { one, other } if config[one.0] == one.1 && config[other.0] == other.1 => {
                    return Err(Outcome::CompileError);
                }
                _ => {}
            }
        }
        if *config == self.optimum {
            return Ok(OPTIMUM_S);
        }
        let off = |at: usize| {
            let place = |config: &Config| self.places[at][usize::from(config[at])];
            place(config) - place(&self.optimum)
        };
        let twos = |config: &Config, at: usize| match &self.space.params()[at].values[usize::from(config[at])] {
            Value::Int(value) => f64::from(value.trailing_zeros().min(4)),
            Value::Name(_) => 0.0,
        };
        let mut log = 0.02 * self.roughness(config);
        for at in (0..config.len()).filter(|&at| config[at] != self.optimum[at]) {
            let lacking = (twos(&self.optimum, at) - twos(config, at)).max(0.0);
            log += self.weights[at] * (0.02 + off(at).abs() + 0.05 * lacking);
        }
        for &(one, other, sign, cost) in &self.pairs {
            log += cost * (off(one) + sign * off(other)).abs();
        }
        for (product, cost) in &self.cliffs {
            log += if product.exceeded(&self.space, config) { *cost } else { 0.0 };
        }
        Ok(OPTIMUM_S * log.exp())
    }

    /// A number in `0..1` that depends on everything: the finaliser of SplitMix64 (Steele, Lea, Flood, 2014) over the
    /// positions.
    fn roughness(&self, config: &Config) -> f64 {
        let mix = |state: u64, position: &u16| {
            let mut z = (state ^ u64::from(*position)).wrapping_add(0x9e37_79b9_7f4a_7c15);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        (config.iter().fold(self.seed, mix) >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl Product {
    /// A product that the optimum keeps below, and about the share `room` of the possible others does not.
    fn above(domains: &[Vec<Value>], optimum: &Config, one: usize, other: usize, room: f64) -> Product {
        let int = |value: &Value| if let Value::Int(value) = value { *value } else { 1 };
        let at = |param: usize| int(&domains[param][usize::from(optimum[param])]);
        let mut all: Vec<i64> =
            domains[one].iter().flat_map(|a| domains[other].iter().map(move |b| int(a) * int(b))).collect();
        all.sort_unstable();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length")]
        let place = ((1.0 - room) * all.len() as f64) as usize;
        Product { one, other, most: all[place.min(all.len() - 1)].max(at(one) * at(other)) }
    }

    fn exceeded(&self, space: &ParameterSpace, config: &Config) -> bool {
        let value = |at: usize| match &space.params()[at].values[usize::from(config[at])] {
            Value::Int(value) => *value,
            Value::Name(_) => 1,
        };
        value(self.one) * value(self.other) > self.most
    }
}

/// The values of parameter number `at`: mostly numbers, each fourth a switch or a choice.
fn domain(at: usize, rng: &mut ChaCha8Rng) -> Vec<Value> {
    match at % 4 {
        0 | 2 => {
            let (low, most) = (rng.random_range(0..3), rng.random_range(6..9));
            (low..low + most).map(|power| Value::Int(1 << power)).collect()
        }
        1 => {
            let step = *[1, 2, 4, 8, 16].choose(rng).unwrap_or(&1);
            (1..=rng.random_range(8..20)).map(|times| Value::Int(step * times)).collect()
        }
        _ if rng.random() => vec![Value::Int(0), Value::Int(1)],
        _ => ["ijk", "ikj", "jik", "jki", "kij", "kji"][..rng.random_range(3..=6)].iter().map(|&v| v.into()).collect(),
    }
}

fn largest(values: &[Value]) -> i64 {
    values.iter().map(|value| if let Value::Int(value) = value { *value } else { 0 }).max().unwrap_or(0)
}

impl Ground for Synthetic {
    fn name(&self) -> &str {
        &self.name
    }

    fn kernel(&self) -> &str {
        "synthetic"
    }

    fn device(&self) -> &str {
        "none"
    }

    fn space(&self) -> &Arc<ParameterSpace> {
        &self.space
    }

    fn play(&self) -> Box<dyn Play + '_> {
        Box::new(Played { of: self, seen: BTreeSet::new(), clock: Duration::ZERO })
    }

    /// The baseline and the worst time are those of 100,000 uniform draws.
    fn yardstick(&self, draws: usize) -> Yardstick {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let times = (0..SAMPLE).map(|_| self.seconds(&self.space.sample(&mut rng, 1.0)).ok());
        let drawn = Yardstick::of(times, draws).unwrap_or(Yardstick {
            optimum_s: OPTIMUM_S,
            worst_s: OPTIMUM_S,
            baseline_s: Vec::new(),
        });
        Yardstick { optimum_s: OPTIMUM_S, ..drawn }
    }
}

/// One search's measurements.
struct Played<'a> {
    of: &'a Synthetic,
    seen: BTreeSet<Config>,
    clock: Duration,
}

impl Play for Played<'_> {
    fn measure(&mut self, config: &Config) -> Told {
        let result = self.of.seconds(config);
        if self.seen.insert(config.clone()) {
            self.clock += COMPILE + Duration::from_secs_f64(result.map_or(0.0, |seconds| RUNS * seconds));
        }
        match result {
            Ok(seconds) => Told::Time { seconds },
            Err(outcome) => Told::Failed(outcome),
        }
    }

    fn evaluations(&self) -> usize {
        self.seen.len()
    }

    fn clock(&self) -> Duration {
        self.clock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_gives_a_large_space_with_one_known_optimum_failures_and_slow_places() {
        for seed in 0..12 {
            let made = Synthetic::new(seed).unwrap();
            let count = made.space.count();
            // Readers of JSON keep whole numbers up to 2^53.
            assert!((LEAST..1 << 53).contains(&count), "seed {seed}: {count}");
            assert_eq!(made.seconds(made.optimum()), Ok(OPTIMUM_S));
            let slower = |config: &Config| made.seconds(config).map_or(true, |seconds| seconds > OPTIMUM_S);
            assert!(made.space.neighbours(made.optimum()).iter().all(slower), "seed {seed}");
            let mut rng = ChaCha8Rng::seed_from_u64(1000 + seed);
            let drawn: Vec<_> = (0..4000).map(|_| made.seconds(&made.space.sample(&mut rng, 1.0))).collect();
            let failed = drawn.iter().filter(|time| time.is_err()).count();
            let mut times: Vec<f64> = drawn.iter().filter_map(|time| time.ok()).collect();
            times.sort_by(f64::total_cmp);
            println!(
                "seed {seed}: {count} schedules, {failed} of 4000 fail; best {:.2}, median {:.1}, worst {:.0} optima",
                times[0] / OPTIMUM_S,
                times[times.len() / 2] / OPTIMUM_S,
                times[times.len() - 1] / OPTIMUM_S
            );
            assert!((40..2000).contains(&failed), "seed {seed}: {failed} fail");
            assert!(times[0] > 1.1 * OPTIMUM_S && times[times.len() / 2] > 2.0 * OPTIMUM_S, "seed {seed}");
        }
    }

    #[test]
    fn a_seed_is_a_kernel() {
        let [one, same, other] = [3, 3, 4].map(|seed| Synthetic::new(seed).unwrap());
        let config = one.space.unrank(123_456_789).unwrap();
        assert_eq!((one.seconds(&config), one.optimum()), (same.seconds(&config), same.optimum()));
        assert_ne!(one.optimum(), other.optimum());
        assert_eq!(one.yardstick(20), same.yardstick(20));
        assert!(one.yardstick(20).baseline_s.is_sorted_by(|a, b| a >= b));
    }

    #[test]
    fn a_repeat_is_free_and_nonsense_is_not() {
        let made = Synthetic::new(0).unwrap();
        let mut play = made.play();
        let config = made.space.unrank(7).unwrap();
        let first = play.measure(&config);
        assert_eq!((play.measure(&config), play.evaluations()), (first, 1));
        let spent = play.clock();
        assert!(spent >= COMPILE);
        assert_eq!(play.measure(&vec![u16::MAX].into()), Told::Failed(Outcome::CompileError));
        assert_eq!((play.evaluations(), play.clock()), (2, spent + COMPILE));
    }
}
