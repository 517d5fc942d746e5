//! Declares a space and compiles it.

use std::collections::{BTreeMap, BTreeSet};

use super::budget::{Budget, Limit};
use super::constraint::{NEVER, Restrictions, too_wide};
use super::diagram::{Diagram, Failure};
use super::expr::Expr;
use super::nearest::Searcher;
use super::order;
use super::parse::ParseError;
use super::residual::{Arena, Atom, Id, Node};
use super::shown::shown;
use super::{Constraint, Parameter, ParameterSpace, table};
use crate::Value;

/// Nodes one space may take unless [`SpaceBuilder::node_limit`] says otherwise.
const NODE_LIMIT: usize = 2_000_000;

/// Parameters one space may have; supports are bit sets of 128.
const MAX_PARAMETERS: usize = 128;

/// Terms of a constraint stay below this, so that 128-bit arithmetic cannot overflow in any order of evaluation.
const MAX_TERM: f64 = 1.0e30;

/// Why a space cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpaceError {
    /// Two parameters have one name.
    #[error("parameter `{name}` is declared twice; give each parameter its own name")]
    DuplicateParameter {
        /// The name.
        name: String,
    },
    /// A parameter has no value.
    #[error("parameter `{parameter}` has no values; give it at least one (`-` if it does not apply)")]
    EmptyDomain {
        /// The parameter.
        parameter: String,
    },
    /// A parameter lists a value twice.
    #[error("parameter `{parameter}` lists the value `{}` twice", shown(&value.to_string()))]
    DuplicateValue {
        /// The parameter.
        parameter: String,
        /// The value.
        value: Value,
    },
    /// A domain has more values than positions.
    #[error("parameter `{parameter}` has {count} values; at most {} are supported", u16::MAX)]
    TooManyValues {
        /// The parameter.
        parameter: String,
        /// Its number of values.
        count: usize,
    },
    /// Too many parameters.
    #[error("the space has {count} parameters; at most {MAX_PARAMETERS} are supported")]
    TooManyParameters {
        /// Their number.
        count: usize,
    },
    /// A name that is no parameter.
    #[error("{place} names `{}`, which is no parameter of the space", shown(name))]
    UnknownParameter {
        /// Where it is named: `constraint ...` or `structural`.
        place: String,
        /// The name.
        name: String,
    },
    /// The text of a constraint is no expression.
    #[error("constraint `{}` cannot be read", shown(constraint))]
    Parse {
        /// The constraint's name.
        constraint: String,
        /// What is wrong.
        source: ParseError,
    },
    /// A constraint uses a number as a condition or a condition as a number.
    #[error("constraint `{}`: `{}` is {found} where {wanted} is needed",
        shown(constraint), shown(part),
        found = if *.condition { "a condition" } else { "a value" },
        wanted = if *.condition { "a value" } else { "a condition (compare it with something)" })]
    IllTyped {
        /// The constraint's name.
        constraint: String,
        /// The part in the wrong place.
        part: String,
        /// Whether that part is a condition.
        condition: bool,
    },
    /// A constraint computes numbers too large for exact arithmetic.
    #[error("constraint `{}` can reach numbers above 1e30; use smaller values or divide earlier", shown(constraint))]
    TooLarge {
        /// The constraint's name.
        constraint: String,
    },
    /// No configuration satisfies the constraints.
    #[error("no configuration satisfies the constraints; the first that leaves none is `{}`", shown(constraint))]
    Empty {
        /// The first constraint, in order of declaration, after which nothing is left.
        constraint: String,
    },
    /// The diagram is too large.
    #[error(
        "the space needs more than {limit}; it grew too wide after parameter `{parameter}` because of \
         `{constraints}`: simplify these, or shorten the domains of their parameters"
    )]
    TooWide {
        /// The parameter after which too many different restrictions remained.
        parameter: String,
        /// The constraints that were then partly decided, joined by commas.
        constraints: String,
        /// The limit.
        limit: Limit,
    },
    /// A table without rows.
    #[error("the table of the space has no rows; list at least one configuration")]
    EmptyTable,
    /// A table with too many rows.
    #[error("the table of the space has {rows} rows; at most {limit} are supported")]
    TableTooLarge {
        /// Its number of rows.
        rows: usize,
        /// The limit: that of nodes.
        limit: usize,
    },
    /// A table whose diagram is too large.
    #[error("the table of the space, of {rows} rows, needs more than {limit}; keep fewer rows or parameters")]
    TableTooWide {
        /// Its number of rows.
        rows: usize,
        /// The limit.
        limit: Limit,
    },
    /// A row of a table that is no assignment to all parameters.
    #[error("row {row} of the table has {found} positions; the space has {wanted} parameters")]
    RowLength {
        /// Which row, from 0 in the order given.
        row: usize,
        /// Its positions.
        found: usize,
        /// The parameters of the space.
        wanted: usize,
    },
    /// A row of a table with a position that its parameter does not have.
    #[error("row {row} of the table has position {position} for parameter `{parameter}`, which has {count} values")]
    RowOutsideDomain {
        /// Which row, from 0 in the order given.
        row: usize,
        /// The parameter.
        parameter: String,
        /// The position.
        position: u16,
        /// How many values the parameter has.
        count: usize,
    },
    /// A table that lists a configuration twice.
    #[error("the table of the space lists {row} twice; list each configuration once")]
    DuplicateRow {
        /// The configuration as `parameter=value` words.
        row: String,
    },
    /// More than 2^128 - 1 configurations.
    #[error("the space has 2^128 or more configurations; fix some parameters")]
    CountOverflow,
}

