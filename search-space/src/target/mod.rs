//! A target: what a kernel is generated for, as a canonical key, and the limits that bound schedules for it.
//!
//! Driver version, clocks, power cap, governor and the like are *environment*: recorded with each observation, never in
//! the key.

mod key;

use serde::{Deserialize, Serialize};

pub use key::{TargetKey, TargetKeyError};

/// Which interface runs the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TargetKind {
    /// The host processor through LLVM.
    Cpu,
    /// A Vulkan device through WGSL.
    Vulkan,
}

impl TargetKind {
    /// Every kind.
    pub const ALL: [TargetKind; 2] = [TargetKind::Cpu, TargetKind::Vulkan];

    /// The word used in keys and by `--device`.
    pub fn as_str(self) -> &'static str {
        match self {
            TargetKind::Cpu => "cpu",
            TargetKind::Vulkan => "vulkan",
        }
    }
}

/// Numbers that bound schedules. Every limit has its unit in its name; `0` where it does not apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Widest vector register in bytes (CPU), or 16 (WGSL `vec4`).
    pub vector_bytes: u64,
    /// Vector registers one lane may hold.
    pub vector_registers: u64,
    /// First-level data cache in bytes; the workgroup's shared memory is `shared_bytes`.
    pub l1_bytes: u64,
    /// Second-level cache per core in bytes.
    pub l2_bytes: u64,
    /// Workgroup shared memory in bytes.
    pub shared_bytes: u64,
    /// Most invocations of one workgroup.
    pub workgroup_invocations: u64,
    /// Most workgroups along one grid dimension.
    pub grid_per_dim: u64,
    /// Most loop iterations one invocation may run in total. lavapipe silently stops at 65,535.
    pub loop_iterations: u64,
    /// Largest buffer that can be bound, in bytes.
    pub buffer_bytes: u64,
}

/// What a kernel is generated for, and what bounds its schedules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Identity: what results are stored under.
    pub key: TargetKey,
    /// Limits; not part of the key (they follow from it).
    pub limits: Limits,
}
