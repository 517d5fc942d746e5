//! `tune`: a night.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use cli::Clock;
use cli::planner::Limit;
use cli::report::{Console, Show, json, table};
use cli::session::{self, Bench, Job, Method, Night, NightReport, Settings};
use datasets::Task;
use measure::{DeviceHandle, DeviceSpec, FinalsOptions, ScreenOptions};
use search_space::families::plan;
use serde_json::{Value, json};
use tuning_db::{Database, DbError, Session, Writer, WriterOptions};

use super::arguments::{MethodArguments, Processor, Sources, device, duration, open, share, workload};
use super::interrupt::{STOP, stop_on_signals};
use super::{Context, Ending, dry_run, say, tasks};

/// Search for faster schedules and store what was found
///
/// Every candidate is compiled, verified against a reference and timed in a worker process, and is on the disk before it
/// is counted. At the end the best are compared with the default in fresh workers; only what the interval supports is
/// called faster.
///
/// Can be interrupted and resumed: Ctrl-C once finishes the measurement under way, saves, prints the table and exits with
/// 130; twice stops now. The same command on the same file goes on where it ended: a search is known by its workload,
/// device, strategy, model and seed. --trials counts those of earlier runs, --time is for this run.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Tune {
    /// Workload: a key, or sugar such as 'matmul m=512 n=512 k=512 dtype=f32'; several are allowed
    #[arg(value_name = "WORKLOAD", help_heading = "What")]
    workloads: Vec<String>,
    #[command(flatten)]
    sources: Sources,
    /// Only the N workloads with the largest share of the arithmetic; DEVICE=N for one device; repeatable
    #[arg(long, value_name = "[DEVICE=]N", help_heading = "What")]
    top: Vec<String>,
    /// Device: cpu, cpu:threads=N, vulkan, vulkan:N; repeatable
    #[arg(long, value_name = "DEVICE", required = true, help_heading = "Where")]
    device: Vec<String>,
    /// Threads of the CPU device [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024), help_heading = "Where")]
    threads: Option<u64>,
    #[command(flatten, next_help_heading = "Where")]
    processor: Processor,
    /// Tuning database; made when it is not there
    #[arg(long, value_name = "FILE", required_unless_present = "dry_run", help_heading = "Where")]
    db: Option<PathBuf>,
    /// Time for everything, such as 90s, 2m or 8h [default: 1m unless --trials is given]
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "How long")]
    time: Option<Duration>,
    /// Trials of each workload on each device
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "How long")]
    trials: Option<u64>,
    /// A search is over when its last 16 candidates were each expected to shorten the best time by less than this share;
    /// 0 goes on to the limit (docs/search.md has what it saves and costs); only --strategy gp knows what to expect
    #[arg(long, value_name = "SHARE", value_parser = share, default_value_t = STOP_GAIN, help_heading = "How long")]
    stop_gain: f64,
    /// Most time for one candidate; then its worker is killed
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s", help_heading = "How long")]
    timeout: Duration,
    #[command(flatten)]
    method: MethodArguments,
    /// Try candidates again that an earlier run died with
    #[arg(long, help_heading = "Search")]
    retry_quarantined: bool,
    /// Print workloads, spaces, defaults and the effective configuration; measure and write nothing
    #[arg(long, help_heading = "Output")]
    dry_run: bool,
    /// One JSON object per trial, per workload and a summary on stdout (docs/cli.md)
    #[arg(long, help_heading = "Output")]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  tilewright tune 'matmul m=512 n=512 k=512 dtype=f32' --device cpu --trials 200 --db night.tune
  tilewright tune --model resnet50.onnx --device cpu --device vulkan --top cpu=5 --top vulkan=2 --time 2m --db night.tune
  tilewright tune --list night.txt --device cpu --threads 2 --time 8h --dry-run";

/// Time for everything when no limit is given.
const DEFAULT_TIME: Duration = Duration::from_secs(60);

/// Share of the best time that one more candidate is expected to gain, below which it is not worth its measurement. Models
/// expect too little: on recorded kernels ten times more would lose a 20th of the time in twice as many searches.
pub(super) const STOP_GAIN: f64 = 1e-6;

