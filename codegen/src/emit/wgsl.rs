//! Prints lanes as WGSL. Each buffer is `@group(0) @binding(i)` in the kernel's order, the entry point is [`ENTRY`].
//!
//! Element indices are `i32`, which is why a buffer may have at most 2³¹ elements. A buffer or shared array whose accesses
//! all have one width is declared as an array of such vectors, any other as an array of scalars, whose vectors are put
//! together element by element. WGSL has no masked access: those become conditionals.

use std::fmt::Write;

use search_space::workload::DType;

use crate::lane::{Address, Array, BinOp, Builtin, CmpOp, Elem, Kernel, Mem, Op, Stmt, Type, Value};
use crate::tile::Access;
use crate::tile::UnaryOp;

/// Name of the entry point.
pub const ENTRY: &str = "main";

/// WGSL refuses constants that are not finite; the bits of a variable it cannot look into.
const NOT_FINITE: [(&str, f32); 3] =
    [("nan_bits", f32::NAN), ("infinity_bits", f32::INFINITY), ("minus_infinity_bits", f32::NEG_INFINITY)];

/// Whether two numbers are equal or both NaN.
fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

/// Why a kernel has no WGSL form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WgslError {
    /// A buffer too large for 32-bit indices.
    #[error("kernel {kernel}: buffer {buffer} has {elements} elements; WGSL indices reach 2147483648")]
    TooLarge {
        /// Kernel.
        kernel: String,
        /// Buffer.
        buffer: String,
        /// Elements.
        elements: u64,
    },
    /// An operation, type or number that WGSL does not have.
    #[error("kernel {kernel}: {what} cannot be written in WGSL")]
    Unsupported {
        /// Kernel.
        kernel: String,
        /// What was met.
        what: String,
    },
}

/// The kernel as a WGSL module.
///
/// # Errors
/// [`WgslError`] for buffers over 2³¹ elements, element types other than f32 and i32, core builtins, constants that do
/// not fit their type, and vectors of other widths than 2 and 4.
pub fn emit(kernel: &Kernel) -> Result<String, WgslError> {
    let mut printer = Printer {
        kernel,
        out: String::new(),
        names: vec![String::new(); kernel.values.len()],
        splats: vec![None; kernel.values.len()],
        widths: Widths::of(kernel),
        depth: 1,
    };
    printer.declarations()?;
    printer.block(&kernel.body)?;
    printer.out.push_str("}\n");
    Ok(printer.out)
}

/// blake3 (hex) of the text of a program's modules, one after the other.
pub fn code_hash(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

/// The one width of all accesses to each memory, `1` where they differ.
struct Widths {
    buffers: Vec<Option<u16>>,
    shared: Vec<Option<u16>>,
}

impl Widths {
    fn of(kernel: &Kernel) -> Widths {
        let mut widths = Widths { buffers: vec![None; kernel.buffers.len()], shared: vec![None; kernel.shared.len()] };
        widths.block(kernel, &kernel.body);
        // An array of vectors must hold whole vectors.
        for (width, array) in widths.shared.iter_mut().zip(&kernel.shared) {
            *width = width.filter(|&width| array.len.is_multiple_of(u64::from(width)));
        }
        for (width, buffer) in widths.buffers.iter_mut().zip(&kernel.buffers) {
            *width = width.filter(|&width| buffer.len.is_multiple_of(u64::from(width)));
        }
        widths
    }

    fn get(&self, mem: Mem) -> u16 {
        let width = match mem {
            Mem::Buffer(position) => self.buffers[position],
            Mem::Shared(position) => self.shared[position],
            Mem::Scratch(_) => None,
        };
        width.unwrap_or(1)
    }

    fn note(&mut self, at: &Address, width: u16) {
        let seen = match at.mem {
            Mem::Buffer(position) => &mut self.buffers[position],
            Mem::Shared(position) => &mut self.shared[position],
            Mem::Scratch(_) => return,
        };
        let aligned = u32::from(width) * 4 <= at.align && at.offset % i64::from(width) == 0;
        *seen = Some(match *seen {
            None if aligned => width,
            Some(other) if other == width && aligned => width,
            _ => 1,
        });
    }

    fn block(&mut self, kernel: &Kernel, body: &[Stmt]) {
        for stmt in body {
            match stmt {
                Stmt::Let(value, Op::Load { at, .. }) => self.note(at, kernel.values[value.0 as usize].lanes),
                Stmt::Let(_, Op::Gather { at, .. }) => self.note(at, 1),
                Stmt::Store { at, value, .. } => self.note(at, kernel.values[value.0 as usize].lanes),
                Stmt::For { body, .. } => self.block(kernel, body),
                Stmt::If { then, otherwise, .. } => {
                    self.block(kernel, then);
                    self.block(kernel, otherwise);
                }
                Stmt::Let(..)
                | Stmt::Set(..)
                | Stmt::Scatter { .. }
                | Stmt::Barrier
                | Stmt::Fence
                | Stmt::Seam
                | Stmt::Matrix(_)
                | Stmt::Prefetch { .. } => {}
            }
        }
    }
}

struct Printer<'k> {
    kernel: &'k Kernel,
    out: String,
    /// How each value is written: its name, or its text when it is a constant.
    names: Vec<String>,
    /// The scalar that a splat repeats.
    splats: Vec<Option<Value>>,
    widths: Widths,
    depth: usize,
}

