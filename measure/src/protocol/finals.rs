//! The final: is anything really faster than the default?
//!
//! The best of eight noisy times is flattered by the choice itself (the winner's curse), and one process can favour a
//! kernel for as long as it lives through nothing but the placement of its code and data. So the choice and the test
//! use different samples from different workers: one fresh worker times every entry and the best is *chosen*; further
//! fresh workers time only the chosen one, the default and the incumbent, and the interval comes from those alone
//! (sample splitting, as in Cox, "A note on data-splitting for the evaluation of significance levels", Biometrika 62,
//! 1975). One hypothesis is tested, so no correction for the number of finalists is needed. Screening samples are not
//! used at all.
//!
//! An entry that writes its outputs past the caches (`KernelInfo::streams`) is also timed with a reader of them, as are
//! the others beside it, and counts as no faster than the slower of the two comparisons says: a kernel that wins only
//! while nobody uses its results has not won.
//!
//! Within a block every entry is timed once, in random order; ratios are taken within blocks, so drift slower than a
//! block cancels. The chosen entry is a winner when the lower end of the 95 % interval is above 1, the gain is larger
//! than what counts as equal, and it was ahead in each testing worker.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use search_space::{Outcome, Schedule};

use super::stats::{centre, compare, trimmed_mean};
use super::{Comparison, Finalist, FinalistRole, Finals, FinalsOptions, Verdict};
use crate::device::{After, Failure, KernelInfo};
use crate::worker::message::EntryBlocks;

/// Blocks in which a default without rivals is timed.
const LONE_BLOCKS: u32 = 8;

/// An entry to be timed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    /// Position in the final.
    pub(crate) position: usize,
    /// Schedule.
    pub(crate) schedule: &'a Schedule,
}

/// What `blocks` gives: samples, or which entry (if known) took the worker down.
pub(crate) type BlocksResult = Result<Vec<EntryBlocks>, (Option<usize>, Failure)>;

/// Where a final takes place: a device, or synthetic noise in tests.
pub(crate) trait Stage {
    /// Why the final cannot go on.
    type Error;

    /// The next request goes to a fresh worker.
    fn fresh(&mut self);

    /// Times every entry once per block.
    fn blocks(
        &mut self,
        entries: &[Entry<'_>],
        blocks: u32,
        seed: u64,
        budget_s: f64,
    ) -> Result<BlocksResult, Self::Error>;

    /// Runs every check on a schedule.
    fn hostile(&mut self, schedule: &Schedule) -> Result<Result<(), Failure>, Self::Error>;
}

impl Finalist {
    /// An entry about which nothing is known yet.
    pub(crate) fn new(role: FinalistRole, schedule: Schedule) -> Finalist {
        Finalist {
            role,
            schedule,
            outcome: Outcome::Ok,
            kernel: KernelInfo::default(),
            samples_ns: Vec::new(),
            message: None,
        }
    }

    fn fail(&mut self, failure: Failure) {
        self.outcome = failure.outcome;
        self.message = Some(failure.message);
        self.samples_ns.clear();
    }
}

/// Runs a final.
pub(crate) fn decide<S: Stage>(
    entries: Vec<Finalist>,
    stage: &mut S,
    options: &FinalsOptions,
) -> Result<Finals, S::Error> {
    let default = entries.iter().position(|entry| entry.role == FinalistRole::Default);
    let default = default.expect("invariant: the caller enters the default");
    let incumbent = entries.iter().position(|entry| entry.role == FinalistRole::Incumbent);
    let mut run = Run { entries, stage, options, workers: 0 };

    let everyone: Vec<usize> = (0..run.entries.len()).collect();
    let select_s = options.budget_s / 2.0;
    let test_s = options.budget_s / 2.0 / f64::from(options.test_workers.max(1));
    // The default alone is compared with nothing, so that nothing can favour it: any worker will do, and few blocks.
    let (first, blocks) = match everyone.len() {
        1 => (Where::Present, options.select_blocks.min(LONE_BLOCKS)),
        _ => (Where::Fresh, options.select_blocks),
    };
    let chosen_from = run.time(&everyone, first, blocks, 0, select_s)?;
    if run.alive(default) {
        run.check(default)?;
    }
    let mut rng = ChaCha8Rng::seed_from_u64(options.seed ^ 0xB007_57A9);
    // Entries that turned out to win only while nobody reads their outputs.
    let mut unread = Vec::new();
    loop {
        if !run.alive(default) {
            let message = run.entries[default].message.clone().unwrap_or_default();
            return Ok(run.finish(Verdict::NoDefault { message }, None));
        }
        let Some(best) = run.choose(&chosen_from, default, &unread) else {
            return Ok(run.finish(Verdict::NoGain { entry: default, best: None }, None));
        };
        run.check(best)?;
        if !run.alive(best) {
            continue;
        }
        let mut testing = vec![best, default];
        testing.extend(incumbent.filter(|incumbent| *incumbent != best && run.alive(*incumbent)));
        let mut tests = Vec::new();
        for worker in 0..options.test_workers.max(1) {
            tests.push(run.time(&testing, Where::Fresh, options.test_blocks, 1 + u64::from(worker), test_s)?);
        }
        if !run.alive(best) || !run.alive(default) {
            continue;
        }
        let against = |other: usize, rng: &mut ChaCha8Rng| -> (Comparison, bool) {
            let ratios: Vec<Vec<f64>> =
                tests.iter().map(|test| log_ratios(test, other, best, After::Nothing)).collect();
            let ahead = ratios.iter().all(|ratios| trimmed_mean(&mut ratios.clone()) > 0.0);
            (compare(&ratios, options.resamples, rng), ahead)
        };
        let (over_default, ahead) = against(default, &mut rng);
        if run.entries[best].kernel.streams {
            let read: Vec<f64> =
                tests.iter().flat_map(|test| log_ratios(test, default, best, After::ReadOutputs)).collect();
            if ahead && over_default.speedup > 1.0 && centre(&[read]) <= 0.0 {
                unread.push(best);
                continue;
            }
        }
        let over_incumbent = incumbent
            .filter(|incumbent| testing.contains(incumbent) && run.alive(*incumbent))
            .map(|incumbent| against(incumbent, &mut rng).0);
        let wins = ahead && over_default.low > 1.0 && over_default.speedup > 1.0 + options.equal_within;
        let verdict = if wins {
            Verdict::Winner { entry: best, over_default }
        } else {
            Verdict::NoGain { entry: default, best: Some(over_default) }
        };
        let over_incumbent = if wins { over_incumbent } else { None };
        return Ok(run.finish(verdict, over_incumbent));
    }
}

/// In which worker entries are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    Fresh,
    Present,
}

