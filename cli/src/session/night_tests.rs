//! Whole nights on a fake device and a fake clock, with a real database.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use measure::protocol::Breakdown;
use measure::{
    Comparison, Error, Failure, Finalist, FinalistRole, Finals, FinalsOptions, Identity, KernelInfo, Measured, Peak,
    Roof, ScreenOptions, Verdict,
};
use search_space::families::plan;
use search_space::target::{Limits, TargetKey};
use search_space::{Outcome, Schedule, Target, Workload};
use tuning_db::{Database, Provenance, Writer, WriterOptions};

use crate::clock::fake::FakeClock;
use crate::planner::Limit;
use crate::report::{self, Report, TrialReport};
use crate::session::{
    Bench, Ended, Job, JobReport, Method, ModelKind, Night, NightReport, Settings, Sources, StrategyKind, VerdictReport,
};
use crate::{Clock, GENERATOR, Stop};

const WORKLOAD: &str = "matmul m=24 n=40 k=56 dtype=f32";

fn target() -> Target {
    Target {
        key: TargetKey::parse("tt1;cpu;sapphirerapids;core;avx512f,fma;1").unwrap(),
        limits: Limits {
            vector_bytes: 64,
            vector_registers: 32,
            l1_bytes: 48 << 10,
            l2_bytes: 2 << 20,
            shared_bytes: 0,
            workgroup_invocations: 0,
            grid_per_dim: 0,
            loop_iterations: 0,
            buffer_bytes: 0,
        },
    }
}

/// What a fake device has seen, shared with the test.
#[derive(Default)]
struct Seen {
    measured: Mutex<Vec<Schedule>>,
    finals: AtomicUsize,
    busy: AtomicUsize,
    overlapped: AtomicUsize,
}

type Hook = Box<dyn Fn(&Workload, &Schedule, usize) -> Option<Outcome> + Send>;

struct FakeBench {
    name: String,
    identity: Identity,
    clock: Arc<FakeClock>,
    trial: Duration,
    seen: Arc<Seen>,
    /// May fail a candidate, or look around while it runs.
    hook: Hook,
    gives_up_after: usize,
    gain: bool,
}

const PEAK: Peak = Peak {
    flops_per_s: 1e11,
    amx_bf16_flops_per_s: 2e12,
    amx_int8_ops_per_s: 0.0,
    vnni_int8_ops_per_s: 0.0,
    near_bytes_per_s: 0.0,
    bytes_per_s: 1e10,
};

/// A time that depends on the schedule alone, 0.5 to 1.5 ms.
fn time_ns(schedule: &Schedule) -> f64 {
    let hash = blake3_like(&schedule.to_string());
    500_000.0 + (hash % 1_000_000) as f64
}

/// Time of a schedule in the final / in the search.
const FINAL: f64 = 1.25;

fn blake3_like(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3)) >> 11
}

impl Bench for FakeBench {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn measure(
        &mut self,
        workload: &Workload,
        schedule: &Schedule,
        _: &ScreenOptions,
        go: &mut dyn FnMut() -> bool,
    ) -> Result<Measured, Error> {
        if !go() {
            return Err(Error::Withheld);
        }
        self.seen
            .overlapped
            .fetch_add(usize::from(self.seen.busy.fetch_add(1, Ordering::SeqCst) > 0), Ordering::SeqCst);
        self.clock.advance(self.trial);
        let number = {
            let mut measured = self.seen.measured.lock().unwrap();
            measured.push(schedule.clone());
            measured.len()
        };
        let failure = (self.hook)(workload, schedule, number);
        self.seen.busy.fetch_sub(1, Ordering::SeqCst);
        if number > self.gives_up_after {
            return Err(Error::GivenUp { device: self.name.clone(), failures: 3, last: "it smokes".into() });
        }
        if let Some(outcome) = failure {
            return Ok(Measured::failed(outcome, "seeded"));
        }
        let hash = codegen::lower(workload, &self.identity.target, schedule).unwrap().program_hash();
        Ok(Measured {
            outcome: Outcome::Ok,
            samples_ns: vec![time_ns(schedule); 3],
            kernel: KernelInfo { program_hash: hash, ..KernelInfo::default() },
            breakdown: Breakdown { compile_ns: 1_000_000, verify_ns: 2_000_000, ..Breakdown::default() },
            message: None,
            ..Measured::failed(Outcome::Ok, "")
        })
    }

