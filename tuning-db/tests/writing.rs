//! What the writer promises: order, atomicity, one writer, errors that reach everybody, quarantine.

#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod fixture;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fixture::{TARGET, WORKLOAD, candidate, event, failed, final_of, place, schedule, session, verdict, writer};
use proptest::prelude::*;
use rusqlite::Connection;
use search_space::Outcome;
use serde_json::json;
use tilewright_tuning_db::{
    Batch, Database, DbError, Decision, Observation, Peak, Writer, WriterOptions, target_id, workload_id,
};

#[test]
fn what_is_written_is_read() {
    let (_folder, path) = place();
    let db = writer(&path);
    let cut = Observation { at_least_ns: Some(1e9), outcome: Outcome::Timeout, ..failed(2, Outcome::Timeout, 1) };
    let tiny = final_of(3, &[0.1 + 0.2, 0.0, 1e-300, 1e300], 2);
    let rows = [final_of(1, &[812.5, 810.0], 0), cut, tiny];
    for row in &rows {
        assert_eq!(db.record(row.clone()).unwrap().wait().unwrap(), row.id().unwrap());
    }
    let keep = verdict(3, Decision::Keep, 1.5, 3);
    db.submit(Batch::new().verdict(keep.clone())).unwrap().wait().unwrap();
    let peak = Peak { device: "cpu".into(), what: "fma_f32_flops_per_s".into(), value: 1.5e11, measured_at: 7 };
    db.submit(Batch::new().peak(peak.clone())).unwrap().wait().unwrap();
    db.save_session(session("s")).unwrap();
    db.close().unwrap();

    let database = Database::open(&path).unwrap();
    let found = database.observations(WORKLOAD, TARGET).unwrap();
    assert_eq!((found.rows.as_slice(), found.damaged.len()), (rows.as_slice(), 0));
    assert_eq!(database.verdicts(WORKLOAD, TARGET).unwrap().rows, [keep]);
    assert_eq!(database.peaks("cpu").unwrap(), [peak]);
    assert_eq!(database.sessions().unwrap(), [session("s")]);
    let info = database.info().unwrap();
    assert_eq!(info.rows["observation"], 3);
    assert_eq!(info.rows["workload"], 1);
    assert_eq!(info.outcomes[&Outcome::Timeout], 1);
    assert_eq!(info.targets[TARGET], 3);
    assert_eq!((info.sessions, info.unfinished_sessions, info.quarantined), (1, 1, 0));
}

#[test]
fn a_failed_candidate_cannot_carry_a_time() {
    let (_folder, path) = place();
    let db = writer(&path);
    for outcome in Outcome::ALL.into_iter().filter(|outcome| *outcome != Outcome::Ok) {
        let error = db.record(Observation { samples_ns: vec![1.0], ..failed(1, outcome, 0) }).unwrap_err();
        assert!(error.to_string().contains("cannot carry a time"), "{error}");
    }
    for bad in [f64::NAN, f64::INFINITY, -1.0] {
        assert!(matches!(db.record(final_of(1, &[bad], 0)), Err(DbError::InvalidRow { .. })));
        let row = Observation { at_least_ns: Some(bad), ..final_of(1, &[], 0) };
        assert!(matches!(db.record(row), Err(DbError::InvalidRow { .. })));
    }
    for row in [
        Observation { workload: String::new(), ..final_of(1, &[1.0], 0) },
        Observation { run: "a\nb".into(), ..final_of(1, &[1.0], 0) },
        Observation { code_hash: Some("\u{7f}ELF".repeat(100)), ..final_of(1, &[1.0], 0) },
        Observation { input: "x".repeat(1 << 20), ..final_of(1, &[1.0], 0) },
        Observation { sequence: u64::MAX, ..final_of(1, &[1.0], 0) },
        Observation { at_least_ns: Some(1.0), ..failed(1, Outcome::Wrong, 0) },
    ] {
        assert!(matches!(db.record(row), Err(DbError::InvalidRow { .. })));
    }
}

