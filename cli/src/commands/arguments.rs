//! Arguments that several verbs share, and how their texts are read.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use clap::builder::PossibleValuesParser;
use cli::session::{self, Method, ModelKind, StrategyKind};
use measure::{DeviceHandle, DeviceSpec, Features, WorkerOptions};
use search_space::families::{SchedulePlan, plan};
use search_space::workload::KINDS;
use search_space::{Schedule, Target, Value, Workload};
use tuning_db::Database;

/// A workload as text: a key or sugar.
pub(super) fn workload(text: &str) -> anyhow::Result<Workload> {
    Workload::parse(text).with_context(|| format!("workload {text:?}"))
}

/// A device by name; `--threads` is another way to write `cpu:threads=N`, `--cpu-features` one to write
/// `cpu:features=LIST`.
pub(super) fn device(text: &str, threads: Option<u64>, features: Option<&Features>) -> anyhow::Result<DeviceSpec> {
    let mut spec: DeviceSpec = text.parse()?;
    if let (DeviceSpec::Cpu { features: named, .. }, Some(features)) = (&mut spec, features) {
        if !named.is_all() && named != features {
            bail!("--device {text} contradicts --cpu-features {features}; give one of them")
        }
        *named = features.clone();
    }
    Ok(match (spec, threads) {
        (DeviceSpec::Cpu { threads: named, .. }, Some(threads)) if text.contains("threads=") && named != threads => {
            bail!("--device {text} contradicts --threads {threads}; give one of them")
        }
        (DeviceSpec::Cpu { features, .. }, Some(threads)) => DeviceSpec::Cpu { threads, features },
        (spec, _) => spec,
    })
}

/// Opens a device in a worker of this executable.
pub(super) fn open(spec: &DeviceSpec, timeout: Duration) -> anyhow::Result<DeviceHandle> {
    let options = WorkerOptions { timeout, ..WorkerOptions::default() };
    Ok(DeviceHandle::open(spec, options)?)
}

/// Longest time that one candidate may take, unless `--timeout` says otherwise.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// One workload on one device, for the verbs that ask about both.
#[derive(Args)]
pub(super) struct Question {
    /// Workload: a key, or sugar such as 'matmul m=512 n=512 k=512 dtype=f32'
    pub(super) workload: String,
    /// Device: cpu, cpu:threads=N, vulkan, vulkan:N
    #[arg(long, value_name = "DEVICE")]
    pub(super) device: String,
    /// Threads of the CPU device [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(super) threads: Option<u64>,
    #[command(flatten)]
    pub(super) processor: Processor,
}

/// Which features of the processor kernels may use.
#[derive(Args, Clone)]
pub(super) struct Processor {
    /// Features that the CPU device may use: avx2,fma for these alone, -amx-bf16,-avx512f for all but these, none
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub(super) cpu_features: Option<Features>,
}

/// A question whose workload and device are known to be good.
pub(super) struct Asked {
    pub(super) workload: Workload,
    pub(super) spec: DeviceSpec,
    pub(super) device: DeviceHandle,
}

impl Question {
    /// Reads the workload and opens the device.
    pub(super) fn ask(&self) -> anyhow::Result<Asked> {
        let workload = workload(&self.workload)?;
        let spec = device(&self.device, self.threads, self.processor.cpu_features.as_ref())?;
        let device = open(&spec, TIMEOUT)?;
        Ok(Asked { workload, spec, device })
    }
}

impl Asked {
    pub(super) fn target(&self) -> &Target {
        &self.device.identity().target
    }

    /// The space of the workload on the device.
    pub(super) fn plan(&self) -> anyhow::Result<SchedulePlan> {
        plan(&self.workload, self.target())
            .with_context(|| format!("{} cannot be tuned on {}", self.workload.summary(), self.spec))
    }
}

