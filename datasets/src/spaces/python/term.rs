//! Exact arithmetic on the terms of a Python expression.
//!
//! Python's `/` divides exactly while a constraint here knows integers only. So a term is a fraction of two integer
//! expressions whose denominator is known to be positive, and the rules are those of rational numbers:
//!
//! ```text
//! (a/b) / (c/d)   =>  (a*d) / (b*c)                 needs c > 0
//! (a/b) // (c/d)  =>  floor(a*d / (c*b))
//! (a/b) % (c/d)   =>  ((a*d) % (c*b)) / (b*d)
//! a/b <= c/d      =>  a*d <= c*b
//! ```

use search_space::Value;
use search_space::space::{Arith, Compare, Expr};

use super::token::gcd;
use super::{Names, PythonProblem};

/// Expressions with more parts are refused: translation can repeat parts.
pub(super) const MAX_PARTS: usize = 2048;

/// `num / den` with a positive `den`.
#[derive(Clone, Debug)]
pub(super) struct Term {
    pub(super) num: Expr,
    pub(super) den: Expr,
}

impl Term {
    pub(super) fn whole(num: Expr) -> Term {
        Term { num, den: Expr::Int(1) }
    }

    /// Whether it is an integer by construction.
    pub(super) fn is_whole(&self) -> bool {
        self.den == Expr::Int(1)
    }

    /// The value when it is a constant.
    pub(super) fn constant(&self) -> Option<(i64, i64)> {
        match (&self.num, &self.den) {
            (Expr::Int(num), Expr::Int(den)) => Some((*num, *den)),
            _ => None,
        }
    }

    /// Limits the size and cancels what is constant.
    fn checked(num: Expr, den: Expr) -> Result<Term, PythonProblem> {
        if parts(&num) + parts(&den) > MAX_PARTS {
            return Err(PythonProblem::TooLarge);
        }
        if let (Expr::Int(a), Expr::Int(b)) = (&num, &den)
            && *a > i64::MIN
        {
            let divisor = gcd(a.abs(), *b).max(1);
            return Ok(Term { num: Expr::Int(a / divisor), den: Expr::Int(b / divisor) });
        }
        Ok(Term { num, den })
    }

    /// Both over one denominator.
    fn common(a: Term, b: Term) -> (Expr, Expr, Expr) {
        if a.den == b.den {
            return (a.num, b.num, a.den);
        }
        (scaled(a.num, b.den.clone()), scaled(b.num, a.den.clone()), multiplied(a.den, b.den))
    }

    /// `a op b` for an operator or function of two numbers.
    pub(super) fn apply(op: &str, a: Term, b: Term, names: &Names<'_>) -> Result<Term, PythonProblem> {
        let whole = a.is_whole() && b.is_whole();
        match op {
            "*" => Term::checked(multiplied(a.num, b.num), multiplied(a.den, b.den)),
            "/" => {
                if lower_bound(&b.num, names).is_none_or(|least| least < 1) {
                    return Err(PythonProblem::Divisor { divisor: b.num.to_string() });
                }
                Term::checked(scaled(a.num, b.den), multiplied(a.den, b.num))
            }
            "//" => {
                let (num, den) = (scaled(a.num, b.den), scaled(b.num, a.den));
                Term::checked(folded(Arith::Div, num, den), Expr::Int(1))
            }
            "%" if whole => Term::checked(folded(Arith::Mod, a.num, b.num), Expr::Int(1)),
            "%" => {
                let (x, y, den) = Term::common(a, b);
                Term::checked(folded(Arith::Mod, x, y), den)
            }
            _ => {
                let arith = match op {
                    "+" => Arith::Add,
                    "-" => Arith::Sub,
                    "min" => Arith::Min,
                    "max" => Arith::Max,
                    _ => return Err(PythonProblem::Unsupported { what: format!("`{op}`") }),
                };
                let (x, y, den) = Term::common(a, b);
                Term::checked(folded(arith, x, y), den)
            }
        }
    }

    /// The largest integer not above it, or the smallest not below it.
    pub(super) fn rounded(self, up: bool) -> Result<Term, PythonProblem> {
        if self.is_whole() {
            return Ok(self);
        }
        Term::checked(folded(if up { Arith::CeilDiv } else { Arith::Div }, self.num, self.den), Expr::Int(1))
    }