#[test]
fn a_winner_needs_its_interval_above_one() {
    let unsure = tilewright_tuning_db::Verdict { ratio_lo: 0.999, ..verdict(2, Decision::Keep, 1.1, 0) };
    assert!(unsure.id().unwrap_err().to_string().contains("does not lie above 1"));
    let outside = tilewright_tuning_db::Verdict { ratio_lo: 1.2, ..verdict(2, Decision::NoGain, 1.1, 0) };
    assert!(outside.id().is_err());
}

#[test]
fn a_bad_batch_is_refused_whole_and_alone() {
    let (_folder, path) = place();
    let db = writer(&path);
    // The event names a session that does not exist, so the observation with it must not be stored either.
    let bad = db.record_with(final_of(1, &[1.0], 0), [event("nobody", 0, "tell", json!({}))]).unwrap();
    let good = db.record(final_of(2, &[1.0], 1)).unwrap();
    assert!(matches!(bad.wait(), Err(DbError::InvalidRow { row: "event", .. })));
    good.wait().unwrap();
    db.close().unwrap();
    let rows = Database::open(&path).unwrap().observations(WORKLOAD, TARGET).unwrap().rows;
    assert_eq!(rows, [final_of(2, &[1.0], 1)]);
}

#[test]
fn an_observation_and_its_event_are_saved_together_and_reported_once() {
    let (_folder, path) = place();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let options = WriterOptions {
        on_saved: Some(Box::new({
            let (seen, path) = (Arc::clone(&seen), path.clone());
            move |id, observation| {
                // What is reported can already be read by others.
                let stored = Database::open(&path).unwrap().observations(WORKLOAD, TARGET).unwrap().rows;
                assert!(stored.contains(observation));
                seen.lock().unwrap().push(id);
            }
        })),
        ..WriterOptions::default()
    };
    let db = Writer::open(&path, options).unwrap();
    db.save_session(session("s")).unwrap();
    let mut ids = Vec::new();
    for i in 0..5_u32 {
        let sequence = u64::from(i);
        let row = final_of(i64::from(i), &[1.0], sequence);
        ids.push(row.id().unwrap());
        let tell = event("s", sequence, "tell", json!({"observation": row.id().unwrap().to_string()}));
        db.record_with(row, [tell]).unwrap().wait().unwrap();
    }
    // The same again changes nothing; another event in its place is refused.
    db.submit(Batch::new().event(event("s", 4, "tell", json!({"observation": ids[4].to_string()}))))
        .unwrap()
        .wait()
        .unwrap();
    let other = db.submit(Batch::new().event(event("s", 4, "tell", json!({})))).unwrap().wait();
    assert!(matches!(other, Err(DbError::InvalidRow { row: "event", .. })));
    db.close().unwrap();
    assert_eq!(*seen.lock().unwrap(), ids);
    let events = Database::open(&path).unwrap().events("s").unwrap();
    let told: Vec<_> = events.iter().map(|event| event.body["observation"].as_str().unwrap().to_owned()).collect();
    assert_eq!(told, ids.iter().map(ToString::to_string).collect::<Vec<_>>());
}

#[test]
fn a_gap_or_a_changed_event_stops_a_resume() {
    for sql in ["DELETE FROM event WHERE sequence = 1", "UPDATE event SET body = '{\"x\":7}' WHERE sequence = 1"] {
        let (_folder, path) = place();
        let db = writer(&path);
        db.save_session(session("s")).unwrap();
        let events = (0..3).map(|i| event("s", i, "ask", json!({"x": i})));
        db.submit(Batch::new().events(events)).unwrap().wait().unwrap();
        db.close().unwrap();
        assert_eq!(Database::open(&path).unwrap().events("s").unwrap().len(), 3);
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let database = Database::open(&path).unwrap();
        assert!(matches!(database.events("s"), Err(DbError::Damaged { .. })), "{sql}");
        assert!(!database.integrity_check().unwrap().is_ok());
    }
}

