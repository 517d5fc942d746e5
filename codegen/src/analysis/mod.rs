//! What a program does, without running it: operations, bytes at each level of memory, registers, parallelism.
//!
//! [`features`] walks the tile program of a schedule once. It knows statements, loops and places, no family and no
//! parameter name, so a new family is analysed as soon as it is built. `walk` adds up what statements do; `footprint`
//! says how much of it a cache of a given size must fetch.
//!
//! Numbers are means over the iterations of a loop, in binary64. Where a block's size varies with one loop variable, as
//! at the end of an extent, that is exact; sizes that vary with the *same* variable are taken as independent.

mod footprint;
mod walk;

use search_space::{Schedule, Target, Workload};

use crate::lower::{self, LowerError};

/// Numbers about the program of one schedule. Counts are of one call; kernels that only prepare weights are left out.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct ProgramFeatures {
    /// Arithmetic operations of the contractions (a multiply-add is two), those on padding included.
    pub operations: f64,
    /// Operations that the workload did not ask for, as a share of those it did: 0.25 is a quarter too many.
    pub waste: f64,
    /// Bytes that statements read and write in operands and workspace.
    pub global_bytes: f64,
    /// Bytes that statements read and write in packed copies private to a core.
    pub packed_bytes: f64,
    /// Bytes that statements read and write in memory shared by a workgroup.
    pub shared_bytes: f64,
    /// Bytes of accumulators cleared, read and written outside contractions.
    pub register_bytes: f64,
    /// Bytes of the 64-byte lines that each statement touches in global and packed memory, whatever a cache holds.
    pub line_bytes: f64,
    /// Bytes of the lines fetched from beyond a first-level cache of the target's size; 0 when that is not known.
    pub beyond_l1_bytes: f64,
    /// Bytes of the lines fetched from beyond a second-level cache of the target's size; 0 when that is not known.
    pub beyond_l2_bytes: f64,
    /// Elements of the vectors that the largest contraction adds up.
    pub vector_width: f64,
    /// Independent sums of one lane in the largest contraction: vectors of accumulators.
    pub accumulators: f64,
    /// Registers that the largest contraction keeps alive, as a share of the target's.
    pub register_pressure: f64,
    /// Register tiles computed, over all work items; each costs a start and an end.
    pub register_tiles: f64,
    /// Steps along k between start and end of a register tile.
    pub steps: f64,
    /// Iterations that may run at the same time: of loops over cores, or workgroups.
    pub work_items: f64,
    /// Lanes of a workgroup.
    pub lanes: f64,
    /// Share of the target's threads that is busy on average.
    pub balance: f64,
    /// Bytes of packed copies that one core holds.
    pub packed_held_bytes: f64,
    /// Bytes of shared memory that one workgroup holds.
    pub shared_held_bytes: f64,
    /// Barriers that one work item passes.
    pub barriers: f64,
}

/// One level of memory of [`ProgramFeatures::levels`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Name for people.
    pub name: &'static str,
    /// Bytes moved.
    pub bytes: f64,
    /// Operations for each byte moved: how often what was moved is used.
    pub reuse: f64,
}

impl ProgramFeatures {
    /// The levels of memory that the program uses, from the registers outward.
    #[must_use]
    pub fn levels(&self) -> Vec<Level> {
        [
            ("accumulators", self.register_bytes),
            ("shared", self.shared_bytes),
            ("packed", self.packed_bytes),
            ("global", self.global_bytes),
            ("beyond L1", self.beyond_l1_bytes),
            ("beyond L2", self.beyond_l2_bytes),
        ]
        .into_iter()
        .filter(|(_, bytes)| *bytes > 0.0)
        .map(|(name, bytes)| Level { name, bytes, reuse: self.operations / bytes })
        .collect()
    }

    /// What each of [`ProgramFeatures::values`] is.
    #[must_use]
    pub fn names() -> [&'static str; 20] {
        ProgramFeatures::default().columns().map(|(name, _)| name)
    }

    /// The features as finite numbers for a model: large ones as log2 of one more.
    #[must_use]
    pub fn values(&self) -> [f64; 20] {
        self.columns().map(|(_, value)| value)
    }

    fn columns(&self) -> [(&'static str, f64); 20] {
        let log = |value: f64| (1.0 + value.max(0.0)).log2();
        [
            ("log2(operations)", log(self.operations)),
            ("waste", self.waste),
            ("log2(global bytes)", log(self.global_bytes)),
            ("log2(packed bytes)", log(self.packed_bytes)),
            ("log2(shared bytes)", log(self.shared_bytes)),
            ("log2(register bytes)", log(self.register_bytes)),
            ("log2(line bytes)", log(self.line_bytes)),
            ("log2(bytes beyond L1)", log(self.beyond_l1_bytes)),
            ("log2(bytes beyond L2)", log(self.beyond_l2_bytes)),
            ("vector width", self.vector_width),
            ("accumulators", self.accumulators),
            ("register pressure", self.register_pressure),
            ("log2(register tiles)", log(self.register_tiles)),
            ("log2(steps)", log(self.steps)),
            ("log2(work items)", log(self.work_items)),
            ("log2(lanes)", log(self.lanes)),
            ("balance", self.balance),
            ("log2(packed bytes held)", log(self.packed_held_bytes)),
            ("log2(shared bytes held)", log(self.shared_held_bytes)),
            ("log2(barriers)", log(self.barriers)),
        ]
    }
}

/// The features of the program that `schedule` becomes.
///
/// # Errors
/// As [`crate::lower()`], limits of the target excepted.
pub fn features(workload: &Workload, target: &Target, schedule: &Schedule) -> Result<ProgramFeatures, LowerError> {
    let program = lower::build(workload, target, schedule)?;
    let mut found = ProgramFeatures::default();
    for kernel in program.kernels.iter().filter(|kernel| kernel.phase == crate::tile::Phase::Run) {
        walk::add(kernel, target, &mut found);
    }
    found.waste = found.operations / (workload.flops().max(1) as f64) - 1.0;
    Ok(found)
}

#[cfg(test)]
#[path = "analysis_tests.rs"]
mod analysis_tests;
