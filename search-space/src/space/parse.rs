//! The text form of constraint expressions.
//!
//! ```text
//! implies = or [ "=>" implies ]                 or   = and { "||" and }          and = not { "&&" not }
//! not     = "!" not | compare
//! compare = sum [ ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) sum | "in" "[" [ sum { "," sum } ] "]" ]
//! sum     = product { ( "+" | "-" ) product }   product = atom { ( "*" | "/" | "%" ) atom }
//! atom    = integer | "-" atom | "'" name "'" | parameter | "`" any parameter "`" | "(" implies ")"
//!         | ( "min" | "max" | "ceildiv" ) "(" sum "," sum ")"
//! ```
//! `''` inside quotes is one quote.

use super::expr::{Arith, Compare, Expr};
use super::shown::shown_around;

/// Expressions nested more deeply than this are refused, so that a hostile text cannot exhaust the stack.
const MAX_DEPTH: usize = 100;

/// Longer texts are refused: a chain of operators nests to the left, as deeply as it is long.
const MAX_BYTES: usize = 8192;

/// Why a text is no expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {at} of `{}`: expected {expected}", shown_around(text, *at))]
pub struct ParseError {
    /// The whole text.
    pub text: String,
    /// Byte offset of the trouble.
    pub at: usize,
    /// What would have been right there.
    pub expected: &'static str,
}

/// Whether `name` can be written without back quotes.
pub(super) fn is_plain(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.')
        && !matches!(name, "in" | "min" | "max" | "ceildiv")
}

