//! Builds lane kernels.
//!
//! Pure operations are hash-consed and placed in the outermost open block in which all their operands exist, which is
//! loop-invariant code motion and common-subexpression elimination by construction. Two kinds stay where they are used:
//! reads of memory and slots (their value changes; and merging loads across unrolled steps only lengthens live ranges
//! until registers spill), and floating-point arithmetic.

use std::collections::HashMap;

use super::matrix::Matrix;
use super::{Address, Array, BinOp, Builtin, CmpOp, Elem, Kernel, Mem, Op, Slot, Stmt, Type, Value};
use crate::index::{Index, IndexOp, Var};
use crate::tile::{Buffer, Phase, UnaryOp};

/// A hash-consing key of a pure operation: its type and its text. Floats are keyed by bits.
#[derive(PartialEq, Eq, Hash)]
struct Key(Type, u8, [u64; 3]);

/// What an open block belongs to.
enum Header {
    Kernel,
    For { index: Value, lo: Value, hi: Value, step: Value },
    Then { cond: Value },
    Else { cond: Value, then: Vec<Stmt> },
}

struct Block {
    header: Header,
    stmts: Vec<Stmt>,
    known: HashMap<Key, Value>,
}

impl Block {
    fn new(header: Header) -> Block {
        Block { header, stmts: Vec::new(), known: HashMap::new() }
    }
}

/// Builds one kernel from the outside in.
pub struct Builder {
    kernel: Kernel,
    /// Open blocks, outermost first.
    blocks: Vec<Block>,
    /// Block depth at which each value exists.
    depth: Vec<usize>,
    /// The constant a value stands for.
    constants: Vec<Option<i64>>,
    /// Values of the level-1 loop variables in scope.
    vars: HashMap<Var, Value>,
}

impl Builder {
    /// A kernel without code.
    pub fn new(name: &str, phase: Phase, buffers: Vec<Buffer>, workgroup: [u64; 3]) -> Builder {
        Builder {
            kernel: Kernel {
                name: name.into(),
                phase,
                buffers,
                workgroup,
                grid: [1; 3],
                shares: 1,
                shared: Vec::new(),
                scratch: Vec::new(),
                values: Vec::new(),
                slots: Vec::new(),
                body: Vec::new(),
            },
            blocks: vec![Block::new(Header::Kernel)],
            depth: Vec::new(),
            constants: Vec::new(),
            vars: HashMap::new(),
        }
    }

    /// The finished kernel.
    ///
    /// # Panics
    /// When a loop or conditional is still open.
    pub fn finish(mut self) -> Kernel {
        assert_eq!(self.blocks.len(), 1, "invariant: all blocks are closed");
        self.kernel.body = self.blocks.pop().expect("invariant: one block").stmts;
        self.kernel
    }

    /// Sets the number of workgroups along a grid dimension.
    pub fn set_grid(&mut self, dim: usize, groups: u64) {
        self.kernel.grid[dim] = groups;
    }

    /// Sets the shares of the work for each core.
    pub fn set_shares(&mut self, shares: u64) {
        self.kernel.shares = self.kernel.shares.max(shares);
    }

    /// Adds an array private to one core.
    pub fn scratch(&mut self, array: Array) -> Mem {
        self.kernel.scratch.push(array);
        Mem::Scratch(self.kernel.scratch.len() - 1)
    }

    /// Adds a workgroup-shared array.
    pub fn shared(&mut self, array: Array) -> Mem {
        self.kernel.shared.push(array);
        Mem::Shared(self.kernel.shared.len() - 1)
    }

    /// Adds a mutable register.
    pub fn slot(&mut self, ty: Type) -> Slot {
        self.kernel.slots.push(ty);
        Slot(u32::try_from(self.kernel.slots.len() - 1).expect("invariant: few slots"))
    }

    /// The type of a value.
    pub fn ty(&self, value: Value) -> Type {
        self.kernel.values[value.0 as usize]
    }

