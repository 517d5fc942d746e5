//! The canonical text of a workload, its parser and its hash. Byte-exact specification: `docs/keys.md`.
//!
//! On valid workloads, text and workload are one-to-one: `parse_key(key(w)) == w`, and a text that is not exactly what
//! [`Workload::key`] writes is refused with the field, the position and what canonical is.

use std::fmt::{self, Write};
use std::str::FromStr;

use thiserror::Error;

use super::sugar::SugarError;
use super::validate::{InvalidWorkload, Place, is_prologue_byte};
use super::{
    Axis, AxisKind, DType, Determinism, EpilogueStep, Extent, MathMode, Op, Operand, Real, Role, Storage, Subscript,
    Workload,
};

/// Longest key that is read, in bytes; every valid workload's key is shorter.
pub const MAX_KEY: usize = 1 << 18;
const PREFIX: &str = "tw1;";

/// Why a text is not a workload's canonical key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Longer than any valid key.
    #[error("the workload key is {length} bytes long; expected at most {MAX_KEY}")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// Something else stands where a field or a part of one is expected.
    #[error("workload key, {field} at byte {at}: found {found}, expected {expected}")]
    Syntax {
        /// The field: `op`, `axes`, `operand`, `acc`, `epi`, `math`, `det`, `ws`.
        field: &'static str,
        /// Byte position of the surprise.
        at: usize,
        /// What is there, cut short.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// Well-formed, but no valid workload.
    #[error("workload key at byte {at}: {problem}")]
    Invalid {
        /// Byte at which the part begins.
        at: usize,
        /// What is wrong with it.
        problem: InvalidWorkload,
    },
    /// A valid workload written in another way than its key.
    #[error("workload key at byte {at}: not canonical, expected {canonical:?} from there on")]
    NotCanonical {
        /// First byte that differs.
        at: usize,
        /// The canonical text from that byte on, cut short.
        canonical: String,
    },
}

/// Why a text is neither a key nor sugar.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ParseError {
    /// It begins like a key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// It does not.
    #[error(transparent)]
    Sugar(#[from] SugarError),
}

impl Workload {
    /// The canonical text. One-to-one on workloads that [`Workload::validate`] accepts.
    pub fn key(&self) -> String {
        let mut text = String::from(PREFIX);
        self.write_key(&mut text).expect("invariant: writing to a String does not fail");
        text
    }

    /// BLAKE3 of the key, 64 hexadecimal digits.
    pub fn id(&self) -> String {
        blake3::hash(self.key().as_bytes()).to_hex().to_string()
    }

    /// Reads a key, or sugar such as `matmul m=512 n=512 k=512 dtype=f32` when the text does not begin with `tw1;`.
    ///
    /// # Errors
    ///
    /// [`ParseError::Key`] or [`ParseError::Sugar`].
    pub fn parse(text: &str) -> Result<Workload, ParseError> {
        if text.starts_with(PREFIX) { Ok(Workload::parse_key(text)?) } else { Ok(Workload::parse_sugar(text)?) }
    }

    /// Reads a canonical key.
    ///
    /// # Errors
    ///
    /// [`KeyError`] for every text that is not the key of a valid workload.
    pub fn parse_key(text: &str) -> Result<Workload, KeyError> {
        if text.len() > MAX_KEY {
            return Err(KeyError::TooLong { length: text.len() });
        }
        let mut reader = Reader { text, at: 0, field: "version" };
        let (workload, starts) = reader.workload()?;
        workload.validate().map_err(|problem| KeyError::Invalid { at: starts.of(problem.place), problem })?;
        let canonical = workload.key();
        if canonical != text {
            let at = canonical.bytes().zip(text.bytes()).take_while(|(wanted, found)| wanted == found).count();
            return Err(KeyError::NotCanonical { at, canonical: canonical[at..].chars().take(40).collect() });
        }
        Ok(workload)
    }

