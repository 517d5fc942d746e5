//! Recorded spaces: a recording survives writing and reading, and each fault of a table is named with its line.

use std::time::Duration;

use search_space::space::SpaceBuilder;
use search_space::{Outcome, Recorded, RecordedSpace};
use tilewright_datasets::recorded;

use super::{chain, folder};

const HEADER: &str = r#"{"format": "replay-space/1", "space": "s", "kernel": "k", "device": "d",
    "parameters": [{"name": "tile", "values": [8, 16]}, {"name": "order", "values": ["ab", "b,a"]}],
    "n_configs": 3, "n_ok": 2}"#;

const TABLE: &str = "\
order,tile,status,time_ms,compile_ms,bench_ms,note
ab,8,ok,0.5,10,2.5,x
\"b,a\",8.0,ok,0.25,,1,
ab,16,runtime_error,,7,,
";

fn read(header: &str, table: &str) -> Result<RecordedSpace, String> {
    let both = folder(&[("s.json", header.as_bytes()), ("s.csv", table.as_bytes())]);
    recorded::read(&both.path().join("s.json")).map_err(|error| chain(&error))
}

#[test]
fn columns_are_found_by_name_and_costs_add_up() {
    let found = read(HEADER, TABLE).unwrap();
    let rows: Vec<(String, Recorded)> =
        found.rows().map(|(config, row)| (found.space().schedule(&config).to_string(), *row)).collect();
    let row = |text: &str| rows.iter().find(|(schedule, _)| schedule == text).unwrap().1;
    assert_eq!(rows.len(), 3);
    let micros = Duration::from_micros;
    assert_eq!(row("order=ab tile=8"), Recorded { outcome: Outcome::Ok, seconds: Some(0.5e-3), cost: micros(12_500) });
    assert_eq!(row("order=b,a tile=8"), Recorded { outcome: Outcome::Ok, seconds: Some(0.25e-3), cost: micros(1_000) });
    assert_eq!(row("order=ab tile=16"), Recorded { outcome: Outcome::Crash, seconds: None, cost: micros(7_000) });
}

#[test]
fn each_fault_of_a_table_is_named_with_its_line() {
    for (from, to, wanted) in [
        ("order,tile", "order,tiles", "s.csv:1: the table has no column `tile`"),
        ("status", "state", "s.csv:1: the table has no column `status`"),
        ("time_ms", "time", "s.csv:1: the table has no column `time_ms`"),
        ("note", "tile", "s.csv:1: column `tile` is there twice"),
        ("ab,16,", "ab,32,", "s.csv:4: `32` is no value of `tile`; add it to the header, or correct the line"),
        ("8.0", "", "s.csv:3: `` is no value of `tile`"),
        ("runtime_error", "broken", "s.csv:4: status `broken` is unknown; use ok, compile_error"),
        ("0.25", "fast", "s.csv:3: time_ms `fast` is no number of milliseconds"),
        ("0.25", "-0.25", "s.csv:3: time_ms `-0.25` is no number"),
        ("0.25", "inf", "s.csv:3: time_ms `inf` is no number"),
        ("0.25", "0", "s.csv:3: status ok needs a time_ms above 0"),
        ("0.25", "", "s.csv:3: status ok needs a time_ms above 0"),
        ("runtime_error,", "runtime_error,3", "s.csv:4: status runtime_error has a time_ms; only ok has one"),
        (",7,,", ",nan,,", "s.csv:4: compile_ms `nan` is no number of milliseconds"),
        (",1,\n", ",1e300,\n", "s.csv:3: bench_ms `1"),
        (",7,,\n", ",7,,\nab,8,ok,1,,,\n", "s.csv:5: the configuration is that of line 2; merge the two lines"),
        (",7,,\n", ",7,\n", "s.csv\" is not the CSV that was expected: CSV error: record 3 (line: 4"),
        ("\nab,16,runtime_error,,7,,", "", "s.csv\" has 2 rows, but its header says 3; it was cut short"),
        ("ab,8,ok,0.5", "ab,8,error,", "s.csv\" has 1 rows that are ok, but its header says 2"),
    ] {
        assert!(TABLE.contains(from), "{from}");
        let message = read(HEADER, &TABLE.replacen(from, to, 1)).unwrap_err();
        assert!(message.contains(wanted), "{from:?} to {to:?}: {message}");
    }
    let none = TABLE.replace("ok,0.5", "error,").replace("ok,0.25", "error,");
    let message = read(&HEADER.replace("\"n_ok\": 2", "\"n_ok\": 0"), &none).unwrap_err();
    assert!(message.contains("cannot be replayed: none of the 3 recorded configurations is ok"), "{message}");
    let message = read(&HEADER.replace("3, \"n_ok\": 2", "0"), TABLE.lines().next().unwrap()).unwrap_err();
    assert!(message.contains("the table of the space has no rows"), "{message}");
}

