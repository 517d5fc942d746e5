//! The matrix unit of x86 processors (AMX), by LLVM's intrinsics with fixed registers: the ones that let LLVM choose
//! registers configure the unit anew for every use.

use inkwell::module::Linkage;
use inkwell::values::BasicMetadataValueEnum;
use search_space::workload::DType;

use super::EmitError;
use super::emit::Emitter;
use crate::lane::Address;
use crate::lane::matrix::{Matrix, REGISTERS, ROW_BYTES, ROWS};

/// The name of the constant that describes the registers.
const SHAPE: &str = "matrix_registers";

impl<'ctx> Emitter<'_, 'ctx> {
    pub(super) fn matrix(&mut self, matrix: &Matrix) -> Result<(), EmitError> {
        match matrix {
            Matrix::Configure => {
                let shape = self.shape();
                self.call("llvm.x86.ldtilecfg", &[], &[shape])?;
            }
            Matrix::Release => {
                self.call("llvm.x86.tilerelease", &[], &[])?;
            }
            Matrix::Zero { register } => {
                self.call("llvm.x86.tilezero", &[], &[self.register(*register)])?;
            }
            Matrix::Load { register, at, row_bytes } => self.rows("llvm.x86.tileloadd64", *register, at, *row_bytes)?,
            Matrix::Store { register, at, row_bytes } => {
                self.rows("llvm.x86.tilestored64", *register, at, *row_bytes)?;
            }
            Matrix::Multiply { acc, a, b, factors } => {
                let name = match factors {
                    [DType::Bf16, DType::Bf16] => "llvm.x86.tdpbf16ps",
                    [DType::I8, DType::I8] => "llvm.x86.tdpbssd",
                    [DType::I8, DType::U8] => "llvm.x86.tdpbsud",
                    [DType::U8, DType::I8] => "llvm.x86.tdpbusd",
                    [DType::U8, DType::U8] => "llvm.x86.tdpbuud",
                    _ => return Err(EmitError::Unsupported { what: "a matrix product of these types" }),
                };
                self.call(name, &[], &[acc, a, b].map(|register| self.register(*register)))?;
            }
        }
        Ok(())
    }

    fn register(&self, register: u8) -> BasicMetadataValueEnum<'ctx> {
        self.context.i8_type().const_int(u64::from(register), false).into()
    }

    fn rows(&mut self, name: &str, register: u8, at: &Address, row_bytes: i64) -> Result<(), EmitError> {
        let pointer = self.address(at)?;
        let step = self.context.i64_type().const_int(row_bytes.cast_unsigned(), true);
        self.call(name, &[], &[self.register(register), pointer.into(), step.into()])?;
        Ok(())
    }

    /// The operand of `ldtilecfg`: palette 1, all registers of full size. Intel, "Software Developer's Manual", volume 1,
    /// section 18.
    fn shape(&self) -> BasicMetadataValueEnum<'ctx> {
        if let Some(found) = self.module.get_global(SHAPE) {
            return found.as_pointer_value().into();
        }
        let byte = self.context.i8_type();
        let mut bytes = [0; 64];
        bytes[0] = 1;
        for register in 0..usize::from(REGISTERS) {
            bytes[16 + 2 * register] = ROW_BYTES;
            bytes[48 + register] = ROWS;
        }
        let value = byte.const_array(&bytes.map(|value| byte.const_int(value, false)));
        let global = self.module.add_global(value.get_type(), None, SHAPE);
        global.set_initializer(&value);
        global.set_constant(true);
        global.set_alignment(64);
        global.set_linkage(Linkage::Private);
        global.as_pointer_value().into()
    }
}
