//! Short text for the usual problems: `matmul m=512 n=512 k=512 dtype=f32`. Sugar is for people; files hold keys.

use std::collections::BTreeMap;

use thiserror::Error;

use super::{Conv2dSpec, DType, MatmulSpec, SpecError, Workload};

/// Longest sugar that is read, in bytes.
const MAX_SUGAR: usize = 4096;

/// An operation that sugar knows, its parameters in the order of help texts, those that must be given first.
struct Form {
    operation: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
}

const FORMS: [Form; 3] = [
    Form { operation: "matmul", required: &["m", "n", "k", "dtype"], optional: &["batch", "ta", "tb", "bias", "relu"] },
    Form { operation: "gemv", required: &["m", "k", "dtype"], optional: &["batch", "ta", "bias", "relu"] },
    Form {
        operation: "conv2d",
        required: &["n", "c", "h", "w", "k", "r", "s", "dtype"],
        optional: &[
            "stride",
            "stride_h",
            "stride_w",
            "pad",
            "pad_t",
            "pad_l",
            "pad_b",
            "pad_r",
            "dilation",
            "dilation_h",
            "dilation_w",
            "groups",
            "bias",
            "relu",
        ],
    },
];

/// Why a text is not sugar.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum SugarError {
    /// The first word is no operation.
    #[error("unknown operation {found:?}; expected one of {}, or a key that begins with tw1;", operations())]
    Operation {
        /// The word, cut short.
        found: String,
    },
    /// A word is not `name=value`.
    #[error("{operation}: {found:?} is not name=value")]
    NotAPair {
        /// Operation.
        operation: &'static str,
        /// The word, cut short.
        found: String,
    },
    /// The operation has no such parameter.
    #[error("{operation}: unknown parameter {found:?}; it has {}", parameters(operation))]
    Unknown {
        /// Operation.
        operation: &'static str,
        /// The name, cut short.
        found: String,
    },
    /// A parameter is missing.
    #[error("{operation}: parameter {name} is missing; it has {}", parameters(operation))]
    Missing {
        /// Operation.
        operation: &'static str,
        /// Parameter.
        name: &'static str,
    },
    /// A parameter is given twice, directly or through one that sets both directions.
    #[error("{operation}: {name} is given twice{}", .through.map(|by| format!(", by itself and by {by}")).unwrap_or_default())]
    Duplicate {
        /// Operation.
        operation: &'static str,
        /// Parameter.
        name: &'static str,
        /// The parameter that sets it too.
        through: Option<&'static str>,
    },
    /// A value of the wrong kind.
    #[error("{operation}: {name}={found} is not {expected}")]
    Value {
        /// Operation.
        operation: &'static str,
        /// Parameter.
        name: &'static str,
        /// The value, cut short.
        found: String,
        /// What it must be.
        expected: &'static str,
    },
    /// A negative size.
    #[error("{operation}: {name}={found} is negative; expected 0 or more")]
    Negative {
        /// Operation.
        operation: &'static str,
        /// Parameter.
        name: &'static str,
        /// The value, cut short.
        found: String,
    },
    /// Sizes that make no workload.
    #[error("{operation}: {problem}")]
    Spec {
        /// Operation.
        operation: &'static str,
        /// What is wrong.
        problem: SpecError,
    },
    /// Longer than any sensible sugar.
    #[error("the text is {length} bytes long; expected at most {MAX_SUGAR}")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
}

impl Workload {
    /// Reads sugar: an operation and `name=value` words in any order, separated by blanks.
    ///
    /// ```text
    /// matmul m= n= k= dtype=          [batch=1] [ta=0|1] [tb=0|1] [bias=0|1] [relu=0|1]
    /// gemv   m= k= dtype=             [batch=1] [ta=0|1] [bias=0|1] [relu=0|1]            matmul with n=1
    /// conv2d n= c= h= w= k= r= s= dtype=  [stride=1 | stride_h= stride_w=] [pad=0 | pad_t= pad_l= pad_b= pad_r=]
    ///                                 [dilation=1 | dilation_h= dilation_w=] [groups=1] [bias=0|1] [relu=0|1]
    /// ```
    ///
    /// # Errors
    ///
    /// [`SugarError`], one clear line each.
    pub fn parse_sugar(text: &str) -> Result<Workload, SugarError> {
        if text.len() > MAX_SUGAR {
            return Err(SugarError::TooLong { length: text.len() });
        }
        let mut words = text.split_ascii_whitespace();
        let first = words.next().unwrap_or_default();
        let form = FORMS.iter().find(|form| form.operation == first);
        let form = form.ok_or_else(|| SugarError::Operation { found: cut(first) })?;
        let values = Values::read(form, words)?;
        let spec = |problem| SugarError::Spec { operation: form.operation, problem };
        match form.operation {
            "conv2d" => conv2d(&values)?.workload().map_err(spec),
            operation => matmul(&values, operation == "gemv")?.workload().map_err(spec),
        }
    }
}

