//! Searches replayed on what is known already, to compare strategies without a device.
//!
//! A [`Ground`] is what is searched: a [`RecordedSpace`], of which every configuration was measured, or a [`Synthetic`]
//! kernel. A search gets results through a [`Play`] alone, one for each configuration it asks for; a failed one costs an
//! evaluation like any other, a repeat is free. What is known of the whole ground goes into a [`Yardstick`], which no
//! strategy ever sees.
//!
//! [`replay()`] runs a strategy from many seeds and [`score`](score::score())s it. Its result depends on neither the number of
//! threads nor the order in which they finish.

mod disguise;
mod prior;
pub mod report;
mod score;
mod stored;
mod synthetic;

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cost_model::Source;
use rustix::time::{ClockId, clock_gettime};
use search_space::space::{Config, ParameterSpace};
use search_space::strategy::{Strategy, Told};
use search_space::{Playback, RecordedSpace};

pub use disguise::{Disguise, disguised};
pub use prior::Prior;
pub use score::{MARKS, Run, Score, Yardstick, expected_best, score};
pub use stored::{Question, StoredError, stored, stored_all};
pub use synthetic::Synthetic;

use crate::Stop;
use crate::session::{Method, ModelKind, Settling, StrategyKind};

/// Known configurations in a row after which a strategy is taken to have nothing new.
const MOST_REPEATS: usize = 10_000;

/// What is searched.
pub trait Ground: Sync {
    /// Its name, such as `gemm-RTX_3090`.
    fn name(&self) -> &str;

    /// The kernel.
    fn kernel(&self) -> &str;

    /// The device it was measured on.
    fn device(&self) -> &str;

    /// The schedules.
    fn space(&self) -> &Arc<ParameterSpace>;

    /// A fresh search of it.
    fn play(&self) -> Box<dyn Play + '_>;

    /// What searches of up to `draws` evaluations are measured against.
    fn yardstick(&self, draws: usize) -> Yardstick;
}

/// Where one search gets its results.
pub trait Play {
    /// The result of a configuration of the space. The first time it counts and costs, whether it worked or failed.
    fn measure(&mut self, config: &Config) -> Told;

    /// How many distinct configurations were measured.
    fn evaluations(&self) -> usize;

    /// What compiling and measuring them would have taken.
    fn clock(&self) -> Duration;
}

impl Ground for RecordedSpace {
    fn name(&self) -> &str {
        &self.name
    }

    fn kernel(&self) -> &str {
        &self.kernel
    }

    fn device(&self) -> &str {
        &self.device
    }

    fn space(&self) -> &Arc<ParameterSpace> {
        RecordedSpace::space(self)
    }

    fn play(&self) -> Box<dyn Play + '_> {
        Box::new(RecordedSpace::play(self))
    }

    fn yardstick(&self, draws: usize) -> Yardstick {
        Yardstick::of(self.judge().known_s(), draws).expect("invariant: something works in a recorded space")
    }
}

impl Play for Playback<'_> {
    fn measure(&mut self, config: &Config) -> Told {
        Playback::measure(self, config)
    }

    fn evaluations(&self) -> usize {
        Playback::evaluations(self)
    }

    fn clock(&self) -> Duration {
        Playback::clock(self)
    }
}

/// A fresh search of `space`. Each prior has rows of the same kernel on another device, by positions in `space`;
/// strategies that cannot learn from them leave them aside.
#[must_use]
pub fn strategy(kind: StrategyKind, space: &Arc<ParameterSpace>, priors: &[Source], seed: u64) -> Box<dyn Strategy> {
    Method { strategy: kind, model: ModelKind::Trees, seed, sources: 0 }.build(space, None, priors)
}

/// How a strategy is replayed.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Which strategy.
    pub strategy: StrategyKind,
    /// Evaluations of each search; a smaller space is searched completely.
    pub budget: usize,
    /// One search for each.
    pub seeds: Range<u64>,
    /// Candidates asked for at once.
    pub batch: usize,
    /// A search ends when its last candidates were expected to shorten the best time by less than this share; 0 never.
    pub stop_gain: f64,
    /// Rows drawn from each prior.
    pub prior_rows: usize,
    /// Searches at the same time.
    pub threads: usize,
}