    /// The type of a slot.
    pub fn slot_ty(&self, slot: Slot) -> Type {
        self.kernel.slots[slot.0 as usize]
    }

    /// The constant a value stands for.
    pub fn constant(&self, value: Value) -> Option<i64> {
        self.constants[value.0 as usize]
    }

    fn new_value(&mut self, ty: Type, depth: usize, constant: Option<i64>) -> Value {
        self.kernel.values.push(ty);
        self.depth.push(depth);
        self.constants.push(constant);
        Value(u32::try_from(self.kernel.values.len() - 1).expect("invariant: kernels have fewer than 2^32 values"))
    }

    fn here(&self) -> usize {
        self.blocks.len() - 1
    }

    /// A pure operation: shared with an equal one, placed as far out as its operands allow.
    fn pure(&mut self, ty: Type, op: Op, operands: &[Value]) -> Value {
        let depth = operands.iter().map(|value| self.depth[value.0 as usize]).max().unwrap_or(0);
        let key = key(ty, &op);
        for block in &self.blocks[..=depth] {
            if let Some(&value) = block.known.get(&key) {
                return value;
            }
        }
        let constant = if let Op::Int(value) = op { Some(value) } else { None };
        let value = self.new_value(ty, depth, constant);
        self.blocks[depth].stmts.push(Stmt::Let(value, op));
        self.blocks[depth].known.insert(key, value);
        value
    }

    /// An operation that stays where it is.
    fn fixed(&mut self, ty: Type, op: Op) -> Value {
        let depth = self.here();
        let value = self.new_value(ty, depth, None);
        self.push(Stmt::Let(value, op));
        value
    }

    fn push(&mut self, stmt: Stmt) {
        self.blocks.last_mut().expect("invariant: one block is open").stmts.push(stmt);
    }

    /// An integer constant of a type; of a vector type, all elements alike.
    pub fn int(&mut self, ty: Type, value: i64) -> Value {
        self.pure(ty, Op::Int(value), &[])
    }

    /// A scalar index constant.
    pub fn index_const(&mut self, value: i64) -> Value {
        self.int(Type::INDEX, value)
    }

    /// A float constant of a type.
    pub fn float(&mut self, ty: Type, value: f64) -> Value {
        self.pure(ty, Op::Float(value), &[])
    }

    /// A fact of the place of execution.
    pub fn builtin(&mut self, builtin: Builtin) -> Value {
        self.pure(Type::INDEX, Op::Builtin(builtin), &[])
    }

    /// `0, 1, 2, ...`.
    pub fn iota(&mut self, lanes: u16) -> Value {
        if lanes == 1 {
            return self.int(Type { elem: Elem::I32, lanes }, 0);
        }
        self.pure(Type { elem: Elem::I32, lanes }, Op::Iota, &[])
    }

    /// All elements equal to a scalar; the scalar itself for one lane.
    pub fn splat(&mut self, value: Value, lanes: u16) -> Value {
        let ty = self.ty(value).with_lanes(lanes);
        if lanes == 1 {
            return value;
        }
        if let Some(constant) = self.constant(value) {
            return self.int(ty, constant);
        }
        if ty.elem.is_float() {
            return self.fixed(ty, Op::Splat(value));
        }
        self.pure(ty, Op::Splat(value), &[value])
    }

    /// Conversion to another element; what holds a float stays where it is.
    pub fn convert(&mut self, value: Value, elem: Elem) -> Value {
        let ty = self.ty(value);
        let to = Type { elem, ..ty };
        match (ty.elem == elem, self.constant(value)) {
            (true, _) => value,
            (_, Some(constant)) if !elem.is_float() => self.int(to, constant),
            _ if elem.is_float() || ty.elem.is_float() => self.fixed(to, Op::Convert(value)),
            _ => self.pure(to, Op::Convert(value), &[value]),
        }
    }

