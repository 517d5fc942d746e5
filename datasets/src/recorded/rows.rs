//! The table of a recorded space: a CSV with one line per configuration.
//!
//! Columns are found by name: the parameters, `status`, `time_ms` (mean time, milliseconds), and where present
//! `at_least_ms` (the bound of what was cut off), `compile_ms` and `bench_ms` (what the configuration cost). Others are
//! ignored.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use search_space::{Outcome, Recorded, Value};

use super::RowProblem;
use crate::error::DatasetError;
use crate::spaces::{short, value};

/// Most rows that a table may have.
pub(crate) const MAX_ROWS: usize = 1_000_000;

/// Words for outcomes, as the format has them, then those that only recordings of this project have.
const STATUS: [(&str, Outcome); 8] = [
    ("ok", Outcome::Ok),
    ("compile_error", Outcome::CompileError),
    ("runtime_error", Outcome::Crash),
    ("incorrect", Outcome::Wrong),
    ("invalid", Outcome::ResourceLimit),
    ("error", Outcome::Crash),
    ("timeout", Outcome::Timeout),
    ("lost_device", Outcome::LostDevice),
];

/// The status of a row that has a bound in place of a time. It is a word of its own, and the bound is no `time_ms`, so that
/// other readers of the format do not take it for a measured time.
const CUT_OFF: &str = "cut_off";

/// The word for a result; of an outcome the first of its words.
pub(super) fn status(row: &Recorded) -> &'static str {
    if row.at_least_seconds.is_some() {
        return CUT_OFF;
    }
    STATUS.iter().find(|(_, known)| *known == row.outcome).map_or("error", |(word, _)| word)
}

/// What a table holds: for each row, the position of each parameter's value and what was measured.
pub(super) type Rows = Vec<(Vec<u16>, Recorded)>;

/// The column numbers.
struct Columns {
    parameters: Vec<usize>,
    status: usize,
    time: usize,
    bound: Option<usize>,
    costs: Vec<(usize, &'static str)>,
}

/// Reads a table. `path` names it in messages.
pub(super) fn read(path: &Path, text: &[u8], parameters: &[(String, Vec<Value>)]) -> Result<Rows, DatasetError> {
    let wrong = |line, problem| DatasetError::Row { path: path.to_owned(), line, problem: Box::new(problem) };
    let csv = |source| DatasetError::Csv { path: path.to_owned(), source };
    let mut reader = csv::Reader::from_reader(text);
    let columns = columns(reader.headers().map_err(csv)?, parameters).map_err(|problem| wrong(1, problem))?;
    // By the text of a value, so that each field is one look-up.
    let known: Vec<BTreeMap<String, u16>> =
        parameters.iter().map(|(_, values)| values.iter().map(ToString::to_string).zip(0u16..).collect()).collect();
    let mut rows = Rows::new();
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(csv)? {
        let line = record.position().map_or(0, csv::Position::line);
        if rows.len() == MAX_ROWS {
            return Err(wrong(line, RowProblem::TooMany { limit: MAX_ROWS }));
        }
        rows.push(row(&record, &columns, parameters, &known).map_err(|problem| wrong(line, problem))?);
    }
    if let Some((line, first)) = repeated(text, &rows) {
        return Err(wrong(line, RowProblem::Repeated { first }));
    }
    Ok(rows)
}

fn columns(header: &csv::StringRecord, parameters: &[(String, Vec<Value>)]) -> Result<Columns, RowProblem> {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for (place, name) in header.iter().enumerate() {
        if places.insert(name, place).is_some() {
            return Err(RowProblem::RepeatedColumn { column: name.to_owned() });
        }
    }
    let place =
        |name: &str| places.get(name).copied().ok_or_else(|| RowProblem::MissingColumn { column: name.to_owned() });
    Ok(Columns {
        parameters: parameters.iter().map(|(name, _)| place(name)).collect::<Result<_, _>>()?,
        status: place("status")?,
        time: place("time_ms")?,
        bound: places.get("at_least_ms").copied(),
        costs: ["compile_ms", "bench_ms"].into_iter().filter_map(|name| Some((*places.get(name)?, name))).collect(),
    })
}

fn row(
    record: &csv::StringRecord,
    columns: &Columns,
    parameters: &[(String, Vec<Value>)],
    known: &[BTreeMap<String, u16>],
) -> Result<(Vec<u16>, Recorded), RowProblem> {
    let field = |column: usize| record.get(column).unwrap_or_default();
    let mut positions = Vec::with_capacity(parameters.len());
    for ((column, (name, _)), known) in columns.parameters.iter().zip(parameters).zip(known) {
        let text = field(*column);
        let found = known.get(text).or_else(|| known.get(&value::of_field(text).to_string()));
        let missing = || RowProblem::UnknownValue { parameter: name.clone(), found: short(&text) };
        positions.push(*found.ok_or_else(missing)?);
    }
    let text = field(columns.status);
    let known = STATUS.into_iter().chain([(CUT_OFF, Outcome::Ok)]).find(|(word, _)| *word == text);
    let (_, outcome) = known.ok_or_else(|| RowProblem::Status { found: short(&text) })?;
    let seconds = milliseconds(field(columns.time), "time_ms")?.map(|ms| ms / 1e3);
    let bound = columns.bound.map_or("", field);
    let at_least_seconds = milliseconds(bound, "at_least_ms")?.map(|ms| ms / 1e3);
    let usable = |seconds: Option<f64>| seconds.is_some_and(|seconds| seconds > 0.0);
    let status = || text.to_owned();
    match text {
        CUT_OFF if !usable(at_least_seconds) => return Err(RowProblem::NoBound),
        "ok" if !usable(seconds) => return Err(RowProblem::NoTime),
        _ if text != "ok" && seconds.is_some() => return Err(RowProblem::TimeOfFailure { status: status() }),
        _ if text != CUT_OFF && at_least_seconds.is_some() => {
            return Err(RowProblem::BoundOfOther { status: status() });
        }
        _ => {}
    }
    let mut cost = Duration::ZERO;
    for &(column, name) in &columns.costs {
        let ms = milliseconds(field(column), name)?.unwrap_or(0.0);
        let wrong = |_| RowProblem::Number { column: name, found: ms.to_string() };
        cost = cost.saturating_add(Duration::try_from_secs_f64(ms / 1e3).map_err(wrong)?);
    }
    Ok((positions, Recorded { outcome, seconds, at_least_seconds, cost }))
}

/// A number of milliseconds that is not negative; `None` when the field is empty.
fn milliseconds(text: &str, column: &'static str) -> Result<Option<f64>, RowProblem> {
    if text.is_empty() {
        return Ok(None);
    }
    let number = text.parse().ok().filter(|ms: &f64| ms.is_finite() && *ms >= 0.0);
    number.map(Some).ok_or_else(|| RowProblem::Number { column, found: short(&text) })
}

/// The lines of a row that is there twice: the later one and the one it repeats.
fn repeated(text: &[u8], rows: &Rows) -> Option<(u64, u64)> {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by(|&a, &b| rows[a].0.cmp(&rows[b].0).then(a.cmp(&b)));
    let pair = order.windows(2).find(|pair| rows[pair[0]].0 == rows[pair[1]].0)?;
    // Only now are lines needed: quoted fields may hold line breaks, so they are counted by the reader.
    let mut reader = csv::Reader::from_reader(text);
    let lines: Vec<u64> = reader
        .records()
        .map(|record| record.ok().and_then(|r| r.position().map(csv::Position::line)).unwrap_or(0))
        .collect();
    Some((lines[pair[1]], lines[pair[0]]))
}