/// Which schedule a verb works with.
pub(super) enum Choice<'a> {
    /// The answer of a look-up.
    Stored(&'a Path),
    /// `default`, or parameters as text.
    Given(&'a str),
}

impl Choice<'_> {
    /// The schedule; `None` when the database has no answer.
    pub(super) fn schedule(&self, asked: &Asked) -> anyhow::Result<Option<Schedule>> {
        match self {
            Choice::Stored(path) => {
                let target = asked.target().key.to_string();
                let answer = Database::open(path)?.lookup(&asked.workload.key(), &target, cli::GENERATOR)?;
                Ok(answer.map(|answer| answer.schedule))
            }
            Choice::Given(text) => {
                let plan = asked.plan()?;
                if *text == "default" {
                    return Ok(Some(plan.default));
                }
                let schedule = schedule(text)?;
                plan.space.config(&schedule).map_err(|rejection| anyhow!("--schedule: {rejection}"))?;
                Ok(Some(schedule))
            }
        }
    }
}

/// A schedule as it is printed: `a=1 b=masked`.
pub(super) fn schedule(text: &str) -> anyhow::Result<Schedule> {
    let mut schedule = Schedule::default();
    for word in text.split_whitespace() {
        let Some((name, value)) = word.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty())
        else {
            bail!("--schedule: {word:?} is no NAME=VALUE; write 'default', or all parameters as `space` lists them");
        };
        if schedule.get(name).is_some() {
            bail!("--schedule: {name} is given twice");
        }
        schedule.set(name, value.parse().map_or_else(|_| Value::Name(value.into()), Value::Int));
    }
    Ok(schedule)
}

/// A time on the command line: `90s`, `2m`, `1.5h`, `500ms`; a number alone is seconds.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time above 0; write for example 90s, 2m or 1.5h");
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = match unit.trim() {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let seconds = number.parse::<f64>().map_err(|_| wrong())? * unit;
    if seconds <= 0.0 {
        return Err(wrong());
    }
    let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| time.as_secs() < 1 << 32);
    time.ok_or_else(|| format!("{text:?} is too large; the longest time is 2^32 seconds, 136 years"))
}

/// A share on the command line: a number from 0, below 1.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..1.0).contains(share));
    share.ok_or_else(|| format!("{text:?} is no share from 0 and below 1; write for example 0.001"))
}

