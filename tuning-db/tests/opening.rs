//! Everything that a path can be instead of a tuning database gives one clear error and leaves nothing behind.

#![expect(clippy::disallowed_methods, reason = "the processes under test are not workers")]
#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]
#![allow(clippy::print_stdout, reason = "a skipped test says why")]

mod fixture;

use std::io::Write;
use std::path::Path;
use std::process::Command;

use fixture::{GENERATOR, TARGET, WORKLOAD, final_of, place, writer};
use rusqlite::Connection;
use tilewright_tuning_db::{APPLICATION_ID, Database, DbError, Writer, WriterOptions};

fn read_error(path: &Path) -> DbError {
    Database::open(path).unwrap_err()
}

fn write_error(path: &Path) -> DbError {
    Writer::open(path, WriterOptions::default()).unwrap_err()
}

fn entries(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_missing_file_and_a_missing_folder() {
    let (folder, path) = place();
    assert!(matches!(read_error(&path), DbError::Missing { .. }));
    let deep = folder.path().join("no/such/night.tune");
    let error = write_error(&deep);
    assert!(matches!(&error, DbError::ParentMissing { parent, .. } if parent.ends_with("no/such")), "{error}");
    assert!(error.to_string().contains("night.tune") && error.to_string().contains("create it first"), "{error}");
    std::fs::write(&path, "x").unwrap();
    assert!(matches!(write_error(&path.join("night.tune")), DbError::ParentMissing { .. }));
}

#[test]
fn a_directory() {
    let (folder, _) = place();
    assert!(matches!(read_error(folder.path()), DbError::NotAFile { .. }));
    assert!(matches!(write_error(folder.path()), DbError::NotAFile { .. }));
    assert_eq!(entries(folder.path()), [""; 0]);
}

#[test]
fn a_text_file_and_an_empty_file() {
    let (folder, path) = place();
    std::fs::write(&path, "m,n,k,time\n".repeat(100)).unwrap();
    assert!(matches!(read_error(&path), DbError::NotADatabase { .. }));
    assert!(matches!(write_error(&path), DbError::NotADatabase { .. }));
    assert_eq!(entries(folder.path()), ["night.tune"]);
    assert_eq!(std::fs::read(&path).unwrap().len(), 1100, "the user's file was touched");
    std::fs::write(&path, "").unwrap();
    assert!(matches!(read_error(&path), DbError::Empty { .. }));
    writer(&path).close().unwrap();
    Database::open(&path).unwrap();
}

#[test]
fn the_database_of_another_program() {
    let (_folder, path) = place();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE bookmark (url TEXT); PRAGMA application_id = 77").unwrap();
    drop(other);
    assert!(matches!(read_error(&path), DbError::OtherApplication { application_id: 77, .. }));
    let before = std::fs::read(&path).unwrap();
    assert!(matches!(write_error(&path), DbError::OtherApplication { .. }));
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_newer_schema_is_refused_with_one_sentence() {
    let (_folder, path) = place();
    writer(&path).close().unwrap();
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 4).unwrap();
    let before = std::fs::read(&path).unwrap();
    for error in [read_error(&path), write_error(&path)] {
        let text = error.to_string();
        assert!(text.contains("night.tune\" is schema 4, this build reads 1; use a newer build"), "{text}");
        assert!(!text.contains('\n'));
    }
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_changed_schema_is_refused() {
    for sql in [
        "DROP INDEX observation_key",
        "DROP VIEW winner",
        "DROP VIEW winner; CREATE VIEW winner AS WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x FROM r) SELECT * FROM r",
        "CREATE TRIGGER evil AFTER INSERT ON peak BEGIN DELETE FROM event; END",
        "CREATE TABLE kernel (source TEXT)",
        "ALTER TABLE peak ADD COLUMN more TEXT",
        "PRAGMA user_version = 0",
    ] {
        let (_folder, path) = place();
        writer(&path).close().unwrap();
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let error = read_error(&path);
        assert!(matches!(error, DbError::ForeignSchema { .. }), "{sql}: {error}");
        assert!(matches!(write_error(&path), DbError::ForeignSchema { .. }), "{sql}");
    }
}

#[test]
fn a_truncated_file_is_refused_at_every_length() {
    let (_folder, path) = place();
    let db = writer(&path);
    for i in 0..50 {
        let _later = db.record(final_of(i, &[1.0, 2.0], 0)).unwrap();
    }
    db.close().unwrap();
    let whole = std::fs::read(&path).unwrap();
    for length in (1..whole.len()).step_by(whole.len() / 97) {
        std::fs::write(&path, &whole[..length]).unwrap();
        for error in [read_error(&path), write_error(&path)] {
            assert!(matches!(error, DbError::Corrupt { .. } | DbError::NotADatabase { .. }), "{length}: {error}");
            assert!(error.to_string().contains("night.tune"), "{error}");
        }
    }
}

#[test]
fn odd_names_are_only_names() {
    let (folder, _) = place();
    for name in ["a b?mode=memory", "ü#x", "50%41.tune", "-rf"] {
        let path = folder.path().join(name);
        writer(&path).close().unwrap();
        Database::open(&path).unwrap();
        assert!(entries(folder.path()).contains(&name.to_owned()), "{name}");
        std::fs::remove_file(path).unwrap();
    }
    assert_eq!(entries(folder.path()), [""; 0]);
}

#[test]
fn at_rest_there_is_one_plain_file() {
    let (folder, path) = place();
    let db = writer(&path);
    db.record(final_of(1, &[5.0], 0)).unwrap().wait().unwrap();
    assert!(entries(folder.path()).contains(&"night.tune-wal".to_owned()));
    db.close().unwrap();
    assert_eq!(entries(folder.path()), ["night.tune"]);
    let database = Database::open(&path).unwrap();
    assert!(database.lookup(WORKLOAD, TARGET, GENERATOR).unwrap().is_some());
    drop(database);
    assert_eq!(entries(folder.path()), ["night.tune"]);
    let raw = Connection::open(&path).unwrap();
    assert_eq!(raw.pragma_query_value(None, "application_id", |row| row.get::<_, i64>(0)).unwrap(), APPLICATION_ID);
}

/// A file system of `size`, unmounted at the end; `None` where the tests may not mount one.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn mount(size: &str) -> Option<Tmpfs> {
        let folder = tempfile::tempdir().unwrap();
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(folder.path())
            .output()
            .is_ok_and(|output| output.status.success());
        if !done {
            println!("skipped: this user may not mount a tmpfs");
        }
        done.then_some(Tmpfs(folder))
    }

    /// Writes until `spare` bytes are left.
    fn fill(&self, spare: usize) {
        let mut filler = std::fs::File::create(self.0.path().join("filler")).unwrap();
        let mut written = 0;
        while filler.write_all(&[1; 4096]).is_ok() {
            written += 4096;
        }
        filler.set_len(written - spare as u64).unwrap();
    }

    fn read_only(&self) {
        let done = Command::new("mount").args(["-o", "remount,ro"]).arg(self.0.path()).status().unwrap();
        assert!(done.success());
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        Command::new("umount").arg(self.0.path()).status().unwrap();
    }
}

