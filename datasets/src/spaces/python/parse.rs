//! Reads the words of a Python expression, translating as it goes.

use search_space::Value;
use search_space::space::{Compare, Expr};

use super::term::{self, MAX_PARTS, Term, lower_bound};
use super::token::{self, Token, tokens};
use super::{Names, PythonProblem, Untranslated};
use crate::spaces::value;

/// Expressions nested more deeply than this are refused, so that a hostile text cannot exhaust the stack.
const MAX_DEPTH: usize = 64;

/// The condition that `text` states; `None` when it holds for all values, such as `True` or one about constants.
///
/// # Errors
/// The first place at which `text` is no Python expression, or none that can be translated.
pub(crate) fn translate(text: &str, names: &Names<'_>) -> Result<Option<Expr>, Untranslated> {
    let mut parser = Parser { tokens: tokens(text)?, next: 0, depth: 0, names };
    let whole = parser.expression().and_then(|piece| parser.condition(piece)).and_then(|expr| match parser.token() {
        Token::End if term::parts(&expr) > MAX_PARTS => Err(PythonProblem::TooLarge),
        Token::End => Ok(expr),
        _ => Err(PythonProblem::Expected { wanted: "the end of the constraint or an operator" }),
    });
    let at = parser.tokens[parser.next].0;
    let expr = whole.map_err(|problem| Untranslated { constraint: text.to_owned(), at, problem })?;
    Ok(if known(&expr) == Some(true) { None } else { Some(expr) })
}

/// What an expression can be.
#[derive(Clone)]
enum Piece {
    /// A number.
    Number(Term),
    /// A text, or a parameter that is not always an integer.
    Other(Expr),
    Condition(Expr),
}