#[test]
fn a_table_that_is_not_there_or_no_text_is_named() {
    let alone = folder(&[("s.json", HEADER.as_bytes())]);
    let message = chain(&recorded::read(&alone.path().join("s.json")).unwrap_err());
    assert!(message.contains("there is neither s.csv.gz nor s.csv; put the table there"), "{message}");
    let binary = folder(&[("s.json", HEADER.as_bytes()), ("s.csv.gz", b"\x1f\x8b\x08garbage")]);
    let message = chain(&recorded::read(&binary.path().join("s.json")).unwrap_err());
    assert!(message.contains("s.csv.gz\" cannot be unpacked"), "{message}");
    assert!(read(HEADER, "tile,order\n\u{0}").is_err());
    assert!(read("{", TABLE).unwrap_err().contains("is not the JSON that was expected"));
}

#[test]
fn a_million_rows_are_the_limit() {
    // Repeats, but they are looked for only after the whole table was read.
    let table = format!("order,tile,status,time_ms\n{}", "ab,8,ok,1\n".repeat(1_000_001));
    let message = read(HEADER, &table).unwrap_err();
    assert!(message.contains("s.csv:1000002: the table has more than 1000000 rows; keep a part of it"), "{message}");
}

#[test]
fn a_recording_is_read_as_it_was_written() {
    let mut builder = SpaceBuilder::new();
    builder
        .param("mr", [1, 3, 6])
        .values("pad", vec!["-".into(), 4.into()])
        .names("name", &["a,b", "it's"])
        .require("no padding alone", "pad == 4 => mr > 1")
        .require("whole", "mr * 2 >= 2");
    let space = builder.build().unwrap();
    let outcomes = Outcome::ALL;
    let rows = (0..space.count()).map(|rank| {
        let at = usize::try_from(rank).unwrap();
        let outcome = outcomes[at % outcomes.len()];
        let seconds = (outcome == Outcome::Ok).then(|| 1.0 / (3.0 + at as f64));
        (
            space.unrank(rank).unwrap(),
            Recorded { outcome, seconds, cost: Duration::from_nanos(1_234_567) * u32::try_from(rank).unwrap() },
        )
    });
    let rows = rows.collect();
    let written = RecordedSpace::new("mine", "matmul", "cpu", space, rows).unwrap();

    let place = folder(&[]);
    let path = place.path().join("mine.json");
    recorded::write(&path, &written).unwrap();
    let bytes = |name: &str| std::fs::read(place.path().join(name)).unwrap();
    let first = (bytes("mine.json"), bytes("mine.csv.gz"));
    let found = recorded::read(&path).unwrap();
    assert_eq!((&found.name, &found.kernel, &found.device), (&written.name, &written.kernel, &written.device));
    let texts = |recorded: &RecordedSpace| -> Vec<(String, String)> {
        let constraints = recorded.space().constraints().iter();
        constraints.map(|constraint| (constraint.name.clone(), constraint.text.clone())).collect()
    };
    assert_eq!(texts(&found), texts(&written));
    assert_eq!(found.len(), written.len());
    for (config, row) in written.rows() {
        let same = found.space().config(&written.space().schedule(&config)).unwrap();
        let read = *found.judge().result(&same).unwrap();
        let close = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => (a / b - 1.0).abs() < 1e-15,
            (a, b) => a == b,
        };
        assert!(close(read.seconds, row.seconds), "{read:?} {row:?}");
        assert_eq!((read.outcome, read.cost), (row.outcome, row.cost));
    }
    // Equal recordings are equal files.
    recorded::write(&path, &found).unwrap();
    assert_eq!(first.1, bytes("mine.csv.gz"));
    recorded::write(&path, &written).unwrap();
    assert_eq!(first, (bytes("mine.json"), bytes("mine.csv.gz")));
}