    fn write_key(&self, text: &mut String) -> fmt::Result {
        write!(text, "{};", self.op)?;
        for (i, axis) in self.axes.iter().enumerate() {
            write!(text, "{}{}:{}", if i > 0 { "," } else { "" }, axis.name, axis.kind.letter())?;
            match axis.extent {
                Extent::Fixed(extent) => write!(text, "{extent}")?,
                Extent::Range { lo, hi, multiple } => write!(text, "{lo}..{hi}/{multiple}")?,
            }
        }
        for operand in &self.operands {
            write!(text, ";{}.{}={}[", operand.role.as_str(), operand.name, operand.dtype.as_str())?;
            for (i, subscript) in operand.index.iter().enumerate() {
                text.push_str(if i > 0 { "," } else { "" });
                self.write_subscript(text, subscript)?;
            }
            text.push_str("]@");
            match &operand.storage {
                Storage::Strides(strides) => {
                    let strides: Vec<String> = strides.iter().map(u64::to_string).collect();
                    write!(text, "s({})", strides.join(","))?;
                }
                Storage::Free => text.push_str("free"),
            }
            write!(text, "a{}", operand.align)?;
            if let Some(alias) = &operand.alias {
                write!(text, "~{alias}")?;
            }
            if let Some(prologue) = &operand.prologue {
                write!(text, "<{prologue}>")?;
            }
        }
        write!(text, ";acc={};epi=", self.acc.as_str())?;
        for (i, step) in self.epilogue.iter().enumerate() {
            write!(text, "{}{}", if i > 0 { "." } else { "" }, step.word())?;
            match step {
                EpilogueStep::Bias(name) | EpilogueStep::Add(name) | EpilogueStep::Mul(name) => {
                    write!(text, "({name})")?;
                }
                EpilogueStep::Clip(lo, hi) => write!(text, "({},{})", decimal(*lo), decimal(*hi))?,
                EpilogueStep::Scale(factor) => write!(text, "({})", decimal(*factor))?,
                EpilogueStep::Cast(dtype) => write!(text, "({})", dtype.as_str())?,
                _ => {}
            }
        }
        text.push_str(if self.epilogue.is_empty() { "-" } else { "" });
        write!(text, ";math={};det={};ws={}", self.math.as_str(), self.det.as_str(), self.workspace_bytes)
    }

    fn write_subscript(&self, text: &mut String, subscript: &Subscript) -> fmt::Result {
        for (i, (axis, coefficient)) in subscript.terms.iter().enumerate() {
            text.push_str(match (*coefficient < 0, i) {
                (true, _) => "-",
                (false, 0) => "",
                (false, _) => "+",
            });
            if coefficient.unsigned_abs() != 1 {
                write!(text, "{}*", coefficient.unsigned_abs())?;
            }
            // A position without an axis is not valid; its text then only has to be harmless.
            text.push_str(self.axes.get(*axis).map_or("?", |axis| &axis.name));
        }
        match (subscript.offset, subscript.terms.is_empty()) {
            (0, false) => {}
            (offset, true) => write!(text, "{offset}")?,
            (offset, false) => write!(text, "{offset:+}")?,
        }
        subscript.bound.map_or(Ok(()), |bound| write!(text, ":{bound}"))
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key())
    }
}

impl FromStr for Workload {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Workload, ParseError> {
        Workload::parse(text)
    }
}

/// The shortest decimal that reads back as `value`: positional for exponents -5 to 15, else `d.ddde±x` without plus;
/// `0` for both zeros, `inf` and `-inf`.
pub(super) fn decimal(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let scientific = format!("{value:e}");
    let exponent = scientific.split_once('e').and_then(|(_, exponent)| exponent.parse::<i32>().ok());
    match exponent {
        Some(exponent) if !(-5..16).contains(&exponent) => scientific,
        _ => format!("{value}"),
    }
}

