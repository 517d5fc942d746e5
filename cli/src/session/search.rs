//! One search: a workload on a device, its strategy, and the log that it is a fold over.
//!
//! A search only decides; measuring and saving is the [`Night`](super::Night)'s part. Everything it decides becomes an
//! event *before* it is acted upon, and a strategy fed the same events asks for the same next candidates.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cost_model::Source;
use measure::Measured;
use search_space::families::SchedulePlan;
use search_space::space::ParameterSpace;
use search_space::strategy::{Candidate, Strategy, Told};
use search_space::{Outcome, Schedule, Target, Workload};
use tuning_db::{Event, Observation};

use super::known;
use super::log::{ASK, Ask, By, FINAL, Stream, TELL, Tell};
use super::{Method, SessionError, Settling};

/// Candidates in a row whose program is known already, after which the space is taken to be exhausted.
const MOST_KNOWN: usize = 4096;

/// A candidate that worked, for the final.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// Time of one call.
    pub seconds: f64,
    /// Its schedule.
    pub schedule: Schedule,
}

/// One workload on one device.
pub struct Search {
    /// The workload.
    pub workload: Workload,
    /// Its key.
    pub key: String,
    /// What kernels are generated for.
    pub target: Target,
    /// Schedule that is measured first and that the final compares with.
    pub default: Schedule,
    /// Schedules.
    pub space: Arc<ParameterSpace>,
    strategy: Box<dyn Strategy>,
    /// Candidates asked for at once.
    batch: usize,
    stream: Stream,
    /// Asked for and not yet told, in order.
    pending: VecDeque<Candidate>,
    /// Events that are not handed to the writer yet.
    unsaved: Vec<Event>,
    quarantined: BTreeSet<Schedule>,
    /// What was measured of each program of this workload and target, whoever searched.
    programs: BTreeMap<String, Told>,
    /// By time.
    ranked: Vec<Ranked>,
    /// Trials in the log.
    trials: u64,
    /// Time of the default, in seconds.
    default_s: Option<f64>,
    /// Whether a final came after the last trial.
    finished: bool,
    settling: Settling,
}

/// What is stored of a search before it begins.
pub struct Stored {
    /// All events of its session.
    pub events: Vec<Event>,
    /// What must not run again.
    pub quarantined: Vec<Schedule>,
    /// Observations of the workload on the target.
    pub observations: Vec<Observation>,
    /// Rows of other searches of the same kernel, see [`Sources`](super::Sources).
    pub sources: Vec<Source>,
}

impl Search {
    /// Begins or continues the search of `plan` by `method`: replays the log of an earlier run.
    ///
    /// A log that this build does not follow (the space or the strategy changed) is left as it is, and a new one is
    /// begun beside it.
    ///
    /// # Errors
    /// [`SessionError::Log`] when an event cannot be read.
    pub fn open(
        workload: &Workload,
        target: &Target,
        plan: SchedulePlan,
        method: Method,
        stored: Stored,
    ) -> Result<Search, SessionError> {
        let space = Arc::new(plan.space);
        let key = workload.key();
        let target_key = target.key.to_string();
        let own = stored.observations.iter().filter(|observation| observation.generator == crate::GENERATOR);
        let programs = known::transferable(own, |observation| observation.program_hash.clone());
        let session = method.session();
        let base = format!("{:.16}.{:.16}", tuning_db::workload_id(&key), tuning_db::target_id(&target_key));
        for generation in 0u32.. {
            let name = if generation == 0 { base.clone() } else { format!("{base}.{generation}") };
            let mut search = Search {
                workload: workload.clone(),
                key: key.clone(),
                target: target.clone(),
                default: plan.default.clone(),
                space: Arc::clone(&space),
                strategy: method.build(&space, space.config(&plan.default).ok(), &stored.sources),
                batch: method.strategy.batch(),
                stream: Stream { session: session.clone(), name: name.clone(), next: 0 },
                pending: VecDeque::new(),
                unsaved: Vec::new(),
                quarantined: stored.quarantined.iter().cloned().collect(),
                programs: programs.clone(),
                ranked: Vec::new(),
                trials: 0,
                default_s: None,
                finished: false,
                settling: Settling::default(),
            };
            let log = stored.events.iter().filter(|event| event.stream == name);
            if search.replay(log)? {
                return Ok(search);
            }
            tracing::warn!(workload = %workload.summary(), "the stored log does not fit this build; a new one is begun");
        }
        unreachable!("a stream without events is always followed")
    }

