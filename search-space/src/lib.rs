//! Workloads, keys, reference semantics, target limits, parameter spaces, schedules and search strategies.
//!
//! This crate says *what* is computed ([`workload`]), what it means ([`mod@reference`]), which schedules exist for it
//! ([`space`], [`families`]) and how to walk among them ([`strategy`]). It knows no LLVM, driver, SQLite or file.

pub mod families;
pub mod outcome;
pub mod recorded;
pub mod reference;
pub mod samples;
pub mod schedule;
pub mod space;
pub mod strategy;
pub mod target;
pub mod workload;

pub use outcome::Outcome;
pub use recorded::{Judge, Playback, Recorded, RecordedError, RecordedSpace};
pub use schedule::{Schedule, Value};
pub use target::Target;
pub use workload::Workload;