/// Epilogue steps as keys write them: `scale(2).exp`, `-` for none.
pub(super) fn parse_steps(text: &str) -> Result<Vec<EpilogueStep>, KeyError> {
    let mut reader = Reader { text, at: 0, field: "epi" };
    let steps = reader.steps()?;
    if reader.rest().is_empty() { Ok(steps) } else { Err(reader.error("a step after a dot, or the end")) }
}

/// Where the parts of a key begin.
#[derive(Default)]
struct Starts {
    axes: Vec<usize>,
    operands: Vec<usize>,
    epilogue: usize,
    workspace: usize,
}

impl Starts {
    fn of(&self, place: Place) -> usize {
        let (list, position) = match place {
            Place::Axes => (&self.axes, 0),
            Place::Axis(i) => (&self.axes, i),
            Place::Operand(i) => (&self.operands, i),
            Place::Op => return PREFIX.len(),
            Place::Epilogue => return self.epilogue,
            Place::Workspace => return self.workspace,
        };
        list.get(position).copied().unwrap_or(0)
    }
}

/// A cursor over the text. It only moves forward and nothing recurses, so time and memory are linear in the text.
struct Reader<'t> {
    text: &'t str,
    at: usize,
    field: &'static str,
}

impl<'t> Reader<'t> {
    fn workload(&mut self) -> Result<(Workload, Starts), KeyError> {
        let mut starts = Starts::default();
        self.expect(PREFIX)?;
        self.field = "op";
        let op = self.op()?;
        self.expect(";")?;

        self.field = "axes";
        let mut axes = Vec::new();
        loop {
            starts.axes.push(self.at);
            axes.push(self.axis()?);
            if !self.take(",") {
                break;
            }
        }
        self.expect(";")?;

        self.field = "operand";
        let mut operands = Vec::new();
        while operands.is_empty() || !self.rest().starts_with("acc=") {
            starts.operands.push(self.at);
            operands.push(self.operand(&axes)?);
            self.expect(";")?;
        }

        self.field = "acc";
        self.expect("acc=")?;
        let acc = self.dtype()?;
        self.field = "epi";
        self.expect(";epi=")?;
        starts.epilogue = self.at;
        let epilogue = self.steps()?;
        self.field = "math";
        self.expect(";math=")?;
        let math = self.one_of([MathMode::Ieee, MathMode::Ftz, MathMode::Fast].map(|mode| (mode.as_str(), mode)))?;
        self.field = "det";
        self.expect(";det=")?;
        let det = self.one_of([Determinism::Fixed, Determinism::Any].map(|det| (det.as_str(), det)))?;
        self.field = "ws";
        self.expect(";ws=")?;
        starts.workspace = self.at;
        let workspace_bytes = self.number()?;
        if !self.rest().is_empty() {
            return Err(self.error("the end of the key"));
        }
        Ok((Workload { op, axes, operands, acc, epilogue, math, det, workspace_bytes }, starts))
    }

    fn op(&mut self) -> Result<Op, KeyError> {
        let op = match self.one_of(Op::ALL.map(|op| (op.as_str(), op)))? {
            Op::RowsLayerNorm { .. } => Op::RowsLayerNorm { eps: self.real()? },
            Op::RowsRmsNorm { .. } => Op::RowsRmsNorm { eps: self.real()? },
            Op::Attention { .. } => Op::Attention { scale: self.real()?, causal: self.take(",causal") },
            op => return Ok(op),
        };
        self.expect(")")?;
        Ok(op)
    }

    /// The first parameter of an operation.
    fn real(&mut self) -> Result<Real, KeyError> {
        self.expect("(")?;
        let start = self.at;
        Real::new(self.float()?).ok_or_else(|| self.error_at(start, "a finite number"))
    }

