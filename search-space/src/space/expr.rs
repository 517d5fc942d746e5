//! Constraint expressions: what they are, what they mean, how they print.
//!
//! A *term* is an integer, a name or **undefined**. Undefined arises from arithmetic on a name (also on `-`, the value of
//! a parameter that does not apply), from division by zero and from leaving 128 bits. Rules:
//!
//! - `/` rounds down, `%` takes the sign of the divisor, `ceildiv(a, b)` rounds up.
//! - A comparison with an undefined side is false, whichever comparison it is, also `!=`.
//! - `==` between an integer and a name is false, `!=` is true. `<`, `<=`, `>`, `>=` are false unless both are integers.
//! - `x in [a, b]` is `x == a || x == b`. Conditions are two-valued; `a => b` is `!a || b`.

use std::fmt;

use crate::Value;

/// An operation on two integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Arith {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// `a / b`, rounded down
    Div,
    /// `a % b`, with the sign of `b`
    Mod,
    /// `min(a, b)`
    Min,
    /// `max(a, b)`
    Max,
    /// `ceildiv(a, b)`, rounded up
    CeilDiv,
}

impl Arith {
    /// The result on two integers; `None` is undefined (division by zero, more than 128 bits).
    pub(super) fn apply(self, a: i128, b: i128) -> Option<i128> {
        match self {
            Arith::Add => a.checked_add(b),
            Arith::Sub => a.checked_sub(b),
            Arith::Mul => a.checked_mul(b),
            Arith::Div => floor_div(a, b),
            Arith::Mod => floor_div(a, b).map(|quotient| a - quotient * b),
            Arith::Min => Some(a.min(b)),
            Arith::Max => Some(a.max(b)),
            Arith::CeilDiv => floor_div(a.checked_neg()?, b)?.checked_neg(),
        }
    }

    fn symbol(self) -> &'static str {
        match self {
            Arith::Add => "+",
            Arith::Sub => "-",
            Arith::Mul => "*",
            Arith::Div => "/",
            Arith::Mod => "%",
            Arith::Min => "min",
            Arith::Max => "max",
            Arith::CeilDiv => "ceildiv",
        }
    }
}

fn floor_div(a: i128, b: i128) -> Option<i128> {
    let quotient = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Compare {
    /// `a == b`
    Eq,
    /// `a != b`
    Ne,
    /// `a < b`
    Lt,
    /// `a <= b`
    Le,
    /// `a > b`
    Gt,
    /// `a >= b`
    Ge,
}

impl Compare {
    fn symbol(self) -> &'static str {
        match self {
            Compare::Eq => "==",
            Compare::Ne => "!=",
            Compare::Lt => "<",
            Compare::Le => "<=",
            Compare::Gt => ">",
            Compare::Ge => ">=",
        }
    }
}

/// An expression over parameters. The text form is read by [`Expr::parse`] and printed by `Display`.
///
/// ```
/// use tilewright_search_space::space::Expr;
/// let text = "pack_a == 'yes' => mc * kc * 4 <= 1048576 && order in ['jc.pc.ic', '-']";
/// assert_eq!(Expr::parse(text)?.to_string(), text);
/// # Ok::<(), tilewright_search_space::space::ParseError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Expr {
    /// An integer.
    Int(i64),
    /// A name, written in single quotes.
    Name(String),
    /// The value of a parameter.
    Param(String),
    /// Arithmetic on two terms.
    Arith(Arith, Box<Expr>, Box<Expr>),
    /// Comparison of two terms.
    Compare(Compare, Box<Expr>, Box<Expr>),
    /// Whether a term equals one of several.
    In(Box<Expr>, Vec<Expr>),
    /// Negation of a condition.
    Not(Box<Expr>),
    /// Both conditions.
    And(Box<Expr>, Box<Expr>),
    /// At least one condition.
    Or(Box<Expr>, Box<Expr>),
    /// The first condition implies the second.
    Implies(Box<Expr>, Box<Expr>),
}

/// A defined term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Term<'a> {
    Int(i128),
    Name(&'a str),
}

impl Expr {
    /// Whether the expression is a condition (true or false) rather than a term.
    pub(super) fn is_condition(&self) -> bool {
        !matches!(self, Expr::Int(_) | Expr::Name(_) | Expr::Param(_) | Expr::Arith(..))
    }

