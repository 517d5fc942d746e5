//! What tuner and worker say to each other. Private to one build: both ends are the same executable.

use search_space::{Outcome, Schedule};
use serde::{Deserialize, Serialize};

use crate::device::{Failure, Identity, KernelInfo};
use crate::peak::Peak;
use crate::protocol::{Loading, Measured, ScreenOptions};

/// From the tuner.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Get ready for a workload: inputs, expected outputs, memory. The requests below are about the last one loaded.
    Load {
        /// Canonical key.
        workload: String,
        /// Placement of the timed operands.
        round: u64,
        /// Where cases are left for the workers to come.
        shelf: Option<ShelfAt>,
    },
    /// Compile, then, after [`Request::Go`], verify and screen.
    Measure {
        /// Candidate.
        schedule: Schedule,
        /// How to screen.
        options: ScreenOptions,
    },
    /// The candidate that was sent to be measured may run.
    Go,
    /// Compile and verify all entries, then time each once per block, in random order.
    Blocks {
        /// Position of the entry in the final, and its schedule.
        entries: Vec<(usize, Schedule)>,
        /// Number of blocks.
        blocks: u32,
        /// Seed of the orders.
        seed: u64,
        /// Most nanoseconds for all blocks.
        budget_ns: f64,
    },
    /// Compile, then every check there is.
    Hostile {
        /// Candidate.
        schedule: Schedule,
    },
    /// Measure the roofline.
    Peak,
}

/// A file in memory that the worker inherited.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct ShelfAt {
    /// Descriptor.
    pub(crate) fd: i32,
    /// Most bytes left there.
    pub(crate) most_bytes: u64,
}

/// From the worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    /// The device is open. Sent once.
    Ready {
        /// Which device.
        identity: Box<Identity>,
    },
    /// The device does not open; the worker ends.
    Refused {
        /// Why.
        message: String,
    },
    /// A sign of life.
    Progress {
        /// What is done next.
        step: Step,
        /// About which entry of a final.
        entry: Option<usize>,
    },
    /// The answer to the request.
    Done(Reply),
}

/// What the worker is doing: named in the message when it has to be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    /// Opening the device.
    Opening,
    /// Reading the request.
    Starting,
    /// Computing expected outputs.
    Loading,
    /// Lowering and compiling.
    Compiling,
    /// Running checks.
    Verifying,
    /// Timing.
    Timing,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Step::Opening => "opening the device",
            Step::Starting => "starting the request",
            Step::Loading => "loading the workload",
            Step::Compiling => "compiling",
            Step::Verifying => "verifying",
            Step::Timing => "timing",
        })
    }
}

/// Answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// To `Load`.
    Loaded(Loading),
    /// To `Load`: the workload cannot be checked on this device.
    Unverifiable(String),
    /// To `Measure`.
    Measured(Box<Measured>),
    /// To `Blocks`.
    Blocks(Vec<EntryBlocks>),
    /// To `Hostile`.
    Checked(Result<KernelInfo, Failure>),
    /// To `Peak`.
    Peak(Result<Peak, Failure>),
}

impl Reply {
    /// The failure after which the worker's device cannot be used any more, if there was one: it was lost, or still
    /// hangs in a kernel that the worker stopped waiting for.
    pub(crate) fn device_is_gone(&self) -> Option<Failure> {
        let gone = |outcome: Outcome| matches!(outcome, Outcome::LostDevice | Outcome::Timeout);
        let failure = match self {
            Reply::Measured(measured) => {
                Some(Failure::new(measured.outcome, measured.message.clone().unwrap_or_default()))
            }
            Reply::Blocks(entries) => {
                let mut failures = entries.iter().filter_map(|entry| entry.kernel.as_ref().err());
                failures.find(|failure| gone(failure.outcome)).cloned()
            }
            Reply::Checked(Err(failure)) | Reply::Peak(Err(failure)) => Some(failure.clone()),
            _ => None,
        };
        failure.filter(|failure| gone(failure.outcome))
    }
}

/// One entry's part of a `Blocks` reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EntryBlocks {
    /// Position of the entry in the final.
    pub(crate) entry: usize,
    /// What was compiled; `Err` when it failed.
    pub(crate) kernel: Result<KernelInfo, Failure>,
    /// Nanoseconds per launch, one per block.
    pub(crate) samples_ns: Vec<f64>,
    /// The same with a reader of the outputs after each launch; empty unless some entry streams its outputs.
    #[serde(default)]
    pub(crate) read_ns: Vec<f64>,
}