#[test]
fn a_read_only_place_is_read_and_not_written() {
    let Some(disk) = Tmpfs::mount("4m") else { return };
    let path = disk.0.path().join("night.tune");
    let db = writer(&path);
    db.record(final_of(1, &[5.0], 0)).unwrap().wait().unwrap();
    db.close().unwrap();
    disk.read_only();
    assert!(Database::open(&path).unwrap().lookup(WORKLOAD, TARGET, GENERATOR).unwrap().is_some());
    assert!(matches!(write_error(&path), DbError::ReadOnly { .. }));
    let new = disk.0.path().join("new.tune");
    assert!(matches!(write_error(&new), DbError::ReadOnly { .. }), "{}", write_error(&new));
    assert_eq!(entries(disk.0.path()), ["night.tune"]);
}

#[test]
fn a_log_left_by_a_crash_in_a_read_only_place_is_not_passed_over() {
    let Some(disk) = Tmpfs::mount("4m") else { return };
    let (_folder, path) = place();
    let db = writer(&path);
    db.record(final_of(1, &[5.0], 0)).unwrap().wait().unwrap();
    // The state a killed process leaves: the rows are in the log only.
    let copy = disk.0.path().join("night.tune");
    std::fs::copy(&path, &copy).unwrap();
    let wal = |path: &Path| path.with_file_name("night.tune-wal");
    std::fs::copy(wal(&path), wal(&copy)).unwrap();
    disk.read_only();
    let error = read_error(&copy);
    assert!(matches!(error, DbError::UnfinishedLog { .. }), "{error}");
}

