//! How the LLVM emitter reaches memory: plain, masked, gathered and scattered.

use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::types::{AsTypeRef, BasicTypeEnum, VectorType};
use inkwell::values::{AsValueRef, BasicValue, BasicValueEnum, CallSiteValue, IntValue, PointerValue, VectorValue};

use super::EmitError;
use super::emit::Emitter;
use crate::lane::{Address, Elem, Mem, Type, Value};

impl<'ctx> Emitter<'_, 'ctx> {
    /// Memory accesses carry their alignment as an attribute of the pointer parameter.
    fn aligned(&self, call: CallSiteValue<'ctx>, parameter: u32, align: u32) {
        let kind = Attribute::get_named_enum_kind_id("align");
        let attribute = self.context.create_enum_attribute(kind, u64::from(align));
        call.add_attribute(AttributeLoc::Param(parameter), attribute);
    }

    pub(super) fn address(&self, at: &Address) -> Result<PointerValue<'ctx>, EmitError> {
        let base = match at.mem {
            Mem::Buffer(position) => self.buffers[position],
            Mem::Scratch(position) => self.scratch[position],
            Mem::Shared(_) => return Err(EmitError::Unsupported { what: "workgroup-shared memory on a CPU core" }),
        };
        let index = self.value(at.index).into_int_value();
        let element = self.element(at.mem);
        // SAFETY: plain address arithmetic without inbounds: nothing is claimed about the result.
        let pointer = unsafe { self.builder.build_gep(element, base, &[index], "")? };
        if at.offset == 0 {
            return Ok(pointer);
        }
        let offset = self.context.i64_type().const_int(at.offset.cast_unsigned(), true);
        // SAFETY: as above.
        Ok(unsafe { self.builder.build_gep(element, pointer, &[offset], "")? })
    }

    /// The type of one element of a memory.
    fn element(&self, mem: Mem) -> BasicTypeEnum<'ctx> {
        let dtype = match mem {
            Mem::Buffer(position) => self.kernel.buffers[position].dtype,
            Mem::Scratch(position) => self.kernel.scratch[position].dtype,
            Mem::Shared(position) => self.kernel.shared[position].dtype,
        };
        self.ty(Type { elem: Elem::of(dtype), lanes: 1 })
    }

    fn zero(&self, ty: Type) -> BasicValueEnum<'ctx> {
        match self.ty(ty) {
            BasicTypeEnum::VectorType(ty) => ty.const_zero().into(),
            ty => ty.const_zero(),
        }
    }

    pub(super) fn load(
        &mut self,
        ty: Type,
        at: &Address,
        mask: Option<Value>,
    ) -> Result<BasicValueEnum<'ctx>, EmitError> {
        let pointer = self.address(at)?;
        let Some(mask) = mask else {
            let load = self.builder.build_load(self.ty(ty), pointer, "")?;
            load.as_instruction_value()
                .expect("invariant: a load is an instruction")
                .set_alignment(at.align)
                .map_err(|_| EmitError::Unsupported { what: "this alignment" })?;
            return Ok(load);
        };
        if ty.lanes == 1 {
            // A scalar that may not exist is loaded behind a branch.
            let zero = self.zero(ty);
            let cond = self.value(mask).into_int_value();
            return self.branch_value(cond, zero, |this| this.load(ty, at, None));
        }
        let args = [pointer.into(), self.value(mask).into(), self.zero(ty).into()];
        let call = self.call("llvm.masked.load", &[self.ty(ty), pointer.get_type().into()], &args)?;
        self.aligned(call, 0, at.align);
        Ok(self.result(call))
    }

    /// `cond ? f() : otherwise`, evaluating `f` only when it holds.
    fn branch_value(
        &mut self,
        cond: IntValue<'ctx>,
        otherwise: BasicValueEnum<'ctx>,
        f: impl FnOnce(&mut Self) -> Result<BasicValueEnum<'ctx>, EmitError>,
    ) -> Result<BasicValueEnum<'ctx>, EmitError> {
        let before = self.here();
        let then = self.context.append_basic_block(self.function, "");
        let after = self.context.append_basic_block(self.function, "");
        self.builder.build_conditional_branch(cond, then, after)?;
        self.builder.position_at_end(then);
        let value = f(self)?;
        let end = self.here();
        self.builder.build_unconditional_branch(after)?;
        self.builder.position_at_end(after);
        let phi = self.builder.build_phi(value.get_type(), "")?;
        phi.add_incoming(&[(&value, end), (&otherwise, before)]);
        Ok(phi.as_basic_value())
    }

    pub(super) fn gather(
        &mut self,
        ty: Type,
        at: &Address,
        indices: Value,
        mask: Option<Value>,
    ) -> Result<BasicValueEnum<'ctx>, EmitError> {
        let pointers = self.pointers(at, indices)?;
        let mask = self.mask_or_all(mask, ty.lanes);
        let args = [pointers.into(), mask.into(), self.zero(ty).into()];
        let call = self.call("llvm.masked.gather", &[self.ty(ty), pointers.get_type().into()], &args)?;
        self.aligned(call, 0, at.align);
        Ok(self.result(call))
    }

    pub(super) fn scatter(
        &mut self,
        at: &Address,
        indices: Value,
        value: Value,
        mask: Option<Value>,
    ) -> Result<(), EmitError> {
        let pointers = self.pointers(at, indices)?;
        let mask = self.mask_or_all(mask, self.kernel.values[value.0 as usize].lanes);
        let data = self.value(value);
        let args = [data.into(), pointers.into(), mask.into()];
        let call = self.call("llvm.masked.scatter", &[data.get_type(), pointers.get_type().into()], &args)?;
        self.aligned(call, 1, at.align);
        Ok(())
    }

    fn mask_or_all(&self, mask: Option<Value>, lanes: u16) -> BasicValueEnum<'ctx> {
        let all = vec![self.context.bool_type().const_int(1, false); usize::from(lanes)];
        mask.map_or_else(|| VectorType::const_vector(&all).into(), |mask| self.value(mask))
    }

    /// The vector of addresses `at + indices`.
    fn pointers(&self, at: &Address, indices: Value) -> Result<VectorValue<'ctx>, EmitError> {
        let base = self.address(at)?;
        let element = self.element(at.mem);
        let mut index = self.value(indices).as_value_ref();
        let type_ref = element.as_type_ref();
        let builder = self.builder.as_mut_ptr();
        // SAFETY: inkwell has no vector-of-pointers GEP; builder, type, base and index live in one context.
        let pointers = unsafe {
            inkwell::llvm_sys::core::LLVMBuildGEP2(
                builder,
                type_ref,
                base.as_value_ref(),
                &raw mut index,
                1,
                c"".as_ptr(),
            )
        };
        // SAFETY: the GEP of a scalar base with a vector index is a vector of pointers.
        Ok(unsafe { VectorValue::new(pointers) })
    }

    pub(super) fn store(
        &mut self,
        at: &Address,
        value: Value,
        mask: Option<Value>,
        stream: bool,
    ) -> Result<(), EmitError> {
        let data = self.value(value);
        let lanes = self.kernel.values[value.0 as usize].lanes;
        match mask {
            None => {
                let pointer = self.address(at)?;
                let store = self.builder.build_store(pointer, data)?;
                store.set_alignment(at.align).map_err(|_| EmitError::Unsupported { what: "this alignment" })?;
                // A streaming store of less than a whole aligned vector falls apart into many.
                let bytes = u32::from(lanes) * 4;
                if stream && lanes > 1 && at.align >= bytes {
                    let kind = self.context.get_kind_id("nontemporal");
                    let one = self.context.i32_type().const_int(1, false);
                    let node = self.context.metadata_node(&[one.into()]);
                    store.set_metadata(node, kind).map_err(|_| EmitError::Unsupported { what: "streaming stores" })?;
                }
            }
            Some(mask) if lanes == 1 => {
                let cond = self.value(mask).into_int_value();
                let then = self.context.append_basic_block(self.function, "");
                let after = self.context.append_basic_block(self.function, "");
                self.builder.build_conditional_branch(cond, then, after)?;
                self.builder.position_at_end(then);
                self.store(at, value, None, false)?;
                self.builder.build_unconditional_branch(after)?;
                self.builder.position_at_end(after);
            }
            Some(mask) => {
                let pointer = self.address(at)?;
                // LLVM 22 stores too many bytes where a mask has one lane and the elements were narrowed before.
                if let Some(lane) = only_lane(self.value(mask).into_vector_value()) {
                    let lane = self.context.i32_type().const_int(u64::from(lane), false);
                    let element = self.builder.build_extract_element(data.into_vector_value(), lane, "")?;
                    // SAFETY: plain address arithmetic without inbounds: nothing is claimed about the result.
                    let pointer = unsafe { self.builder.build_gep(self.element(at.mem), pointer, &[lane], "")? };
                    let store = self.builder.build_store(pointer, element)?;
                    let align = self.kernel.values[value.0 as usize].elem.bytes();
                    store.set_alignment(align).map_err(|_| EmitError::Unsupported { what: "this alignment" })?;
                    return Ok(());
                }
                let args = [data.into(), pointer.into(), self.value(mask).into()];
                let call = self.call("llvm.masked.store", &[data.get_type(), pointer.get_type().into()], &args)?;
                self.aligned(call, 1, at.align);
            }
        }
        Ok(())
    }
}

/// The lane of a constant mask that is true, when only one is.
fn only_lane(mask: VectorValue) -> Option<u32> {
    if !mask.is_const() {
        return None;
    }
    let is_true = |lane: &u32| {
        // SAFETY: inkwell reads elements of data vectors only, which those of truth values are not. The mask is a
        // constant; what it has no element for is null, which is no integer.
        let element = unsafe { inkwell::llvm_sys::core::LLVMGetAggregateElement(mask.as_value_ref(), *lane) };
        // SAFETY: the element is not null.
        !element.is_null() && unsafe { IntValue::new(element) }.get_zero_extended_constant() == Some(1)
    };
    let lanes: Vec<u32> = (0..mask.get_type().get_size()).filter(is_true).collect();
    if let [lane] = lanes[..] { Some(lane) } else { None }
}
