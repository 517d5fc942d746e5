//! Level 2, lanes: what one lane does, in scalars and short vectors.
//!
//! Values are assigned once (`let`); [`Slot`]s are the mutable registers (accumulators). Memory is root buffers with
//! integer element indices, never pointers, so that WGSL can express it. [`build::Builder`] places pure operations in
//! the outermost open block in which their operands exist (common subexpressions are shared); loads stay put.

pub mod build;
pub mod matrix;
mod print;

use search_space::workload::DType;

use crate::tile::{BinaryOp, Buffer, Phase, UnaryOp};

/// The element of a [`Type`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Elem {
    /// An element index: 64 bits on the CPU, 32 bits in WGSL. Scalars only.
    Index,
    /// 32-bit signed integer (vectors of offsets).
    I32,
    /// Truth value.
    Bool,
    /// IEEE binary32.
    F32,
    /// IEEE binary16; only loaded, stored and converted.
    F16,
    /// bfloat16; only loaded, stored and converted.
    Bf16,
    /// 8-bit signed integer; only loaded, stored and converted.
    I8,
    /// 8-bit unsigned integer; only loaded, stored and converted.
    U8,
}

impl Elem {
    /// What memory of an element type holds.
    ///
    /// # Panics
    /// On binary64, which no family lowers.
    pub fn of(dtype: DType) -> Elem {
        match dtype {
            DType::F32 => Elem::F32,
            DType::F16 => Elem::F16,
            DType::Bf16 => Elem::Bf16,
            DType::I8 => Elem::I8,
            DType::U8 => Elem::U8,
            DType::I32 => Elem::I32,
            DType::F64 => unreachable!("invariant: families refuse binary64"),
        }
    }

    /// What elements of this type are computed with in: [`Elem::F32`] or [`Elem::I32`].
    pub fn computed(self) -> Elem {
        match self {
            Elem::F32 | Elem::F16 | Elem::Bf16 => Elem::F32,
            _ => Elem::I32,
        }
    }

    /// Bytes of one element in memory.
    pub fn bytes(self) -> u32 {
        match self {
            Elem::Index => 8,
            Elem::I32 | Elem::F32 => 4,
            Elem::F16 | Elem::Bf16 => 2,
            Elem::I8 | Elem::U8 | Elem::Bool => 1,
        }
    }

    /// Whether this is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, Elem::F32 | Elem::F16 | Elem::Bf16)
    }
}

/// A scalar (`lanes = 1`) or a short vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Type {
    /// Element.
    pub elem: Elem,
    /// Number of elements.
    pub lanes: u16,
}

/// A value, assigned once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

/// A mutable register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u32);

/// Memory, by position in the kernel's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mem {
    /// A buffer parameter.
    Buffer(usize),
    /// A workgroup-shared array.
    Shared(usize),
    /// An array private to one core.
    Scratch(usize),
}

/// An array of a kernel (shared or scratch).
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Name in printed text.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Elements.
    pub len: u64,
}

/// An element address: `index + offset`, in elements. The constant part is kept apart so that it becomes a
/// displacement and never a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Memory.
    pub mem: Mem,
    /// Scalar [`Elem::Index`].
    pub index: Value,
    /// Elements added.
    pub offset: i64,
    /// Alignment of the access in bytes.
    pub align: u32,
}

/// Facts of the place of execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Builtin {
    /// This core among [`Builtin::Cores`].
    Core,
    /// Number of cores that run the kernel.
    Cores,
    /// Workgroup along grid dimension 0, 1 or 2.
    Group(u8),
    /// Lane inside the workgroup, linear, x fastest.
    Lane,
}

/// Operations on two values of one type (integers and floats alike where it makes sense).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinOp {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Integer quotient of non-negative numbers.
    Div,
    /// Integer remainder of non-negative numbers.
    Rem,
    /// Smaller.
    Min,
    /// Larger; of floats, as [`BinOp::Min`], the right operand when one is NaN.
    Max,
    /// Bitwise exclusive or; of truth values too.
    Xor,
    /// Both (truth values), or bitwise.
    And,
    /// Shift to the left by less than the width.
    Shl,
    /// Shift to the right, copying the sign.
    Shr,
}

/// Comparisons of signed integers, or of floats (false when one is NaN).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CmpOp {
    /// Less.
    Lt,
    /// Less or equal.
    Le,
    /// Equal.
    Eq,
}

