//! Constraints written in Python, as Kernel Tuner and recorded spaces publish them, translated into [`Expr`].
//!
//! Understood: `and`, `or`, `not`, `A if C else B` between conditions, comparisons in chains (`32 <= a * b <= 1024`),
//! `in` and `not in` a list, `+ - * / // % **`, `min`, `max`, `abs`, `int`, `ceil`, `floor` (also with `math.`),
//! parentheses, decimal numbers, texts, `True`, `False`, and a number where a condition is needed (*is not 0*).
//! Constants of the file are put in.
//!
//! The meaning is Python's on exact numbers: `/` divides exactly, so `KWG % (MDIMC * NDIMC / MDIMA) == 0` becomes
//! `KWG * MDIMA % (MDIMC * NDIMC) == 0` ([`term`]); it needs a divisor that is surely positive. `//` and `%` round down.
//! One difference remains: where Python divides by zero and stops, a comparison here is false.
//! What else Python can say is refused with the place.

mod parse;
mod term;
mod token;

use std::collections::BTreeMap;

use search_space::Value;
use search_space::space::{Expr, shown, shown_around};

pub(crate) use parse::translate;

/// Why a constraint was not translated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("constraint `{}`, byte {at}: {problem}", shown_around(constraint, *at))]
pub struct Untranslated {
    /// Its text.
    pub constraint: String,
    /// Byte offset of the trouble.
    pub at: usize,
    /// What is wrong there.
    pub problem: PythonProblem,
}

/// What is wrong with a constraint written in Python.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PythonProblem {
    /// It is no expression.
    #[error("expected {wanted}")]
    Expected {
        /// What would have been right there.
        wanted: &'static str,
    },
    /// A name that is neither a parameter nor a constant.
    #[error("`{}` is neither a parameter nor a constant of the space", shown(name))]
    UnknownName {
        /// The name.
        name: String,
    },
    /// Python that has no counterpart here.
    #[error(
        "{} cannot be translated; write the condition with and, or, not, comparisons and integer arithmetic",
        shown(what)
    )]
    Unsupported {
        /// The part.
        what: String,
    },
    /// An exact division by something that may be 0 or negative.
    #[error("the divisor `{}` may be 0 or negative; multiply instead, or divide with `//`", shown(divisor))]
    Divisor {
        /// The divisor, translated.
        divisor: String,
    },
    /// A calculation with something that is no integer.
    #[error("`{}` is not always an integer, so it can be compared with `==`, `!=` and `in` only", shown(name))]
    NotANumber {
        /// The parameter or text.
        name: String,
    },
    /// Too long, or too large once fractions are multiplied out.
    #[error("the constraint is too large; split it, or use `//` where a division is exact")]
    TooLarge,
}

/// The names that a constraint may use.
pub(crate) struct Names<'a> {
    parameters: BTreeMap<&'a str, &'a [Value]>,
    constants: &'a BTreeMap<String, Value>,
}

impl<'a> Names<'a> {
    pub(crate) fn new(parameters: &'a [(String, Vec<Value>)], constants: &'a BTreeMap<String, Value>) -> Names<'a> {
        Names {
            parameters: parameters.iter().map(|(name, values)| (name.as_str(), values.as_slice())).collect(),
            constants,
        }
    }

    /// The values of a parameter.
    fn domain(&self, name: &str) -> Option<&'a [Value]> {
        self.parameters.get(name).copied()
    }

    /// `expr` with constants in the place of their names; a parameter of the same name goes first.
    pub(crate) fn replaced(&self, expr: Expr) -> Expr {
        let both = |a: Box<Expr>, b: Box<Expr>| (self.replaced(*a).into(), self.replaced(*b).into());
        match expr {
            Expr::Param(name) => match self.constants.get(&name) {
                Some(Value::Int(value)) if !self.parameters.contains_key(name.as_str()) => Expr::Int(*value),
                Some(Value::Name(value)) if !self.parameters.contains_key(name.as_str()) => Expr::Name(value.clone()),
                _ => Expr::Param(name),
            },
            Expr::Int(_) | Expr::Name(_) => expr,
            Expr::Not(a) => Expr::Not(self.replaced(*a).into()),
            Expr::In(a, list) => {
                Expr::In(self.replaced(*a).into(), list.into_iter().map(|item| self.replaced(item)).collect())
            }
            Expr::Arith(op, a, b) => {
                let (a, b) = both(a, b);
                Expr::Arith(op, a, b)
            }
            Expr::Compare(op, a, b) => {
                let (a, b) = both(a, b);
                Expr::Compare(op, a, b)
            }
            Expr::And(a, b) => {
                let (a, b) = both(a, b);
                Expr::And(a, b)
            }
            Expr::Or(a, b) => {
                let (a, b) = both(a, b);
                Expr::Or(a, b)
            }
            Expr::Implies(a, b) => {
                let (a, b) = both(a, b);
                Expr::Implies(a, b)
            }
        }
    }
}

#[cfg(test)]
mod tests;