/// Declares the parameters and constraints of a space. Mistakes are reported by [`SpaceBuilder::build`].
///
/// ```
/// use tilewright_search_space::space::SpaceBuilder;
/// let mut builder = SpaceBuilder::new();
/// builder
///     .param("mr", 1..=8)
///     .param("mc", [8, 16, 24, 48])
///     .names("pack_a", &["yes", "no"])
///     .require("whole tiles", "mc % mr == 0")
///     .require("small tiles stay unpacked", "pack_a == 'yes' => mc >= 16");
/// let space = builder.build()?;
/// assert_eq!(space.count(), 36);
/// # Ok::<(), tilewright_search_space::space::SpaceError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct SpaceBuilder {
    params: Vec<(String, Vec<Value>)>,
    structural: Vec<String>,
    grain: Vec<String>,
    constraints: Vec<(String, Result<Expr, ParseError>)>,
    table: Option<Vec<Vec<u16>>>,
    node_limit: Option<usize>,
    work_limit: Option<(u64, u64)>,
}

impl SpaceBuilder {
    /// A space without parameters.
    pub fn new() -> SpaceBuilder {
        SpaceBuilder::default()
    }

    /// Adds a parameter with integer values; they are sorted and made distinct.
    pub fn param(&mut self, name: impl Into<String>, values: impl IntoIterator<Item = i64>) -> &mut Self {
        let values: BTreeSet<i64> = values.into_iter().collect();
        self.values(name, values.into_iter().map(Value::Int).collect())
    }

    /// Adds a parameter whose values are names.
    pub fn names(&mut self, name: impl Into<String>, values: &[&str]) -> &mut Self {
        self.values(name, values.iter().map(|&value| value.into()).collect())
    }

    /// Adds a parameter with any values, in this order; [`Value::none`] is for *does not apply*.
    pub fn values(&mut self, name: impl Into<String>, values: Vec<Value>) -> &mut Self {
        self.params.push((name.into(), values));
        self
    }

    /// Marks a parameter as structural: searches start with every value of it.
    pub fn structural(&mut self, name: impl Into<String>) -> &mut Self {
        self.structural.push(name.into());
        self
    }

