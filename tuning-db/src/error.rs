//! What can go wrong with a tuning database. Each message says what happened, to which file, and what to do next.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{ErrorCode, ffi};

use crate::Id;

/// An error of this crate. It can be cloned, because one failed commit is reported to everybody who waits for it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DbError {
    /// There is no such file.
    #[error("there is no tuning database at {path:?}; check the path, or make one with `tilewright tune ... --db`")]
    Missing {
        /// The file asked for.
        path: PathBuf,
    },
    /// The path is a directory, a device or a socket.
    #[error("{path:?} is not a regular file, so it cannot be a tuning database; name a file, such as `night.tune`")]
    NotAFile {
        /// The path asked for.
        path: PathBuf,
    },
    /// The folder in which the file would be created does not exist.
    #[error("cannot create tuning database {path:?}: folder {parent:?} does not exist; create it first")]
    ParentMissing {
        /// The file asked for.
        path: PathBuf,
        /// The missing folder.
        parent: PathBuf,
    },
    /// The file is not an SQLite file.
    #[error("{path:?} is not a tuning database (not an SQLite file); name another file")]
    NotADatabase {
        /// The file asked for.
        path: PathBuf,
    },
    /// The file has no content.
    #[error("{path:?} is empty: nothing was saved in it yet; tune with `--db` first")]
    Empty {
        /// The file asked for.
        path: PathBuf,
    },
    /// The file is an SQLite database of another program.
    #[error(
        "{path:?} is an SQLite file of another program (application id {application_id:#x}), not a tuning database; \
         name another file"
    )]
    OtherApplication {
        /// The file asked for.
        path: PathBuf,
        /// What the file says it is.
        application_id: i64,
    },
    /// The file was written by a newer build.
    #[error(
        "tuning database {path:?} is schema {found}, this build reads {supported}; use a newer build of tilewright"
    )]
    NewerSchema {
        /// The file asked for.
        path: PathBuf,
        /// Schema of the file.
        found: i64,
        /// Newest schema this build knows.
        supported: i64,
    },
    /// A table, index, view or trigger is not the one this schema has.
    #[error(
        "tuning database {path:?} was changed or damaged: {object} is not as schema {schema} defines it; \
         restore a copy of the file, or export its rows with the sqlite3 shell"
    )]
    ForeignSchema {
        /// The file asked for.
        path: PathBuf,
        /// Kind and name of the first difference.
        object: String,
        /// Schema version the file claims.
        schema: i64,
    },
    /// SQLite found the file cut off or malformed.
    #[error("tuning database {path:?} is cut off or damaged ({detail}); restore a copy of the file")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// SQLite's words.
        detail: String,
    },
    /// A stored row is not what was written.
    #[error(
        "tuning database {path:?}: {what} is damaged, so nothing that rests on it can be answered or continued; restore a \
         copy of the file, or tune into a new one (`tilewright db info` lists all damage)"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which row or set of rows.
        what: String,
    },
    /// Reading is not permitted, or the file vanished.
    #[error("cannot read tuning database {path:?} ({reason}); check that the file and its folder are readable")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's or SQLite's words.
        reason: String,
    },
    /// Writing is not permitted there.
    #[error("cannot write tuning database {path:?}: {reason}; choose another `--db` file or make it writable")]
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// What is read-only.
        reason: String,
    },
    /// No space, or the size limit is reached.
    #[error(
        "no space left on the device for tuning database {path:?}: all that was counted is kept; free some space, then \
         run the same command again to go on"
    )]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// What lies at the path is no longer the file that the writer opened.
    #[error(
        "tuning database {path:?} was deleted, moved or replaced while it was tuned into: what was measured is in the file \
         that was there; run the same command again to go on with what lies there now, or put the file back first"
    )]
    Displaced {
        /// The file.
        path: PathBuf,
    },
    /// The file lies on a network file system, where its locks cannot be trusted.
    #[error(
        "cannot write tuning database {path:?}: it lies on a {kind} file system, where locks and shared memory are not \
         reliable; tune into a file on a local disk, then copy it there (look-ups read it there)"
    )]
    NetworkFileSystem {
        /// The file.
        path: PathBuf,
        /// Type of the file system.
        kind: String,
    },
    /// Another process writes the file.
    #[error(
        "tuning database {path:?} is being written by another tuner{}; wait for it, or use another \
         `--db` file", holder.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    Busy {
        /// The file.
        path: PathBuf,
        /// Process that holds the lock, where known.
        holder: Option<u32>,
    },
    /// A crash left committed rows beside the file, and they cannot be read from where it lies.
    #[error(
        "tuning database {path:?} was not closed and lies where nothing can be written; \
         copy it with its \"-wal\" or \"-journal\" file to a writable folder and open it once there"
    )]
    UnfinishedLog {
        /// The file.
        path: PathBuf,
    },
    /// A row handed in breaks a rule of the schema.
    #[error("{row} cannot be stored: {reason}")]
    InvalidRow {
        /// Kind of row.
        row: &'static str,
        /// The rule.
        reason: String,
    },
    /// The writer failed earlier, so nothing more is accepted.
    #[error("the tuning database's writer stopped after an earlier failure: {cause}")]
    WriterStopped {
        /// The failure. It is part of this error's own message, because it says what to do.
        cause: Arc<DbError>,
    },
    /// Any other failure of SQLite.
    #[error("tuning database {path:?}: {doing} failed")]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// SQLite's error.
        #[source]
        source: Arc<rusqlite::Error>,
    },
    /// Any other failure of the operating system.
    #[error("tuning database {path:?}: {doing} failed")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The system's error.
        #[source]
        source: Arc<std::io::Error>,
    },
}

