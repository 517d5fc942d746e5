//! The CPU through LLVM: lanes → LLVM IR → object → code in this process.
//!
//! Compilation can abort the process (LLVM reports some faults that way), so candidates are compiled in workers.

mod convert;
mod emit;
mod host;
mod jit;
mod matrix;
mod memory;

use inkwell::OptimizationLevel;
use inkwell::context::Context;
use inkwell::module::Module;
use inkwell::targets::{CodeModel, FileType, InitializationConfig, RelocMode, Target as LlvmTarget, TargetMachine};
use search_space::target::TargetKey;

pub use host::{FEATURES, host_cpu};

use crate::lane::{Kernel, Program};
use crate::tile::{Buffer, Phase};

/// Why lanes could not be emitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EmitError {
    /// The kernel uses something this emitter cannot say.
    #[error("{what} cannot be emitted")]
    Unsupported {
        /// The thing.
        what: &'static str,
    },
    /// A slot is read on a path on which it was never set.
    #[error("slot {slot} is read before it is set")]
    Unset {
        /// Position of the slot.
        slot: usize,
    },
    /// This LLVM lacks an intrinsic.
    #[error("LLVM has no intrinsic {name}; LLVM 22 is needed")]
    Intrinsic {
        /// Its name.
        name: String,
    },
    /// LLVM's builder refused.
    #[error("LLVM builder: {why}")]
    Build {
        /// Its text.
        why: String,
    },
    /// LLVM's verifier found broken IR: a fault of the emitter.
    #[error("LLVM verifier: {why}")]
    Invalid {
        /// Its text.
        why: String,
    },
    /// LLVM could not generate code.
    #[error("LLVM code generation: {why}")]
    Codegen {
        /// Its text.
        why: String,
    },
    /// The object could not be loaded.
    #[error("loading the object: {why}")]
    Link {
        /// LLVM's text.
        why: String,
    },
}

impl From<inkwell::builder::BuilderError> for EmitError {
    fn from(error: inkwell::builder::BuilderError) -> EmitError {
        EmitError::Build { why: error.to_string() }
    }
}

/// The signature of every kernel: buffers, this core, number of cores, scratch.
type Entry = unsafe extern "C" fn(*const *mut u8, u64, u64, *mut u8);

/// A compiled kernel.
pub struct CpuKernel {
    /// Symbol.
    pub name: String,
    /// When it runs.
    pub phase: Phase,
    /// Parameters.
    pub buffers: Vec<Buffer>,
    /// Bytes of scratch each core needs, 64-byte aligned.
    pub scratch_bytes: u64,
    /// Shares of the work for each core.
    pub shares: u64,
    entry: Entry,
}

/// A compiled program. The code stays mapped as long as this lives.
pub struct Compiled {
    kernels: Vec<CpuKernel>,
    code_hash: String,
    object_bytes: usize,
    _jit: jit::Jit,
}

impl Compiled {
    /// The kernels in launch order.
    pub fn kernels(&self) -> &[CpuKernel] {
        &self.kernels
    }

    /// blake3 (hex) of the object file.
    pub fn code_hash(&self) -> &str {
        &self.code_hash
    }

    /// Size of the object file in bytes.
    pub fn object_bytes(&self) -> usize {
        self.object_bytes
    }

    /// Runs the share of `core` (of `cores`) of a kernel.
    ///
    /// # Panics
    /// When there is no such kernel or the number of buffers differs.
    ///
    /// # Safety
    /// `buffers[i]` must point to `kernels()[kernel].buffers[i].len` elements of its dtype, aligned as promised, and no
    /// two may overlap; `scratch` to `scratch_bytes` bytes, 64-byte aligned, for this core alone. The host must have
    /// the features the program was compiled for.
    pub unsafe fn call(&self, kernel: usize, buffers: &[*mut u8], core: u64, cores: u64, scratch: *mut u8) {
        let kernel = &self.kernels[kernel];
        assert_eq!(kernel.buffers.len(), buffers.len(), "one pointer per buffer");
        // SAFETY: the caller's promise.
        unsafe { (kernel.entry)(buffers.as_ptr(), core, cores, scratch) };
    }
}