fn matmul(values: &Values<'_>, gemv: bool) -> Result<MatmulSpec, SugarError> {
    Ok(MatmulSpec {
        batch: values.size("batch", 1)?,
        m: values.size("m", 1)?,
        n: if gemv { 1 } else { values.size("n", 1)? },
        k: values.size("k", 1)?,
        transpose_a: values.flag("ta")?,
        transpose_b: values.flag("tb")?,
        dtype: values.dtype()?,
        bias: values.flag("bias")?,
        relu: values.flag("relu")?,
    })
}

fn conv2d(values: &Values<'_>) -> Result<Conv2dSpec, SugarError> {
    Ok(Conv2dSpec {
        n: values.size("n", 1)?,
        c: values.size("c", 1)?,
        h: values.size("h", 1)?,
        w: values.size("w", 1)?,
        k: values.size("k", 1)?,
        r: values.size("r", 1)?,
        s: values.size("s", 1)?,
        stride_h: values.either("stride_h", "stride", 1)?,
        stride_w: values.either("stride_w", "stride", 1)?,
        pad_top: values.either("pad_t", "pad", 0)?,
        pad_left: values.either("pad_l", "pad", 0)?,
        pad_bottom: values.either("pad_b", "pad", 0)?,
        pad_right: values.either("pad_r", "pad", 0)?,
        dilation_h: values.either("dilation_h", "dilation", 1)?,
        dilation_w: values.either("dilation_w", "dilation", 1)?,
        groups: values.size("groups", 1)?,
        dtype: values.dtype()?,
        bias: values.flag("bias")?,
        relu: values.flag("relu")?,
    })
}

struct Values<'t> {
    operation: &'static str,
    given: BTreeMap<&'static str, &'t str>,
}

impl<'t> Values<'t> {
    fn read(form: &Form, words: impl Iterator<Item = &'t str>) -> Result<Values<'t>, SugarError> {
        let operation = form.operation;
        let mut given = BTreeMap::new();
        for word in words {
            let pair = word.split_once('=');
            let (name, value) = pair.ok_or_else(|| SugarError::NotAPair { operation, found: cut(word) })?;
            let known = form.required.iter().chain(form.optional).find(|known| **known == name);
            let name = *known.ok_or_else(|| SugarError::Unknown { operation, found: cut(name) })?;
            if given.insert(name, value).is_some() {
                return Err(SugarError::Duplicate { operation, name, through: None });
            }
        }
        match form.required.iter().find(|name| !given.contains_key(**name)) {
            Some(name) => Err(SugarError::Missing { operation, name }),
            None => Ok(Values { operation, given }),
        }
    }

    fn size(&self, name: &'static str, default: u64) -> Result<u64, SugarError> {
        let Some(text) = self.given.get(name) else { return Ok(default) };
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(self.value(name, text, "a whole number"));
        }
        if digits.len() < text.len() {
            return Err(SugarError::Negative { operation: self.operation, name, found: cut(text) });
        }
        // More digits than fit are as much too large as 2^64 - 1, which the specification refuses by name.
        Ok(digits.parse().unwrap_or(u64::MAX))
    }

    /// `name`, or the parameter `both` that sets it together with others.
    fn either(&self, name: &'static str, both: &'static str, default: u64) -> Result<u64, SugarError> {
        if self.given.contains_key(name) && self.given.contains_key(both) {
            return Err(SugarError::Duplicate { operation: self.operation, name, through: Some(both) });
        }
        if self.given.contains_key(name) { self.size(name, default) } else { self.size(both, default) }
    }

    fn flag(&self, name: &'static str) -> Result<bool, SugarError> {
        match self.given.get(name) {
            None | Some(&"0") => Ok(false),
            Some(&"1") => Ok(true),
            Some(text) => Err(self.value(name, text, "0 or 1")),
        }
    }

    fn dtype(&self) -> Result<DType, SugarError> {
        let text = self.given.get("dtype").copied().unwrap_or_default();
        let dtype = DType::ALL.into_iter().find(|dtype| dtype.as_str() == text);
        dtype.ok_or_else(|| self.value("dtype", text, "one of f32 f16 bf16 f64 i8 u8 i32"))
    }