    /// The part that is a term where a condition is needed, or the reverse.
    pub(super) fn ill_typed(&self) -> Option<&Expr> {
        let want = |part: &'_ Expr, condition: bool| part.is_condition() != condition;
        match self {
            Expr::Int(_) | Expr::Name(_) | Expr::Param(_) => None,
            Expr::Arith(_, a, b) | Expr::Compare(_, a, b) => {
                [a, b].into_iter().find_map(|part| if want(part, false) { Some(&**part) } else { part.ill_typed() })
            }
            Expr::In(a, list) => std::iter::once(&**a)
                .chain(list)
                .find_map(|part| if want(part, false) { Some(part) } else { part.ill_typed() }),
            Expr::Not(a) => {
                if want(a, true) {
                    Some(a)
                } else {
                    a.ill_typed()
                }
            }
            Expr::And(a, b) | Expr::Or(a, b) | Expr::Implies(a, b) => {
                [a, b].into_iter().find_map(|part| if want(part, true) { Some(&**part) } else { part.ill_typed() })
            }
        }
    }

    /// The names of all parameters, in order of appearance, with repetitions.
    pub fn params(&self) -> Vec<&str> {
        match self {
            Expr::Int(_) | Expr::Name(_) => Vec::new(),
            Expr::Param(name) => vec![name],
            Expr::Not(a) => a.params(),
            Expr::In(a, list) => std::iter::once(&**a).chain(list).flat_map(Expr::params).collect(),
            Expr::Arith(_, a, b) | Expr::Compare(_, a, b) | Expr::And(a, b) | Expr::Or(a, b) | Expr::Implies(a, b) => {
                [a, b].into_iter().flat_map(|part| part.params()).collect()
            }
        }
    }