/// What identifies a search, for the verbs that run or replay one.
#[derive(Args, Clone)]
pub(super) struct MethodArguments {
    /// Seed of the search; the same seed on the same file goes on where it ended
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Search")]
    pub(super) seed: u64,
    /// How candidates are chosen
    #[arg(long, value_enum, default_value_t = StrategyArgument::Gp, help_heading = "Search")]
    pub(super) strategy: StrategyArgument,
    /// With --strategy evolution, the model that ranks candidates before they are measured [default: trees]
    #[arg(long, value_enum, help_heading = "Search")]
    pub(super) model_scorer: Option<ModelArgument>,
    /// With --strategy gp, learn from what these databases hold of other devices, shapes and nights; repeatable
    #[arg(long, value_name = "FILE", help_heading = "Search")]
    pub(super) from: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum StrategyArgument {
    /// Expected improvement under a Gaussian process
    Gp,
    /// Breed from the fastest, the model chooses
    Evolution,
    /// Uniform draws
    Random,
    /// A plain genetic algorithm
    Ga,
    /// Simulated annealing
    Annealing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ModelArgument {
    /// Boosted trees that learn from this search
    Trees,
    /// No model
    None,
}

impl StrategyArgument {
    pub(super) fn kind(self) -> StrategyKind {
        match self {
            StrategyArgument::Gp => StrategyKind::Gp,
            StrategyArgument::Evolution => StrategyKind::Evolution,
            StrategyArgument::Random => StrategyKind::Random,
            StrategyArgument::Ga => StrategyKind::Genetic,
            StrategyArgument::Annealing => StrategyKind::Annealing,
        }
    }
}

impl MethodArguments {
    /// The method, and what it learns from.
    pub(super) fn method(&self) -> anyhow::Result<(Method, session::Sources)> {
        let strategy = self.strategy.kind();
        if strategy != StrategyKind::Evolution && self.model_scorer.is_some() {
            bail!("--model-scorer is for --strategy evolution; {} has no choice of a model", strategy.as_str());
        }
        let model = match (strategy, self.model_scorer) {
            (StrategyKind::Evolution, Some(ModelArgument::None)) => ModelKind::None,
            (StrategyKind::Evolution | StrategyKind::Gp, _) => ModelKind::Trees,
            (StrategyKind::Random | StrategyKind::Genetic | StrategyKind::Annealing, _) => ModelKind::None,
        };
        if strategy != StrategyKind::Gp && !self.from.is_empty() {
            bail!("--from is for --strategy gp; {} does not learn from other searches", strategy.as_str());
        }
        let sources = session::Sources::open(&self.from).context("--from")?;
        Ok((Method { strategy, model, seed: self.seed, sources: sources.fingerprint() }, sources))
    }
}

/// Where workloads come from.
#[derive(Args)]
pub(super) struct Sources {
    /// ONNX model whose kernels are meant
    #[arg(long, value_name = "FILE", help_heading = "What")]
    pub(super) model: Option<PathBuf>,
    /// Size of a named dimension of the model, such as batch=1; repeatable
    #[arg(long, value_name = "NAME=SIZE", requires = "model", help_heading = "What")]
    pub(super) bind: Vec<String>,
    /// Text file with one workload a line, each optionally after `COUNT x`
    #[arg(long, value_name = "FILE", help_heading = "What")]
    pub(super) list: Option<PathBuf>,
    /// Only workloads of these kinds of the model and the list, such as conv,matmul
    #[arg(long, value_name = "KINDS", value_delimiter = ',', value_parser = PossibleValuesParser::new(KINDS), help_heading = "What")]
    pub(super) only: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_units_and_zero_is_refused() {
        for (text, ms) in [("90s", 90_000), ("2m", 120_000), ("1.5h", 5_400_000), ("250ms", 250), ("3", 3_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["0", "0s", "-1", "", "s", "1.2.3s", "5 fortnights", "nan", "inf", "1e400h", "99999999999h"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn schedules_are_read_as_they_are_printed() {
        let text = "mr=6 order=jc.pc.ic pad=-";
        let read = schedule(text).unwrap();
        assert_eq!((read.to_string().as_str(), read.int("mr")), (text, Some(6)));
        for text in ["mr", "mr=", "=6", "mr=6 mr=7"] {
            assert!(schedule(text).is_err(), "{text}");
        }
    }

    #[test]
    fn threads_change_the_cpu_only() {
        assert_eq!(device("cpu", Some(2), None).unwrap().to_string(), "cpu:threads=2");
        assert_eq!(device("vulkan", Some(2), None).unwrap().to_string(), "vulkan");
        assert!(device("cpu:threads=2", Some(1), None).unwrap_err().to_string().contains("contradicts"));
        let features = "avx2".parse().unwrap();
        let named = |text: &str| device(text, None, Some(&features));
        assert_eq!(named("cpu:threads=2").unwrap().to_string(), "cpu:threads=2:features=avx2");
        assert_eq!(named("vulkan").unwrap().to_string(), "vulkan");
        assert!(named("cpu:features=fma").unwrap_err().to_string().contains("contradicts"));
        assert!(device("abacus", None, None).unwrap_err().to_string().contains("cpu and vulkan"));
    }

    #[test]
    fn a_model_is_chosen_for_evolution_alone() {
        let method = |strategy, model_scorer| {
            MethodArguments { seed: 1, strategy, model_scorer, from: Vec::new() }.method().map(|method| method.0.model)
        };
        let none = Some(ModelArgument::None);
        assert_eq!(method(StrategyArgument::Evolution, none).unwrap(), ModelKind::None);
        assert_eq!(method(StrategyArgument::Evolution, None).unwrap(), ModelKind::Trees);
        for strategy in [StrategyArgument::Gp, StrategyArgument::Random] {
            assert!(method(strategy, none).unwrap_err().to_string().contains("--model-scorer is for"));
        }
    }

    #[test]
    fn shares_are_below_one() {
        assert_eq!((share("0"), share("1e-6")), (Ok(0.0), Ok(1e-6)));
        for text in ["1", "-0.1", "nan", "5 %", ""] {
            assert!(share(text).is_err(), "{text}");
        }
    }
}
