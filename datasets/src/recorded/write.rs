//! Writing a recording in the format that [`super::read`] reads. Equal recordings give equal bytes.

use std::path::Path;

use flate2::{Compression, GzBuilder};
use indexmap::IndexMap;
use search_space::{Outcome, RecordedSpace, Value};

use super::rows;
use crate::error::DatasetError;
use crate::spaces::header::{FORMAT, Header, HeaderParameter};

/// Columns behind the parameters.
const COLUMNS: [&str; 7] = ["status", "time_ms", "min_ms", "median_ms", "std_ms", "compile_ms", "bench_ms"];

/// Writes `recorded` as the header `path` and a `.csv.gz` beside it, replacing both.
///
/// What a configuration cost is one number here, so it is written as `bench_ms` and `compile_ms` stays empty. Constraints are
/// written in the language of this project, which the header says.
///
/// # Errors
///
/// [`DatasetError::Write`].
pub fn write(path: &Path, recorded: &RecordedSpace) -> Result<(), DatasetError> {
    let table = path.with_extension("csv.gz");
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| DatasetError::Write { path, source }
    };
    let text = table_text(recorded).map_err(failed(&table))?;
    // No time and no name of a file in it, so that equal tables are equal files.
    let file = std::fs::File::create(&table).map_err(failed(&table))?;
    let mut packer = GzBuilder::new().mtime(0).write(file, Compression::best());
    std::io::Write::write_all(&mut packer, &text).map_err(failed(&table))?;
    packer.finish().and_then(|file| file.sync_all()).map_err(failed(&table))?;
    let mut header = serde_json::to_string_pretty(&header(recorded))
        .map_err(|source| DatasetError::Write { path: path.to_owned(), source: source.into() })?;
    header.push('\n');
    std::fs::write(path, header).map_err(failed(path))
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
        time_unit: "ms".into(),
        parameters: parameters
            .map(|p| HeaderParameter { name: p.name.clone(), values: p.values.iter().map(json).collect() })
            .collect(),
        constants: IndexMap::new(),
        constraints: space.constraints().iter().map(|constraint| constraint.text.clone()).collect(),
        constraint_language: Some("tilewright".into()),
        constraint_names: space.constraints().iter().map(|constraint| constraint.name.clone()).collect(),
        columns: space.params().iter().map(|p| p.name.clone()).chain(COLUMNS.map(String::from)).collect(),
        n_configs: Some(recorded.len()),
        n_ok: Some(recorded.rows().filter(|(_, row)| row.outcome == Outcome::Ok).count()),
    }
}

/// The table, sorted by the positions of the values.
fn table_text(recorded: &RecordedSpace) -> std::io::Result<Vec<u8>> {
    let params = recorded.space().params();
    let mut rows: Vec<_> = recorded.rows().collect();
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    let mut writer = csv::WriterBuilder::new().from_writer(Vec::new());
    writer.write_record(params.iter().map(|param| param.name.as_str()).chain(COLUMNS))?;
    for (config, row) in rows {
        let values = params.iter().zip(config.iter()).map(|(param, &at)| param.values[usize::from(at)].to_string());
        let time = row.seconds.map(|seconds| (seconds * 1e3).to_string()).unwrap_or_default();
        let cost = (row.cost.as_secs_f64() * 1e3).to_string();
        let empty = String::new;
        let rest = [rows::status(row.outcome).to_owned(), time, empty(), empty(), empty(), empty(), cost];
        writer.write_record(values.chain(rest))?;
    }
    writer.into_inner().map_err(csv::IntoInnerError::into_error)
}
