//! Recorded spaces: a JSON header and a CSV beside it, one line per configuration (format `replay-space/1`).
//!
//! ```no_run
//! let recorded = tilewright_datasets::recorded::read("gemm-RTX_3090.json".as_ref())?;
//! println!("{} configurations, best {} s", recorded.len(), recorded.judge().optimum_s());
//! # Ok::<(), tilewright_datasets::DatasetError>(())
//! ```
//!
//! The table decides which configurations exist. The header's published constraints are kept as information where they can
//! be translated; [`crate::spaces::read`] names those that cannot, and [`contradictions`] counts the rows that break one.

mod problem;
mod rows;
mod write;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use search_space::space::{Config, Expr, ParameterSpace};
use search_space::{Recorded, RecordedSpace, Value};

use crate::error::DatasetError;
use crate::file;
use crate::spaces::header::Header;
use crate::spaces::python::Untranslated;
use crate::spaces::{self, Form};

pub use problem::RowProblem;
pub(crate) use rows::MAX_ROWS;
pub use write::write;

/// Largest header that is read.
pub const MAX_HEADER_BYTES: u64 = 4 << 20;

/// Largest table that is read, before and after it is unpacked.
pub const MAX_TABLE_BYTES: u64 = 128 << 20;

/// Reads the recorded space whose header is at `header`. Its table is the `.csv.gz` or the `.csv` beside it. The device is
/// the header's `device_key`, or without one its `device`.
///
/// # Errors
///
/// [`DatasetError::Io`] and its neighbours for the two files, [`DatasetError::NoTable`] and [`DatasetError::TwoTables`];
/// [`DatasetError::NoMeasurements`] for a file of another form; [`DatasetError::Json`] and [`DatasetError::Space`] for the
/// header; [`DatasetError::Csv`], [`DatasetError::Row`], [`DatasetError::RowCount`] and
/// [`DatasetError::Recorded`] for the table.
pub fn read(header: &Path) -> Result<RecordedSpace, DatasetError> {
    let (text, form) = spaces::opened(header, "the header of a recorded space")?;
    let found = match form {
        Form::Header => None,
        Form::KernelTuner => Some("is Kernel Tuner's, of which the space is read, but no measurements"),
        Form::NoObject if spaces::is_by_hand(header, &text) => Some("declares a space, but has no measurements"),
        Form::OtherObject | Form::NoObject => Some("is no recorded space"),
    };
    if let Some(found) = found {
        return Err(DatasetError::NoMeasurements { path: header.to_owned(), found });
    }
    let Listed { name, kernel, device, problem, space, rows, table, .. } =
        listed(header, Header::parse(header, &text)?)?;
    let mut recorded = RecordedSpace::new(name, kernel, device, space, rows)
        .map_err(|source| DatasetError::Recorded { path: table, source: Box::new(source) })?;
    recorded.problem = problem;
    Ok(recorded)
}

/// How many rows break a constraint of the header. The table decides all the same, but one of the two is wrong.
#[must_use]
pub fn contradictions(recorded: &RecordedSpace) -> usize {
    let space = recorded.space();
    // The texts are canonical, so they can be read.
    let constraints: Vec<Expr> = space.constraints().iter().filter_map(|c| Expr::parse(&c.text).ok()).collect();
    let breaks = |config: &Config| {
        let value = |name: &str| {
            let at = space.position(name)?;
            space.params()[at].values.get(usize::from(config[at]))
        };
        !constraints.iter().all(|constraint| constraint.holds(&value))
    };
    if constraints.is_empty() { 0 } else { recorded.rows().filter(|(config, _)| breaks(config)).count() }
}

/// A header with its table.
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) kernel: String,
    pub(crate) device: String,
    problem: Option<String>,
    pub(crate) constants: BTreeMap<String, Value>,
    pub(crate) space: ParameterSpace,
    pub(crate) untranslated: Vec<Untranslated>,
    rows: Vec<(Config, Recorded)>,
    table: PathBuf,
}

/// The two names that the table of a header may have.
fn tables(header: &Path) -> [PathBuf; 2] {
    ["csv.gz", "csv"].map(|extension| header.with_extension(extension))
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// The table of a header; `None` when there is none. Of two, one is likely that of an earlier recording, and nothing tells
/// which.
pub(crate) fn table_of(header: &Path) -> Result<Option<PathBuf>, DatasetError> {
    let mut found = tables(header).into_iter().filter(|path| path.exists());
    match (found.next(), found.next()) {
        (_, Some(_)) => Err(DatasetError::TwoTables { path: header.to_owned(), stem: stem(header) }),
        (one, None) => Ok(one),
    }
}

/// Reads the table of a header.
pub(crate) fn listed(path: &Path, header: Header) -> Result<Listed, DatasetError> {
    let no_table = || DatasetError::NoTable { path: path.to_owned(), stem: stem(path) };
    let table = table_of(path)?.ok_or_else(no_table)?;
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
    count(rows.iter().filter(|(_, row)| row.seconds.is_some()).count(), header.n_ok, true)?;

    declared.table = Some(rows.iter().map(|(positions, _)| positions.clone()).collect());
    let constants = declared.constants.clone();
    let (space, untranslated) = declared.space().map_err(wrong)?;
    let rows = rows.into_iter().map(|(positions, row)| (positions.into(), row)).collect();
    let (device, problem) = (header.device().to_owned(), header.problem());
    Ok(Listed {
        name: header.space,
        kernel: header.kernel,
        device,
        problem,
        constants,
        space,
        untranslated,
        rows,
        table,
    })
}