/// What is to be done, after everything was found to be good.
pub(super) struct Planned {
    pub(super) jobs: Vec<Job>,
    pub(super) devices: Vec<DeviceHandle>,
    pub(super) limit: Limit,
    method: Method,
    learned_from: session::Sources,
    pub(super) effective: Value,
}

impl Tune {
    pub(super) fn run(&self, context: &Context) -> anyhow::Result<Ending> {
        let planned = self.plan(context)?;
        if self.dry_run {
            return dry_run::print(&planned, self.json, context);
        }
        let path = self.db.as_deref().expect("invariant: clap requires --db without --dry-run");
        refuse_damaged(&planned, path)?;
        let writer = Writer::open(path, WriterOptions::default())?;
        stop_on_signals()?;
        let report = match self.night(planned, &writer, path, context) {
            Ok(report) => report,
            // That the file was taken away explains whatever else could not be read or written.
            Err(error) => match writer.close() {
                Err(displaced @ DbError::Displaced { .. }) => return Err(displaced.into()),
                _ => return Err(error),
            },
        };
        writer.close()?;
        if self.json {
            for job in &report.jobs {
                context.output.json(&json::workload(job))?;
            }
            context.output.json(&json::summary(&report))?;
        } else {
            for line in table::night(&report) {
                context.output.line(line)?;
            }
        }
        Ok(match report.stopped {
            true => Ending::Interrupted,
            // Nothing that a look-up could answer came of it.
            false if report.jobs.iter().all(|job| job.answer.is_none()) => Ending::No,
            false => Ending::Done,
        })
    }

    /// Reads and checks everything that can be wrong, before anything is written.
    fn plan(&self, context: &Context) -> anyhow::Result<Planned> {
        let time = self.time.or(if self.trials.is_none() { Some(DEFAULT_TIME) } else { None });
        let limit = Limit { time, trials: self.trials };
        let specs = self.devices()?;
        let top = Top::read(&self.top, &specs)?;
        let tasks = self.tasks(context)?;
        let devices: Vec<DeviceHandle> =
            specs.iter().map(|spec| open(spec, self.timeout)).collect::<anyhow::Result<_>>()?;
        let mut jobs = Vec::new();
        let mut unsupported: Vec<String> = Vec::new();
        for (at, device) in devices.iter().enumerate() {
            let most = top.of(at);
            let mut taken = 0;
            for task in &tasks {
                if taken == most {
                    break;
                }
                match plan(&task.workload, &device.identity().target) {
                    Ok(plan) => {
                        taken += 1;
                        jobs.push(Job { workload: task.workload.clone(), count: task.count, bench: at, plan });
                    }
                    Err(error) => unsupported.push(format!("{} on {}: {error}", task.workload.summary(), specs[at])),
                }
            }
            if taken < tasks.len() && most < usize::MAX && !context.quiet && taken > 0 {
                let taken = cli::report::units::several(taken as u64, "workload");
                say(&format!("{}: the {taken} with the largest share of {}", specs[at], tasks.len()));
            }
        }
        if jobs.is_empty() {
            bail!("nothing can be tuned: {}", unsupported.join("; "));
        }
        for reason in unsupported.iter().filter(|_| !context.quiet) {
            say(&format!("not tuned: {reason}"));
        }
        let (method, sources) = self.method.method()?;
        if let Some(db) = self.db.as_deref().filter(|db| sources.contains(db)) {
            bail!(
                "--from {db:?} is the file that is tuned into, and what is learned from must not change meanwhile; \
                 a search of the same workload goes on from its own trials without --from; for the other workloads of the \
                 file, name a copy of it"
            );
        }
        let effective = self.effective(limit, &specs, &top, method);
        if !context.quiet && !sources.files().is_empty() {
            self.say_sources(&jobs, &devices, &sources, method)?;
        }
        Ok(Planned { jobs, devices, limit, method, learned_from: sources, effective })
    }

