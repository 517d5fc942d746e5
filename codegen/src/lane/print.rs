//! The text of level 2: `tilewright show --as lane` and snapshots.

use std::fmt::{self, Display, Write};

use super::matrix::Matrix;
use super::{Address, BinOp, Builtin, CmpOp, Elem, Kernel, Mem, Op, Program, Stmt, Type, Value};
use crate::tile::Phase;

impl Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kernels.iter().try_for_each(|kernel| kernel.fmt(f))
    }
}

impl Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let elem = match self.elem {
            Elem::Index => "index",
            Elem::I32 => "i32",
            Elem::Bool => "bool",
            Elem::F32 => "f32",
            Elem::F16 => "f16",
            Elem::Bf16 => "bf16",
            Elem::I8 => "i8",
            Elem::U8 => "u8",
        };
        if self.lanes == 1 { f.write_str(elem) } else { write!(f, "{elem}x{}", self.lanes) }
    }
}

impl Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = if self.phase == Phase::Prepack { "prepack" } else { "run" };
        let ([x, y, z], [gx, gy, gz]) = (self.workgroup, self.grid);
        writeln!(f, "kernel {} phase={phase} workgroup={x}x{y}x{z} grid={gx}x{gy}x{gz}", self.name)?;
        if self.shares > 1 {
            writeln!(f, "  shares {}", self.shares)?;
        }
        for (kind, arrays) in [("shared", &self.shared), ("scratch", &self.scratch)] {
            for array in arrays {
                writeln!(f, "  {kind} {}: {}[{}]", array.name, array.dtype.as_str(), array.len)?;
            }
        }
        for (slot, ty) in self.slots.iter().enumerate() {
            writeln!(f, "  slot s{slot}: {ty}")?;
        }
        let mut text = String::new();
        Text { kernel: self, out: &mut text }.block(&self.body, 1)?;
        f.write_str(&text)
    }
}

struct Text<'a> {
    kernel: &'a Kernel,
    out: &'a mut String,
}

fn v(value: Value) -> String {
    format!("v{}", value.0)
}

