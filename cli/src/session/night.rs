//! Runs a night: turns, trials, commits, finals.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use measure::{Demand, Measured, Roof, ScreenOptions};
use search_space::families::SchedulePlan;
use search_space::strategy::{Candidate, Told};
use search_space::{Outcome, Workload};
use tuning_db::{Batch, Database, Observation, Phase, Writer};

use super::COST_NS;
use super::outcome::{Ended, FirstFailure, JobReport, NightReport, Spent, VerdictReport};
use super::{Bench, Method, Search, SessionError, Sources, Stored};
use crate::planner::{HOPELESS, Limit, Planner, Standing};
use crate::report::{Report, TrialReport};
use crate::{Clock, GENERATOR, Stop};

/// How a night is run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How candidates are chosen.
    pub method: Method,
    /// What other searches are learned from.
    pub sources: Sources,
    /// When the night ends.
    pub limit: Limit,
    /// How candidates are screened.
    pub screen: ScreenOptions,
    /// How finalists are compared.
    pub finals: measure::FinalsOptions,
    /// A search ends when its last candidates were expected to shorten the best time by less than this share.
    pub stop_gain: f64,
    /// Candidates that an earlier run died with are tried again.
    pub retry_quarantined: bool,
    /// Name of this run in its observations; unique.
    pub run: String,
    /// The command line.
    pub command: String,
    /// The effective configuration, as it is stored.
    pub effective: serde_json::Value,
}

/// A workload to tune on a device.
pub struct Job {
    /// What.
    pub workload: Workload,
    /// How often the model runs it.
    pub count: u64,
    /// Position of the device.
    pub bench: usize,
    /// Its schedules.
    pub plan: SchedulePlan,
}

/// What all threads of a night share.
pub struct Night<'a> {
    /// The database.
    pub writer: &'a Writer,
    /// Time.
    pub clock: &'a dyn Clock,
    /// Whether to stop.
    pub stop: &'a Stop,
    /// Who is told of progress.
    pub report: &'a dyn Report,
    /// How.
    pub settings: &'a Settings,
    /// Number of the next observation of this run.
    pub sequence: AtomicU64,
}

/// A job while it runs.
pub(super) struct Running {
    pub(super) search: Search,
    pub(super) standing: Standing,
    pub(super) result: JobReport,
    /// Position among the jobs given.
    place: usize,
    /// Position of its device among those of the thread.
    pub(super) bench: usize,
    /// Circumstances recorded with each observation.
    environment: BTreeMap<String, String>,
    /// A measurement whose commit is due with the next one.
    due: Option<(Candidate, Measured, Told)>,
}

/// A device and the jobs on it are worked on by one thread per physical resource.
struct Crew {
    resource: String,
    benches: Vec<Box<dyn Bench>>,
    jobs: Vec<Running>,
}

