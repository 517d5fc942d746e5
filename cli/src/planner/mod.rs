//! Which search gets the next turn, and when searching must end so that the finals still fit.
//!
//! Time, not trials, is the budget. A turn goes to the search with the largest expected end-to-end gain per second:
//!
//! ```text
//! gain/s = count × ( recent + optimistic ) / 2 / seconds per trial / end-to-end seconds on the device
//! recent      seconds saved per trial over the last WINDOW trials
//! optimistic  (best − bound) / (trials + 8)          the gap to the roofline closes harmonically
//! ```
//!
//! This is the gradient of Zheng et al., "Ansor" (OSDI 2020), section 6, with the roofline bound in place of the guess
//! from similar tasks: a workload near its roofline has nothing left to gain and gives its time away. The gain is relative
//! to what the model takes on the same device, so that a slow device does not take all time from a fast one. Before gains
//! decide, every search is measured once and then has one turn. Pure
//! arithmetic over [`Standing`]s; the clock's reading is a parameter.

use std::time::Duration;

use measure::FinalsOptions;

/// Trials over which recent progress is taken.
const WINDOW: usize = 24;
/// Weight of the prior in the harmonic guess: a fresh search is taken to be this many trials old.
const PRIOR_TRIALS: f64 = 8.0;
/// Shortest turn: changing the workload costs the worker new inputs and expected outputs.
const TURN: Duration = Duration::from_millis(500);
/// A turn lasts at least this many times what changing to its workload costs.
const TURN_PER_LOAD: u32 = 5;
/// Trials without a single success after which a search is given up.
pub const HOPELESS: u64 = 64;
/// Starting a worker, before anything was measured.
const WORKER_START: Duration = Duration::from_millis(300);
/// A batch of a final, where the kernel is short.
const FINAL_BATCH: Duration = Duration::from_millis(2);
/// Most candidates in a final, the default and the incumbent aside.
pub const FINALISTS: usize = 8;
/// Fewest blocks that a final takes.
const LEAST_BLOCKS: u32 = 8;
/// Share of the time that all finals may use together, where kernels are not too slow for that.
const FINALS_SHARE: f64 = 0.3;
/// Most of the time that is kept from searching for finals.
pub const MOST_RESERVED: f64 = 0.5;
/// Least budget of a final's blocks, in seconds.
const LEAST_BUDGET_S: f64 = 0.2;

/// When a night ends. At least one of both is set by whoever starts one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// Time for everything.
    pub time: Option<Duration>,
    /// Trials of each search, those of earlier runs included.
    pub trials: Option<u64>,
}

/// What the planner knows of one search.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// How often the model runs the workload.
    pub count: u64,
    /// Which device it runs on.
    pub device: usize,
    /// No kernel can be faster than this, in seconds; `0` when unknown.
    pub bound_s: f64,
    /// Best time so far in seconds after each trial, from the first success on.
    pub best_s: Vec<f64>,
    /// Trials, those of earlier runs included.
    pub trials: u64,
    /// Trials of this run.
    pub trials_now: u64,
    /// Time that the trials of this run took, loading the workload aside.
    pub spent: Duration,
    /// Compiling and verifying in this run.
    pub prepared: Duration,
    /// What changing to this workload costs, as seen last.
    pub load: Duration,
    /// What loading it costs a fresh worker that finds what others left for it.
    pub reload: Duration,
    /// What the first hostile check costs beside its runs.
    pub case: Duration,
    /// Nothing is left to try, or the device or the workload failed.
    pub ended: bool,
}

impl Standing {
    /// The best time so far in seconds.
    #[must_use]
    pub fn best(&self) -> Option<f64> {
        self.best_s.last().copied()
    }

    /// Mean time of a trial of this run.
    #[must_use]
    pub fn per_trial(&self) -> Duration {
        mean(self.spent, self.trials_now)
    }

