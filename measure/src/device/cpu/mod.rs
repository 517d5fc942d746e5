//! The processor through LLVM: compiled kernels run in this process, on pinned threads.

mod host;
mod memory;
mod pool;

use std::time::Instant;

use codegen::emit::llvm::{self, Compiled};
use codegen::tile::{Phase, Source};
use search_space::{Outcome, Schedule, Workload};

use super::{After, Batch, Device, Failure, Features, Identity, KernelInfo, Placement};
use crate::peak::{self, Peak, Units};
use memory::Region;
use pool::{Job, Pool};

/// Iterations of the control kernel: some ten microseconds.
const CONTROL_PASSES: u64 = 2_000;
/// Share of a batch that may be lost to interrupts before it counts as disturbed, and what is always allowed.
const LOST_SHARE: f64 = 0.02;
const LOST_NS: f64 = 5_000.0;

/// The processor as a [`Device`].
#[derive(Debug)]
pub struct CpuDevice {
    identity: Identity,
    pool: Pool,
}

/// A compiled program with its workspace and one scratch block per thread.
pub struct CpuKernel {
    compiled: Compiled,
    workspace: Vec<Region>,
    scratch: Vec<Region>,
    info: KernelInfo,
}

impl std::fmt::Debug for CpuKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CpuKernel").field("info", &self.info).finish_non_exhaustive()
    }
}

/// All operands of a workload.
#[derive(Debug)]
pub struct CpuMemory {
    operands: Vec<Region>,
    /// Positions of those that kernels write.
    outputs: Vec<usize>,
}

impl CpuDevice {
    /// Opens the processor with `threads` threads, pinned to the last processors this process may use, as one that has
    /// only these of its features.
    ///
    /// # Errors
    ///
    /// [`Outcome::ResourceLimit`] when there are fewer processors than threads or a feature is lacking.
    pub fn open(threads: u64, features: &Features) -> Result<CpuDevice, Failure> {
        let allowed = host::allowed_processors();
        let wanted = usize::try_from(threads).unwrap_or(usize::MAX);
        if wanted > allowed.len() || wanted == 0 {
            let message = format!("{threads} threads asked for, this process may use {} processors", allowed.len());
            return Err(Failure::new(Outcome::ResourceLimit, message));
        }
        // The first processor takes most interrupts.
        let cores = &allowed[allowed.len() - wanted..];
        let pinned = host::pin(cores[0]);
        let identity = host::identity(threads, features, cores, pinned)?;
        Ok(CpuDevice { identity, pool: Pool::new(&cores[1..]) })
    }

    /// Launches all kernels of a phase, in order.
    fn launch(&self, kernel: &CpuKernel, memory: &CpuMemory, phase: Phase) -> Result<(), Failure> {
        for (position, part) in kernel.compiled.kernels().iter().enumerate() {
            if part.phase != phase {
                continue;
            }
            let region = |source: Source| match source {
                Source::Operand(i) => memory.operands.get(i),
                Source::Workspace(i) => kernel.workspace.get(i),
            };
            let mut buffers = Vec::with_capacity(part.buffers.len());
            for buffer in &part.buffers {
                let fits = region(buffer.source).filter(|region| region.holds(buffer.len, buffer.dtype.bytes()));
                let Some(region) = fits else {
                    let message = format!("kernel {} asks for a buffer {} that there is not", part.name, buffer.name);
                    return Err(Failure::new(Outcome::CompileError, message));
                };
                buffers.push(region.start());
            }
            self.pool.run(Job {
                compiled: &kernel.compiled,
                kernel: position,
                buffers: &buffers,
                scratch: &kernel.scratch,
                calls: part.shares * self.pool.threads(),
            });
        }
        Ok(())
    }
}

impl Device for CpuDevice {
    type Kernel = CpuKernel;
    type Memory = CpuMemory;

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn compile(&mut self, workload: &Workload, schedule: &Schedule) -> Result<CpuKernel, Failure> {
        let start = Instant::now();
        let refused = |error: &dyn std::fmt::Display| Failure::new(Outcome::CompileError, error.to_string());
        let lowered = codegen::lower(workload, &self.identity.target, schedule).map_err(|error| match error {
            codegen::LowerError::Limit { .. } => Failure::new(Outcome::ResourceLimit, error.to_string()),
            _ => refused(&error),
        })?;
        let compiled = llvm::compile(&lowered.lane, &self.identity.target.key).map_err(|error| refused(&error))?;
        let compile_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let region = |bytes: u64| Region::new(bytes, 64, Placement::Guarded);
        let workspace: Vec<Region> =
            lowered.lane.workspace_bytes.iter().map(|b| region(*b)).collect::<Result<_, _>>()?;
        let scratch_bytes = compiled.kernels().iter().map(|kernel| kernel.scratch_bytes).max().unwrap_or(0);
        let threads = self.pool.threads();
        let scratch: Vec<Region> = (0..threads).map(|_| region(scratch_bytes)).collect::<Result<_, _>>()?;
        let memory_bytes = lowered.lane.workspace_bytes.iter().sum::<u64>() + scratch_bytes * threads;
        let info = KernelInfo {
            program_hash: lowered.program_hash(),
            code_hash: compiled.code_hash().to_string(),
            compile_ns,
            memory_bytes,
            streams: compiled.kernels().iter().any(|kernel| kernel.buffers.iter().any(|buffer| buffer.stream)),
        };
        Ok(CpuKernel { compiled, workspace, scratch, info })
    }

