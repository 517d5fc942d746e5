//! What the writer thread does with a group of batches: one transaction, one savepoint per batch.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OptionalExtension, TransactionBehavior, params};
use search_space::Schedule;

use crate::canonical::schedule_json;
use crate::lock::FileId;
use crate::rows::{Candidate, Event, Observation, Peak, Session, Verdict, event_hash};
use crate::writer::{Change, Entry, OnSaved};
use crate::{DbError, Id};

/// Owns the connection of a writer.
pub(crate) struct Committer {
    path: PathBuf,
    connection: Connection,
    /// The file as it was opened. A log is written whether or not somebody takes the file away.
    file: FileId,
    on_saved: Option<OnSaved>,
}

impl Committer {
    /// Takes over a connection. What a dead run left in quarantine is marked.
    pub(crate) fn new(path: &Path, connection: Connection, on_saved: Option<OnSaved>) -> Result<Committer, DbError> {
        connection
            .execute("UPDATE quarantine SET left_behind = 1 WHERE left_behind = 0", [])
            .map_err(|error| DbError::sqlite(path, "marking what an interrupted run left", error))?;
        let file = FileId::of(path).map_err(|error| DbError::io(path, "opening it for writing", error))?;
        Ok(Committer { path: path.to_path_buf(), connection, file, on_saved })
    }

    /// Commits all entries in one transaction and answers them. A batch that breaks a rule is rolled back and refused
    /// alone; an error of the disk rolls back and is returned, and then nobody was answered.
    pub(crate) fn commit(&mut self, entries: &[Entry]) -> Result<(), DbError> {
        if entries.is_empty() {
            return Ok(());
        }
        self.check_place()?;
        let path = self.path.clone();
        let failed = |error| DbError::sqlite(&path, "saving", error);
        let mut transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let mut refused: Vec<Option<DbError>> = Vec::with_capacity(entries.len());
        for entry in entries {
            let savepoint = transaction.savepoint().map_err(failed)?;
            match entry.batch.changes.iter().try_for_each(|change| apply(&path, &savepoint, change)) {
                Ok(()) => {
                    savepoint.commit().map_err(failed)?;
                    refused.push(None);
                }
                // Dropping the savepoint rolls it back.
                Err(error @ DbError::InvalidRow { .. }) => refused.push(Some(error)),
                Err(error) => return Err(error),
            }
        }
        transaction.commit().map_err(failed)?;
        for (entry, refused) in entries.iter().zip(refused) {
            if refused.is_none() {
                self.report(entry);
            }
            // Whoever handed it in may have gone without waiting.
            let _ = entry.answer.send(refused.map_or(Ok(()), Err));
        }
        Ok(())
    }

    /// Refuses to go on when rows would be saved where nobody finds them.
    fn check_place(&self) -> Result<(), DbError> {
        match FileId::of(&self.path) {
            Ok(file) if file == self.file => Ok(()),
            _ => Err(DbError::Displaced { path: self.path.clone() }),
        }
    }

    fn report(&mut self, entry: &Entry) {
        let Some(on_saved) = &mut self.on_saved else { return };
        for change in &entry.batch.changes {
            if let Change::Observation(observation) = change
                && let Ok(id) = observation.id()
            {
                on_saved(id, observation);
            }
        }
    }

    /// Leaves one plain file behind, unless somebody reads it: then only the log is emptied, and the next close
    /// tidies up. A file that was moved away gets its log too; left where it is, the log would be read into the next file
    /// of that name.
    pub(crate) fn close(self) -> Result<(), DbError> {
        let failed = |error| DbError::sqlite(&self.path, "closing", error);
        self.connection.busy_timeout(std::time::Duration::from_millis(100)).map_err(failed)?;
        let plain = self
            .connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            .and_then(|()| self.connection.query_row("PRAGMA journal_mode = delete", [], |_| Ok(())));
        self.check_place()?;
        match plain {
            Ok(()) => {}
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {}
            Err(error) => return Err(failed(error)),
        }
        self.connection.close().map_err(|(_, error)| DbError::sqlite(&self.path, "closing", error))
    }
}

