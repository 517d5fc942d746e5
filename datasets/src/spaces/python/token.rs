//! The words of a Python expression.

use search_space::space::shown;

use super::{PythonProblem, Untranslated};

/// Longer texts are refused: a chain of operators nests as deeply as it is long.
const MAX_BYTES: usize = 8192;

/// One word.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'a> {
    /// A number as `numerator / denominator`, exactly as written.
    Number(i64, i64),
    /// A text in quotes.
    Text(String),
    /// A name or keyword; dots belong to it.
    Word(&'a str),
    /// An operator, bracket or comma.
    Sign(&'static str),
    /// After the last word.
    End,
}

/// Longer signs come first.
const SIGNS: [&str; 24] = [
    "**", "//", "==", "!=", "<=", ">=", "<<", ">>", "<", ">", "+", "-", "*", "/", "%", "(", ")", "[", "]", "{", "}",
    ",", "&", "|",
];

/// The words of `text` with their byte offsets, the last one [`Token::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token<'_>)>, Untranslated> {
    let wrong = |at, problem| Untranslated { constraint: text.to_owned(), at, problem };
    if text.len() > MAX_BYTES {
        return Err(Untranslated { constraint: shown(text), at: MAX_BYTES, problem: PythonProblem::TooLarge });
    }
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let run = |wanted: fn(char) -> bool| rest.find(|c: char| !wanted(c)).unwrap_or(rest.len());
        let (len, token) = if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        } else if first.is_ascii_digit() || (first == '.' && rest[1..].starts_with(|c: char| c.is_ascii_digit())) {
            let mut len = run(|c| c.is_ascii_digit() || c == '.' || c == '_');
            if let Some(tail) = rest[len..].strip_prefix(['e', 'E']) {
                let digits = tail.strip_prefix(['-', '+']).unwrap_or(tail);
                let count = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
                len += 1 + (tail.len() - digits.len()) + count;
            }
            let number = number(&rest[..len])
                .ok_or_else(|| wrong(at, PythonProblem::Expected { wanted: "a number of at most 64 bits" }))?;
            (len, Token::Number(number.0, number.1))
        } else if first.is_alphabetic() || first == '_' {
            let len = run(|c| c.is_alphanumeric() || c == '_' || c == '.');
            (len, Token::Word(&rest[..len]))
        } else if first == '\'' || first == '"' {
            let inner = &rest[1..];
            let end =
                inner.find(first).ok_or_else(|| wrong(at, PythonProblem::Expected { wanted: "a closing quote" }))?;
            if inner[..end].contains('\\') {
                return Err(wrong(at, PythonProblem::Unsupported { what: "a backslash in quotes".into() }));
            }
            (end + 2, Token::Text(inner[..end].to_owned()))
        } else if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            (sign.len(), Token::Sign(sign))
        } else {
            return Err(wrong(at, PythonProblem::Unsupported { what: format!("`{first}`") }));
        };
        found.push((at, token));
        at += len;
    }
    found.push((text.len(), Token::End));
    Ok(found)
}

/// A decimal number as a fraction in lowest terms; `None` when a part does not fit 64 bits.
pub(super) fn number(text: &str) -> Option<(i64, i64)> {
    let text = text.replace('_', "");
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text.as_str(), 0),
    };
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: i64 = format!("{whole}{part}").parse().ok()?;
    let scale = exponent.checked_sub(i32::try_from(part.len()).ok()?)?;
    let power = 10i64.checked_pow(scale.unsigned_abs());
    let (numerator, denominator) = match (power, scale >= 0) {
        (Some(power), true) => (digits.checked_mul(power)?, 1),
        (Some(power), false) => (digits, power),
        (None, _) if digits == 0 => (0, 1),
        (None, _) => return None,
    };
    let divisor = gcd(numerator, denominator).max(1);
    Some((numerator / divisor, denominator / divisor))
}

/// The greatest common divisor of two numbers that are not negative.
pub(super) fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact() {
        for (text, wanted) in [
            ("12", Some((12, 1))),
            ("1_024", Some((1024, 1))),
            ("0.5", Some((1, 2))),
            (".25", Some((1, 4))),
            ("2.", Some((2, 1))),
            ("1e3", Some((1000, 1))),
            ("2.5e-1", Some((1, 4))),
            ("0e999", Some((0, 1))),
            ("1e19", None),
            ("1e-19", None),
            ("9223372036854775808", None),
            ("1.2.3", None),
            ("1e", None),
        ] {
            assert_eq!(number(text), wanted, "{text}");
        }
    }
}
