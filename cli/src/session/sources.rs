//! What other searches measured, as a start for this one: other devices, other shapes, earlier nights.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cost_model::Source;
use search_space::space::ParameterSpace;
use search_space::strategy::{Row, Told};
use search_space::target::{TargetKey, TargetKind};
use search_space::{Schedule, Workload};
use tuning_db::{Database, DbError, Observation};

use super::known;

/// Sources of one search; each costs time in every choice.
const MOST: usize = 4;
/// Fewest schedules of the searched space that a source must have.
const LEAST_ROWS: usize = 16;

/// A search of the same kernel.
#[derive(Clone, Debug)]
pub struct Found {
    /// Workload, target and how much is known of it, for people.
    pub about: String,
    /// What it measured.
    pub source: Source,
}

/// Databases that searches learn from.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    files: Vec<PathBuf>,
    fingerprint: u64,
}

impl Sources {
    /// Opens each file once, to see that it can be read and what it holds. Their order and repetitions do not matter.
    ///
    /// # Errors
    /// As [`Database::open`].
    pub fn open(files: &[PathBuf]) -> Result<Sources, DbError> {
        let mut held: Vec<(String, PathBuf)> = Vec::new();
        for file in files {
            let info = Database::open(file)?.info()?;
            if !held.iter().any(|(_, known)| is_same(known, file)) {
                held.push((format!("{:?} {:?}\n", info.rows, info.targets), file.clone()));
            }
        }
        held.sort();
        let text: String = held.iter().map(|(text, _)| text.as_str()).collect();
        // The leading digits of a hash of what the files hold.
        let id = tuning_db::workload_id(&text).to_string();
        let fingerprint = u64::from_str_radix(id.get(..16).unwrap_or_default(), 16).unwrap_or_default();
        let files: Vec<PathBuf> = held.into_iter().map(|(_, file)| file).collect();
        let fingerprint = if files.is_empty() { 0 } else { fingerprint.max(1) };
        Ok(Sources { files, fingerprint })
    }

    /// A number that changes with what the files hold; 0 without files. Searches that learn from something else are
    /// other searches.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The files.
    #[must_use]
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// What is stored of schedules that `space` has, one source per workload and target: the ones most alike to `workload`
    /// on `target`, and of equally alike ones the first by files and keys.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn of(&self, workload: &Workload, target: &TargetKey, space: &ParameterSpace) -> Result<Vec<Found>, DbError> {
        let mut found: Vec<Found> = Vec::new();
        for file in &self.files {
            let database = Database::open(file)?;
            let mut pairs: Vec<(String, String)> =
                database.measured()?.into_iter().map(|question| (question.workload, question.target)).collect();
            // One for each generator, next to each other.
            pairs.dedup();
            for (other_key, other_target_key) in pairs {
                let Ok(other) = Workload::parse(&other_key) else { continue };
                let Ok(other_target) = other_target_key.parse::<TargetKey>() else { continue };
                let observations = database.observations(&other_key, &other_target_key)?.rows;
                let rows = rows(&observations, space);
                if rows.len() >= LEAST_ROWS {
                    let likeness = likeness((workload, target), (&other, &other_target));
                    let about = format!("{} on {}, {} schedules", other.summary(), other_target_key, rows.len());
                    found.push(Found { about, source: Source { rows, likeness } });
                }
            }
        }
        // Stable, so that equally alike ones keep their order.
        found.sort_by(|a, b| b.source.likeness.total_cmp(&a.source.likeness));
        found.truncate(MOST);
        Ok(found)
    }

    /// Whether `path` is one of the files.
    #[must_use]
    pub fn contains(&self, path: &Path) -> bool {
        self.files.iter().any(|file| is_same(file, path))
    }
}

/// Whether two paths lead to the same file, by links too.
fn is_same(a: &Path, b: &Path) -> bool {
    let file = |path: &Path| path.metadata().map(|known| (known.dev(), known.ino()));
    matches!((file(a), file(b)), (Ok(a), Ok(b)) if a == b)
}

/// How alike two tasks are: by the interface and the maker of their targets, by threads, arithmetic and memory.
fn likeness(own: (&Workload, &TargetKey), other: (&Workload, &TargetKey)) -> f64 {
    // The architecture of a Vulkan device is `vendor.device`; processors tell no maker.
    let maker = |key: &TargetKey| match key.kind {
        TargetKind::Vulkan => key.arch.split('.').next().map(str::to_owned),
        _ => None,
    };
    let akin = own.1.kind == other.1.kind && maker(own.1) == maker(other.1);
    let ratio = |own: u64, other: u64| other.max(1) as f64 / own.max(1) as f64;
    cost_model::likeness(
        akin,
        [
            ratio(own.1.threads, other.1.threads),
            ratio(own.0.flops(), other.0.flops()),
            ratio(own.0.min_bytes(), other.0.min_bytes()),
        ],
    )
}

/// What is known of each schedule of `space`.
fn rows(observations: &[Observation], space: &ParameterSpace) -> Vec<Row> {
    let row =
        |(schedule, told): (&Schedule, Told)| Some(Row { config: space.config(schedule).ok()?, told: Some(told) });
    known::transferable(observations, |observation| Some(&observation.schedule)).into_iter().filter_map(row).collect()
}