    fn axis(&mut self) -> Result<Axis, KeyError> {
        let name = self.name("an axis name")?;
        self.expect(":")?;
        let kinds = [AxisKind::Batch, AxisKind::Parallel, AxisKind::Reduction, AxisKind::Grouped];
        let Some(kind) = kinds.into_iter().find(|kind| self.rest().starts_with(kind.letter())) else {
            return Err(self.error("an axis kind: b, p, r or g"));
        };
        self.at += 1;
        let lo = self.number()?;
        if !self.take("..") {
            return Ok(Axis { name, kind, extent: Extent::Fixed(lo) });
        }
        let hi = self.number()?;
        self.expect("/")?;
        let multiple = self.number()?;
        Ok(Axis { name, kind, extent: Extent::Range { lo, hi, multiple } })
    }

    fn operand(&mut self, axes: &[Axis]) -> Result<Operand, KeyError> {
        let role = self.one_of([Role::In, Role::Out, Role::InOut].map(|role| (role.as_str(), role)))?;
        self.expect(".")?;
        let name = self.name("an operand name")?;
        self.expect("=")?;
        let dtype = self.dtype()?;
        self.expect("[")?;
        let index = self.list("]", |reader| reader.subscript(axes))?;
        self.expect("@")?;
        let storage = if self.take("free") {
            Storage::Free
        } else if self.take("s(") {
            Storage::Strides(self.list(")", Reader::number)?)
        } else {
            return Err(self.error("strides such as s(512,1), or free"));
        };
        self.expect("a")?;
        let align = self.number()?;
        let alias = if self.take("~") { Some(self.name("the operand that shares memory")?) } else { None };
        let prologue = if self.take("<") {
            let text = self.run(is_prologue_byte);
            self.expect(">")?;
            Some(text.into())
        } else {
            None
        };
        Ok(Operand { role, name, dtype, index, storage, align, alias, prologue })
    }

    fn subscript(&mut self, axes: &[Axis]) -> Result<Subscript, KeyError> {
        let mut subscript = Subscript { terms: Vec::new(), offset: 0, bound: None };
        let mut sign = if self.take("-") { -1 } else { 1 };
        loop {
            let factor = if self.rest().starts_with(|c: char| c.is_ascii_digit()) {
                let start = self.at;
                let factor = i64::try_from(self.number()?).map_err(|_| self.error_at(start, "a number below 2^31"))?;
                if !self.take("*") {
                    subscript.offset = sign * factor;
                    break;
                }
                factor
            } else {
                1
            };
            let start = self.at;
            let name = self.name("an axis name or a number")?;
            let axis = axes.iter().position(|axis| axis.name == name);
            let axis = axis.ok_or_else(|| self.error_at(start, "the name of an axis of this workload"))?;
            subscript.terms.push((axis, sign * factor));
            sign = if self.take("+") {
                1
            } else if self.take("-") {
                -1
            } else {
                break;
            };
        }
        if self.take(":") {
            subscript.bound = Some(self.number()?);
        }
        Ok(subscript)
    }

    fn steps(&mut self) -> Result<Vec<EpilogueStep>, KeyError> {
        let mut steps = Vec::new();
        if !self.take("-") {
            steps.push(self.step()?);
            while self.take(".") {
                steps.push(self.step()?);
            }
        }
        Ok(steps)
    }

    fn step(&mut self) -> Result<EpilogueStep, KeyError> {
        let start = self.at;
        let step = match self.run(|byte| byte.is_ascii_lowercase() || byte == b'_') {
            "relu" => return Ok(EpilogueStep::Relu),
            "gelu_erf" => return Ok(EpilogueStep::GeluErf),
            "gelu_tanh" => return Ok(EpilogueStep::GeluTanh),
            "silu" => return Ok(EpilogueStep::Silu),
            "exp" => return Ok(EpilogueStep::Exp),
            "log" => return Ok(EpilogueStep::Log),
            "tanh" => return Ok(EpilogueStep::Tanh),
            "erf" => return Ok(EpilogueStep::Erf),
            word @ ("bias" | "add" | "mul" | "clip" | "scale" | "cast") => word,
            _ => {
                let words = "bias relu gelu_erf gelu_tanh silu clip scale add mul exp log tanh erf cast, or - for none";
                return Err(self.error_at(start, words));
            }
        };
        self.expect("(")?;
        let step = match step {
            "bias" => EpilogueStep::Bias(self.name("an operand name")?),
            "add" => EpilogueStep::Add(self.name("an operand name")?),
            "mul" => EpilogueStep::Mul(self.name("an operand name")?),
            "cast" => EpilogueStep::Cast(self.dtype()?),
            "scale" => EpilogueStep::Scale(self.float()?),
            _ => {
                let lo = self.float()?;
                self.expect(",")?;
                EpilogueStep::Clip(lo, self.float()?)
            }
        };
        self.expect(")")?;
        Ok(step)
    }

