//! Conversions between elements, and powers of two.

use inkwell::types::{BasicTypeEnum, VectorType};
use inkwell::values::{BasicValueEnum, VectorValue};

use super::EmitError;
use super::emit::Emitter;
use crate::lane::{Elem, Type};

impl<'ctx> Emitter<'_, 'ctx> {
    /// A scalar as a vector of one element, so that every conversion is one of vectors.
    fn as_vector(&self, value: BasicValueEnum<'ctx>, ty: Type) -> Result<VectorValue<'ctx>, EmitError> {
        if let BasicValueEnum::VectorValue(vector) = value {
            return Ok(vector);
        }
        let zero = self.context.i32_type().const_zero();
        let poison = self.vector_type(ty).get_poison();
        Ok(self.builder.build_insert_element(poison, value, zero, "")?)
    }

    fn vector_type(&self, ty: Type) -> VectorType<'ctx> {
        match self.ty(ty) {
            BasicTypeEnum::VectorType(vector) => vector,
            BasicTypeEnum::FloatType(float) => float.vec_type(1),
            other => other.into_int_type().vec_type(1),
        }
    }

    /// `value` of type `from` as `to`.
    pub(super) fn convert(
        &self,
        to: Type,
        from: Type,
        value: BasicValueEnum<'ctx>,
    ) -> Result<BasicValueEnum<'ctx>, EmitError> {
        let vector = self.as_vector(value, from)?;
        let wanted = self.vector_type(to);
        let converted = match (from.elem, to.elem) {
            (Elem::U8, elem) if !elem.is_float() => self.builder.build_int_z_extend_or_bit_cast(vector, wanted, "")?,
            (Elem::I8 | Elem::I32 | Elem::Index, elem) if !elem.is_float() => {
                if from.elem == Elem::Index || elem == Elem::I8 || elem == Elem::U8 {
                    self.builder.build_int_truncate_or_bit_cast(vector, wanted, "")?
                } else {
                    self.builder.build_int_s_extend_or_bit_cast(vector, wanted, "")?
                }
            }
            (elem, Elem::F32) if !elem.is_float() => self.builder.build_signed_int_to_float(vector, wanted, "")?,
            (Elem::F32, elem) if !elem.is_float() => self.builder.build_float_to_signed_int(vector, wanted, "")?,
            (_, Elem::F32) => self.builder.build_float_ext(vector, wanted, "")?,
            (Elem::F32, _) => self.builder.build_float_trunc(vector, wanted, "")?,
            _ => return Err(EmitError::Unsupported { what: "this conversion" }),
        };
        if to.lanes > 1 {
            return Ok(converted.into());
        }
        let zero = self.context.i32_type().const_zero();
        Ok(self.builder.build_extract_element(converted, zero, "")?)
    }

    /// `value · 2^power` by the processor's own instruction; the lowering asks for it only where there is one.
    pub(super) fn scale(
        &self,
        ty: Type,
        value: BasicValueEnum<'ctx>,
        power: BasicValueEnum<'ctx>,
    ) -> Result<BasicValueEnum<'ctx>, EmitError> {
        let (mask, name) = match ty.lanes {
            16 => (self.context.i16_type(), "llvm.x86.avx512.mask.scalef.ps.512"),
            8 => (self.context.i8_type(), "llvm.x86.avx512.mask.scalef.ps.256"),
            4 => (self.context.i8_type(), "llvm.x86.avx512.mask.scalef.ps.128"),
            _ => return Err(EmitError::Unsupported { what: "a scale of this width" }),
        };
        let all = mask.const_all_ones();
        let mut args = vec![value.into(), power.into(), value.into(), all.into()];
        if ty.lanes == 16 {
            // Rounding as the mode register says.
            args.push(self.context.i32_type().const_int(4, false).into());
        }
        let call = self.call(name, &[], &args)?;
        Ok(self.result(call))
    }
}