    /// The same bits as another element of the same size.
    pub fn bitcast(&mut self, value: Value, elem: Elem) -> Value {
        let ty = self.ty(value);
        self.fixed(Type { elem, ..ty }, Op::Bitcast(value))
    }

    /// Elements chosen from two vectors laid end to end.
    pub fn shuffle(&mut self, a: Value, b: Value, lanes: Vec<u16>) -> Value {
        let ty = self.ty(a).with_lanes(u16::try_from(lanes.len()).expect("invariant: short vectors"));
        self.fixed(ty, Op::Shuffle(a, b, lanes.into()))
    }

    /// Rounded to an integral float, ties to even.
    pub fn round(&mut self, value: Value) -> Value {
        let ty = self.ty(value);
        self.fixed(ty, Op::Round(value))
    }

    /// `value · 2^power`.
    pub fn scale(&mut self, value: Value, power: Value) -> Value {
        let ty = self.ty(value);
        self.fixed(ty, Op::Scale(value, power))
    }

    /// A function that the target has.
    pub fn math(&mut self, op: UnaryOp, value: Value) -> Value {
        let ty = self.ty(value);
        self.fixed(ty, Op::Math(op, value))
    }

    /// Element of a vector.
    pub fn extract(&mut self, value: Value, lane: u16) -> Value {
        let ty = self.ty(value);
        if ty.lanes == 1 {
            return value;
        }
        if ty.elem.is_float() {
            return self.fixed(ty.with_lanes(1), Op::Extract(value, lane));
        }
        self.pure(ty.with_lanes(1), Op::Extract(value, lane), &[value])
    }

    /// Binary operation; integers are folded and shared, floats are not.
    pub fn bin(&mut self, op: BinOp, lhs: Value, rhs: Value) -> Value {
        let ty = self.ty(lhs);
        debug_assert_eq!(ty, self.ty(rhs), "invariant: operands of one type");
        if ty.elem.is_float() {
            return self.fixed(ty, Op::Bin(op, lhs, rhs));
        }
        let (l, r) = (self.constant(lhs), self.constant(rhs));
        let folded = match (op, l, r) {
            (BinOp::Add, Some(l), Some(r)) => Some(l + r),
            (BinOp::Sub, Some(l), Some(r)) => Some(l - r),
            (BinOp::Mul, Some(l), Some(r)) => Some(l * r),
            (BinOp::Div, Some(l), Some(r)) => Some(l / r),
            (BinOp::Rem, Some(l), Some(r)) => Some(l % r),
            (BinOp::Min, Some(l), Some(r)) => Some(l.min(r)),
            (BinOp::Max, Some(l), Some(r)) => Some(l.max(r)),
            (BinOp::Xor, Some(l), Some(r)) => Some(l ^ r),
            (BinOp::And, Some(l), Some(r)) => Some(l & r),
            (BinOp::Shl, Some(l), Some(r)) => Some(l << r),
            (BinOp::Shr, Some(l), Some(r)) => Some(l >> r),
            (BinOp::Mul, _, Some(0)) | (BinOp::Mul, Some(0), _) | (BinOp::Rem, _, Some(1)) => Some(0),
            _ => None,
        };
        if let Some(value) = folded {
            return self.int(ty, value);
        }
        match (op, l, r) {
            (BinOp::Add, Some(0), _) | (BinOp::Mul, Some(1), _) => rhs,
            (BinOp::Add | BinOp::Sub, _, Some(0)) | (BinOp::Mul | BinOp::Div, _, Some(1)) => lhs,
            (BinOp::And, Some(1), _) if ty.elem == Elem::Bool => rhs,
            (BinOp::And, _, Some(1)) if ty.elem == Elem::Bool => lhs,
            _ => self.pure(ty, Op::Bin(op, lhs, rhs), &[lhs, rhs]),
        }
    }