    /// Marks a parameter as the size of the pieces that workers share.
    pub fn grain(&mut self, name: impl Into<String>) -> &mut Self {
        self.grain.push(name.into());
        self
    }

    /// Adds a constraint given as text; see [`Expr`].
    pub fn require(&mut self, name: impl Into<String>, text: &str) -> &mut Self {
        self.constraints.push((name.into(), Expr::parse(text)));
        self
    }

    /// Adds a constraint given as a tree.
    pub fn require_expr(&mut self, name: impl Into<String>, expr: Expr) -> &mut Self {
        self.constraints.push((name.into(), Ok(expr)));
        self
    }

    /// Makes the space hold exactly these configurations: positions in the order in which parameters are declared.
    ///
    /// Constraints then only inform: they must be well formed, but neither need all rows satisfy them nor are they
    /// compiled. For a configuration that satisfies them all and is not listed, [`ParameterSpace::why`] answers `table`.
    pub fn table(&mut self, rows: Vec<Vec<u16>>) -> &mut Self {
        self.table = Some(rows);
        self
    }

    /// Replaces the limit of two million diagram nodes (with a table: of rows).
    pub fn node_limit(&mut self, nodes: usize) -> &mut Self {
        self.node_limit = Some(nodes);
        self
    }

    /// Replaces the limits of the work that compilation may take, in steps, and of what it may keep, in bytes. Both are
    /// counted the same way on every machine. The limits that hold without this call are those of a few seconds and of
    /// less than a gigabyte.
    pub fn work_limit(&mut self, steps: u64, bytes: u64) -> &mut Self {
        self.work_limit = Some((steps, bytes));
        self
    }

    /// Compiles the space. A built space has at least one configuration.
    ///
    /// # Errors
    /// The first mistake in a declaration, a space without configurations, or one too large to compile; see
    /// [`SpaceError`].
    pub fn build(&self) -> Result<ParameterSpace, SpaceError> {
        let params = self.checked_params()?;
        let constraints = self.checked_constraints(&params)?;
        let limit = self.node_limit.unwrap_or(NODE_LIMIT);
        let budget = Budget::new(self.work_limit);
        let (components, count) = match &self.table {
            Some(rows) => {
                let diagram = table::diagram(&params, rows, limit, &budget)?;
                let count = diagram.count();
                (vec![diagram], count)
            }
            None => compile(&params, &constraints, limit, &budget)?,
        };
        let index = params.iter().enumerate().map(|(position, param)| (param.name.clone(), position)).collect();
        let searchers = components.into_iter().map(|diagram| Searcher::new(diagram, &params)).collect();
        Ok(ParameterSpace {
            params,
            constraints,
            listed: self.table.is_some(),
            searchers,
            count,
            index,
            starts: Vec::new(),
        })
    }

    fn checked_params(&self) -> Result<Vec<Parameter>, SpaceError> {
        if self.params.len() > MAX_PARAMETERS {
            return Err(SpaceError::TooManyParameters { count: self.params.len() });
        }
        let mut names = BTreeSet::new();
        for (name, values) in &self.params {
            let parameter = || name.clone();
            if !names.insert(name.as_str()) {
                return Err(SpaceError::DuplicateParameter { name: parameter() });
            }
            if values.is_empty() {
                return Err(SpaceError::EmptyDomain { parameter: parameter() });
            }
            if values.len() > usize::from(u16::MAX) {
                return Err(SpaceError::TooManyValues { parameter: parameter(), count: values.len() });
            }
            let mut seen = BTreeSet::new();
            if let Some(value) = values.iter().find(|value| !seen.insert(*value)) {
                return Err(SpaceError::DuplicateValue { parameter: parameter(), value: value.clone() });
            }
        }
        for (place, marked) in [("structural", &self.structural), ("grain", &self.grain)] {
            if let Some(name) = marked.iter().find(|name| !names.contains(name.as_str())) {
                return Err(SpaceError::UnknownParameter { place: format!("`{place}`"), name: name.clone() });
            }
        }
        let marked = |marked: &[String], name: &String| marked.contains(name);
        let parameter = |(name, values): &(String, Vec<Value>)| {
            Parameter::new(name, values, marked(&self.structural, name), marked(&self.grain, name))
        };
        Ok(self.params.iter().map(parameter).collect())
    }