#[test]
fn rows_nobody_waits_for_are_committed_within_the_group_time() {
    let (_folder, path) = place();
    let db = writer(&path);
    let begun = Instant::now();
    let _unwaited = db.record(final_of(1, &[1.0], 0)).unwrap();
    let database = Database::open(&path).unwrap();
    while database.observations(WORKLOAD, TARGET).unwrap().rows.is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it was never committed");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn many_threads_share_one_writer() {
    let (_folder, path) = place();
    let db = writer(&path);
    std::thread::scope(|scope| {
        for thread in 0..4_i64 {
            let db = &db;
            scope.spawn(move || {
                for i in 0..50 {
                    db.record(final_of(thread * 1000 + i, &[1.0], 0)).unwrap().wait().unwrap();
                }
            });
        }
    });
    db.close().unwrap();
    assert_eq!(Database::open(&path).unwrap().observations(WORKLOAD, TARGET).unwrap().rows.len(), 200);
}

#[test]
fn a_second_writer_waits_its_turn_or_is_told() {
    let (_folder, path) = place();
    let first = writer(&path);
    let error = Writer::open(&path, WriterOptions::default()).unwrap_err();
    assert!(matches!(error, DbError::Busy { holder: Some(pid), .. } if pid == std::process::id()));
    assert!(error.to_string().contains("another tuner (process"), "{error}");
    let second = std::thread::spawn({
        let path = path.clone();
        move || {
            let options = WriterOptions { patience: Duration::from_secs(30), ..WriterOptions::default() };
            let db = Writer::open(&path, options).unwrap();
            db.record(final_of(2, &[1.0], 1)).unwrap().wait().unwrap();
            db.close().unwrap();
        }
    });
    first.record(final_of(1, &[1.0], 0)).unwrap().wait().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    first.close().unwrap();
    second.join().unwrap();
    assert_eq!(Database::open(&path).unwrap().observations(WORKLOAD, TARGET).unwrap().rows.len(), 2);
}

#[test]
fn readers_go_on_while_a_writer_writes() {
    let (_folder, path) = place();
    let db = writer(&path);
    db.record(final_of(0, &[1.0], 0)).unwrap().wait().unwrap();
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            for _ in 0..200 {
                let database = Database::open(&path).unwrap();
                assert!(database.lookup(WORKLOAD, TARGET, fixture::GENERATOR).unwrap().is_some());
            }
        });
        let mut i = 1;
        while !reading.is_finished() {
            db.record(final_of(i, &[1.0], 0)).unwrap().wait().unwrap();
            i += 1;
        }
    });
    db.close().unwrap();
}

#[test]
fn a_full_file_is_reported_to_everybody_and_keeps_what_it_has() {
    let (_folder, path) = place();
    let options = WriterOptions { max_bytes: Some(400_000), ..WriterOptions::default() };
    let db = Writer::open(&path, options).unwrap();
    let (mut saved, mut errors) = (0, Vec::new());
    for round in 0..1000 {
        let tickets: Vec<_> = (0..10).map(|i| db.record(final_of(round * 10 + i, &[1.25; 30], 0))).collect();
        for ticket in tickets {
            match ticket.and_then(|ticket| ticket.wait()) {
                Ok(_) => saved += 1,
                Err(error) => errors.push(error),
            }
        }
        if !errors.is_empty() {
            break;
        }
    }
    assert!(errors.iter().any(|error| matches!(error, DbError::Full { .. })), "{errors:?}");
    let later = db.record(final_of(-1, &[1.0], 0)).unwrap_err();
    assert!(matches!(&later, DbError::WriterStopped { cause } if matches!(**cause, DbError::Full { .. })), "{later}");
    assert!(matches!(db.flush(), Err(DbError::WriterStopped { .. })));
    assert!(matches!(db.close(), Err(DbError::Full { .. })));
    let database = Database::open(&path).unwrap();
    assert_eq!(database.observations(WORKLOAD, TARGET).unwrap().rows.len(), saved);
    assert!(saved >= 10 && database.integrity_check().unwrap().is_ok());
    // With room again, the same file goes on.
    let db = writer(&path);
    db.record(final_of(-1, &[1.0], 0)).unwrap().wait().unwrap();
}