#[test]
fn a_full_disk_refuses_a_new_file_and_leaves_nothing() {
    let Some(disk) = Tmpfs::mount("64k") else { return };
    std::fs::write(disk.0.path().join("filler"), vec![0; 40 << 10]).unwrap();
    let path = disk.0.path().join("night.tune");
    let error = write_error(&path);
    assert!(matches!(error, DbError::Full { .. }), "{error}");
    assert_eq!(entries(disk.0.path()), ["filler"]);
}

#[test]
fn a_disk_that_fills_keeps_what_was_acknowledged() {
    let Some(disk) = Tmpfs::mount("4m") else { return };
    let path = disk.0.path().join("night.tune");
    let db = writer(&path);
    let mut saved = 0;
    let error = (0..10_000)
        .find_map(|i| match db.record(final_of(i, &[1.5; 40], 0)).and_then(|ticket| ticket.wait()) {
            Ok(_) => {
                saved += 1;
                None
            }
            Err(error) => Some(error),
        })
        .unwrap();
    assert!(matches!(error, DbError::Full { .. }), "{error}");
    drop(db);
    let database = Database::open(&path).unwrap();
    assert_eq!(database.observations(WORKLOAD, TARGET).unwrap().rows.len(), saved);
    assert!(saved > 50, "{saved} rows fitted");
    assert_eq!(database.integrity_check().unwrap().problems, [""; 0]);
}

#[test]
fn a_full_disk_does_not_hide_what_is_stored() {
    for spare in [0, 4 << 10, 8 << 10, 16 << 10, 24 << 10, 32 << 10] {
        let Some(disk) = Tmpfs::mount("1m") else { return };
        let path = disk.0.path().join("night.tune");
        let db = writer(&path);
        db.record(final_of(1, &[5.0], 0)).unwrap().wait().unwrap();
        db.close().unwrap();
        disk.fill(spare);
        let error = write_error(&path);
        assert!(matches!(error, DbError::Full { .. }), "{spare}: {error}");
        assert!(error.to_string().contains("no space left on the device") && error.to_string().contains("free some"));
        let database = Database::open(&path).unwrap();
        assert!(database.lookup(WORKLOAD, TARGET, GENERATOR).unwrap().is_some(), "{spare}");
        drop(database);
        // Where there is room to, the file is made a plain one again.
        let header = std::fs::read(&path).unwrap()[18..20].to_vec();
        assert_eq!(header, [1, 1], "{spare}");
        std::fs::remove_file(disk.0.path().join("filler")).unwrap();
        writer(&path).close().unwrap();
        assert_eq!(entries(disk.0.path()), ["night.tune"]);
    }
}