    fn finals(
        &mut self,
        _: &Workload,
        candidates: &[Schedule],
        default: &Schedule,
        incumbent: Option<&Schedule>,
        _: &FinalsOptions,
    ) -> Result<Finals, Error> {
        self.clock.advance(Duration::from_secs(1));
        self.seen.finals.fetch_add(1, Ordering::SeqCst);
        let roles = candidates.iter().map(|s| (FinalistRole::Candidate, s)).chain([(FinalistRole::Default, default)]);
        let entries: Vec<Finalist> = roles
            .chain(incumbent.map(|s| (FinalistRole::Incumbent, s)))
            .map(|(role, schedule)| Finalist {
                role,
                schedule: schedule.clone(),
                outcome: Outcome::Ok,
                kernel: KernelInfo::default(),
                // In a final everything takes longer than in the search.
                samples_ns: vec![FINAL * time_ns(schedule); 8],
                message: None,
            })
            .collect();
        let ratio = Comparison { speedup: 1.5, low: 1.4, high: 1.6 };
        let even = Comparison { speedup: 1.0, low: 0.99, high: 1.01 };
        let verdict = match self.gain {
            true => Verdict::Winner { entry: 0, over_default: ratio },
            false => Verdict::NoGain { entry: candidates.len(), best: Some(even) },
        };
        Ok(Finals { entries, verdict, over_incumbent: None, workers: 3 })
    }

    fn peak(&mut self) -> Result<Result<Peak, Failure>, Error> {
        Ok(Ok(PEAK))
    }
}

/// Remembers every trial that was shown, and how many observations were stored then.
struct Watch {
    path: PathBuf,
    shown: Mutex<Vec<(u64, u64)>>,
}

impl Report for Watch {
    fn begin(&self, _: usize, _: &JobReport, _: Limit) {}

    fn trial(&self, _: usize, _: &JobReport, trial: &TrialReport<'_>, _: Duration) {
        let stored = Database::open(&self.path).unwrap().info().unwrap().rows["observation"];
        self.shown.lock().unwrap().push((trial.number, stored));
    }

    fn final_begins(&self, _: usize) {}

    fn end(&self, _: usize, _: &JobReport) {}
}

/// A night in a folder of its own.
struct Lab {
    folder: tempfile::TempDir,
    clock: Arc<FakeClock>,
    seen: Arc<Seen>,
    stop: Stop,
    seed: u64,
    runs: AtomicU64,
    retry: bool,
    strategy: StrategyKind,
    stop_gain: f64,
}

