//! `bench`: a workload suite, tuned line by line and measured like its peers.

use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use cli::Clock;
use cli::report::{Console, Show, units};
use cli::session::{Bench as Device, Method, ModelKind, StrategyKind};
use cli::suite::json::{Circumstances, document, rate};
use cli::suite::{Entry, Options, Suite};
use datasets::suite::{self, Line};
use measure::{DeviceHandle, DeviceSpec, Features, WorkerOptions};
use search_space::workload::MathMode;
use tuning_db::{DbError, Writer, WriterOptions};

use super::arguments::{Processor, TIMEOUT, duration, open};
use super::interrupt::{STOP, stop_on_signals};
use super::tune::STOP_GAIN;
use super::{Context, Ending, say};

/// Tune a suite of workloads on the CPU and measure the winners
///
/// The suite is JSON that other systems are measured by too, such as datasets/workloads/cpu.json. Each line is tuned for
/// at most --time-per, its winner is verified and measured again in a fresh worker, and the figures go into a JSON file
/// of the form in which the peers' are. A line that cannot be generated yet says why, and the others go on.
///
/// With --threads 2 or more, only the parameters of the threads are tuned, beginning with the 20 fastest schedules of one
/// thread in --db. Weights of convolutions may be prepacked, once and outside of the time.
///
/// Ctrl-C once finishes the measurement under way, saves and exits with 130; the same command goes on.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Bench {
    /// Workload suite in JSON
    #[arg(long, value_name = "FILE")]
    workloads: PathBuf,
    /// Threads of each kernel
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    threads: u64,
    #[command(flatten)]
    processor: Processor,
    /// Time to tune each line
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    time_per: Duration,
    /// Mathematics of convolutions, softmax and attention: fast allows rewrites of a declared tolerance
    #[arg(long, value_enum, default_value_t = Math::Ieee)]
    math: Math,
    /// Only the line of this name, or those whose names contain the text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Tuning database; made when it is not there [default: --json with the ending .tune]
    #[arg(long, value_name = "FILE", required_if_eq_any = [("missing", "true")])]
    db: Option<PathBuf>,
    /// Tune only lines without an answer in --db; the others are measured alone
    #[arg(long)]
    missing: bool,
    /// How often each winner is measured again
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Time of each of these measurements
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "200ms")]
    round: Duration,
    /// Where the figures go; written anew after each line
    #[arg(long, value_name = "OUT")]
    json: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  tilewright bench --workloads datasets/workloads/cpu.json --db cpu.tune --json one.json
  tilewright bench --workloads datasets/workloads/cpu.json --db cpu.tune --threads 2 --time-per 15s --json two.json
  tilewright bench --workloads datasets/workloads/cpu.json --only rn50 --math fast --time-per 1m --json conv.json";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Math {
    /// As IEEE 754 says, in any order of sums
    Ieee,
    /// Rewrites such as Winograd's
    Fast,
}

impl Bench {
    pub(super) fn run(&self, context: &Context) -> anyhow::Result<Ending> {
        let lines = chosen(suite::read(&self.workloads)?, self.only.as_deref(), &self.workloads)?;
        let features = self.processor.cpu_features.clone().unwrap_or_default();
        let device = open(&DeviceSpec::Cpu { threads: self.threads, features: features.clone() }, TIMEOUT)?;
        let open_cpu = move |threads| open_cpu(threads, &features);
        let database = self.db.clone().unwrap_or_else(|| self.json.with_extension("tune"));
        if database == self.json {
            bail!("--json and --db are the same file {:?}; give them two names", self.json);
        }
        let options = self.options(context);
        let mut circumstances = Circumstances {
            device: device.spec().to_string(),
            name: device.identity().name.clone(),
            target: device.identity().target.key.to_string(),
            start: context.clock.unix_s(),
            load_start: load(),
            load_end: load(),
        };
        drop(device);
        // That the figures have a place is known before time is spent on them.
        write(&self.json, &document(&circumstances, &options, &[]))?;
        let writer = Writer::open(&database, WriterOptions::default())?;
        stop_on_signals()?;
        let show = match (context.quiet, stderr().is_terminal()) {
            (true, _) => Show::Nothing,
            (false, true) => Show::Bars,
            (false, false) => Show::Lines,
        };
        let console = Console::new(show, stderr(), None);
        let suite = Suite {
            writer: &writer,
            clock: &context.clock,
            stop: &STOP,
            report: &console,
            options: &options,
            open: &open_cpu,
        };
        let mut entries: Vec<Entry> = Vec::new();
        for (at, line) in lines.iter().enumerate() {
            if STOP.asked() {
                break;
            }
            if !context.quiet {
                say(&format!("{} of {}: {}", at + 1, lines.len(), line.name));
            }
            let entry = match suite.run(line) {
                Ok(entry) => entry,
                // That the file was taken away explains whatever else could not be read or written.
                Err(error) => match writer.close() {
                    Err(displaced @ DbError::Displaced { .. }) => return Err(displaced.into()),
                    _ => return Err(error).with_context(|| format!("tuning into {database:?}")),
                },
            };
            context.output.line(row(&entry))?;
            entries.push(entry);
            circumstances.load_end = load();
            write(&self.json, &document(&circumstances, &options, &entries))?;
        }
        writer.close()?;
        Ok(match entries.iter().any(|entry| entry.result.is_ok()) {
            _ if STOP.asked() => Ending::Interrupted,
            true => Ending::Done,
            false => Ending::No,
        })
    }

