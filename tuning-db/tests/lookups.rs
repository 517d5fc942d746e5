//! Which schedule a look-up answers, that the view `winner` says the same, and what a miss explains.

#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod fixture;

use std::collections::BTreeMap;
use std::path::Path;

use fixture::{Dice, GENERATOR, TARGET, WORKLOAD, failed, final_of, place, schedule, verdict, writer};
use rusqlite::Connection;
use search_space::Outcome;
use tilewright_tuning_db::{
    Answer, Batch, Database, DbError, Decision, Miss, Observation, Phase, Provenance, Reason, schedule_json,
};

fn store(path: &Path, batch: Batch) -> Database {
    let db = writer(path);
    db.submit(batch).unwrap().wait().unwrap();
    db.close().unwrap();
    Database::open(path).unwrap()
}

fn ask(batch: Batch) -> Option<Answer> {
    let (_folder, path) = place();
    store(&path, batch).lookup(WORKLOAD, TARGET, GENERATOR).unwrap()
}

fn observations(rows: impl IntoIterator<Item = Observation>) -> Batch {
    rows.into_iter().fold(Batch::new(), Batch::observation)
}

#[test]
fn a_kept_schedule_is_the_answer_with_its_time_and_speed_up() {
    let times: Vec<f64> = (0..10).map(|i| 100.0 + f64::from(i)).collect();
    let batch = observations([final_of(1, &[200.0; 8], 0), final_of(6, &times, 1), final_of(8, &[50.0], 2)])
        .verdict(verdict(6, Decision::Keep, 1.9, 3));
    let answer = ask(batch).unwrap();
    // schedule 8 looks faster, but nothing says that it is.
    assert_eq!(answer.schedule, schedule(6));
    assert_eq!((answer.reason, answer.provenance), (Reason::Exact, Provenance::Winner));
    assert_eq!((answer.time.ns, answer.time.lo_ns, answer.time.hi_ns), (104.5, 101.0, 108.0));
    assert_eq!((answer.samples, answer.runs, answer.age_s(1_796_000_061)), (10, 1, 60));
    let (default, time) = answer.default.unwrap();
    assert_eq!((default, time.unwrap().ns), (schedule(1), 200.0));
    assert!((answer.speedup.unwrap().ratio - 1.9).abs() < 1e-12);
    assert_eq!(answer.program_hash.as_deref(), Some("p6"));
}

#[test]
fn without_a_gain_the_default_is_the_answer() {
    let batch = observations([final_of(1, &[100.0], 0), final_of(6, &[99.0], 1)]).verdict(verdict(
        6,
        Decision::NoGain,
        1.01,
        2,
    ));
    let answer = ask(batch).unwrap();
    assert_eq!((answer.schedule, answer.provenance, answer.speedup), (schedule(1), Provenance::Default, None));
}

#[test]
fn without_a_verdict_the_best_final_is_the_answer() {
    let answer = ask(observations([final_of(1, &[100.0], 0), final_of(6, &[99.0], 1)])).unwrap();
    assert_eq!((answer.schedule, answer.provenance), (schedule(6), Provenance::BestFinal));
}

#[test]
fn a_screened_candidate_is_never_the_answer() {
    let screen = Observation { phase: Phase::Screen, ..final_of(6, &[1.0], 1) };
    let cut = Observation { at_least_ns: Some(1.0), ..final_of(7, &[1.0], 2) };
    let untimed = final_of(8, &[], 3);
    assert_eq!(ask(observations([screen.clone(), cut, untimed])), None);
    // ... not even with a verdict.
    assert_eq!(ask(observations([screen]).verdict(verdict(6, Decision::Keep, 2.0, 4))), None);
}