impl Expr {
    /// Reads an expression.
    ///
    /// # Errors
    /// The first place at which the text departs from the grammar of the module.
    pub fn parse(text: &str) -> Result<Expr, ParseError> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        if text.len() > MAX_BYTES {
            return Err(ParseError {
                text: "...".into(),
                at: MAX_BYTES,
                expected: "an expression of at most 8192 bytes",
            });
        }
        let expr = parser.implies()?;
        parser.skip();
        if parser.at < text.len() {
            return Err(parser.expected("the end of the expression or an operator"));
        }
        Ok(expr)
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn expected(&self, expected: &'static str) -> ParseError {
        ParseError { text: self.text.into(), at: self.at, expected }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// Reads `symbol` when it comes next.
    fn eat(&mut self, symbol: &str) -> bool {
        self.skip();
        let found = self.rest().starts_with(symbol);
        if found {
            self.at += symbol.len();
        }
        found
    }

    fn need(&mut self, symbol: &str, expected: &'static str) -> Result<(), ParseError> {
        if self.eat(symbol) { Ok(()) } else { Err(self.expected(expected)) }
    }

    /// Reads a word when one comes next.
    fn word(&mut self) -> Option<&'a str> {
        self.skip();
        let rest = self.rest();
        if !rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            return None;
        }
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.').unwrap_or(rest.len());
        self.at += end;
        Some(&rest[..end])
    }

    fn implies(&mut self) -> Result<Expr, ParseError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.expected("an expression nested less deeply"));
        }
        let a = self.or()?;
        let expr = if self.eat("=>") { Expr::Implies(a.into(), self.implies()?.into()) } else { a };
        self.depth -= 1;
        Ok(expr)
    }

    fn or(&mut self) -> Result<Expr, ParseError> {
        let mut a = self.and()?;
        while self.eat("||") {
            a = Expr::Or(a.into(), self.and()?.into());
        }
        Ok(a)
    }

    fn and(&mut self) -> Result<Expr, ParseError> {
        let mut a = self.not()?;
        while self.eat("&&") {
            a = Expr::And(a.into(), self.not()?.into());
        }
        Ok(a)
    }

    fn not(&mut self) -> Result<Expr, ParseError> {
        self.skip();
        if self.rest().starts_with("!=") || !self.eat("!") {
            return self.compare();
        }
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.expected("an expression nested less deeply"));
        }
        let inner = self.not()?;
        self.depth -= 1;
        Ok(Expr::Not(inner.into()))
    }

    fn compare(&mut self) -> Result<Expr, ParseError> {
        let a = self.sum()?;
        // Longer symbols first; `=>` begins with `=` alone and is no comparison.
        for (symbol, compare) in [
            ("==", Compare::Eq),
            ("!=", Compare::Ne),
            ("<=", Compare::Le),
            (">=", Compare::Ge),
            ("<", Compare::Lt),
            (">", Compare::Gt),
        ] {
            if self.eat(symbol) {
                return Ok(Expr::Compare(compare, a.into(), self.sum()?.into()));
            }
        }
        let before = self.at;
        if self.word() != Some("in") {
            self.at = before;
            return Ok(a);
        }
        self.need("[", "`[` after `in`")?;
        let mut list = Vec::new();
        while !self.eat("]") {
            if !list.is_empty() {
                self.need(",", "`,` or `]` in a list")?;
            }
            list.push(self.sum()?);
        }
        Ok(Expr::In(a.into(), list))
    }

    fn sum(&mut self) -> Result<Expr, ParseError> {
        let mut a = self.product()?;
        loop {
            let op = if self.eat("+") {
                Arith::Add
            } else if self.eat("-") {
                Arith::Sub
            } else {
                return Ok(a);
            };
            a = Expr::Arith(op, a.into(), self.product()?.into());
        }
    }

    fn product(&mut self) -> Result<Expr, ParseError> {
        let mut a = self.atom()?;
        loop {
            let op = if self.eat("*") {
                Arith::Mul
            } else if self.eat("/") {
                Arith::Div
            } else if self.eat("%") {
                Arith::Mod
            } else {
                return Ok(a);
            };
            a = Expr::Arith(op, a.into(), self.atom()?.into());
        }
    }

    fn atom(&mut self) -> Result<Expr, ParseError> {
        self.skip();
        let rest = self.rest();
        let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let sign = usize::from(rest.starts_with('-'));
        let end = sign + digits(&rest[sign..]);
        if end > sign {
            let value = rest[..end].parse().map_err(|_| self.expected("an integer of 64 bits"))?;
            self.at += end;
            return Ok(Expr::Int(value));
        }
        if rest.starts_with('\'') {
            return self.quoted('\'').map(Expr::Name);
        }
        if rest.starts_with('`') {
            return self.quoted('`').map(Expr::Param);
        }
        if rest.starts_with(['(', '-']) {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return Err(self.expected("an expression nested less deeply"));
            }
            let inner = if self.eat("-") {
                Expr::Arith(Arith::Sub, Expr::Int(0).into(), self.atom()?.into())
            } else {
                self.need("(", "`(`")?;
                let inner = self.implies()?;
                self.need(")", "`)` or an operator")?;
                inner
            };
            self.depth -= 1;
            return Ok(inner);
        }
        let before = self.at;
        let op = match self.word() {
            Some("min") => Arith::Min,
            Some("max") => Arith::Max,
            Some("ceildiv") => Arith::CeilDiv,
            Some(word) if is_plain(word) => return Ok(Expr::Param(word.into())),
            _ => {
                self.at = before;
                return Err(self.expected("an integer, a parameter, a name in quotes or `(`"));
            }
        };
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.expected("an expression nested less deeply"));
        }
        self.need("(", "`(` after the function's name")?;
        let a = self.sum()?;
        self.need(",", "`,` between two arguments")?;
        let b = self.sum()?;
        self.need(")", "`)` after the second argument")?;
        self.depth -= 1;
        Ok(Expr::Arith(op, a.into(), b.into()))
    }

    fn quoted(&mut self, quote: char) -> Result<String, ParseError> {
        let mut name = String::new();
        let mut chars = self.rest().char_indices().skip(1).peekable();
        while let Some((offset, c)) = chars.next() {
            if c != quote {
                name.push(c);
            } else if quote == '\'' && chars.next_if(|&(_, next)| next == quote).is_some() {
                name.push(quote);
            } else {
                self.at += offset + 1;
                return Ok(name);
            }
        }
        Err(self.expected("a closing quote"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_text_round_trips() {
        for (text, canonical) in [
            ("a+b*c<=32", "a + b * c <= 32"),
            ("(a+b)*c<=32", "(a + b) * c <= 32"),
            ("a-(b-c)==1", "a - (b - c) == 1"),
            ("a - b - c == 1", "a - b - c == 1"),
            ("a=='x'=>b==1=>c==2", "a == 'x' => b == 1 => c == 2"),
            ("(a==1=>b==1)=>c==2", "(a == 1 => b == 1) => c == 2"),
            ("!(a==1)&&b!=2||c<3", "!(a == 1) && b != 2 || c < 3"),
            ("a in [1,'-']", "a in [1, '-']"),
            ("a in []", "a in []"),
            ("ceildiv(m,a)*min(a,b)>=max(1,2)%3", "ceildiv(m, a) * min(a, b) >= max(1, 2) % 3"),
            ("a*-1<-3", "a * (-1) < -3"),
            ("-a<1", "0 - a < 1"),
            ("`block-size`==1", "`block-size` == 1"),
            ("a == 'it''s'", "a == 'it''s'"),
            ("inner == 1", "inner == 1"),
        ] {
            let expr = Expr::parse(text).unwrap();
            assert_eq!(expr.to_string(), canonical);
            assert_eq!(Expr::parse(canonical).unwrap(), expr, "{canonical}");
        }
    }

    #[test]
    fn errors_point_at_the_trouble() {
        for (text, at) in [
            ("", 0),
            ("a ==", 4),
            ("a = 1", 2),
            ("a == 1 b", 7),
            ("a == 'x", 5),
            ("min(a) == 1", 5),
            ("a in 1", 5),
            ("(a == 1", 7),
            ("a == 99999999999999999999", 5),
            ("a == é", 5),
            ("in == 1", 0),
        ] {
            assert_eq!(Expr::parse(text).unwrap_err().at, at, "{text}");
        }
    }

    #[test]
    fn deep_nesting_is_refused() {
        for part in ["(", "!", "- ", "min(", "a==1=>"] {
            assert_eq!(Expr::parse(&part.repeat(1000)).unwrap_err().expected, "an expression nested less deeply");
        }
        assert_eq!(Expr::parse(&"a+".repeat(10_000)).unwrap_err().expected, "an expression of at most 8192 bytes");
    }
}