    /// Comparison.
    pub fn cmp(&mut self, op: CmpOp, lhs: Value, rhs: Value) -> Value {
        let ty = Type { elem: Elem::Bool, lanes: self.ty(lhs).lanes };
        if self.ty(lhs).elem.is_float() {
            return self.fixed(ty, Op::Cmp(op, lhs, rhs));
        }
        if let (Some(l), Some(r)) = (self.constant(lhs), self.constant(rhs)) {
            let holds = match op {
                CmpOp::Lt => l < r,
                CmpOp::Le => l <= r,
                CmpOp::Eq => l == r,
            };
            return self.int(ty, i64::from(holds));
        }
        self.pure(ty, Op::Cmp(op, lhs, rhs), &[lhs, rhs])
    }

    /// Both of two optional masks; `None` is all true.
    pub fn both(&mut self, lhs: Option<Value>, rhs: Option<Value>) -> Option<Value> {
        match (lhs, rhs) {
            (Some(lhs), Some(rhs)) => Some(self.bin(BinOp::And, lhs, rhs)),
            (mask, None) | (None, mask) => mask,
        }
    }

    /// `mask ? a : b`.
    pub fn select(&mut self, mask: Value, on_true: Value, on_false: Value) -> Value {
        let ty = self.ty(on_true);
        if ty.elem.is_float() {
            return self.fixed(ty, Op::Select(mask, on_true, on_false));
        }
        self.pure(ty, Op::Select(mask, on_true, on_false), &[mask, on_true, on_false])
    }

    /// `a · b + c`.
    pub fn fma(&mut self, a: Value, b: Value, c: Value) -> Value {
        let ty = self.ty(c);
        self.fixed(ty, Op::Fma(a, b, c))
    }

    /// `sum + Σ a · b` over the four bytes of each lane, of `a` unsigned and of `b` signed.
    pub fn dot(&mut self, sum: Value, a: Value, b: Value) -> Value {
        let ty = self.ty(sum);
        self.fixed(ty, Op::Dot([sum, a, b]))
    }

    /// Negation of floats.
    pub fn neg(&mut self, value: Value) -> Value {
        let ty = self.ty(value);
        self.fixed(ty, Op::Neg(value))
    }

    /// Consecutive elements, as the memory holds them.
    pub fn load(&mut self, at: Address, lanes: u16, mask: Option<Value>) -> Value {
        let ty = Type { elem: self.held(at.mem), lanes };
        self.fixed(ty, Op::Load { at, mask })
    }

    /// Elements at `at + indices`, as the memory holds them.
    pub fn gather(&mut self, at: Address, indices: Value, mask: Option<Value>) -> Value {
        let ty = Type { elem: self.held(at.mem), lanes: self.ty(indices).lanes };
        self.fixed(ty, Op::Gather { at, indices, mask })
    }

    /// The element that a memory holds.
    pub fn held(&self, mem: Mem) -> Elem {
        Elem::of(match mem {
            Mem::Buffer(position) => self.kernel.buffers[position].dtype,
            Mem::Shared(position) => self.kernel.shared[position].dtype,
            Mem::Scratch(position) => self.kernel.scratch[position].dtype,
        })
    }

    /// The present content of a slot.
    pub fn read(&mut self, slot: Slot) -> Value {
        let ty = self.slot_ty(slot);
        self.fixed(ty, Op::Read(slot))
    }

    /// `slot = value`.
    pub fn set(&mut self, slot: Slot, value: Value) {
        self.push(Stmt::Set(slot, value));
    }

    /// Stores consecutive elements where `mask` is true.
    pub fn store(&mut self, at: Address, value: Value, mask: Option<Value>) {
        let stream = matches!(at.mem, Mem::Buffer(position) if self.kernel.buffers[position].stream);
        self.push(Stmt::Store { at, value, mask, stream });
    }

    /// An operation of the matrix unit.
    pub fn matrix(&mut self, matrix: Matrix) {
        self.push(Stmt::Matrix(matrix));
    }

