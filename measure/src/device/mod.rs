//! Devices: what compiles, runs and times kernels. A [`Device`] lives inside a worker process, because a kernel or a
//! driver may crash it; the tuner itself talks to a [`DeviceHandle`](crate::DeviceHandle).
//!
//! A device decides nothing: what is checked is [`verify`](crate::verify)'s business, how often something is timed is
//! [`protocol`](crate::protocol)'s.

mod cpu;
pub mod features;
pub mod fixtures;
pub mod spec;
mod vulkan;

use std::collections::BTreeMap;

use search_space::{Outcome, Schedule, Target, Workload};
use serde::{Deserialize, Serialize};

use crate::peak::Peak;
pub use cpu::CpuDevice;
pub use features::Features;
pub use spec::{DeviceSpec, FoundDevice, list_devices};
pub use vulkan::VulkanDevice;

/// Which device this is, what it may be asked, and the circumstances recorded with each observation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// What kernels are generated for.
    pub target: Target,
    /// Name for people, such as `Intel(R) Xeon(R) Processor`.
    pub name: String,
    /// Driver or compiler with its version, such as `LLVM 22.1` or `llvmpipe 22.3.6`.
    pub driver: String,
    /// Circumstances that may change times: governor, huge pages, cache state. Never part of a key.
    pub environment: BTreeMap<String, String>,
    /// The physical thing the device occupies. Devices that name the same resource exclude each other while a clock
    /// runs; the processor is [`HOST_CPU`].
    pub resource: String,
}

/// The resource of the processor and of every software device that runs on it.
pub const HOST_CPU: &str = "host-cpu";

/// Why a candidate failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{outcome}: {message}")]
pub struct Failure {
    /// Class.
    pub outcome: Outcome,
    /// What happened, for people.
    pub message: String,
}

impl Failure {
    /// A failure of class `outcome`.
    pub fn new(outcome: Outcome, message: impl Into<String>) -> Failure {
        Failure { outcome, message: message.into() }
    }
}

/// What is known of a compiled candidate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelInfo {
    /// Hash of the tile program on its target: equal hashes are the same kernel.
    pub program_hash: String,
    /// Hash of the generated code.
    pub code_hash: String,
    /// Time of lowering and compiling, in nanoseconds. Where the driver compiles at the first dispatch, that is
    /// included.
    pub compile_ns: u64,
    /// Memory the kernel needs besides its operands, in bytes: workspace and scratch. Of two equally fast kernels the
    /// one with less wins.
    pub memory_bytes: u64,
    /// Whether outputs are written past the caches: then whoever reads them next pays for it.
    #[serde(default)]
    pub streams: bool,
}

/// Where operands are placed in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Each operand ends as close to unreadable memory as its alignment allows; the bytes before and after it hold a
    /// pattern. Devices without page protection use the pattern only. For checked runs.
    Guarded,
    /// As in use: each operand aligned to at least 64 bytes, and to its own alignment. `round` moves the operands by
    /// multiples of that against page boundaries, so that no candidate is judged on one lucky placement.
    Plain {
        /// Any number; equal numbers give equal placement.
        round: u64,
    },
}

/// What follows each launch inside of its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum After {
    /// Nothing: the launch alone.
    #[default]
    Nothing,
    /// The outputs are read once by the thread that launched. A kernel that writes past the caches is fast alone and may
    /// be slow for whoever needs what it wrote.
    ReadOutputs,
}

/// One timed batch of launches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// Nanoseconds from the first launch to the end of the last.
    pub ns: f64,
    /// Whether something else ran meanwhile (an involuntary context switch, steal, a throttled clock): the batch should
    /// be repeated, not averaged.
    pub disturbed: bool,
}

/// A device inside its worker process. Methods may be called in any order; each call is complete when it returns.
pub trait Device {
    /// A compiled candidate, with its workspace and scratch memory allocated and touched.
    type Kernel;
    /// Memory for all operands of one workload.
    type Memory;

