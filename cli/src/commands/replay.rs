//! `replay`: how good a strategy is on what is known already.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{IsTerminal, Read, Write, stderr};
use std::num::IntErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use cli::replay::{
    Disguise, Ground, Prior, Question, Settings, StoredError, Synthetic, disguised, report, stored, stored_all,
};
use cli::session::StrategyKind;
use cli::{Clock, Stop};
use search_space::RecordedSpace;
use tuning_db::Database;

use super::arguments::{StrategyArgument, share, workload};
use super::{Context, Ending, say};

/// Compare search strategies on recorded measurements, without a device
///
/// A recorded space is a JSON header (`"format": "replay-space/1"`) with a table beside it that has a row for every
/// schedule. A search is told the recorded result of what it asks for, and of nothing else; failed schedules cost an
/// evaluation like others. `synthetic:SEED` is a made-up kernel of more than 10^9 schedules with a known optimum.
///
/// Shown are means over seeds: the optimum's time over the best time after 1, 5, 10, ... and all evaluations; the share of seeds
/// within 5 % and 1 % of the optimum and the median evaluations to 5 %; P, the score against random draws (0: like them,
/// 1: the optimum at once) with its lower 95 % bound over seeds; and the strategy's processor time per evaluation.
/// docs/cli.md defines them.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Replay {
    /// Header of a recorded space, a tuning database, or synthetic:SEED; several are allowed
    #[arg(value_name = "SPACE", required = true, help_heading = "What")]
    spaces: Vec<String>,
    /// Of a tuning database as SPACE, the workload that is meant [default: the only one]
    #[arg(long, value_name = "WORKLOAD", help_heading = "What")]
    workload: Option<String>,
    /// Of a tuning database as SPACE, the device that is meant, or a target key [default: the only one]
    #[arg(long, value_name = "DEVICE", help_heading = "What")]
    device: Option<String>,
    /// For --strategy gp: recordings of other devices and problems, given to the search before it begins, of a tuning
    /// database all that it holds; those of the space itself and of kernels with other parameters are left out; repeatable
    #[arg(long, value_name = "FILE", num_args = 1.., help_heading = "What")]
    prior: Vec<PathBuf>,
    /// Random rows taken from each prior
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = positive, help_heading = "What")]
    prior_rows: usize,
    /// Deal each prior's results out to its rows at random: a prior that is wrong on purpose
    #[arg(long, requires = "prior", help_heading = "What")]
    shuffle_priors: bool,
    /// How candidates are chosen
    #[arg(long, value_enum, default_value_t = StrategyArgument::Gp, help_heading = "Search")]
    strategy: StrategyArgument,
    /// Evaluations of each search
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = positive, help_heading = "Search")]
    budget: usize,
    /// Candidates asked for at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive, help_heading = "Search")]
    batch: usize,
    /// End a search when its last 16 candidates were each expected to shorten the best time by less than this share
    #[arg(long, value_name = "SHARE", value_parser = share, default_value_t = 0.0, help_heading = "Search")]
    stop_gain: f64,
    /// Searches of each space
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=1_000_000), help_heading = "Search")]
    seeds: u64,
    /// Seed of the first search; the others count on from it
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Search")]
    first_seed: u64,
    /// Searches at the same time [default: the processors]; results do not depend on it
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Search")]
    threads: Option<usize>,
    /// Call parameters p0, p1, ...
    #[arg(long, help_heading = "What")]
    anonymous: bool,
    /// Make values 0, 1, ... in order
    #[arg(long, help_heading = "What")]
    ordinals: bool,
    /// One JSON object per space and a summary on stdout (docs/cli.md)
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  tilewright replay gemm-RTX_3090.json convolution-A4000.json
  tilewright replay gemm-RTX_3090.json --prior gemm-RTX_2080_Ti.json gemm-A4000.json --budget 50 --json
  tilewright replay synthetic:1 --strategy random --seeds 10";

/// Raised by the first Ctrl-C or SIGTERM.
static STOP: Stop = Stop::new();

/// How a database begins.
const SQLITE: &[u8; 16] = b"SQLite format 3\0";

/// Time between two lines of progress.
const SAY_EVERY: Duration = Duration::from_secs(10);

