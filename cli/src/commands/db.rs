//! `db`: what a tuning database holds.

use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, Subcommand};
use cli::replay::{Question as AskedOf, stored};
use cli::report::units;
use cli::session::{Search, Stored};
use serde_json::json;
use tuning_db::Database;

use super::arguments::{MethodArguments, Question, workload};
use super::{Context, Ending, say};

/// Look into a tuning database
#[derive(Args)]
pub(super) struct Db {
    #[command(subcommand)]
    verb: DbVerb,
}

#[derive(Subcommand)]
enum DbVerb {
    Info(Info),
    Replay(Replay),
    Record(Record),
}

impl Db {
    pub(super) fn run(&self, context: &Context) -> anyhow::Result<Ending> {
        match &self.verb {
            DbVerb::Info(info) => info.run(context),
            DbVerb::Replay(replay) => replay.run(context),
            DbVerb::Record(record) => record.run(context),
        }
    }
}

/// Count what is stored and check every row
///
/// Exit code 1 when something is damaged.
#[derive(Args)]
#[command(after_long_help = INFO_EXAMPLES)]
struct Info {
    /// Tuning database
    file: PathBuf,
    /// One JSON object on stdout (docs/cli.md)
    #[arg(long)]
    json: bool,
}

const INFO_EXAMPLES: &str = "\
Examples:
  tilewright db info night.tune
  tilewright db info night.tune --json
  tilewright db info night.tune || echo damaged";

impl Info {
    fn run(&self, context: &Context) -> anyhow::Result<Ending> {
        let database = Database::open(&self.file)?;
        let info = database.info()?;
        let checked = database.integrity_check()?;
        let ending = if checked.is_ok() { Ending::Done } else { Ending::No };
        let out = &context.output;
        if self.json {
            let outcomes: serde_json::Map<_, _> =
                info.outcomes.iter().map(|(outcome, n)| (outcome.to_string(), json!(n))).collect();
            out.json(&json!({
                "schema": "tilewright.db-info/1",
                "file": self.file,
                "version": info.schema,
                "bytes": info.bytes,
                "rows": info.rows,
                "outcomes": outcomes,
                "targets": info.targets,
                "sessions": info.sessions,
                "unfinished_sessions": info.unfinished_sessions,
                "events": info.events,
                "quarantined": info.quarantined,
                "rows_checked": checked.rows_checked,
                "problems": checked.problems,
            }))?;
            return Ok(ending);
        }
        out.line(format!(
            "{}: schema {}, {} bytes",
            self.file.display(),
            info.schema,
            units::count(info.bytes.into())
        ))?;
        let counts = |pairs: Vec<(String, u64)>| {
            pairs.into_iter().map(|(name, n)| format!("{n} {name}")).collect::<Vec<_>>().join(", ")
        };
        let rows = info.rows.iter().map(|(kind, n)| ((*kind).to_owned(), *n)).collect();
        out.line(format!("  rows         {}", counts(rows)))?;
        let outcomes = info.outcomes.iter().map(|(outcome, n)| (outcome.to_string(), *n)).collect();
        out.line(format!("  outcomes     {}", counts(outcomes)))?;
        for (target, n) in &info.targets {
            out.line(format!("  target       {target}: {n} observations"))?;
        }
        let (sessions, open) = (info.sessions, info.unfinished_sessions);
        out.line(format!("  sessions     {sessions}, {open} of them unfinished; {} events", info.events))?;
        out.line(format!("  quarantined  {}", info.quarantined))?;
        out.line(format!("  checked      {} rows, {} problems", checked.rows_checked, checked.problems.len()))?;
        for problem in &checked.problems {
            out.line(format!("    {problem}"))?;
        }
        Ok(ending)
    }
}

/// Replay the log of a search and print what it would measure next
///
/// The next `tune` with the same workload, device, strategy, model and seed measures exactly these candidates, as far as
/// they follow from the log alone: later ones depend on what is measured until then.
#[derive(Args)]
#[command(after_long_help = REPLAY_EXAMPLES)]
struct Replay {
    /// Tuning database
    file: PathBuf,
    #[command(flatten)]
    question: Question,
    #[command(flatten)]
    method: MethodArguments,
    /// Most candidates to print
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    next: u64,
    /// One JSON object per candidate on stdout (docs/cli.md)
    #[arg(long)]
    json: bool,
}