    /// Expected end-to-end gain per second of searching on, as a share of `device_s`, what all workloads of the device
    /// take together.
    #[must_use]
    pub fn gain(&self, device_s: f64) -> f64 {
        let Some(best) = self.best() else {
            // Nothing works yet: the first success is worth more than any improvement.
            return f64::INFINITY;
        };
        let gap = (best - self.bound_s).max(0.0);
        let optimistic = gap / (self.trials as f64 + PRIOR_TRIALS);
        let before = self.best_s[self.best_s.len().saturating_sub(WINDOW + 1)];
        let recent = (before - best).min(gap).max(0.0) / WINDOW.min(self.best_s.len()) as f64;
        self.count as f64 * f64::midpoint(recent, optimistic) / self.per_trial().as_secs_f64().max(1e-6) / device_s
    }

    /// How the final of this search is held: with all candidates, or with as many as fit `share`.
    #[must_use]
    pub fn final_plan(&self, finals: &FinalsOptions, share: Duration) -> FinalPlan {
        let tests = finals.test_workers.max(1);
        let slow = (3 + 2 * tests) * LEAST_BLOCKS * self.final_batch() > share;
        let options = if slow {
            // A fresh worker chooses, another one tests.
            FinalsOptions { select_blocks: 4, test_blocks: LEAST_BLOCKS, test_workers: 1, ..finals.clone() }
        } else {
            finals.clone()
        };
        let fits = |candidates: &usize| self.final_time(&options, *candidates) <= share;
        let candidates = (1..=FINALISTS).rev().find(fits).unwrap_or(1);
        FinalPlan { options, candidates }
    }

    /// How long a final of this search takes with `candidates` beside the default.
    #[must_use]
    pub fn final_time(&self, options: &FinalsOptions, candidates: usize) -> Duration {
        if self.best().is_none() {
            return Duration::ZERO;
        }
        let prepare = mean(self.prepared, self.trials_now);
        let batch = self.final_batch();
        if candidates == 0 {
            // The default is timed and checked in the worker that there is.
            return 2 * prepare + self.case + options.select_blocks.min(LEAST_BLOCKS) * batch;
        }
        let tests = options.test_workers.max(1);
        let entries = to_u32(candidates) + 1;
        // One worker for the choice, others for the tests; a hostile check of the chosen one and of the default.
        let fresh = (1 + tests) * (WORKER_START + self.reload);
        let prepared = (entries + 2 * tests + 2) * prepare + fresh + self.case;
        let blocks = |select: u32, test: u32| (entries * select + 2 * tests * test) * batch;
        let most = blocks(options.select_blocks, options.test_blocks);
        let least = blocks(options.select_blocks.min(LEAST_BLOCKS), options.test_blocks.min(LEAST_BLOCKS));
        prepared + most.min(Duration::from_secs_f64(options.budget_s)).max(least)
    }

    /// One entry in one block: a launch to warm up where it is short, then the batch. Others are slower than the best.
    fn final_batch(&self) -> Duration {
        FINAL_BATCH.max(Duration::from_secs_f64(1.5 * self.best().unwrap_or(0.0)))
    }
}

/// How a final is held.
#[derive(Clone, Debug, PartialEq)]
pub struct FinalPlan {
    /// Blocks, workers and budget.
    pub options: FinalsOptions,
    /// Candidates that take part beside the default and the incumbent.
    pub candidates: usize,
}

/// One search's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Position of the search.
    pub search: usize,
    /// When the turn ends.
    pub until: Duration,
    /// No more trials than these.
    pub trials: u64,
}

/// Splits the time of one physical resource over its searches.
#[derive(Clone, Debug)]
pub struct Planner {
    limit: Limit,
    finals: FinalsOptions,
}

impl Planner {
    /// A planner for `searches` searches. `finals` is adapted to the time there is.
    #[must_use]
    pub fn new(limit: Limit, searches: usize, mut finals: FinalsOptions) -> Planner {
        if let Some(time) = limit.time {
            let share = time.as_secs_f64() * FINALS_SHARE / searches.max(1) as f64;
            finals.budget_s = finals.budget_s.min(share).max(LEAST_BUDGET_S);
        }
        Planner { limit, finals }
    }

    /// When searching must end so that every final still fits; `None` without a time limit. Finals get at most
    /// [`MOST_RESERVED`] of the time: what was not searched for need not be compared.
    #[must_use]
    pub fn search_deadline(&self, standings: &[Standing]) -> Option<Duration> {
        let time = self.limit.time?;
        let share = time.mul_f64(FINALS_SHARE) / to_u32(standings.len()).max(1);
        let reserve = |standing: &Standing| {
            let FinalPlan { options, candidates } = standing.final_plan(&self.finals, share);
            standing.final_time(&options, candidates)
        };
        let reserved: Duration = standings.iter().map(reserve).sum();
        Some(time - reserved.min(time.mul_f64(MOST_RESERVED)))
    }

