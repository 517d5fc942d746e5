//! A workload suite on one device: each line is tuned for a while, and what won is measured again.
//!
//! On one thread a line is searched like any workload. On several, the search is among the fastest schedules of one
//! thread, with the parameters of the threads varied ([`narrow`]): what is good for one core is mostly good for each of
//! two, and a search from nothing would learn it again. Tuning is a [`Night`] of one workload, so everything is saved as
//! in a night, and a suite that was interrupted loses nothing.

pub mod json;
pub mod narrow;

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use datasets::suite::Line;
use measure::protocol::stats::median;
use measure::{Demand, FinalsOptions, Roof, ScreenOptions};
use search_space::families::{SchedulePlan, plan};
use search_space::workload::MathMode;
use search_space::{Outcome, Schedule, Target, Workload};
use tuning_db::{Answer, Database, Session, Writer};

use crate::planner::Limit;
use crate::report::Report;
use crate::session::{Bench, Ended, Job, Method, Night, SessionError, Settings, Sources};
use crate::{Clock, GENERATOR, Stop};

/// Schedules of one thread that a search on several begins with.
pub const FASTEST: usize = 20;

/// Samples that no budget is large enough for.
const MOST_SAMPLES: u32 = 1 << 24;

/// How a suite is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads of each kernel.
    pub threads: u64,
    /// Mathematics of the lines that have a choice ([`Line::has_math`]).
    pub math: MathMode,
    /// Time to tune each line, its final included.
    pub time_per: Duration,
    /// Lines that the file has an answer for are not tuned again.
    pub missing: bool,
    /// How candidates are chosen.
    pub method: Method,
    /// See [`Settings::stop_gain`]; for searches on one thread.
    pub stop_gain: f64,
    /// How often the winner is measured again.
    pub rounds: usize,
    /// Time of each of these measurements.
    pub round: Duration,
    /// Name of this run in its observations; unique.
    pub run: String,
    /// The command line.
    pub command: String,
}

/// A suite while it runs.
pub struct Suite<'a> {
    /// The database.
    pub writer: &'a Writer,
    /// Time.
    pub clock: &'a dyn Clock,
    /// Whether to stop.
    pub stop: &'a Stop,
    /// Who is told of progress.
    pub report: &'a dyn Report,
    /// How.
    pub options: &'a Options,
    /// Opens the device with so many threads.
    pub open: &'a Opener,
}

/// Opens a device with so many threads.
pub type Opener = dyn Fn(u64) -> Result<Box<dyn Bench>, measure::Error>;

/// What became of a line.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The line.
    pub line: Line,
    /// Key of its workload, where it is one.
    pub key: Option<String>,
    /// Mathematics that it was generated for.
    pub math: MathMode,
    /// Time spent on tuning it in this run.
    pub tuned: Duration,
    /// Trials of this run.
    pub trials: u64,
    /// What was measured, or why nothing was.
    pub result: Result<Timed, String>,
}

/// The winner, measured again.
#[derive(Clone, Debug)]
pub struct Timed {
    /// What a look-up answers.
    pub answer: Answer,
    /// One per round.
    pub rounds: Vec<Round>,
    /// Time of the prepack phase in nanoseconds, once per set of weights and no part of the rounds.
    pub prepack_ns: f64,
}

/// One measurement of the winner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// Least nanoseconds of one call.
    pub min_ns: f64,
    /// Median nanoseconds of one call.
    pub median_ns: f64,
    /// Samples.
    pub samples: usize,
    /// When it began, since the run did.
    pub at: Duration,
    /// How near the median comes to the roofline measured in the same round, and which roof that is.
    pub share: Option<(f64, Roof)>,
}

impl Timed {
    /// Median over the rounds of their medians, in nanoseconds.
    #[must_use]
    pub fn median_ns(&self) -> f64 {
        median(&self.rounds.iter().map(|round| round.median_ns).collect::<Vec<_>>()).unwrap_or(f64::NAN)
    }

    /// Least time of any round, in nanoseconds.
    #[must_use]
    pub fn min_ns(&self) -> f64 {
        self.rounds.iter().map(|round| round.min_ns).fold(f64::INFINITY, f64::min)
    }

    /// Median over the rounds of their shares of the roofline, and the roof.
    #[must_use]
    pub fn share(&self) -> Option<(f64, Roof)> {
        let shares: Vec<f64> = self.rounds.iter().filter_map(|round| Some(round.share?.0)).collect();
        let roof = self.rounds.iter().find_map(|round| Some(round.share?.1))?;
        Some((median(&shares)?, roof))
    }
}