impl Lab {
    fn new() -> Lab {
        Lab {
            folder: tempfile::tempdir().unwrap(),
            clock: Arc::default(),
            seen: Arc::default(),
            stop: Stop::new(),
            seed: 7,
            runs: AtomicU64::new(0),
            retry: false,
            strategy: StrategyKind::Evolution,
            stop_gain: 0.0,
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("night.tune")
    }

    fn bench(&self, name: &str, resource: &str) -> FakeBench {
        FakeBench {
            name: name.into(),
            identity: Identity {
                target: target(),
                name: "a fake".into(),
                driver: "none".into(),
                environment: BTreeMap::new(),
                resource: resource.into(),
            },
            clock: Arc::clone(&self.clock),
            trial: Duration::from_millis(100),
            seen: Arc::clone(&self.seen),
            hook: Box::new(|_, _, _| None),
            gives_up_after: usize::MAX,
            gain: true,
        }
    }

    fn run(
        &self,
        workloads: &[(&str, usize)],
        benches: Vec<FakeBench>,
        limit: Limit,
    ) -> (NightReport, Vec<(u64, u64)>) {
        let writer = Writer::open(self.path(), WriterOptions::default()).unwrap();
        let jobs = workloads.iter().map(|(text, bench)| {
            let workload: Workload = text.parse().unwrap();
            let plan = plan(&workload, &target()).unwrap();
            Job { workload, count: 1, bench: *bench, plan }
        });
        let method = Method { strategy: self.strategy, model: ModelKind::None, seed: self.seed, sources: 0 };
        let settings = Settings {
            method,
            sources: Sources::default(),
            limit,
            screen: ScreenOptions::default(),
            finals: FinalsOptions::default(),
            stop_gain: self.stop_gain,
            retry_quarantined: self.retry,
            run: format!("run-{}", self.runs.fetch_add(1, Ordering::SeqCst)),
            command: "test".into(),
            effective: serde_json::json!({}),
        };
        let session = tuning_db::Session {
            id: method.session(),
            command: "test".into(),
            seed: self.seed,
            strategy: self.strategy.as_str().into(),
            started_at: self.clock.unix_s(),
            ended_at: None,
            settings: serde_json::json!({}),
        };
        writer.save_session(session).unwrap();
        let watch = Watch { path: self.path(), shown: Mutex::default() };
        let night = Night {
            writer: &writer,
            clock: &*self.clock,
            stop: &self.stop,
            report: &watch,
            settings: &settings,
            sequence: AtomicU64::new(0),
        };
        let benches = benches.into_iter().map(|bench| Box::new(bench) as Box<dyn Bench>).collect();
        let report = night.run(jobs.collect(), benches).unwrap();
        writer.close().unwrap();
        (report, watch.shown.into_inner().unwrap())
    }

    fn trials(&self, trials: u64) -> (NightReport, Vec<(u64, u64)>) {
        let limit = Limit { trials: Some(trials), time: None };
        self.run(&[(WORKLOAD, 0)], vec![self.bench("cpu", "host-cpu")], limit)
    }

    fn measured(&self) -> Vec<Schedule> {
        self.seen.measured.lock().unwrap().clone()
    }
}

fn key(text: &str) -> String {
    text.parse::<Workload>().unwrap().key()
}

fn quarantined(path: &Path) -> Vec<Schedule> {
    let all = Database::open(path).unwrap().all_quarantined().unwrap();
    all.into_iter().map(|candidate| candidate.schedule).collect()
}

#[test]
fn a_search_ends_when_little_is_left_to_gain_and_says_so() {
    let mut lab = Lab::new();
    (lab.strategy, lab.stop_gain) = (StrategyKind::Gp, 0.02);
    let (report, _) = lab.trials(400);
    let job = &report.jobs[0];
    assert!(job.trials > 24 && job.trials < 400, "{}", job.trials);
    assert_eq!(job.ended, Ended::Settled(0.02));
    let reason = job.ended.reason().unwrap();
    assert!(reason.contains("expected to gain 2 % or more; --stop-gain 0"), "{reason}");
    assert!(Ended::Settled(1e-6).reason().unwrap().contains("to gain 0.0001 % or more"));
    assert_eq!(lab.seen.finals.load(Ordering::SeqCst), 1, "it ends with a final like any other");
    let settled = job.trials;
    // The log says so too.
    let (again, _) = lab.trials(400);
    assert_eq!((again.jobs[0].trials, again.jobs[0].ended.clone()), (settled, Ended::Settled(0.02)));
    lab.stop_gain = 0.0;
    let (on, _) = lab.trials(settled + 5);
    assert_eq!((on.jobs[0].trials, on.jobs[0].ended.clone()), (settled + 5, Ended::Limit));
}

#[test]
fn the_default_is_measured_first_and_the_winner_is_looked_up() {
    let lab = Lab::new();
    let (report, shown) = lab.trials(20);
    let default = plan(&WORKLOAD.parse().unwrap(), &target()).unwrap().default;
    assert_eq!(lab.measured()[0], default);
    let job = &report.jobs[0];
    assert_eq!((job.trials, job.trials_now, lab.seen.finals.load(Ordering::SeqCst)), (20, 20, 1));
    assert!(matches!(job.verdict, VerdictReport::Keep { ratio: 1.5, .. }), "{:?}", job.verdict);
    let answer = Database::open(lab.path()).unwrap().lookup(&key(WORKLOAD), &target().key.to_string(), GENERATOR);
    let answer = answer.unwrap().unwrap();
    assert_eq!(
        (answer.provenance, Some(&answer.schedule)),
        (Provenance::Winner, job.answer.as_ref().map(|a| &a.schedule))
    );
    assert_eq!(job.spent.compile, Duration::from_millis(20));
    // All operands fit the cache, so memory is no bound; it is for a product with a matrix of 64 MB.
    assert_eq!(job.share_of_peak(1.0).unwrap().1, Roof::Fma);
    let large = [("gemv m=4096 k=4096 dtype=f32", 0)];
    let (report, _) = lab.run(&large, vec![lab.bench("cpu", "host-cpu")], Limit { trials: Some(1), time: None });
    assert_eq!(report.jobs[0].share_of_peak(1.0).unwrap().1, Roof::Read);
    // Each trial is shown once, in order, and never before its observation is on the disk.
    assert_eq!(shown.iter().map(|trial| trial.0).collect::<Vec<_>>(), (1..=20).collect::<Vec<_>>());
    assert!(shown.iter().all(|(number, stored)| stored >= number), "{shown:?}");
}

#[test]
fn each_job_is_under_the_roof_of_its_own_type_and_every_peak_is_stored() {
    let lab = Lab::new();
    let limit = Limit { trials: Some(1), time: None };
    let (report, _) = lab.run(&[("matmul m=24 n=40 k=56 dtype=bf16", 0)], vec![lab.bench("cpu", "host-cpu")], limit);
    let job = &report.jobs[0];
    let (share, roof) = job.share_of_peak(1.0).unwrap();
    assert_eq!((share, roof), (job.flops as f64 / 2e12, Roof::AmxBf16));
    let peaks = Database::open(lab.path()).unwrap().peaks(&target().key.to_string()).unwrap();
    let rates: BTreeMap<String, f64> = peaks.into_iter().map(|peak| (peak.what, peak.value)).collect();
    // What the device has; a unit that it lacks leaves no row.
    let known = [Roof::Fma, Roof::AmxBf16, Roof::Read].map(|roof| (roof.quantity().to_string(), PEAK.rate(roof)));
    assert_eq!(rates, known.into());
}

#[test]
fn an_interrupted_night_goes_on_with_the_same_candidates() {
    let whole = Lab::new();
    whole.trials(30);
    let parts = Lab::new();
    for trials in [1, 2, 13, 30] {
        parts.trials(trials);
    }
    assert_eq!(parts.measured(), whole.measured());
    // What was reached before is not run again, and needs no other final.
    let finals = parts.seen.finals.load(Ordering::SeqCst);
    let (report, _) = parts.trials(30);
    assert_eq!((report.jobs[0].trials, report.jobs[0].trials_now), (30, 0));
    assert_eq!((parts.measured().len(), parts.seen.finals.load(Ordering::SeqCst)), (30, finals));
    // Times and verdict of the stored final, and none of the search beside them.
    let job = &report.jobs[0];
    assert!(job.shows_stored() && job.answer.is_some());
    assert_eq!(job.verdict, VerdictReport::Keep { ratio: 1.5, lo: 1.4, hi: 1.6 });
    let near = |time: Option<f64>, ns: f64| (time.unwrap() * 1e9 / ns - 1.0).abs() < 1e-6;
    assert!(near(job.default_s, FINAL * time_ns(&parts.measured()[0])), "{:?}", job.default_s);
    assert!(near(job.best_s(), FINAL * time_ns(&job.answer.as_ref().unwrap().schedule)), "{:?}", job.best_s());
    let (json, table) = (report::json::workload(job), report::table::night(&report).join("\n"));
    assert_eq!((&json["verdict"], &json["speedup"]), (&"keep".into(), &1.5.into()));
    assert!(json["message"].as_str().unwrap().ends_with("this is the stored answer of an earlier run"), "{json}");
    assert!(table.contains("1.50x") && table.contains("stored answer of an earlier run"), "{table}");
}

#[test]
fn another_seed_is_another_search() {
    let (one, mut other) = (Lab::new(), Lab::new());
    other.seed = 8;
    one.trials(20);
    other.trials(20);
    assert_ne!(one.measured(), other.measured());
}

#[test]
fn a_candidate_is_on_the_disk_before_it_runs_and_off_after() {
    let lab = Lab::new();
    let mut bench = lab.bench("cpu", "host-cpu");
    let path = lab.path();
    let faults = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&faults);
    bench.hook = Box::new(move |_, schedule, _| {
        counted.fetch_add(usize::from(quarantined(&path) != [schedule.clone()]), Ordering::SeqCst);
        None
    });
    lab.run(&[(WORKLOAD, 0)], vec![bench], Limit { trials: Some(10), time: None });
    assert_eq!(faults.load(Ordering::SeqCst), 0);
    assert!(quarantined(&lab.path()).is_empty());
}