    /// How the final of `standing` is held at `now`, when `finals` of them are still to come, this one included.
    #[must_use]
    pub fn final_plan(&self, standing: &Standing, now: Duration, finals: usize) -> FinalPlan {
        let share = match self.limit.time {
            Some(time) => time.saturating_sub(now) / to_u32(finals).max(1),
            // Without a hurry there is still no sense in minutes for a kernel of a second.
            None => Duration::from_secs_f64(3.0 * self.finals.budget_s),
        };
        standing.final_plan(&self.finals, share)
    }

    /// Who is next at `now`; `None` when searching is over. Searches without a trial come first, in their order: the
    /// default of each is measured before anything else, as long as there is time for the finals of those before.
    #[must_use]
    pub fn next(&self, standings: &[Standing], now: Duration) -> Option<Turn> {
        let deadline = self.search_deadline(standings);
        let fits = |standing: &Standing| deadline.is_none_or(|deadline| now + standing.per_trial() < deadline);
        let left = |standing: &Standing| self.limit.trials.map_or(u64::MAX, |n| n.saturating_sub(standing.trials));
        let open: Vec<usize> =
            (0..standings.len()).filter(|i| !standings[*i].ended && left(&standings[*i]) > 0).collect();
        let untried = open.iter().copied().find(|i| standings[*i].trials == 0);
        if let Some(search) = untried.filter(|_| deadline.is_none_or(|deadline| now < deadline)) {
            return Some(Turn { search, until: now, trials: 1 });
        }
        // One trial says nothing of what the next ones gain: everybody is heard before anybody has a second turn.
        let unheard = open.iter().copied().filter(|i| standings[*i].spent < TURN && fits(&standings[*i]));
        if let Some(search) = unheard.min_by_key(|i| standings[*i].spent) {
            let until = now + (TURN - standings[search].spent).max(TURN_PER_LOAD * standings[search].load);
            let until = deadline.map_or(until, |deadline| until.min(deadline));
            return Some(Turn { search, until, trials: left(&standings[search]) });
        }
        let candidates = open.into_iter().filter(|i| fits(&standings[*i]));
        // Ties and a gain of zero everywhere go to the search with the fewest trials, then to the first.
        let gain = |standing: &Standing| standing.gain(device_time(standings, standing.device));
        let search = candidates.max_by(|a, b| {
            let (x, y) = (&standings[*a], &standings[*b]);
            gain(x).total_cmp(&gain(y)).then(y.trials.cmp(&x.trials)).then(b.cmp(a))
        })?;
        let until = now + TURN.max(TURN_PER_LOAD * standings[search].load);
        let until = deadline.map_or(until, |deadline| until.min(deadline));
        Some(Turn { search, until, trials: left(&standings[search]) })
    }
}

/// A first guess of how `time` will be split, in seconds per search: in proportion to `weights` (arithmetic × count).
#[must_use]
pub fn first_split(time: Duration, weights: &[f64]) -> Vec<f64> {
    let total: f64 = weights.iter().sum();
    let even = 1.0 / weights.len().max(1) as f64;
    let share = |weight: &f64| if total > 0.0 { f64::midpoint(weight / total, even) } else { even };
    weights.iter().map(|weight| time.as_secs_f64() * share(weight)).collect()
}

/// What all workloads of a device take together with the best kernels so far, in seconds.
fn device_time(standings: &[Standing], device: usize) -> f64 {
    let on_it = standings.iter().filter(|standing| standing.device == device);
    let total: f64 = on_it.filter_map(|standing| Some(standing.count as f64 * standing.best()?)).sum();
    if total > 0.0 { total } else { 1.0 }
}

fn mean(total: Duration, n: u64) -> Duration {
    total / to_u32(usize::try_from(n).unwrap_or(usize::MAX)).max(1)
}

fn to_u32(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[path = "planner_tests.rs"]
mod tests;