    fn dtype(&mut self) -> Result<DType, KeyError> {
        self.one_of(DType::ALL.map(|dtype| (dtype.as_str(), dtype)))
    }

    fn list<T>(
        &mut self,
        close: &str,
        item: impl Fn(&mut Reader<'t>) -> Result<T, KeyError>,
    ) -> Result<Vec<T>, KeyError> {
        let mut items = Vec::new();
        if self.take(close) {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if !self.take(",") {
                break;
            }
        }
        self.expect(close)?;
        Ok(items)
    }

    fn number(&mut self) -> Result<u64, KeyError> {
        let start = self.at;
        let digits = self.run(|byte| byte.is_ascii_digit());
        match digits.parse() {
            Ok(number) if digits == "0" || !digits.starts_with('0') => Ok(number),
            _ => Err(self.error_at(start, "a whole number below 2^64 without leading zeros")),
        }
    }

    fn float(&mut self) -> Result<f64, KeyError> {
        let start = self.at;
        let text = self.run(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
        match text.parse() {
            Ok(value) if decimal(value) == text => Ok(value),
            Ok(value) => Err(self.error_at(start, &format!("{}, the shortest decimal", decimal(value)))),
            Err(_) => Err(self.error_at(start, "a decimal number such as 0.5")),
        }
    }

    fn name(&mut self, expected: &str) -> Result<String, KeyError> {
        let start = self.at;
        let name = self.run(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        if name.starts_with(|c: char| c.is_ascii_lowercase()) {
            Ok(name.into())
        } else {
            Err(self.error_at(start, &format!("{expected} (a-z, then a-z 0-9 _)")))
        }
    }

    /// The value whose word comes next and is not the beginning of a longer word.
    fn one_of<T, const N: usize>(&mut self, words: [(&'static str, T); N]) -> Result<T, KeyError> {
        let (start, names) = (self.at, words.each_ref().map(|(word, _)| *word));
        let dots = names.iter().any(|word| word.contains('.'));
        let found = self.run(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || (dots && byte == b'.'));
        let value = words.into_iter().find(|(word, _)| *word == found).map(|(_, value)| value);
        value.ok_or_else(|| self.error_at(start, &format!("one of {}", names.join(" "))))
    }

    fn run(&mut self, wanted: impl Fn(u8) -> bool) -> &'t str {
        let rest = self.rest();
        let length = rest.bytes().take_while(|byte| byte.is_ascii() && wanted(*byte)).count();
        self.at += length;
        &rest[..length]
    }

    fn take(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        self.at += if found { text.len() } else { 0 };
        found
    }

    fn expect(&mut self, text: &str) -> Result<(), KeyError> {
        if self.take(text) { Ok(()) } else { Err(self.error(&format!("{text:?}"))) }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn error(&self, expected: &str) -> KeyError {
        self.error_at(self.at, expected)
    }

    fn error_at(&self, at: usize, expected: &str) -> KeyError {
        let found: String = self.text[at..].chars().take_while(|c| *c != ';').take(20).collect();
        let found = match self.text[at..].chars().next() {
            None => "the end".into(),
            Some(';') => "\";\"".into(),
            Some(_) => format!("{found:?}"),
        };
        KeyError::Syntax { field: self.field, at, found, expected: expected.into() }
    }
}