impl Suite<'_> {
    /// Tunes and measures one line.
    ///
    /// # Errors
    /// When the database fails. What cannot be generated, or a device that fails, is the line's own result.
    pub fn run(&self, line: &Line) -> Result<Entry, SessionError> {
        let math = if line.has_math() { self.options.math } else { MathMode::Ieee };
        let mut entry = Entry {
            line: line.clone(),
            key: None,
            math,
            tuned: Duration::ZERO,
            trials: 0,
            result: Err("interrupted".into()),
        };
        entry.result = match line.workload(math) {
            Ok(workload) => {
                entry.key = Some(workload.key());
                self.tune_and_measure(&workload, &mut entry)?
            }
            Err(problem) => Err(format!("unsupported: {problem}")),
        };
        Ok(entry)
    }

    fn tune_and_measure(&self, workload: &Workload, entry: &mut Entry) -> Result<Result<Timed, String>, SessionError> {
        let start = self.clock.now();
        let bench = match (self.open)(self.options.threads) {
            Ok(bench) => bench,
            Err(error) => return Ok(Err(chain(&error))),
        };
        let target = bench.identity().target.clone();
        let plan = match plan(workload, &target) {
            Ok(plan) => plan,
            Err(error) => return Ok(Err(format!("unsupported: {error}"))),
        };
        let answer = || -> Result<Option<Answer>, SessionError> {
            let database = Database::open(self.writer.path())?;
            Ok(database.lookup(&workload.key(), &target.key.to_string(), GENERATOR)?)
        };
        let stored = answer()?.filter(|_| self.options.missing);
        let answer = match stored {
            Some(stored) => Some(stored),
            None => {
                let plan = match self.narrow(workload, plan)? {
                    Ok(plan) => plan,
                    Err(why) => return Ok(Err(why)),
                };
                let report = self.night(workload, &entry.line.name, plan, bench, start)?;
                entry.tuned = self.clock.now().saturating_sub(start);
                entry.trials = report.0;
                if let (Some(why), None) = (report.1, answer()?) {
                    return Ok(Err(why));
                }
                answer()?
            }
        };
        let Some(answer) = answer else { return Ok(Err("no final was held, so nothing is known to be best".into())) };
        Ok(self.measure(&entry.line, workload, answer))
    }

    /// On several threads, the space of the fastest schedules of one.
    fn narrow(&self, workload: &Workload, plan: SchedulePlan) -> Result<Result<SchedulePlan, String>, SessionError> {
        if self.options.threads == 1 {
            return Ok(Ok(plan));
        }
        let one = match (self.open)(1) {
            Ok(bench) => bench.identity().target.clone(),
            Err(error) => return Ok(Err(chain(&error))),
        };
        let observations =
            Database::open(self.writer.path())?.observations(&workload.key(), &one.key.to_string())?.rows;
        let fastest = narrow::fastest(&observations, FASTEST);
        if fastest.is_empty() {
            return Ok(Err("the file has no times on one thread to begin with; run with --threads 1 first".into()));
        }
        let narrowed =
            search_space::families::plan(workload, &one).map_err(|error| error.to_string()).and_then(|alone| {
                let opened = narrow::opened(&alone.space, &plan.space);
                let candidates = narrow::varied(&fastest, &opened, &plan.space);
                narrow::narrowed(&plan, &candidates).map_err(|error| error.to_string())
            });
        Ok(narrowed)
    }

    /// One night of one workload; its trials, and why it ended early if it did.
    fn night(
        &self,
        workload: &Workload,
        name: &str,
        plan: SchedulePlan,
        bench: Box<dyn Bench>,
        start: Duration,
    ) -> Result<(u64, Option<String>), SessionError> {
        let options = self.options;
        let settings = Settings {
            method: options.method,
            sources: Sources::default(),
            limit: Limit { time: Some(options.time_per), trials: None },
            screen: ScreenOptions::default(),
            finals: FinalsOptions::default(),
            // A narrow space is small enough to try all of it.
            stop_gain: if options.threads == 1 { options.stop_gain } else { 0.0 },
            retry_quarantined: false,
            run: format!("{}-{name}", options.run),
            command: options.command.clone(),
            effective: serde_json::json!({ "threads": options.threads, "time_s": options.time_per.as_secs_f64() }),
        };
        self.writer.save_session(Session {
            id: options.method.session(),
            command: options.command.clone(),
            seed: options.method.seed,
            strategy: options.method.strategy.as_str().into(),
            started_at: self.clock.unix_s(),
            ended_at: None,
            settings: settings.effective.clone(),
        })?;
        let clock = Since { clock: self.clock, start };
        let night = Night {
            writer: self.writer,
            clock: &clock,
            stop: self.stop,
            report: self.report,
            settings: &settings,
            sequence: AtomicU64::new(0),
        };
        let job = Job { workload: workload.clone(), count: 1, bench: 0, plan };
        let report = night.run(vec![job], vec![bench])?;
        let trials = report.jobs.iter().map(|job| job.trials_now).sum();
        let why = report.jobs.into_iter().find_map(|job| match job.ended {
            Ended::Failed(_) | Ended::Stopped => job.ended.reason(),
            Ended::Limit | Ended::Exhausted | Ended::Settled(_) => None,
        });
        Ok((trials, why))
    }

    /// Measures the winner again, in a fresh worker and beside the roofline.
    fn measure(&self, line: &Line, workload: &Workload, answer: Answer) -> Result<Timed, String> {
        let mut bench = (self.open)(self.options.threads).map_err(|error| chain(&error))?;
        let mut timed = Timed { answer, rounds: Vec::new(), prepack_ns: 0.0 };
        let options = ScreenOptions {
            samples: MOST_SAMPLES,
            budget_ns: self.options.round.as_secs_f64() * 1e9,
            ..ScreenOptions::default()
        };
        for _ in 0..self.options.rounds.max(1) {
            if self.stop.asked() && !timed.rounds.is_empty() {
                break;
            }
            let peak = bench.peak().map_err(|error| chain(&error))?.ok();
            let at = self.clock.now();
            let (round, prepack_ns) = self.round(bench.as_mut(), workload, &timed.answer.schedule, &options)?;
            let demand = demand(line, workload, &bench.identity().target);
            let share = peak.and_then(|peak| demand.share(&peak, round.1 / 1e9));
            timed.prepack_ns = prepack_ns;
            timed.rounds.push(Round { min_ns: round.0, median_ns: round.1, samples: round.2, at, share });
        }
        Ok(timed)
    }

    /// Least and median nanoseconds with their number of samples, and the nanoseconds of prepacking.
    fn round(
        &self,
        bench: &mut dyn Bench,
        workload: &Workload,
        schedule: &Schedule,
        options: &ScreenOptions,
    ) -> Result<((f64, f64, usize), f64), String> {
        let measured = bench.measure(workload, schedule, options, &mut || true).map_err(|error| chain(&error))?;
        let median = measured.median_ns().filter(|_| measured.outcome == Outcome::Ok);
        let Some(median) = median else {
            let message = measured.message.unwrap_or_default();
            return Err(format!("the winner failed when it was measured again: {}: {message}", measured.outcome));
        };
        let min = measured.samples_ns.iter().copied().fold(f64::INFINITY, f64::min);
        Ok(((min, median, measured.samples_ns.len()), measured.prepack_ns))
    }
}

