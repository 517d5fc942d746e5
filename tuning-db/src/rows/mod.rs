//! The rows people work with: two immutable facts ([`Observation`], [`Verdict`]) and the local rows of a session.
//!
//! A fact names its workload and target by key; the two remaining immutable row kinds, `workload` and `target`, hold
//! exactly those keys and are written together with the first fact that needs them.

mod local;
mod observation;
mod verdict;

pub use local::{Candidate, Event, Peak, Session};
pub use observation::{Observation, Phase};
pub use verdict::{Decision, Verdict};

pub(crate) use local::event_hash;
pub(crate) use observation::{OBSERVATION_COLUMNS, StoredObservation};
pub(crate) use verdict::{StoredVerdict, VERDICT_COLUMNS};

use crate::DbError;

/// Longest accepted text field in bytes: a schedule or an environment has hundreds; a binary has more.
const LONGEST_TEXT: usize = 64 << 10;

/// Refuses text that is empty, overlong or not printable on one line.
fn check_text(row: &'static str, field: &'static str, text: &str) -> Result<(), DbError> {
    if text.is_empty() {
        return Err(DbError::invalid(row, format!("{field} is empty")));
    }
    if text.len() > LONGEST_TEXT {
        return Err(DbError::invalid(row, format!("{field} has {} bytes, the most is {LONGEST_TEXT}", text.len())));
    }
    if text.chars().any(char::is_control) {
        return Err(DbError::invalid(row, format!("{field} holds a control character")));
    }
    Ok(())
}

/// An unsigned number as SQLite stores it.
fn integer(row: &'static str, field: &'static str, value: u64) -> Result<i64, DbError> {
    i64::try_from(value).map_err(|_| DbError::invalid(row, format!("{field} is {value}, the most is {}", i64::MAX)))
}
