//! Short text for the usual problems: `matmul m=512 n=512 k=512 dtype=f32`. Sugar is for people; files hold keys.

use std::collections::BTreeMap;

use thiserror::Error;

use super::key::parse_steps;
use super::{
    Activation, AttentionSpec, Conv2dSpec, DType, ImageLayout, MapSpec, MathMode, MatmulSpec, PoolSpec, Real,
    ReduceSpec, Reduction, RowPass, RowsSpec, SpecError, TransposeSpec, Workload,
};

/// Longest sugar that is read, in bytes.
const MAX_SUGAR: usize = 4096;

/// An operation that sugar knows, its parameters in the order of help texts, those that must be given first.
struct Form {
    operation: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
}

const ROWS: &[&str] = &["rows", "cols", "dtype"];
const POOL: &[&str] = &["n", "c", "h", "w", "r", "s", "dtype"];
const FORMS: [Form; 14] = [
    Form {
        operation: "matmul",
        required: &["m", "n", "k", "dtype"],
        optional: &["batch", "ta", "tb", "scale", "bias", "residual", "relu", "act", "math"],
    },
    Form {
        operation: "gemv",
        required: &["m", "k", "dtype"],
        optional: &["batch", "ta", "scale", "bias", "residual", "relu", "act", "math"],
    },
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
            "layout",
            "free_w",
            "bias",
            "residual",
            "relu",
            "act",
            "math",
        ],
    },
    Form { operation: "softmax", required: ROWS, optional: &["math"] },
    Form { operation: "logsoftmax", required: ROWS, optional: &["math"] },
    Form { operation: "layernorm", required: ROWS, optional: &["eps", "affine", "math"] },
    Form { operation: "rmsnorm", required: ROWS, optional: &["eps", "affine", "math"] },
    Form { operation: "argmax", required: ROWS, optional: &["math"] },
    Form {
        operation: "attention",
        required: &["heads", "q", "d", "dtype"],
        optional: &["batch", "kv", "kv_heads", "e", "scale", "causal", "math"],
    },
    Form { operation: "reduce", required: ROWS, optional: &["op", "axis", "math"] },
    Form { operation: "maxpool", required: POOL, optional: &["stride", "pad", "math"] },
    Form { operation: "avgpool", required: POOL, optional: &["stride", "pad", "math"] },
    Form { operation: "transpose", required: ROWS, optional: &["math"] },
    Form { operation: "map", required: &["n", "dtype", "f"], optional: &["math"] },
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
    /// matmul m= n= k= dtype=     [batch=1] [ta=0] [tb=0] [scale=] [bias=0] [residual=0]
    ///                            [relu=0 | act=relu|gelu_erf|gelu_tanh|silu]
    /// gemv   m= k= dtype=        as matmul, with n=1 and without tb
    /// conv2d n= c= h= w= k= r= s= dtype=  [stride=1 | stride_h= stride_w=] [pad=0 | pad_t= pad_l= pad_b= pad_r=]
    ///                            [dilation=1 | dilation_h= dilation_w=] [groups=1] [layout=nchw|nhwc] [free_w=0]
    ///                            [bias=0] [residual=0] [relu=0 | act=]
    /// softmax | logsoftmax | argmax   rows= cols= dtype=
    /// layernorm | rmsnorm        rows= cols= dtype=   [eps=1e-5] [affine=1]
    /// attention heads= q= d= dtype=   [batch=1] [kv=q] [kv_heads=heads] [e=d] [scale=1/sqrt(d)] [causal=0]
    /// reduce rows= cols= dtype=  [op=sum|max|mean] [axis=1]
    /// maxpool | avgpool          n= c= h= w= r= s= dtype=   [stride=1] [pad=0]
    /// transpose rows= cols= dtype=
    /// map    n= dtype= f=        f: steps as in keys, such as gelu_tanh or scale(2).exp
    /// every one                  [math=ieee|ftz|fast]
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
        let described = match form.operation {
            "matmul" | "gemv" => matmul(&values)?.workload(),
            "conv2d" => conv2d(&values)?.workload(),
            "attention" => attention(&values)?.workload(),
            "reduce" => reduce(&values)?.workload(),
            "maxpool" => pool(&values, Reduction::Max)?.workload(),
            "avgpool" => pool(&values, Reduction::Mean)?.workload(),
            "transpose" => transpose(&values)?.workload(),
            "map" => map(&values)?.workload(),
            _ => rows(&values)?.workload(),
        };
        let mut workload = described.map_err(spec)?;
        workload.math = values.math()?;
        Ok(workload)
    }
}

fn matmul(values: &Values<'_>) -> Result<MatmulSpec, SugarError> {
    Ok(MatmulSpec {
        batch: values.size("batch", 1)?,
        m: values.size("m", 1)?,
        // A gemv has neither.
        n: values.size("n", 1)?,
        transpose_b: values.flag("tb")?,
        k: values.size("k", 1)?,
        transpose_a: values.flag("ta")?,
        dtype: values.dtype()?,
        scale: values.real("scale")?,
        bias: values.flag("bias")?,
        residual: values.flag("residual")?,
        activation: values.activation()?,
        math: values.math()?,
    })
}