    fn checked_constraints(&self, params: &[Parameter]) -> Result<Vec<Constraint>, SpaceError> {
        let largest: BTreeMap<&str, f64> = params.iter().map(|param| (param.name.as_str(), param.largest())).collect();
        let mut constraints = Vec::with_capacity(self.constraints.len());
        for (name, expr) in &self.constraints {
            let constraint = name.clone();
            let expr = match expr {
                Ok(expr) => expr,
                Err(source) => return Err(SpaceError::Parse { constraint, source: source.clone() }),
            };
            if let Some(part) = if expr.is_condition() { expr.ill_typed() } else { Some(expr) } {
                return Err(SpaceError::IllTyped {
                    constraint,
                    part: part.to_string(),
                    condition: part.is_condition(),
                });
            }
            if let Some(unknown) = expr.params().into_iter().find(|name| !largest.contains_key(name)) {
                let place = format!("constraint `{}`", shown(&constraint));
                return Err(SpaceError::UnknownParameter { place, name: unknown.into() });
            }
            if magnitude(expr, &largest) > MAX_TERM {
                return Err(SpaceError::TooLarge { constraint });
            }
            constraints.push(Constraint { name: constraint, text: expr.to_string(), expr: expr.clone() });
        }
        Ok(constraints)
    }
}

/// A bound on the absolute value of every term of `expr`, in whatever order it is evaluated.
fn magnitude(expr: &Expr, largest: &BTreeMap<&str, f64>) -> f64 {
    use super::expr::Arith;
    match expr {
        Expr::Int(value) => (*value as f64).abs(),
        Expr::Name(_) => 0.0,
        Expr::Param(name) => largest.get(name.as_str()).copied().unwrap_or(0.0),
        Expr::Arith(Arith::Mul, a, b) => magnitude(a, largest).max(1.0) * magnitude(b, largest).max(1.0),
        // A difference of the sides is formed, so the sum bounds comparisons and conditions too.
        Expr::Arith(_, a, b) | Expr::Compare(_, a, b) | Expr::And(a, b) | Expr::Or(a, b) | Expr::Implies(a, b) => {
            magnitude(a, largest) + magnitude(b, largest)
        }
        Expr::In(a, list) => magnitude(a, largest) + list.iter().map(|item| magnitude(item, largest)).sum::<f64>(),
        Expr::Not(a) => magnitude(a, largest),
    }
}

fn compile(
    params: &[Parameter],
    constraints: &[Constraint],
    limit: usize,
    budget: &Budget,
) -> Result<(Vec<Diagram>, u128), SpaceError> {
    if let Some(found) = diagrams(params, constraints, limit, budget)? {
        return Ok(found);
    }
    // Say which constraint is to blame: the last of the shortest prefix that leaves nothing. Longer prefixes leave less.
    let (mut some, mut none) = (0, constraints.len());
    while none - some > 1 {
        let middle = some.midpoint(none);
        match diagrams(params, &constraints[..middle], limit, &budget.again()) {
            Ok(Some(_)) | Err(SpaceError::CountOverflow) => some = middle,
            Ok(None) => none = middle,
            Err(other) => return Err(other),
        }
    }
    let first = constraints.get(none - 1).expect("invariant: a space without constraints is not empty");
    Err(SpaceError::Empty { constraint: first.name.clone() })
}