    fn value(&self, name: &'static str, text: &str, expected: &'static str) -> SugarError {
        SugarError::Value { operation: self.operation, name, found: cut(text), expected }
    }
}

fn operations() -> String {
    FORMS.map(|form| form.operation).join(", ")
}

fn parameters(operation: &str) -> String {
    let form = FORMS.iter().find(|form| form.operation == operation);
    let names = form.map(|form| (form.required.join(" "), form.optional.join(" ")));
    names.map(|(required, optional)| format!("{required} [{optional}]")).unwrap_or_default()
}

fn cut(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        Workload::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn sugar_is_the_specification_it_names() {
        let plain = Workload::parse("matmul m=3 n=5 k=7 dtype=f32").unwrap();
        assert_eq!(plain, MatmulSpec::new(3, 5, 7).workload().unwrap());
        let every = Workload::parse(" matmul k=7 m=3 n=5 dtype=f64 batch=2 ta=1 tb=1\tbias=1 relu=1 ").unwrap();
        let spec = MatmulSpec {
            batch: 2,
            transpose_a: true,
            transpose_b: true,
            bias: true,
            relu: true,
            ..MatmulSpec::new(3, 5, 7)
        };
        assert_eq!(every, MatmulSpec { dtype: DType::F64, ..spec }.workload().unwrap());
        let gemv = Workload::parse("gemv m=3 k=7 dtype=f32").unwrap();
        assert_eq!(gemv, MatmulSpec::new(3, 1, 7).workload().unwrap());
        let conv = Workload::parse(
            "conv2d n=1 c=8 h=9 w=10 k=4 r=3 s=2 stride=2 pad_t=1 pad_r=1 dilation_w=2 groups=2 dtype=f32",
        );
        let spec =
            Conv2dSpec { stride_h: 2, stride_w: 2, pad_top: 1, pad_right: 1, ..Conv2dSpec::new(1, 8, 9, 10, 4, 3, 2) };
        assert_eq!(conv.unwrap(), Conv2dSpec { dilation_w: 2, groups: 2, ..spec }.workload().unwrap());
    }

    #[test]
    fn every_mistake_has_one_clear_line() {
        let conv = "conv2d n=1 c=8 h=9 w=10 k=4 r=3 s=2 dtype=f32";
        for (text, message) in [
            (
                "matmlu m=1",
                "unknown operation \"matmlu\"; expected one of matmul, gemv, conv2d, or a key that begins with tw1;",
            ),
            ("", "unknown operation \"\"; expected one of matmul, gemv, conv2d, or a key that begins with tw1;"),
            ("matmul m", "matmul: \"m\" is not name=value"),
            ("gemv n=1", "gemv: unknown parameter \"n\"; it has m k dtype [batch ta bias relu]"),
            ("gemv m=1 dtype=f32", "gemv: parameter k is missing; it has m k dtype [batch ta bias relu]"),
            ("gemv m=1 k=1 m=2 dtype=f32", "gemv: m is given twice"),
            ("gemv m=0 k=1 dtype=f32", "gemv: m=0 is too small: m must be at least 1"),
            ("gemv m=-1 k=1 dtype=f32", "gemv: m=-1 is negative; expected 0 or more"),
            ("gemv m=99999999999 k=1 dtype=f32", "gemv: m=99999999999 is too large: m must be below 2147483648"),
            ("gemv m=1x k=1 dtype=f32", "gemv: m=1x is not a whole number"),
            ("gemv m= k=1 dtype=f32", "gemv: m= is not a whole number"),
            ("gemv m=1 k=1 dtype=f31", "gemv: dtype=f31 is not one of f32 f16 bf16 f64 i8 u8 i32"),
            ("gemv m=1 k=1 dtype=f32 relu=yes", "gemv: relu=yes is not 0 or 1"),
            (&format!("{conv} stride=1 stride_h=1"), "conv2d: stride_h is given twice, by itself and by stride"),
            (&format!("{conv} groups=3"), "conv2d: groups=3 does not divide c=8: choose a divisor of both c and k"),
        ] {
            assert_eq!(refusal(text), message);
        }
        assert!(refusal("gemv m=99999999999999999999999999 k=1 dtype=f32").contains("too large"));
        assert!(refusal(&"m=1 ".repeat(4096)).contains("at most 4096"));
        assert!(refusal(&"é".repeat(100)).starts_with("unknown operation"));
    }
}
