//! A flipped bit is noticed: a changed answer is never given, a changed row never handed out.

#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod fixture;

use std::path::Path;

use fixture::{Dice, GENERATOR, TARGET, final_of, place, verdict, writer};
use rusqlite::Connection;
use search_space::Outcome;
use tilewright_tuning_db::{Answer, Batch, Database, DbError, Decision, Observation, workload_id};

const QUESTIONS: u64 = 12;

fn key(question: u64) -> String {
    format!("tw1;contract.madd;m:p{question},n:p64,k:r64;acc=f32")
}

/// A file of 200 rows in which every question has a winner, a default, a slower final and failures.
fn file_of_200_rows(path: &Path) -> Vec<Observation> {
    let db = writer(path);
    let mut rows = Vec::new();
    let mut batch = Batch::new();
    for question in 0..QUESTIONS {
        for mr in 0..16_u32 {
            let time = 100.0 + f64::from(mr) + f64::from(u32::try_from(question).unwrap()) / 7.0;
            let base = final_of(i64::from(mr), &[time, time + 0.125], u64::from(mr) + 100 * question);
            let row = match mr {
                0..=3 => Observation { workload: key(question), ..base },
                4 => Observation { workload: key(question), outcome: Outcome::Wrong, samples_ns: vec![], ..base },
                _ => Observation { workload: key(question), phase: tilewright_tuning_db::Phase::Screen, ..base },
            };
            rows.push(row.clone());
            batch = batch.observation(row);
        }
        for (mr, decision) in [(2, Decision::Keep), (3, Decision::NoGain)] {
            batch = batch.verdict(tilewright_tuning_db::Verdict {
                workload: key(question),
                ..verdict(mr, decision, 1.25, 100 * question + 50)
            });
        }
    }
    db.submit(batch).unwrap().wait().unwrap();
    db.close().unwrap();
    rows
}

fn answers(path: &Path) -> Result<Vec<Result<Option<Answer>, DbError>>, DbError> {
    let database = Database::open(path)?;
    Ok((0..QUESTIONS).map(|question| database.lookup(&key(question), TARGET, GENERATOR)).collect())
}

#[test]
fn flipped_bytes_never_change_an_answer() {
    let (_folder, path) = place();
    file_of_200_rows(&path);
    let good = std::fs::read(&path).unwrap();
    let right: Vec<Answer> = answers(&path).unwrap().into_iter().map(|answer| answer.unwrap().unwrap()).collect();
    let mut dice = Dice(1);
    let (mut same, mut refused, mut missed) = (0, 0, 0);
    // Every 401st byte, each time another one of its bits.
    for position in (usize::try_from(dice.roll(401)).unwrap()..good.len()).step_by(401) {
        let mut bad = good.clone();
        bad[position] ^= 1 << dice.roll(8);
        std::fs::write(&path, &bad).unwrap();
        match answers(&path) {
            Err(_) => refused += QUESTIONS,
            Ok(answers) => {
                for (answer, right) in answers.iter().zip(&right) {
                    match answer {
                        Ok(Some(answer)) => {
                            assert_eq!(answer, right, "byte {position}");
                            same += 1;
                        }
                        Ok(None) => missed += 1,
                        Err(_) => refused += 1,
                    }
                }
            }
        }
    }
    println!("{} bytes: {same} answers unchanged, {refused} refused, {missed} missed, 0 changed", good.len());
    assert!(refused > 0 && missed * 100 < same, "the flips must have met rows, and a miss must be rare");
}

#[test]
fn each_row_flipped_in_turn_is_reported_and_left_out() {
    let (_folder, path) = place();
    let rows = file_of_200_rows(&path);
    let good = std::fs::read(&path).unwrap();
    let right: Vec<Answer> = answers(&path).unwrap().into_iter().map(|answer| answer.unwrap().unwrap()).collect();
    for (i, row) in rows.iter().enumerate() {
        // The id stands in the row, then in indexes. After the row's id come its fields: flip a bit in the run.
        let id = row.id().unwrap().to_string();
        let mut bad = good.clone();
        // (A page that was split keeps old copies of rows in its unused part: flipping those too does no harm.)
        let start = [id.as_bytes(), workload_id(&row.workload).to_string().as_bytes()].concat();
        let copies: Vec<usize> = (0..good.len()).filter(|at| good[*at..].starts_with(&start)).collect();
        assert!(!copies.is_empty(), "the row lies on one page");
        for copy in copies {
            let run = good[copy..].windows(5).position(|window| window == b"run-a").unwrap();
            bad[copy + run + 4] ^= 1;
        }
        std::fs::write(&path, &bad).unwrap();
        let database = Database::open(&path).unwrap();
        let found = database.observations(&row.workload, TARGET).unwrap();
        assert_eq!((found.rows.len(), found.damaged.len()), (15, 1), "row {i}");
        assert!(!found.rows.iter().any(|other| other.schedule == row.schedule));
        assert!(found.damaged[0].to_string().contains(&id[..12]), "{}", found.damaged[0]);
        let check = database.integrity_check().unwrap();
        assert!(check.problems.iter().any(|problem| problem.contains(&id[..12])), "{:?}", check.problems);
        for (answer, right) in answers(&path).unwrap().into_iter().zip(&right) {
            match answer {
                Ok(answer) => assert_eq!(answer.as_ref(), Some(right)),
                // The message names the very row.
                Err(error) => {
                    assert!(
                        matches!(error, DbError::Damaged { .. }) && error.to_string().contains(&id[..12]),
                        "{error}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_lost_or_smuggled_row_is_noticed() {
    for sql in [
        "DELETE FROM verdict WHERE decision = 'keep'",
        "DELETE FROM observation WHERE outcome = 'wrong'",
        "DELETE FROM observation WHERE phase = 'final'",
        "DELETE FROM tally",
        "DROP TRIGGER verdict_is_immutable; UPDATE verdict SET decision = 'demote'; \
         CREATE TRIGGER verdict_is_immutable BEFORE UPDATE ON verdict BEGIN \
         SELECT RAISE(ABORT, 'a stored fact never changes'); END",
    ] {
        let (_folder, path) = place();
        file_of_200_rows(&path);
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let database = match Database::open(&path) {
            Ok(database) => database,
            Err(error) => {
                assert!(matches!(error, DbError::ForeignSchema { .. }), "{error}");
                continue;
            }
        };
        assert!(!database.integrity_check().unwrap().is_ok(), "{sql}");
        for question in 0..QUESTIONS {
            let answer = database.lookup(&key(question), TARGET, GENERATOR);
            assert!(matches!(answer, Err(DbError::Damaged { .. })), "{sql}: {answer:?}");
        }
    }
}

#[test]
fn facts_cannot_be_updated() {
    let (_folder, path) = place();
    file_of_200_rows(&path);
    let raw = Connection::open(&path).unwrap();
    for table in ["workload", "target", "observation", "verdict"] {
        let error = raw.execute(&format!("UPDATE {table} SET id = id"), []).unwrap_err();
        assert!(error.to_string().contains("a stored fact never changes"), "{table}: {error}");
    }
}
