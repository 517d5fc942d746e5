//! Parameter spaces: named parameters with finite domains and named constraints, compiled once into reduced decision
//! diagrams that count, number, sample, explain and repair configurations exactly.
//!
//! - [`SpaceBuilder`] declares a space, [`Expr`] is the language of constraints.
//! - Parameters that share no constraint get diagrams of their own; the space is their product.
//! - A [`Config`] is a position in each domain. It means something only together with its space: what leaves the
//!   process is a [`Schedule`] of named values ([`ParameterSpace::schedule`], [`ParameterSpace::config`]).
//!
//! ```
//! use tilewright_search_space::space::SpaceBuilder;
//! let space = SpaceBuilder::new().param("mc", [8, 16, 32]).param("kc", [8, 16]).require("cache", "mc * kc <= 256").build()?;
//! assert_eq!(space.count(), 5);
//! let best = space.nearest(&vec![2, 1].into(), &[], &[None, Some(1)]).expect("some member has kc = 16");
//! assert_eq!(space.schedule(&best).to_string(), "kc=16 mc=16");
//! # Ok::<(), tilewright_search_space::space::SpaceError>(())
//! ```

mod budget;
mod builder;
mod constraint;
mod diagram;
mod expr;
mod facts;
mod hash;
mod nearest;
mod order;
mod parse;
mod residual;
mod set;
mod shown;
mod table;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;

use rand::{Rng, RngExt};

use crate::{Schedule, Value};
use nearest::Searcher;

pub use budget::Limit;
pub use builder::{SpaceBuilder, SpaceError};
pub use expr::{Arith, Compare, Expr};
pub use parse::ParseError;
pub use shown::{shown, shown_around};

/// One position per parameter, in order of declaration.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Config(Box<[u16]>);

impl Deref for Config {
    type Target = [u16];

    #[inline]
    fn deref(&self) -> &[u16] {
        &self.0
    }
}

impl From<Vec<u16>> for Config {
    fn from(positions: Vec<u16>) -> Config {
        Config(positions.into())
    }
}

/// A parameter: a name and the values it may take.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Unique name.
    pub name: String,
    /// Distinct values; a [`Config`] holds positions in this list.
    pub values: Vec<Value>,
    /// Whether searches start with every value of it.
    pub structural: bool,
    /// Whether it is the size of the pieces that workers share: more workers want smaller ones.
    pub grain: bool,
    /// Per value: place in `0..=1`; `None` for names.
    coordinates: Vec<Option<f64>>,
}

impl Parameter {
    fn new(name: &str, values: &[Value], structural: bool, grain: bool) -> Parameter {
        let ints: Vec<i64> =
            values.iter().filter_map(|v| if let Value::Int(v) = v { Some(*v) } else { None }).collect();
        let mut sorted = ints.clone();
        sorted.sort_unstable();
        // Positive numbers are compared by ratio, others by rank.
        let place = |value: i64| {
            if sorted[0] > 0 { (value as f64).log2() } else { sorted.partition_point(|&other| other < value) as f64 }
        };
        let coordinate = |value: &Value| match value {
            Value::Int(value) => {
                let (lo, hi) = (place(sorted[0]), place(sorted[sorted.len() - 1]));
                // One value, or values so large that their logarithms are equal.
                Some(if hi > lo { (place(*value) - lo) / (hi - lo) } else { 0.0 })
            }
            Value::Name(_) => None,
        };
        let coordinates = values.iter().map(coordinate).collect();
        Parameter { name: name.into(), values: values.to_vec(), structural, grain, coordinates }
    }

    fn largest(&self) -> f64 {
        let size = |value: &Value| if let Value::Int(value) = value { (*value as f64).abs() } else { 0.0 };
        self.values.iter().map(size).fold(0.0, f64::max)
    }

    /// Place of each value in `0..=1`: by logarithm when all integers are positive, else by rank; `None` for names.
    pub fn coordinates(&self) -> &[Option<f64>] {
        &self.coordinates
    }

