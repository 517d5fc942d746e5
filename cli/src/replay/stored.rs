//! A tuning database as a recorded space: the schedules that were measured of one workload on one target, and no others.
//!
//! A search of such a space chooses among what an earlier search chose, so it tells less of a strategy than a space of
//! which everything was measured; a file filled by uniform draws (`tune --strategy random`) is the fairest.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use measure::DeviceSpec;
use measure::protocol::stats::median;
use search_space::space::{Config, SpaceBuilder, SpaceError};
use search_space::target::{TargetKey, TargetKind};
use search_space::{Outcome, Recorded, RecordedError, RecordedSpace, Schedule, Value, Workload};
use tuning_db::{Database, DbError, Observation, Phase};

use crate::session::COST_NS;

/// Which part of a database is meant. What is left open must be clear from what is stored.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// The workload.
    pub workload: Option<Workload>,
    /// The target: its key, or a device as `--device` names it.
    pub device: Option<String>,
}

/// Why a database is no recorded space.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoredError {
    /// The database cannot be read.
    #[error(transparent)]
    Database(#[from] DbError),
    /// The device is no device.
    #[error("{device:?} is neither a target key of the file nor a device: {reason}")]
    Device {
        /// The text.
        device: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Nothing stored fits the question.
    #[error("no measurements of that workload and device in {path}; it holds {known}")]
    Nothing {
        /// The file.
        path: String,
        /// Workloads and targets that it holds.
        known: String,
    },
    /// More than one workload and target fit.
    #[error("{path} holds measurements of {known}; choose with --workload and --device")]
    Several {
        /// The file.
        path: String,
        /// What fits the question.
        known: String,
    },
    /// The measured schedules make no space.
    #[error(transparent)]
    Space(#[from] SpaceError),
    /// The measurements contradict each other or nothing worked.
    #[error(transparent)]
    Recorded(#[from] RecordedError),
}

/// Reads what is stored of one workload on one target as a recorded space called `name`.
///
/// A schedule measured several times has the median of its screenings, else of its finals. One that was dropped as slow
/// has the largest time that it is known to exceed; that is well above the best. A schedule costs what compiling, verifying
/// and timing it took, where the file has that.
///
/// # Errors
/// When the question has no single answer, or nothing that worked is stored.
pub fn stored(name: &str, database: &Database, question: &Question) -> Result<RecordedSpace, StoredError> {
    let (workload, target, observations) = select(database, question)?;
    let mut measured: BTreeMap<Schedule, Vec<&Observation>> = BTreeMap::new();
    for observation in &observations {
        measured.entry(observation.schedule.clone()).or_default().push(observation);
    }
    let mut domains: BTreeMap<&str, BTreeSet<Value>> = BTreeMap::new();
    for (parameter, value) in measured.keys().flat_map(Schedule::iter) {
        domains.entry(parameter).or_default().insert(value.clone());
    }
    // Spaces of different builds may differ in a parameter.
    for (parameter, values) in &mut domains {
        if measured.keys().any(|schedule| schedule.get(parameter).is_none()) {
            values.insert(Value::none());
        }
    }
    let none = Value::none();
    let config = |schedule: &Schedule| -> Config {
        let place = |(parameter, values): (&&str, &BTreeSet<Value>)| {
            let value = schedule.get(parameter).unwrap_or(&none);
            let place =
                values.iter().position(|known| known == value).expect("invariant: collected from all schedules");
            // The builder refuses longer domains.
            u16::try_from(place).unwrap_or(u16::MAX)
        };
        domains.iter().map(place).collect::<Vec<u16>>().into()
    };
    let rows: Vec<(Config, Recorded)> =
        measured.iter().map(|(schedule, all)| (config(schedule), result(all))).collect();
    let mut builder = SpaceBuilder::new();
    for (parameter, values) in &domains {
        builder.values(*parameter, values.iter().cloned().collect());
    }
    builder.table(rows.iter().map(|(config, _)| config.to_vec()).collect());
    Ok(RecordedSpace::new(name, workload, target, builder.build()?, rows)?)
}

/// The one workload and target that are meant, with their observations.
fn select(database: &Database, question: &Question) -> Result<(String, String, Vec<Observation>), StoredError> {
    let workloads: BTreeSet<String> = match &question.workload {
        Some(workload) => [workload.key()].into(),
        None => database.questions()?.into_iter().map(|question| question.workload).collect(),
    };
    let targets: Vec<String> = database.info()?.targets.into_keys().collect();
    let fits = |target: &String| question.device.as_ref().map_or(Ok(true), |device| is_device(target, device));
    let (mut found, mut known) = (Vec::new(), Vec::new());
    for target in &targets {
        let fits = fits(target)?;
        for workload in &workloads {
            let mut observations = database.observations(workload, target)?.rows;
            observations.retain(|observation| observation.generator == crate::GENERATOR);
            if observations.is_empty() {
                continue;
            }
            let summary = Workload::parse(workload).map_or_else(|_| workload.clone(), |workload| workload.summary());
            known.push(format!("{summary} on {target}"));
            if fits {
                found.push((summary, target.clone(), observations));
            }
        }
    }
    let path = database.path().display().to_string();
    let known = if known.is_empty() { "nothing else".to_owned() } else { known.join(", ") };
    if found.len() > 1 {
        return Err(StoredError::Several { path, known });
    }
    found.pop().ok_or(StoredError::Nothing { path, known })
}

/// Whether the target with this key is what `--device` calls `device`.
fn is_device(target: &str, device: &str) -> Result<bool, StoredError> {
    if device == target {
        return Ok(true);
    }
    if device.contains(';') {
        return Ok(false);
    }
    let spec: DeviceSpec = device
        .parse()
        .map_err(|error: measure::Error| StoredError::Device { device: device.into(), reason: error.to_string() })?;
    let Ok(key) = TargetKey::parse(target) else { return Ok(false) };
    Ok(match spec {
        DeviceSpec::Cpu { threads } => key.kind == TargetKind::Cpu && key.unit == "core" && key.threads == threads,
        DeviceSpec::Vulkan { .. } => key.kind == TargetKind::Vulkan,
        DeviceSpec::Fixture(_) => key.kind == TargetKind::Cpu && key.unit == "fixture",
    })
}

/// The one result of all observations of a schedule, of which there is at least one.
fn result(observations: &[&Observation]) -> Recorded {
    let times = |phase: Phase| {
        let whole =
            observations.iter().filter(|o| o.phase == phase && o.outcome == Outcome::Ok && o.at_least_ns.is_none());
        median(&whole.filter_map(|o| median(&o.samples_ns)).collect::<Vec<f64>>())
    };
    let bound =
        || observations.iter().filter(|o| o.outcome == Outcome::Ok).filter_map(|o| o.at_least_ns).reduce(f64::max);
    let ns = times(Phase::Screen).or_else(|| times(Phase::Final)).or_else(bound).filter(|ns| *ns > 0.0);
    let cost = observations.iter().find_map(|o| o.environment.get(COST_NS)?.parse().ok());
    let failed = observations.iter().map(|o| o.outcome).find(|outcome| *outcome != Outcome::Ok);
    Recorded {
        // Verified but without a usable time: as a search is told of it.
        outcome: if ns.is_some() { Outcome::Ok } else { failed.unwrap_or(Outcome::ResourceLimit) },
        seconds: ns.map(|ns| ns / 1e9),
        cost: Duration::from_nanos(cost.unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use tuning_db::{Writer, WriterOptions};

    use super::*;

    const CPU: &str = "tt1;cpu;sapphirerapids;core;avx512f,fma;1";
    const VULKAN: &str = "tt1;vulkan;10005.0;llvmpipe;-;1";

    fn workload(n: u64) -> Workload {
        Workload::parse(&format!("matmul m=8 n={n} k=8 dtype=f32")).unwrap()
    }

    fn observation(tile: i64, outcome: Outcome, samples_ns: &[f64]) -> Observation {
        Observation {
            workload: workload(8).key(),
            target: CPU.into(),
            generator: crate::GENERATOR.into(),
            schedule: [("tile", tile.into()), ("order", "ij".into())].into_iter().collect(),
            outcome,
            phase: Phase::Screen,
            samples_ns: samples_ns.to_vec(),
            at_least_ns: None,
            environment: BTreeMap::from([(COST_NS.into(), "5000000".into())]),
            program_hash: None,
            code_hash: None,
            input: "normal(0,1)".into(),
            run: "run".into(),
            sequence: 0,
            measured_at: 1,
        }
    }

    fn with(observations: Vec<Observation>, check: impl FnOnce(&Database)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("night.tune");
        let writer = Writer::open(&path, WriterOptions::default()).unwrap();
        for (sequence, observation) in (0..).zip(observations) {
            writer.record(Observation { sequence, ..observation }).unwrap().wait().unwrap();
        }
        writer.close().unwrap();
        check(&Database::open(&path).unwrap());
    }

    #[test]
    fn every_measured_schedule_is_there_once_with_its_result() {
        let schedule = |tile: i64| -> Schedule { [("tile", tile.into()), ("vector", 4.into())].into_iter().collect() };
        let observations = vec![
            observation(1, Outcome::Ok, &[300.0, 310.0, 290.0]),
            // Measured again, and in the final: the screenings count.
            observation(1, Outcome::Ok, &[500.0]),
            Observation { phase: Phase::Final, ..observation(1, Outcome::Ok, &[1.0]) },
            Observation { phase: Phase::Final, ..observation(2, Outcome::Ok, &[250.0]) },
            Observation { at_least_ns: Some(900.0), ..observation(4, Outcome::Ok, &[]) },
            Observation { environment: BTreeMap::new(), ..observation(8, Outcome::Wrong, &[]) },
            Observation { at_least_ns: Some(9e9), ..observation(16, Outcome::Timeout, &[]) },
            // Another build's space, and another generator.
            Observation { schedule: schedule(1), ..observation(1, Outcome::Ok, &[700.0]) },
            Observation { generator: "other/1".into(), ..observation(32, Outcome::Ok, &[1.0]) },
        ];
        with(observations, |database| {
            let question = Question { workload: Some(workload(8)), device: Some("cpu".into()) };
            let space = stored("night", database, &question).unwrap();
            let texts: Vec<String> = space
                .rows()
                .map(|(config, row)| {
                    let ns = row.seconds.map(|seconds| (seconds * 1e9).round());
                    format!("{}: {} {ns:?} {:?}", space.space().schedule(&config), row.outcome, row.cost)
                })
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect();
            let wanted = [
                "order=- tile=1 vector=4: ok Some(700.0) 5ms",
                "order=ij tile=1 vector=-: ok Some(400.0) 5ms",
                "order=ij tile=16 vector=-: timeout None 5ms",
                "order=ij tile=2 vector=-: ok Some(250.0) 5ms",
                "order=ij tile=4 vector=-: ok Some(900.0) 5ms",
                "order=ij tile=8 vector=-: wrong None 0ns",
            ];
            assert_eq!(texts, wanted);
            assert_eq!((space.name.as_str(), space.device.as_str()), ("night", CPU));
        });
    }

    #[test]
    fn a_question_must_have_one_answer() {
        let small = workload(16).key();
        let observations = vec![
            Observation { phase: Phase::Final, ..observation(1, Outcome::Ok, &[300.0]) },
            Observation { workload: small, phase: Phase::Final, ..observation(1, Outcome::Ok, &[300.0]) },
            Observation { target: VULKAN.into(), ..observation(1, Outcome::Crash, &[]) },
        ];
        with(observations, |database| {
            let ask = |n: Option<u64>, device: Option<&str>| {
                let question = Question { workload: n.map(workload), device: device.map(String::from) };
                stored("night", database, &question).map(|space| space.device)
            };
            assert_eq!(ask(Some(16), None).unwrap(), CPU);
            assert_eq!(ask(Some(8), Some(CPU)).unwrap(), CPU);
            let text = |n, device| ask(n, device).unwrap_err().to_string();
            assert_eq!(
                text(Some(8), Some("vulkan")),
                "none of the 1 recorded configurations is ok, so there is nothing to search for"
            );
            assert!(text(None, None).contains("choose with --workload and --device"));
            assert!(text(Some(8), None).contains("llvmpipe"));
            assert!(text(Some(32), None).contains("it holds nothing else"));
            assert!(text(Some(8), Some("cpu:threads=2")).contains("no measurements"));
            assert!(text(Some(8), Some("abacus")).contains("abacus"));
        });
    }
}