/// What a line asks of a target, by the suite's own count of operations and bytes.
fn demand(line: &Line, workload: &Workload, target: &Target) -> Demand {
    let demand = Demand::of(workload, target);
    Demand { operations: line.flops, bytes: demand.bytes.map(|_| line.bytes), ..demand }
}

/// A clock that began later.
struct Since<'a> {
    clock: &'a dyn Clock,
    start: Duration,
}

impl Clock for Since<'_> {
    fn now(&self) -> Duration {
        self.clock.now().saturating_sub(self.start)
    }

    fn unix_s(&self) -> u64 {
        self.clock.unix_s()
    }
}

/// An error with its causes on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use search_space::workload::DType;

    use super::*;

    #[test]
    fn a_line_asks_for_what_its_suite_counts() {
        let target = |l2_bytes| {
            let mut target = search_space::samples::cpu_target("sapphirerapids", &["avx512f", "fma"], 64, 1);
            target.limits.l2_bytes = l2_bytes;
            target
        };
        let text = r#"{"version": 1, "workloads": [{"name": "a", "op": "matmul", "dtype": "bf16",
            "shape": {"M": 64, "N": 64, "K": 64}, "flops": 1000, "bytes": 500, "out_dtype": "bf16"}]}"#;
        let suite = datasets::suite::parse("a.json".as_ref(), text.as_bytes()).unwrap();
        let line = &suite[0];
        let workload = line.workload(MathMode::Ieee).unwrap();
        let far = demand(line, &workload, &target(1 << 10));
        assert_eq!(far, Demand { factors: DType::Bf16, operations: Some(1000), bytes: Some(500) });
        assert_eq!(demand(line, &workload, &target(1 << 20)).bytes, None);
    }

    #[test]
    fn a_line_is_tuned_by_its_own_clock() {
        let clock = crate::clock::fake::FakeClock::default();
        clock.advance(Duration::from_secs(100));
        let own = Since { clock: &clock, start: clock.now() };
        clock.advance(Duration::from_secs(3));
        assert_eq!((own.now(), clock.now()), (Duration::from_secs(3), Duration::from_secs(103)));
    }
}