    /// The same bits as a type of the same size.
    pub fn reinterpret(&mut self, value: Value, ty: Type) -> Value {
        if self.ty(value) == ty { value } else { self.fixed(ty, Op::Bitcast(value)) }
    }

    /// Keeps reads and writes of memory on their side in the generated code.
    pub fn seam(&mut self) {
        self.push(Stmt::Seam);
    }

    /// Orders streaming stores before what follows.
    pub fn fence(&mut self) {
        self.push(Stmt::Fence);
    }

    /// Stores elements at `at + indices` where `mask` is true.
    pub fn scatter(&mut self, at: Address, indices: Value, value: Value, mask: Option<Value>) {
        self.push(Stmt::Scatter { at, indices, value, mask });
    }

    /// Waits for all lanes of the workgroup.
    pub fn barrier(&mut self) {
        self.push(Stmt::Barrier);
    }

    /// Asks for a cache line.
    pub fn prefetch(&mut self, at: Address) {
        self.push(Stmt::Prefetch { at });
    }

    /// Opens `for index in (lo..hi).step_by(step)` and gives the index; [`Builder::end`] closes it.
    pub fn begin_for(&mut self, lo: Value, hi: Value, step: Value) -> Value {
        let index = self.new_value(Type::INDEX, self.blocks.len(), None);
        self.blocks.push(Block::new(Header::For { index, lo, hi, step }));
        index
    }

    /// Opens the true side of a conditional; [`Builder::begin_else`] or [`Builder::end`] closes it.
    pub fn begin_if(&mut self, cond: Value) {
        self.blocks.push(Block::new(Header::Then { cond }));
    }

    /// Closes the true side and opens the false side.
    ///
    /// # Panics
    /// When no true side is open.
    pub fn begin_else(&mut self) {
        let block = self.blocks.pop().expect("invariant: a block is open");
        let Header::Then { cond } = block.header else { unreachable!("invariant: else follows if") };
        self.blocks.push(Block::new(Header::Else { cond, then: block.stmts }));
    }

    /// Closes the innermost loop or conditional.
    ///
    /// # Panics
    /// When none is open.
    pub fn end(&mut self) {
        let Block { header, stmts, .. } = self.blocks.pop().expect("invariant: a block is open");
        let stmt = match header {
            Header::For { index, lo, hi, step } => Stmt::For { index, lo, hi, step, body: stmts },
            Header::Then { cond } => Stmt::If { cond, then: stmts, otherwise: Vec::new() },
            Header::Else { cond, then } => Stmt::If { cond, then, otherwise: stmts },
            Header::Kernel => unreachable!("invariant: the kernel's own block is closed by finish"),
        };
        self.push(stmt);
    }

    /// `for index in (lo..hi).step_by(step)`. A loop that is known to run once becomes its body.
    pub fn for_loop(&mut self, lo: Value, hi: Value, step: Value, body: impl FnOnce(&mut Builder, Value)) {
        if let (Some(l), Some(h), Some(s)) = (self.constant(lo), self.constant(hi), self.constant(step)) {
            if l >= h {
                return;
            }
            if l + s >= h {
                return body(self, lo);
            }
        }
        let index = self.begin_for(lo, hi, step);
        body(self, index);
        self.end();
    }

    /// Conditional on a scalar; a constant condition leaves one side only.
    pub fn if_else(&mut self, cond: Value, then: impl FnOnce(&mut Builder), otherwise: impl FnOnce(&mut Builder)) {
        match self.constant(cond) {
            Some(0) => otherwise(self),
            Some(_) => then(self),
            None => {
                self.begin_if(cond);
                then(self);
                self.begin_else();
                otherwise(self);
                self.end();
            }
        }
    }

    /// Binds a level-1 loop variable.
    pub fn bind(&mut self, var: Var, value: Value) {
        self.vars.insert(var, value);
    }