fn conv2d(values: &Values<'_>) -> Result<Conv2dSpec, SugarError> {
    let layouts = [("nchw", ImageLayout::Nchw), ("nhwc", ImageLayout::Nhwc)];
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
        layout: values.word("layout", &layouts, "nchw or nhwc")?.unwrap_or_default(),
        free_weights: values.flag("free_w")?,
        bias: values.flag("bias")?,
        residual: values.flag("residual")?,
        activation: values.activation()?,
        math: values.math()?,
    })
}

fn rows(values: &Values<'_>) -> Result<RowsSpec, SugarError> {
    let eps = values.real("eps")?.or(Real::new(1e-5)).unwrap_or(Real::ZERO);
    let affine = !values.given.contains_key("affine") || values.flag("affine")?;
    let pass = match values.operation {
        "softmax" => RowPass::Softmax,
        "logsoftmax" => RowPass::LogSoftmax,
        "layernorm" => RowPass::LayerNorm { eps, affine },
        "rmsnorm" => RowPass::RmsNorm { eps, affine },
        _ => RowPass::ArgMax,
    };
    Ok(RowsSpec { pass, rows: values.size("rows", 1)?, cols: values.size("cols", 1)?, dtype: values.dtype()? })
}

fn attention(values: &Values<'_>) -> Result<AttentionSpec, SugarError> {
    let (heads, q, d) = (values.size("heads", 1)?, values.size("q", 1)?, values.size("d", 1)?);
    Ok(AttentionSpec {
        batch: values.size("batch", 1)?,
        kv_heads: values.size("kv_heads", heads)?,
        kv: values.size("kv", q)?,
        e: values.size("e", d)?,
        scale: values.real("scale")?.unwrap_or_else(|| AttentionSpec::usual_scale(d)),
        causal: values.flag("causal")?,
        dtype: values.dtype()?,
        ..AttentionSpec::new(heads, q, d)
    })
}

fn reduce(values: &Values<'_>) -> Result<ReduceSpec, SugarError> {
    let reductions = [("sum", Reduction::Sum), ("max", Reduction::Max), ("mean", Reduction::Mean)];
    Ok(ReduceSpec {
        reduction: values.word("op", &reductions, "sum, max or mean")?.unwrap_or(Reduction::Sum),
        rows: values.size("rows", 1)?,
        cols: values.size("cols", 1)?,
        over_rows: values.word("axis", &[("0", true), ("1", false)], "0 or 1")?.unwrap_or(false),
        dtype: values.dtype()?,
    })
}

fn pool(values: &Values<'_>, reduction: Reduction) -> Result<PoolSpec, SugarError> {
    Ok(PoolSpec {
        reduction,
        n: values.size("n", 1)?,
        c: values.size("c", 1)?,
        h: values.size("h", 1)?,
        w: values.size("w", 1)?,
        r: values.size("r", 1)?,
        s: values.size("s", 1)?,
        stride: values.size("stride", 1)?,
        pad: values.size("pad", 0)?,
        dtype: values.dtype()?,
    })
}

fn transpose(values: &Values<'_>) -> Result<TransposeSpec, SugarError> {
    Ok(TransposeSpec { rows: values.size("rows", 1)?, cols: values.size("cols", 1)?, dtype: values.dtype()? })
}

