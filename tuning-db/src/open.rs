//! Opening a file: what it must be, how SQLite is set up, and the schema it must have exactly.
//!
//! At rest a tuning database is one plain file (rollback-journal mode), so that it can be read from a read-only folder
//! and copied alone. A writer switches it to a write-ahead log, so that look-ups go on while it writes, and back when it
//! closes. A file that a crash left in write-ahead mode is recovered by the next open.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior, ffi};

use crate::DbError;
use crate::filesystem::{folder_of, network_kind};
use crate::lock::beside;

/// The SQL that makes an empty database, as `docs/database.md` explains it.
pub const SCHEMA: &str = include_str!("schema.sql");

/// Written to `PRAGMA user_version`. A file with a larger number is refused.
pub const SCHEMA_VERSION: i64 = 1;

/// Written to `PRAGMA application_id`: `TWdb` in ASCII.
pub const APPLICATION_ID: i64 = 0x5457_6462;

/// Every SQLite file is at least this long.
const SQLITE_HEADER_BYTES: u64 = 100;

/// How long a statement waits for another process's lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// How a reader stands to others at the same file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// Beside a writer and other readers: what is right wherever it works.
    Shared,
    /// Without locks and without looking for a log: right where nobody writes.
    Immutable,
    /// With the file locked against all others, so that a log is read with its index in this process's memory instead of
    /// shared memory (SQLite, "Write-Ahead Logging", section 8), and an interrupted transaction can be rolled back.
    Alone,
}

/// Opens an existing database for reading.
pub(crate) fn reader(path: &Path) -> Result<Connection, DbError> {
    if !is_there(path)? {
        return Err(DbError::Missing { path: path.to_path_buf() });
    }
    if network_kind(path).is_some() {
        // No locks there: right for a published file that is replaced, never changed.
        return connect_reader(path, Access::Immutable).map_err(|(error, _)| error);
    }
    let error = match connect_reader(path, Access::Shared) {
        Ok(connection) => return Ok(connection),
        Err((error, Some(code))) if is_refused_room(code) => error,
        Err((error, _)) => return Err(error),
    };
    if ["-wal", "-journal"].iter().any(|suffix| length(&beside(path, suffix)) > 0) {
        // What is committed cannot be told from the file alone.
        connect_reader(path, Access::Alone).map_err(|(again, code)| match code {
            Some(code) if is_refused_room(code) => DbError::UnfinishedLog { path: path.to_path_buf() },
            _ => again,
        })
    } else {
        // A writer at work has a log with content, and its shared memory is there to be used: nobody writes. Builds may
        // read at the same time, as they could not alone. Should a writer come before this reader leaves, a page that
        // changed below it fails the hashes of its rows and is not answered.
        connect_reader(path, Access::Immutable).map_err(|(again, code)| match code {
            Some(code) if is_refused_room(code) => unreadable(path, &error),
            _ => again,
        })
    }
}

/// Whether a file that may be intact was not opened because of the place where it lies: a file beside it cannot be made or
/// written, as in a read-only folder, or the shared memory of its log cannot be had, as on a full disk.
fn is_refused_room(error: ffi::Error) -> bool {
    let shared_memory = [ffi::SQLITE_IOERR_SHMOPEN, ffi::SQLITE_IOERR_SHMSIZE, ffi::SQLITE_IOERR_SHMMAP];
    matches!(error.code, ErrorCode::CannotOpen | ErrorCode::ReadOnly) || shared_memory.contains(&error.extended_code)
}

/// Makes a file that a writer could not go on with a plain one again, as far as the place allows; else readers cope with
/// it as it is. A file that is no tuning database is left alone.
pub(crate) fn put_to_rest(path: &Path) {
    let Ok(connection) = connect_reader(path, Access::Alone) else { return };
    // What little shared memory there was room for. It is nobody's: the lock against all others is held.
    let _ = std::fs::remove_file(beside(path, "-shm"));
    let plain = connection
        .pragma_update(None, "query_only", false)
        .and_then(|()| connection.query_row("PRAGMA journal_mode = delete", [], |_| Ok(())));
    if let Err(error) = plain {
        tracing::debug!("{} stays in write-ahead mode: {error}", path.display());
    }
}