const REPLAY_EXAMPLES: &str = "\
Examples:
  tilewright db replay night.tune 'matmul m=512 n=512 k=512 dtype=f32' --device cpu
  tilewright db replay night.tune 'matmul m=512 n=512 k=512 dtype=f32' --device cpu --seed 1 --next 4 --json
  tilewright db replay night.tune 'gemv m=4096 k=4096 dtype=f32' --device vulkan --strategy random";

impl Replay {
    fn run(&self, context: &Context) -> anyhow::Result<Ending> {
        let database = Database::open(&self.file)?;
        let asked = self.question.ask()?;
        let (method, sources) = self.method.method()?;
        let plan = asked.plan()?;
        let (key, target) = (asked.workload.key(), asked.target().key.to_string());
        let found = sources.of(&asked.workload, &asked.target().key, &plan.space)?;
        let stored = Stored {
            events: database.events(&method.session())?,
            quarantined: database.quarantined(&key, &target)?.into_iter().map(|c| c.schedule).collect(),
            observations: database.observations(&key, &target)?.rows,
            sources: found.into_iter().map(|found| found.source).collect(),
        };
        let mut search = Search::open(&asked.workload, asked.target(), plan, method, stored)?;
        if search.trials() == 0 && !context.quiet {
            let others = searches(&database, &key, &target)?;
            say(&format!(
                "no trial of this search ({}) is stored; these are its first candidates; {}",
                method.session(),
                match others.is_empty() {
                    true => "there is no other search of this workload on this device either".into(),
                    false => format!("searches that are stored, as strategy-model-seed: {}", others.join(", ")),
                }
            ));
        }
        let trials = search.trials();
        let proposals = search.proposals(usize::try_from(self.next).unwrap_or(usize::MAX));
        for (at, schedule) in proposals.iter().enumerate() {
            if self.json {
                context.output.json(&json!({
                    "schema": "tilewright.replay/1",
                    "key": key,
                    "device": asked.spec,
                    "trial": trials + at as u64 + 1,
                    "schedule": schedule,
                }))?;
            } else {
                context.output.line(schedule.to_string())?;
            }
        }
        Ok(if proposals.is_empty() { Ending::No } else { Ending::Done })
    }
}

/// Sessions with a log of the workload on the target.
fn searches(database: &Database, key: &str, target: &str) -> anyhow::Result<Vec<String>> {
    let stream = format!("{:.16}.{:.16}", tuning_db::workload_id(key), tuning_db::target_id(target));
    let sessions = database.sessions()?.into_iter().map(|session| session.id);
    // A log that is damaged cannot be replayed, so it is not offered.
    let has = |id: &String| database.events(id).is_ok_and(|log| log.iter().any(|e| e.stream.starts_with(&stream)));
    Ok(sessions.filter(has).collect())
}

/// Write what was measured of one workload on one device as a recorded space, for `replay`
///
/// Writes a header and, beside it, a table with one row per schedule. An older recording of the same workload and device is
/// replaced, nothing else. A file filled by `tune --strategy random` is the fairest ground for comparing strategies.
///
/// Exit code 1 when nothing is stored of it, or nothing worked.
#[derive(Args)]
#[command(after_long_help = RECORD_EXAMPLES)]
struct Record {
    /// Tuning database
    file: PathBuf,
    /// Header to write, NAME.json; the table becomes NAME.csv.gz beside it
    out: PathBuf,
    /// The workload that is meant [default: the only one]
    #[arg(long, value_name = "WORKLOAD")]
    workload: Option<String>,
    /// The device that is meant, or a target key [default: the only one]
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
}

const RECORD_EXAMPLES: &str = "\
Examples:
  tilewright db record night.tune matmul.json
  tilewright db record night.tune matmul.json --workload 'matmul m=512 n=512 k=512 dtype=f32' --device cpu
  tilewright replay matmul.json --budget 60";

impl Record {
    fn run(&self, context: &Context) -> anyhow::Result<Ending> {
        let name = self.out.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        if self.out.extension().is_none_or(|extension| extension != "json") || name.is_empty() {
            bail!("{:?} is no name of a header; write NAME.json", self.out);
        }
        let database = Database::open(&self.file)?;
        let workload = self.workload.as_deref().map(workload).transpose()?;
        let recorded = match stored(name, &database, &AskedOf { workload, device: self.device.clone() }) {
            Ok(recorded) => recorded,
            Err(error) if error.is_no() => {
                say(&error.to_string());
                return Ok(Ending::No);
            }
            Err(error) => return Err(error.into()),
        };
        datasets::recorded::write(&self.out, &recorded)?;
        if !context.quiet {
            say(&format!("{}: {} schedules", self.out.display(), recorded.len()));
        }
        Ok(Ending::Done)
    }
}
