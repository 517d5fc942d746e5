//! Vulkan devices through WGSL. Where there is no GPU, Mesa's lavapipe or SwiftShader run the kernels on the processor.
//!
//! Drivers fail quietly in several ways, and each is closed here: an invalid pipeline "runs" in no time (every call is
//! inside an error scope, and a time of zero is refused), loops end early (a limit of the target), a kernel is compiled
//! at its first dispatch (done while compiling, on one workgroup), and a device that hangs is never dropped.

mod adapter;
mod gpu;
mod kernel;
mod memory;

use std::time::Instant;

use codegen::tile::Phase;
use search_space::{Outcome, Schedule, Workload};

use super::{After, Batch, CpuDevice, Device, Failure, Features, Identity, KernelInfo, Placement};
use crate::peak::{self, Peak};
use gpu::Gpu;
use kernel::Stamps;
pub(super) use kernel::VulkanKernel;
pub(super) use memory::VulkanMemory;

/// Iterations of the control kernel on software devices: some ten microseconds.
const CONTROL_PASSES: u64 = 2_000;
/// Share of a batch that the processor may have spent elsewhere before the batch counts as disturbed.
const LOST_SHARE: f64 = 0.1;

/// A Vulkan device as a [`Device`].
pub struct VulkanDevice {
    identity: Identity,
    gpu: Gpu,
    /// The kernels run on this machine's processor.
    software: bool,
    clock: Clock,
    /// Memory in which kernels are touched while compiling, and the workload it was made for.
    touched: Option<(Workload, VulkanMemory)>,
}

/// What batches are timed with.
enum Clock {
    /// The host's clock around submission and wait.
    Host,
    /// The device's time stamps; nanoseconds of one tick.
    Device { stamps: Stamps, resolved: wgpu::Buffer, read: wgpu::Buffer, tick_ns: f64 },
}

impl std::fmt::Debug for VulkanDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VulkanDevice").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl VulkanDevice {
    /// Opens the device at position `index`: real GPUs come first, software devices after them.
    ///
    /// # Errors
    ///
    /// [`Outcome::LostDevice`] when there is none, or the driver refuses to open it.
    pub fn open(index: usize) -> Result<VulkanDevice, Failure> {
        let found = adapter::find(&adapter::instance(), index)?;
        // On a software device the stamps are the host's clock.
        let stamped = !adapter::is_software(&found.get_info());
        VulkanDevice::with(&found, stamped)
    }

    fn with(adapter: &wgpu::Adapter, stamped: bool) -> Result<VulkanDevice, Failure> {
        let info = adapter.get_info();
        let features =
            adapter.features() & if stamped { wgpu::Features::TIMESTAMP_QUERY } else { wgpu::Features::empty() };
        let identity = adapter::identity(&info, &adapter.limits())?;
        let gpu = Gpu::open(adapter, features)?;
        let clock = if features.is_empty() { Clock::Host } else { Clock::device(&gpu)? };
        Ok(VulkanDevice { identity, gpu, software: adapter::is_software(&info), clock, touched: None })
    }

    /// Compiles a lowered program; its limits have been checked.
    fn build(
        &mut self,
        workload: &Workload,
        program: &codegen::lane::Program,
        program_hash: String,
    ) -> Result<VulkanKernel, Failure> {
        let kernel = VulkanKernel::new(&self.gpu, program, program_hash)?;
        if self.touched.as_ref().is_none_or(|(known, _)| known != workload) {
            self.touched = None;
            let memory = VulkanMemory::new(&self.gpu, workload, Placement::Guarded)?;
            self.touched = Some((workload.clone(), memory));
        }
        if let Some((_, memory)) = &self.touched {
            kernel.touch(&self.gpu, memory)?;
        }
        Ok(kernel)
    }

    /// Nanoseconds of `launches` launches.
    fn time(&self, kernel: &VulkanKernel, memory: &VulkanMemory, phase: Phase, launches: u32) -> Result<f64, Failure> {
        let ns = match &self.clock {
            Clock::Host => {
                let start = Instant::now();
                kernel.launch(&self.gpu, memory, phase, launches, None)?;
                start.elapsed().as_secs_f64() * 1e9
            }
            Clock::Device { stamps, resolved, read, tick_ns } => {
                kernel.launch(&self.gpu, memory, phase, launches, Some(stamps))?;
                ticks(&self.gpu, stamps, resolved, read)? * tick_ns
            }
        };
        // Nothing runs in no time: the driver has not run the kernel.
        if ns > 0.0 { Ok(ns) } else { Err(Failure::new(Outcome::CompileError, "the driver did not run the kernel")) }
    }
}

impl Clock {
    fn device(gpu: &Gpu) -> Result<Clock, Failure> {
        gpu.checked(|| {
            let queries = gpu.device().create_query_set(&wgpu::QuerySetDescriptor {
                label: None,
                ty: wgpu::QueryType::Timestamp,
                count: 2,
            });
            let buffer = |usage| {
                let descriptor = wgpu::BufferDescriptor { label: None, size: 16, usage, mapped_at_creation: false };
                gpu.device().create_buffer(&descriptor)
            };
            let resolved = buffer(wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC);
            let read = buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST);
            let tick_ns = gpu.queue().get_timestamp_period().into();
            Ok(Clock::Device { stamps: Stamps { queries }, resolved, read, tick_ns })
        })
    }
}

