//! How often and in which order kernels are timed, and what follows from the times.
//!
//! [`screen`] gives each candidate a few short samples, enough to steer the search. [`finals`] compares the best few
//! with the default in fresh workers and decides whether there is a winner. Both are pure logic over sources of
//! samples, so that they are tested with synthetic noise.

pub mod finals;
pub mod screen;
pub mod stats;

use search_space::{Outcome, Schedule};
use serde::{Deserialize, Serialize};

use crate::device::{After, KernelInfo};

/// How candidates are screened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScreenOptions {
    /// A candidate that is clearly slower than this, in nanoseconds per launch, is dropped early (a censored
    /// observation). Usually the best time so far; `None` never drops.
    pub cutoff_ns: Option<f64>,
    /// Clearly slower: more than this many times the cutoff.
    pub cutoff_factor: f64,
    /// Samples taken of a candidate that is not dropped; at least 3.
    pub samples: u32,
    /// Blocks over which they are spread; at least 2.
    pub blocks: u32,
    /// How often a disturbed sample is repeated before it is taken as it is.
    pub repeats: u32,
    /// Most warm-up batches.
    pub warmup: u32,
    /// Time budget for the samples of one candidate in nanoseconds; the least number of samples (3 in 2 blocks) is
    /// taken in any case.
    pub budget_ns: f64,
    /// What follows each launch inside of its time.
    #[serde(default)]
    pub after: After,
}

impl Default for ScreenOptions {
    fn default() -> ScreenOptions {
        ScreenOptions {
            cutoff_ns: None,
            cutoff_factor: 2.0,
            samples: 10,
            blocks: 2,
            repeats: 2,
            warmup: 4,
            budget_ns: 50e6,
            after: After::Nothing,
        }
    }
}

/// Where the time of one request went, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breakdown {
    /// Lowering and compiling.
    pub compile_ns: u64,
    /// Checked runs and comparisons.
    pub verify_ns: u64,
    /// Warm-up and samples.
    pub time_ns: u64,
    /// The whole request as the worker saw it.
    pub total_ns: u64,
    /// The whole request as the tuner saw it: also starting a worker and loading the workload, but not `wait_ns`.
    pub round_trip_ns: u64,
    /// Waiting for another process that uses the same resource.
    pub wait_ns: u64,
    /// Loading the workload, when the worker had not; not part of `total_ns`.
    #[serde(default)]
    pub loading: Loading,
}

/// What loading a workload took, in nanoseconds, and what of that is not needed again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loading {
    /// All of it; `0` when nothing was loaded.
    pub total_ns: u64,
    /// The part that the next worker for the workload is spared, because its result was left for it.
    pub spared_ns: u64,
    /// Computing one more case of the checks; `0` when none was computed.
    pub case_ns: u64,
}

/// What became of one candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Class.
    pub outcome: Outcome,
    /// Nanoseconds per launch, one entry per sample; empty unless the outcome is `ok`.
    pub samples_ns: Vec<f64>,
    /// Nanoseconds of the control kernel beside each sample; empty where the device has none.
    pub control_ns: Vec<f64>,
    /// Set when the candidate was dropped early: it takes at least this long per launch. Not a measurement.
    pub censored_at_least_ns: Option<f64>,
    /// Nanoseconds of the prepack phase, once per set of weights.
    pub prepack_ns: f64,
    /// Samples that stayed disturbed after all repeats.
    pub disturbed: u32,
    /// What was compiled; empty hashes when it did not get that far.
    pub kernel: KernelInfo,
    /// Where the time went.
    pub breakdown: Breakdown,
    /// What happened when the outcome is not `ok`, for people.
    pub message: Option<String>,
}

impl Measured {
    /// A candidate that failed.
    pub fn failed(outcome: Outcome, message: impl Into<String>) -> Measured {
        Measured {
            outcome,
            samples_ns: Vec::new(),
            control_ns: Vec::new(),
            censored_at_least_ns: None,
            prepack_ns: 0.0,
            disturbed: 0,
            kernel: KernelInfo::default(),
            breakdown: Breakdown::default(),
            message: Some(message.into()),
        }
    }