struct Parser<'a, 'n> {
    tokens: Vec<(usize, Token<'a>)>,
    next: usize,
    depth: usize,
    names: &'n Names<'n>,
}

type Parsed<T> = Result<T, PythonProblem>;

impl<'a> Parser<'a, '_> {
    fn token(&self) -> &Token<'a> {
        &self.tokens[self.next].1
    }

    /// Goes on to the next token; the last one stays.
    fn advance(&mut self) {
        self.next = (self.next + 1).min(self.tokens.len() - 1);
    }

    fn eat(&mut self, wanted: &Token<'_>) -> bool {
        let found = self.token() == wanted;
        if found {
            self.advance();
        }
        found
    }

    fn eat_sign(&mut self, sign: &'static str) -> bool {
        self.eat(&Token::Sign(sign))
    }

    fn eat_word(&mut self, word: &'static str) -> bool {
        self.eat(&Token::Word(word))
    }

    fn need(&mut self, sign: &'static str, wanted: &'static str) -> Parsed<()> {
        if self.eat_sign(sign) { Ok(()) } else { Err(PythonProblem::Expected { wanted }) }
    }

    /// Runs `inner` one level deeper.
    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == MAX_DEPTH {
            return Err(PythonProblem::TooLarge);
        }
        self.depth += 1;
        let found = inner(self);
        self.depth -= 1;
        found
    }

    fn condition(&self, piece: Piece) -> Parsed<Expr> {
        match piece {
            Piece::Condition(expr) => Ok(expr),
            Piece::Number(term) => Ok(Expr::Compare(Compare::Ne, term.num.into(), Expr::Int(0).into())),
            Piece::Other(expr) => Err(PythonProblem::NotANumber { name: expr.to_string() }),
        }
    }

    fn number(piece: Piece) -> Parsed<Term> {
        match piece {
            Piece::Number(term) => Ok(term),
            Piece::Other(expr) => Err(PythonProblem::NotANumber { name: expr.to_string() }),
            Piece::Condition(expr) => Err(PythonProblem::Unsupported { what: format!("calculating with `{expr}`") }),
        }
    }

    fn expression(&mut self) -> Parsed<Piece> {
        let first = self.or()?;
        if !self.eat_word("if") {
            return Ok(first);
        }
        let first = self.condition(first)?;
        let asked = self.or()?;
        let asked = self.condition(asked)?;
        if !self.eat_word("else") {
            return Err(PythonProblem::Expected { wanted: "`else`" });
        }
        let second = self.deeper(Self::expression)?;
        let second = self.condition(second)?;
        let otherwise = both(Expr::Not(asked.clone().into()), second);
        let whole = either(both(asked, first), otherwise);
        // The question is repeated, so questions within questions double each time.
        if term::parts(&whole) > MAX_PARTS { Err(PythonProblem::TooLarge) } else { Ok(Piece::Condition(whole)) }
    }

    fn or(&mut self) -> Parsed<Piece> {
        let mut first = self.and()?;
        while self.eat_word("or") {
            let second = self.and()?;
            first = Piece::Condition(either(self.condition(first)?, self.condition(second)?));
        }
        Ok(first)
    }

    fn and(&mut self) -> Parsed<Piece> {
        let mut first = self.not()?;
        while self.eat_word("and") {
            let second = self.not()?;
            first = Piece::Condition(both(self.condition(first)?, self.condition(second)?));
        }
        Ok(first)
    }

    fn not(&mut self) -> Parsed<Piece> {
        if !self.eat_word("not") {
            return self.comparison();
        }
        let inner = self.deeper(Self::not)?;
        Ok(Piece::Condition(Expr::Not(self.condition(inner)?.into())))
    }

    fn comparison(&mut self) -> Parsed<Piece> {
        let mut left = self.sum()?;
        let mut whole: Option<Expr> = None;
        while let Some(compare) = self.compare() {
            let right = self.sum()?;
            let part = compared(compare, left, right.clone())?;
            whole = Some(joined(whole, part));
            left = right;
        }
        let negative = self.eat_word("not");
        if self.eat_word("in") {
            let found = self.list(&left)?;
            whole = Some(joined(whole, if negative { Expr::Not(found.into()) } else { found }));
        } else if negative {
            return Err(PythonProblem::Expected { wanted: "`in`" });
        }
        Ok(whole.map_or(left, Piece::Condition))
    }

    fn compare(&mut self) -> Option<Compare> {
        let found = match self.token() {
            Token::Sign("==") => Compare::Eq,
            Token::Sign("!=") => Compare::Ne,
            Token::Sign("<") => Compare::Lt,
            Token::Sign("<=") => Compare::Le,
            Token::Sign(">") => Compare::Gt,
            Token::Sign(">=") => Compare::Ge,
            _ => return None,
        };
        self.advance();
        Some(found)
    }

    /// Whether `left` is in the list that follows.
    fn list(&mut self, left: &Piece) -> Parsed<Expr> {
        let close = match self.token() {
            Token::Sign("(") => ")",
            Token::Sign("[") => "]",
            Token::Sign("{") => "}",
            _ => return Err(PythonProblem::Expected { wanted: "a list such as `[1, 2]`" }),
        };
        self.advance();
        let left = name_of(left)?;
        let mut items = Vec::new();
        while !self.eat_sign(close) {
            items.push(name_of(&self.deeper(Self::sum)?)?);
            if *self.token() != Token::Sign(close) {
                self.need(",", "`,` or the end of the list")?;
            }
        }
        Ok(Expr::In(left.into(), items))
    }

    fn sum(&mut self) -> Parsed<Piece> {
        let mut first = self.product()?;
        loop {
            let op = match self.token() {
                Token::Sign(op @ ("+" | "-")) => *op,
                Token::Sign(op @ ("<<" | ">>" | "&" | "|")) => {
                    return Err(PythonProblem::Unsupported { what: format!("`{op}`") });
                }
                _ => return Ok(first),
            };
            self.advance();
            let second = self.product()?;
            first = self.applied(op, first, second)?;
        }
    }

    fn product(&mut self) -> Parsed<Piece> {
        let mut first = self.factor()?;
        loop {
            let op = match self.token() {
                Token::Sign(op @ ("*" | "/" | "//" | "%")) => *op,
                _ => return Ok(first),
            };
            self.advance();
            let second = self.factor()?;
            first = self.applied(op, first, second)?;
        }
    }

    fn applied(&self, op: &str, a: Piece, b: Piece) -> Parsed<Piece> {
        Ok(Piece::Number(Term::apply(op, Self::number(a)?, Self::number(b)?, self.names)?))
    }

    fn factor(&mut self) -> Parsed<Piece> {
        if self.eat_sign("-") {
            let inner = self.deeper(Self::factor)?;
            return self.applied("-", Piece::Number(Term::whole(Expr::Int(0))), inner);
        }
        if self.eat_sign("+") {
            return self.deeper(Self::factor);
        }
        let base = self.atom()?;
        if !self.eat_sign("**") {
            return Ok(base);
        }
        let exponent = self.deeper(Self::factor)?;
        match Self::number(exponent)?.constant() {
            Some((exponent, 1)) => Ok(Piece::Number(Self::number(base)?.power(exponent, self.names)?)),
            _ => Err(PythonProblem::Unsupported { what: "an exponent that is no constant integer".into() }),
        }
    }

    fn atom(&mut self) -> Parsed<Piece> {
        match self.token().clone() {
            Token::Number(num, den) => {
                self.advance();
                Ok(Piece::Number(Term { num: Expr::Int(num), den: Expr::Int(den) }))
            }
            Token::Text(text) => {
                self.advance();
                Ok(piece_of(&value::of_quoted(&text)))
            }
            Token::Sign("(") => {
                self.advance();
                let inner = self.deeper(Self::expression)?;
                self.need(")", "`)` or an operator")?;
                Ok(inner)
            }
            Token::Word(word) => self.word(word),
            _ => Err(PythonProblem::Expected { wanted: "a number, a name, a text in quotes or `(`" }),
        }
    }

    fn word(&mut self, word: &'a str) -> Parsed<Piece> {
        if matches!(word, "and" | "or" | "not" | "in" | "if" | "else") {
            return Err(PythonProblem::Expected { wanted: "a number, a name, a text in quotes or `(`" });
        }
        if matches!(word, "lambda" | "is" | "for" | "None") {
            return Err(PythonProblem::Unsupported { what: format!("`{word}`") });
        }
        let called = self.tokens.get(self.next + 1).is_some_and(|(_, token)| *token == Token::Sign("("));
        if called {
            return self.call(word);
        }
        let piece = match (self.names.domain(word), self.names.constants.get(word), word) {
            (Some(values), ..) if values.iter().all(|value| matches!(value, Value::Int(_))) => {
                Piece::Number(Term::whole(Expr::Param(word.to_owned())))
            }
            (Some(_), ..) => Piece::Other(Expr::Param(word.to_owned())),
            (None, Some(constant), _) => piece_of(constant),
            (None, None, "True") => Piece::Number(Term::whole(Expr::Int(1))),
            (None, None, "False") => Piece::Number(Term::whole(Expr::Int(0))),
            (None, None, _) => return Err(PythonProblem::UnknownName { name: word.to_owned() }),
        };
        self.advance();
        Ok(piece)
    }

    fn call(&mut self, function: &str) -> Parsed<Piece> {
        let name = function.strip_prefix("math.").unwrap_or(function);
        if !matches!(name, "min" | "max" | "abs" | "int" | "ceil" | "floor") {
            return Err(PythonProblem::Unsupported { what: format!("the function `{function}`") });
        }
        self.advance();
        self.advance();
        let mut arguments = Vec::new();
        loop {
            let argument = self.deeper(Self::sum)?;
            arguments.push(Self::number(argument)?);
            if self.eat_sign(")") {
                break;
            }
            self.need(",", "`,` or `)`")?;
        }
        if matches!(name, "min" | "max") {
            let mut rest = arguments.into_iter();
            let first = rest.next().ok_or(PythonProblem::Expected { wanted: "an argument" })?;
            let joined = rest.try_fold(first, |so_far, next| Term::apply(name, so_far, next, self.names))?;
            return Ok(Piece::Number(joined));
        }
        let [term]: [Term; 1] = arguments.try_into().map_err(|_| PythonProblem::Expected { wanted: "one argument" })?;
        let term = match name {
            "ceil" => term.rounded(true)?,
            "floor" => term.rounded(false)?,
            "int" if term.is_whole() || lower_bound(&term.num, self.names).is_some_and(|least| least >= 0) => {
                term.rounded(false)?
            }
            "int" => {
                return Err(PythonProblem::Unsupported { what: "`int` of a fraction that may be negative".into() });
            }
            _ => {
                let negative = Term::apply("-", Term::whole(Expr::Int(0)), term.clone(), self.names)?;
                Term::apply("max", term, negative, self.names)?
            }
        };
        Ok(Piece::Number(term))
    }
}