/// What a `let` computes.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Integer constant of the value's type (splat when a vector).
    Int(i64),
    /// Float constant of the value's type (splat when a vector).
    Float(f64),
    /// Fact of the place of execution; scalar [`Elem::Index`].
    Builtin(Builtin),
    /// `0, 1, 2, ...` as [`Elem::I32`].
    Iota,
    /// All elements equal to a scalar.
    Splat(Value),
    /// Element of a vector.
    Extract(Value, u16),
    /// Conversion to the element of the value's type; floats to integers toward zero, inside the integer's range.
    Convert(Value),
    /// The same bits as another element of the same size.
    Bitcast(Value),
    /// Elements chosen from two vectors of one type laid end to end.
    Shuffle(Value, Value, Box<[u16]>),
    /// Rounded to an integral float, ties to even.
    Round(Value),
    /// `a · 2ⁿ` for an integral float `n`; zero and infinity beyond the exponents.
    Scale(Value, Value),
    /// A function that the target has: square roots and reciprocals everywhere, the others in WGSL.
    Math(UnaryOp, Value),
    /// Binary operation.
    Bin(BinOp, Value, Value),
    /// `a · b + c`, rounded once.
    Fma(Value, Value, Value),
    /// `sum + Σ a · b` over the four bytes of each lane of 32 bits: `[sum, a, b]` with `a` unsigned and `b` signed.
    Dot([Value; 3]),
    /// Negation of floats.
    Neg(Value),
    /// Comparison; gives [`Elem::Bool`].
    Cmp(CmpOp, Value, Value),
    /// `mask ? a : b`, elementwise.
    Select(Value, Value, Value),
    /// Consecutive elements; where `mask` is false the element is 0 and memory is not touched.
    Load {
        /// Address of the first element.
        at: Address,
        /// Mask of the same number of lanes.
        mask: Option<Value>,
    },
    /// Elements at `at + indices`; where `mask` is false the element is 0 and memory is not touched.
    Gather {
        /// Base address.
        at: Address,
        /// [`Elem::I32`] vector added to the base.
        indices: Value,
        /// Mask.
        mask: Option<Value>,
    },
    /// The present content of a slot.
    Read(Slot),
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Stmt {
    /// `let value = op`.
    Let(Value, Op),
    /// `slot = value`.
    Set(Slot, Value),
    /// Consecutive elements; only where `mask` is true.
    Store {
        /// Address of the first element.
        at: Address,
        /// What is stored.
        value: Value,
        /// Mask of the same number of lanes.
        mask: Option<Value>,
        /// Past the caches where the address allows: to whole vectors.
        stream: bool,
    },
    /// Elements at `at + indices`; only where `mask` is true. The indices differ.
    Scatter {
        /// Base address.
        at: Address,
        /// [`Elem::I32`] vector added to the base.
        indices: Value,
        /// What is stored.
        value: Value,
        /// Mask.
        mask: Option<Value>,
    },
    /// `for index in (lo..hi).step_by(step)`.
    For {
        /// Loop variable, scalar [`Elem::Index`].
        index: Value,
        /// First value.
        lo: Value,
        /// First value not taken.
        hi: Value,
        /// Positive step.
        step: Value,
        /// Body.
        body: Vec<Stmt>,
    },
    /// Conditional.
    If {
        /// Scalar [`Elem::Bool`].
        cond: Value,
        /// When true.
        then: Vec<Stmt>,
        /// When false.
        otherwise: Vec<Stmt>,
    },
    /// All lanes of the workgroup wait for each other; shared memory written before is seen after.
    Barrier,
    /// Reads and writes of memory stay on their side of it in the generated code. It does nothing when it runs: a
    /// compiler that moves the loads of later steps up runs out of registers.
    Seam,
    /// Streaming stores before this are visible to whoever sees a store after it.
    Fence,
    /// An operation of the matrix unit.
    Matrix(matrix::Matrix),
    /// Asks for the cache line that holds the address; never faults.
    Prefetch {
        /// Address.
        at: Address,
    },
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
    /// Lanes of one workgroup.
    pub workgroup: [u64; 3],
    /// Workgroups along each dimension; `[1, 1, 1]` on the CPU.
    pub grid: [u64; 3],
    /// Shares of the work for each core (CPU): a kernel with more than one is called with as many times more cores as
    /// there are, by whichever is free.
    pub shares: u64,
    /// Workgroup-shared arrays.
    pub shared: Vec<Array>,
    /// Arrays private to one core.
    pub scratch: Vec<Array>,
    /// Type of each value.
    pub values: Vec<Type>,
    /// Type of each slot.
    pub slots: Vec<Type>,
    /// What is done.
    pub body: Vec<Stmt>,
}

/// Kernels in launch order, and the workspace they share.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Kernels.
    pub kernels: Vec<Kernel>,
    /// Bytes of each workspace buffer.
    pub workspace_bytes: Vec<u64>,
}

impl From<BinaryOp> for BinOp {
    fn from(op: BinaryOp) -> BinOp {
        match op {
            BinaryOp::Add => BinOp::Add,
            BinaryOp::Sub => BinOp::Sub,
            BinaryOp::Mul => BinOp::Mul,
            BinaryOp::Div => BinOp::Div,
            BinaryOp::Min => BinOp::Min,
            BinaryOp::Max => BinOp::Max,
        }
    }
}

impl Type {
    /// A scalar element index.
    pub const INDEX: Type = Type { elem: Elem::Index, lanes: 1 };
    /// A scalar truth value.
    pub const BOOL: Type = Type { elem: Elem::Bool, lanes: 1 };
    /// A scalar float.
    pub const F32: Type = Type { elem: Elem::F32, lanes: 1 };

    /// The same element, `lanes` wide.
    pub fn with_lanes(self, lanes: u16) -> Type {
        Type { lanes, ..self }
    }
}

impl Kernel {
    /// Byte offset of each scratch array inside the block that the caller allocates per core (64-byte aligned), and
    /// the size of that block.
    pub fn scratch_offsets(&self) -> (Vec<u64>, u64) {
        let mut at = 0;
        let offsets = self
            .scratch
            .iter()
            .map(|array| {
                let start = at;
                at += (array.len * array.dtype.bytes()).next_multiple_of(64);
                start
            })
            .collect();
        (offsets, at)
    }

    /// Bytes of shared memory.
    pub fn shared_bytes(&self) -> u64 {
        self.shared.iter().map(|array| array.len * array.dtype.bytes()).sum()
    }
}