impl Night<'_> {
    /// Runs `jobs` on `benches` until the limit or until asked to stop.
    ///
    /// # Errors
    /// When the database fails. A device or workload that fails ends its own searches only.
    pub fn run(&self, jobs: Vec<Job>, benches: Vec<Box<dyn Bench>>) -> Result<NightReport, SessionError> {
        let crews = self.crews(jobs, benches)?;
        let results = std::thread::scope(|scope| {
            let threads: Vec<_> =
                crews.into_iter().map(|crew| (crew.resource.clone(), scope.spawn(move || self.work(crew)))).collect();
            let join = |(resource, thread): (String, std::thread::ScopedJoinHandle<'_, _>)| {
                thread.join().unwrap_or_else(|_| Err(SessionError::Panicked { resource }))
            };
            threads.into_iter().map(join).collect::<Vec<Result<Vec<(usize, JobReport)>, SessionError>>>()
        });
        let mut reports: BTreeMap<usize, JobReport> = BTreeMap::new();
        for result in results {
            reports.extend(result?);
        }
        let jobs: Vec<JobReport> = reports.into_values().collect();
        let lost = [Outcome::Timeout, Outcome::Crash, Outcome::LostDevice];
        let lost_workers = jobs.iter().flat_map(|job| lost.iter().filter_map(|o| job.outcomes.get(o))).sum();
        Ok(NightReport { jobs, stopped: self.stop.asked(), wall: self.clock.now(), lost_workers })
    }

    /// Opens every search and puts the jobs of each physical resource together.
    fn crews(&self, jobs: Vec<Job>, benches: Vec<Box<dyn Bench>>) -> Result<Vec<Crew>, SessionError> {
        let database = Database::open(self.writer.path())?;
        let session = self.settings.method.session();
        let known = database.sessions()?.iter().any(|stored| stored.id == session);
        let events = if known { database.events(&session)? } else { Vec::new() };
        let mut crews: Vec<Crew> = Vec::new();
        let mut places = Vec::new();
        for bench in benches {
            let resource = bench.identity().resource.clone();
            let at = crews.iter().position(|crew| crew.resource == resource).unwrap_or_else(|| {
                crews.push(Crew { resource, benches: Vec::new(), jobs: Vec::new() });
                crews.len() - 1
            });
            places.push((at, crews[at].benches.len()));
            crews[at].benches.push(bench);
        }
        for (place, job) in jobs.into_iter().enumerate() {
            let (crew, bench) = places[job.bench];
            let device = &crews[crew].benches[bench];
            let identity = device.identity();
            let target = identity.target.clone();
            let mut environment = identity.environment.clone();
            environment.insert("device".into(), identity.name.clone());
            environment.insert("driver".into(), identity.driver.clone());
            let (key, target_key) = (job.workload.key(), target.key.to_string());
            let mut quarantined = database.quarantined(&key, &target_key)?;
            if self.settings.retry_quarantined {
                let release = quarantined.drain(..).fold(Batch::new(), Batch::release);
                self.writer.submit(release)?.wait()?;
            }
            let found = self.settings.sources.of(&job.workload, &target.key, &job.plan.space)?;
            let stored = Stored {
                events: events.clone(),
                quarantined: quarantined.into_iter().map(|candidate| candidate.schedule).collect(),
                observations: database.observations(&key, &target_key)?.rows,
                sources: found.into_iter().map(|found| found.source).collect(),
            };
            let search = Search::open(&job.workload, &target, job.plan, self.settings.method, stored)?;
            let standing = Standing {
                count: job.count,
                device: bench,
                trials: search.trials(),
                best_s: search.best().map(|best| best.seconds).into_iter().collect(),
                ..Standing::default()
            };
            let result = JobReport {
                workload: job.workload.summary(),
                key,
                count: job.count,
                device: device.name(),
                flops: job.workload.flops(),
                demand: Demand::of(&job.workload, &target),
                peak: None,
                trials: search.trials(),
                trials_now: 0,
                programs: BTreeSet::new(),
                outcomes: BTreeMap::new(),
                failures: BTreeMap::new(),
                default_s: search.default_s(),
                screened_s: None,
                answer: None,
                verdict: VerdictReport::None("no final was held".into()),
                stored: false,
                spent: Spent::default(),
                ended: Ended::Limit,
            };
            self.report.begin(place, &result, self.settings.limit);
            crews[crew].jobs.push(Running { search, standing, result, place, bench, environment, due: None });
        }
        crews.retain(|crew| !crew.jobs.is_empty());
        Ok(crews)
    }

    /// All that happens on one resource.
    fn work(&self, mut crew: Crew) -> Result<Vec<(usize, JobReport)>, SessionError> {
        self.measure_peaks(&mut crew)?;
        let planner = Planner::new(self.settings.limit, crew.jobs.len(), self.settings.finals.clone());
        let mut last = None;
        loop {
            let standings: Vec<Standing> = crew.jobs.iter().map(|job| job.standing.clone()).collect();
            let turn = if self.stop.asked() { None } else { planner.next(&standings, self.clock.now()) };
            let Some(turn) = turn else { break };
            let running = &mut crew.jobs[turn.search];
            let changed = last.replace(turn.search) != Some(turn.search);
            let bench = crew.benches[running.bench].as_mut();
            for trial in 0..turn.trials {
                if !self.trial(running, bench, changed && trial == 0)? || self.stop.asked() {
                    break;
                }
                if self.clock.now() + running.standing.per_trial() >= turn.until {
                    break;
                }
            }
            self.settle(running)?;
        }
        let jobs = crew.jobs.len();
        for (done, running) in crew.jobs.iter_mut().enumerate() {
            if running.standing.trials == 0 && running.result.ended == Ended::Limit && !self.stop.asked() {
                running.result.ended = Ended::Failed("the time was over before its turn; give more --time".into());
            }
            let searched = running.result.trials_now > 0 || !running.search.is_finished();
            if self.stop.asked() {
                running.result.ended = Ended::Stopped;
            } else if searched && !matches!(running.result.ended, Ended::Failed(_)) {
                self.report.final_begins(running.place);
                let bench = crew.benches[running.bench].as_mut();
                let plan = planner.final_plan(&running.standing, self.clock.now(), jobs - done);
                self.hold_final(running, bench, plan)?;
            } else if !searched {
                running.result.stored = true;
                let why = "nothing new was measured, and no earlier final has decided";
                running.result.verdict = VerdictReport::None(why.into());
            }
            self.answer(running)?;
            self.report.end(running.place, &running.result);
        }
        Ok(crew.jobs.into_iter().map(|running| (running.place, running.result)).collect())
    }

    /// Measures the roofline of each device beside the run: absolute figures of a shared machine do not carry over.
    fn measure_peaks(&self, crew: &mut Crew) -> Result<(), SessionError> {
        for (at, bench) in crew.benches.iter_mut().enumerate() {
            if crew.jobs.iter().all(|job| job.bench != at) || self.stop.asked() {
                continue;
            }
            let (device, start) = (bench.name(), self.clock.now());
            let peak = match bench.peak() {
                Ok(Ok(peak)) => peak,
                Ok(Err(failure)) => {
                    tracing::warn!(device, %failure, "the peak could not be measured");
                    continue;
                }
                Err(error) => {
                    fail_all(crew.jobs.iter_mut().filter(|job| job.bench == at), &chain(&error));
                    continue;
                }
            };
            let key = &bench.identity().target.key;
            let known = Roof::ALL.into_iter().filter(|roof| peak.rate(*roof) > 0.0);
            let rows = known.map(|roof| tuning_db::Peak {
                device: key.to_string(),
                what: roof.quantity().into(),
                value: peak.rate(roof),
                measured_at: self.clock.unix_s(),
            });
            self.writer.submit(rows.fold(Batch::new(), Batch::peak))?.wait()?;
            // The roofline's kernels are timed like any other, once for all jobs.
            if let Some(first) = crew.jobs.iter_mut().find(|job| job.bench == at) {
                first.result.spent.time += self.clock.now().saturating_sub(start);
            }
            for job in crew.jobs.iter_mut().filter(|job| job.bench == at) {
                job.result.peak = Some(peak);
                job.standing.bound_s = job.result.demand.bound_s(&peak).map_or(0.0, |(bound, _)| bound);
            }
        }
        Ok(())
    }

    /// One trial; false when the search has ended. `first` after another workload was on the device.
    fn trial(&self, running: &mut Running, bench: &mut dyn Bench, first: bool) -> Result<bool, SessionError> {
        let start = self.clock.now();
        let proposed = running.search.propose();
        let Some(candidate) = proposed else {
            self.settle(running)?;
            running.standing.ended = true;
            running.result.ended = Ended::Exhausted;
            return Ok(false);
        };
        let little = self.settings.stop_gain;
        if running.search.is_settled(little) {
            self.settle(running)?;
            running.standing.ended = true;
            running.result.ended = Ended::Settled(little);
            return Ok(false);
        }
        let about = tuning_db::Candidate {
            workload: running.search.key.clone(),
            target: running.search.target.key.to_string(),
            generator: GENERATOR.into(),
            schedule: candidate.schedule.clone(),
        };
        let session = self.settings.method.session();
        let proposed_at = self.clock.now();

        let options =
            ScreenOptions { cutoff_ns: running.standing.best().map(|s| s * 1e9), ..self.settings.screen.clone() };
        let workload = running.search.workload.clone();
        // The last trial and that this one is about to run are saved while it is compiled, and before it runs.
        let (mut saved, mut save, mut think) = (Ok(()), Duration::ZERO, Duration::ZERO);
        let mut about = Some(about);
        let mut go = || {
            let begin = self.clock.now();
            if let Some(about) = about.take() {
                let session = Some(session.clone());
                saved = self.commit(running, |batch| batch.about_to_run(about, session, self.clock.unix_s()));
            }
            save = self.clock.now().saturating_sub(begin);
            running.search.think();
            think = self.clock.now().saturating_sub(begin + save);
            saved.is_ok()
        };
        let measured = bench.measure(&workload, &candidate.schedule, &options, &mut go);
        saved?;
        let measured = match measured {
            Ok(measured) => measured,
            Err(error) => {
                let shared = !matches!(error, measure::Error::Unverifiable { .. });
                tracing::debug!(device = bench.name(), shared, "a search ends");
                fail_all([running], &chain(&error));
                return Ok(false);
            }
        };
        let measured_at = self.clock.now();
        let told = running.search.told(&candidate, &measured);
        tracing::debug!(
            workload = %running.result.workload,
            device = bench.name(),
            outcome = %measured.outcome,
            schedule = %candidate.schedule,
            propose = ?proposed_at.saturating_sub(start),
            save = ?save,
            think = ?think,
            measure = ?measured_at.saturating_sub(proposed_at),
            worker = ?Duration::from_nanos(measured.breakdown.total_ns),
            tell = ?self.clock.now().saturating_sub(measured_at),
            "trial"
        );
        self.account(running, &candidate, &measured, told, first);
        let loading = Duration::from_nanos(measured.breakdown.loading.total_ns);
        running.due = Some((candidate, measured, told));
        running.standing.spent += self.clock.now().saturating_sub(start + loading);
        let result = &running.result;
        if result.trials_now >= HOPELESS
            && !result.outcomes.contains_key(&Outcome::Ok)
            && running.standing.best().is_none()
        {
            let message =
                format!("none of {} candidates worked; the first failures are listed below", result.trials_now);
            fail_all([running], &message);
            return Ok(false);
        }
        Ok(true)
    }

    /// Adds a measurement to the figures.
    fn account(&self, running: &mut Running, candidate: &Candidate, measured: &Measured, told: Told, first: bool) {
        let Running { standing, result, search, .. } = running;
        let (breakdown, nanos) = (&measured.breakdown, Duration::from_nanos);
        let (compile, mut verify) = (nanos(breakdown.compile_ns), nanos(breakdown.verify_ns));
        if first {
            // Before the first candidate of a turn the worker computes what every other is compared with.
            standing.load = nanos(breakdown.round_trip_ns.saturating_sub(breakdown.total_ns));
            verify += standing.load;
        }
        let loading = &breakdown.loading;
        if loading.total_ns > 0 {
            standing.reload = nanos(loading.total_ns.saturating_sub(loading.spared_ns));
            if loading.case_ns > 0 {
                standing.case = nanos(loading.case_ns);
            }
        }
        result.spent += Spent { compile, verify, time: nanos(breakdown.time_ns), finals: Duration::ZERO };
        standing.prepared += compile + nanos(breakdown.verify_ns);
        standing.trials += 1;
        standing.trials_now += 1;
        result.trials = standing.trials;
        result.trials_now = standing.trials_now;
        *result.outcomes.entry(measured.outcome).or_insert(0) += 1;
        if !measured.kernel.program_hash.is_empty() {
            result.programs.insert(measured.kernel.program_hash.clone());
        }
        if measured.outcome != Outcome::Ok {
            let failure = || FirstFailure {
                schedule: candidate.schedule.clone(),
                message: measured.message.clone().unwrap_or_default(),
            };
            result.failures.entry(measured.outcome).or_insert_with(failure);
        }
        if let (Told::Time { seconds }, None) = (told, standing.best()) {
            standing.best_s.push(seconds);
        } else if let Some(best) = search.best() {
            standing.best_s.push(best.seconds);
        }
        result.default_s = search.default_s();
        result.screened_s = search.best().map(|best| best.seconds);
    }

    /// Commits what is due at the end of a turn.
    fn settle(&self, running: &mut Running) -> Result<(), SessionError> {
        self.commit(running, |batch| batch)
    }

    /// Commits what is due together with `more`; the trial is counted and shown after that.
    fn commit(&self, running: &mut Running, more: impl FnOnce(Batch) -> Batch) -> Result<(), SessionError> {
        let events = running.search.take_events();
        let mut batch = Batch::new();
        if let Some((candidate, measured, _)) = &running.due {
            batch = batch.observation(self.observation(running, candidate, measured));
        }
        self.writer.submit(more(batch.events(events)))?.wait()?;
        if let Some((candidate, measured, told)) = running.due.take() {
            let trial = TrialReport {
                number: running.standing.trials,
                schedule: &candidate.schedule,
                outcome: measured.outcome,
                seconds: if let Told::Time { seconds } = told { Some(seconds) } else { None },
                best_s: running.standing.best(),
            };
            self.report.trial(running.place, &running.result, &trial, self.clock.now());
        }
        Ok(())
    }

    fn observation(&self, running: &Running, candidate: &Candidate, measured: &Measured) -> Observation {
        let hash = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let mut environment = running.environment.clone();
        // A worker that died did not say what it did; the whole request is known all the same.
        let cost_ns = match measured.breakdown.total_ns {
            0 => measured.breakdown.round_trip_ns,
            total_ns => total_ns,
        };
        environment.insert(COST_NS.into(), cost_ns.to_string());
        Observation {
            environment,
            schedule: candidate.schedule.clone(),
            outcome: measured.outcome,
            samples_ns: measured.samples_ns.clone(),
            at_least_ns: measured.censored_at_least_ns,
            program_hash: hash(&measured.kernel.program_hash),
            code_hash: hash(&measured.kernel.code_hash),
            ..self.blank(running, Phase::Screen)
        }
    }

    /// An observation of this run with everything but the result.
    pub(super) fn blank(&self, running: &Running, phase: Phase) -> Observation {
        Observation {
            workload: running.search.key.clone(),
            target: running.search.target.key.to_string(),
            generator: GENERATOR.into(),
            schedule: running.search.default.clone(),
            outcome: Outcome::Ok,
            phase,
            samples_ns: Vec::new(),
            at_least_ns: None,
            environment: running.environment.clone(),
            program_hash: None,
            code_hash: None,
            input: "normal(0,1)".into(),
            run: self.settings.run.clone(),
            sequence: self.sequence.fetch_add(1, Ordering::Relaxed),
            measured_at: self.clock.unix_s(),
        }
    }

    /// What a look-up would answer now.
    fn answer(&self, running: &mut Running) -> Result<(), SessionError> {
        let database = Database::open(self.writer.path())?;
        let target = running.search.target.key.to_string();
        if let Some(answer) = database.lookup(&running.search.key, &target, GENERATOR)? {
            running.result.show(answer, &running.search.default);
        }
        Ok(())
    }
}

/// Ends searches because of an error.
fn fail_all<'a>(running: impl IntoIterator<Item = &'a mut Running>, message: &str) {
    for job in running {
        job.standing.ended = true;
        job.result.ended = Ended::Failed(message.into());
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
#[path = "night_tests.rs"]
mod tests;