impl DbError {
    /// Gives an SQLite failure the most helpful variant.
    pub(crate) fn sqlite(path: &Path, doing: &'static str, error: rusqlite::Error) -> DbError {
        let path = path.to_path_buf();
        match error.sqlite_error().map(|error| error.extended_code) {
            // The log's shared memory could not grow. SQLite calls any other file that cannot a full disk.
            Some(ffi::SQLITE_IOERR_SHMSIZE) => return DbError::Full { path },
            Some(ffi::SQLITE_READONLY_DBMOVED) => return DbError::Displaced { path },
            _ => {}
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => DbError::NotADatabase { path },
            Some(ErrorCode::DatabaseCorrupt) => DbError::Corrupt { path, detail: error.to_string() },
            Some(ErrorCode::DiskFull) => DbError::Full { path },
            Some(ErrorCode::ReadOnly) => DbError::ReadOnly { path, reason: "it is read-only".into() },
            Some(ErrorCode::DatabaseBusy) => DbError::Busy { path, holder: None },
            _ => DbError::Sqlite { path, doing, source: Arc::new(error) },
        }
    }

    /// Gives a failure of the operating system the most helpful variant.
    pub(crate) fn io(path: &Path, doing: &'static str, error: std::io::Error) -> DbError {
        use std::io::ErrorKind;
        let path = path.to_path_buf();
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => DbError::Full { path },
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                DbError::ReadOnly { path, reason: error.to_string() }
            }
            _ => DbError::Io { path, doing, source: Arc::new(error) },
        }
    }

    /// A row of `table` whose content does not match its id.
    pub(crate) fn damaged_row(path: &Path, table: &str, id: &str) -> DbError {
        // A damaged id may hold anything: print a bounded, escaped part of it.
        let id: String = id.chars().take(12).collect();
        DbError::Damaged { path: path.to_path_buf(), what: format!("{table} {}", id.escape_default()) }
    }

    /// A row that breaks a rule.
    pub(crate) fn invalid(row: &'static str, reason: impl Into<String>) -> DbError {
        DbError::InvalidRow { row, reason: reason.into() }
    }
}

/// The id of a row that could not be read.
pub(crate) fn id_text(id: Option<Id>) -> String {
    id.map_or_else(|| "?".into(), |id| id.to_string())
}