impl Text<'_> {
    fn block(&mut self, stmts: &[Stmt], depth: usize) -> fmt::Result {
        for stmt in stmts {
            write!(self.out, "{:indent$}", "", indent = depth * 2)?;
            match stmt {
                Stmt::Let(value, op) => {
                    let ty = self.kernel.values[value.0 as usize];
                    let op = self.op(op);
                    writeln!(self.out, "{}: {ty} = {op}", v(*value))?;
                }
                Stmt::Set(slot, value) => writeln!(self.out, "s{} = {}", slot.0, v(*value))?,
                Stmt::Store { at, value, mask, stream } => {
                    let stream = if *stream { "stream" } else { "store" };
                    let text = format!("{stream} {} = {}{}", self.address(at), v(*value), masked(*mask));
                    writeln!(self.out, "{text}")?;
                }
                Stmt::Scatter { at, indices, value, mask } => {
                    let (at, indices, value) = (self.address(at), v(*indices), v(*value));
                    writeln!(self.out, "scatter {at} at {indices} = {value}{}", masked(*mask))?;
                }
                Stmt::For { index, lo, hi, step, body } => {
                    writeln!(self.out, "for {} in {}..{} step {}", v(*index), v(*lo), v(*hi), v(*step))?;
                    self.block(body, depth + 1)?;
                }
                Stmt::If { cond, then, otherwise } => {
                    writeln!(self.out, "if {}", v(*cond))?;
                    self.block(then, depth + 1)?;
                    if !otherwise.is_empty() {
                        writeln!(self.out, "{:indent$}else", "", indent = depth * 2)?;
                        self.block(otherwise, depth + 1)?;
                    }
                }
                Stmt::Barrier => writeln!(self.out, "barrier")?,
                Stmt::Seam => writeln!(self.out, "seam")?,
                Stmt::Fence => writeln!(self.out, "fence")?,
                Stmt::Matrix(matrix) => {
                    let text = self.matrix(matrix);
                    writeln!(self.out, "{text}")?;
                }
                Stmt::Prefetch { at } => {
                    let at = self.address(at);
                    writeln!(self.out, "prefetch {at}")?;
                }
            }
        }
        Ok(())
    }

    fn matrix(&self, matrix: &Matrix) -> String {
        match matrix {
            Matrix::Configure => "matrix unit on".into(),
            Matrix::Release => "matrix unit off".into(),
            Matrix::Zero { register } => format!("m{register} = 0"),
            Matrix::Load { register, at, row_bytes } => {
                format!("m{register} = rows {} step {row_bytes}", self.address(at))
            }
            Matrix::Store { register, at, row_bytes } => {
                format!("rows {} step {row_bytes} = m{register}", self.address(at))
            }
            Matrix::Multiply { acc, a, b, factors: [left, right] } => {
                format!("m{acc} += m{a} * m{b} as {} * {}", left.as_str(), right.as_str())
            }
        }
    }

    fn address(&self, at: &Address) -> String {
        let name = match at.mem {
            Mem::Buffer(position) => &self.kernel.buffers[position].name,
            Mem::Shared(position) => &self.kernel.shared[position].name,
            Mem::Scratch(position) => &self.kernel.scratch[position].name,
        };
        match at.offset {
            0 => format!("{name}[{}]", v(at.index)),
            offset => format!("{name}[{} + {offset}]", v(at.index)),
        }
    }

    fn op(&self, op: &Op) -> String {
        match op {
            Op::Int(value) => value.to_string(),
            Op::Float(value) => format!("{value:?}"),
            Op::Builtin(Builtin::Core) => "core".into(),
            Op::Builtin(Builtin::Cores) => "cores".into(),
            Op::Builtin(Builtin::Group(dim)) => format!("group {dim}"),
            Op::Builtin(Builtin::Lane) => "lane".into(),
            Op::Iota => "iota".into(),
            Op::Splat(value) => format!("splat {}", v(*value)),
            Op::Extract(value, lane) => format!("{}[{lane}]", v(*value)),
            Op::Convert(value) => format!("convert {}", v(*value)),
            Op::Bin(op, lhs, rhs) => {
                let name = match op {
                    BinOp::Add => "add",
                    BinOp::Sub => "sub",
                    BinOp::Mul => "mul",
                    BinOp::Div => "div",
                    BinOp::Rem => "rem",
                    BinOp::Min => "min",
                    BinOp::Max => "max",
                    BinOp::Xor => "xor",
                    BinOp::And => "and",
                    BinOp::Shl => "shl",
                    BinOp::Shr => "shr",
                };
                format!("{name} {}, {}", v(*lhs), v(*rhs))
            }
            Op::Bitcast(value) => format!("bitcast {}", v(*value)),
            Op::Shuffle(a, b, lanes) => {
                let lanes = lanes.iter().map(u16::to_string).collect::<Vec<_>>().join(" ");
                format!("shuffle {}, {} by {lanes}", v(*a), v(*b))
            }
            Op::Round(value) => format!("round {}", v(*value)),
            Op::Scale(value, power) => format!("scale {} by {}", v(*value), v(*power)),
            Op::Math(op, value) => format!("{} {}", format!("{op:?}").to_lowercase(), v(*value)),
            Op::Fma(a, b, c) => format!("fma {}, {}, {}", v(*a), v(*b), v(*c)),
            Op::Dot([sum, a, b]) => format!("dot {}, {}, {}", v(*sum), v(*a), v(*b)),
            Op::Neg(value) => format!("neg {}", v(*value)),
            Op::Cmp(op, lhs, rhs) => {
                let name = match op {
                    CmpOp::Lt => "<",
                    CmpOp::Le => "<=",
                    CmpOp::Eq => "==",
                };
                format!("{} {name} {}", v(*lhs), v(*rhs))
            }
            Op::Select(mask, on_true, on_false) => format!("select {}, {}, {}", v(*mask), v(*on_true), v(*on_false)),
            Op::Load { at, mask } => format!("load {}{}", self.address(at), masked(*mask)),
            Op::Gather { at, indices, mask } => {
                format!("gather {} at {}{}", self.address(at), v(*indices), masked(*mask))
            }
            Op::Read(slot) => format!("s{}", slot.0),
        }
    }
}

fn masked(mask: Option<Value>) -> String {
    mask.map_or(String::new(), |mask| format!(" where {}", v(mask)))
}