#[test]
fn what_a_dead_run_left_behind_never_runs_again() {
    let lab = Lab::new();
    lab.trials(3);
    // The run dies with its fourth candidate.
    let whole = Lab::new();
    whole.trials(6);
    let fourth = whole.measured()[3].clone();
    let writer = Writer::open(lab.path(), WriterOptions::default()).unwrap();
    let candidate = tuning_db::Candidate {
        workload: key(WORKLOAD),
        target: target().key.to_string(),
        generator: GENERATOR.into(),
        schedule: fourth.clone(),
    };
    writer.about_to_run(candidate, None, 0).unwrap();
    writer.close().unwrap();
    let (report, _) = lab.trials(6);
    assert!(!lab.measured().contains(&fourth));
    assert_eq!(report.jobs[0].trials, 6, "it is no trial");
    assert_eq!(quarantined(&lab.path()), std::slice::from_ref(&fourth));
    // Asked to, it is tried again by a new search.
    let mut again = lab;
    again.retry = true;
    again.seed = 9;
    again.trials(1);
    assert!(quarantined(&again.path()).is_empty());
}

#[test]
fn a_quarantined_default_is_not_run_in_the_final_either() {
    let lab = Lab::new();
    let default = plan(&WORKLOAD.parse().unwrap(), &target()).unwrap().default;
    let writer = Writer::open(lab.path(), WriterOptions::default()).unwrap();
    let (workload, target) = (key(WORKLOAD), target().key.to_string());
    let candidate = tuning_db::Candidate { workload, target, generator: GENERATOR.into(), schedule: default.clone() };
    writer.about_to_run(candidate, None, 0).unwrap();
    writer.close().unwrap();
    let (report, _) = lab.trials(5);
    assert!(!lab.measured().contains(&default));
    assert_eq!(lab.seen.finals.load(Ordering::SeqCst), 0);
    assert!(matches!(&report.jobs[0].verdict, VerdictReport::None(why) if why.contains("--retry-quarantined")));
}

