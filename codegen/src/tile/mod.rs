//! Level 1, tiles: what a kernel does to whole tiles, for every target alike.
//!
//! A [`Program`] is a list of kernels. A [`Kernel`] has buffers (operands of the workload or workspace), tiles (static
//! shapes with a layout in scratch, shared or register space) and a body of statements over *windows*: a statement
//! walks the coordinates of its shape, and each [`View`] says which element of a buffer or tile a coordinate means.
//! With layouts, pipes and loop kinds erased this is a plain array program; [`interpret`] runs that.

pub mod interpret;
mod matrix;
mod print;
pub mod verify;

use search_space::workload::DType;

use crate::atoms::Atom;
use crate::index::{Index, Var};
use crate::layout::{Distribution, Layout};

/// When a kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Once per set of weights; timed apart.
    Prepack,
    /// At each call.
    Run,
}

/// Kernels in launch order, and the workspace they share.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Kernels in launch order.
    pub kernels: Vec<Kernel>,
    /// Bytes of each workspace buffer.
    pub workspace_bytes: Vec<u64>,
}

/// Where the memory of a kernel's buffer comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The workload's operand at this position.
    Operand(usize),
    /// The program's workspace buffer at this position.
    Workspace(usize),
}

/// How a kernel uses a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only read.
    Read,
    /// Only written.
    Write,
    /// Read and written.
    ReadWrite,
}

/// A buffer parameter of a kernel: `len` elements of `dtype`, no two buffers overlap.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// Name in printed text.
    pub name: String,
    /// Memory.
    pub source: Source,
    /// Element type.
    pub dtype: DType,
    /// Elements.
    pub len: u64,
    /// Alignment of element 0 in bytes.
    pub align: u64,
    /// Use.
    pub access: Access,
    /// Written by non-temporal stores: past the caches, for outputs that nobody reads soon.
    pub stream: bool,
}

/// Where a tile lives.
#[derive(Clone, Debug, PartialEq)]
pub enum Space {
    /// Memory private to one core (CPU), allocated by the caller.
    Scratch(Layout),
    /// Memory shared by a workgroup.
    Shared(Layout),
    /// Registers: which lane holds which element.
    Register(Distribution),
}

/// A value of static shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Tile {
    /// Name in printed text.
    pub name: String,
    /// Extent of each dimension.
    pub shape: Vec<u64>,
    /// Element type.
    pub dtype: DType,
    /// Space and layout.
    pub space: Space,
}

/// A group of shared tiles that is filled and read in turn, `stages` deep.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipe {
    /// Name in printed text.
    pub name: String,
    /// How many fills may be in flight.
    pub stages: u64,
    /// The tiles (positions in [`Kernel::tiles`]).
    pub tiles: Vec<usize>,
}

/// The step of a pipe's protocol, in this order for each fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipeStep {
    /// The producer may write the stage.
    Acquire,
    /// The producer has issued its writes.
    Commit,
    /// The consumer may read the stage.
    Wait,
    /// The consumer has read the stage.
    Release,
}

/// One function launched on a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// Symbol.
    pub name: String,
    /// When it runs.
    pub phase: Phase,
    /// Parameters.
    pub buffers: Vec<Buffer>,
    /// Lanes of one workgroup, `[x, y, z]`; `[1, 1, 1]` on the CPU.
    pub workgroup: [u64; 3],
    /// Variable names; [`Var`] is a position in this list.
    pub vars: Vec<String>,
    /// Tiles.
    pub tiles: Vec<Tile>,
    /// Pipes.
    pub pipes: Vec<Pipe>,
    /// What is done.
    pub body: Vec<Stmt>,
}

impl LoopKind {
    /// Whether the cores take part in the loop together.
    pub fn is_cores(self) -> bool {
        matches!(self, LoopKind::Cores | LoopKind::Shares(_) | LoopKind::Invocations(_))
    }
}

