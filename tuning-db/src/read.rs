//! Reading a tuning database: counts, rows and event logs. Every fact's hash is checked before it is handed out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};
use search_space::{Outcome, Schedule};

use crate::rows::{
    Candidate, Event, OBSERVATION_COLUMNS, Observation, Peak, Session, StoredObservation, StoredVerdict,
    VERDICT_COLUMNS, Verdict, event_hash,
};
use crate::{DbError, Id, open, target_id, workload_id};

/// A tuning database opened for reading. Writing goes on beside it; each call sees one committed state.
#[derive(Debug)]
pub struct Database {
    path: PathBuf,
    connection: Connection,
}

/// Rows whose hash matched, and what was left out.
#[derive(Clone, Debug)]
pub struct Rows<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// One [`DbError::Damaged`] for each row left out.
    pub damaged: Vec<DbError>,
}

/// What a file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Schema version.
    pub schema: i64,
    /// Size of the file in bytes, without its write-ahead log.
    pub bytes: u64,
    /// Rows of each immutable kind: `workload`, `target`, `observation`, `verdict`.
    pub rows: BTreeMap<&'static str, u64>,
    /// Observations of each outcome that occurs.
    pub outcomes: BTreeMap<Outcome, u64>,
    /// Observations of each target key.
    pub targets: BTreeMap<String, u64>,
    /// Sessions.
    pub sessions: u64,
    /// Sessions without an end.
    pub unfinished_sessions: u64,
    /// Events of all sessions.
    pub events: u64,
    /// Candidates in quarantine, or running now.
    pub quarantined: u64,
}

/// What a look-up can be asked about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Question {
    /// Canonical workload key.
    pub workload: String,
    /// Canonical target key.
    pub target: String,
    /// Generator.
    pub generator: String,
}

impl Database {
    /// Opens the file for reading. It may lie in a read-only folder or on a network file system; there it is taken as
    /// a published file that is replaced, never changed in place.
    ///
    /// # Errors
    /// One variant for each thing that `path` can be instead of a tuning database of a schema this build reads.
    pub fn open(path: impl AsRef<Path>) -> Result<Database, DbError> {
        let path = path.as_ref().to_path_buf();
        let connection = open::reader(&path)?;
        Ok(Database { path, connection })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Counts.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub fn info(&self) -> Result<Info, DbError> {
        let snapshot = self.snapshot()?;
        let count = |sql: &str| snapshot.one(sql);
        let mut rows = BTreeMap::new();
        for (table, sql) in [
            ("workload", "SELECT count(*) FROM workload"),
            ("target", "SELECT count(*) FROM target"),
            ("observation", "SELECT count(*) FROM observation"),
            ("verdict", "SELECT count(*) FROM verdict"),
        ] {
            rows.insert(table, count(sql)?);
        }
        let outcomes =
            snapshot.all("SELECT outcome, count(*) FROM observation GROUP BY outcome", params![], |row| {
                Ok((row.get::<_, String>(0)?, unsigned(row, 1)?))
            })?;
        let targets = snapshot.all(
            "SELECT t.key, count(o.id) FROM target t LEFT JOIN observation o ON o.target = t.id GROUP BY t.key",
            params![],
            |row| Ok((row.get(0)?, unsigned(row, 1)?)),
        )?;
        Ok(Info {
            schema: open::SCHEMA_VERSION,
            bytes: std::fs::metadata(&self.path).map_or(0, |metadata| metadata.len()),
            rows,
            outcomes: outcomes.into_iter().filter_map(|(text, n)| Some((Outcome::parse(&text)?, n))).collect(),
            targets: targets.into_iter().collect(),
            sessions: count("SELECT count(*) FROM session")?,
            unfinished_sessions: count("SELECT count(*) FROM session WHERE ended_at IS NULL")?,
            events: count("SELECT count(*) FROM event")?,
            quarantined: count("SELECT count(*) FROM quarantine")?,
        })
    }

    /// Every workload, target and generator with at least one row on which a look-up depends, sorted.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub fn questions(&self) -> Result<Vec<Question>, DbError> {
        let snapshot = self.snapshot()?;
        let mut questions = snapshot.all(
            "SELECT w.key, t.key, y.generator FROM tally y JOIN workload w ON w.id = y.workload \
             JOIN target t ON t.id = y.target",
            params![],
            |row| Ok(Question { workload: row.get(0)?, target: row.get(1)?, generator: row.get(2)? }),
        )?;
        questions.sort();
        Ok(questions)
    }

