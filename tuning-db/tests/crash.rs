//! Killed processes: nothing acknowledged is lost, and one candidate at most is quarantined.
//!
//! The parent starts this very test program again; there `the_child` writes until it is killed.

#![expect(clippy::disallowed_methods, reason = "the processes under test are not workers")]
#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod fixture;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fixture::{Dice, TARGET, WORKLOAD, candidate, event, final_of, place, session, writer};
use serde_json::json;
use tilewright_tuning_db::{Database, Writer, WriterOptions};

const ROUNDS: u64 = 60;

fn start(path: &Path, round: u64, what: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_child", "--nocapture", "--test-threads", "1"])
        .env("TUNING_DB_CHILD", what)
        .env("TUNING_DB_PATH", path)
        .env("TUNING_DB_ROUND", round.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Does nothing in an ordinary run of the tests.
#[test]
fn the_child() {
    let Ok(what) = std::env::var("TUNING_DB_CHILD") else { return };
    let path = std::env::var("TUNING_DB_PATH").unwrap();
    let round: i64 = std::env::var("TUNING_DB_ROUND").unwrap().parse().unwrap();
    let options = WriterOptions { patience: Duration::from_secs(20), ..WriterOptions::default() };
    let db = Writer::open(path, options).unwrap();
    let name = format!("session-{round}");
    db.save_session(session(&name)).unwrap();
    for sequence in 0..1_000_000_u64 {
        let mr = round * 1_000_000 + i64::try_from(sequence).unwrap();
        db.about_to_run(candidate(mr), Some(name.clone()), 0).unwrap();
        if what == "abort" && sequence == 3 {
            std::process::abort();
        }
        let row = final_of(mr, &[1.5, 2.5], sequence);
        let tell = event(&name, sequence, "tell", json!({"observation": row.id().unwrap().to_string()}));
        let id = db.record_with(row, [tell]).unwrap().wait().unwrap();
        let mut out = std::io::stdout().lock();
        writeln!(out, "saved {id}").unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn a_killed_process_loses_nothing_it_reported() {
    let (_folder, path) = place();
    let mut dice = Dice(42);
    let mut acknowledged = BTreeSet::new();
    let mut kills = 0;
    for round in 0..ROUNDS {
        let mut child = start(&path, round, "write");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).split(b'\n').map(|line| line.unwrap());
        // One round in four is killed while it opens the file, the others while they write.
        let first = if round % 4 == 0 { None } else { lines.by_ref().find(|line| line.starts_with(b"saved ")) };
        std::thread::sleep(Duration::from_millis(1 + dice.roll(40)));
        child.kill().unwrap();
        for line in first.into_iter().chain(lines) {
            // The last line may have been cut by the kill.
            let line = String::from_utf8_lossy(&line).into_owned();
            if let Some(id) = line.strip_prefix("saved ").filter(|id| id.len() == 64) {
                acknowledged.insert(id.to_owned());
            }
        }
        child.wait().unwrap();
        kills += 1;
        if round % 10 == 9 {
            check(&path, &acknowledged, kills);
        }
    }
    println!("{kills} kills, {} rows reported as saved, 0 lost", acknowledged.len());
    assert!(acknowledged.len() > 100, "the children hardly wrote: {}", acknowledged.len());
    writer(&path).close().unwrap();
    check(&path, &acknowledged, kills);
}

fn check(path: &Path, acknowledged: &BTreeSet<String>, kills: usize) {
    let database = Database::open(path).unwrap();
    assert_eq!(database.integrity_check().unwrap().problems, [""; 0]);
    let rows = database.observations(WORKLOAD, TARGET).unwrap();
    assert_eq!(rows.damaged.len(), 0);
    let stored: BTreeSet<String> = rows.rows.iter().map(|row| row.id().unwrap().to_string()).collect();
    assert_eq!(acknowledged.difference(&stored).count(), 0, "a row reported as saved is lost");
    // An observation and its event are there together or not at all.
    let mut told = BTreeSet::new();
    for session in database.sessions().unwrap() {
        for event in database.events(&session.id).unwrap() {
            told.insert(event.body["observation"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(told, stored);
    assert!(database.all_quarantined().unwrap().len() <= kills);
}

#[test]
fn a_crash_while_a_candidate_runs_quarantines_exactly_that_one() {
    let (_folder, path) = place();
    let status = start(&path, 5, "abort").wait().unwrap();
    assert!(!status.success());
    let db = writer(&path);
    let database = Database::open(&path).unwrap();
    assert_eq!(database.quarantined(WORKLOAD, TARGET).unwrap(), [candidate(5_000_003)]);
    assert_eq!(database.observations(WORKLOAD, TARGET).unwrap().rows.len(), 3);
    // It stays out of the way until somebody records what became of it.
    db.close().unwrap();
    let db = writer(&path);
    assert_eq!(database.all_quarantined().unwrap().len(), 1);
    db.record(fixture::failed(5_000_003, search_space::Outcome::Crash, 3)).unwrap().wait().unwrap();
    assert_eq!(database.all_quarantined().unwrap(), []);
}
