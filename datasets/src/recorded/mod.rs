//! Recorded spaces: a JSON header and a CSV beside it, one line per configuration (format `replay-space/1`).
//!
//! ```no_run
//! let recorded = tilewright_datasets::recorded::read("gemm-RTX_3090.json".as_ref())?;
//! println!("{} configurations, best {} s", recorded.len(), recorded.judge().optimum_s());
//! # Ok::<(), tilewright_datasets::DatasetError>(())
//! ```
//!
//! The table decides which configurations exist. The header's published constraints are kept as information where they can
//! be translated; [`crate::spaces::read`] names those that cannot.

mod problem;
mod rows;
mod write;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use search_space::space::{Config, ParameterSpace};
use search_space::{Outcome, Recorded, RecordedSpace, Value};

use crate::error::DatasetError;
use crate::file;
use crate::spaces::header::Header;
use crate::spaces::python::Untranslated;

pub use problem::RowProblem;
pub(crate) use rows::MAX_ROWS;
pub use write::write;

/// Largest header that is read.
pub const MAX_HEADER_BYTES: u64 = 4 << 20;

/// Largest table that is read, before and after it is unpacked.
pub const MAX_TABLE_BYTES: u64 = 128 << 20;

/// Reads the recorded space whose header is at `header`. Its table is `.csv.gz` or `.csv` beside it, the former when both
/// are there. The device is the header's `device_key`, or without one its `device`.
///
/// # Errors
///
/// [`DatasetError::Io`] and its neighbours for the two files, [`DatasetError::NoTable`]; [`DatasetError::Json`] and
/// [`DatasetError::Space`] for the header; [`DatasetError::Csv`], [`DatasetError::Row`], [`DatasetError::RowCount`] and
/// [`DatasetError::Recorded`] for the table.
pub fn read(header: &Path) -> Result<RecordedSpace, DatasetError> {
    let text = file::read(header, MAX_HEADER_BYTES, "the header of a recorded space", "its table belongs beside it")?;
    let Listed { name, kernel, device, space, rows, table, .. } = listed(header, Header::parse(header, &text)?)?;
    RecordedSpace::new(name, kernel, device, space, rows)
        .map_err(|source| DatasetError::Recorded { path: table, source: Box::new(source) })
}

/// A header with its table.
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) kernel: String,
    pub(crate) device: String,
    pub(crate) constants: BTreeMap<String, Value>,
    pub(crate) space: ParameterSpace,
    pub(crate) untranslated: Vec<Untranslated>,
    rows: Vec<(Config, Recorded)>,
    table: PathBuf,
}

/// The table of a header; `None` when there is none.
pub(crate) fn table_of(header: &Path) -> Option<PathBuf> {
    ["csv.gz", "csv"].into_iter().map(|extension| header.with_extension(extension)).find(|path| path.exists())
}

/// Reads the table of a header.
pub(crate) fn listed(path: &Path, header: Header) -> Result<Listed, DatasetError> {
    let stem = || path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let table = table_of(path).ok_or_else(|| DatasetError::NoTable { path: path.to_owned(), stem: stem() })?;
    let wrong = |problem| DatasetError::Space { path: path.to_owned(), problem: Box::new(problem) };
    let mut declared = header.declared().map_err(wrong)?;

    let advice = "split it, or keep a part of the configurations";
    let packed = file::read(&table, MAX_TABLE_BYTES, "the table of a recorded space", advice)?;
    let text = file::unpacked(&table, packed, MAX_TABLE_BYTES)?;
    let rows = rows::read(&table, &text, &declared.parameters)?;
    drop(text);
    let count = |rows, wanted: Option<usize>, ok| match wanted {
        Some(wanted) if wanted != rows => Err(DatasetError::RowCount { path: table.clone(), rows, wanted, ok }),
        _ => Ok(()),
    };
    count(rows.len(), header.n_configs, false)?;
    count(rows.iter().filter(|(_, row)| row.outcome == Outcome::Ok).count(), header.n_ok, true)?;

    declared.table = Some(rows.iter().map(|(positions, _)| positions.clone()).collect());
    let constants = declared.constants.clone();
    let (space, untranslated) = declared.space().map_err(wrong)?;
    let rows = rows.into_iter().map(|(positions, row)| (positions.into(), row)).collect();
    let device = header.device_key.unwrap_or(header.device);
    Ok(Listed { name: header.space, kernel: header.kernel, device, constants, space, untranslated, rows, table })
}
