//! A tuning database as a recorded space: the schedules that were measured of one workload on one target, and no others.
//!
//! A search of such a space chooses among what an earlier search chose, so it tells less of a strategy than a space of
//! which everything was measured; a file filled by uniform draws (`tune --strategy random`) is the fairest.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use measure::DeviceSpec;
use search_space::space::{Config, SpaceBuilder, SpaceError};
use search_space::target::{TargetKey, TargetKind};
use search_space::{Recorded, RecordedError, RecordedSpace, Schedule, Value, Workload};
use tuning_db::{Database, DbError, Observation};

use crate::session::{COST_NS, known};

/// Most workloads and targets that a message lists.
const MOST_LISTED: usize = 4;

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
    #[error("no measurements{asked} in {path}; it holds {known}")]
    Nothing {
        /// The workload and the device that were asked for, as ` of ...` and ` on ...`.
        asked: String,
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

impl StoredError {
    /// Whether the answer is no: there are no measurements. Otherwise the question or the file is wrong.
    #[must_use]
    pub fn is_no(&self) -> bool {
        matches!(self, StoredError::Nothing { .. } | StoredError::Recorded(RecordedError::NothingWorks { .. }))
    }
}

/// Reads what is stored of one workload on one target as a recorded space called `name`.
///
/// Of a schedule measured several times its latest screening counts, else its latest final. One that was cut off as slow
/// has a bound, a time that it is known to exceed. A schedule costs what compiling, verifying and timing
/// it took, where the file has that.
///
/// # Errors
/// When the question has no single answer, or nothing that worked is stored.
pub fn stored(name: &str, database: &Database, question: &Question) -> Result<RecordedSpace, StoredError> {
    let all = Measured::all(database)?;
    let mut found = Vec::new();
    for one in &all {
        if one.fits(question)? {
            found.push(one);
        }
    }
    let path = database.path().display().to_string();
    match found[..] {
        [one] => one.space(name),
        [] => Err(StoredError::Nothing { asked: question.to_string(), path, known: listed(&all) }),
        _ => Err(StoredError::Several { path, known: listed(found) }),
    }
}

/// All of a database: for each workload and target of which something worked, a recorded space called `name`.
///
/// # Errors
/// When the file cannot be read, or holds no measurements.
pub fn stored_all(name: &str, database: &Database) -> Result<Vec<RecordedSpace>, StoredError> {
    let spaces: Vec<_> = Measured::all(database)?.iter().map(|one| one.space(name)).collect();
    if spaces.is_empty() {
        let (asked, path) = (String::new(), database.path().display().to_string());
        return Err(StoredError::Nothing { asked, path, known: listed(&[]) });
    }
    spaces.into_iter().filter(|space| !space.as_ref().is_err_and(StoredError::is_no)).collect()
}

impl fmt::Display for Question {
    /// ` of ...` and ` on ...`, as far as it says.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(workload) = &self.workload {
            write!(f, " of {}", workload.summary())?;
        }
        if let Some(device) = &self.device {
            write!(f, " on {device}")?;
        }
        Ok(())
    }
}

/// What is stored of one workload on one target; not nothing.
struct Measured {
    /// The workload's key.
    workload: String,
    /// Its short form.
    summary: String,
    target: String,
    observations: Vec<Observation>,
}

impl Measured {
    /// Everything that kernels of this build's generator gave, finished searches and others.
    fn all(database: &Database) -> Result<Vec<Measured>, StoredError> {
        let mut all = Vec::new();
        for tuning_db::Question { workload, target, generator } in database.measured()? {
            if generator != crate::GENERATOR {
                continue;
            }
            let mut observations = database.observations(&workload, &target)?.rows;
            observations.retain(|observation| observation.generator == generator);
            if !observations.is_empty() {
                let summary =
                    Workload::parse(&workload).map_or_else(|_| workload.clone(), |workload| workload.summary());
                all.push(Measured { workload, summary, target, observations });
            }
        }
        Ok(all)
    }

    fn fits(&self, question: &Question) -> Result<bool, StoredError> {
        let device = question.device.as_ref().map_or(Ok(true), |device| is_device(&self.target, device))?;
        Ok(device && question.workload.as_ref().is_none_or(|workload| workload.key() == self.workload))
    }

    fn space(&self, name: &str) -> Result<RecordedSpace, StoredError> {
        space(name, &self.summary, &self.target, &self.observations)
    }
}

/// The first few workloads and targets as text.
fn listed<'a>(all: impl IntoIterator<Item = &'a Measured>) -> String {
    let mut all = all.into_iter().map(|one| format!("{} on {}", one.summary, one.target));
    let mut texts: Vec<String> = all.by_ref().take(MOST_LISTED).collect();
    match all.count() {
        _ if texts.is_empty() => return "none".into(),
        0 => {}
        more => texts.push(format!("{more} more")),
    }
    texts.join(", ")
}

