//! What is computed: an operation over named axes and operands, independent of how.
//!
//! A [`Workload`] is a complete description: two problems that need different kernels never share one, and its
//! canonical text is the key under which results are stored. Shapes follow from the operands' index maps.

mod dtype;
mod key;
mod op;
mod roles;
mod shape;
mod spec;
mod sugar;
mod summary;
mod validate;

pub use dtype::DType;
pub use key::{KeyError, MAX_KEY, ParseError};
pub use op::{Op, Real};
pub use roles::AttentionAxes;
pub use shape::row_major;
pub use spec::{
    Activation, AttentionSpec, Conv2dSpec, DEFAULT_ALIGN, DEFAULT_WORKSPACE_BYTES, ImageLayout, MapSpec, MatmulSpec,
    PoolSpec, ReduceSpec, Reduction, RowPass, RowsSpec, SpecError, TransposeSpec,
};
pub use sugar::SugarError;
pub use summary::KINDS;
pub use validate::{
    InvalidWorkload, MAX_ALIGN, MAX_EXTENT, MAX_NAME, MAX_PARTS, MAX_PROLOGUE, MAX_TOTAL, Place, WorkloadProblem,
};

/// The role of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AxisKind {
    /// `b`: indexes all operands alike; independent problems (batch, convolution groups).
    Batch,
    /// `p`: indexes the output.
    Parallel,
    /// `r`: is reduced.
    Reduction,
    /// `g`: ragged, given by an offsets operand.
    Grouped,
}

impl AxisKind {
    /// The letter used in keys.
    pub fn letter(self) -> char {
        match self {
            AxisKind::Batch => 'b',
            AxisKind::Parallel => 'p',
            AxisKind::Reduction => 'r',
            AxisKind::Grouped => 'g',
        }
    }
}

/// How many values an axis takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Extent {
    /// Known when tuning.
    Fixed(u64),
    /// Known at run time: `lo..hi/multiple`, both ends included.
    Range {
        /// Smallest extent.
        lo: u64,
        /// Largest extent.
        hi: u64,
        /// Every extent is a multiple of this.
        multiple: u64,
    },
}

/// A named dimension of the iteration space.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Axis {
    /// Name in the key; unique, lower case, begins with a letter.
    pub name: String,
    /// Role.
    pub kind: AxisKind,
    /// Extent.
    pub extent: Extent,
}

/// One subscript of an operand: `offset + Σ coefficient × axis`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Subscript {
    /// `(axis position, coefficient)` in axis order, each axis at most once, no zero coefficient.
    pub terms: Vec<(usize, i64)>,
    /// Constant part (minus the padding of a convolution).
    pub offset: i64,
    /// `Some(n)` when the subscript can leave `0..n`: elements outside read as zero (as the padding of a convolution),
    /// or as minus infinity for `contract.max`.
    /// `None` when every value of the axes stays inside the operand.
    pub bound: Option<u64>,
}

/// Where the elements of an operand lie.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Storage {
    /// Element strides, one per subscript.
    Strides(Vec<u64>),
    /// The schedule may choose (prepacked weights).
    Free,
}

/// Direction of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Read.
    In,
    /// Written.
    Out,
    /// Read and written.
    InOut,
}

impl Role {
    /// The word used in keys.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::In => "in",
            Role::Out => "out",
            Role::InOut => "io",
        }
    }
}

/// A tensor operand.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Operand {
    /// Direction.
    pub role: Role,
    /// Name in the key; unique.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Index map, outermost dimension first.
    pub index: Vec<Subscript>,
    /// Element strides or free.
    pub storage: Storage,
    /// Guaranteed alignment of the first element in bytes; a power of two.
    pub align: u64,
    /// The operand whose memory this one may share.
    pub alias: Option<String>,
    /// Expression applied to each element when it is read, in canonical text. Kept in the key; not lowered yet.
    pub prologue: Option<String>,
}

/// A step applied to each output element after the operation itself, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum EpilogueStep {
    /// Adds the element of the named `in` operand, a vector over one output axis.
    Bias(String),
    /// `max(x, 0)`.
    Relu,
    /// GELU through the error function.
    GeluErf,
    /// GELU through tanh.
    GeluTanh,
    /// `x · sigmoid(x)`.
    Silu,
    /// Limits to `lo..=hi`.
    Clip(f64, f64),
    /// Multiplies by a constant.
    Scale(f64),
    /// Adds the element of the named `in` operand (residual).
    Add(String),
    /// Multiplies by the element of the named `in` operand (the gain of a norm, a gate).
    Mul(String),
    /// `e^x`.
    Exp,
    /// Natural logarithm: minus infinity for zeros, NaN below.
    Log,
    /// Hyperbolic tangent.
    Tanh,
    /// Error function.
    Erf,
    /// Converts to another element type.
    Cast(DType),
}

/// What floating-point rewriting is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MathMode {
    /// Any summation order and fused multiply-add; denormals kept.
    Ieee,
    /// As `ieee`, denormals may be flushed to zero.
    Ftz,
    /// Declared-tolerance rewrites such as Winograd and short polynomials; inputs are finite.
    Fast,
}

impl MathMode {
    /// The word used in keys.
    pub fn as_str(self) -> &'static str {
        match self {
            MathMode::Ieee => "ieee",
            MathMode::Ftz => "ftz",
            MathMode::Fast => "fast",
        }
    }
}

/// Whether two runs must give equal bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Determinism {
    /// Equal bits in every run.
    Fixed,
    /// Any summation order in each run (atomics).
    Any,
}

impl Determinism {
    /// The word used in keys.
    pub fn as_str(self) -> &'static str {
        match self {
            Determinism::Fixed => "fixed",
            Determinism::Any => "any",
        }
    }
}

/// A complete description of what is computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Operation.
    pub op: Op,
    /// Iteration space, outermost first.
    pub axes: Vec<Axis>,
    /// Operands in call order: inputs, then outputs.
    pub operands: Vec<Operand>,
    /// Element type in which sums are kept.
    pub acc: DType,
    /// Steps after the reduction.
    pub epilogue: Vec<EpilogueStep>,
    /// Allowed rewriting.
    pub math: MathMode,
    /// Determinism asked for.
    pub det: Determinism,
    /// Most bytes of workspace a kernel may ask for.
    pub workspace_bytes: u64,
}
