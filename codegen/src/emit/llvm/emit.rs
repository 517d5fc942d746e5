//! Lanes to LLVM IR: one function per kernel, `void(ptr buffers, i64 core, i64 cores, ptr scratch)`.
//!
//! The IR is in SSA form as it is written: slots become phis of the loops that carry them, so no middle-end pass is
//! needed (the lowering has blocked, unrolled and hoisted already).

use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::builder::{Builder, BuilderError};
use inkwell::context::Context;
use inkwell::intrinsics::Intrinsic;
use inkwell::module::Module;
use inkwell::types::{BasicTypeEnum, IntType};
use inkwell::values::{BasicMetadataValueEnum, BasicValueEnum, FunctionValue, PointerValue};
use inkwell::{FloatPredicate, IntPredicate};

use super::EmitError;
use crate::lane::{BinOp, Builtin, CmpOp, Elem, Kernel, Op, Slot, Stmt, Type, Value};
use crate::tile::UnaryOp;

/// Emits a kernel into a module.
pub(super) fn emit<'ctx>(
    context: &'ctx Context,
    module: &Module<'ctx>,
    kernel: &Kernel,
    cpu: &str,
    features: &str,
) -> Result<(), EmitError> {
    let pointer = context.ptr_type(inkwell::AddressSpace::default());
    let index = context.i64_type();
    let ty = context.void_type().fn_type(&[pointer.into(), index.into(), index.into(), pointer.into()], false);
    let function = module.add_function(&kernel.name, ty, None);
    for (key, value) in [("target-cpu", cpu), ("target-features", features), ("prefer-vector-width", "512")] {
        function.add_attribute(AttributeLoc::Function, context.create_string_attribute(key, value));
    }
    let nounwind = Attribute::get_named_enum_kind_id("nounwind");
    function.add_attribute(AttributeLoc::Function, context.create_enum_attribute(nounwind, 0));
    let builder = context.create_builder();
    builder.position_at_end(context.append_basic_block(function, "entry"));
    let mut emitter = Emitter {
        context,
        module,
        builder,
        kernel,
        function,
        values: vec![None; kernel.values.len()],
        slots: vec![None; kernel.slots.len()],
        buffers: Vec::new(),
        scratch: Vec::new(),
    };
    emitter.memories()?;
    emitter.block(&kernel.body)?;
    emitter.builder.build_return(None)?;
    Ok(())
}

pub(super) struct Emitter<'a, 'ctx> {
    pub(super) context: &'ctx Context,
    pub(super) module: &'a Module<'ctx>,
    pub(super) builder: Builder<'ctx>,
    pub(super) kernel: &'a Kernel,
    pub(super) function: FunctionValue<'ctx>,
    values: Vec<Option<BasicValueEnum<'ctx>>>,
    slots: Vec<Option<BasicValueEnum<'ctx>>>,
    pub(super) buffers: Vec<PointerValue<'ctx>>,
    pub(super) scratch: Vec<PointerValue<'ctx>>,
}

/// Applies an integer builder function to scalars or vectors.
macro_rules! int {
    ($self:ident, $build:ident, $lhs:expr, $rhs:expr) => {
        match ($lhs, $rhs) {
            (BasicValueEnum::VectorValue(lhs), BasicValueEnum::VectorValue(rhs)) => {
                BasicValueEnum::from($self.builder.$build(lhs, rhs, "")?)
            }
            (lhs, rhs) => $self.builder.$build(lhs.into_int_value(), rhs.into_int_value(), "")?.into(),
        }
    };
}

/// Applies a float builder function to scalars or vectors.
macro_rules! float {
    ($self:ident, $build:ident, $lhs:expr, $rhs:expr) => {
        match ($lhs, $rhs) {
            (BasicValueEnum::VectorValue(lhs), BasicValueEnum::VectorValue(rhs)) => {
                BasicValueEnum::from($self.builder.$build(lhs, rhs, "")?)
            }
            (lhs, rhs) => $self.builder.$build(lhs.into_float_value(), rhs.into_float_value(), "")?.into(),
        }
    };
}