#[test]
fn a_program_that_ever_failed_is_never_the_answer() {
    for outcome in [Outcome::Wrong, Outcome::Timeout, Outcome::Crash, Outcome::LostDevice] {
        let good = || {
            observations([final_of(1, &[100.0], 0), final_of(6, &[50.0], 1)]).verdict(verdict(
                6,
                Decision::Keep,
                2.0,
                2,
            ))
        };
        let answer = ask(good().observation(failed(6, outcome, 3))).unwrap();
        assert_eq!((answer.schedule, answer.provenance), (schedule(1), Provenance::Default), "{outcome}");
        // The same program under another schedule counts; another program of the same schedule does not.
        let twin = Observation { program_hash: Some("p6".into()), ..failed(9, outcome, 3) };
        assert_eq!(ask(good().observation(twin)).unwrap().schedule, schedule(1));
        let repaired = Observation { program_hash: Some("old".into()), ..failed(6, outcome, 3) };
        assert_eq!(ask(good().observation(repaired)).unwrap().schedule, schedule(6));
    }
    // What never ran says nothing about a kernel that did.
    let batch = observations([final_of(6, &[50.0], 1), failed(6, Outcome::CompileError, 2)]);
    assert_eq!(ask(batch).unwrap().schedule, schedule(6));
}

#[test]
fn the_newest_verdict_on_a_schedule_counts() {
    let batch = || observations([final_of(1, &[100.0], 0), final_of(6, &[50.0], 1)]);
    let keep = |sequence| verdict(6, Decision::Keep, 2.0, sequence);
    let demote = |sequence| verdict(6, Decision::Demote, 0.9, sequence);
    assert_eq!(ask(batch().verdict(keep(2)).verdict(demote(3))).unwrap().schedule, schedule(1));
    assert_eq!(ask(batch().verdict(keep(3)).verdict(demote(2))).unwrap().schedule, schedule(6));
}

#[test]
fn a_row_from_elsewhere_decides_nothing_until_it_is_accepted() {
    let (_folder, path) = place();
    let keep = verdict(6, Decision::Keep, 2.0, 2);
    let finals = [final_of(1, &[100.0], 0), final_of(6, &[50.0], 1)];
    store(&path, observations(finals.clone()).verdict(keep.clone()).verdict(verdict(7, Decision::NoGain, 1.0, 1)));
    let raw = Connection::open(&path).unwrap();
    let id = keep.id().unwrap();
    raw.execute("INSERT INTO trust VALUES (?1, 'row', 0, 'a colleague', 0)", [id.to_string()]).unwrap();
    // The tally still counts the row, so marking it by hand is noticed ...
    let database = Database::open(&path).unwrap();
    assert!(matches!(database.lookup(WORKLOAD, TARGET, GENERATOR), Err(DbError::Damaged { .. })));
    assert!(!database.integrity_check().unwrap().is_ok());
    // ... until the tally leaves it out, as an import does.
    let digest: String = raw.query_row("SELECT digest FROM tally", [], |row| row.get(0)).unwrap();
    let digest: tilewright_tuning_db::Id = digest.parse().unwrap();
    let left: String = digest.as_bytes().iter().zip(id.as_bytes()).map(|(a, b)| format!("{:02x}", a ^ b)).collect();
    raw.execute("UPDATE tally SET rows = rows - 1, digest = ?1", [left]).unwrap();
    assert!(database.integrity_check().unwrap().is_ok());
    let answer = database.lookup(WORKLOAD, TARGET, GENERATOR).unwrap().unwrap();
    assert_eq!((answer.schedule, answer.provenance), (schedule(1), Provenance::Default));
    let shown: String = raw.query_row("SELECT schedule FROM winner", [], |row| row.get(0)).unwrap();
    assert_eq!(shown, schedule_json(&schedule(1)));
}