    /// Every workload, target and generator of which something was measured, sorted: also where no look-up has an answer
    /// yet, because the search goes on or was interrupted.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub fn measured(&self) -> Result<Vec<Question>, DbError> {
        let snapshot = self.snapshot()?;
        let mut questions = snapshot.all(
            "SELECT DISTINCT w.key, t.key, o.generator FROM observation o JOIN workload w ON w.id = o.workload \
             JOIN target t ON t.id = o.target",
            params![],
            |row| Ok(Question { workload: row.get(0)?, target: row.get(1)?, generator: row.get(2)? }),
        )?;
        questions.sort();
        Ok(questions)
    }

    /// All observations of a workload on a target, of every generator, oldest first.
    ///
    /// # Errors
    /// Errors of SQLite; a damaged row is no error, it is listed beside the good ones.
    pub fn observations(&self, workload_key: &str, target_key: &str) -> Result<Rows<Observation>, DbError> {
        let sql = format!(
            "SELECT {OBSERVATION_COLUMNS} FROM observation WHERE workload = ?1 AND target = ?2 \
             ORDER BY measured_at, run, sequence, id"
        );
        let key = [workload_id(workload_key).to_string(), target_id(target_key).to_string()];
        self.checked(&sql, params![key[0], key[1]], "observation", |row| {
            let stored = StoredObservation::read(row)?;
            Ok((stored.id(), stored.parse(workload_key, target_key)))
        })
    }

    /// All verdicts on a workload and a target, of every generator, oldest first.
    ///
    /// # Errors
    /// Errors of SQLite; a damaged row is no error, it is listed beside the good ones.
    pub fn verdicts(&self, workload_key: &str, target_key: &str) -> Result<Rows<Verdict>, DbError> {
        let sql = format!(
            "SELECT {VERDICT_COLUMNS} FROM verdict WHERE workload = ?1 AND target = ?2 \
             ORDER BY decided_at, run, sequence, id"
        );
        let key = [workload_id(workload_key).to_string(), target_id(target_key).to_string()];
        self.checked(&sql, params![key[0], key[1]], "verdict", |row| {
            let stored = StoredVerdict::read(row)?;
            Ok((stored.id(), stored.parse(workload_key, target_key)))
        })
    }

    fn checked<T>(
        &self,
        sql: &str,
        key: &[&dyn rusqlite::ToSql],
        table: &'static str,
        mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<(Id, Option<T>)>,
    ) -> Result<Rows<T>, DbError> {
        let snapshot = self.snapshot()?;
        let mut found = Rows { rows: Vec::new(), damaged: Vec::new() };
        snapshot.all(sql, key, |row| {
            let claimed = lossy(row, 0);
            // A column of another type is damage of this row, not an error of the query.
            match read(row) {
                Ok((id, Some(parsed))) if claimed.parse().is_ok_and(|claimed: Id| claimed == id) => {
                    found.rows.push(parsed)
                }
                _ => found.damaged.push(DbError::damaged_row(&self.path, table, &claimed)),
            }
            Ok(())
        })?;
        for damage in &found.damaged {
            if let DbError::Damaged { path, what } = damage {
                tracing::warn!(
                    "tuning database {path:?}: {what} is damaged and left out; `tilewright db info` tells more"
                );
            }
        }
        Ok(found)
    }

    /// All sessions, oldest first.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub fn sessions(&self) -> Result<Vec<Session>, DbError> {
        let snapshot = self.snapshot()?;
        let rows = snapshot.all(
            "SELECT id, command, seed, strategy, started_at, ended_at, settings FROM session ORDER BY started_at, rowid",
            params![],
            |row| {
                let seed: String = row.get(2)?;
                let settings: String = row.get(6)?;
                let id: String = row.get(0)?;
                let parsed = seed.parse().ok().zip(serde_json::from_str(&settings).ok());
                let (command, strategy) = (row.get(1)?, row.get(3)?);
                let started_at = unsigned(row, 4)?;
                let ended_at = row.get::<_, Option<i64>>(5)?.and_then(|s| u64::try_from(s).ok());
                Ok((id.clone(), parsed.map(|(seed, settings)| Session {
                    id, command, seed, strategy, started_at, ended_at, settings,
                })))
            },
        )?;
        rows.into_iter()
            .map(|(id, session)| session.ok_or_else(|| DbError::damaged_row(&self.path, "session", &id)))
            .collect()
    }

    /// The log of a session, by stream and sequence.
    ///
    /// # Errors
    /// [`DbError::Damaged`] when an entry was altered or one is missing: a search cannot be resumed from such a log.
    pub fn events(&self, session: &str) -> Result<Vec<Event>, DbError> {
        let snapshot = self.snapshot()?;
        let rows = snapshot.all(
            "SELECT stream, sequence, kind, body, hash FROM event WHERE session = ?1 ORDER BY stream, sequence",
            params![session],
            |row| {
                let (stream, sequence, kind): (String, i64, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
                let (body, hash): (String, String) = (row.get(3)?, row.get(4)?);
                let intact = event_hash(session, &stream, sequence, &kind, &body).to_string() == hash;
                Ok((stream, sequence, kind, intact.then_some(body)))
            },
        )?;
        let mut events: Vec<Event> = Vec::with_capacity(rows.len());
        for (stream, sequence, kind, body) in rows {
            let expected = match events.last() {
                Some(last) if last.stream == stream => last.sequence + 1,
                _ => 0,
            };
            let damaged = |what: &str| {
                snapshot.damaged(format!("event {expected} of stream {stream:?} of session {session:?} ({what})"))
            };
            if u64::try_from(sequence) != Ok(expected) {
                return Err(damaged("missing"));
            }
            let body = body.and_then(|body| serde_json::from_str(&body).ok()).ok_or_else(|| damaged("altered"))?;
            events.push(Event { session: session.into(), stream, sequence: expected, kind, body });
        }
        Ok(events)
    }

    /// Candidates of a workload on a target that must not run again: the run that was about to start each of them
    /// died. While a writer is at work, the candidate that runs right now is among them.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub fn quarantined(&self, workload_key: &str, target_key: &str) -> Result<Vec<Candidate>, DbError> {
        let all = self.all_quarantined()?;
        Ok(all.into_iter().filter(|c| c.workload == workload_key && c.target == target_key).collect())
    }

    /// As [`Database::quarantined`], of all workloads and targets.
    ///
    /// # Errors
    /// Errors of SQLite; [`DbError::Damaged`] for a schedule that cannot be read.
    pub fn all_quarantined(&self) -> Result<Vec<Candidate>, DbError> {
        let snapshot = self.snapshot()?;
        let rows = snapshot.all(
            "SELECT workload, target, generator, schedule FROM quarantine ORDER BY workload, target, generator, schedule",
            params![],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get::<_, String>(3)?)),
        )?;
        rows.into_iter()
            .map(|(workload, target, generator, schedule)| {
                let schedule: Schedule = serde_json::from_str(&schedule)
                    .map_err(|_| DbError::damaged_row(&self.path, "quarantine", &schedule))?;
                Ok(Candidate { workload, target, generator, schedule })
            })
            .collect()
    }

    /// The measured peaks of a device.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub fn peaks(&self, device: &str) -> Result<Vec<Peak>, DbError> {
        self.snapshot()?.all(
            "SELECT what, value, measured_at FROM peak WHERE device = ?1 ORDER BY what",
            params![device],
            |row| {
                Ok(Peak {
                    device: device.into(),
                    what: row.get(0)?,
                    value: row.get(1)?,
                    measured_at: unsigned(row, 2)?,
                })
            },
        )
    }

    /// A consistent view of the file for several statements.
    pub(crate) fn snapshot(&self) -> Result<Snapshot<'_>, DbError> {
        let transaction = self
            .connection
            .unchecked_transaction()
            .map_err(|error| DbError::sqlite(&self.path, "starting to read", error))?;
        Ok(Snapshot { path: &self.path, transaction })
    }
}