#[test]
fn the_deadline_holds_with_the_finals_inside() {
    let lab = Lab::new();
    let workloads = [(WORKLOAD, 0), ("matmul m=32 n=32 k=32 dtype=f32", 0), ("matmul m=17 n=19 k=23 dtype=f32", 0)];
    let limit = Limit { time: Some(Duration::from_secs(60)), trials: None };
    let (report, _) = lab.run(&workloads, vec![lab.bench("cpu", "host-cpu")], limit);
    assert_eq!(lab.seen.finals.load(Ordering::SeqCst), 3);
    let wall = report.wall.as_secs_f64();
    assert!((30.0..=60.2).contains(&wall), "{wall}");
    assert!(
        report.jobs.iter().all(|job| job.trials > 50),
        "{:?}",
        report.jobs.iter().map(|j| j.trials).collect::<Vec<_>>()
    );
}

#[test]
fn asked_to_stop_it_saves_and_can_go_on() {
    let lab = Arc::new(Lab::new());
    let mut bench = lab.bench("cpu", "host-cpu");
    let stopping = Arc::clone(&lab);
    bench.hook = Box::new(move |_, _, number| {
        if number == 5 {
            stopping.stop.ask();
        }
        None
    });
    let (report, shown) = lab.run(&[(WORKLOAD, 0)], vec![bench], Limit { trials: Some(20), time: None });
    assert!(report.stopped);
    assert_eq!((report.jobs[0].trials, report.jobs[0].ended.clone(), shown.len()), (5, Ended::Stopped, 5));
    assert_eq!(lab.seen.finals.load(Ordering::SeqCst), 0, "no final after Ctrl-C");
    let whole = Lab::new();
    whole.trials(20);
    assert_eq!(lab.measured(), whole.measured()[..5]);
}