    /// Folds stored events into the fresh strategy; false when it does not propose what the log has.
    fn replay<'a>(&mut self, log: impl Iterator<Item = &'a Event>) -> Result<bool, SessionError> {
        let mut asked: BTreeMap<u64, Candidate> = BTreeMap::new();
        for event in log {
            let unreadable = |error: serde_json::Error| SessionError::Log {
                stream: event.stream.clone(),
                sequence: event.sequence,
                reason: error.to_string(),
            };
            self.stream.next = event.sequence + 1;
            match event.kind.as_str() {
                ASK => {
                    let ask: Ask = serde_json::from_value(event.body.clone()).map_err(unreadable)?;
                    let batch = self.ask(ask.n);
                    let same = batch.iter().map(|candidate| &candidate.schedule).eq(&ask.schedules);
                    if !same || batch.first().is_some_and(|candidate| candidate.id != ask.first) {
                        return Ok(false);
                    }
                    asked.extend(batch.into_iter().map(|candidate| (candidate.id, candidate)));
                }
                TELL => {
                    let tell: Tell = serde_json::from_value(event.body.clone()).map_err(unreadable)?;
                    let Some(candidate) = asked.remove(&tell.id) else { return Ok(false) };
                    self.trials += u64::from(tell.by == By::Trial);
                    self.finished = false;
                    self.learn(&candidate, tell.result.into());
                }
                FINAL => self.finished = true,
                _ => {}
            }
        }
        self.pending = asked.into_values().collect();
        Ok(true)
    }

    /// The next candidate to measure; `None` when the space is exhausted. What needs no measuring is told on the way.
    pub fn propose(&mut self) -> Option<Candidate> {
        for _ in 0..MOST_KNOWN {
            if self.pending.is_empty() {
                let batch = self.ask(self.batch);
                let first = batch.first()?.id;
                let schedules = batch.iter().map(|candidate| candidate.schedule.clone()).collect();
                let event = self.stream.event(ASK, &Ask { n: self.batch, first, schedules });
                self.unsaved.push(event);
                self.pending.extend(batch);
            }
            let candidate = self.pending.front()?.clone();
            if self.quarantined.contains(&candidate.schedule) {
                let message = "a run died while this candidate ran, so it is not run again";
                self.tell(&candidate, By::Quarantine, None, Told::Failed(Outcome::Crash), Some(message.into()));
                continue;
            }
            let program = self.program(&candidate.schedule);
            match program.as_ref().and_then(|hash| self.programs.get(hash)).copied() {
                Some(told) => self.tell(&candidate, By::SameProgram, program, told, None),
                None => return Some(candidate),
            }
        }
        None
    }

    fn ask(&mut self, n: usize) -> Vec<Candidate> {
        let batch = self.strategy.ask(n);
        self.settling.asked(&*self.strategy);
        batch
    }

    /// Whether none of the last candidates was expected to shorten the best time by this share of it.
    #[must_use]
    pub fn is_settled(&self, share: f64) -> bool {
        self.settling.is_below(share)
    }

    /// Prepares what is proposed next while the last is compiled; see [`Strategy::think`].
    pub fn think(&mut self) {
        self.strategy.think();
    }

    /// Takes in what became of the candidate that [`Search::propose`] gave.
    pub fn told(&mut self, candidate: &Candidate, measured: &Measured) -> Told {
        let told = known::told(measured.outcome, measured.censored_at_least_ns, &measured.samples_ns);
        let program = Some(measured.kernel.program_hash.clone()).filter(|hash| !hash.is_empty());
        self.trials += 1;
        self.tell(candidate, By::Trial, program, told, measured.message.clone());
        told
    }

    /// Notes that a final was held.
    pub fn finish(&mut self, verdict: &serde_json::Value) {
        let event = self.stream.event(FINAL, verdict);
        self.unsaved.push(event);
        self.finished = true;
    }

    /// Whether a final was held since the last trial.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// The events since the last call; they belong into the next commit.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.unsaved)
    }

    /// Trials, those of earlier runs included.
    #[must_use]
    pub fn trials(&self) -> u64 {
        self.trials
    }

    /// The fastest so far.
    #[must_use]
    pub fn best(&self) -> Option<&Ranked> {
        self.ranked.first()
    }

    /// Time of the default in screening, in seconds.
    #[must_use]
    pub fn default_s(&self) -> Option<f64> {
        self.default_s
    }

    /// Whether the default must not run: a run died while it ran.
    #[must_use]
    pub fn default_quarantined(&self) -> bool {
        self.quarantined.contains(&self.default)
    }

    /// Up to `n` schedules for the final, the fastest first, without the default and without two of one program.
    #[must_use]
    pub fn finalists(&self, n: usize) -> Vec<Schedule> {
        let mut programs = BTreeSet::from([self.program(&self.default)]);
        let mut chosen = Vec::new();
        for Ranked { schedule, .. } in &self.ranked {
            if chosen.len() == n {
                break;
            }
            if *schedule != self.default && programs.insert(self.program(schedule)) {
                chosen.push(schedule.clone());
            }
        }
        chosen
    }

    /// The candidates that would be measured next, as far as they follow from the log alone: the rest of the present
    /// batch, or a whole new one.
    pub fn proposals(&mut self, n: usize) -> Vec<Schedule> {
        if self.propose().is_none() {
            return Vec::new();
        }
        let known = |schedule: &Schedule| {
            self.quarantined.contains(schedule)
                || self.program(schedule).is_some_and(|hash| self.programs.contains_key(&hash))
        };
        let mut proposed = Vec::new();
        let mut programs = BTreeSet::new();
        for candidate in self.pending.iter().filter(|candidate| !known(&candidate.schedule)) {
            if proposed.len() < n && self.program(&candidate.schedule).is_none_or(|hash| programs.insert(hash)) {
                proposed.push(candidate.schedule.clone());
            }
        }
        proposed
    }

    /// Hash of the program of a schedule; `None` when it cannot be lowered, which the worker will say.
    fn program(&self, schedule: &Schedule) -> Option<String> {
        // A fault of lowering is one candidate's, never the night's.
        let hash = || codegen::program_hash(&self.workload, &self.target, schedule);
        catch_unwind(AssertUnwindSafe(hash)).ok()?.ok()
    }

    fn tell(&mut self, candidate: &Candidate, by: By, program: Option<String>, told: Told, message: Option<String>) {
        let front = self.pending.pop_front();
        debug_assert_eq!(front.map(|front| front.id), Some(candidate.id), "candidates are told in order");
        let event = self.stream.event(TELL, &Tell { id: candidate.id, by, result: told.into(), message });
        self.unsaved.push(event);
        if let Some(hash) = program {
            self.programs.entry(hash).or_insert(told);
        }
        self.finished = false;
        self.learn(candidate, told);
    }

    fn learn(&mut self, candidate: &Candidate, told: Told) {
        self.strategy.tell(candidate.id, told);
        let Told::Time { seconds } = told else { return };
        if candidate.schedule == self.default {
            self.default_s = Some(seconds);
        }
        let at = self.ranked.partition_point(|ranked| ranked.seconds <= seconds);
        self.ranked.insert(at, Ranked { seconds, schedule: candidate.schedule.clone() });
    }
}