    /// Median nanoseconds per launch; `None` unless the candidate was timed to the end.
    pub fn median_ns(&self) -> Option<f64> {
        if self.censored_at_least_ns.is_some() { None } else { stats::median(&self.samples_ns) }
    }
}

/// How finalists are compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FinalsOptions {
    /// Blocks in which the finalist is chosen; each block times every entry once.
    pub select_blocks: u32,
    /// Workers in which the chosen one is compared with the default; at least 1, fresh ones.
    pub test_workers: u32,
    /// Blocks in each of those.
    pub test_blocks: u32,
    /// Bootstrap resamples.
    pub resamples: u32,
    /// Seed of block orders and of the bootstrap.
    pub seed: u64,
    /// Most seconds for all blocks together; fewer blocks are taken when they would last longer, at least 8.
    pub budget_s: f64,
    /// Two entries closer than this ratio are equal; the one with less memory, then with the smaller hash, is taken.
    pub equal_within: f64,
}

impl Default for FinalsOptions {
    fn default() -> FinalsOptions {
        FinalsOptions {
            select_blocks: 16,
            test_workers: 2,
            test_blocks: 16,
            resamples: 2000,
            seed: 0,
            budget_s: 10.0,
            equal_within: 0.01,
        }
    }
}

/// Why an entry takes part in the final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinalistRole {
    /// Among the best of the screening.
    Candidate,
    /// The known-safe schedule that is used without tuning.
    Default,
    /// The winner of an earlier run.
    Incumbent,
}

/// One entry of the final.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finalist {
    /// Why it takes part.
    pub role: FinalistRole,
    /// Schedule.
    pub schedule: Schedule,
    /// What became of it; `wrong` also when the hostile check failed.
    pub outcome: Outcome,
    /// What was compiled.
    pub kernel: KernelInfo,
    /// Nanoseconds per launch in each block of the selecting worker, then of the testing workers if it got there.
    pub samples_ns: Vec<f64>,
    /// What happened when the outcome is not `ok`.
    pub message: Option<String>,
}

/// Ratio of two times with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Time of the other divided by the time of the chosen entry: above 1 the chosen one is faster.
    pub speedup: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
}

/// What the final decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// The entry is faster than the default: the lower end of the interval is above 1.
    Winner {
        /// Position in [`Finals::entries`].
        entry: usize,
        /// Against the default.
        over_default: Comparison,
    },
    /// Nothing is known to be faster than the default: use that.
    NoGain {
        /// Position of the default in [`Finals::entries`].
        entry: usize,
        /// The best entry against the default; `None` when no other entry was left.
        best: Option<Comparison>,
    },
    /// The default itself failed, so nothing could be compared.
    NoDefault {
        /// What happened to it.
        message: String,
    },
}

/// Result of a final.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finals {
    /// All entries: candidates in the order given, then the default, then the incumbent.
    pub entries: Vec<Finalist>,
    /// What was decided.
    pub verdict: Verdict,
    /// The verdict's entry against the incumbent, when there is one that is not the entry itself.
    pub over_incumbent: Option<Comparison>,
    /// Fresh workers used.
    pub workers: u32,
}

impl Finals {
    /// The entry to use: the winner, or the default when there is no gain. `None` when the default failed.
    pub fn chosen(&self) -> Option<&Finalist> {
        match &self.verdict {
            Verdict::Winner { entry, .. } | Verdict::NoGain { entry, .. } => self.entries.get(*entry),
            Verdict::NoDefault { .. } => None,
        }
    }
}

/// A random order of `entries` entries for each block.
pub(crate) fn block_orders(entries: usize, blocks: u32, seed: u64) -> Vec<Vec<usize>> {
    use rand::SeedableRng;
    use rand::seq::SliceRandom;
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    (0..blocks)
        .map(|_| {
            let mut order: Vec<usize> = (0..entries).collect();
            order.shuffle(&mut rng);
            order
        })
        .collect()
}