/// What carries out the iterations of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopKind {
    /// One after the other.
    Serial,
    /// As [`LoopKind::Serial`], with this many copies of the body per step.
    Unroll(u64),
    /// Spread over the cores; iterations are independent.
    Cores,
    /// As [`LoopKind::Cores`], in this many shares for each core: a core that is done takes the next share.
    Shares(u64),
    /// As [`LoopKind::Cores`], where every invocation of every workgroup is a core with this many iterations, which are
    /// as far apart as there are invocations; as many workgroups run as that takes.
    Invocations(u64),
    /// One workgroup each along this grid dimension; iterations are independent.
    Grid(usize),
}

/// A buffer or a tile, by position in the kernel's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A buffer, addressed by one flat element index.
    Buffer(usize),
    /// A tile, addressed by one index for each of its dimensions.
    Tile(usize),
}

/// `0 ≤ index < bound`, or the element does not exist.
#[derive(Clone, Debug, PartialEq)]
pub struct Guard {
    /// Over loop variables and window coordinates.
    pub index: Index,
    /// First value outside.
    pub bound: Index,
}

/// Which element each window coordinate means.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// Memory or tile.
    pub place: Place,
    /// One flat element index for a buffer, one index per dimension for a tile.
    pub index: Vec<Index>,
    /// All must hold for the element to exist. A source element that does not exist reads as the fill value (zero);
    /// a destination element that does not exist is not written.
    pub guards: Vec<Guard>,
}

/// A comparison of indices.
#[derive(Clone, Debug, PartialEq)]
pub enum Cond {
    /// `lhs < rhs`.
    Lt(Index, Index),
    /// `lhs == rhs`.
    Eq(Index, Index),
}

/// A scalar expression over the elements of a [`Stmt::Map`] or [`Stmt::Sweep`].
///
/// Elements of floating-point memory are computed with in f32, integers in i32; a constant has the type of what it
/// meets.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    /// The element of argument `0`.
    Arg(usize),
    /// An earlier value of the same [`Stmt::Sweep`].
    Let(usize),
    /// A constant.
    Const(f64),
    /// An index as a 32-bit integer.
    Position(Index),
    /// `lhs op rhs ? then : otherwise`, of `[lhs, rhs, then, otherwise]`.
    Select(Compare, Box<[Scalar; 4]>),
    /// An operation on one value.
    Unary(UnaryOp, Box<Scalar>),
    /// An operation on two values.
    Binary(BinaryOp, Box<Scalar>, Box<Scalar>),
}

/// Operations of [`Scalar`] on one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    /// Negation.
    Neg,
    /// `eˣ`, correct to a unit in the last place.
    Exp,
    /// As [`UnaryOp::Exp`], of numbers that are not positive (or NaN).
    ExpBelowZero,
    /// As [`UnaryOp::ExpBelowZero`], correct to 2·10⁻⁶ of the value, and to 5·10⁻⁷ from -8 on.
    ExpShort,
    /// Natural logarithm.
    Log,
    /// Hyperbolic tangent.
    Tanh,
    /// Error function.
    Erf,
    /// Square root, correctly rounded.
    Sqrt,
    /// `1 / x`, correctly rounded.
    Recip,
}

/// Comparisons of [`Scalar::Select`]; false when an operand is NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compare {
    /// Less.
    Lt,
    /// Less or equal.
    Le,
    /// Equal.
    Eq,
}

/// How the values of a [`Fold`] are put together, in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FoldOp {
    /// Sum.
    Add,
    /// Smallest; NaN may be lost.
    Min,
    /// Largest; NaN may be lost.
    Max,
    /// Largest, or NaN when there is one.
    NanMax,
}

/// `into = op(into, value)` at every coordinate of a [`Stmt::Sweep`].
#[derive(Clone, Debug, PartialEq)]
pub struct Fold {
    /// Read and written: a scratch tile or a buffer. The dimensions that its index does not use are folded.
    pub into: View,
    /// Operation.
    pub op: FoldOp,
    /// Position in the lets of the statement.
    pub value: usize,
}

/// Operations of [`Scalar`] on two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Quotient.
    Div,
    /// `lhs < rhs ? lhs : rhs`: the right operand when one is NaN.
    Min,
    /// `lhs > rhs ? lhs : rhs`: the right operand when one is NaN.
    Max,
}

