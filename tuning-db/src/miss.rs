//! When nothing is stored for a question: which part of it differed from what is stored.

use std::collections::BTreeSet;
use std::fmt;

use rusqlite::params;

use crate::read::Database;
use crate::{DbError, target_id, workload_id};

/// Most keys that a miss lists.
const LISTED: usize = 5;

/// One field of a key that differs from the nearest stored one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Name of the field: `axes`, `in.a`, `acc`.
    pub field: String,
    /// What was asked for; empty when the stored key has a field more.
    pub asked: String,
    /// What is stored; empty when the key asked for has a field more.
    pub stored: String,
}

/// Why an exact look-up found nothing. `Display` says it in one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Miss {
    /// The file holds no verified final measurement at all.
    Empty,
    /// This very workload and target were tried, but nothing verified and final is stored.
    NotFinished {
        /// Observations stored for it.
        observations: u64,
        /// Those with outcome `ok`.
        ok: u64,
    },
    /// The workload and target are stored for other generators.
    Generator {
        /// The generator asked for.
        asked: String,
        /// Some of those stored.
        stored: Vec<String>,
    },
    /// The workload is stored for other targets.
    Target {
        /// The target asked for.
        asked: String,
        /// Some of those stored.
        stored: Vec<String>,
    },
    /// Other workloads are stored for the target.
    Workload {
        /// Key of the workload nearest in the number of differing fields.
        nearest: String,
        /// Where they differ.
        differences: Vec<Difference>,
    },
    /// Neither the workload nor the target is stored.
    Both {
        /// Some of the targets that are stored.
        targets: Vec<String>,
    },
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Miss::Empty => f.write_str("nothing verified is stored in this database yet; tune first"),
            Miss::NotFinished { observations, ok } => write!(
                f,
                "{observations} candidates were tried for it ({ok} ok), but no final measurement passed; \
                 run the same `tune` again to finish it"
            ),
            Miss::Generator { asked, stored } => {
                write!(f, "no record for generator {asked}; it is stored for {}", stored.join(", "))
            }
            Miss::Target { asked, stored } => {
                write!(f, "no record for target {asked}; this workload is stored for {}", stored.join(" and "))
            }
            Miss::Workload { nearest, differences } => {
                write!(f, "no record for this workload; the nearest stored one differs in ")?;
                for (i, Difference { field, asked, stored }) in differences.iter().enumerate() {
                    let or_none = |text: &str| if text.is_empty() { "nothing".to_owned() } else { text.to_owned() };
                    let comma = if i > 0 { ", " } else { "" };
                    write!(f, "{comma}{field} (asked {}, stored {})", or_none(asked), or_none(stored))?;
                }
                write!(f, ": {nearest}")
            }
            Miss::Both { targets } => {
                write!(f, "no record for this workload, nor for this target; stored are {}", targets.join(" and "))
            }
        }
    }
}

impl Database {
    /// Which part of a question differs from what is stored, for a helpful message after a look-up without answer.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub fn nearest_fields(&self, workload_key: &str, target_key: &str, generator: &str) -> Result<Miss, DbError> {
        let mut questions = self.questions()?;
        let (observations, ok) = self.tried(workload_key, target_key, generator)?;
        if observations > 0 {
            return Ok(Miss::NotFinished { observations, ok });
        }
        questions.retain(|q| {
            (q.workload.as_str(), q.target.as_str(), q.generator.as_str()) != (workload_key, target_key, generator)
        });
        let some = |texts: BTreeSet<&String>| texts.into_iter().take(LISTED).cloned().collect::<Vec<_>>();
        if questions.is_empty() {
            return Ok(Miss::Empty);
        }
        let generators: BTreeSet<_> = questions
            .iter()
            .filter(|q| q.workload == workload_key && q.target == target_key)
            .map(|q| &q.generator)
            .collect();
        if !generators.is_empty() {
            return Ok(Miss::Generator { asked: generator.into(), stored: some(generators) });
        }
        let targets: BTreeSet<_> = questions.iter().filter(|q| q.workload == workload_key).map(|q| &q.target).collect();
        if !targets.is_empty() {
            return Ok(Miss::Target { asked: target_key.into(), stored: some(targets) });
        }
        let nearest = questions
            .iter()
            .filter(|q| q.target == target_key)
            .map(|q| (differences(workload_key, &q.workload), &q.workload))
            .min_by_key(|(differences, key)| (differences.len(), *key));
        Ok(match nearest {
            Some((differences, nearest)) => Miss::Workload { nearest: nearest.clone(), differences },
            None => Miss::Both { targets: some(questions.iter().map(|q| &q.target).collect()) },
        })
    }

    /// How many observations the question has, and how many of them are ok.
    fn tried(&self, workload_key: &str, target_key: &str, generator: &str) -> Result<(u64, u64), DbError> {
        let (workload, target) = (workload_id(workload_key).to_string(), target_id(target_key).to_string());
        let outcomes = self.snapshot()?.all(
            "SELECT outcome FROM observation WHERE workload = ?1 AND target = ?2 AND generator = ?3",
            params![workload, target, generator],
            |row| row.get::<_, String>(0),
        )?;
        let ok = outcomes.iter().filter(|outcome| *outcome == "ok").count();
        let number = |n| u64::try_from(n).expect("invariant: a count of rows fits u64");
        Ok((number(outcomes.len()), number(ok)))
    }
}

/// The fields in which two keys differ, in the order of the key asked for.
fn differences(asked: &str, stored: &str) -> Vec<Difference> {
    let (asked, stored) = (fields(asked), fields(stored));
    let value = |fields: &[(String, String)], name: &str| {
        fields.iter().find(|field| field.0 == name).map(|field| field.1.clone()).unwrap_or_default()
    };
    let names = asked.iter().chain(stored.iter().filter(|s| asked.iter().all(|a| a.0 != s.0))).map(|field| &field.0);
    names
        .map(|name| Difference { field: name.clone(), asked: value(&asked, name), stored: value(&stored, name) })
        .filter(|difference| difference.asked != difference.stored)
        .collect()
}

/// `(name, value)` of each field of a key: the part before `=`, or what its position means.
fn fields(key: &str) -> Vec<(String, String)> {
    let field = |(position, text): (usize, &str)| match (position, text.split_once('=')) {
        (0, _) => ("version".to_owned(), text.to_owned()),
        (1, _) => ("op".to_owned(), text.to_owned()),
        (2, _) => ("axes".to_owned(), text.to_owned()),
        (_, Some((name, value))) => (name.trim().to_owned(), value.to_owned()),
        (position, None) => (format!("field {position}"), text.to_owned()),
    };
    key.split(';').enumerate().map(field).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differing_fields_are_named() {
        let asked = "tw1;contract.madd;m:p512,k:r64;in.a=f32[m,k]@free a4;acc=f32;epi=-";
        let stored = "tw1;contract.madd;m:p256,k:r64;in.a=f32[m,k]@free a4;acc=f32;epi=relu;det=any";
        let names: Vec<String> = differences(asked, stored).into_iter().map(|d| d.field).collect();
        assert_eq!(names, ["axes", "epi", "det"]);
        assert!(differences(asked, asked).is_empty());
    }
}