    /// Distance between two values given by position: 0 when equal; for two integers from 1/2 (close) to 1 (the ends of
    /// the domain); otherwise 1. That any change costs at least half keeps repairs to few parameters.
    ///
    /// # Panics
    /// When a position is outside the domain.
    pub fn distance(&self, a: u16, b: u16) -> f64 {
        distance(&self.coordinates, a, b)
    }
}

fn distance(coordinates: &[Option<f64>], a: u16, b: u16) -> f64 {
    if a == b {
        return 0.0;
    }
    match (coordinates[usize::from(a)], coordinates[usize::from(b)]) {
        (Some(a), Some(b)) => 0.5 + 0.5 * (a - b).abs(),
        _ => 1.0,
    }
}

/// A named condition that every configuration satisfies; in a space with a table ([`SpaceBuilder::table`]) it informs.
#[derive(Clone, Debug)]
pub struct Constraint {
    /// What it is for.
    pub name: String,
    /// Its canonical text.
    pub text: String,
    expr: Expr,
}

/// Why a schedule is no configuration of a space.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// The schedule sets something else.
    #[error("`{name}` is no parameter of this space; it has {known}")]
    UnknownParameter {
        /// The name.
        name: String,
        /// All parameters of the space, joined by commas.
        known: String,
    },
    /// The schedule leaves a parameter open.
    #[error("the schedule does not set `{parameter}`")]
    MissingParameter {
        /// The parameter.
        parameter: String,
    },
    /// The parameter never has this value.
    #[error("`{parameter}` cannot be `{value}`; its values are {domain}")]
    OutsideDomain {
        /// The parameter.
        parameter: String,
        /// The value.
        value: Value,
        /// All values, joined by commas.
        domain: String,
    },
    /// A constraint forbids the combination.
    #[error("constraint `{constraint}` forbids it: {text}")]
    Constraint {
        /// The constraint's name.
        constraint: String,
        /// Its text.
        text: String,
    },
    /// The space is a table, and the combination is not in it.
    #[error("no constraint forbids it, but it is not among the {rows} configurations that this space lists")]
    NotListed {
        /// How many are listed.
        rows: u128,
    },
}

/// What keeps a configuration out.
enum Violated<'a> {
    Constraint(&'a Constraint),
    Table,
}

/// A compiled space. It has at least one configuration.
pub struct ParameterSpace {
    params: Vec<Parameter>,
    constraints: Vec<Constraint>,
    /// Whether a table decides, not the constraints.
    listed: bool,
    /// One diagram per component.
    searchers: Vec<Searcher>,
    count: u128,
    index: BTreeMap<String, usize>,
    /// See [`ParameterSpace::start_from`].
    starts: Vec<Config>,
}

impl fmt::Debug for ParameterSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParameterSpace")
            .field("params", &self.params.len())
            .field("constraints", &self.constraints.len())
            .field("components", &self.searchers.len())
            .field("nodes", &self.nodes())
            .field("count", &self.count)
            .finish()
    }
}

impl ParameterSpace {
    /// Adds members to begin from: a search that tries a structural value which one of them has tries it there, and not
    /// near the default, whose other values were chosen for another structure. Schedules outside the space are left out.
    pub fn start_from(&mut self, schedules: impl IntoIterator<Item = Schedule>) {
        let members = schedules.into_iter().filter_map(|schedule| self.config(&schedule).ok());
        let members: Vec<Config> = members.filter(|config| self.contains(config)).collect();
        self.starts.extend(members);
    }

    /// Members to begin from, besides the default.
    pub fn starts(&self) -> &[Config] {
        &self.starts
    }

    /// The parameters in order of declaration.
    pub fn params(&self) -> &[Parameter] {
        &self.params
    }

    /// The position of a parameter in [`ParameterSpace::params`] and in a [`Config`].
    pub fn position(&self, parameter: &str) -> Option<usize> {
        self.index.get(parameter).copied()
    }

