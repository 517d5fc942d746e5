//! From a workload and a schedule to code: the tile program, its lowering to lanes, and the emitters.
//!
//! [`lower()`] builds level 1 ([`tile`]) from a workload and a schedule, and level 2 ([`lane`]) from that. [`emit`] prints
//! lanes as LLVM IR or WGSL. [`analysis`] says what a program does without running it. This crate knows no device and no time.

pub mod analysis;
pub mod atoms;
pub mod emit;
pub mod families;
pub mod index;
pub mod lane;
pub mod layout;
pub mod lower;
pub mod tile;

pub use lower::{LowerError, Lowered, lower, program_hash};