#[test]
fn a_device_that_is_given_up_ends_its_own_searches_only() {
    let lab = Lab::new();
    let mut broken = lab.bench("broken", "gpu-0");
    broken.seen = Arc::default();
    broken.gives_up_after = 3;
    let limit = Limit { trials: Some(10), time: None };
    let (report, _) = lab.run(
        &[(WORKLOAD, 0), ("matmul m=32 n=32 k=32 dtype=f32", 1)],
        vec![broken, lab.bench("cpu", "host-cpu")],
        limit,
    );
    assert!(
        matches!(&report.jobs[0].ended, Ended::Failed(why) if why.contains("it smokes")),
        "{:?}",
        report.jobs[0].ended
    );
    assert_eq!((report.jobs[0].trials, report.jobs[1].trials), (3, 10));
}

#[test]
fn hopeless_searches_are_given_up() {
    let lab = Lab::new();
    let mut bench = lab.bench("cpu", "host-cpu");
    bench.hook = Box::new(|_, _, _| Some(Outcome::Wrong));
    let (report, _) = lab.run(&[(WORKLOAD, 0)], vec![bench], Limit { trials: Some(1000), time: None });
    let job = &report.jobs[0];
    assert_eq!(job.trials, crate::planner::HOPELESS);
    assert!(matches!(&job.ended, Ended::Failed(why) if why.contains("none of 64 candidates worked")));
    assert_eq!((job.failures.len(), job.failures[&Outcome::Wrong].message.as_str()), (1, "seeded"));
    assert!(job.answer.is_none());
}

#[test]
fn one_program_is_measured_once() {
    let lab = Lab::new();
    // So small that many schedules lower to the same program.
    let small = "matmul m=1 n=2 k=3 dtype=f32";
    let (report, _) =
        lab.run(&[(small, 0)], vec![lab.bench("cpu", "host-cpu")], Limit { trials: Some(60), time: None });
    let workload: Workload = small.parse().unwrap();
    let measured = lab.measured();
    let programs: BTreeSet<String> =
        measured.iter().map(|s| codegen::lower(&workload, &target(), s).unwrap().program_hash()).collect();
    assert_eq!(programs.len(), measured.len());
    assert_eq!(report.jobs[0].programs.len(), measured.len());
    // Another search of the same file reuses them all.
    let mut other = lab;
    other.seed = 99;
    let before = other.measured().len();
    other.run(&[(small, 0)], vec![other.bench("cpu", "host-cpu")], Limit { trials: Some(5), time: None });
    let workload: Workload = small.parse().unwrap();
    for schedule in &other.measured()[before..] {
        let hash = codegen::lower(&workload, &target(), schedule).unwrap().program_hash();
        assert!(!programs.contains(&hash), "{schedule}");
    }
}

#[test]
fn devices_of_one_resource_take_turns() {
    let lab = Lab::new();
    let limit = Limit { trials: Some(15), time: None };
    let benches = vec![lab.bench("cpu", "host-cpu"), lab.bench("vulkan", "host-cpu")];
    let (report, _) = lab.run(&[(WORKLOAD, 0), ("matmul m=32 n=32 k=32 dtype=f32", 1)], benches, limit);
    assert_eq!(report.jobs.iter().map(|job| job.trials).collect::<Vec<_>>(), [15, 15]);
    assert_eq!(lab.seen.overlapped.load(Ordering::SeqCst), 0);
}

#[test]
fn no_gain_is_said_and_the_default_answered() {
    let lab = Lab::new();
    let mut bench = lab.bench("cpu", "host-cpu");
    bench.gain = false;
    let (report, _) = lab.run(&[(WORKLOAD, 0)], vec![bench], Limit { trials: Some(10), time: None });
    let job = &report.jobs[0];
    assert_eq!(job.verdict, VerdictReport::NoGain { best: Some((1.0, 0.99, 1.01)) });
    let answer = job.answer.as_ref().unwrap();
    assert_eq!(answer.provenance, Provenance::Default);
    assert_eq!(answer.schedule, lab.measured()[0]);
    // Again, with nothing left to do: the default is the best, by one and the same time.
    let again = lab.run(&[(WORKLOAD, 0)], vec![lab.bench("cpu", "host-cpu")], Limit { trials: Some(10), time: None }).0;
    let job = &again.jobs[0];
    assert_eq!((job.shows_stored(), &job.verdict), (true, &VerdictReport::NoGain { best: None }));
    assert!(job.default_s.is_some() && job.default_s == job.best_s(), "{:?} {:?}", job.default_s, job.best_s());
}