    fn options(&self, context: &Context) -> Options {
        Options {
            threads: self.threads,
            math: match self.math {
                Math::Ieee => MathMode::Ieee,
                Math::Fast => MathMode::Fast,
            },
            time_per: self.time_per,
            missing: self.missing,
            method: Method { strategy: StrategyKind::Gp, model: ModelKind::Trees, seed: 0, sources: 0 },
            stop_gain: STOP_GAIN,
            rounds: usize::try_from(self.rounds).unwrap_or(usize::MAX),
            round: self.round,
            run: format!("{}-{}", context.clock.unix_s(), std::process::id()),
            command: std::env::args().collect::<Vec<_>>().join(" "),
        }
    }
}

fn open_cpu(threads: u64, features: &Features) -> Result<Box<dyn Device>, measure::Error> {
    let options = WorkerOptions { timeout: TIMEOUT, ..WorkerOptions::default() };
    let spec = DeviceSpec::Cpu { threads, features: features.clone() };
    Ok(Box::new(DeviceHandle::open(&spec, options)?))
}

/// The line called `only`, or else those whose names contain it; all of them without.
fn chosen(mut lines: Vec<Line>, only: Option<&str>, path: &Path) -> anyhow::Result<Vec<Line>> {
    let Some(only) = only else { return Ok(lines) };
    let exact = lines.iter().any(|line| line.name == only);
    let names: Vec<String> = lines.iter().map(|line| line.name.clone()).collect();
    lines.retain(|line| if exact { line.name == only } else { line.name.contains(only) });
    if lines.is_empty() {
        bail!("--only {only:?} is in no name of {path:?}; there are {}", names.join(", "));
    }
    Ok(lines)
}

/// Replaces the file as a whole, so that a reader never sees half of it.
fn write(path: &Path, document: &serde_json::Value) -> anyhow::Result<()> {
    let mut name = path.file_name().with_context(|| format!("--json {path:?} names no file"))?.to_owned();
    name.push(".new");
    let unfinished = path.with_file_name(name);
    let written = std::fs::write(&unfinished, format!("{document:#}\n"))
        .and_then(|()| std::fs::rename(&unfinished, path))
        .with_context(|| format!("cannot write --json {path:?}"));
    if written.is_err() {
        // It may not even be there; the error that is told is the first one.
        let _ = std::fs::remove_file(&unfinished);
    }
    written
}

fn load() -> Option<[f64; 3]> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    let mut words = text.split_whitespace().map(|word| word.parse().ok());
    Some([words.next()??, words.next()??, words.next()??])
}

/// A line as a person reads it.
fn row(entry: &Entry) -> String {
    let name = &entry.line.name;
    let timed = match &entry.result {
        Ok(timed) => timed,
        Err(why) => return format!("{name:24} {why}"),
    };
    let unit = if entry.line.flops.is_some() { "GFLOP/s" } else { "GB/s" };
    let rate = units::significant(rate(entry.line.flops, entry.line.bytes, timed.median_ns()));
    let share = timed.share().map_or(String::new(), |(share, roof)| format!(", {:.0} % {roof}", share * 100.0));
    let prepack = match timed.prepack_ns {
        0.0 => String::new(),
        ns => format!(", prepacked before in {} ms", units::milliseconds(ns / 1e9)),
    };
    let math = if entry.line.has_math() { format!(", math={}", entry.math.as_str()) } else { String::new() };
    let trials = match entry.trials {
        0 => String::new(),
        n => format!("; {} in {}", units::several(n, "trial"), units::duration(entry.tuned)),
    };
    let ms = units::milliseconds(timed.median_ns() / 1e9);
    format!("{name:24} {ms:>8} ms  {rate:>8} {unit}{share}{prepack}{math}{trials}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_name_chooses_one_line_and_a_part_of_it_all_that_have_it() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets/workloads/cpu.json");
        let names = |only: Option<&str>| -> anyhow::Result<Vec<String>> {
            let lines = chosen(suite::read(&path)?, only, &path)?;
            Ok(lines.into_iter().map(|line| line.name).collect())
        };
        assert_eq!(names(None).unwrap().len(), 35);
        assert_eq!(names(Some("mm_1024")).unwrap(), ["mm_1024"]);
        assert_eq!(names(Some("mm_1024_")).unwrap(), ["mm_1024_bf16", "mm_1024_s8"]);
        assert!(names(Some("fft")).unwrap_err().to_string().contains("there are mm_512, "));
    }
}