fn piece_of(value: &Value) -> Piece {
    match value {
        Value::Int(value) => Piece::Number(Term::whole(Expr::Int(*value))),
        // A constant such as 0.5 can be calculated with exactly.
        Value::Name(name) => match token::number(name).filter(|_| name.starts_with(|c: char| c.is_ascii_digit())) {
            Some((num, den)) => Piece::Number(Term { num: Expr::Int(num), den: Expr::Int(den) }),
            None => Piece::Other(Expr::Name(name.clone())),
        },
    }
}

/// A piece as one side of an equality with names: a fraction as the name under which such a value is known.
fn name_of(piece: &Piece) -> Parsed<Expr> {
    match piece {
        Piece::Other(expr) => Ok(expr.clone()),
        Piece::Condition(expr) => Err(PythonProblem::Unsupported { what: format!("comparing `{expr}`") }),
        Piece::Number(term) => match term.constant() {
            Some((num, 1)) => Ok(Expr::Int(num)),
            Some((num, den)) => Ok(Expr::Name((num as f64 / den as f64).to_string())),
            None if term.is_whole() => Ok(term.num.clone()),
            None => Err(PythonProblem::Unsupported { what: "a fraction beside a name or in a list".into() }),
        },
    }
}

fn compared(compare: Compare, a: Piece, b: Piece) -> Parsed<Expr> {
    let (a, b) = match (a, b) {
        (Piece::Number(a), Piece::Number(b)) => return Term::compared(compare, a, b),
        (a, b) => (name_of(&a)?, name_of(&b)?),
    };
    if !matches!(compare, Compare::Eq | Compare::Ne) {
        let name = if matches!(a, Expr::Int(_)) { b } else { a }.to_string();
        return Err(PythonProblem::NotANumber { name });
    }
    Ok(Expr::Compare(compare, a.into(), b.into()))
}

/// Whether a condition without parameters holds.
fn known(expr: &Expr) -> Option<bool> {
    expr.params().is_empty().then(|| expr.holds(&|_| None))
}

fn both(a: Expr, b: Expr) -> Expr {
    match (known(&a), known(&b)) {
        (Some(true), _) | (_, Some(false)) => b,
        (_, Some(true)) | (Some(false), _) => a,
        _ => Expr::And(a.into(), b.into()),
    }
}

fn either(a: Expr, b: Expr) -> Expr {
    match (known(&a), known(&b)) {
        (Some(true), _) | (_, Some(false)) => a,
        (_, Some(true)) | (Some(false), _) => b,
        _ => Expr::Or(a.into(), b.into()),
    }
}

fn joined(before: Option<Expr>, part: Expr) -> Expr {
    match before {
        Some(before) => both(before, part),
        None => part,
    }
}