    /// Says what each search learns from, and when an earlier run learned from something else.
    fn say_sources(
        &self,
        jobs: &[Job],
        devices: &[DeviceHandle],
        sources: &session::Sources,
        method: Method,
    ) -> anyhow::Result<()> {
        for job in jobs {
            let (name, target) = (job.workload.summary(), &devices[job.bench].identity().target.key);
            let found = sources.of(&job.workload, target, &job.plan.space)?;
            let about: Vec<String> = found.into_iter().map(|found| found.about).collect();
            say(&match about.is_empty() {
                true => format!("{name}: no search in the files of --from has enough schedules of its space"),
                false => format!("{name}: learns from {}", about.join("; ")),
            });
        }
        let Some(path) = self.db.as_deref().filter(|path| path.exists()) else { return Ok(()) };
        let sessions = Database::open(path)?.sessions()?;
        if sessions.iter().all(|session| session.id != method.session())
            && sessions.iter().any(|session| method.differs_in_sources(&session.id))
        {
            say(
                "the files of --from hold something else than in the last run, so new searches begin; what the earlier \
                 ones measured is kept",
            );
        }
        Ok(())
    }

    fn devices(&self) -> anyhow::Result<Vec<DeviceSpec>> {
        let mut seen = BTreeSet::new();
        let mut specs = Vec::new();
        for text in &self.device {
            let spec = device(text, self.threads, self.processor.cpu_features.as_ref())?;
            if !seen.insert(spec.to_string()) {
                bail!("--device {spec} is given twice");
            }
            specs.push(spec);
        }
        Ok(specs)
    }

    fn tasks(&self, context: &Context) -> anyhow::Result<Vec<Task>> {
        let mut tasks = tasks::read(&self.sources, context)?;
        for text in &self.workloads {
            let workload = workload(text)?;
            match tasks.iter_mut().find(|task| task.workload == workload) {
                Some(task) => task.count += 1,
                None => tasks.push(Task { workload, count: 1, names: vec!["command line".into()] }),
            }
        }
        if tasks.is_empty() {
            bail!("nothing to tune; give a workload, --model or --list");
        }
        Ok(tasks)
    }

    /// Every setting that has an effect, as it is printed and stored.
    fn effective(&self, limit: Limit, specs: &[DeviceSpec], top: &Top, method: Method) -> Value {
        let (screen, finals) = (ScreenOptions::default(), FinalsOptions::default());
        let top: BTreeMap<String, usize> = specs
            .iter()
            .enumerate()
            .map(|(at, spec)| (spec.to_string(), top.of(at)))
            .filter(|(_, n)| *n < usize::MAX)
            .collect();
        json!({
            "devices": specs,
            "generator": cli::GENERATOR,
            "strategy": method.strategy.as_str(),
            "model_scorer": method.model.as_str(),
            "seed": method.seed,
            "from": self.method.from,
            "time_s": limit.time.map(|time| time.as_secs_f64()),
            "trials": limit.trials,
            "timeout_s": self.timeout.as_secs_f64(),
            "top": top,
            "only": self.sources.only,
            "stop_gain": self.stop_gain,
            "retry_quarantined": self.retry_quarantined,
            "db": self.db,
            "screen": screen,
            "finals": finals,
        })
    }