/// Refuses a file cut off within its last page: SQLite would read zeros there. While there is a log, the file itself may
/// end anywhere, because the log has the page.
fn check_length(path: &Path, connection: &Connection) -> Result<(), DbError> {
    let page_size: u64 = connection
        .pragma_query_value(None, "page_size", |row| row.get::<_, u32>(0))
        .map_err(|error| DbError::sqlite(path, "opening", error))?
        .into();
    if length(&beside(path, "-wal")) == 0 && !length(path).is_multiple_of(page_size) {
        let detail = format!("its length of {} bytes is no multiple of its page size", length(path));
        return Err(DbError::Corrupt { path: path.to_path_buf(), detail });
    }
    Ok(())
}

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

fn unreadable(path: &Path, error: &dyn std::error::Error) -> DbError {
    let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    DbError::Unreadable { path: path.to_path_buf(), reason }
}

fn connect_reader(path: &Path, access: Access) -> Result<Connection, (DbError, Option<ffi::Error>)> {
    let with_code = |error: rusqlite::Error| {
        let code = error.sqlite_error().copied();
        (DbError::sqlite(path, "opening", error), code)
    };
    let way = match access {
        Access::Shared | Access::Immutable => OpenFlags::SQLITE_OPEN_READ_ONLY,
        Access::Alone => OpenFlags::SQLITE_OPEN_READ_WRITE,
    };
    let flags = way | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(uri(path, access == Access::Immutable), flags).map_err(with_code)?;
    if access == Access::Alone {
        if connection.is_readonly("main").map_err(with_code)? {
            // SQLite opened it in the way it could; a lock against all others needs the other way.
            return Err(with_code(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_READONLY), None)));
        }
        // Before anything is read, or there would be shared memory already. The log stays for the next writer.
        connection.pragma_update(None, "locking_mode", "exclusive").map_err(with_code)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(with_code)?;
    }
    harden(&connection).map_err(with_code)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false).map_err(with_code)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false).map_err(with_code)?;
    connection.pragma_update(None, "query_only", true).map_err(with_code)?;
    let identity = Identity::read(&connection).map_err(with_code)?;
    let checked = match identity.is_blank() && length(path) == 0 {
        true => Err(DbError::Empty { path: path.to_path_buf() }),
        false => identity.check(path).and_then(|()| check_length(path, &connection)),
    };
    checked.map(|()| connection).map_err(|error| (error, None))
}

/// Opens a database for writing; makes it when it does not exist. The caller holds the writer lock.
pub(crate) fn writer(path: &Path, max_bytes: Option<u64>) -> Result<Connection, DbError> {
    let failed = |error| DbError::sqlite(path, "opening it for writing", error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let mut connection = Connection::open_with_flags(uri(path, false), flags).map_err(failed)?;
    harden(&connection).map_err(failed)?;
    if connection.is_readonly("main").map_err(failed)? {
        return Err(DbError::ReadOnly { path: path.to_path_buf(), reason: "the file is read-only".into() });
    }
    let identity = Identity::read(&connection).map_err(failed)?;
    // Only a file without a byte is made into a database: SQLite also takes one shorter than its header for empty.
    let is_new = identity.is_blank() && length(path) == 0;
    if !is_new {
        identity.check(path)?;
        check_length(path, &connection)?;
    }
    connection.pragma_update(None, "foreign_keys", true).map_err(failed)?;
    if let Some(bytes) = max_bytes {
        let page: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0)).map_err(failed)?;
        let pages = i64::try_from(bytes).unwrap_or(i64::MAX) / page.max(1);
        connection.pragma_update(None, "max_page_count", pages.max(1)).map_err(failed)?;
    }
    if is_new {
        create(&mut connection).map_err(failed)?;
    }
    let mode: String = connection
        .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))
        .map_err(|error| DbError::sqlite(path, "starting its write-ahead log", error))?;
    if mode != "wal" {
        return Err(DbError::ReadOnly {
            path: path.to_path_buf(),
            reason: "no write-ahead log is possible there".into(),
        });
    }
    connection.pragma_update(None, "synchronous", "full").map_err(failed)?;
    Ok(connection)
}

/// Refuses what cannot become a database, before anything is written.
pub(crate) fn check_writable_place(path: &Path) -> Result<bool, DbError> {
    let exists = is_there(path)?;
    let parent = folder_of(path);
    if !parent.is_dir() {
        return Err(DbError::ParentMissing { path: path.to_path_buf(), parent: parent.to_path_buf() });
    }
    refuse_network(path, network_kind(path))?;
    Ok(exists)
}

fn refuse_network(path: &Path, kind: Option<String>) -> Result<(), DbError> {
    match kind {
        Some(kind) => Err(DbError::NetworkFileSystem { path: path.to_path_buf(), kind }),
        None => Ok(()),
    }
}