#[test]
fn a_file_too_small_for_the_schema_is_not_left_behind() {
    let (folder, path) = place();
    let options = WriterOptions { max_bytes: Some(4096 * 4), ..WriterOptions::default() };
    assert!(matches!(Writer::open(&path, options), Err(DbError::Full { .. })));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn quarantine_ends_with_the_observation() {
    let (_folder, path) = place();
    let db = writer(&path);
    db.about_to_run(candidate(1), None, 5).unwrap();
    db.about_to_run(candidate(2), None, 6).unwrap();
    let database = Database::open(&path).unwrap();
    assert_eq!(database.quarantined(WORKLOAD, TARGET).unwrap(), [candidate(1), candidate(2)]);
    db.record(final_of(1, &[1.0], 0)).unwrap().wait().unwrap();
    assert_eq!(database.quarantined(WORKLOAD, TARGET).unwrap(), [candidate(2)]);
    assert_eq!(database.quarantined(WORKLOAD, "tt1;other").unwrap(), []);
    db.submit(Batch::new().release(candidate(2))).unwrap().wait().unwrap();
    assert_eq!(database.all_quarantined().unwrap(), []);
    assert_eq!(schedule(1), candidate(1).schedule);
}

/// Stores `rows` in a new file, in that order and in several groups, and returns what it then holds.
fn stored(rows: &[(bool, i64, u64)]) -> (Vec<String>, Vec<String>, Vec<String>) {
    let (_folder, path) = place();
    let db = writer(&path);
    for (is_verdict, mr, sequence) in rows {
        let batch = if *is_verdict {
            Batch::new().verdict(verdict(*mr, Decision::NoGain, 1.0, *sequence))
        } else {
            Batch::new().observation(final_of(*mr, &[1.0, 2.0], *sequence))
        };
        let _later = db.submit(batch).unwrap();
    }
    db.close().unwrap();
    assert!(Database::open(&path).unwrap().integrity_check().unwrap().is_ok());
    let raw = Connection::open(&path).unwrap();
    let column = |sql: &str| -> Vec<String> {
        raw.prepare(sql).unwrap().query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    (
        column(
            "SELECT id FROM observation UNION ALL SELECT id FROM verdict UNION ALL SELECT id FROM workload ORDER BY 1",
        ),
        column("SELECT rows || digest FROM tally ORDER BY 1"),
        column("SELECT schedule || provenance FROM winner ORDER BY 1"),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    /// The union of two files is the same from both sides, and adding one again changes nothing.
    #[test]
    fn union_does_not_depend_on_order(
        a in prop::collection::vec((any::<bool>(), 0..5_i64, 0..4_u64), 0..12),
        b in prop::collection::vec((any::<bool>(), 0..5_i64, 0..4_u64), 0..12),
    ) {
        let ab = stored(&[a.clone(), b.clone()].concat());
        prop_assert_eq!(&ab, &stored(&[b.clone(), a.clone()].concat()));
        prop_assert_eq!(&ab, &stored(&[a.clone(), b, a].concat()));
    }
}

#[test]
fn ids_are_those_of_the_documentation() {
    assert_ne!(workload_id("x"), target_id("x"));
    let documented = blake3::hash(b"tilewright.workload.1\nkey=5:hello\n");
    assert_eq!(workload_id("hello").as_bytes(), documented.as_bytes());
}
