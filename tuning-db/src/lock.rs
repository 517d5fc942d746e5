//! One writer at a time: an advisory lock on a file beside the database.
//!
//! The lock is not taken on the database itself: closing a second handle of that file would drop the record locks
//! SQLite holds in this process (SQLite, "How To Corrupt An SQLite Database File", section 2.2). The kernel frees the
//! lock when its holder dies, however it dies; the file `<database>.lock` is removed on a clean end and may be deleted
//! by hand when no tuner runs.

use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::DbError;

/// Held as long as it lives.
#[derive(Debug)]
pub(crate) struct WriterLock {
    path: PathBuf,
    // Held for its lock.
    _file: File,
}

impl WriterLock {
    /// Takes the lock of `database`, waiting up to `patience` for its holder.
    pub(crate) fn take(database: &Path, patience: Duration) -> Result<WriterLock, DbError> {
        let path = beside(database, ".lock");
        let deadline = Instant::now() + patience;
        loop {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .map_err(|error| DbError::io(database, "creating its lock file", error))?;
            match file.try_lock() {
                Ok(()) if is_still_there(&file, &path) => {
                    // Who holds it is a help for people; a full disk must not stop here, SQLite will say so.
                    let _ = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
                    return Ok(WriterLock { path, _file: file });
                }
                // The previous holder removed the file between our open and our lock: take the new one.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(DbError::Busy { path: database.to_path_buf(), holder: holder(&mut file) });
                }
                Err(TryLockError::Error(error)) => return Err(DbError::io(database, "locking it", error)),
            }
        }
    }
}

impl Drop for WriterLock {
    fn drop(&mut self) {
        // Removed while still locked: whoever opened it before sees in `is_still_there` that it is gone.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Which file it is, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The file at `path` now.
    pub(crate) fn of(path: &Path) -> std::io::Result<FileId> {
        std::fs::metadata(path).map(|metadata| FileId::from(&metadata))
    }
}

impl From<&Metadata> for FileId {
    fn from(metadata: &Metadata) -> FileId {
        FileId { device: metadata.dev(), inode: metadata.ino() }
    }
}

fn is_still_there(file: &File, path: &Path) -> bool {
    matches!((file.metadata(), FileId::of(path)), (Ok(ours), Ok(theirs)) if FileId::from(&ours) == theirs)
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// The path of a companion file of `database`.
pub(crate) fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(database);
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_holds_it_and_it_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.tune");
        let first = WriterLock::take(&database, Duration::ZERO).unwrap();
        let busy = WriterLock::take(&database, Duration::ZERO).unwrap_err();
        assert!(matches!(busy, DbError::Busy { holder: Some(pid), .. } if pid == std::process::id()), "{busy}");
        let waiting = std::thread::spawn({
            let database = database.clone();
            move || WriterLock::take(&database, Duration::from_secs(20)).map(drop)
        });
        std::thread::sleep(Duration::from_millis(60));
        drop(first);
        waiting.join().unwrap().unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