    fn describe(&self, kernel: &CpuKernel) -> KernelInfo {
        kernel.info.clone()
    }

    fn allocate(&mut self, workload: &Workload, placement: Placement) -> Result<CpuMemory, Failure> {
        let operands = workload.operands.iter().enumerate().map(|(i, operand)| {
            let bytes = workload.operand_len(i).saturating_mul(operand.dtype.bytes());
            let align = match placement {
                Placement::Guarded => operand.align.max(operand.dtype.bytes()),
                Placement::Plain { .. } => operand.align.max(64),
            };
            // Each operand starts elsewhere in its page, or they would all meet in the same cache sets.
            let placement = match placement {
                Placement::Plain { round } => Placement::Plain { round: round.wrapping_mul(7) + 3 * i as u64 },
                Placement::Guarded => Placement::Guarded,
            };
            Region::new(bytes, align, placement)
        });
        Ok(CpuMemory { operands: operands.collect::<Result<_, _>>()?, outputs: workload.outputs() })
    }

    fn write(&mut self, memory: &mut CpuMemory, operand: usize, bytes: &[u8]) -> Result<(), Failure> {
        memory.operands[operand].bytes_mut().copy_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, memory: &mut CpuMemory, operand: usize) -> Result<Vec<u8>, Failure> {
        Ok(memory.operands[operand].bytes().to_vec())
    }

    fn run(&mut self, kernel: &mut CpuKernel, memory: &mut CpuMemory) -> Result<f64, Failure> {
        kernel.workspace.iter_mut().chain(&mut kernel.scratch).for_each(Region::poison);
        self.launch(kernel, memory, Phase::Prepack)?;
        let start = Instant::now();
        self.launch(kernel, memory, Phase::Run)?;
        let ns = start.elapsed().as_secs_f64() * 1e9;
        let regions = memory.operands.iter().enumerate().map(|(i, region)| (format!("operand {i}"), region));
        let own = kernel.workspace.iter().chain(&kernel.scratch).map(|region| ("workspace or scratch".into(), region));
        for (name, region) in regions.chain(own) {
            if let Some(side) = region.trespass() {
                return Err(Failure::new(Outcome::Wrong, format!("the kernel wrote {side} the memory of {name}")));
            }
        }
        Ok(ns)
    }

    fn prepack(&mut self, kernel: &mut CpuKernel, memory: &mut CpuMemory) -> Result<f64, Failure> {
        if kernel.compiled.kernels().iter().all(|part| part.phase != Phase::Prepack) {
            return Ok(0.0);
        }
        let start = Instant::now();
        self.launch(kernel, memory, Phase::Prepack)?;
        Ok(start.elapsed().as_secs_f64() * 1e9)
    }

    fn time_batch(
        &mut self,
        kernel: &mut CpuKernel,
        memory: &mut CpuMemory,
        launches: u32,
        after: After,
    ) -> Result<Batch, Failure> {
        let before = host::ThreadUse::now();
        let start = Instant::now();
        for _ in 0..launches {
            self.launch(kernel, memory, Phase::Run)?;
            if after == After::ReadOutputs {
                memory.outputs.iter().for_each(|output| peak::read_all(memory.operands[*output].bytes()));
            }
        }
        let ns = start.elapsed().as_secs_f64() * 1e9;
        let spent = host::ThreadUse::now().since(&before);
        // Time on the wall that the thread did not get: another thread ran, or the hypervisor took the core.
        let lost_ns = ns - spent.cpu_ns;
        let disturbed = spent.involuntary_switches > 0 || lost_ns > LOST_NS + LOST_SHARE * ns;
        Ok(Batch { ns, disturbed })
    }

    fn min_batch_ns(&self) -> f64 {
        200e3
    }

    fn control(&mut self) -> Option<f64> {
        Some(peak::multiply_add(CONTROL_PASSES).ns)
    }

    fn peak(&mut self) -> Result<Peak, Failure> {
        let memory = Region::new(peak::READ_BYTES as u64, 64, Placement::Plain { round: 0 })?;
        Ok(peak::measure(&self.pool, Units::of(&self.identity.target.key.features), memory.bytes()))
    }
}