/// One committed state of the file.
pub(crate) struct Snapshot<'a> {
    path: &'a Path,
    transaction: Transaction<'a>,
}

impl Snapshot<'_> {
    pub(crate) fn damaged(&self, what: String) -> DbError {
        DbError::Damaged { path: self.path.to_path_buf(), what }
    }

    fn failed(&self, error: rusqlite::Error) -> DbError {
        match error {
            // A cell of another type than the schema gives it, or text that is not UTF-8: the file was altered.
            rusqlite::Error::InvalidColumnType(_, column, _) => self.damaged(format!("a value of column {column}")),
            rusqlite::Error::FromSqlConversionFailure(column, ..)
            | rusqlite::Error::IntegralValueOutOfRange(column, _) => self.damaged(format!("a value (column {column})")),
            error => DbError::sqlite(self.path, "reading", error),
        }
    }

    pub(crate) fn all<T>(
        &self,
        sql: &str,
        parameters: &[&dyn rusqlite::ToSql],
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, DbError> {
        let run = || -> rusqlite::Result<Vec<T>> {
            let mut statement = self.transaction.prepare_cached(sql)?;
            statement.query_map(parameters, read)?.collect()
        };
        run().map_err(|error| self.failed(error))
    }

    fn one(&self, sql: &str) -> Result<u64, DbError> {
        let run = || self.transaction.prepare_cached(sql)?.query_row([], |row| unsigned(row, 0));
        run().map_err(|error| self.failed(error))
    }

    /// Whether `subject` came from elsewhere and was not verified here yet.
    fn untrusted(&self, subject: &str) -> Result<bool, DbError> {
        let run = || {
            let sql = "SELECT 1 FROM trust WHERE subject = ?1 AND accepted = 0";
            self.transaction.prepare_cached(sql)?.exists([subject])
        };
        run().map_err(|error| self.failed(error))
    }

    /// Rows of `[workload id, target id, generator]` with their ids; the first damaged one is an error.
    fn intact<T>(
        &self,
        sql: &str,
        key: [&str; 3],
        table: &str,
        read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
        id_of: impl Fn(&T) -> Id,
    ) -> Result<Vec<(Id, T)>, DbError> {
        let rows = self.all(sql, params![key[0], key[1], key[2]], |row| Ok((lossy(row, 0), read(row).ok())))?;
        let mut intact = Vec::with_capacity(rows.len());
        for (claimed, row) in rows {
            let row = row
                .map(|row| (id_of(&row), row))
                .filter(|(id, _)| claimed.parse().is_ok_and(|claimed: Id| claimed == *id));
            let row = row.ok_or_else(|| DbError::damaged_row(self.path, table, &claimed))?;
            if !self.untrusted(&claimed)? {
                intact.push(row);
            }
        }
        Ok(intact)
    }

    pub(crate) fn decisive_observations(&self, key: [&str; 3]) -> Result<Vec<(Id, StoredObservation)>, DbError> {
        // The condition must read exactly as in the index `observation_decisive`, or SQLite does not use it.
        let sql = format!(
            "SELECT {OBSERVATION_COLUMNS} FROM observation WHERE workload = ?1 AND target = ?2 AND generator = ?3 \
             AND (phase = 'final' OR outcome IN ('wrong', 'timeout', 'crash', 'lost_device'))"
        );
        self.intact(&sql, key, "observation", StoredObservation::read, StoredObservation::id)
    }

    pub(crate) fn verdicts(&self, key: [&str; 3]) -> Result<Vec<(Id, StoredVerdict)>, DbError> {
        let sql =
            format!("SELECT {VERDICT_COLUMNS} FROM verdict WHERE workload = ?1 AND target = ?2 AND generator = ?3");
        self.intact(&sql, key, "verdict", StoredVerdict::read, StoredVerdict::id)
    }

    /// How many rows decide the question, and the digest of their ids.
    pub(crate) fn tally(&self, key: [&str; 3]) -> Result<(usize, Id), DbError> {
        let run = || {
            let sql = "SELECT rows, digest FROM tally WHERE workload = ?1 AND target = ?2 AND generator = ?3";
            let mut statement = self.transaction.prepare_cached(sql)?;
            statement.query_row(key, |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))).optional()
        };
        let Some((rows, digest)) = run().map_err(|error| self.failed(error))? else { return Ok((0, Id::ZERO)) };
        let damaged = || self.damaged(format!("the tally of workload {:.12}", key[0]));
        Ok((usize::try_from(rows).map_err(|_| damaged())?, digest.parse().map_err(|_| damaged())?))
    }
}

/// A column's text, whatever it holds.
pub(crate) fn lossy(row: &Row<'_>, column: usize) -> String {
    match row.get_ref(column) {
        Ok(rusqlite::types::ValueRef::Text(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        _ => "?".into(),
    }
}

/// A number that the schema's writer keeps at or above zero.
fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, value))
}
