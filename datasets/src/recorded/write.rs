//! Writing a recording in the format that [`super::read`] reads. Equal recordings give equal bytes.
//!
//! Both files are written under other names beside the target and then renamed, the table first and the header last: a full
//! disk leaves an older recording as it was, and what has a header is complete.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use flate2::{Compression, GzBuilder};
use indexmap::IndexMap;
use search_space::{RecordedSpace, Value};

use super::{MAX_HEADER_BYTES, rows, tables};
use crate::error::DatasetError;
use crate::file;
use crate::spaces::header::{FORMAT, Header, HeaderParameter};

/// Columns behind the parameters; `at_least_ms` follows where something was cut off.
const COLUMNS: [&str; 7] = ["status", "time_ms", "min_ms", "median_ms", "std_ms", "compile_ms", "bench_ms"];

/// The column of bounds.
const BOUND: &str = "at_least_ms";

/// Writes `recorded` as the header `path` and a `.csv.gz` beside it. An older recording of the same kernel on the same device
/// is replaced; nothing else is.
///
/// What a configuration cost is one number here, so it is written as `bench_ms` and `compile_ms` stays empty. Constraints are
/// written in the language of this project, which the header says.
///
/// # Errors
///
/// [`DatasetError::OtherRecording`] and [`DatasetError::InTheWay`] for what would be lost; [`DatasetError::Write`], after
/// which the files are as they were.
pub fn write(path: &Path, recorded: &RecordedSpace) -> Result<(), DatasetError> {
    let [table, _] = tables(path);
    check(path, recorded)?;
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| DatasetError::Write { path, source }
    };
    let text = table_text(recorded).map_err(failed(&table))?;
    let new_table = Unfinished::new(&table, |file| {
        // No time and no name of a file in it, so that equal tables are equal files.
        let mut packer = GzBuilder::new().mtime(0).write(file, Compression::best());
        packer.write_all(&text)?;
        packer.finish().map(|_| ())
    });
    let new_table = new_table.map_err(failed(&table))?;
    let new_header = serde_json::to_string_pretty(&header(recorded)).map_err(io::Error::from);
    let new_header = new_header.and_then(|text| Unfinished::new(path, |mut file| writeln!(file, "{text}")));
    let new_header = new_header.map_err(failed(path))?;
    new_table.finish(&table).map_err(failed(&table))?;
    new_header.finish(path).map_err(failed(path))
}

/// Whether `recorded` may be written at `path`: nothing is there, or an older recording of the same.
fn check(path: &Path, recorded: &RecordedSpace) -> Result<(), DatasetError> {
    let [table, plain] = tables(path);
    let in_the_way = |path: &Path| Err(DatasetError::InTheWay { path: path.to_owned() });
    if plain.exists() {
        return in_the_way(&plain);
    }
    if !path.exists() {
        return if table.exists() { in_the_way(&table) } else { Ok(()) };
    }
    let text = file::read(path, MAX_HEADER_BYTES, "the header of a recorded space", "give another name");
    let Ok(header) = text.and_then(|text| Header::parse(path, &text)) else { return in_the_way(path) };
    let problem = header.problem();
    if header.kernel != recorded.kernel || header.device() != recorded.device || problem != recorded.problem {
        let (kernel, device) = (header.kernel.clone(), header.device().to_owned());
        return Err(DatasetError::OtherRecording { path: path.to_owned(), kernel, device });
    }
    Ok(())
}

/// A complete file that has not got its name yet; removed unless it gets it.
struct Unfinished {
    path: PathBuf,
}

impl Unfinished {
    /// Writes the file that shall become `target`.
    fn new(target: &Path, write: impl FnOnce(&File) -> io::Result<()>) -> io::Result<Unfinished> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let path = target.with_file_name(format!(".{name}.{}.new", std::process::id()));
        let file = File::create_new(&path)?;
        let unfinished = Unfinished { path };
        write(&file)?;
        file.sync_all()?;
        Ok(unfinished)
    }

    /// Gives it its name, in place of what has it.
    fn finish(self, target: &Path) -> io::Result<()> {
        std::fs::rename(&self.path, target)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Once it has its name nothing is left here.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn header(recorded: &RecordedSpace) -> Header {
    let space = recorded.space();
    let json = |value: &Value| match value {
        Value::Int(value) => serde_json::Value::from(*value),
        Value::Name(name) => serde_json::Value::from(name.as_str()),
    };
    let parameters = space.params().iter();
    Header {
        format: FORMAT.into(),
        space: recorded.name.clone(),
        kernel: recorded.kernel.clone(),
        device: recorded.device.clone(),
        device_key: None,
        problem_size: recorded
            .problem
            .as_ref()
            .map(|text| serde_json::from_str(text).unwrap_or_else(|_| serde_json::Value::String(text.clone()))),
        time_unit: "ms".into(),
        parameters: parameters
            .map(|p| HeaderParameter { name: p.name.clone(), values: p.values.iter().map(json).collect() })
            .collect(),
        constants: IndexMap::new(),
        constraints: space.constraints().iter().map(|constraint| constraint.text.clone()).collect(),
        constraint_language: Some("tilewright".into()),
        constraint_names: space.constraints().iter().map(|constraint| constraint.name.clone()).collect(),
        columns: columns(recorded).into_iter().map(String::from).collect(),
        n_configs: Some(recorded.len()),
        n_ok: Some(recorded.rows().filter(|(_, row)| row.seconds.is_some()).count()),
    }
}

/// The columns of the table.
fn columns(recorded: &RecordedSpace) -> Vec<&str> {
    let bounds = recorded.rows().any(|(_, row)| row.at_least_seconds.is_some());
    let parameters = recorded.space().params().iter().map(|param| param.name.as_str());
    parameters.chain(COLUMNS).chain(bounds.then_some(BOUND)).collect()
}

/// The table, sorted by the positions of the values.
fn table_text(recorded: &RecordedSpace) -> std::io::Result<Vec<u8>> {
    let params = recorded.space().params();
    let mut rows: Vec<_> = recorded.rows().collect();
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    let mut writer = csv::WriterBuilder::new().from_writer(Vec::new());
    let columns = columns(recorded);
    let bounds = columns.last() == Some(&BOUND);
    writer.write_record(columns)?;
    for (config, row) in rows {
        let values = params.iter().zip(config.iter()).map(|(param, &at)| param.values[usize::from(at)].to_string());
        let ms = |seconds: Option<f64>| seconds.map(|seconds| (seconds * 1e3).to_string()).unwrap_or_default();
        let cost = (row.cost.as_secs_f64() * 1e3).to_string();
        let empty = String::new;
        let rest = [rows::status(row).to_owned(), ms(row.seconds), empty(), empty(), empty(), empty(), cost];
        writer.write_record(values.chain(rest).chain(bounds.then(|| ms(row.at_least_seconds))))?;
    }
    writer.into_inner().map_err(csv::IntoInnerError::into_error)
}