fn map(values: &Values<'_>) -> Result<MapSpec, SugarError> {
    let text = values.given.get("f").copied().unwrap_or_default();
    let expected = "steps joined by dots as in keys, such as gelu_tanh or scale(2).exp, or - for a copy";
    let steps = parse_steps(text).map_err(|_| values.value("f", text, expected))?;
    Ok(MapSpec { n: values.size("n", 1)?, dtype: values.dtype()?, steps })
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

    /// One of some words; `None` when the parameter is not given.
    fn word<T: Copy>(
        &self,
        name: &'static str,
        words: &[(&'static str, T)],
        expected: &'static str,
    ) -> Result<Option<T>, SugarError> {
        let Some(text) = self.given.get(name) else { return Ok(None) };
        match words.iter().find(|(word, _)| word == text) {
            Some((_, value)) => Ok(Some(*value)),
            None => Err(self.value(name, text, expected)),
        }
    }

    fn real(&self, name: &'static str) -> Result<Option<Real>, SugarError> {
        let Some(text) = self.given.get(name) else { return Ok(None) };
        match text.parse().ok().and_then(Real::new) {
            Some(value) => Ok(Some(value)),
            None => Err(self.value(name, text, "a finite number")),
        }
    }

    /// `act`, or its short form `relu=1`.
    fn activation(&self) -> Result<Option<Activation>, SugarError> {
        let words = Activation::ALL.map(|activation| (activation.step().word(), activation));
        let named = self.word("act", &words, "one of relu gelu_erf gelu_tanh silu")?;
        match (named, self.flag("relu")?) {
            (Some(_), true) => {
                Err(SugarError::Duplicate { operation: self.operation, name: "relu", through: Some("act") })
            }
            (named, relu) => Ok(named.or(relu.then_some(Activation::Relu))),
        }
    }

    fn math(&self) -> Result<MathMode, SugarError> {
        let words = [MathMode::Ieee, MathMode::Ftz, MathMode::Fast].map(|mode| (mode.as_str(), mode));
        Ok(self.word("math", &words, "one of ieee ftz fast")?.unwrap_or(MathMode::Ieee))
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
            activation: Some(Activation::Relu),
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
                "unknown operation \"matmlu\"; expected one of matmul, gemv, conv2d, softmax, logsoftmax, layernorm, \
                 rmsnorm, argmax, attention, reduce, maxpool, avgpool, transpose, map, or a key that begins with tw1;",
            ),
            ("matmul m", "matmul: \"m\" is not name=value"),
            (
                "gemv n=1",
                "gemv: unknown parameter \"n\"; it has m k dtype [batch ta scale bias residual relu act math]",
            ),
            (
                "gemv m=1 dtype=f32",
                "gemv: parameter k is missing; it has m k dtype [batch ta scale bias residual relu act math]",
            ),
            ("gemv m=1 k=1 m=2 dtype=f32", "gemv: m is given twice"),
            ("gemv m=0 k=1 dtype=f32", "gemv: m=0 is too small: m must be at least 1"),
            ("gemv m=-1 k=1 dtype=f32", "gemv: m=-1 is negative; expected 0 or more"),
            ("gemv m=99999999999 k=1 dtype=f32", "gemv: m=99999999999 is too large: m must be below 2147483648"),
            ("gemv m=1x k=1 dtype=f32", "gemv: m=1x is not a whole number"),
            ("gemv m= k=1 dtype=f32", "gemv: m= is not a whole number"),
            ("gemv m=1 k=1 dtype=f31", "gemv: dtype=f31 is not one of f32 f16 bf16 f64 i8 u8 i32"),
            ("gemv m=1 k=1 dtype=f32 relu=yes", "gemv: relu=yes is not 0 or 1"),
            ("gemv m=1 k=1 dtype=f32 relu=1 act=silu", "gemv: relu is given twice, by itself and by act"),
            ("gemv m=1 k=1 dtype=f32 act=gelu", "gemv: act=gelu is not one of relu gelu_erf gelu_tanh silu"),
            ("gemv m=1 k=1 dtype=f32 scale=inf", "gemv: scale=inf is not a finite number"),
            ("gemv m=1 k=1 dtype=f32 math=quick", "gemv: math=quick is not one of ieee ftz fast"),
            (&format!("{conv} layout=hwcn"), "conv2d: layout=hwcn is not nchw or nhwc"),
            ("softmax rows=1 dtype=f32", "softmax: parameter cols is missing; it has rows cols dtype [math]"),
            (
                "softmax rows=1 cols=2 dtype=i8",
                "softmax: operand \"x\" has type i8; rows.softmax takes floating-point types",
            ),
            (
                "layernorm rows=1 cols=2 dtype=f32 eps=-1",
                "layernorm: the operation rows.layernorm has the parameter -1; expected a number that is not negative",
            ),
            ("attention heads=2 q=0 d=4 dtype=f32", "attention: q=0 is too small: q must be at least 1"),
            (
                "attention heads=4 kv_heads=3 q=8 d=4 dtype=f32",
                "attention: kv_heads=3 does not divide heads=4: each head of keys serves as many query heads",
            ),
            (
                "attention heads=4 q=8 kv=7 d=4 dtype=f32 causal=1",
                "attention: the axes are 8 queries and 7 keys; a causal attention needs as many keys as queries, or more",
            ),
            ("reduce rows=2 cols=3 dtype=f32 op=min", "reduce: op=min is not sum, max or mean"),
            ("reduce rows=2 cols=3 dtype=f32 axis=2", "reduce: axis=2 is not 0 or 1"),
            (
                "reduce rows=2 cols=3 dtype=u8 op=mean",
                "reduce: a mean over dtype=u8 is no integer: choose a sum, or a floating-point type",
            ),
            (
                "maxpool n=1 c=1 h=2 w=9 r=3 s=3 dtype=f32",
                "maxpool: r=3 is too large: the kernel spans 3 rows or columns with dilation, the input with padding \
                 has 2",
            ),
            (
                "map n=4 dtype=f32 f=square",
                "map: f=square is not steps joined by dots as in keys, such as gelu_tanh or scale(2).exp, or - for a \
                 copy",
            ),
            ("map n=4 dtype=f32 f=add(x)", "map: operand \"x\" has the name of an earlier one; names are unique"),
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
