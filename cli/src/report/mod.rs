//! What people and programs are shown: progress while it runs ([`Console`]), the closing [`table`], and JSON ([`json`]).

pub mod json;
mod output;
mod progress;
pub mod table;
pub mod units;

use std::time::Duration;

use search_space::{Outcome, Schedule};

use crate::planner::Limit;
use crate::session::JobReport;

pub use output::Output;
pub use progress::{Console, Show};

/// One trial, after it was saved.
#[derive(Clone, Copy, Debug)]
pub struct TrialReport<'a> {
    /// Number within its search, from 1, earlier runs included.
    pub number: u64,
    /// What was tried.
    pub schedule: &'a Schedule,
    /// What became of it.
    pub outcome: Outcome,
    /// Time of one call, where it was timed to the end.
    pub seconds: Option<f64>,
    /// Best time of the search so far.
    pub best_s: Option<f64>,
}

/// Who is told what happens during a night. Calls come from several threads.
pub trait Report: Sync {
    /// A search is about to begin. `job` is its position in the night.
    fn begin(&self, job: usize, result: &JobReport, limit: Limit);

    /// A trial was saved.
    fn trial(&self, job: usize, result: &JobReport, trial: &TrialReport<'_>, now: Duration);

    /// Searching is over, the final begins.
    fn final_begins(&self, job: usize);

    /// All is done for this job.
    fn end(&self, job: usize, result: &JobReport);
}