    /// The constraints in order of declaration.
    pub fn constraints(&self) -> &[Constraint] {
        &self.constraints
    }

    /// Number of configurations, at least 1.
    pub fn count(&self) -> u128 {
        self.count
    }

    /// Number of diagram nodes, over all components.
    pub fn nodes(&self) -> usize {
        self.searchers.iter().map(|searcher| searcher.diagram.len()).sum()
    }

    fn fits(&self, config: &Config) -> bool {
        config.len() == self.params.len()
            && config.iter().zip(&self.params).all(|(&position, param)| usize::from(position) < param.values.len())
    }

    /// Whether `config` is a configuration of this space.
    pub fn contains(&self, config: &Config) -> bool {
        self.fits(config)
            && self.searchers.iter().all(|searcher| {
                let diagram = &searcher.diagram;
                let mut node = diagram.root;
                diagram.params.iter().enumerate().all(|(level, &param)| {
                    let edge = diagram.step(node, level, config[usize::from(param)]);
                    node = edge.map_or(0, |edge| edge.child);
                    edge.is_some()
                })
            })
    }

    /// The number of a configuration in `0..count`, for use in memory only: another build of the same space may number
    /// differently. `None` when `config` is no configuration.
    pub fn rank(&self, config: &Config) -> Option<u128> {
        if !self.fits(config) {
            return None;
        }
        self.searchers
            .iter()
            .try_fold(0, |rank, searcher| Some(rank * searcher.diagram.count() + searcher.diagram.rank(config)?))
    }

    /// The configuration with this number; `None` from [`ParameterSpace::count`] on.
    pub fn unrank(&self, rank: u128) -> Option<Config> {
        if rank >= self.count {
            return None;
        }
        let (mut rank, mut values) = (rank, vec![0; self.params.len()]);
        for searcher in self.searchers.iter().rev() {
            let count = searcher.diagram.count();
            searcher.diagram.unrank(rank % count, &mut values);
            rank /= count;
        }
        Some(values.into())
    }

    /// A random configuration. Each parameter's value has a probability proportional to the `exponent`-th power of the
    /// number of configurations with it (and with the values chosen before): 1 is exactly uniform, 0 gives every value
    /// that occurs the same chance, 1/2 shows rare choices without living among them.
    pub fn sample(&self, rng: &mut impl Rng, exponent: f64) -> Config {
        if exponent == 1.0 {
            let rank = rng.random_range(0..self.count);
            return self.unrank(rank).expect("invariant: the rank is below the count");
        }
        let mut values = vec![0; self.params.len()];
        for searcher in &self.searchers {
            searcher.diagram.sample(exponent, &mut || rng.random::<f64>(), &mut values);
        }
        values.into()
    }

    /// The name of the first constraint that `config` violates. `None` for a configuration of this space. For one that is
    /// missing from a table ([`SpaceBuilder::table`]) although it satisfies all constraints, the answer is `table`.
    ///
    /// # Panics
    /// When a position is missing or outside its domain.
    pub fn why(&self, config: &Config) -> Option<&str> {
        match self.violated(config)? {
            Violated::Constraint(constraint) => Some(&constraint.name),
            Violated::Table => Some(table::TABLE),
        }
    }

