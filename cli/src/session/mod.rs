//! One night: for each workload and device the default first, then what the strategy proposes, then a final.
//!
//! ```text
//! propose ─► commit(observation of the last trial, its events, "about to run" this one) ─► measure ─► tell ─► …
//! ```
//!
//! One commit per trial carries both what became of the last one and the warning about the next, so a trial is counted
//! and shown only after it is on the disk, and a machine that dies takes exactly one candidate into quarantine. Devices
//! that occupy the same physical resource take turns in one thread; other resources have a thread of their own.

mod bench;
mod finals;
pub(crate) mod known;
pub mod log;
mod method;
mod night;
mod outcome;
mod search;
mod settling;
mod sources;

pub use bench::Bench;
pub use method::{Method, ModelKind, StrategyKind};
pub use night::{Job, Night, Settings};
pub use outcome::{Ended, FirstFailure, JobReport, NightReport, Spent, VerdictReport};
pub use search::{Ranked, Search, Stored};
pub use settling::Settling;
pub use sources::{Found, Sources};

/// Entry of an observation's environment: the nanoseconds that compiling, verifying and timing the candidate took. A
/// search replayed from the file spends them on its virtual clock.
pub const COST_NS: &str = "cost_ns";

/// Why a night cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The database failed.
    #[error(transparent)]
    Database(#[from] tuning_db::DbError),
    /// An event of the log cannot be read.
    #[error(
        "event {sequence} of search {stream} cannot be read: {reason}; tune with another --seed to begin a new search"
    )]
    Log {
        /// Stream.
        stream: String,
        /// Number of the event.
        sequence: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A thread of the session panicked.
    #[error("the session's thread for {resource} panicked; what was counted is saved")]
    Panicked {
        /// Resource.
        resource: String,
    },
}