#[test]
fn a_log_is_read_where_there_is_no_room_for_its_index() {
    let Some(disk) = Tmpfs::mount("1m") else { return };
    let path = disk.0.path().join("night.tune");
    writer(&path).close().unwrap();
    // Without a log.
    Connection::open(&path).unwrap().pragma_update(None, "journal_mode", "wal").unwrap();
    assert_eq!(entries(disk.0.path()), ["night.tune"]);
    disk.fill(4 << 10);
    let (one, two) = (Database::open(&path).unwrap(), Database::open(&path).unwrap());
    assert_eq!((one.info().unwrap().sessions, two.info().unwrap().sessions), (0, 0));
    drop((one, two));
    std::fs::remove_file(disk.0.path().join("filler")).unwrap();
    std::fs::remove_file(&path).unwrap();
    // The state a killed process leaves: the row is in the log only.
    let (_folder, running) = place();
    let db = writer(&running);
    db.record(final_of(1, &[5.0], 0)).unwrap().wait().unwrap();
    let wal = |path: &Path| path.with_file_name("night.tune-wal");
    std::fs::copy(&running, &path).unwrap();
    std::fs::copy(wal(&running), wal(&path)).unwrap();
    disk.fill(4 << 10);
    let log = std::fs::read(wal(&path)).unwrap();
    let database = Database::open(&path).unwrap();
    assert!(database.lookup(WORKLOAD, TARGET, GENERATOR).unwrap().is_some());
    drop(database);
    assert_eq!(std::fs::read(wal(&path)).unwrap(), log, "the log is for the next writer");
}

#[test]
fn an_interrupted_transaction_is_rolled_back_or_refused() {
    let (folder, path) = place();
    let db = writer(&path);
    for i in 0..200 {
        let _later = db.record(final_of(i, &[1.0, 2.0], 0)).unwrap();
    }
    db.close().unwrap();
    // The state that a process leaves which dies while it writes: half of the change is in the file already.
    let raw = Connection::open(&path).unwrap();
    raw.execute_batch("PRAGMA cache_size = 5; BEGIN; DELETE FROM observation; DELETE FROM tally").unwrap();
    let copy = |to: &Path| {
        for name in ["night.tune", "night.tune-journal"] {
            std::fs::copy(folder.path().join(name), to.join(name)).unwrap();
        }
        to.join("night.tune")
    };
    let there = tempfile::tempdir().unwrap();
    let database = Database::open(copy(there.path())).unwrap();
    assert_eq!(database.info().unwrap().rows["observation"], 200);
    assert_eq!(database.integrity_check().unwrap().problems, [""; 0]);
    let Some(disk) = Tmpfs::mount("4m") else { return };
    let path = copy(disk.0.path());
    disk.read_only();
    assert!(matches!(read_error(&path), DbError::UnfinishedLog { .. }));
}

#[test]
fn a_file_that_is_taken_away_after_the_last_row_is_said_to_be() {
    let (_folder, path) = place();
    let db = writer(&path);
    db.record(final_of(1, &[5.0], 0)).unwrap().wait().unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(db.close(), Err(DbError::Displaced { .. })));
}

#[test]
fn a_file_that_is_taken_away_is_said_to_be() {
    for replaced in [false, true] {
        let (folder, path) = place();
        let db = writer(&path);
        db.record(final_of(1, &[5.0], 0)).unwrap().wait().unwrap();
        let elsewhere = folder.path().join("moved.tune");
        std::fs::rename(&path, &elsewhere).unwrap();
        if replaced {
            let (_other, new) = place();
            writer(&new).close().unwrap();
            std::fs::copy(&new, &path).unwrap();
        }
        let error = db.record(final_of(2, &[5.0], 1)).and_then(|ticket| ticket.wait()).unwrap_err();
        assert!(matches!(error, DbError::Displaced { .. }), "{error}");
        assert!(matches!(db.close(), Err(DbError::Displaced { .. })));
        // What was saved is in the file that was moved, and no log lies about for another one.
        assert!(Database::open(&elsewhere).unwrap().lookup(WORKLOAD, TARGET, GENERATOR).unwrap().is_some());
        writer(&path).close().unwrap();
        assert!(Database::open(&path).unwrap().lookup(WORKLOAD, TARGET, GENERATOR).unwrap().is_none());
        let ours = |name: &String| name.starts_with("night.tune");
        assert_eq!(entries(folder.path()).into_iter().filter(ours).collect::<Vec<_>>(), ["night.tune"]);
    }
}