    fn violated(&self, config: &Config) -> Option<Violated<'_>> {
        if self.listed && self.contains(config) {
            return None;
        }
        let value_of = |name: &str| {
            let position = *self.index.get(name)?;
            self.params[position].values.get(usize::from(config[position]))
        };
        let broken = self.constraints.iter().find(|constraint| !constraint.expr.holds(&value_of));
        broken.map(Violated::Constraint).or(self.listed.then_some(Violated::Table))
    }

    /// Why `schedule` is no configuration of this space; `None` when it is one.
    pub fn why_schedule(&self, schedule: &Schedule) -> Option<Rejection> {
        self.config(schedule).err()
    }

    /// The configuration nearest to `config` that has the `fixed` values; `None` when there is none or `config` does not
    /// fit the space. `config` need not satisfy the constraints. The distance is the sum over parameters of weight
    /// (missing: 1; limited to `0..=1e6`) times [`Parameter::distance`]; a missing entry of `fixed` is `None`. Ties are
    /// broken the same way every time.
    ///
    /// This one operation is repair (an invalid `config`), mutation (a fixed value) and crossover (parameters of the
    /// other parent, with weights).
    pub fn nearest(&self, config: &Config, weights: &[f64], fixed: &[Option<u16>]) -> Option<Config> {
        let possible =
            |(fixed, param): (&Option<u16>, &Parameter)| fixed.is_none_or(|v| usize::from(v) < param.values.len());
        if !self.fits(config) || !fixed.iter().zip(&self.params).all(possible) {
            return None;
        }
        let mut values = config.to_vec();
        self.searchers.iter().all(|searcher| searcher.nearest(&mut values, weights, fixed)).then(|| values.into())
    }

    /// For each other value of each parameter, the configuration with that value nearest to `config`, each once, in
    /// order of parameters and values. A space of more than two configurations gives at least two: if one result is
    /// nearest for all its changes, any third configuration differs elsewhere or is nearer.
    pub fn neighbours(&self, config: &Config) -> Vec<Config> {
        let mut found: Vec<Config> = Vec::new();
        if !self.fits(config) {
            return found;
        }
        let mut seen = std::collections::BTreeSet::new();
        let mut fixed = vec![None; self.params.len()];
        for (position, param) in self.params.iter().enumerate() {
            for value in (0u16..).take(param.values.len()).filter(|&value| value != config[position]) {
                fixed[position] = Some(value);
                if let Some(neighbour) = self.nearest(config, &[], &fixed)
                    && seen.insert(neighbour.clone())
                {
                    found.push(neighbour);
                }
            }
            fixed[position] = None;
        }
        found
    }

    /// The named values of `config`.
    ///
    /// # Panics
    /// When a position is missing or outside its domain.
    pub fn schedule(&self, config: &Config) -> Schedule {
        let value =
            |(param, &position): (&Parameter, &u16)| (param.name.clone(), param.values[usize::from(position)].clone());
        assert_eq!(self.params.len(), config.len(), "a configuration has one position per parameter");
        self.params.iter().zip(config.iter()).map(value).collect()
    }

    /// The configuration with these named values.
    ///
    /// # Errors
    /// The first reason why it is none: an unknown or missing parameter, a value outside the domain, a constraint.
    pub fn config(&self, schedule: &Schedule) -> Result<Config, Rejection> {
        if let Some((name, _)) = schedule.iter().find(|(name, _)| !self.index.contains_key(*name)) {
            let known = self.params.iter().map(|param| format!("`{}`", param.name)).collect::<Vec<_>>().join(", ");
            return Err(Rejection::UnknownParameter { name: name.into(), known });
        }
        let mut positions = Vec::with_capacity(self.params.len());
        for param in &self.params {
            let parameter = || param.name.clone();
            let Some(value) = schedule.get(&param.name) else {
                return Err(Rejection::MissingParameter { parameter: parameter() });
            };
            let Some(position) = param.values.iter().position(|known| known == value) else {
                let domain = param.values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                return Err(Rejection::OutsideDomain { parameter: parameter(), value: value.clone(), domain });
            };
            positions.push(u16::try_from(position).expect("invariant: the builder limits domains to u16"));
        }
        let config = Config::from(positions);
        match self.violated(&config) {
            None => Ok(config),
            Some(Violated::Table) => Err(Rejection::NotListed { rows: self.count }),
            Some(Violated::Constraint(Constraint { name, text, .. })) => {
                Err(Rejection::Constraint { constraint: name.clone(), text: text.clone() })
            }
        }
    }
}