    /// Whether the condition holds when each parameter has the value that `value_of` gives; a parameter without a value
    /// is undefined. A term in the place of a condition does not hold. This is the definition against which the
    /// compiled diagram is tested.
    pub fn holds<'a>(&'a self, value_of: &impl Fn(&str) -> Option<&'a Value>) -> bool {
        match self {
            Expr::Int(_) | Expr::Name(_) | Expr::Param(_) | Expr::Arith(..) => false,
            Expr::Compare(compare, a, b) => match (a.term(value_of), b.term(value_of)) {
                (Some(a), Some(b)) => match (compare, a, b) {
                    (Compare::Eq, a, b) => a == b,
                    (Compare::Ne, a, b) => a != b,
                    (Compare::Lt, Term::Int(a), Term::Int(b)) => a < b,
                    (Compare::Le, Term::Int(a), Term::Int(b)) => a <= b,
                    (Compare::Gt, Term::Int(a), Term::Int(b)) => a > b,
                    (Compare::Ge, Term::Int(a), Term::Int(b)) => a >= b,
                    _ => false,
                },
                _ => false,
            },
            Expr::In(a, list) => {
                a.term(value_of).is_some_and(|a| list.iter().any(|item| item.term(value_of) == Some(a)))
            }
            Expr::Not(a) => !a.holds(value_of),
            Expr::And(a, b) => a.holds(value_of) && b.holds(value_of),
            Expr::Or(a, b) => a.holds(value_of) || b.holds(value_of),
            Expr::Implies(a, b) => !a.holds(value_of) || b.holds(value_of),
        }
    }

    fn term<'a>(&'a self, value_of: &impl Fn(&str) -> Option<&'a Value>) -> Option<Term<'a>> {
        match self {
            Expr::Int(value) => Some(Term::Int(i128::from(*value))),
            Expr::Name(name) => Some(Term::Name(name)),
            Expr::Param(name) => Some(match value_of(name)? {
                Value::Int(value) => Term::Int(i128::from(*value)),
                Value::Name(name) => Term::Name(name),
            }),
            Expr::Arith(op, a, b) => match (a.term(value_of)?, b.term(value_of)?) {
                (Term::Int(a), Term::Int(b)) => op.apply(a, b).map(Term::Int),
                _ => None,
            },
            _ => None,
        }
    }

    /// How tightly the outermost operation binds; larger is tighter.
    fn precedence(&self) -> u8 {
        match self {
            Expr::Implies(..) => 0,
            Expr::Or(..) => 1,
            Expr::And(..) => 2,
            Expr::Compare(..) | Expr::In(..) => 4,
            Expr::Arith(Arith::Add | Arith::Sub, ..) => 5,
            Expr::Arith(Arith::Mul | Arith::Div | Arith::Mod, ..) => 6,
            // A negative integer in the middle of an expression is put in parentheses.
            Expr::Int(value) if *value < 0 => 6,
            Expr::Not(_) | Expr::Int(_) | Expr::Name(_) | Expr::Param(_) | Expr::Arith(..) => 7,
        }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, needed: u8) -> fmt::Result {
        let own = self.precedence();
        if own < needed {
            f.write_str("(")?;
            self.write(f, 0)?;
            return f.write_str(")");
        }
        let mut infix = |a: &Expr, symbol: &str, b: &Expr, left: u8, right: u8| {
            a.write(f, left)?;
            write!(f, " {symbol} ")?;
            b.write(f, right)
        };
        match self {
            Expr::Implies(a, b) => infix(a, "=>", b, 1, 0),
            Expr::Or(a, b) => infix(a, "||", b, 1, 2),
            Expr::And(a, b) => infix(a, "&&", b, 2, 3),
            Expr::Compare(compare, a, b) => infix(a, compare.symbol(), b, 5, 5),
            Expr::Arith(op @ (Arith::Add | Arith::Sub), a, b) => infix(a, op.symbol(), b, 5, 6),
            Expr::Arith(op @ (Arith::Mul | Arith::Div | Arith::Mod), a, b) => infix(a, op.symbol(), b, 6, 7),
            Expr::Arith(op, a, b) => {
                write!(f, "{}(", op.symbol())?;
                a.write(f, 0)?;
                f.write_str(", ")?;
                b.write(f, 0)?;
                f.write_str(")")
            }
            Expr::In(a, list) => {
                a.write(f, 5)?;
                f.write_str(" in [")?;
                for (position, item) in list.iter().enumerate() {
                    if position > 0 {
                        f.write_str(", ")?;
                    }
                    item.write(f, 0)?;
                }
                f.write_str("]")
            }
            Expr::Not(a) => {
                f.write_str("!")?;
                a.write(f, 7)
            }
            Expr::Int(value) => write!(f, "{value}"),
            Expr::Name(name) => write!(f, "'{}'", name.replace('\'', "''")),
            Expr::Param(name) if super::parse::is_plain(name) => f.write_str(name),
            Expr::Param(name) => write!(f, "`{name}`"),
        }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(text: &str) -> bool {
        let (four, none, wide) = (Value::Int(4), Value::none(), Value::from("wide"));
        Expr::parse(text).unwrap().holds(&|name| match name {
            "four" => Some(&four),
            "none" => Some(&none),
            "wide" => Some(&wide),
            _ => None,
        })
    }

    #[test]
    fn undefined_terms_make_every_comparison_false() {
        for compare in ["==", "!=", "<", "<=", ">", ">="] {
            assert!(!holds(&format!("none + 1 {compare} 4")), "{compare}");
            assert!(!holds(&format!("four / 0 {compare} 4")), "{compare}");
            assert!(!holds(&format!("four % 0 {compare} four % 0")), "{compare}");
            assert!(!holds(&format!("unknown {compare} 4")), "{compare}");
        }
        assert!(holds("!(none + 1 == 4)"));
        assert!(holds("none == '-' && none != 4 && !(none == 4) && wide in [1, 'wide']"));
        assert!(!holds("none < 4") && !holds("none >= 4") && !holds("wide <= 'wide'"));
    }

    #[test]
    fn division_rounds_as_written() {
        assert!(holds("7 / 2 == 3 && -7 / 2 == -4 && 7 % -2 == -1 && -7 % 2 == 1"));
        assert!(holds("ceildiv(7, 2) == 4 && ceildiv(-7, 2) == -3 && ceildiv(8, 4) == 2"));
        assert!(holds("min(four, 3) == 3 && max(four, 3) == 4"));
        assert!(!holds(&format!("{} >= 0", ["9223372036854775807"; 4].join(" * "))));
    }

    #[test]
    fn ill_typed_parts_are_found() {
        for (text, part) in
            [("four + 1", None), ("four && four == 4", Some("four")), ("(four == 4) + 1 == 2", Some("four == 4"))]
        {
            assert_eq!(Expr::parse(text).unwrap().ill_typed().map(ToString::to_string).as_deref(), part, "{text}");
        }
    }
}