/// Writes one row. A violated rule of the schema is [`DbError::InvalidRow`].
fn apply(path: &Path, transaction: &Connection, change: &Change) -> Result<(), DbError> {
    match change {
        Change::Observation(observation) => insert_observation(path, transaction, observation),
        Change::Verdict(verdict) => insert_verdict(path, transaction, verdict),
        Change::Event(event) => insert_event(path, transaction, event),
        Change::Session(session) => upsert_session(path, transaction, session),
        Change::Peak(peak) => upsert_peak(path, transaction, peak),
        Change::AboutToRun { candidate, session, now_s } => {
            quarantine(path, transaction, candidate, session.as_deref(), *now_s)
        }
        Change::Release(Candidate { workload, target, generator, schedule }) => {
            release(transaction, workload, target, generator, schedule)
                .map_err(|error| refused(path, "quarantine", error))
        }
    }
}

fn execute(transaction: &Connection, sql: &str, values: &[&dyn rusqlite::ToSql]) -> rusqlite::Result<usize> {
    transaction.prepare_cached(sql)?.execute(values)
}

fn signed(row: &'static str, value: u64) -> Result<i64, DbError> {
    i64::try_from(value).map_err(|_| DbError::invalid(row, format!("the number {value} is above {}", i64::MAX)))
}

fn insert_observation(path: &Path, transaction: &Connection, observation: &Observation) -> Result<(), DbError> {
    let row = observation.stored()?;
    let id = row.id();
    let run = || -> rusqlite::Result<()> {
        insert_keys(transaction, (&row.workload, &observation.workload), (&row.target, &observation.target))?;
        let added = execute(
            transaction,
            "INSERT INTO observation (id, workload, target, generator, schedule, outcome, phase, samples_ns, \
             at_least_ns, environment, program_hash, code_hash, input, run, sequence, measured_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16) \
             ON CONFLICT (id) DO NOTHING",
            params![
                id.to_string(),
                row.workload,
                row.target,
                row.generator,
                row.schedule,
                row.outcome,
                row.phase,
                row.samples_ns,
                row.at_least_ns,
                row.environment,
                row.program_hash,
                row.code_hash,
                row.input,
                row.run,
                row.sequence,
                row.measured_at
            ],
        )?;
        if added == 1 && row.decides() {
            count(transaction, [&row.workload, &row.target, &row.generator], id)?;
        }
        release(transaction, &observation.workload, &observation.target, &observation.generator, &observation.schedule)
    };
    run().map_err(|error| refused(path, "observation", error))
}

fn insert_verdict(path: &Path, transaction: &Connection, verdict: &Verdict) -> Result<(), DbError> {
    let row = verdict.stored()?;
    let id = row.id();
    let run = || -> rusqlite::Result<()> {
        insert_keys(transaction, (&row.workload, &verdict.workload), (&row.target, &verdict.target))?;
        let added = execute(
            transaction,
            "INSERT INTO verdict (id, workload, target, generator, schedule, baseline, decision, ratio, ratio_lo, \
             ratio_hi, run, sequence, decided_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) \
             ON CONFLICT (id) DO NOTHING",
            params![
                id.to_string(),
                row.workload,
                row.target,
                row.generator,
                row.schedule,
                row.baseline,
                row.decision,
                row.ratio,
                row.ratio_lo,
                row.ratio_hi,
                row.run,
                row.sequence,
                row.decided_at
            ],
        )?;
        if added == 1 {
            count(transaction, [&row.workload, &row.target, &row.generator], id)?;
        }
        Ok(())
    };
    run().map_err(|error| refused(path, "verdict", error))
}

/// Stores the keys that a fact names, as `(id, key)`.
fn insert_keys(transaction: &Connection, workload: (&str, &str), target: (&str, &str)) -> rusqlite::Result<()> {
    let workloads = "INSERT INTO workload (id, key) VALUES (?1, ?2) ON CONFLICT (id) DO NOTHING";
    execute(transaction, workloads, params![workload.0, workload.1])?;
    let targets = "INSERT INTO target (id, key) VALUES (?1, ?2) ON CONFLICT (id) DO NOTHING";
    execute(transaction, targets, params![target.0, target.1]).map(drop)
}

/// Adds a row to the set on which the look-up of `[workload, target, generator]` depends.
fn count(transaction: &Connection, key: [&String; 3], id: Id) -> rusqlite::Result<()> {
    let before: Option<String> = transaction
        .prepare_cached("SELECT digest FROM tally WHERE workload = ?1 AND target = ?2 AND generator = ?3")?
        .query_row(key, |row| row.get(0))
        .optional()?;
    // A damaged digest stays damaged: whatever is added to it, look-ups go on to refuse.
    let before = before.map_or(Id::ZERO, |digest| digest.parse().unwrap_or(id));
    execute(
        transaction,
        "INSERT INTO tally (workload, target, generator, rows, digest) VALUES (?1, ?2, ?3, 1, ?4) \
         ON CONFLICT DO UPDATE SET rows = rows + 1, digest = ?4",
        params![key[0], key[1], key[2], before.toggled(id).to_string()],
    )
    .map(drop)
}