/// One statement. Shapes may depend on loop variables; `shape[d]` bounds coordinate `%d`.
#[derive(Clone, Debug, PartialEq)]
pub enum Stmt {
    /// `for var in 0..extent`.
    For {
        /// Loop variable.
        var: Var,
        /// Number of iterations.
        extent: Index,
        /// Who runs them.
        kind: LoopKind,
        /// Body.
        body: Vec<Stmt>,
    },
    /// Conditional.
    If {
        /// Condition; the same for all lanes.
        cond: Cond,
        /// When it holds.
        then: Vec<Stmt>,
        /// When it does not.
        otherwise: Vec<Stmt>,
    },
    /// `dst[%] = src[%]`: load, store, pack, transpose and im2col alike.
    Copy {
        /// Window.
        shape: Vec<Index>,
        /// Written.
        dst: View,
        /// Read.
        src: View,
    },
    /// Sets every element of a tile.
    Fill {
        /// Position in [`Kernel::tiles`].
        tile: usize,
        /// Value.
        value: f64,
    },
    /// `dst[%] = expr(args[%]...)`.
    Map {
        /// Window.
        shape: Vec<Index>,
        /// Written.
        dst: View,
        /// Read; a view that ignores a coordinate is broadcast along it.
        args: Vec<View>,
        /// Value.
        expr: Scalar,
    },
    /// One walk that computes several values at each coordinate: `lets` in order (each may use the ones before it),
    /// then the stores and folds of them. Folds of one statement use the same dimensions; a store is read by no
    /// argument at another coordinate.
    Sweep {
        /// Window.
        shape: Vec<Index>,
        /// Read.
        args: Vec<View>,
        /// Values.
        lets: Vec<Scalar>,
        /// Written views, each with the position of its value in `lets`.
        stores: Vec<(View, usize)>,
        /// Reductions.
        folds: Vec<Fold>,
        /// Independent partial results of each fold, so that one does not wait for the other.
        accumulators: u64,
        /// Elements ahead of those of the first argument that are asked for, where vectors read them one after the
        /// other; 0 asks for none.
        ahead: u64,
    },
    /// `acc[%0, %1] += Σ over %2 of a[%0, %2] · b[%2, %1]` on a register tile; coordinates are `(m, n, k)`.
    Contract {
        /// `[m, n, k]`; m and n are constants.
        shape: [Index; 3],
        /// Position of the register tile of shape `[m, n]`.
        acc: usize,
        /// Left operand; may not use `%1`.
        a: View,
        /// Right operand; may not use `%0`.
        b: View,
        /// Instruction.
        atom: Atom,
        /// Copies of the body per step of k.
        unroll: u64,
        /// Steps of k that the memory of the factors is asked for ahead of its use (of `b` alone, where vectors are
        /// multiplied); 0 is not at all.
        prefetch: u64,
        /// Where each element of `b` that is read is written too, at the same coordinates: `b` is packed on the way.
        keep: Option<View>,
        /// Steps of the instruction along k after which a matrix unit stores a register nobody needs: where its stores
        /// are rare, the next one is slow. 0 is never.
        wake: u64,
    },
    /// Asks for the memory of a window of constant shape, which is neither read nor written.
    Prefetch {
        /// Window.
        shape: Vec<Index>,
        /// What will be used soon.
        src: View,
    },
    /// A step of a pipe's protocol.
    Pipe {
        /// Position in [`Kernel::pipes`].
        pipe: usize,
        /// Step.
        step: PipeStep,
    },
}

impl Scalar {
    /// The expression with every [`Scalar::Let`] replaced by its value, for statements without lets.
    pub fn inlined(&self, lets: &[Scalar]) -> Scalar {
        let within = |part: &Scalar| part.inlined(lets);
        match self {
            Scalar::Let(position) => lets[*position].inlined(lets),
            Scalar::Arg(_) | Scalar::Const(_) | Scalar::Position(_) => self.clone(),
            Scalar::Select(compare, parts) => Scalar::Select(*compare, Box::new(parts.each_ref().map(within))),
            Scalar::Unary(op, x) => Scalar::Unary(*op, Box::new(within(x))),
            Scalar::Binary(op, lhs, rhs) => Scalar::Binary(*op, Box::new(within(lhs)), Box::new(within(rhs))),
        }
    }
}