/// Ticks between the two stamps.
fn ticks(gpu: &Gpu, stamps: &Stamps, resolved: &wgpu::Buffer, read: &wgpu::Buffer) -> Result<f64, Failure> {
    gpu.checked(|| {
        let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.resolve_query_set(&stamps.queries, 0..2, resolved, 0);
        encoder.copy_buffer_to_buffer(resolved, 0, read, 0, 16);
        gpu.queue().submit([encoder.finish()]);
        read.map_async(wgpu::MapMode::Read, .., |_| {});
        gpu.wait()?;
        let view = read.get_mapped_range(..).map_err(|error| Failure::new(Outcome::LostDevice, error.to_string()))?;
        let stamp = |at: usize| view[at..at + 8].iter().rev().fold(0u64, |value, &byte| value << 8 | u64::from(byte));
        let elapsed = stamp(8).saturating_sub(stamp(0));
        drop(view);
        read.unmap();
        #[expect(clippy::cast_precision_loss, reason = "a batch is shorter than 2^53 ticks")]
        Ok(elapsed as f64)
    })
}

impl Device for VulkanDevice {
    type Kernel = VulkanKernel;
    type Memory = VulkanMemory;

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn compiling_runs(&self) -> bool {
        true
    }

    fn compile(&mut self, workload: &Workload, schedule: &Schedule) -> Result<VulkanKernel, Failure> {
        let start = Instant::now();
        let lowered = codegen::lower(workload, &self.identity.target, schedule).map_err(|error| match error {
            codegen::LowerError::Limit { .. } => Failure::new(Outcome::ResourceLimit, error.to_string()),
            _ => Failure::new(Outcome::CompileError, error.to_string()),
        })?;
        let mut kernel = self.build(workload, &lowered.lane, lowered.program_hash())?;
        kernel.info.compile_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Ok(kernel)
    }

    fn describe(&self, kernel: &VulkanKernel) -> KernelInfo {
        kernel.info.clone()
    }

    fn allocate(&mut self, workload: &Workload, placement: Placement) -> Result<VulkanMemory, Failure> {
        VulkanMemory::new(&self.gpu, workload, placement)
    }

    fn write(&mut self, memory: &mut VulkanMemory, operand: usize, bytes: &[u8]) -> Result<(), Failure> {
        memory.operands[operand].write(&self.gpu, bytes)
    }

    fn read(&mut self, memory: &mut VulkanMemory, operand: usize) -> Result<Vec<u8>, Failure> {
        memory.operands[operand].read(&self.gpu)
    }

    fn run(&mut self, kernel: &mut VulkanKernel, memory: &mut VulkanMemory) -> Result<f64, Failure> {
        for region in &kernel.workspace {
            // Four bytes of ones are a NaN in every float type.
            region.write(&self.gpu, &vec![0xff; usize::try_from(region.bytes()).unwrap_or(0)])?;
        }
        if kernel.has(Phase::Prepack) {
            kernel.launch(&self.gpu, memory, Phase::Prepack, 1, None)?;
        }
        let ns = self.time(kernel, memory, Phase::Run, 1)?;
        let regions: Vec<_> = memory.operands.iter().chain(&kernel.workspace).collect();
        match memory::trespass(&self.gpu, &regions)? {
            None => Ok(ns),
            Some((position, side)) => {
                let message = format!("the kernel wrote {side} the memory of buffer {position}");
                Err(Failure::new(Outcome::Wrong, message))
            }
        }
    }

    fn prepack(&mut self, kernel: &mut VulkanKernel, memory: &mut VulkanMemory) -> Result<f64, Failure> {
        if kernel.has(Phase::Prepack) { self.time(kernel, memory, Phase::Prepack, 1) } else { Ok(0.0) }
    }

    fn time_batch(
        &mut self,
        kernel: &mut VulkanKernel,
        memory: &mut VulkanMemory,
        launches: u32,
        after: After,
    ) -> Result<Batch, Failure> {
        if after != After::Nothing {
            let message = "outputs on a Vulkan device cannot be read inside of a launch's time; time it alone";
            return Err(Failure::new(Outcome::ResourceLimit, message));
        }
        let before = ProcessUse::now();
        let ns = self.time(kernel, memory, Phase::Run, launches)?;
        // A software device keeps at least one processor busy all the time; what it did not get, another had.
        let disturbed = self.software && ns - before.elapsed_cpu_ns() > LOST_SHARE * ns;
        Ok(Batch { ns, disturbed })
    }

    fn min_batch_ns(&self) -> f64 {
        500e3
    }

    fn control(&mut self) -> Option<f64> {
        self.software.then(|| peak::multiply_add(CONTROL_PASSES).ns)
    }

    fn peak(&mut self) -> Result<Peak, Failure> {
        if !self.software {
            return Ok(Peak::default());
        }
        // A software device has all of the processor. In a thread of its own, which pins itself.
        let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
        let processor = || CpuDevice::open(threads, &Features::default())?.peak();
        let peak = std::thread::scope(|scope| scope.spawn(processor).join());
        let Peak { flops_per_s, near_bytes_per_s, bytes_per_s, .. } =
            peak.map_err(|_| Failure::new(Outcome::Crash, "measuring the processor's peak panicked"))??;
        // Shaders have no narrow elements here.
        Ok(Peak { flops_per_s, near_bytes_per_s, bytes_per_s, ..Peak::default() })
    }
}

/// Processor time of this process, all threads.
struct ProcessUse {
    cpu_ns: f64,
}

impl ProcessUse {
    fn now() -> ProcessUse {
        let mut clock = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `clock` is valid for the duration of the call.
        unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut clock) };
        #[expect(clippy::cast_precision_loss, reason = "a worker does not run for months")]
        let cpu_ns = clock.tv_sec as f64 * 1e9 + clock.tv_nsec as f64;
        ProcessUse { cpu_ns }
    }

    fn elapsed_cpu_ns(&self) -> f64 {
        ProcessUse::now().cpu_ns - self.cpu_ns
    }
}

#[cfg(test)]
mod tests;