/// The recorded space of these observations.
fn space(name: &str, kernel: &str, target: &str, observations: &[Observation]) -> Result<RecordedSpace, StoredError> {
    let measured = known::all(observations, |observation| Some(&observation.schedule));
    let mut costs: BTreeMap<&Schedule, Duration> = BTreeMap::new();
    for observation in observations {
        if let Some(ns) = observation.environment.get(COST_NS).and_then(|ns| ns.parse().ok()) {
            costs.entry(&observation.schedule).or_insert(Duration::from_nanos(ns));
        }
    }
    let mut domains: BTreeMap<&str, BTreeSet<Value>> = BTreeMap::new();
    for (parameter, value) in measured.keys().flat_map(|schedule| schedule.iter()) {
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
    let cost = |schedule: &Schedule| costs.get(schedule).copied().unwrap_or_default();
    let rows: Vec<(Config, Recorded)> =
        measured.iter().map(|(&schedule, &told)| (config(schedule), Recorded::new(told, cost(schedule)))).collect();
    let mut builder = SpaceBuilder::new();
    for (parameter, values) in &domains {
        builder.values(*parameter, values.iter().cloned().collect());
    }
    builder.table(rows.iter().map(|(config, _)| config.to_vec()).collect());
    Ok(RecordedSpace::new(name, kernel, target, builder.build()?, rows)?)
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
        DeviceSpec::Cpu { threads, features } => {
            // Which features a processor without a choice has, only that processor knows.
            let own: Vec<String> = key.features.iter().cloned().collect();
            let chosen = features.is_all() || features.choose(&own).is_ok_and(|chosen| chosen == own);
            key.kind == TargetKind::Cpu && key.unit == "core" && key.threads == threads && chosen
        }
        DeviceSpec::Vulkan { .. } => key.kind == TargetKind::Vulkan,
        DeviceSpec::Fixture(_) => key.kind == TargetKind::Cpu && key.unit == "fixture",
    })
}

#[cfg(test)]
mod tests {
    use search_space::Outcome;
    use search_space::strategy::Told;
    use tuning_db::{Phase, Writer, WriterOptions};

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
            // Measured again, and in the final: the latest screening counts.
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
                    let told = match row.told() {
                        Told::Time { seconds } => format!("{} ns", (seconds * 1e9).round()),
                        Told::Censored { at_least_seconds } => format!(">= {} ns", (at_least_seconds * 1e9).round()),
                        Told::Failed(outcome) => outcome.to_string(),
                    };
                    format!("{}: {told} {:?}", space.space().schedule(&config), row.cost)
                })
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect();
            let wanted = [
                "order=- tile=1 vector=4: 700 ns 5ms",
                "order=ij tile=1 vector=-: 500 ns 5ms",
                "order=ij tile=16 vector=-: timeout 5ms",
                "order=ij tile=2 vector=-: 250 ns 5ms",
                "order=ij tile=4 vector=-: >= 900 ns 5ms",
                "order=ij tile=8 vector=-: wrong 0ns",
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
            // Of this one there is no final: the search goes on, or was interrupted.
            Observation { workload: small, ..observation(1, Outcome::Ok, &[300.0]) },
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
                "none of the 1 recorded configurations has a time, so there is nothing to search for"
            );
            let several = text(None, None);
            assert!(several.contains("choose with --workload and --device"), "{several}");
            assert!(["8x8x8", "8x16x8"].iter().all(|shape| several.contains(shape)), "{several}");
            // Only what could be meant.
            let several = text(Some(8), None);
            assert!(several.contains("llvmpipe") && !several.contains("8x16x8"), "{several}");
            let nothing = text(Some(32), None);
            assert!(nothing.contains("no measurements of matmul 8x32x8 f32 in "), "{nothing}");
            assert!(
                nothing.contains("it holds matmul 8x16x8 f32 on tt1;cpu") && nothing.contains("llvmpipe"),
                "{nothing}"
            );
            assert!(
                text(Some(8), Some("cpu:threads=2")).contains("no measurements of matmul 8x8x8 f32 on cpu:threads=2")
            );
            assert!(text(Some(8), Some("abacus")).contains("abacus"));
            let no = |n, device| ask(n, device).unwrap_err().is_no();
            assert!(no(Some(8), Some("vulkan")) && no(Some(32), None));
            assert!(!no(None, None) && !no(Some(8), Some("abacus")));
        });
    }

    #[test]
    fn a_search_without_a_final_is_the_only_one_too() {
        with(vec![observation(1, Outcome::Ok, &[300.0])], |database| {
            assert_eq!(stored("night", database, &Question::default()).unwrap().len(), 1);
        });
        with(Vec::new(), |database| {
            let text = stored("night", database, &Question::default()).unwrap_err().to_string();
            assert!(text.starts_with("no measurements in ") && text.ends_with("it holds none"), "{text}");
            assert!(stored_all("night", database).unwrap_err().is_no());
        });
    }

    #[test]
    fn all_of_a_database_is_a_space_for_each_pair_that_worked() {
        let observations = vec![
            observation(1, Outcome::Ok, &[300.0]),
            Observation { workload: workload(16).key(), ..observation(1, Outcome::Ok, &[300.0]) },
            Observation { target: VULKAN.into(), ..observation(1, Outcome::Crash, &[]) },
            Observation {
                generator: "other/1".into(),
                workload: workload(4).key(),
                ..observation(1, Outcome::Ok, &[1.0])
            },
        ];
        with(observations, |database| {
            let kernels: Vec<String> =
                stored_all("night", database).unwrap().into_iter().map(|space| space.kernel).collect();
            assert_eq!(kernels, ["matmul 8x16x8 f32", "matmul 8x8x8 f32"]);
        });
    }

    #[test]
    fn a_message_lists_a_few_of_many() {
        let stored = (2..9).map(|n| Observation { workload: workload(n).key(), ..observation(1, Outcome::Ok, &[3.0]) });
        with(stored.collect(), |database| {
            let text = stored_text(database);
            assert!(text.contains("3 more") && text.matches("matmul").count() == MOST_LISTED, "{text}");
        });
    }

    fn stored_text(database: &Database) -> String {
        stored("night", database, &Question::default()).unwrap_err().to_string()
    }
}