impl<'ctx> Emitter<'_, 'ctx> {
    fn memories(&mut self) -> Result<(), EmitError> {
        let (index, byte) = (self.context.i64_type(), self.context.i8_type());
        let pointer = self.context.ptr_type(inkwell::AddressSpace::default());
        let table = self.function.get_nth_param(0).expect("invariant: four parameters").into_pointer_value();
        for position in 0..self.kernel.buffers.len() {
            let at = index.const_int(position as u64, false);
            // SAFETY: the caller passes one pointer per buffer.
            let slot = unsafe { self.builder.build_in_bounds_gep(pointer, table, &[at], "")? };
            self.buffers.push(self.builder.build_load(pointer, slot, "")?.into_pointer_value());
        }
        let scratch = self.function.get_nth_param(3).expect("invariant: four parameters").into_pointer_value();
        for offset in self.kernel.scratch_offsets().0 {
            let at = index.const_int(offset, false);
            // SAFETY: the caller allocates the bytes that scratch_offsets asks for.
            let array = unsafe { self.builder.build_in_bounds_gep(byte, scratch, &[at], "")? };
            self.scratch.push(array);
        }
        Ok(())
    }

    fn int_type(&self, elem: Elem) -> IntType<'ctx> {
        match elem {
            Elem::Index => self.context.i64_type(),
            Elem::I32 => self.context.i32_type(),
            Elem::I8 | Elem::U8 => self.context.i8_type(),
            // Only moved and converted: as integers they need no support of the processor.
            Elem::F16 | Elem::Bf16 => self.context.i16_type(),
            Elem::Bool | Elem::F32 => self.context.bool_type(),
        }
    }

    pub(super) fn ty(&self, ty: Type) -> BasicTypeEnum<'ctx> {
        let lanes = u32::from(ty.lanes);
        let float = match ty.elem {
            Elem::F32 => self.context.f32_type(),
            elem if lanes == 1 => return self.int_type(elem).into(),
            elem => return self.int_type(elem).vec_type(lanes).into(),
        };
        if lanes == 1 { float.into() } else { float.vec_type(lanes).into() }
    }

    pub(super) fn value(&self, value: Value) -> BasicValueEnum<'ctx> {
        self.values[value.0 as usize].expect("invariant: values are defined before use (builder)")
    }

    fn block(&mut self, stmts: &[Stmt]) -> Result<(), EmitError> {
        stmts.iter().try_for_each(|stmt| self.stmt(stmt))
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<(), EmitError> {
        match stmt {
            Stmt::Let(value, op) => {
                let ty = self.kernel.values[value.0 as usize];
                self.values[value.0 as usize] = Some(self.op(ty, op)?);
            }
            Stmt::Set(slot, value) => self.slots[slot.0 as usize] = Some(self.value(*value)),
            Stmt::Store { at, value, mask, stream } => self.store(at, *value, *mask, *stream)?,
            Stmt::Scatter { at, indices, value, mask } => self.scatter(at, *indices, *value, *mask)?,
            Stmt::For { index, lo, hi, step, body } => self.for_loop(*index, [*lo, *hi, *step], body)?,
            Stmt::If { cond, then, otherwise } => self.if_else(*cond, then, otherwise)?,
            Stmt::Barrier => return Err(EmitError::Unsupported { what: "a workgroup barrier on a CPU core" }),
            Stmt::Seam => {
                let ty = self.context.void_type().fn_type(&[], false);
                let clobbers = "~{memory}".to_string();
                let nothing = self.context.create_inline_asm(ty, String::new(), clobbers, true, false, None, false);
                self.builder.build_indirect_call(ty, nothing, &[], "")?;
            }
            Stmt::Matrix(matrix) => self.matrix(matrix)?,
            Stmt::Fence => {
                self.call("llvm.x86.sse.sfence", &[], &[])?;
            }
            Stmt::Prefetch { at } => {
                let pointer = self.address(at)?;
                let i32 = self.context.i32_type();
                let (read, locality, data) = (i32.const_zero(), i32.const_int(3, false), i32.const_int(1, false));
                let ty = self.context.ptr_type(inkwell::AddressSpace::default()).into();
                self.call("llvm.prefetch", &[ty], &[pointer.into(), read.into(), locality.into(), data.into()])?;
            }
        }
        Ok(())
    }

    pub(super) fn call(
        &self,
        name: &str,
        types: &[BasicTypeEnum<'ctx>],
        args: &[BasicMetadataValueEnum<'ctx>],
    ) -> Result<inkwell::values::CallSiteValue<'ctx>, EmitError> {
        let missing = || EmitError::Intrinsic { name: name.into() };
        let intrinsic = Intrinsic::find(name).ok_or_else(missing)?;
        let function = intrinsic.get_declaration(self.module, types).ok_or_else(missing)?;
        Ok(self.builder.build_call(function, args, "")?)
    }

    pub(super) fn result(&self, call: inkwell::values::CallSiteValue<'ctx>) -> BasicValueEnum<'ctx> {
        call.try_as_basic_value().basic().expect("invariant: the intrinsic returns a value")
    }

    pub(super) fn here(&self) -> inkwell::basic_block::BasicBlock<'ctx> {
        self.builder.get_insert_block().expect("invariant: the builder is positioned")
    }

    fn for_loop(&mut self, index: Value, [lo, hi, step]: [Value; 3], body: &[Stmt]) -> Result<(), EmitError> {
        let (lo, hi, step) = (self.value(lo), self.value(hi).into_int_value(), self.value(step).into_int_value());
        let header = self.context.append_basic_block(self.function, "for");
        let inside = self.context.append_basic_block(self.function, "body");
        let after = self.context.append_basic_block(self.function, "end");
        let before = self.here();
        // Guarded bottom-tested loop: the trip test is at the end, where the loop-carried registers are.
        let enters = self.builder.build_int_compare(IntPredicate::SLT, lo.into_int_value(), hi, "")?;
        self.builder.build_conditional_branch(enters, header, after)?;
        self.builder.position_at_end(header);
        let counter = self.builder.build_phi(self.context.i64_type(), "")?;
        counter.add_incoming(&[(&lo, before)]);
        self.values[index.0 as usize] = Some(counter.as_basic_value());
        // Slots read before they are set carry their value from one iteration to the next; all others are local.
        let mut effect = Effect::new(self.slots.len());
        effect.block(body);
        let mut carried = Vec::new();
        for slot in 0..self.slots.len() {
            if !effect.set[slot] {
                continue;
            }
            match self.slots[slot] {
                Some(initial) if effect.exposed[slot] => {
                    let phi = self.builder.build_phi(initial.get_type(), "")?;
                    phi.add_incoming(&[(&initial, before)]);
                    self.slots[slot] = Some(phi.as_basic_value());
                    carried.push((slot, initial, phi));
                }
                _ => self.slots[slot] = None,
            }
        }
        self.builder.build_unconditional_branch(inside)?;
        self.builder.position_at_end(inside);
        self.block(body)?;
        let next = self.builder.build_int_nsw_add(counter.as_basic_value().into_int_value(), step, "")?;
        let again = self.builder.build_int_compare(IntPredicate::SLT, next, hi, "")?;
        let latch = self.here();
        self.builder.build_conditional_branch(again, header, after)?;
        counter.add_incoming(&[(&next, latch)]);
        self.builder.position_at_end(after);
        for slot in 0..self.slots.len() {
            if effect.set[slot] && !carried.iter().any(|(carried, ..)| *carried == slot) {
                self.slots[slot] = None;
            }
        }
        for (slot, initial, phi) in carried {
            let last = self.slots[slot].ok_or(EmitError::Unset { slot })?;
            phi.add_incoming(&[(&last, latch)]);
            let result = self.builder.build_phi(initial.get_type(), "")?;
            result.add_incoming(&[(&initial, before), (&last, latch)]);
            self.slots[slot] = Some(result.as_basic_value());
        }
        Ok(())
    }

    fn if_else(&mut self, cond: Value, then: &[Stmt], otherwise: &[Stmt]) -> Result<(), EmitError> {
        let cond = self.value(cond).into_int_value();
        let on_true = self.context.append_basic_block(self.function, "then");
        let on_false = self.context.append_basic_block(self.function, "else");
        let after = self.context.append_basic_block(self.function, "end");
        self.builder.build_conditional_branch(cond, on_true, on_false)?;
        let before = self.slots.clone();
        self.builder.position_at_end(on_true);
        self.block(then)?;
        let true_end = self.here();
        self.builder.build_unconditional_branch(after)?;
        let true_slots = std::mem::replace(&mut self.slots, before);
        self.builder.position_at_end(on_false);
        self.block(otherwise)?;
        let false_end = self.here();
        self.builder.build_unconditional_branch(after)?;
        self.builder.position_at_end(after);
        for (slot, on_true) in true_slots.into_iter().enumerate() {
            self.slots[slot] = match (on_true, self.slots[slot]) {
                (Some(lhs), Some(rhs)) if lhs == rhs => Some(lhs),
                (Some(lhs), Some(rhs)) => {
                    let phi = self.builder.build_phi(lhs.get_type(), "")?;
                    phi.add_incoming(&[(&lhs, true_end), (&rhs, false_end)]);
                    Some(phi.as_basic_value())
                }
                _ => None,
            };
        }
        Ok(())
    }

    fn op(&mut self, ty: Type, op: &Op) -> Result<BasicValueEnum<'ctx>, EmitError> {
        let lanes = u32::from(ty.lanes);
        Ok(match op {
            Op::Int(value) => {
                let constant = self.int_type(ty.elem).const_int(value.cast_unsigned(), true);
                if lanes == 1 { constant.into() } else { self.splat_constant(constant.into(), ty)? }
            }
            Op::Float(value) => {
                let constant = self.context.f32_type().const_float(*value);
                if lanes == 1 { constant.into() } else { self.splat_constant(constant.into(), ty)? }
            }
            Op::Builtin(builtin) => {
                let position = match builtin {
                    Builtin::Core => 1,
                    Builtin::Cores => 2,
                    Builtin::Group(_) | Builtin::Lane => {
                        return Err(EmitError::Unsupported { what: "workgroups on a CPU core" });
                    }
                };
                self.function.get_nth_param(position).expect("invariant: four parameters")
            }
            Op::Iota => {
                let i32 = self.context.i32_type();
                let lanes: Vec<_> = (0..lanes).map(|lane| i32.const_int(u64::from(lane), false)).collect();
                inkwell::types::VectorType::const_vector(&lanes).into()
            }
            Op::Splat(value) => {
                let scalar = self.value(*value);
                self.splat(scalar, ty)?
            }
            Op::Extract(value, lane) => {
                let lane = self.context.i32_type().const_int(u64::from(*lane), false);
                self.builder.build_extract_element(self.value(*value).into_vector_value(), lane, "")?
            }
            Op::Convert(value) => self.convert(ty, self.kernel.values[value.0 as usize], self.value(*value))?,
            Op::Bitcast(value) => self.builder.build_bit_cast(self.value(*value), self.ty(ty), "")?,
            Op::Shuffle(a, b, lanes) => {
                let i32 = self.context.i32_type();
                let lanes: Vec<_> = lanes.iter().map(|lane| i32.const_int(u64::from(*lane), false)).collect();
                let mask = inkwell::types::VectorType::const_vector(&lanes);
                let (a, b) = (self.value(*a).into_vector_value(), self.value(*b).into_vector_value());
                let shuffled = self.builder.build_shuffle_vector(a, b, mask, "")?;
                if ty.lanes == 1 {
                    self.builder.build_extract_element(shuffled, i32.const_zero(), "")?
                } else {
                    shuffled.into()
                }
            }
            Op::Round(value) => {
                let call = self.call("llvm.roundeven", &[self.ty(ty)], &[self.value(*value).into()])?;
                self.result(call)
            }
            Op::Scale(value, power) => self.scale(ty, self.value(*value), self.value(*power))?,
            Op::Math(UnaryOp::Sqrt, value) => {
                let call = self.call("llvm.sqrt", &[self.ty(ty)], &[self.value(*value).into()])?;
                self.result(call)
            }
            Op::Math(UnaryOp::Recip, value) => {
                let one = self.context.f32_type().const_float(1.0);
                let one = if lanes == 1 { one.into() } else { self.splat_constant(one.into(), ty)? };
                self.float_bin(BinOp::Div, one, self.value(*value))?
            }
            Op::Math(..) => return Err(EmitError::Unsupported { what: "functions that the lowering expands" }),
            Op::Bin(op, lhs, rhs) => self.bin(ty, *op, self.value(*lhs), self.value(*rhs))?,
            Op::Fma(a, b, c) => {
                let args = [self.value(*a).into(), self.value(*b).into(), self.value(*c).into()];
                let call = self.call("llvm.fma", &[self.ty(ty)], &args)?;
                self.result(call)
            }
            Op::Dot(values) if lanes == 16 => {
                let args = values.map(|value| self.value(value).into());
                let call = self.call("llvm.x86.avx512.vpdpbusd.512", &[], &args)?;
                self.result(call)
            }
            Op::Dot(_) => return Err(EmitError::Unsupported { what: "a product of bytes of this width" }),
            Op::Neg(value) => match self.value(*value) {
                BasicValueEnum::VectorValue(value) => self.builder.build_float_neg(value, "")?.into(),
                value => self.builder.build_float_neg(value.into_float_value(), "")?.into(),
            },
            Op::Cmp(op, lhs, rhs) if self.kernel.values[lhs.0 as usize].elem.is_float() => {
                let predicate = match op {
                    CmpOp::Lt => FloatPredicate::OLT,
                    CmpOp::Le => FloatPredicate::OLE,
                    CmpOp::Eq => FloatPredicate::OEQ,
                };
                self.float_compare(predicate, self.value(*lhs), self.value(*rhs))?
            }
            Op::Cmp(op, lhs, rhs) => {
                let predicate = match op {
                    CmpOp::Lt => IntPredicate::SLT,
                    CmpOp::Le => IntPredicate::SLE,
                    CmpOp::Eq => IntPredicate::EQ,
                };
                match (self.value(*lhs), self.value(*rhs)) {
                    (BasicValueEnum::VectorValue(lhs), BasicValueEnum::VectorValue(rhs)) => {
                        self.builder.build_int_compare(predicate, lhs, rhs, "")?.into()
                    }
                    (lhs, rhs) => self
                        .builder
                        .build_int_compare(predicate, lhs.into_int_value(), rhs.into_int_value(), "")?
                        .into(),
                }
            }
            Op::Select(mask, on_true, on_false) => {
                let (on_true, on_false) = (self.value(*on_true), self.value(*on_false));
                self.select(self.value(*mask), on_true, on_false)?
            }
            Op::Load { at, mask } => self.load(ty, at, *mask)?,
            Op::Gather { at, indices, mask } => self.gather(ty, at, *indices, *mask)?,
            Op::Read(Slot(slot)) => {
                let slot = *slot as usize;
                self.slots[slot].ok_or(EmitError::Unset { slot })?
            }
        })
    }

    fn select(
        &self,
        mask: BasicValueEnum<'ctx>,
        on_true: BasicValueEnum<'ctx>,
        on_false: BasicValueEnum<'ctx>,
    ) -> Result<BasicValueEnum<'ctx>, BuilderError> {
        match mask {
            BasicValueEnum::VectorValue(mask) => self.builder.build_select(mask, on_true, on_false, ""),
            mask => self.builder.build_select(mask.into_int_value(), on_true, on_false, ""),
        }
    }

    fn splat_constant(&self, scalar: BasicValueEnum<'ctx>, ty: Type) -> Result<BasicValueEnum<'ctx>, EmitError> {
        Ok(match scalar {
            BasicValueEnum::IntValue(value) => {
                inkwell::types::VectorType::const_vector(&vec![value; usize::from(ty.lanes)]).into()
            }
            value => {
                inkwell::types::VectorType::const_vector(&vec![value.into_float_value(); usize::from(ty.lanes)]).into()
            }
        })
    }

    fn splat(&self, scalar: BasicValueEnum<'ctx>, ty: Type) -> Result<BasicValueEnum<'ctx>, EmitError> {
        let BasicTypeEnum::VectorType(vector) = self.ty(ty) else { return Ok(scalar) };
        let poison = vector.get_poison();
        let zero = self.context.i32_type().const_zero();
        let first = self.builder.build_insert_element(poison, scalar, zero, "")?;
        let mask = self.context.i32_type().vec_type(u32::from(ty.lanes)).const_zero();
        Ok(self.builder.build_shuffle_vector(first, poison, mask, "")?.into())
    }

    fn bin(
        &self,
        ty: Type,
        op: BinOp,
        lhs: BasicValueEnum<'ctx>,
        rhs: BasicValueEnum<'ctx>,
    ) -> Result<BasicValueEnum<'ctx>, EmitError> {
        if ty.elem.is_float() {
            return self.float_bin(op, lhs, rhs);
        }
        Ok(match op {
            BinOp::Add if ty.elem == Elem::Index => int!(self, build_int_nsw_add, lhs, rhs),
            BinOp::Add => int!(self, build_int_add, lhs, rhs),
            BinOp::Sub => int!(self, build_int_sub, lhs, rhs),
            BinOp::Mul => int!(self, build_int_mul, lhs, rhs),
            // Quotients and remainders are taken of non-negative numbers, which unsigned division does faster.
            BinOp::Div => int!(self, build_int_unsigned_div, lhs, rhs),
            BinOp::Rem => int!(self, build_int_unsigned_rem, lhs, rhs),
            BinOp::Xor => int!(self, build_xor, lhs, rhs),
            BinOp::And => int!(self, build_and, lhs, rhs),
            BinOp::Shl => int!(self, build_left_shift, lhs, rhs),
            BinOp::Shr => match (lhs, rhs) {
                (BasicValueEnum::VectorValue(lhs), BasicValueEnum::VectorValue(rhs)) => {
                    self.builder.build_right_shift(lhs, rhs, true, "")?.into()
                }
                (lhs, rhs) => {
                    self.builder.build_right_shift(lhs.into_int_value(), rhs.into_int_value(), true, "")?.into()
                }
            },
            BinOp::Min | BinOp::Max => {
                let name = if op == BinOp::Min { "llvm.smin" } else { "llvm.smax" };
                let call = self.call(name, &[self.ty(ty)], &[lhs.into(), rhs.into()])?;
                self.result(call)
            }
        })
    }

    fn float_compare(
        &self,
        predicate: FloatPredicate,
        lhs: BasicValueEnum<'ctx>,
        rhs: BasicValueEnum<'ctx>,
    ) -> Result<BasicValueEnum<'ctx>, BuilderError> {
        match (lhs, rhs) {
            (BasicValueEnum::VectorValue(lhs), BasicValueEnum::VectorValue(rhs)) => {
                Ok(self.builder.build_float_compare(predicate, lhs, rhs, "")?.into())
            }
            (lhs, rhs) => {
                let (lhs, rhs) = (lhs.into_float_value(), rhs.into_float_value());
                Ok(self.builder.build_float_compare(predicate, lhs, rhs, "")?.into())
            }
        }
    }

    fn float_bin(
        &self,
        op: BinOp,
        lhs: BasicValueEnum<'ctx>,
        rhs: BasicValueEnum<'ctx>,
    ) -> Result<BasicValueEnum<'ctx>, EmitError> {
        Ok(match op {
            BinOp::Add => float!(self, build_float_add, lhs, rhs),
            BinOp::Sub => float!(self, build_float_sub, lhs, rhs),
            BinOp::Mul => float!(self, build_float_mul, lhs, rhs),
            BinOp::Div => float!(self, build_float_div, lhs, rhs),
            BinOp::Min | BinOp::Max => {
                // An ordered comparison and a select: one instruction, and the right operand when one is NaN.
                let predicate = if op == BinOp::Min { FloatPredicate::OLT } else { FloatPredicate::OGT };
                let mask = self.float_compare(predicate, lhs, rhs)?;
                self.select(mask, lhs, rhs)?
            }
            BinOp::Rem | BinOp::Xor | BinOp::And | BinOp::Shl | BinOp::Shr => {
                return Err(EmitError::Unsupported { what: "integer operations on floats" });
            }
        })
    }
}

/// Which slots a block sets, and which it may read before setting them.
struct Effect {
    set: Vec<bool>,
    exposed: Vec<bool>,
}

impl Effect {
    fn new(slots: usize) -> Effect {
        Effect { set: vec![false; slots], exposed: vec![false; slots] }
    }

    fn block(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            match stmt {
                Stmt::Let(_, Op::Read(Slot(slot))) => {
                    let slot = *slot as usize;
                    self.exposed[slot] |= !self.set[slot];
                }
                Stmt::Set(Slot(slot), _) => self.set[*slot as usize] = true,
                Stmt::For { body, .. } => self.block(body),
                Stmt::If { then, otherwise, .. } => {
                    // A slot set on one side only may still be read with its old value afterwards.
                    let before = self.set.clone();
                    self.block(then);
                    let on_true = std::mem::replace(&mut self.set, before);
                    self.block(otherwise);
                    for (slot, on_true) in on_true.into_iter().enumerate() {
                        if on_true != self.set[slot] {
                            self.exposed[slot] = true;
                            self.set[slot] = true;
                        }
                    }
                }
                _ => {}
            }
        }
    }
}