/// Compiles a program for the host and loads it.
///
/// # Errors
/// [`EmitError`]. LLVM may also abort the process.
pub fn compile(program: &Program, target: &TargetKey) -> Result<Compiled, EmitError> {
    let object = with_module(program, target, |machine, module| {
        let object = machine
            .write_to_memory_buffer(module, FileType::Object)
            .map_err(|why| EmitError::Codegen { why: why.to_string() })?;
        Ok(object.as_slice().to_vec())
    })?;
    let jit = jit::Jit::load(&object)?;
    let kernels = program.kernels.iter().map(|kernel| load(&jit, kernel)).collect::<Result<_, _>>()?;
    let code_hash = blake3::hash(&object).to_hex().to_string();
    Ok(Compiled { kernels, code_hash, object_bytes: object.len(), _jit: jit })
}

/// The LLVM IR of a program.
///
/// # Errors
/// [`EmitError`].
pub fn ir(program: &Program, target: &TargetKey) -> Result<String, EmitError> {
    with_module(program, target, |_, module| Ok(module.print_to_string().to_string()))
}

/// The assembly of a program.
///
/// # Errors
/// [`EmitError`].
pub fn assembly(program: &Program, target: &TargetKey) -> Result<String, EmitError> {
    with_module(program, target, |machine, module| {
        let text = machine
            .write_to_memory_buffer(module, FileType::Assembly)
            .map_err(|why| EmitError::Codegen { why: why.to_string() })?;
        Ok(String::from_utf8_lossy(text.as_slice()).trim_end_matches('\0').to_owned())
    })
}

fn with_module<T>(
    program: &Program,
    target: &TargetKey,
    use_it: impl FnOnce(&TargetMachine, &Module) -> Result<T, EmitError>,
) -> Result<T, EmitError> {
    let codegen = |why: String| EmitError::Codegen { why };
    LlvmTarget::initialize_x86(&InitializationConfig::default());
    let triple = TargetMachine::get_default_triple();
    let llvm = LlvmTarget::from_triple(&triple).map_err(|why| codegen(why.to_string()))?;
    let features = host::exactly(&target.features);
    // No middle-end passes: the lanes are blocked, unrolled and hoisted already, and passes only cost compile time.
    let machine = llvm
        .create_target_machine(
            &triple,
            &target.arch,
            &features,
            OptimizationLevel::Default,
            RelocMode::PIC,
            CodeModel::Default,
        )
        .ok_or_else(|| codegen(format!("no target machine for {}", target.arch)))?;
    let context = Context::create();
    let module = context.create_module("kernels");
    module.set_triple(&triple);
    module.set_data_layout(&machine.get_target_data().get_data_layout());
    for kernel in &program.kernels {
        emit::emit(&context, &module, kernel, &target.arch, &features)?;
    }
    module.verify().map_err(|why| EmitError::Invalid { why: why.to_string() })?;
    use_it(&machine, &module)
}

fn load(jit: &jit::Jit, kernel: &Kernel) -> Result<CpuKernel, EmitError> {
    let address = usize::try_from(jit.address(&kernel.name)?).expect("invariant: addresses fit a pointer");
    let pointer = std::ptr::with_exposed_provenance::<()>(address);
    // SAFETY: the emitter gave the function this signature, and the code lives as long as `Compiled`.
    let entry = unsafe { std::mem::transmute::<*const (), Entry>(pointer) };
    Ok(CpuKernel {
        name: kernel.name.clone(),
        phase: kernel.phase,
        buffers: kernel.buffers.clone(),
        scratch_bytes: kernel.scratch_offsets().1,
        shares: kernel.shares,
        entry,
    })
}
