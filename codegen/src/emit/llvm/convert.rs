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
            (Elem::Bf16, Elem::F32) => self.widened(vector, to)?,
            (Elem::F32, Elem::Bf16) => self.narrowed(vector, to)?,
            (Elem::F16, Elem::F32) => {
                let half = self.builder.build_bit_cast(vector, self.halves(from), "")?.into_vector_value();
                self.builder.build_float_ext(half, wanted, "")?
            }
            (Elem::F32, Elem::F16) => {
                let half = self.builder.build_float_trunc(vector, self.halves(to), "")?;
                self.builder.build_bit_cast(half, wanted, "")?.into_vector_value()
            }
            _ => return Err(EmitError::Unsupported { what: "this conversion" }),
        };
        if to.lanes > 1 {
            return Ok(converted.into());
        }
        let zero = self.context.i32_type().const_zero();
        Ok(self.builder.build_extract_element(converted, zero, "")?)
    }

    /// bfloat16 is the upper half of an f32.
    fn widened(&self, value: VectorValue<'ctx>, to: Type) -> Result<VectorValue<'ctx>, EmitError> {
        let lanes = u32::from(to.lanes);
        let word = self.context.i32_type().vec_type(lanes);
        let bits = self.builder.build_int_z_extend(value, word, "")?;
        let bits = self.builder.build_left_shift(bits, self.words(lanes, 16), "")?;
        Ok(self.builder.build_bit_cast(bits, self.vector_type(to), "")?.into_vector_value())
    }

    /// To the nearest bfloat16, ties to even, in integers: the processor's own instruction takes small numbers for
    /// zero, and where it lacks one LLVM calls a function that is not there. NaN stays, made quiet.
    fn narrowed(&self, value: VectorValue<'ctx>, to: Type) -> Result<VectorValue<'ctx>, EmitError> {
        let lanes = u32::from(to.lanes);
        let (short, word) = (self.context.i16_type().vec_type(lanes), self.context.i32_type().vec_type(lanes));
        let bits = self.builder.build_bit_cast(value, word, "")?.into_vector_value();
        let upper = self.builder.build_right_shift(bits, self.words(lanes, 16), false, "")?;
        let odd = self.builder.build_and(upper, self.words(lanes, 1), "")?;
        let half = self.builder.build_int_add(odd, self.words(lanes, 0x7fff), "")?;
        let rounded = self.builder.build_int_add(bits, half, "")?;
        let rounded = self.builder.build_right_shift(rounded, self.words(lanes, 16), false, "")?;
        let quiet = self.builder.build_or(upper, self.words(lanes, 0x40), "")?;
        let nan = self.builder.build_float_compare(inkwell::FloatPredicate::UNO, value, value, "")?;
        let chosen = self.builder.build_select(nan, quiet, rounded, "")?.into_vector_value();
        Ok(self.builder.build_int_truncate(chosen, short, "")?)
    }

    fn halves(&self, ty: Type) -> VectorType<'ctx> {
        self.context.f16_type().vec_type(u32::from(ty.lanes))
    }

    fn words(&self, lanes: u32, value: u64) -> VectorValue<'ctx> {
        let one = self.context.i32_type().const_int(value, false);
        VectorType::const_vector(&vec![one; lanes as usize])
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