#[test]
fn a_misses_message_names_what_differs() {
    let (_folder, path) = place();
    let database = store(&path, Batch::new());
    let miss = |database: &Database, workload: &str, target: &str, generator: &str| {
        assert_eq!(database.lookup(workload, target, generator).unwrap(), None);
        database.nearest_fields(workload, target, generator).unwrap()
    };
    assert_eq!(miss(&database, WORKLOAD, TARGET, GENERATOR), Miss::Empty);
    let other = Observation { workload: "tw1;other;m:p1".into(), ..final_of(2, &[1.0], 1) };
    let unfinished = Observation { workload: "tw1;unfinished".into(), phase: Phase::Screen, ..final_of(2, &[1.0], 2) };
    let database = store(&path, observations([final_of(1, &[1.0], 0), other, unfinished]));
    let near = WORKLOAD.replace("epi=-", "epi=relu");
    match miss(&database, &near, TARGET, GENERATOR) {
        Miss::Workload { nearest, differences } => {
            assert_eq!(nearest, WORKLOAD);
            assert_eq!((differences.len(), differences[0].field.as_str()), (1, "epi"));
        }
        miss => panic!("{miss}"),
    }
    let text = miss(&database, &near, TARGET, GENERATOR).to_string();
    assert!(text.contains("differs in epi (asked relu, stored -)"), "{text}");
    let text = miss(&database, WORKLOAD, "tt1;vulkan;x", GENERATOR).to_string();
    assert!(text.contains("no record for target tt1;vulkan;x; this workload is stored for tt1;cpu"), "{text}");
    let text = miss(&database, WORKLOAD, TARGET, "iree/3.13").to_string();
    assert!(text.contains("no record for generator iree/3.13; it is stored for tilewright/1"), "{text}");
    assert!(matches!(miss(&database, "tw1;unknown", "tt1;unknown", GENERATOR), Miss::Both { .. }));
    assert!(matches!(
        miss(&database, "tw1;unfinished", TARGET, GENERATOR),
        Miss::NotFinished { observations: 1, ok: 1 }
    ));
    // The unfinished one has no answer, but was measured.
    assert_eq!(database.questions().unwrap().len(), 2);
    let measured = database.measured().unwrap();
    assert!(measured.iter().any(|question| question.workload == "tw1;unfinished"));
    assert_eq!(measured.len(), 3);
}

/// Random facts about a few schedules of a few workloads: look-up and view must agree everywhere.
#[test]
fn the_view_says_what_the_look_up_answers() {
    let mut dice = Dice(7);
    let mut seen = BTreeMap::new();
    for _ in 0..12 {
        let (_folder, path) = place();
        let mut batch = Batch::new();
        for sequence in 0..60 {
            let mr = i64::try_from(dice.roll(5)).unwrap();
            let workload = format!("tw1;w{}", dice.roll(3));
            let samples: Vec<f64> =
                (0..=dice.roll(9)).map(|_| 1.0 + f64::from(u32::try_from(dice.roll(99)).unwrap()) / 7.0).collect();
            let program_hash = (dice.roll(3) > 0).then(|| format!("p{mr}-{}", dice.roll(3)));
            let base = Observation { workload: workload.clone(), program_hash, ..final_of(mr, &samples, sequence) };
            batch = match dice.roll(8) {
                0..=3 => batch.observation(base),
                4 => batch.observation(Observation { phase: Phase::Screen, ..base }),
                5 if dice.roll(2) == 0 => {
                    let outcome = Outcome::ALL[1 + usize::try_from(dice.roll(6)).unwrap()];
                    batch.observation(Observation { outcome, samples_ns: vec![], ..base })
                }
                _ => {
                    let decision = Decision::ALL[usize::try_from(dice.roll(3)).unwrap()];
                    let mut verdict = verdict(mr, decision, 1.5, sequence);
                    (verdict.workload, verdict.baseline) = (workload, schedule(i64::try_from(dice.roll(5)).unwrap()));
                    batch.verdict(verdict)
                }
            };
        }
        let database = store(&path, batch);
        let raw = Connection::open(&path).unwrap();
        for w in 0..3 {
            let key = format!("tw1;w{w}");
            let answer = database.lookup(&key, TARGET, GENERATOR).unwrap();
            let row = raw
                .query_row(
                    "SELECT schedule, provenance, ns, ns_lo, ns_hi, samples, runs, measured_at FROM winner \
                     WHERE workload = (SELECT id FROM workload WHERE key = ?1)",
                    [&key],
                    |row| {
                        Ok((
                            (row.get::<_, String>(0)?, row.get::<_, String>(1)?),
                            [row.get::<_, f64>(2)?, row.get(3)?, row.get(4)?],
                            [row.get::<_, i64>(5)?, row.get(6)?, row.get(7)?],
                        ))
                    },
                )
                .ok();
            let told = answer.map(|a| {
                *seen.entry(a.provenance.as_str()).or_insert(0) += 1;
                let counts = [a.samples, a.runs, a.measured_at].map(|n| i64::try_from(n).unwrap());
                (
                    (schedule_json(&a.schedule), a.provenance.as_str().to_owned()),
                    [a.time.ns, a.time.lo_ns, a.time.hi_ns],
                    counts,
                )
            });
            assert_eq!(told, row);
        }
    }
    assert_eq!(seen.len(), 3, "each kind of answer must have been met: {seen:?}");
}
