//! What a night came to, for the closing table and for programs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use measure::{Demand, Peak, Roof};
use search_space::{Outcome, Schedule};
use tuning_db::{Answer, Provenance};

use super::settling::PATIENCE;

/// Where time went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Lowering and compiling candidates.
    pub compile: Duration,
    /// Expected outputs, checked runs and comparisons.
    pub verify: Duration,
    /// Warm-up, samples and the roofline.
    pub time: Duration,
    /// Finals: the same three again in fresh workers, with the start of those.
    pub finals: Duration,
}

impl Spent {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.compile + self.verify + self.time + self.finals
    }
}

impl std::ops::AddAssign for Spent {
    fn add_assign(&mut self, other: Spent) {
        self.compile += other.compile;
        self.verify += other.verify;
        self.time += other.time;
        self.finals += other.finals;
    }
}

/// The first candidate that failed in some way.
#[derive(Clone, Debug, PartialEq)]
pub struct FirstFailure {
    /// What was tried.
    pub schedule: Schedule,
    /// What happened, in full.
    pub message: String,
}

/// Why a search ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Ended {
    /// Its trials or its time were used up.
    Limit,
    /// Every schedule was tried.
    Exhausted,
    /// Little was left to gain: none of the last candidates was expected to shorten the best time by this share.
    Settled(f64),
    /// It was asked to stop.
    Stopped,
    /// The device or the workload failed, or nothing worked.
    Failed(String),
}

impl Ended {
    /// Why, where that is worth saying.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        match self {
            Ended::Limit => None,
            Ended::Exhausted => Some("every schedule was tried".into()),
            Ended::Settled(share) => Some(format!(
                "settled: none of the last {PATIENCE} candidates was expected to gain {} % or more; --stop-gain 0 goes on",
                percent(*share)
            )),
            Ended::Stopped => Some("interrupted; run the same command again to go on".into()),
            Ended::Failed(message) => Some(format!("ended early: {message}")),
        }
    }
}

/// A share in percent, to as many digits as it was given with: 0.000001 is 0.0001, not 0.00009999999999999999.
fn percent(share: f64) -> f64 {
    const DIGITS: f64 = 1e12;
    (share * 100.0 * DIGITS).round() / DIGITS
}

/// What the final said.
#[derive(Clone, Debug, PartialEq)]
pub enum VerdictReport {
    /// Faster than the default.
    Keep {
        /// Time of the default / time of the winner.
        ratio: f64,
        /// Lower end of the 95 % interval.
        lo: f64,
        /// Upper end.
        hi: f64,
    },
    /// Nothing was shown to be faster than the default.
    NoGain {
        /// The best other schedule against the default, where one was left: ratio and interval.
        best: Option<(f64, f64, f64)>,
    },
    /// No final was held, and why.
    None(String),
}

/// One workload on one device.
#[derive(Clone, Debug)]
pub struct JobReport {
    /// Short text.
    pub workload: String,
    /// Canonical key.
    pub key: String,
    /// How often the model runs it.
    pub count: u64,
    /// Device as users name it.
    pub device: String,
    /// Floating-point operations of one call.
    pub flops: u64,
    /// What one call has to do at least.
    pub demand: Demand,
    /// What the device can do at best, measured beside this run.
    pub peak: Option<Peak>,
    /// Trials, those of earlier runs included.
    pub trials: u64,
    /// Trials of this run.
    pub trials_now: u64,
    /// Programs measured in this run.
    pub programs: BTreeSet<String>,
    /// Outcomes of this run.
    pub outcomes: BTreeMap<Outcome, u64>,
    /// The first failure of each class of this run.
    pub failures: BTreeMap<Outcome, FirstFailure>,
    /// Time of the default in seconds: of the finals that `answer` rests on, else of screening.
    pub default_s: Option<f64>,
    /// Best time of screening in seconds.
    pub screened_s: Option<f64>,
    /// What a look-up answers now.
    pub answer: Option<Answer>,
    /// What the final said: that of this run, else that of an earlier run if nothing new was measured.
    pub verdict: VerdictReport,
    /// Nothing new was measured, so that what is known comes from earlier runs.
    pub stored: bool,
    /// Where the time of this run went.
    pub spent: Spent,
    /// Why it ended.
    pub ended: Ended,
}

impl JobReport {
    /// Best time in seconds: what a look-up answers, else the best of screening.
    #[must_use]
    pub fn best_s(&self) -> Option<f64> {
        self.answer.as_ref().map(|answer| answer.time.ns / 1e9).or(self.screened_s)
    }

    /// Takes in what a look-up answers: with the default's time from the same finals, beside which one of the search would
    /// contradict it, and with its verdict when this run has measured nothing new.
    pub(super) fn show(&mut self, answer: Answer, default: &Schedule) {
        let own = (answer.schedule == *default).then_some(answer.time);
        let time = answer.default.as_ref().map_or(own, |(_, time)| *time);
        self.default_s = time.map(|time| time.ns / 1e9);
        match (answer.speedup, answer.provenance) {
            _ if !self.stored => {}
            (Some(known), _) => self.verdict = VerdictReport::Keep { ratio: known.ratio, lo: known.lo, hi: known.hi },
            (None, Provenance::Default) => self.verdict = VerdictReport::NoGain { best: None },
            (None, _) => {}
        }
        self.answer = Some(answer);
    }

    /// Whether times and verdict are those of an earlier run's final.
    #[must_use]
    pub fn shows_stored(&self) -> bool {
        self.stored && !matches!(self.verdict, VerdictReport::None(_))
    }

    /// What is to be said beside the figures: why it ended, and where they come from.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks: Vec<String> = self.ended.reason().into_iter().collect();
        if self.shows_stored() {
            remarks.push("nothing new was measured; this is the stored answer of an earlier run".into());
        }
        remarks
    }

    /// How near `seconds` comes to the roofline, and which roof it is.
    #[must_use]
    pub fn share_of_peak(&self, seconds: f64) -> Option<(f64, Roof)> {
        self.demand.share(&self.peak?, seconds)
    }
}

/// A whole night.
#[derive(Clone, Debug)]
pub struct NightReport {
    /// One per workload and device, in the order given.
    pub jobs: Vec<JobReport>,
    /// Whether it was asked to stop.
    pub stopped: bool,
    /// From the start of the run to its end.
    pub wall: Duration,
    /// How often a worker was lost.
    pub lost_workers: u64,
}

impl NightReport {
    /// Where the time went, all jobs together.
    #[must_use]
    pub fn spent(&self) -> Spent {
        self.jobs.iter().fold(Spent::default(), |mut sum, job| {
            sum += job.spent;
            sum
        })
    }

    /// Outcomes of all jobs.
    #[must_use]
    pub fn outcomes(&self) -> BTreeMap<Outcome, u64> {
        let mut sum = BTreeMap::new();
        for (outcome, n) in self.jobs.iter().flat_map(|job| &job.outcomes) {
            *sum.entry(*outcome).or_insert(0) += n;
        }
        sum
    }
}
