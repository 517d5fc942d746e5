//! The schema is frozen: a change shows in the golden file, and no column can hold a binary or source text.

#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod fixture;

use fixture::{place, writer};
use rusqlite::Connection;
use tilewright_tuning_db::SCHEMA_VERSION;

fn fresh() -> (tempfile::TempDir, Connection) {
    let (folder, path) = place();
    writer(&path).close().unwrap();
    (folder, Connection::open(&path).unwrap())
}

fn column<T: rusqlite::types::FromSql>(raw: &Connection, sql: &str) -> Vec<T> {
    raw.prepare(sql).unwrap().query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// `BLESS=1 cargo test -p tilewright-tuning-db --test schema` rewrites the golden file; a change of a released schema
/// needs a new `SCHEMA_VERSION` and a migration.
#[test]
fn the_schema_is_the_golden_one() {
    let (_folder, raw) = fresh();
    let objects: Vec<String> = column(&raw, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid");
    let text = format!("-- schema {SCHEMA_VERSION}\n\n{};\n", objects.join(";\n\n"));
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/schema.sql");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(golden, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(golden).unwrap(), text, "the schema changed; see the note at this test");
}

#[test]
fn no_column_can_hold_a_binary_or_source() {
    let (_folder, raw) = fresh();
    let tables: Vec<String> =
        column(&raw, "SELECT name FROM pragma_table_list WHERE type = 'table' AND schema = 'main'");
    assert!(tables.len() > 12);
    for table in tables.iter().filter(|table| !table.starts_with("sqlite_")) {
        // STRICT: a TEXT column refuses bytes that are not text.
        let strict: Vec<i64> = column(&raw, &format!("SELECT strict FROM pragma_table_list WHERE name = '{table}'"));
        assert_eq!(strict, [1], "{table}");
        let mut columns = raw.prepare(&format!("SELECT name, type FROM pragma_table_info('{table}')")).unwrap();
        let columns = columns.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))).unwrap();
        for (name, kind) in columns.map(Result::unwrap) {
            assert!(["TEXT", "INTEGER", "REAL"].contains(&kind.as_str()), "{table}.{name} is {kind}");
            let words = ["binary", "blob", "ptx", "spirv", "wgsl", "elf", "object", "asm", "kernel", "text", "llvm"];
            assert!(!words.iter().any(|word| name.contains(word)), "{table}.{name}");
            let is_trust = table == "trust" && name == "source"; // where a row came from
            assert!(is_trust || !name.contains("source"), "{table}.{name}");
            assert!(!name.contains("code") || name == "code_hash", "{table}.{name}");
        }
    }
    let error = raw.execute("INSERT INTO forgotten VALUES (x'7f454c46', 'r', 0)", []).unwrap_err();
    assert!(error.to_string().contains("cannot store BLOB value"), "{error}");
}

#[test]
fn look_ups_use_the_indexes() {
    let (_folder, raw) = fresh();
    let plan = |sql: &str| -> String {
        let mut statement = raw.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let lines = statement.query_map([], |row| row.get::<_, String>(3)).unwrap();
        lines.map(Result::unwrap).collect::<Vec<_>>().join("; ")
    };
    let key = "workload = 'w' AND target = 't' AND generator = 'g'";
    let decisive = plan(&format!(
        "SELECT * FROM observation WHERE {key} AND (phase = 'final' OR outcome IN ('wrong', 'timeout', 'crash', 'lost_device'))"
    ));
    assert!(decisive.contains("USING INDEX observation_decisive"), "{decisive}");
    let verdicts = plan(&format!("SELECT * FROM verdict WHERE {key}"));
    assert!(verdicts.contains("USING INDEX verdict_key"), "{verdicts}");
}