fn insert_event(path: &Path, transaction: &Connection, event: &Event) -> Result<(), DbError> {
    let sequence = signed("event", event.sequence)?;
    let body = event.body.to_string();
    let hash = event_hash(&event.session, &event.stream, sequence, &event.kind, &body).to_string();
    let run = || -> rusqlite::Result<bool> {
        let added = execute(
            transaction,
            "INSERT INTO event (session, stream, sequence, kind, body, hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
             ON CONFLICT DO NOTHING",
            params![event.session, event.stream, sequence, event.kind, body, hash],
        )?;
        if added == 1 {
            return Ok(true);
        }
        let same = "SELECT 1 FROM event WHERE session = ?1 AND stream = ?2 AND sequence = ?3 AND hash = ?4";
        transaction.prepare_cached(same)?.exists(params![event.session, event.stream, sequence, hash])
    };
    match run() {
        Ok(true) => Ok(()),
        Ok(false) => Err(DbError::invalid(
            "event",
            format!(
                "the log of session {:?} already has another event {sequence} in stream {:?}",
                event.session, event.stream
            ),
        )),
        Err(error) => Err(refused(path, "event", error)),
    }
}

fn upsert_session(path: &Path, transaction: &Connection, session: &Session) -> Result<(), DbError> {
    let started_at = signed("session", session.started_at)?;
    let ended_at = session.ended_at.map(|end| signed("session", end)).transpose()?;
    execute(
        transaction,
        "INSERT INTO session (id, command, seed, strategy, started_at, ended_at, settings) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (id) DO UPDATE SET command = ?2, seed = ?3, strategy = ?4, \
         started_at = ?5, ended_at = ?6, settings = ?7",
        params![
            session.id,
            session.command,
            session.seed.to_string(),
            session.strategy,
            started_at,
            ended_at,
            session.settings.to_string()
        ],
    )
    .map(drop)
    .map_err(|error| refused(path, "session", error))
}

fn upsert_peak(path: &Path, transaction: &Connection, peak: &Peak) -> Result<(), DbError> {
    let measured_at = signed("peak", peak.measured_at)?;
    if !peak.value.is_finite() {
        return Err(DbError::invalid("peak", format!("{} is {}", peak.what, peak.value)));
    }
    execute(
        transaction,
        "INSERT INTO peak (device, what, value, measured_at) VALUES (?1, ?2, ?3, ?4) \
         ON CONFLICT DO UPDATE SET value = ?3, measured_at = ?4",
        params![peak.device, peak.what, peak.value, measured_at],
    )
    .map(drop)
    .map_err(|error| refused(path, "peak", error))
}

fn quarantine(
    path: &Path,
    transaction: &Connection,
    candidate: &Candidate,
    session: Option<&str>,
    now_s: u64,
) -> Result<(), DbError> {
    let now = signed("quarantine", now_s)?;
    let Candidate { workload, target, generator, schedule } = candidate;
    execute(
        transaction,
        "INSERT INTO quarantine (workload, target, generator, schedule, session, since) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO UPDATE SET session = ?5, since = ?6, left_behind = 0",
        params![workload, target, generator, schedule_json(schedule), session, now],
    )
    .map(drop)
    .map_err(|error| refused(path, "quarantine", error))
}

fn release(
    transaction: &Connection,
    workload: &str,
    target: &str,
    generator: &str,
    schedule: &Schedule,
) -> rusqlite::Result<()> {
    execute(
        transaction,
        "DELETE FROM quarantine WHERE workload = ?1 AND target = ?2 AND generator = ?3 AND schedule = ?4",
        params![workload, target, generator, schedule_json(schedule)],
    )
    .map(drop)
}

fn refused(path: &Path, row: &'static str, error: rusqlite::Error) -> DbError {
    match error.sqlite_error_code() {
        Some(ErrorCode::ConstraintViolation) => DbError::invalid(row, error.to_string()),
        _ => DbError::sqlite(path, "saving", error),
    }
}