    /// Which device this is.
    fn identity(&self) -> &Identity;

    /// Lowers and compiles.
    ///
    /// # Errors
    ///
    /// [`Outcome::CompileError`] when the schedule cannot be lowered or the kernel is refused,
    /// [`Outcome::ResourceLimit`] when it needs more than the device has.
    fn compile(&mut self, workload: &Workload, schedule: &Schedule) -> Result<Self::Kernel, Failure>;

    /// Whether [`Device::compile`] launches the kernel, as it must where a driver compiles at the first dispatch.
    fn compiling_runs(&self) -> bool {
        false
    }

    /// What is known of a compiled candidate.
    fn describe(&self, kernel: &Self::Kernel) -> KernelInfo;

    /// Allocates every operand of `workload` ([`Workload::operand_len`] elements each, gaps included) and touches it.
    /// Contents are arbitrary.
    ///
    /// # Errors
    ///
    /// [`Outcome::ResourceLimit`] when there is not enough memory.
    fn allocate(&mut self, workload: &Workload, placement: Placement) -> Result<Self::Memory, Failure>;

    /// Overwrites the whole operand at position `operand` with `bytes` (native endianness). Poisoning an output is
    /// writing poison.
    ///
    /// # Errors
    ///
    /// [`Outcome::LostDevice`] when the device went away.
    fn write(&mut self, memory: &mut Self::Memory, operand: usize, bytes: &[u8]) -> Result<(), Failure>;

    /// The whole operand at position `operand`, gaps included.
    ///
    /// # Errors
    ///
    /// [`Outcome::LostDevice`] when the device went away.
    fn read(&mut self, memory: &mut Self::Memory, operand: usize) -> Result<Vec<u8>, Failure>;

    /// Runs the program once, as a stranger would find it: workspace and scratch are filled with a NaN pattern, then
    /// the kernels of both phases (prepack, run) are launched in order. Gives the nanoseconds of the run phase.
    ///
    /// # Errors
    ///
    /// [`Outcome::Wrong`] when memory around an operand was written, [`Outcome::LostDevice`], [`Outcome::CompileError`]
    /// and [`Outcome::ResourceLimit`] where a driver finds out at the first dispatch.
    fn run(&mut self, kernel: &mut Self::Kernel, memory: &mut Self::Memory) -> Result<f64, Failure>;

    /// Prepares `memory` for timing `kernel`: launches the kernels of the prepack phase, so that the workspace fits the
    /// inputs. Gives their nanoseconds, `0` when there are none.
    ///
    /// # Errors
    ///
    /// As [`Device::run`].
    fn prepack(&mut self, kernel: &mut Self::Kernel, memory: &mut Self::Memory) -> Result<f64, Failure>;

    /// Times `launches` launches of the run phase in a row, each followed by `after`. [`Device::prepack`] was called with
    /// the same memory.
    ///
    /// # Errors
    ///
    /// As [`Device::run`]; [`Outcome::ResourceLimit`] when the device has no such `after`.
    fn time_batch(
        &mut self,
        kernel: &mut Self::Kernel,
        memory: &mut Self::Memory,
        launches: u32,
        after: After,
    ) -> Result<Batch, Failure>;

    /// Shortest batch worth timing, in nanoseconds: 200 µs on the CPU, 500 µs on a GPU.
    fn min_batch_ns(&self) -> f64;

    /// Times a fixed piece of work that no candidate changes, in nanoseconds; `None` when the device has none. It shows
    /// drift: a neighbour, a clock, a temperature.
    fn control(&mut self) -> Option<f64>;

    /// Measures the roofline: what all threads of the device do at best, with the units that its target names.
    ///
    /// # Errors
    ///
    /// [`Outcome::LostDevice`] when the device went away.
    fn peak(&mut self) -> Result<Peak, Failure>;
}