impl Replay {
    pub(super) fn run(&self, context: &Context) -> anyhow::Result<Ending> {
        let last = self.first_seed.checked_add(self.seeds).context("--first-seed and --seeds exceed 2^64")?;
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let settings = Settings {
            strategy: self.strategy.kind(),
            budget: self.budget,
            seeds: self.first_seed..last,
            batch: self.batch,
            stop_gain: self.stop_gain,
            prior_rows: self.prior_rows,
            threads: self.threads.unwrap_or_else(cores),
        };
        if settings.strategy != StrategyKind::Gp && !self.prior.is_empty() {
            let name = settings.strategy.as_str();
            bail!("--prior is for --strategy gp; {name} does not learn from other recordings");
        }
        // Everything that can be wrong with the files is said before the first search.
        let (grounds, sources) = match self.files(context) {
            Ok(files) => files,
            Err(error) if error.downcast_ref().is_some_and(StoredError::is_no) => {
                say(&format!("{error:#}"));
                return Ok(Ending::No);
            }
            Err(error) => return Err(error),
        };
        let disguise = Disguise { anonymous: self.anonymous, ordinals: self.ordinals };
        if disguise != Disguise::default() && grounds.iter().any(|ground| matches!(ground, Known::Synthetic(_))) {
            bail!(
                "--anonymous and --ordinals are for recorded spaces; a synthetic one has no names that mean anything"
            );
        }
        stop_on_signals()?;
        let (mut all, spaces) = (Vec::new(), grounds.len());
        for known in grounds {
            let priors = self.priors(&sources, &known, context);
            // Priors are matched by what things are called; positions stay.
            let known = known.disguised(disguise)?;
            let progress = Progress::new(context, known.ground().name(), self.seeds);
            let done = |finished| progress.show(context, finished);
            let Some(replayed) = cli::replay::replay(known.ground(), &priors, &settings, &STOP, &done) else { break };
            if self.json {
                context.output.json(&report::space(&replayed, &settings))?;
            }
            all.push(replayed);
        }
        if self.json && !STOP.asked() {
            context.output.json(&report::summary(&all, &settings))?;
        }
        if !self.json {
            for line in report::lines(&all, &settings) {
                context.output.line(line)?;
            }
        }
        if !STOP.asked() {
            return Ok(Ending::Done);
        }
        if !context.quiet {
            say(&format!("interrupted: {} of {spaces} spaces finished", all.len()));
        }
        Ok(Ending::Interrupted)
    }

    /// Everything that is read: the spaces, and what may be priors.
    fn files(&self, context: &Context) -> anyhow::Result<(Vec<Known>, Vec<RecordedSpace>)> {
        let workload = self.workload.as_deref().map(workload).transpose()?;
        let question = Question { workload, device: self.device.clone() };
        let mut files = Files { quiet: context.quiet, warned: BTreeSet::new() };
        let grounds = self.spaces.iter().map(|text| files.known(text, &question)).collect::<anyhow::Result<_>>()?;
        // A file that is named twice is no more evidence than one.
        let mut named = BTreeSet::new();
        let once = self.prior.iter().filter(|path| named.insert(canonical(path)));
        let sources: Vec<Vec<RecordedSpace>> = once.map(|path| files.priors(path)).collect::<anyhow::Result<_>>()?;
        Ok((grounds, sources.into_iter().flatten().collect()))
    }

    /// The sources that say something about what is searched and are no recording of the same.
    fn priors<'a>(&self, sources: &'a [RecordedSpace], known: &Known, context: &Context) -> Vec<Prior<'a>> {
        let ground = known.ground();
        let others = sources.iter().filter(|source| match known {
            Known::Recorded(space) => !space.is_of_the_same(source),
            Known::Synthetic(_) => true,
        });
        let fitting = others.filter_map(|source| Prior::of(source, ground.space()));
        let priors: Vec<Prior> = fitting.map(|prior| prior.shuffled(self.shuffle_priors)).collect();
        if priors.len() < sources.len() && !context.quiet {
            let (fit, all, name) = (priors.len(), sources.len(), ground.name());
            say(&format!("{name}: {fit} of {all} priors fit; the others are this space or have other parameters"));
        }
        priors
    }
}

/// What a search is replayed on.
enum Known {
    Recorded(RecordedSpace),
    Synthetic(Synthetic),
}