/// Whether there is a file; an error when there is something else.
fn is_there(path: &Path) -> Result<bool, DbError> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => Ok(true),
        Ok(_) => Err(DbError::NotAFile { path: path.to_path_buf() }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            Err(DbError::ParentMissing { path: path.to_path_buf(), parent: folder_of(path).to_path_buf() })
        }
        Err(error) => Err(DbError::Unreadable { path: path.to_path_buf(), reason: error.to_string() }),
    }
}

/// Makes the tables, all or none.
fn create(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(SCHEMA)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    transaction.commit()
}

/// Settings under which a damaged or hostile file can do least.
fn harden(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, 16 << 20)?;
    connection.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, 100_000)?;
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "mmap_size", 0)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}

/// What a file says it is.
struct Identity {
    application_id: i64,
    schema: i64,
    /// `(name, sql)` in order of creation, without SQLite's own objects.
    objects: Vec<(String, String)>,
}

impl Identity {
    fn read(connection: &Connection) -> rusqlite::Result<Identity> {
        let application_id = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
        let schema = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let mut objects = connection.prepare("SELECT name, coalesce(sql, '') FROM sqlite_schema ORDER BY rowid")?;
        let objects = objects.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let mut objects: Vec<(String, String)> = objects.collect::<Result<_, _>>()?;
        // Indexes that SQLite makes for PRIMARY KEY and UNIQUE have no SQL.
        objects.retain(|(name, sql)| !(sql.is_empty() && name.starts_with("sqlite_autoindex_")));
        Ok(Identity { application_id, schema, objects })
    }

    /// Nothing was ever written, or making it was interrupted.
    fn is_blank(&self) -> bool {
        self.application_id == 0 && self.schema == 0 && self.objects.is_empty()
    }

    fn check(&self, path: &Path) -> Result<(), DbError> {
        let path = path.to_path_buf();
        if self.is_blank() && length(&path) < SQLITE_HEADER_BYTES {
            return Err(DbError::NotADatabase { path });
        }
        if self.application_id != APPLICATION_ID {
            return Err(DbError::OtherApplication { path, application_id: self.application_id });
        }
        if self.schema > SCHEMA_VERSION {
            return Err(DbError::NewerSchema { path, found: self.schema, supported: SCHEMA_VERSION });
        }
        let expected = expected_objects();
        let difference = (0..expected.len().max(self.objects.len())).find_map(|i| {
            let (expected, found) = (expected.get(i), self.objects.get(i));
            let same = matches!((expected, found), (Some(e), Some(f)) if e.0 == f.0 && e.1 == f.1);
            let name = found.map(|object| object.0.as_str()).or(expected.map(|object| object.0));
            (!same).then(|| name.unwrap_or_default().escape_debug().take(60).collect())
        });
        match difference {
            Some(object) => Err(DbError::ForeignSchema { path, object, schema: self.schema }),
            None if self.schema != SCHEMA_VERSION => {
                Err(DbError::ForeignSchema { path, object: "user_version".into(), schema: self.schema })
            }
            None => Ok(()),
        }
    }
}

/// `(name, sql)` of each statement of [`SCHEMA`], as `sqlite_schema` stores them.
fn expected_objects() -> Vec<(&'static str, &'static str)> {
    let statements = SCHEMA.trim_end().trim_end_matches(';').split(";\n\n");
    statements
        .map(|sql| {
            let name = sql.split_whitespace().nth(2).expect("invariant: each statement is CREATE kind name ...");
            (name, sql)
        })
        .collect()
}

/// An SQLite URI for `path`, whatever bytes it holds.
fn uri(path: &Path, immutable: bool) -> String {
    use std::os::unix::ffi::OsStrExt;
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let mut uri = String::from("file://");
    for byte in absolute.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => uri.push(char::from(*byte)),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    if immutable {
        uri.push_str("?immutable=1");
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_file_system_is_refused_with_advice() {
        let path = Path::new("/net/night.tune");
        let error = refuse_network(path, Some("nfs4".into())).unwrap_err().to_string();
        assert!(
            error.contains("lies on a nfs4 file system") && error.contains("tune into a file on a local disk"),
            "{error}"
        );
        refuse_network(path, None).unwrap();
    }

    #[test]
    fn an_immutable_reader_takes_no_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tune");
        drop(writer(&path, None).unwrap());
        let locked = Connection::open(&path).unwrap();
        locked.execute_batch("PRAGMA journal_mode = delete; BEGIN EXCLUSIVE").unwrap();
        connect_reader(&path, Access::Immutable).map_err(|(error, _)| error).unwrap();
    }
}
