//! The SQLite tuning database: immutable facts, views, look-up; links no LLVM, driver or parser of models.
//!
//! A [`Writer`] stores what a tuner found; a [`Database`] answers which [`Schedule`](search_space::Schedule) to use.
//! The file can be read with the plain `sqlite3` shell: `docs/database.md` has the schema and the promises. It holds
//! data only, never a binary and never source text. The caller has the clock: all times are parameters.
//!
//! ```
//! use std::collections::BTreeMap;
//! use search_space::{Outcome, Schedule};
//! use tilewright_tuning_db::{Database, DbError, Observation, Phase, Writer, WriterOptions};
//!
//! # let folder = tempfile::tempdir().expect("a folder for the example");
//! # let path = folder.path().join("night.tune");
//! let writer = Writer::open(&path, WriterOptions::default())?;
//! let ticket = writer.record(Observation {
//!     workload: "tw1;...".into(),
//!     target: "tt1;cpu;...".into(),
//!     generator: "tilewright/1".into(),
//!     schedule: [("mr", 6.into()), ("nr", 16.into())].into_iter().collect::<Schedule>(),
//!     outcome: Outcome::Ok,
//!     phase: Phase::Final,
//!     samples_ns: vec![812.5, 810.0, 815.25],
//!     at_least_ns: None,
//!     environment: BTreeMap::from([("governor".into(), "performance".into())]),
//!     program_hash: None,
//!     code_hash: None,
//!     input: "normal(0,1)".into(),
//!     run: "2026-11-30-a".into(),
//!     sequence: 0,
//!     measured_at: 1_796_000_000,
//! })?;
//! ticket.wait()?; // now it is on the disk
//! writer.close()?;
//!
//! let answer = Database::open(&path)?.lookup("tw1;...", "tt1;cpu;...", "tilewright/1")?.expect("it was stored");
//! assert_eq!(answer.schedule.int("mr"), Some(6));
//! assert_eq!(answer.time.ns, 812.5);
//! # Ok::<(), DbError>(())
//! ```

#![forbid(unsafe_code)]

mod canonical;
mod commit;
mod error;
mod estimate;
mod filesystem;
mod integrity;
mod lock;
mod lookup;
mod miss;
mod open;
mod read;
mod rows;
mod writer;

pub use canonical::{Id, schedule_json, target_id, workload_id};
pub use error::DbError;
pub use estimate::Estimate;
pub use integrity::Integrity;
pub use lookup::{Answer, Provenance, Reason, Speedup};
pub use miss::{Difference, Miss};
pub use open::{APPLICATION_ID, SCHEMA, SCHEMA_VERSION};
pub use read::{Database, Info, Question, Rows};
pub use rows::{Candidate, Decision, Event, Observation, Peak, Phase, Session, Verdict};
pub use writer::{Batch, OnSaved, Ticket, Writer, WriterOptions};

pub(crate) use error::id_text;