impl Printer<'_> {
    fn unsupported(&self, what: impl Into<String>) -> WgslError {
        WgslError::Unsupported { kernel: self.kernel.name.clone(), what: what.into() }
    }

    fn line(&mut self, text: &str) {
        for _ in 0..self.depth {
            self.out.push_str("  ");
        }
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn declarations(&mut self) -> Result<(), WgslError> {
        let kernel = self.kernel;
        for (position, buffer) in kernel.buffers.iter().enumerate() {
            if buffer.len > 1 << 31 {
                let (kernel, buffer, elements) = (kernel.name.clone(), buffer.name.clone(), buffer.len);
                return Err(WgslError::TooLarge { kernel, buffer, elements });
            }
            let element = self.element(buffer.dtype, self.widths.get(Mem::Buffer(position)))?;
            let access = if buffer.access == Access::Read { "read" } else { "read_write" };
            let name = self.mem(Mem::Buffer(position));
            let _ =
                writeln!(self.out, "@group(0) @binding({position}) var<storage, {access}> {name}: array<{element}>;");
        }
        for (position, Array { dtype, len, .. }) in kernel.shared.iter().enumerate() {
            let width = self.widths.get(Mem::Shared(position));
            let element = self.element(*dtype, width)?;
            let (name, len) = (self.mem(Mem::Shared(position)), len.div_ceil(u64::from(width)));
            let _ = writeln!(self.out, "var<workgroup> {name}: array<{element}, {len}>;");
        }
        for (position, Array { dtype, len, .. }) in kernel.scratch.iter().enumerate() {
            let (name, element) = (self.mem(Mem::Scratch(position)), self.element(*dtype, 1)?);
            let _ = writeln!(self.out, "var<private> {name}: array<{element}, {len}>;");
        }
        for (name, value) in NOT_FINITE {
            if !self.uses(value) {
                continue;
            }
            let _ = writeln!(self.out, "var<private> {name}: u32 = {:#x}u;", value.to_bits());
        }
        let [x, y, z] = kernel.workgroup;
        let _ = write!(
            self.out,
            "\n@compute @workgroup_size({x}, {y}, {z})\nfn {ENTRY}(@builtin(workgroup_id) group: vec3<u32>, \
             @builtin(local_invocation_index) lane: u32) {{\n"
        );
        for (position, &ty) in kernel.slots.iter().enumerate() {
            let ty = self.ty(ty)?;
            self.line(&format!("var s{position}: {ty};"));
        }
        Ok(())
    }

    /// Whether a constant that is not finite appears.
    fn uses(&self, value: f32) -> bool {
        fn within(body: &[Stmt], value: f32) -> bool {
            body.iter().any(|stmt| match stmt {
                #[expect(clippy::cast_possible_truncation, reason = "the constant is rounded as it is written")]
                Stmt::Let(_, Op::Float(constant)) => same(*constant as f32, value),
                Stmt::For { body, .. } => within(body, value),
                Stmt::If { then, otherwise, .. } => within(then, value) || within(otherwise, value),
                _ => false,
            })
        }
        within(&self.kernel.body, value)
    }

    fn element(&self, dtype: DType, width: u16) -> Result<String, WgslError> {
        match dtype {
            DType::F32 => self.ty(Type::F32.with_lanes(width)),
            DType::I32 => self.ty(Type { elem: Elem::I32, lanes: width }),
            other => Err(self.unsupported(format!("element type {}", other.as_str()))),
        }
    }

    fn ty(&self, ty: Type) -> Result<String, WgslError> {
        let elem = match ty.elem {
            Elem::Index | Elem::I32 => "i32",
            Elem::Bool => "bool",
            Elem::F32 => "f32",
            Elem::F16 | Elem::Bf16 | Elem::I8 | Elem::U8 => return Err(self.unsupported("elements of 8 or 16 bits")),
        };
        match ty.lanes {
            1 => Ok(elem.into()),
            2 | 4 => Ok(format!("vec{}<{elem}>", ty.lanes)),
            lanes => Err(self.unsupported(format!("a vector of {lanes} elements"))),
        }
    }

    /// Operand names come from outside; the binding number keeps the names unique and off WGSL's keywords.
    fn mem(&self, mem: Mem) -> String {
        let (letter, position, name) = match mem {
            Mem::Buffer(position) => ('g', position, self.kernel.buffers[position].name.as_str()),
            Mem::Shared(position) => ('w', position, self.kernel.shared[position].name.as_str()),
            Mem::Scratch(position) => ('x', position, self.kernel.scratch[position].name.as_str()),
        };
        let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        format!("{letter}{position}_{name}")
    }

    fn name(&self, value: Value) -> &str {
        &self.names[value.0 as usize]
    }

    fn value_ty(&self, value: Value) -> Type {
        self.kernel.values[value.0 as usize]
    }

    fn integer(&self, value: i64) -> Result<String, WgslError> {
        match i32::try_from(value) {
            // `-2147483648` is not a literal: the minus is an operator.
            Ok(i32::MIN) => Ok("(-2147483647 - 1)".into()),
            Ok(value) if value < 0 => Ok(format!("({value})")),
            Ok(value) => Ok(value.to_string()),
            Err(_) => Err(self.unsupported(format!("the index {value}"))),
        }
    }

    fn constant(&self, ty: Type, op: &Op) -> Result<Option<String>, WgslError> {
        let scalar = match (op, ty.elem) {
            (Op::Int(value), Elem::Bool) => (*value != 0).to_string(),
            (Op::Int(value), Elem::Index | Elem::I32) => self.integer(*value)?,
            (Op::Float(value), Elem::F32) => {
                #[expect(clippy::cast_possible_truncation, reason = "the constant is rounded as the interpreter does")]
                let single = *value as f32;
                match NOT_FINITE.iter().find(|(_, value)| same(*value, single)) {
                    Some((name, _)) => format!("bitcast<f32>({name})"),
                    None => format!("{single:?}f"),
                }
            }
            _ => return Ok(None),
        };
        Ok(Some(if ty.lanes == 1 { scalar } else { format!("{}({scalar})", self.ty(ty)?) }))
    }

    fn block(&mut self, body: &[Stmt]) -> Result<(), WgslError> {
        body.iter().try_for_each(|stmt| self.stmt(stmt))
    }

    fn nested(&mut self, body: &[Stmt]) -> Result<(), WgslError> {
        self.depth += 1;
        self.block(body)?;
        self.depth -= 1;
        Ok(())
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<(), WgslError> {
        match stmt {
            Stmt::Let(value, op) => self.define(*value, op)?,
            Stmt::Set(slot, value) => self.line(&format!("s{} = {};", slot.0, self.name(*value))),
            Stmt::Store { at, value, mask, .. } => self.store(at, *value, *mask)?,
            Stmt::For { index, lo, hi, step, body } => {
                let name = format!("v{}", index.0);
                let (lo, hi, step) = (self.name(*lo), self.name(*hi), self.name(*step));
                let head = format!("for (var {name}: i32 = {lo}; {name} < {hi}; {name} += {step}) {{");
                self.names[index.0 as usize] = name;
                self.line(&head);
                self.nested(body)?;
                self.line("}");
            }
            Stmt::If { cond, then, otherwise } => {
                self.line(&format!("if ({}) {{", self.name(*cond)));
                self.nested(then)?;
                if !otherwise.is_empty() {
                    self.line("} else {");
                    self.nested(otherwise)?;
                }
                self.line("}");
            }
            Stmt::Fence => return Err(self.unsupported("streaming stores")),
            Stmt::Barrier => self.line("workgroupBarrier();"),
            // WGSL cannot ask for a cache line nor keep its compiler from moving loads; neither changes a result.
            Stmt::Prefetch { .. } | Stmt::Seam => {}
            Stmt::Scatter { .. } => return Err(self.unsupported("a scatter")),
            Stmt::Matrix(_) => return Err(self.unsupported("a matrix unit")),
        }
        Ok(())
    }

    fn define(&mut self, value: Value, op: &Op) -> Result<(), WgslError> {
        let ty = self.value_ty(value);
        let position = value.0 as usize;
        if let Some(text) = self.constant(ty, op)? {
            self.names[position] = text;
            return Ok(());
        }
        let name = format!("v{}", value.0);
        match op {
            Op::Load { at, mask } => self.load(&name, ty, at, *mask)?,
            Op::Gather { at, indices, mask } => self.gather(&name, ty, at, *indices, *mask)?,
            _ => {
                if let Op::Splat(scalar) = op {
                    self.splats[position] = Some(*scalar);
                }
                let text = self.pure(ty, op)?;
                self.line(&format!("let {name} = {text};"));
            }
        }
        self.names[position] = name;
        Ok(())
    }

    fn pure(&self, ty: Type, op: &Op) -> Result<String, WgslError> {
        let name = |value: &Value| self.name(*value);
        Ok(match op {
            Op::Builtin(Builtin::Group(dim)) => match dim {
                0 => "i32(group.x)".into(),
                1 => "i32(group.y)".into(),
                _ => "i32(group.z)".into(),
            },
            Op::Builtin(Builtin::Lane) => "i32(lane)".into(),
            Op::Builtin(Builtin::Core | Builtin::Cores) => return Err(self.unsupported("the number of a core")),
            Op::Iota => {
                let elements: Vec<String> = (0..ty.lanes).map(|lane| lane.to_string()).collect();
                format!("{}({})", self.ty(ty)?, elements.join(", "))
            }
            Op::Splat(value) => format!("{}({})", self.ty(ty)?, name(value)),
            Op::Extract(value, lane) => format!("{}[{lane}]", name(value)),
            // An index is an i32 already.
            Op::Convert(value) => match (ty.elem, self.kernel.values[value.0 as usize].elem) {
                (Elem::F32, Elem::F32) => name(value).into(),
                (Elem::F32, _) | (_, Elem::F32) => format!("{}({})", self.ty(ty)?, name(value)),
                _ => name(value).into(),
            },
            Op::Bitcast(value) => format!("bitcast<{}>({})", self.ty(ty)?, name(value)),
            Op::Round(value) => format!("round({})", name(value)),
            Op::Math(op, value) => match op {
                UnaryOp::Exp | UnaryOp::ExpBelowZero | UnaryOp::ExpShort => format!("exp({})", name(value)),
                UnaryOp::Log => format!("log({})", name(value)),
                UnaryOp::Tanh => format!("tanh({})", name(value)),
                UnaryOp::Sqrt => format!("sqrt({})", name(value)),
                UnaryOp::Recip => format!("1.0 / {}", name(value)),
                UnaryOp::Neg | UnaryOp::Erf => return Err(self.unsupported("a function that WGSL lacks")),
            },
            Op::Shuffle(..) | Op::Scale(..) => return Err(self.unsupported("vector operations of processors")),
            Op::Bin(op, lhs, rhs) => {
                let (lhs, rhs) = (name(lhs), name(rhs));
                // Of non-negative numbers: a shift and a mask, without the rounding that signed division needs.
                let power = rhs.parse::<u32>().ok().filter(|divisor| divisor.is_power_of_two());
                match (op, ty.elem) {
                    // Drivers take `x - x` to be zero, which NaN and infinities are not; a flipped bit they do not see through.
                    (BinOp::Sub, Elem::F32) if ty.lanes == 1 => {
                        format!("{lhs} + bitcast<f32>(bitcast<u32>({rhs}) ^ 0x80000000u)")
                    }
                    (BinOp::Div | BinOp::Rem, Elem::F32) => format!("{lhs} {} {rhs}", symbol(*op)),
                    (BinOp::Div, _) if let Some(power) = power => format!("{lhs} >> {}u", power.trailing_zeros()),
                    (BinOp::Rem, _) if let Some(power) = power => format!("{lhs} & {}", power - 1),
                    // WGSL leaves min and max of a NaN open; the comparison gives the right operand.
                    (BinOp::Min, Elem::F32) => format!("select({rhs}, {lhs}, {lhs} < {rhs})"),
                    (BinOp::Max, Elem::F32) => format!("select({rhs}, {lhs}, {lhs} > {rhs})"),
                    (BinOp::Min, _) => format!("min({lhs}, {rhs})"),
                    (BinOp::Max, _) => format!("max({lhs}, {rhs})"),
                    (BinOp::And, Elem::Bool) if ty.lanes == 1 => format!("{lhs} && {rhs}"),
                    (BinOp::Xor, Elem::Bool) => format!("{lhs} != {rhs}"),
                    _ => format!("{lhs} {} {rhs}", symbol(*op)),
                }
            }
            Op::Fma(a, b, c) => format!("fma({}, {}, {})", name(a), name(b), name(c)),
            Op::Neg(value) => format!("-{}", name(value)),
            // A compiler may take a float to equal itself, NaN or not.
            Op::Cmp(CmpOp::Eq, lhs, rhs) if lhs == rhs && self.value_ty(*lhs).elem == Elem::F32 => {
                let bits = self.ty(Type { elem: Elem::I32, ..self.value_ty(*lhs) })?;
                let of = |value: &str| if bits == "i32" { value.to_owned() } else { format!("{bits}({value})") };
                let (mask, infinity) = (of("0x7fffffff"), of("0x7f800000"));
                format!("(bitcast<{bits}>({}) & {mask}) <= {infinity}", name(lhs))
            }
            Op::Cmp(op, lhs, rhs) => {
                let symbol = match op {
                    CmpOp::Lt => "<",
                    CmpOp::Le => "<=",
                    CmpOp::Eq => "==",
                };
                format!("{} {symbol} {}", name(lhs), name(rhs))
            }
            Op::Select(mask, a, b) => format!("select({}, {}, {})", name(b), name(a), name(mask)),
            Op::Read(slot) => format!("s{}", slot.0),
            Op::Dot(_) => return Err(self.unsupported("a product of bytes")),
            Op::Int(_) | Op::Float(_) | Op::Load { .. } | Op::Gather { .. } => {
                return Err(self.unsupported("a constant of this type"));
            }
        })
    }

    /// `index + offset + step`, in elements or, for an array of vectors, in vectors.
    fn subscript(&self, at: &Address, step: i64) -> Result<String, WgslError> {
        let width = i64::from(self.widths.get(at.mem));
        let (index, offset) = (self.name(at.index), at.offset + step);
        let constant = index.parse::<i64>().ok();
        let text = match constant {
            Some(constant) => return self.integer((constant + offset) / width),
            None if width == 1 => index.to_string(),
            None => format!("({index} >> {}u)", width.trailing_zeros()),
        };
        Ok(match offset / width {
            0 => text,
            more => format!("{text} + {}", self.integer(more)?),
        })
    }

    fn load(&mut self, name: &str, ty: Type, at: &Address, mask: Option<Value>) -> Result<(), WgslError> {
        let mem = self.mem(at.mem);
        let whole = self.widths.get(at.mem) == ty.lanes;
        let element = |printer: &Self, step: u16| Ok(format!("{mem}[{}]", printer.subscript(at, i64::from(step))?));
        let text = if whole {
            element(self, 0)?
        } else {
            let elements = (0..ty.lanes).map(|step| element(self, step)).collect::<Result<Vec<_>, _>>()?;
            format!("{}({})", self.ty(ty)?, elements.join(", "))
        };
        let Some(mask) = mask else {
            self.line(&format!("let {name} = {text};"));
            return Ok(());
        };
        let declared = self.ty(ty)?;
        self.line(&format!("var {name}: {declared};"));
        match self.uniform_mask(mask) {
            Some(mask) => self.line(&format!("if ({mask}) {{ {name} = {text}; }}")),
            None => {
                for step in 0..ty.lanes {
                    let text = element(self, step)?;
                    let text = if whole { format!("{text}[{step}]") } else { text };
                    self.line(&format!("if ({}[{step}]) {{ {name}[{step}] = {text}; }}", self.name(mask)));
                }
            }
        }
        Ok(())
    }

    fn gather(
        &mut self,
        name: &str,
        ty: Type,
        at: &Address,
        indices: Value,
        mask: Option<Value>,
    ) -> Result<(), WgslError> {
        let mem = self.mem(at.mem);
        let base = self.subscript(at, 0)?;
        let indices = self.name(indices).to_string();
        let element = |lane: u16| match base.as_str() {
            "0" => format!("{mem}[{indices}[{lane}]]"),
            _ => format!("{mem}[{base} + {indices}[{lane}]]"),
        };
        let elements: Vec<String> = (0..ty.lanes).map(element).collect();
        let whole = format!("{}({})", self.ty(ty)?, elements.join(", "));
        let Some(mask) = mask else {
            self.line(&format!("let {name} = {whole};"));
            return Ok(());
        };
        let declared = self.ty(ty)?;
        self.line(&format!("var {name}: {declared};"));
        match self.uniform_mask(mask) {
            Some(mask) => self.line(&format!("if ({mask}) {{ {name} = {whole}; }}")),
            None => {
                for (lane, element) in elements.iter().enumerate() {
                    self.line(&format!("if ({}[{lane}]) {{ {name}[{lane}] = {element}; }}", self.name(mask)));
                }
            }
        }
        Ok(())
    }

    fn store(&mut self, at: &Address, value: Value, mask: Option<Value>) -> Result<(), WgslError> {
        let mem = self.mem(at.mem);
        let lanes = self.value_ty(value).lanes;
        let uniform = mask.map(|mask| self.uniform_mask(mask));
        let name = self.name(value).to_string();
        let mut lines = Vec::new();
        if self.widths.get(at.mem) == lanes {
            let subscript = self.subscript(at, 0)?;
            lines.push(format!("{mem}[{subscript}] = {name};"));
        } else {
            for lane in 0..lanes {
                let subscript = self.subscript(at, i64::from(lane))?;
                lines.push(format!("{mem}[{subscript}] = {name}[{lane}];"));
            }
        }
        match (mask, uniform.flatten()) {
            (None, _) => lines.iter().for_each(|line| self.line(line)),
            (Some(_), Some(mask)) => self.line(&format!("if ({mask}) {{ {} }}", lines.join(" "))),
            (Some(mask), None) if lines.len() == usize::from(lanes) => {
                for (lane, line) in lines.iter().enumerate() {
                    self.line(&format!("if ({}[{lane}]) {{ {line} }}", self.name(mask)));
                }
            }
            (Some(_), None) => return Err(self.unsupported("a vector store with a mask that differs between elements")),
        }
        Ok(())
    }

    /// The scalar condition of a mask that is the same for all elements.
    fn uniform_mask(&self, mask: Value) -> Option<String> {
        if self.value_ty(mask).lanes == 1 {
            return Some(self.name(mask).into());
        }
        self.splats[mask.0 as usize].map(|scalar| self.name(scalar).into())
    }
}

fn symbol(op: BinOp) -> &'static str {
    match op {
        BinOp::Add => "+",
        BinOp::Sub => "-",
        BinOp::Mul => "*",
        BinOp::Div => "/",
        BinOp::Rem => "%",
        BinOp::And => "&",
        BinOp::Xor => "^",
        BinOp::Shl => "<<",
        BinOp::Shr => ">>",
        BinOp::Min => "min",
        BinOp::Max => "max",
    }
}
