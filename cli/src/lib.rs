//! The tuning session as a library: what to measure next ([`planner`]), one night of it ([`session`]), searches compared
//! without a device ([`mod@replay`]), a whole suite of workloads ([`suite`]), what a search has learned ([`mod@explain`]), and what people and programs are
//! shown ([`report`]).
//!
//! It knows devices as a trait ([`session::Bench`]), time as a trait ([`Clock`]) and no driver, so a whole night runs in
//! a test within milliseconds. The verbs of the command line live in the binary beside it.

#![forbid(unsafe_code)]

mod clock;
pub mod explain;
pub mod planner;
pub mod replay;
pub mod report;
pub mod session;
mod stop;
pub mod suite;

pub use clock::{Clock, SystemClock};
pub use stop::Stop;

/// Who turns schedules into kernels here. A schedule is never answered for another generator.
pub const GENERATOR: &str = "tilewright/1";
