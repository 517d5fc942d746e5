//! What the bars share: each line is tuned and put into the joint table once, when the first bar asks for it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, bail};
use datasets::suite::{self, Line};
use search_space::workload::MathMode;
use serde_json::Value;

use crate::check::lab::Lab;
use crate::check::table::{self, PEERS, PEERS_OF_SEVERAL, Peers, Row, Setting};

/// Most time to tune one line.
pub(super) const TIME_PER: Duration = Duration::from_secs(30);

/// Rounds of the table.
const ROUNDS: usize = 9;

/// Seconds of each system in each round.
const SECONDS: f64 = 0.15;

/// Time to tune one line: what the bars allow, or less when `CHECK_CPU_TIME` says so in seconds.
fn time_per() -> anyhow::Result<u64> {
    let Some(text) = std::env::var_os("CHECK_CPU_TIME") else { return Ok(TIME_PER.as_secs()) };
    let seconds = text.to_str().and_then(|text| text.parse().ok());
    let allowed = seconds.filter(|seconds| (1..=TIME_PER.as_secs()).contains(seconds));
    allowed.with_context(|| format!("CHECK_CPU_TIME={text:?}: whole seconds from 1 to {}", TIME_PER.as_secs()))
}

/// The suite, relative to the repository.
const SUITE: &str = "datasets/workloads/cpu.json";

/// One way to time a line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Way {
    /// Name of the line.
    pub(super) name: String,
    pub(super) threads: usize,
    /// Whether rewrites of a declared tolerance are allowed.
    pub(super) fast: bool,
    /// Whether the output is read inside of the time.
    pub(super) reader: bool,
}

/// Everything measured so far.
#[derive(Default)]
pub(super) struct Measured {
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    lines: Vec<Line>,
    database: PathBuf,
    /// What `bench` says of a line, without regard to the reader.
    tuned: BTreeMap<Way, Rc<Value>>,
    rows: BTreeMap<Way, Rc<Row>>,
    peers: BTreeMap<usize, Peers>,
}

impl Measured {
    /// All lines of the suite.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn lines(&self, lab: &Lab) -> anyhow::Result<Vec<Line>> {
        let mut state = self.state.borrow_mut();
        state.open(lab)?;
        Ok(state.lines.clone())
    }

    /// What `bench` wrote of a line: tuned and measured in this run, or measured only when the database has an answer.
    ///
    /// # Errors
    /// When `bench` does not run. That a line has no kernel is in what it wrote.
    pub(super) fn tuned(&self, lab: &Lab, way: &Way) -> anyhow::Result<Rc<Value>> {
        let mut state = self.state.borrow_mut();
        state.open(lab)?;
        state.tune(lab, way)
    }

    /// The line's row of the joint table.
    ///
    /// # Errors
    /// As [`Measured::tuned`]; when no peer can be set up.
    pub(super) fn row(&self, lab: &Lab, way: &Way) -> anyhow::Result<Rc<Row>> {
        let mut state = self.state.borrow_mut();
        state.open(lab)?;
        if let Some(row) = state.rows.get(way) {
            return Ok(Rc::clone(row));
        }
        let tuned = state.tune(lab, way)?;
        let line = state.lines.iter().find(|line| line.name == way.name).cloned();
        let line = line.with_context(|| format!("the suite has no line {}", way.name))?;
        let math = if way.fast { MathMode::Fast } else { MathMode::Ieee };
        if tuned["ok"] != true {
            let why = tuned["why"].as_str().unwrap_or("bench gives no reason").to_owned();
            let row = Rc::new(Row::without_ours(line, math, way.reader, why));
            state.rows.insert(way.clone(), Rc::clone(&row));
            return Ok(row);
        }
        let setting = Setting {
            database: state.database.clone(),
            threads: way.threads,
            rounds: ROUNDS,
            seconds: SECONDS,
            reader: way.reader,
            math,
            seed: 0,
        };
        let mut peers = match state.peers.remove(&way.threads) {
            Some(peers) => peers,
            None if way.threads == 1 => Peers::set_up(lab, &PEERS.map(|peer| peer.0), 1)?,
            None => Peers::set_up(lab, &PEERS_OF_SEVERAL, way.threads)?,
        };
        let row = table::measure(lab, &setting, &mut peers, &line);
        state.peers.insert(way.threads, peers);
        // Shown as it comes: the bars that rest on many lines say little of each. Nobody may be listening.
        let _ = writeln!(std::io::stderr(), "{} thread: {}", way.threads, row.text());
        let row = Rc::new(row);
        state.rows.insert(way.clone(), Rc::clone(&row));
        Ok(row)
    }
}

impl State {
    /// Reads the suite, and finds the place of the database.
    fn open(&mut self, lab: &Lab) -> anyhow::Result<()> {
        if self.lines.is_empty() {
            self.lines = suite::read(&lab.root.join(SUITE))?;
            self.database = match std::env::var_os("CHECK_CPU_DB") {
                Some(path) => std::path::absolute(path)?,
                None => lab.folder("cpu")?.join("cpu.tune"),
            };
        }
        Ok(())
    }

    fn tune(&mut self, lab: &Lab, way: &Way) -> anyhow::Result<Rc<Value>> {
        let way = Way { reader: false, ..way.clone() };
        if let Some(tuned) = self.tuned.get(&way) {
            return Ok(Rc::clone(tuned));
        }
        if way.threads > 1 {
            // What several threads begin with.
            self.tune(lab, &Way { threads: 1, ..way.clone() })?;
        }
        let figures = lab.folder("cpu-figures")?.join("bench.json");
        let (threads, time_per) = (way.threads.to_string(), format!("{}s", time_per()?));
        let (database, json) = (self.database.to_string_lossy(), figures.to_string_lossy());
        let ran = lab.run(
            [
                "bench",
                "--workloads",
                SUITE,
                "--only",
                &way.name,
                "--threads",
                &threads,
                "--time-per",
                &time_per,
                "--math",
                if way.fast { "fast" } else { "ieee" },
                "--missing",
                "--db",
                &database,
                "--json",
                &json,
            ],
            10 * TIME_PER,
        )?;
        // 1: the line has no kernel, which the figures say.
        let ran = if ran.code == 1 { ran } else { ran.ok().with_context(|| format!("bench of {}", way.name))? };
        let text = std::fs::read(&figures).context("the figures of bench")?;
        let document: Value = serde_json::from_slice(&text).context("the figures of bench")?;
        let result = &document["results"][0];
        if result["name"] != way.name.as_str() {
            bail!("bench says nothing of {}: {}", way.name, ran.stderr.trim().lines().last().unwrap_or_default());
        }
        let tuned = Rc::new(result["peers"][table::OURS].clone());
        self.tuned.insert(way, Rc::clone(&tuned));
        Ok(tuned)
    }
}