/// The diagrams of all components and the number of configurations; `None` when there are none.
fn diagrams(
    params: &[Parameter],
    constraints: &[Constraint],
    limit: usize,
    budget: &Budget,
) -> Result<Option<(Vec<Diagram>, u128)>, SpaceError> {
    let position: BTreeMap<&str, u16> = params.iter().map(|param| param.name.as_str()).zip(0u16..).collect();
    let mut names: BTreeMap<String, u32> = BTreeMap::new();
    let mut number = |name: &str| {
        let next = u32::try_from(names.len()).expect("invariant: fewer names than values");
        *names.entry(name.to_owned()).or_insert(next)
    };
    let domains = params
        .iter()
        .map(|param| {
            let atom = |value: &Value| match value {
                Value::Int(value) => Atom::Int(i128::from(*value)),
                Value::Name(name) => Atom::Name(number(name)),
            };
            param.values.iter().map(atom).collect()
        })
        .collect();
    let mut arena = Arena::new(domains, budget.clone());
    // A conjunction restricts as its parts do, and separate parts compile to smaller diagrams.
    let mut parts: Vec<(usize, Id)> = Vec::new();
    for (constraint, Constraint { expr, .. }) in constraints.iter().enumerate() {
        let id = arena.read(expr, &|name| position[name], &mut number);
        if budget.spent() {
            let parameter = expr.params().first().map(|name| (*name).to_owned()).unwrap_or_default();
            return Err(too_wide(parameter, vec![shown(&constraints[constraint].name)], budget.passed(limit)));
        }
        match arena.node(id) {
            Node::All(inner) => parts.extend(inner.iter().map(|&part| (constraint, part))),
            _ => parts.push((constraint, id)),
        }
    }
    let supports: Vec<u128> = parts.iter().map(|&(_, id)| arena.support(id)).collect();
    let sizes: Vec<usize> = params.iter().map(|param| param.values.len()).collect();
    let components = order::components(&supports, &sizes);
    let order: Vec<u16> = components.concat();

    let mut restrictions = Restrictions::new(&mut arena, &order, limit);
    let mut roots = Vec::with_capacity(parts.len());
    for &(constraint, id) in &parts {
        roots.push(restrictions.compile(id).map_err(|param| {
            let parameter = params[usize::from(param)].name.clone();
            too_wide(parameter, vec![shown(&constraints[constraint].name)], budget.passed(limit))
        })?);
    }
    if roots.contains(&NEVER) {
        return Ok(None);
    }
    let (mut found, mut count, mut base) = (Vec::with_capacity(components.len()), 1u128, 0u16);
    for component in components {
        let mask = component.iter().fold(0u128, |mask, param| mask | 1 << param);
        let levels = u16::try_from(component.len()).expect("invariant: at most 128 parameters");
        let own: Vec<u32> =
            roots.iter().zip(&supports).filter(|(_, support)| *support & mask != 0).map(|(&root, _)| root).collect();
        let diagram = match Diagram::build(component, base, &own, &mut restrictions, limit) {
            Ok(diagram) => diagram,
            Err(Failure::Empty) => return Ok(None),
            Err(Failure::CountOverflow) => return Err(SpaceError::CountOverflow),
            Err(Failure::TooWide(level)) => {
                let done = order[..=usize::from(level)].iter().fold(0u128, |done, param| done | 1 << param);
                let open =
                    supports.iter().zip(&parts).filter(|(support, _)| **support & done != 0 && **support & !done != 0);
                let blamed: BTreeSet<usize> = open.map(|(_, &(constraint, _))| constraint).collect();
                let parameter = params[usize::from(order[usize::from(level)])].name.clone();
                let blamed = blamed.iter().map(|&c| shown(&constraints[c].name)).collect();
                return Err(too_wide(parameter, blamed, budget.passed(limit)));
            }
        };
        count = count.checked_mul(diagram.count()).ok_or(SpaceError::CountOverflow)?;
        found.push(diagram);
        base += levels;
    }
    Ok(Some((found, count)))
}
