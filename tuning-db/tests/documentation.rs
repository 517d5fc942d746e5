//! `docs/database.md` is true: its queries run, its test vectors hash as it says.

#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod fixture;

use fixture::{TARGET, WORKLOAD, failed, final_of, place, session, verdict, writer};
use rusqlite::Connection;
use search_space::Outcome;
use tilewright_tuning_db::{Batch, Decision, Observation, Verdict, target_id, workload_id};

fn document() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/database.md")).unwrap()
}

/// The fenced blocks in this language.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    document.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn the_queries_run_and_find_something() {
    let (_folder, path) = place();
    let db = writer(&path);
    let batch = Batch::new()
        .session(session("s"))
        .observation(final_of(1, &[200.0, 201.0, 199.0], 0))
        .observation(final_of(6, &[100.0, 101.0, 99.0], 1))
        .observation(failed(8, Outcome::Crash, 2))
        .verdict(verdict(6, Decision::Keep, 2.0, 3));
    db.submit(batch).unwrap().wait().unwrap();
    db.close().unwrap();
    let raw = Connection::open(&path).unwrap();
    let queries = blocks(&document(), "sql");
    assert!(queries.len() >= 3);
    for query in queries {
        let mut statement = raw.prepare(&query).unwrap_or_else(|error| panic!("{error}\n{query}"));
        let rows = statement.query([]).unwrap().mapped(|_| Ok(())).map(Result::unwrap).count();
        assert!(rows > 0, "nothing found by\n{query}");
    }
}

#[test]
fn the_views_in_the_document_exist() {
    let (_folder, path) = place();
    writer(&path).close().unwrap();
    let raw = Connection::open(&path).unwrap();
    let mut names = raw.prepare("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')").unwrap();
    let names: Vec<String> = names.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let document = document();
    for name in &names {
        assert!(document.contains(&format!("`{name}`")), "docs/database.md does not speak of {name}");
    }
}

/// Each `canonical` block is followed by a line with its id.
#[test]
fn the_test_vectors_hash_as_written() {
    let document = document();
    let vectors: Vec<(String, String)> = document
        .split("```canonical\n")
        .skip(1)
        .map(|rest| {
            let (bytes, after) = rest.split_once("```\n").unwrap();
            (bytes.to_owned(), after.trim_start().trim_start_matches('`').chars().take(64).collect())
        })
        .collect();
    let ids: Vec<&str> = vectors.iter().map(|vector| vector.1.as_str()).collect();
    for (bytes, id) in &vectors {
        assert_eq!(blake3::hash(bytes.as_bytes()).to_hex().as_str(), id, "{bytes}");
    }
    // The same rows through the library.
    let observation = Observation { at_least_ns: None, ..final_of(6, &[100.0, 99.5], 1) };
    let verdict = Verdict { ratio: 1.5, ratio_lo: 1.25, ratio_hi: 1.75, ..verdict(6, Decision::Keep, 1.5, 3) };
    let library = [
        workload_id(WORKLOAD).to_string(),
        target_id(TARGET).to_string(),
        observation.id().unwrap().to_string(),
        verdict.id().unwrap().to_string(),
    ];
    assert_eq!(ids, library);
}