/// All searches of one ground.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    /// The ground's name.
    pub space: String,
    /// The kernel.
    pub kernel: String,
    /// The device.
    pub device: String,
    /// Number of schedules.
    pub configs: u128,
    /// How many priors were given.
    pub priors: usize,
    /// The fastest time of the ground.
    pub optimum_s: f64,
    /// In order of the seeds.
    pub runs: Vec<Run>,
    /// What they are worth.
    pub score: Score,
}

/// Runs the searches of `ground` and scores them; `None` when `stop` was asked for, or without seeds. `done` is told
/// after each search how many are finished.
pub fn replay(
    ground: &dyn Ground,
    priors: &[Prior],
    settings: &Settings,
    stop: &Stop,
    done: &(dyn Fn(usize) + Sync),
) -> Option<Replayed> {
    let make = |seed: u64| {
        let draw = |(number, prior): (u64, &Prior<'_>)| Source {
            rows: prior.draw(settings.prior_rows, seed, number),
            likeness: prior.likeness(ground.device()),
        };
        let sources: Vec<Source> = (0u64..).zip(priors).map(draw).collect();
        strategy(settings.strategy, ground.space(), &sources, seed)
    };
    replay_with(ground, &make, priors.len(), settings, stop, done)
}

/// [`replay()`] of any strategy.
fn replay_with(
    ground: &dyn Ground,
    make: &(dyn Fn(u64) -> Box<dyn Strategy> + Sync),
    priors: usize,
    settings: &Settings,
    stop: &Stop,
    done: &(dyn Fn(usize) + Sync),
) -> Option<Replayed> {
    let seeds: Vec<u64> = settings.seeds.clone().collect();
    let (next, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let found: Mutex<Vec<Option<Run>>> = Mutex::new(vec![None; seeds.len()]);
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::SeqCst);
            let Some(&seed) = seeds.get(at) else { return };
            let Some(run) = search(ground, &|| make(seed), settings, stop) else { return };
            found.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(run);
            done(finished.fetch_add(1, Ordering::SeqCst) + 1);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..settings.threads.clamp(1, seeds.len().max(1)) {
            scope.spawn(work);
        }
    });
    let runs: Option<Vec<Run>> = found.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect();
    let (runs, yardstick) = (runs?, ground.yardstick(settings.budget));
    Some(Replayed {
        space: ground.name().into(),
        kernel: ground.kernel().into(),
        device: ground.device().into(),
        configs: ground.space().count(),
        priors,
        optimum_s: yardstick.optimum_s,
        score: score(&runs, &yardstick, settings.budget)?,
        runs,
    })
}

/// One search; `None` when it was stopped.
fn search(ground: &dyn Ground, make: &dyn Fn() -> Box<dyn Strategy>, settings: &Settings, stop: &Stop) -> Option<Run> {
    let mut run = Run::default();
    let mut strategy = timed(&mut run.cpu, make);
    let mut play = ground.play();
    let (mut best_s, mut at_least_s): (Option<f64>, Option<f64>) = (None, None);
    let (mut repeats, mut settling) = (0, Settling::default());
    while run.best_s.len() < settings.budget && repeats < MOST_REPEATS {
        let most = settings.batch.clamp(1, settings.budget - run.best_s.len());
        let batch = timed(&mut run.cpu, || strategy.ask(most));
        settling.asked(&*strategy);
        if batch.is_empty() || settling.is_below(settings.stop_gain) {
            break;
        }
        // Whatever a strategy answers beyond what it was asked for is not measured.
        for candidate in batch.into_iter().take(most) {
            if stop.asked() {
                return None;
            }
            let told = play.measure(&candidate.config);
            let least = |so_far: Option<f64>, seconds: f64| Some(so_far.map_or(seconds, |best| best.min(seconds)));
            match told {
                Told::Time { seconds } => best_s = least(best_s, seconds),
                Told::Censored { at_least_seconds } => at_least_s = least(at_least_s, at_least_seconds),
                Told::Failed(_) => {}
            }
            if play.evaluations() > run.best_s.len() {
                run.best_s.push(best_s);
                run.at_least_s.push(at_least_s);
                repeats = 0;
            } else {
                repeats += 1;
            }
            timed(&mut run.cpu, || strategy.tell(candidate.id, told));
        }
    }
    run.clock = play.clock();
    Some(run)
}

/// Adds the processor time that this thread spends in `work`.
fn timed<T>(sum: &mut Duration, work: impl FnOnce() -> T) -> T {
    let now = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
    let start = now();
    let result = work();
    *sum += now().saturating_sub(start);
    result
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