    /// The product of `exponent` factors.
    pub(super) fn power(self, exponent: i64, names: &Names<'_>) -> Result<Term, PythonProblem> {
        if !(1..=64).contains(&exponent) {
            return Err(PythonProblem::Unsupported {
                what: format!("the exponent {exponent}, which is not in 1..=64"),
            });
        }
        (0..exponent).try_fold(Term::whole(Expr::Int(1)), |product, _| Term::apply("*", product, self.clone(), names))
    }

    /// `a compare b`.
    pub(super) fn compared(compare: Compare, a: Term, b: Term) -> Result<Expr, PythonProblem> {
        let (a, b, _) = Term::common(a, b);
        if parts(&a) + parts(&b) > MAX_PARTS {
            return Err(PythonProblem::TooLarge);
        }
        Ok(Expr::Compare(compare, a.into(), b.into()))
    }
}

/// The number of parts of an expression.
pub(super) fn parts(expr: &Expr) -> usize {
    match expr {
        Expr::Int(_) | Expr::Name(_) | Expr::Param(_) => 1,
        Expr::Not(a) => 1 + parts(a),
        Expr::In(a, list) => 1 + parts(a) + list.iter().map(parts).sum::<usize>(),
        Expr::Arith(_, a, b) | Expr::Compare(_, a, b) | Expr::And(a, b) | Expr::Or(a, b) | Expr::Implies(a, b) => {
            1 + parts(a) + parts(b)
        }
    }
}

/// `a op b`, computed when both are numbers.
fn folded(op: Arith, a: Expr, b: Expr) -> Expr {
    if let (Expr::Int(x), Expr::Int(y)) = (&a, &b) {
        let value = match op {
            Arith::Add => x.checked_add(*y),
            Arith::Sub => x.checked_sub(*y),
            Arith::Mul => x.checked_mul(*y),
            Arith::Min => Some(*x.min(y)),
            Arith::Max => Some(*x.max(y)),
            // Left as written where a sign decides how it rounds.
            Arith::Div if *x >= 0 && *y > 0 => Some(x / y),
            Arith::Mod if *x >= 0 && *y > 0 => Some(x % y),
            Arith::CeilDiv if *x >= 0 && *y > 0 => Some(x / y + i64::from(x % y != 0)),
            _ => None,
        };
        if let Some(value) = value {
            return Expr::Int(value);
        }
    }
    match (op, &a, &b) {
        (Arith::Mul, Expr::Int(1), _) | (Arith::Add, Expr::Int(0), _) => b,
        (Arith::Mul, _, Expr::Int(1)) | (Arith::Add | Arith::Sub, _, Expr::Int(0)) => a,
        _ => Expr::Arith(op, a.into(), b.into()),
    }
}

fn multiplied(a: Expr, b: Expr) -> Expr {
    folded(Arith::Mul, a, b)
}

/// `num` times a denominator, which is positive and so defined: zero stays zero.
fn scaled(num: Expr, den: Expr) -> Expr {
    if num == Expr::Int(0) { num } else { multiplied(num, den) }
}

/// A number that the term never falls below; `None` when none is known, or the term can be undefined.
pub(super) fn lower_bound(term: &Expr, names: &Names<'_>) -> Option<i128> {
    let least = |term| lower_bound(term, names);
    match term {
        Expr::Int(value) => Some(i128::from(*value)),
        Expr::Param(name) => {
            let number = |value: &Value| if let Value::Int(value) = value { Some(i128::from(*value)) } else { None };
            let values: Option<Vec<i128>> = names.domain(name)?.iter().map(number).collect();
            values?.into_iter().min()
        }
        Expr::Arith(op, a, b) => match op {
            Arith::Add => least(a)?.checked_add(least(b)?),
            Arith::Mul => least(a).filter(|a| *a >= 0)?.checked_mul(least(b).filter(|b| *b >= 0)?),
            Arith::Min => Some(least(a)?.min(least(b)?)),
            Arith::Max => Some(least(a)?.max(least(b)?)),
            Arith::Mod => least(a).and(least(b)).filter(|b| *b > 0).map(|_| 0),
            Arith::Div => least(a).filter(|a| *a >= 0).and(least(b)).filter(|b| *b > 0).map(|_| 0),
            Arith::CeilDiv => {
                let a = least(a).filter(|a| *a >= 0)?;
                least(b).filter(|b| *b > 0).map(|_| i128::from(a > 0))
            }
            Arith::Sub => None,
        },
        _ => None,
    }
}
