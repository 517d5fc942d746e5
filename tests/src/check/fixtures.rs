//! Candidates that misbehave inside the worker: each costs at most its timeout and one restart, is recorded with its
//! class, and never wins.

use super::{Bar, Finding, Lab};
use anyhow::{Context, ensure};
use measure::device::fixtures::Rule;
use measure::{DeviceHandle, DeviceSpec, ScreenOptions, WorkerOptions};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use search_space::families::plan;
use search_space::{Outcome, Schedule, Workload};
use std::time::{Duration, Instant};

const WORKLOAD: &str = "matmul m=64 n=64 k=64 dtype=f32";

/// How long a candidate may take here; the same guard with a longer limit protects a night.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Killing, starting and opening again; also where the machine is busy.
const RESTART: Duration = Duration::from_secs(2);

/// What misbehaves, its word in device names, and the class it must be recorded with.
const FAULTS: &[(&str, &str, Outcome)] = &[
    ("hangs", "hang", Outcome::Timeout),
    ("ignores SIGTERM", "stubborn", Outcome::Timeout),
    ("crashes", "crash", Outcome::Crash),
    ("allocates 64 GiB", "memory", Outcome::ResourceLimit),
    ("writes a wrong number", "wrong", Outcome::Wrong),
    ("writes nothing", "silent", Outcome::Wrong),
];

pub(super) fn bars() -> Vec<Bar> {
    let mut bars = Vec::new();
    for &(what, word, outcome) in FAULTS {
        bars.push(Bar::new(
            format!("fixture: {what}"),
            format!("{outcome}; costs <= timeout + one restart"),
            move |lab| cost(lab, word, outcome),
        ));
        bars.push(Bar::new(format!("night: {what}"), format!("each recorded as {outcome}, none wins"), move |lab| {
            recorded(lab, word, outcome)
        }));
    }
    bars
}

/// A good candidate, once to load the workload and once for what it usually costs; a bad one; and the good one again,
/// which pays for the restart.
fn cost(lab: &Lab, word: &str, wanted: Outcome) -> anyhow::Result<Finding> {
    let rule: Rule = format!("{word}/2").parse().map_err(anyhow::Error::msg)?;
    let options =
        WorkerOptions { executable: Some(lab.tilewright.clone()), timeout: TIMEOUT, ..WorkerOptions::default() };
    let mut device = DeviceHandle::open(&DeviceSpec::Fixture(rule.clone()), options)?;
    let workload: Workload = WORKLOAD.parse()?;
    let space = plan(&workload, &device.identity().target)?.space;
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let schedules: Vec<Schedule> = (0..64).map(|_| space.schedule(&space.sample(&mut rng, 0.5))).collect();
    let find = |bad: bool| schedules.iter().find(|schedule| rule.fault_of(schedule).is_some() == bad);
    let (good, bad) = (find(false).context("all are bad")?, find(true).context("all are good")?);

    let mut timed = |schedule: &Schedule| -> anyhow::Result<(Outcome, Duration)> {
        let start = Instant::now();
        let measured = device.measure(&workload, schedule, &ScreenOptions::default())?;
        Ok((measured.outcome, start.elapsed()))
    };
    timed(good)?;
    let (first, usual) = timed(good)?;
    let (outcome, lost) = timed(bad)?;
    let (second, after) = timed(good)?;
    let restarts = device.restarts();
    ensure!(first == Outcome::Ok && second == Outcome::Ok, "the good candidate was {first}, then {second}");
    let (cost, restart) = (lost.as_secs_f64(), after.saturating_sub(usual).as_secs_f64());
    let within = lost + after.saturating_sub(usual) <= TIMEOUT + RESTART && restarts <= 1;
    let measured = format!("{outcome}; {cost:.2} s + {restart:.2} s of restart ({restarts}); timeout {TIMEOUT:?}");
    Ok(Finding::of(outcome == wanted && within, measured))
}

/// A tune on a device where every third candidate is bad: what the database says of them.
fn recorded(lab: &Lab, word: &str, wanted: Outcome) -> anyhow::Result<Finding> {
    let rule: Rule = format!("{word}/3").parse().map_err(anyhow::Error::msg)?;
    let (device, path) = (format!("fixture:{rule}"), lab.folder("fixtures")?.join("night.tune"));
    let database = path.to_string_lossy();
    let arguments = ["tune", WORKLOAD, "--device", &device, "--trials", "12", "--db", &database];
    lab.run(arguments, Duration::from_secs(300))?.ok()?;
    let database = rusqlite::Connection::open(&path)?;
    let mut query = database.prepare("select schedule, outcome from observation")?;
    let rows = query.query_map((), |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    let (mut good, mut bad) = (0, 0);
    for row in rows {
        let (schedule, outcome) = row?;
        let schedule: Schedule = serde_json::from_str(&schedule)?;
        if rule.fault_of(&schedule).is_some() {
            bad += 1;
            ensure!(outcome == wanted.as_str(), "a bad candidate is recorded as {outcome}: {schedule}");
        } else {
            good += usize::from(outcome == Outcome::Ok.as_str());
        }
    }
    // A winner is an `ok` observation, and no bad candidate has one.
    Ok(Finding::of(good > 0 && bad > 0, format!("{bad} bad, all {wanted}; {good} good")))
}
