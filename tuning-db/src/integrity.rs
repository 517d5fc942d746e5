//! Checking a whole file: SQLite's own structures, the hash of every fact and event, and that no row is lost.

use std::collections::BTreeMap;

use rusqlite::params;

use crate::read::{Database, lossy};
use crate::rows::{OBSERVATION_COLUMNS, StoredObservation, StoredVerdict, VERDICT_COLUMNS};
use crate::{DbError, Id, target_id, workload_id};

/// The result of a full check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Integrity {
    /// Facts whose hash was checked.
    pub rows_checked: u64,
    /// What is wrong, one line each; empty when all is well.
    pub problems: Vec<String>,
}

impl Integrity {
    /// Whether nothing is wrong.
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Rows and digest of one question.
type Tally = (i64, Id);

impl Database {
    /// Checks everything. Reads the whole file.
    ///
    /// # Errors
    /// When the file is too damaged for the check to go on. What a check can say is in [`Integrity::problems`].
    pub fn integrity_check(&self) -> Result<Integrity, DbError> {
        let mut found = Integrity::default();
        {
            let snapshot = self.snapshot()?;
            let lines = snapshot.all("PRAGMA integrity_check", params![], |row| Ok(lossy(row, 0)))?;
            found.problems.extend(lines.into_iter().filter(|line| line != "ok").map(|line| format!("SQLite: {line}")));
            for line in snapshot.all("PRAGMA foreign_key_check", params![], |row| Ok(lossy(row, 0)))? {
                found.problems.push(format!("a row of {line} names a workload, target or session that is not stored"));
            }

            for (table, sql, id_of) in [
                ("workload", "SELECT id, key FROM workload", workload_id as fn(&str) -> Id),
                ("target", "SELECT id, key FROM target", target_id),
            ] {
                let rows = snapshot.all(sql, params![], |row| Ok((lossy(row, 0), id_of(&lossy(row, 1)))))?;
                for (claimed, id) in rows {
                    found.row(table, &claimed, Some(id));
                }
            }

            let mut tallies: BTreeMap<[String; 3], Tally> = BTreeMap::new();
            let mut count = |key: [String; 3], id: Id| {
                let tally = tallies.entry(key).or_insert((0, Id::ZERO));
                *tally = (tally.0 + 1, tally.1.toggled(id));
            };
            let untrusted = snapshot
                .all("SELECT subject FROM trust WHERE accepted = 0", params![], |row| row.get::<_, String>(0))?;
            let sql = format!("SELECT {OBSERVATION_COLUMNS} FROM observation");
            snapshot.all(&sql, params![], |row| {
                let claimed = lossy(row, 0);
                let stored = StoredObservation::read(row).ok();
                let id = stored.as_ref().map(StoredObservation::id);
                if found.row("observation", &claimed, id)
                    && let (Some(stored), Some(id)) = (stored.filter(StoredObservation::decides), id)
                    && !untrusted.contains(&claimed)
                {
                    count([stored.workload, stored.target, stored.generator], id);
                }
                Ok(())
            })?;
            let sql = format!("SELECT {VERDICT_COLUMNS} FROM verdict");
            snapshot.all(&sql, params![], |row| {
                let claimed = lossy(row, 0);
                let stored = StoredVerdict::read(row).ok();
                let id = stored.as_ref().map(StoredVerdict::id);
                if found.row("verdict", &claimed, id)
                    && let (Some(stored), Some(id)) = (stored, id)
                    && !untrusted.contains(&claimed)
                {
                    count([stored.workload, stored.target, stored.generator], id);
                }
                Ok(())
            })?;

            let stored =
                snapshot.all("SELECT workload, target, generator, rows, digest FROM tally", params![], |row| {
                    let digest = lossy(row, 4).parse::<Id>().ok();
                    Ok(([lossy(row, 0), lossy(row, 1), lossy(row, 2)], row.get::<_, i64>(3).ok().zip(digest)))
                })?;
            for (key, tally) in stored {
                if tally.is_none() || tallies.remove(&key) != tally {
                    found
                        .problems
                        .push(format!("rows of workload {:.12} on target {:.12} are lost or altered", key[0], key[1]));
                }
            }
            for key in tallies.into_keys() {
                found.problems.push(format!("the tally of workload {:.12} on target {:.12} is lost", key[0], key[1]));
            }
        }
        for session in self.session_ids()? {
            if let Err(error @ DbError::Damaged { .. }) = self.events(&session) {
                found.problems.push(error.to_string());
            }
        }
        Ok(found)
    }

    fn session_ids(&self) -> Result<Vec<String>, DbError> {
        self.snapshot()?.all("SELECT DISTINCT session FROM event", params![], |row| row.get(0))
    }
}

impl Integrity {
    /// Notes one row; says whether its hash is right.
    fn row(&mut self, table: &str, claimed: &str, id: Option<Id>) -> bool {
        self.rows_checked += 1;
        let intact = id.is_some() && claimed.parse().ok() == id;
        if !intact {
            self.problems.push(format!("{table} {:.12} is altered", claimed.escape_default().to_string()));
        }
        intact
    }
}