/// A final under way.
struct Run<'a, S> {
    entries: Vec<Finalist>,
    stage: &'a mut S,
    options: &'a FinalsOptions,
    workers: u32,
}

impl<S: Stage> Run<'_, S> {
    fn alive(&self, position: usize) -> bool {
        self.entries[position].outcome == Outcome::Ok
    }

    /// Times `positions` in one worker; entries that fail leave the final. Whoever takes the worker down is named
    /// by it, and the others start over in another worker.
    fn time(
        &mut self,
        positions: &[usize],
        mut place: Where,
        blocks: u32,
        salt: u64,
        budget_s: f64,
    ) -> Result<Vec<EntryBlocks>, S::Error> {
        // Strangely dying workers (before they name an entry) must not go on for ever.
        let mut unexplained = 0;
        loop {
            let entries: Vec<Entry<'_>> = positions
                .iter()
                .filter(|position| self.entries[**position].outcome == Outcome::Ok)
                .map(|position| Entry { position: *position, schedule: &self.entries[*position].schedule })
                .collect();
            if entries.is_empty() {
                return Ok(Vec::new());
            }
            if std::mem::replace(&mut place, Where::Fresh) == Where::Fresh {
                self.stage.fresh();
                self.workers += 1;
            }
            let seed = self.options.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ salt;
            match self.stage.blocks(&entries, blocks, seed, budget_s)? {
                Ok(timed) => {
                    for entry in &timed {
                        let Some(finalist) = self.entries.get_mut(entry.entry) else { continue };
                        match &entry.kernel {
                            Ok(kernel) => {
                                finalist.kernel = kernel.clone();
                                finalist.samples_ns.extend(&entry.samples_ns);
                            }
                            Err(failure) => finalist.fail(failure.clone()),
                        }
                    }
                    return Ok(timed);
                }
                Err((Some(guilty), failure)) if self.entries.get(guilty).is_some_and(|e| e.outcome == Outcome::Ok) => {
                    self.entries[guilty].fail(failure);
                }
                Err((_, failure)) => {
                    unexplained += 1;
                    if unexplained == 3 {
                        positions.iter().for_each(|position| self.entries[*position].fail(failure.clone()));
                    }
                }
            }
        }
    }

    /// Runs every check on an entry.
    fn check(&mut self, position: usize) -> Result<(), S::Error> {
        if let Err(failure) = self.stage.hostile(&self.entries[position].schedule)? {
            self.entries[position].fail(failure);
        }
        Ok(())
    }

    /// The fastest entry but the default; among those equal to it, the one with less memory, then the smaller hash.
    fn choose(&self, timed: &[EntryBlocks], default: usize, without: &[usize]) -> Option<usize> {
        let gain = |position: usize, after: After| centre(&[log_ratios(timed, default, position, after)]);
        let gains: Vec<(usize, f64)> = (0..self.entries.len())
            .filter(|position| *position != default && self.alive(*position) && !without.contains(position))
            .map(|position| {
                let alone = gain(position, After::Nothing);
                let streams = self.entries[position].kernel.streams;
                (position, if streams { alone.min(gain(position, After::ReadOutputs)) } else { alone })
            })
            .collect();
        let best = gains.iter().map(|(_, gain)| *gain).max_by(f64::total_cmp)?;
        let equal = gains.iter().filter(|(_, gain)| *gain >= best - self.options.equal_within.ln_1p());
        let cost = |position: usize| {
            let kernel = &self.entries[position].kernel;
            (kernel.memory_bytes, kernel.program_hash.as_str(), position)
        };
        equal.map(|(position, _)| *position).min_by(|a, b| cost(*a).cmp(&cost(*b)))
    }

    fn finish(self, verdict: Verdict, over_incumbent: Option<Comparison>) -> Finals {
        Finals { entries: self.entries, verdict, over_incumbent, workers: self.workers }
    }
}

/// `ln(time of other / time of chosen)` of each block, alone or with a reader.
fn log_ratios(timed: &[EntryBlocks], other: usize, chosen: usize, after: After) -> Vec<f64> {
    let samples = |position: usize| {
        let entry = timed.iter().find(|entry| entry.entry == position);
        entry.map_or(&[] as &[f64], |entry| if after == After::Nothing { &entry.samples_ns } else { &entry.read_ns })
    };
    // Measured data is never asserted on: a block with a time of zero says nothing.
    let usable = |pair: &(&f64, &f64)| *pair.0 > 0.0 && *pair.1 > 0.0;
    samples(other).iter().zip(samples(chosen)).filter(usable).map(|(other, chosen)| (other / chosen).ln()).collect()
}

#[cfg(test)]
#[path = "finals_tests.rs"]
mod tests;