    fn night(&self, planned: Planned, writer: &Writer, path: &Path, context: &Context) -> anyhow::Result<NightReport> {
        let method = planned.method;
        let started_at = context.clock.unix_s();
        let settings = Settings {
            method,
            sources: planned.learned_from,
            limit: planned.limit,
            screen: ScreenOptions::default(),
            finals: FinalsOptions::default(),
            stop_gain: self.stop_gain,
            retry_quarantined: self.retry_quarantined,
            run: format!("{started_at}-{}", std::process::id()),
            command: std::env::args().collect::<Vec<_>>().join(" "),
            effective: planned.effective,
        };
        let mut session = Session {
            id: method.session(),
            command: settings.command.clone(),
            seed: method.seed,
            strategy: method.strategy.as_str().into(),
            started_at,
            ended_at: None,
            settings: settings.effective.clone(),
        };
        writer.save_session(session.clone())?;
        let show = match (context.quiet, stderr().is_terminal()) {
            (true, _) => Show::Nothing,
            (false, true) => Show::Bars,
            (false, false) => Show::Lines,
        };
        let console = Console::new(show, stderr(), self.json.then_some(&context.output));
        let benches = planned.devices.into_iter().map(|device| Box::new(device) as Box<dyn Bench>).collect();
        let sequence = AtomicU64::new(0);
        let night =
            Night { writer, clock: &context.clock, stop: &STOP, report: &console, settings: &settings, sequence };
        let report = night.run(planned.jobs, benches).with_context(|| format!("tuning into {path:?}"))?;
        if !report.stopped {
            session.ended_at = Some(context.clock.unix_s());
            writer.save_session(session)?;
        }
        Ok(report)
    }
}

/// Refuses a file whose answers could not be told at the end, before time is spent on it.
fn refuse_damaged(planned: &Planned, path: &Path) -> anyhow::Result<()> {
    // What else is wrong with the file is said by the writer, and a new file is no fault.
    let Ok(database) = Database::open(path) else { return Ok(()) };
    for job in &planned.jobs {
        let target = planned.devices[job.bench].identity().target.key.to_string();
        if let Err(damaged @ DbError::Damaged { .. }) = database.lookup(&job.workload.key(), &target, cli::GENERATOR) {
            return Err(damaged.into());
        }
    }
    Ok(())
}

/// How many workloads are tuned on each device.
struct Top {
    each: Vec<usize>,
}

impl Top {
    fn read(texts: &[String], specs: &[DeviceSpec]) -> anyhow::Result<Top> {
        let mut each = vec![usize::MAX; specs.len()];
        for text in texts {
            let (name, number) = text.rsplit_once('=').map_or((None, text.as_str()), |(name, n)| (Some(name), n));
            let all_digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            // More than can be counted is all.
            let number = number.parse().ok().or(all_digits.then_some(usize::MAX)).filter(|n: &usize| *n > 0);
            let number = number.with_context(|| format!("--top {text:?} is no number of 1 or more, nor DEVICE=N"))?;
            let named = |spec: &DeviceSpec| name.is_none_or(|name| spec.to_string() == name || base(spec) == name);
            let mut any = false;
            for (most, _) in each.iter_mut().zip(specs).filter(|(_, spec)| named(spec)) {
                *most = number;
                any = true;
            }
            if !any {
                bail!("--top {text:?} names no --device of this command");
            }
        }
        Ok(Top { each })
    }

    fn of(&self, device: usize) -> usize {
        self.each[device]
    }
}

/// The kind of a device, without threads or number.
fn base(spec: &DeviceSpec) -> &'static str {
    match spec {
        DeviceSpec::Cpu { .. } => "cpu",
        DeviceSpec::Vulkan { .. } => "vulkan",
        DeviceSpec::Fixture(_) => "fixture",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn top(texts: &[&str]) -> anyhow::Result<Vec<usize>> {
        let specs = ["cpu:threads=2".parse().unwrap(), "vulkan".parse().unwrap()];
        let texts: Vec<String> = texts.iter().map(|text| (*text).into()).collect();
        Top::read(&texts, &specs).map(|top| top.each)
    }

    #[test]
    fn top_is_for_all_devices_or_for_one() {
        assert_eq!(top(&[]).unwrap(), [usize::MAX, usize::MAX]);
        assert_eq!(top(&["3"]).unwrap(), [3, 3]);
        assert_eq!(top(&["99999999999999999999"]).unwrap(), [usize::MAX, usize::MAX]);
        assert_eq!(top(&["cpu=5", "vulkan=2"]).unwrap(), [5, 2]);
        assert_eq!(top(&["4", "cpu:threads=2=1"]).unwrap(), [1, 4]);
        for wrong in ["0", "-1", "cpu", "cpu=", "cuda=1"] {
            assert!(top(&[wrong]).is_err(), "{wrong}");
        }
    }
}