impl Known {
    fn ground(&self) -> &dyn Ground {
        match self {
            Known::Recorded(space) => space,
            Known::Synthetic(space) => space,
        }
    }

    fn disguised(self, disguise: Disguise) -> anyhow::Result<Known> {
        Ok(match self {
            Known::Recorded(space) => Known::Recorded(disguised(space, disguise)?),
            synthetic @ Known::Synthetic(_) => synthetic,
        })
    }
}

/// Reads files, and warns of each once.
struct Files {
    quiet: bool,
    warned: BTreeSet<PathBuf>,
}

impl Files {
    /// What is named as SPACE.
    fn known(&mut self, text: &str, question: &Question) -> anyhow::Result<Known> {
        let Some(seed) = text.strip_prefix("synthetic:") else {
            let path = Path::new(text);
            return Ok(Known::Recorded(match database(path)? {
                Some(database) => stored(&stem(path), &database, question)?,
                None => self.header(path)?,
            }));
        };
        let seed = seed.parse().ok();
        let seed = seed.with_context(|| format!("{text:?} is no synthetic:SEED; write for example synthetic:1"))?;
        Ok(Known::Synthetic(Synthetic::new(seed)?))
    }

    /// What is named as a prior.
    fn priors(&mut self, path: &Path) -> anyhow::Result<Vec<RecordedSpace>> {
        Ok(match database(path)? {
            Some(database) => stored_all(&stem(path), &database)?,
            None => vec![self.header(path)?],
        })
    }

    fn header(&mut self, path: &Path) -> anyhow::Result<RecordedSpace> {
        let recorded = datasets::recorded::read(path)?;
        if !self.quiet && self.warned.insert(canonical(path)) {
            let (broken, rows) = (datasets::recorded::contradictions(&recorded), recorded.len());
            if broken > 0 {
                let path = path.display();
                say(&format!("warning: {path}: {broken} of {rows} rows break its constraints; the table decides"));
            }
        }
        Ok(recorded)
    }
}

/// The tuning database at `path`; `None` when it begins unlike one.
fn database(path: &Path) -> anyhow::Result<Option<Database>> {
    let mut start = [0; SQLITE.len()];
    // Opening a pipe would wait for its writer; whoever reads headers refuses it.
    let regular = std::fs::metadata(path).is_ok_and(|kind| kind.is_file());
    let begins = regular && File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok();
    Ok(if begins && start == *SQLITE { Some(Database::open(path)?) } else { None })
}

/// The name of a file without its extension.
fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// The one name of a file that may have several.
fn canonical(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Lines on stderr for long replays: every ten seconds, or at every search on a terminal.
struct Progress<'a> {
    space: &'a str,
    seeds: u64,
    terminal: bool,
    last: Mutex<Duration>,
}

impl<'a> Progress<'a> {
    fn new(context: &Context, space: &'a str, seeds: u64) -> Progress<'a> {
        Progress { space, seeds, terminal: stderr().is_terminal(), last: Mutex::new(context.clock.now()) }
    }

    fn show(&self, context: &Context, finished: usize) {
        if context.quiet {
            return;
        }
        let text = format!("{}: {finished} of {} searches", self.space, self.seeds);
        if self.terminal {
            let end = if finished as u64 == self.seeds { "\r\x1b[K" } else { "" };
            // Progress that nobody can see is not worth ending a replay for.
            let _ = write!(stderr(), "\r{text}{end}");
            return;
        }
        let now = context.clock.now();
        let Ok(mut last) = self.last.lock() else { return };
        if now.saturating_sub(*last) >= SAY_EVERY {
            *last = now;
            say(&text);
        }
    }
}

/// A number of 1 or more.
fn positive(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(number) if number > 0 => Ok(number),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => {
            Err(format!("{text} is above the largest number here, {}", usize::MAX))
        }
        _ => Err(format!("{text:?} is no number of 1 or more")),
    }
}

/// Ctrl-C and SIGTERM end the replay; nothing is lost but the space under way.
fn stop_on_signals() -> anyhow::Result<()> {
    let handler = || {
        if STOP.ask() {
            std::process::exit(130);
        }
    };
    ctrlc::set_handler(handler).context("handling Ctrl-C")
}