    /// The scalar value of an index; coordinates have been replaced ([`Index::at`]).
    ///
    /// # Panics
    /// When a coordinate or an unbound variable is left (the verifier excludes both).
    pub fn index(&mut self, index: &Index) -> Value {
        match index {
            Index::Const(value) => self.index_const(*value),
            Index::Var(var) => *self.vars.get(var).expect("invariant: variables are bound before use (verifier)"),
            Index::Coord(_) => unreachable!("invariant: coordinates are replaced before lowering"),
            Index::Op(op, args) => {
                let lhs = self.index(&args.0);
                let rhs = self.index(&args.1);
                self.bin(bin_op(*op), lhs, rhs)
            }
        }
    }

    /// The values of an index in which the one coordinate left counts `0..lanes`, as [`Elem::I32`].
    pub fn index_vector(&mut self, index: &Index, dim: usize, lanes: u16) -> Value {
        if !index.uses_coord(dim) {
            let scalar = self.index(index);
            let scalar = self.convert(scalar, Elem::I32);
            return self.splat(scalar, lanes);
        }
        match index {
            Index::Coord(_) => self.iota(lanes),
            Index::Op(op, args) => {
                let lhs = self.index_vector(&args.0, dim, lanes);
                let rhs = self.index_vector(&args.1, dim, lanes);
                self.bin(bin_op(*op), lhs, rhs)
            }
            Index::Const(_) | Index::Var(_) => unreachable!("invariant: these use no coordinate"),
        }
    }

    /// The address of a flat element index: its constant part becomes the displacement.
    pub fn address(&mut self, mem: Mem, index: &Index, align: u32) -> Address {
        let (rest, offset) = index.split_constant();
        let index = self.index(&rest);
        match self.constant(index) {
            Some(constant) => {
                let zero = self.index_const(0);
                Address { mem, index: zero, offset: offset + constant, align }
            }
            None => Address { mem, index, offset, align },
        }
    }
}

fn bin_op(op: IndexOp) -> BinOp {
    match op {
        IndexOp::Add => BinOp::Add,
        IndexOp::Sub => BinOp::Sub,
        IndexOp::Mul => BinOp::Mul,
        IndexOp::FloorDiv => BinOp::Div,
        IndexOp::Mod => BinOp::Rem,
        IndexOp::Min => BinOp::Min,
        IndexOp::Max => BinOp::Max,
        IndexOp::Xor => BinOp::Xor,
    }
}

fn key(ty: Type, op: &Op) -> Key {
    let v = |value: &Value| u64::from(value.0);
    let (tag, operands) = match op {
        Op::Int(value) => (0, [value.cast_unsigned(), 0, 0]),
        Op::Float(value) => (1, [value.to_bits(), 0, 0]),
        Op::Builtin(builtin) => (
            2,
            match builtin {
                Builtin::Core => [0, 0, 0],
                Builtin::Cores => [1, 0, 0],
                Builtin::Group(dim) => [2, u64::from(*dim), 0],
                Builtin::Lane => [3, 0, 0],
            },
        ),
        Op::Iota => (3, [0; 3]),
        Op::Splat(value) => (4, [v(value), 0, 0]),
        Op::Extract(value, lane) => (5, [v(value), u64::from(*lane), 0]),
        Op::Convert(value) => (6, [v(value), 0, 0]),
        Op::Bin(op, lhs, rhs) => (7 + *op as u8, [v(lhs), v(rhs), 0]),
        Op::Cmp(op, lhs, rhs) => (32 + *op as u8, [v(lhs), v(rhs), 0]),
        Op::Select(mask, a, b) => (48, [v(mask), v(a), v(b)]),
        Op::Fma(..)
        | Op::Dot(_)
        | Op::Neg(_)
        | Op::Load { .. }
        | Op::Gather { .. }
        | Op::Read(_)
        | Op::Bitcast(_)
        | Op::Shuffle(..)
        | Op::Round(_)
        | Op::Scale(..)
        | Op::Math(..) => unreachable!("invariant: only pure integer operations are shared"),
    };
    Key(ty, tag, operands)
}
