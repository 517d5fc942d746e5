//! Loads an object file into this process through ORC (LLJIT) and finds its functions.

use std::ffi::{CStr, CString};

use inkwell::llvm_sys::core::LLVMCreateMemoryBufferWithMemoryRangeCopy;
use inkwell::llvm_sys::error::{LLVMDisposeErrorMessage, LLVMErrorRef, LLVMGetErrorMessage};
use inkwell::llvm_sys::orc2::LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess;
use inkwell::llvm_sys::orc2::LLVMOrcJITDylibAddGenerator;
use inkwell::llvm_sys::orc2::lljit::{
    LLVMOrcCreateLLJIT, LLVMOrcDisposeLLJIT, LLVMOrcLLJITAddObjectFile, LLVMOrcLLJITGetGlobalPrefix,
    LLVMOrcLLJITGetMainJITDylib, LLVMOrcLLJITLookup, LLVMOrcLLJITRef,
};

use super::EmitError;

/// A loaded object; its code is unmapped when this is dropped.
pub(super) struct Jit {
    lljit: LLVMOrcLLJITRef,
}

// SAFETY: an LLJIT is not tied to the thread that created it, and `Jit` gives no shared access to it.
unsafe impl Send for Jit {}

impl Jit {
    /// Loads an object.
    pub(super) fn load(object: &[u8]) -> Result<Jit, EmitError> {
        let mut lljit = std::ptr::null_mut();
        // SAFETY: a null builder asks for the defaults of the host; `lljit` is written on success.
        check(unsafe { LLVMOrcCreateLLJIT(&raw mut lljit, std::ptr::null_mut()) })?;
        let jit = Jit { lljit };
        // SAFETY: the LLJIT lives as long as `jit`.
        let dylib = unsafe { LLVMOrcLLJITGetMainJITDylib(lljit) };
        // SAFETY: as above.
        let prefix = unsafe { LLVMOrcLLJITGetGlobalPrefix(lljit) };
        let mut process = std::ptr::null_mut();
        // SAFETY: no filter is given; `process` is written on success.
        check(unsafe {
            LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess(&raw mut process, prefix, None, std::ptr::null_mut())
        })?;
        // SAFETY: the dylib takes ownership of the generator (it resolves calls such as fmaf).
        unsafe { LLVMOrcJITDylibAddGenerator(dylib, process) };
        // SAFETY: the bytes are copied.
        let buffer = unsafe {
            LLVMCreateMemoryBufferWithMemoryRangeCopy(object.as_ptr().cast(), object.len(), c"kernel".as_ptr())
        };
        // SAFETY: the LLJIT takes ownership of the buffer.
        check(unsafe { LLVMOrcLLJITAddObjectFile(lljit, dylib, buffer) })?;
        Ok(jit)
    }

    /// The address of a function.
    pub(super) fn address(&self, name: &str) -> Result<u64, EmitError> {
        let name = CString::new(name).map_err(|_| EmitError::Unsupported { what: "a zero byte in a symbol" })?;
        let mut address = 0;
        // SAFETY: the LLJIT is alive; `address` is written on success.
        check(unsafe { LLVMOrcLLJITLookup(self.lljit, &raw mut address, name.as_ptr()) })?;
        Ok(address)
    }
}

impl Drop for Jit {
    fn drop(&mut self) {
        // SAFETY: created by `load`, disposed once; nothing else refers to it.
        let error = unsafe { LLVMOrcDisposeLLJIT(self.lljit) };
        let _ = check(error);
    }
}

fn check(error: LLVMErrorRef) -> Result<(), EmitError> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: the error is not null and is consumed here.
    let message = unsafe { LLVMGetErrorMessage(error) };
    // SAFETY: LLVM returns a zero-terminated string.
    let text = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
    // SAFETY: the string came from LLVMGetErrorMessage and is freed once.
    unsafe { LLVMDisposeErrorMessage(message) };
    Err(EmitError::Link { why: text })
}
