//! `doctor`: a self-test of everything a night needs.

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use cli::Clock;
use measure::{FoundDevice, ScreenOptions, WorkerOptions, list_devices};
use search_space::families::plan;
use search_space::{Outcome, Workload};
use tuning_db::{Database, Writer, WriterOptions};

use super::arguments::{Processor, TIMEOUT, open};
use super::{Context, Ending};

/// Test every device with a small kernel, LLVM, and a database in the temporary folder
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Doctor {
    /// Most time for the kernel of one device
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = super::arguments::duration)]
    timeout: Duration,
    #[command(flatten)]
    processor: Processor,
}

const EXAMPLES: &str = "\
Examples:
  tilewright doctor
  tilewright doctor --timeout 60s
  tilewright doctor -v && tilewright tune 'gemv m=512 k=512 dtype=f32' --device cpu --time 10s --db night.tune";

/// Small, with a tail in every dimension.
const WORKLOAD: &str = "matmul m=65 n=33 k=47 dtype=f32";

impl Doctor {
    pub(super) fn run(&self, context: &Context) -> anyhow::Result<Ending> {
        let out = &context.output;
        let mut well = true;
        let mut line = |what: &str, result: anyhow::Result<String>| {
            well &= result.is_ok();
            match result {
                Ok(text) => out.line(format!("ok       {what}: {text}")),
                Err(error) => out.line(format!("FAILED   {what}: {error:#}")),
            }
        };
        let (cpu, features) = codegen::emit::llvm::host_cpu();
        line("llvm", Ok(format!("generates for {cpu} with {}", features.join(" "))))?;
        line("database", database(context.clock.unix_s()))?;
        let mut any = false;
        for device in list_devices(&WorkerOptions::default(), &self.processor.cpu_features.clone().unwrap_or_default())
        {
            match device {
                FoundDevice::Present { spec, identity } => {
                    any = true;
                    let result = self.kernel(&spec, &identity.target);
                    line(&spec.to_string(), result.map(|text| format!("{}, {text}", identity.name)))?;
                }
                FoundDevice::Missing { spec, reason } => out.line(format!("missing  {spec}: {reason}"))?,
            }
        }
        Ok(if well && any { Ending::Done } else { Ending::No })
    }

    /// Compiles, verifies and times one small kernel.
    fn kernel(&self, spec: &measure::DeviceSpec, target: &search_space::Target) -> anyhow::Result<String> {
        let workload: Workload = WORKLOAD.parse()?;
        let schedule = plan(&workload, target)?.default;
        let measured =
            open(spec, self.timeout.max(TIMEOUT / 10))?.measure(&workload, &schedule, &ScreenOptions::default())?;
        let median = measured.median_ns().filter(|_| measured.outcome == Outcome::Ok);
        let median = median
            .with_context(|| format!("{}: {}", measured.outcome, measured.message.clone().unwrap_or_default()))?;
        let compiled = Duration::from_nanos(measured.breakdown.compile_ns);
        Ok(format!("a kernel was compiled in {compiled:.0?}, verified, and timed at {:.1} µs", median / 1e3))
    }
}

/// Writes a database, reads it back and checks it.
fn database(now_s: u64) -> anyhow::Result<String> {
    let path = std::env::temp_dir().join(format!("tilewright-doctor-{}.tune", std::process::id()));
    let tested = || -> anyhow::Result<()> {
        let writer = Writer::open(&path, WriterOptions::default())?;
        writer.save_session(tuning_db::Session {
            id: "doctor".into(),
            command: "doctor".into(),
            seed: 0,
            strategy: "none".into(),
            started_at: now_s,
            ended_at: Some(now_s),
            settings: serde_json::json!({}),
        })?;
        writer.close()?;
        let checked = Database::open(&path)?.integrity_check()?;
        anyhow::ensure!(checked.is_ok(), "{}", checked.problems.join("; "));
        Ok(())
    };
    let result = tested();
    if let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) {
        // The file and whatever lies beside it under its name: this process alone made them.
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().trim_start_matches('.').starts_with(name) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
    result.map(|()| format!("written, read and checked in {}", std::env::temp_dir().display()))
}
