//! What is translated into what, and that translation keeps the meaning: random conditions against exact rational
//! arithmetic.

use std::collections::BTreeMap;

use proptest::prelude::*;
use search_space::Value;

use super::{Names, translate};

/// `a` is positive, `b` may be 0, `c` may be negative; `layout` is a name, `share` may be 0.5.
fn parameters() -> Vec<(String, Vec<Value>)> {
    let numbers = |name: &str, values: &[i64]| (name.to_owned(), values.iter().copied().map(Value::Int).collect());
    vec![
        numbers("a", &[1, 2, 3, 4]),
        numbers("b", &[0, 1, 2, 5]),
        numbers("c", &[-3, -1, 0, 2]),
        ("layout".into(), vec!["row".into(), "column".into()]),
        ("share".into(), vec!["0.5".into(), 1.into()]),
    ]
}

fn constants() -> BTreeMap<String, Value> {
    let constants = [("WARP", 32.into()), ("half", "0.5".into()), ("kind", "fast".into()), ("b", 99.into())];
    constants.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn translated(text: &str) -> String {
    let (parameters, constants) = (parameters(), constants());
    match translate(text, &Names::new(&parameters, &constants)) {
        Ok(Some(expr)) => expr.to_string(),
        Ok(None) => "always".into(),
        Err(error) => format!("{}: {}", error.at, error.problem),
    }
}

#[test]
fn python_becomes_expressions() {
    for (text, wanted) in [
        ("a*b <= 32", "a * b <= 32"),
        ("32 <= a*b <= 1024", "32 <= a * b && a * b <= 1024"),
        ("a == 1 or b == 2 and not c == 0", "a == 1 || b == 2 && !(c == 0)"),
        // Constants are put in and worked out; a parameter hides a constant of its name.
        ("a % (WARP // 16 + 1) == 0", "a % 3 == 0"),
        ("b < 3", "b < 3"),
        ("WARP % 2 == 0", "always"),
        ("WARP % 3 == 0", "2 == 0"),
        ("WARP == 16 or a == 1", "a == 1"),
        ("True", "always"),
        ("kind == 'fast' and a > 1", "a > 1"),
        // Division is exact.
        ("WARP % ((a*b)/a) == 0", "32 * a % (a * b) == 0"),
        ("b / a <= 2", "b <= 2 * a"),
        ("b / 2 / a == 1.5", "b * 2 == 3 * (2 * a)"),
        ("b // a == 1", "b / a == 1"),
        ("b * half < a", "b < a * 2"),
        ("a ** 2 < 10", "a * a < 10"),
        ("-a < -1", "0 - a < -1"),
        ("max(a, b, 3) == 3", "max(max(a, b), 3) == 3"),
        ("int(b / a) == math.ceil(b / a)", "b / a == ceildiv(b, a)"),
        ("abs(c) < 2", "max(c, 0 - c) < 2"),
        // Numbers as conditions, and choices between conditions.
        ("b", "b != 0"),
        ("not b or a % b == 0", "!(b != 0) || a % b == 0"),
        ("a % b == 0 if b != 0 else True", "b != 0 && a % b == 0 || !(b != 0)"),
        // Names and lists.
        ("layout == \"row\"", "layout == 'row'"),
        ("layout in ('row', 'tile')", "layout in ['row', 'tile']"),
        ("a not in [1, 2]", "!(a in [1, 2])"),
        ("a in []", "a in []"),
        ("share == 0.5 or share == 1", "share == '0.5' || share == 1"),
    ] {
        assert_eq!(translated(text), wanted, "{text}");
    }
}

#[test]
fn what_cannot_be_translated_is_named() {
    for (text, wanted) in [
        ("", "0: expected a number, a name"),
        ("a ==", "4: expected a number, a name"),
        ("a b", "2: expected the end of the constraint or an operator"),
        ("(a == 1", "7: expected `)`"),
        ("a == 'x", "5: expected a closing quote"),
        ("q == 1", "0: `q` is neither a parameter nor a constant"),
        ("a & 1 == 0", "2: `&` cannot be translated"),
        ("a == 1; b == 2", "6: `;` cannot be translated"),
        ("len(a) == 1", "0: the function `len` cannot be translated"),
        ("(lambda: True)()", "7: `:` cannot be translated"),
        ("a is 1", "2: expected the end"),
        ("None == a", "0: `None` cannot be translated"),
        ("a ** b == 1", "7: an exponent that is no constant integer cannot"),
        ("a ** 99999 == 1", "11: the exponent 99999, which is not in 1..=64"),
        ("a / b == 1", "6: the divisor `b` may be 0 or negative"),
        ("a / c == 1", "6: the divisor `c` may be 0 or negative"),
        ("layout * 2 == 1", "11: `layout` is not always an integer"),
        ("layout < 'x'", "12: `layout` is not always an integer"),
        ("share * 2 == 1", "10: `share` is not always an integer"),
        ("layout", "6: `layout` is not always an integer"),
        ("(a == 1) + 1 == 2", "13: calculating with `a == 1` cannot"),
        ("(a == 1) == (b == 1)", "20: comparing `a == 1` cannot"),
        ("a in (b == 1)", "8: expected `,` or the end of the list"),
        ("a in b", "5: expected a list"),
        ("a not b", "6: expected `in`"),
        ("int(c / 2) == 0", "11: `int` of a fraction that may be negative"),
        ("1e99 == a", "0: expected a number of at most 64 bits"),
    ] {
        let found = translated(text);
        assert!(found.starts_with(wanted), "{text}: {found}");
    }
}

#[test]
fn hostile_constraints_are_refused_at_once() {
    let nested_choice =
        |depth: usize| format!("{}a == 1{}", "(".repeat(depth), " if a == 1 else b == 2)".repeat(depth));
    let choice_in_question = (0..40).fold("a == 1".to_owned(), |inner, _| format!("(a == 2 if {inner} else b == 1)"));
    for text in [
        "(".repeat(4000),
        "not ".repeat(2000),
        "-".repeat(4000),
        "a+".repeat(10_000),
        format!("{}a{} < 3", "abs(".repeat(50), ")".repeat(50)),
        format!("(((a**64)**64)**64)**64 < {}", 3),
        nested_choice(200),
        choice_in_question,
        format!("{} < 1", vec!["b / (a + 1)"; 600].join(" + ")),
    ] {
        assert!(translated(&text).contains("the constraint is too large"), "{:.60}: {:.200}", text, translated(&text));
    }
}

/// A number of Python in the test's own terms.
#[derive(Clone, Debug)]
enum Number {
    Int(i64),
    Param(usize),
    Binary(&'static str, Box<Number>, Box<Number>),
    Call(&'static str, Box<Number>),
}

#[derive(Clone, Debug)]
enum Condition {
    Chain(Number, &'static str, Number, &'static str, Number),
    In(Number, Vec<i64>),
    Truth(Number),
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
    Not(Box<Condition>),
    Choice(Box<Condition>, Box<Condition>, Box<Condition>),
}

const NAMES: [&str; 3] = ["a", "b", "c"];

impl Number {
    fn text(&self) -> String {
        match self {
            Number::Int(value) => value.to_string(),
            Number::Param(at) => NAMES[*at].into(),
            Number::Binary(op @ ("min" | "max"), x, y) => format!("{op}({}, {})", x.text(), y.text()),
            Number::Binary(op, x, y) => format!("({} {op} {})", x.text(), y.text()),
            Number::Call(function, x) => format!("{function}({})", x.text()),
        }
    }

    /// The exact value as a fraction; `None` after a division by zero.
    fn value(&self, values: &[i128]) -> Option<(i128, i128)> {
        let floor = |(n, d): (i128, i128)| n.div_euclid(d);
        match self {
            Number::Int(value) => Some((i128::from(*value), 1)),
            Number::Param(at) => Some((values[*at], 1)),
            Number::Call(function, x) => {
                let (n, d) = x.value(values)?;
                Some(match *function {
                    "-" => (-n, d),
                    "abs" => (n.abs(), d),
                    "floor" => (floor((n, d)), 1),
                    "ceil" => (-floor((-n, d)), 1),
                    "int" => (n / d, 1),
                    other => panic!("{other}"),
                })
            }
            Number::Binary(op, x, y) => {
                let ((xn, xd), (yn, yd)) = (x.value(values)?, y.value(values)?);
                // Denominators stay positive.
                let quotient = || (yn != 0).then(|| (xn * yd * yn.signum(), xd * yn.abs()));
                Some(match *op {
                    "+" => (xn * yd + yn * xd, xd * yd),
                    "-" => (xn * yd - yn * xd, xd * yd),
                    "*" => (xn * yn, xd * yd),
                    "/" => quotient()?,
                    "//" => (floor(quotient()?), 1),
                    "%" => {
                        let times = floor(quotient()?);
                        (xn * yd - times * yn * xd, xd * yd)
                    }
                    "min" => {
                        if xn * yd <= yn * xd {
                            (xn, xd)
                        } else {
                            (yn, yd)
                        }
                    }
                    "max" => {
                        if xn * yd >= yn * xd {
                            (xn, xd)
                        } else {
                            (yn, yd)
                        }
                    }
                    other => panic!("{other}"),
                })
            }
        }
    }
}

impl Condition {
    fn text(&self) -> String {
        match self {
            Condition::Chain(x, p, y, q, z) => format!("({} {p} {} {q} {})", x.text(), y.text(), z.text()),
            Condition::In(x, list) => format!("({} in {list:?})", x.text()),
            Condition::Truth(x) => format!("({})", x.text()),
            Condition::And(x, y) => format!("({} and {})", x.text(), y.text()),
            Condition::Or(x, y) => format!("({} or {})", x.text(), y.text()),
            Condition::Not(x) => format!("(not {})", x.text()),
            Condition::Choice(x, c, y) => format!("({} if {} else {})", x.text(), c.text(), y.text()),
        }
    }

    fn holds(&self, values: &[i128]) -> bool {
        let compare = |x: &Number, op: &str, y: &Number| {
            let (Some((xn, xd)), Some((yn, yd))) = (x.value(values), y.value(values)) else { return false };
            let order = (xn * yd).cmp(&(yn * xd));
            match op {
                "==" => order.is_eq(),
                "!=" => order.is_ne(),
                "<" => order.is_lt(),
                "<=" => order.is_le(),
                ">" => order.is_gt(),
                _ => order.is_ge(),
            }
        };
        match self {
            Condition::Chain(x, p, y, q, z) => compare(x, p, y) && compare(y, q, z),
            Condition::In(x, list) => list.iter().any(|item| compare(x, "==", &Number::Int(*item))),
            Condition::Truth(x) => compare(x, "!=", &Number::Int(0)),
            Condition::And(x, y) => x.holds(values) && y.holds(values),
            Condition::Or(x, y) => x.holds(values) || y.holds(values),
            Condition::Not(x) => !x.holds(values),
            Condition::Choice(x, c, y) => {
                if c.holds(values) {
                    x.holds(values)
                } else {
                    y.holds(values)
                }
            }
        }
    }
}

fn number() -> impl Strategy<Value = Number> {
    let leaf = prop_oneof![2 => (0i64..9).prop_map(Number::Int), 4 => (0usize..3).prop_map(Number::Param)];
    let op = prop::sample::select(vec!["+", "-", "*", "/", "/", "//", "%", "%", "min", "max"]);
    let function = prop::sample::select(vec!["-", "abs", "floor", "ceil", "int"]);
    leaf.prop_recursive(3, 10, 2, move |inner| {
        prop_oneof![
            5 => (op.clone(), inner.clone(), inner.clone()).prop_map(|(op, x, y)| Number::Binary(op, x.into(), y.into())),
            1 => (function.clone(), inner).prop_map(|(function, x)| Number::Call(function, x.into())),
        ]
    })
}

fn condition() -> impl Strategy<Value = Condition> {
    let op = || prop::sample::select(vec!["==", "!=", "<", "<=", ">", ">="]);
    let leaf = prop_oneof![
        4 => (number(), op(), number(), op(), number()).prop_map(|(x, p, y, q, z)| Condition::Chain(x, p, y, q, z)),
        1 => (number(), prop::collection::vec(0i64..5, 0..3)).prop_map(|(x, list)| Condition::In(x, list)),
        1 => number().prop_map(Condition::Truth),
    ];
    leaf.prop_recursive(2, 5, 3, |inner| {
        (0..4, inner.clone(), inner.clone(), inner).prop_map(|(kind, x, y, z)| match kind {
            0 => Condition::And(x.into(), y.into()),
            1 => Condition::Or(x.into(), y.into()),
            2 => Condition::Not(x.into()),
            _ => Condition::Choice(x.into(), y.into(), z.into()),
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn translation_keeps_the_meaning(condition in condition()) {
        let (parameters, constants) = (parameters(), BTreeMap::new());
        // Some cannot be translated, such as a division by `b`; the tests above say which.
        let Ok(expr) = translate(&condition.text(), &Names::new(&parameters, &constants)) else { return Ok(()) };
        let domain = |at: usize| parameters[at].1.iter();
        for (a, b, c) in domain(0).flat_map(|a| domain(1).flat_map(move |b| domain(2).map(move |c| (a, b, c)))) {
            let value_of = |name: &str| NAMES.iter().position(|known| *known == name).map(|at| [a, b, c][at]);
            let number = |value: &Value| if let Value::Int(value) = value { i128::from(*value) } else { unreachable!() };
            let found = expr.as_ref().is_none_or(|expr| expr.holds(&value_of));
            prop_assert_eq!(
                found,
                condition.holds(&[number(a), number(b), number(c)]),
                "{} as {:?} at a={} b={} c={}", condition.text(), expr.as_ref().map(ToString::to_string), a, b, c
            );
        }
    }
}
