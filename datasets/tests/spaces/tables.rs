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
    assert_eq!(
        row("order=ab tile=8"),
        Recorded { outcome: Outcome::Ok, seconds: Some(0.5e-3), at_least_seconds: None, cost: micros(12_500) }
    );
    assert_eq!(
        row("order=b,a tile=8"),
        Recorded { outcome: Outcome::Ok, seconds: Some(0.25e-3), at_least_seconds: None, cost: micros(1_000) }
    );
    assert_eq!(
        row("order=ab tile=16"),
        Recorded { outcome: Outcome::Crash, seconds: None, at_least_seconds: None, cost: micros(7_000) }
    );
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
    assert!(message.contains("cannot be replayed: none of the 3 recorded configurations has a time"), "{message}");
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
fn a_row_that_was_cut_off_has_a_bound_in_a_column_of_its_own() {
    let table = |row: &str| format!("order,tile,status,time_ms,at_least_ms\nab,8,ok,0.5,\nab,16,{row}\n");
    let header = HEADER.replace("\"n_configs\": 3, \"n_ok\": 2", "\"n_configs\": 2, \"n_ok\": 1");
    let found = read(&header, &table("cut_off,,2.5")).unwrap();
    let row = found.rows().find(|(_, row)| row.seconds.is_none()).unwrap().1;
    assert_eq!((row.outcome, row.at_least_seconds), (Outcome::Ok, Some(2.5e-3)));
    for (row, wanted) in [
        ("cut_off,2.5,2.5", "s.csv:3: status cut_off has a time_ms; only ok has one"),
        ("cut_off,,", "s.csv:3: status cut_off needs an at_least_ms above 0"),
        ("cut_off,,0", "s.csv:3: status cut_off needs an at_least_ms above 0"),
        ("cut_off,,x", "s.csv:3: at_least_ms `x` is no number"),
        ("ok,2,2.5", "s.csv:3: status ok has an at_least_ms; only cut_off has one"),
        ("timeout,,2.5", "s.csv:3: status timeout has an at_least_ms; only cut_off has one"),
    ] {
        let message = read(&header, &table(row)).unwrap_err();
        assert!(message.contains(wanted), "{row}: {message}");
    }
    let message = read(&header, "order,tile,status,time_ms\nab,8,ok,0.5\nab,16,cut_off,\n").unwrap_err();
    assert!(message.contains("status cut_off needs an at_least_ms above 0"), "{message}");
}

/// A recording of `kernel`, whose time is `seconds`.
fn small(kernel: &str, seconds: f64) -> RecordedSpace {
    let space = SpaceBuilder::new().param("a", [1]).build().unwrap();
    let row = Recorded { outcome: Outcome::Ok, seconds: Some(seconds), at_least_seconds: None, cost: Duration::ZERO };
    RecordedSpace::new("small", kernel, "cpu", space, vec![(vec![0].into(), row)]).unwrap()
}

#[test]
fn only_an_older_recording_of_the_same_is_replaced() {
    let place = folder(&[]);
    let path = place.path().join("mine.json");
    recorded::write(&path, &small("matmul", 1.0)).unwrap();
    recorded::write(&path, &small("matmul", 2.0)).unwrap();
    assert_eq!(recorded::read(&path).unwrap().judge().optimum_s(), 2.0);
    let names = || {
        let mut names: Vec<_> = std::fs::read_dir(place.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["mine.csv.gz", "mine.json"]);
    let refused = |recorded: &RecordedSpace| chain(&recorded::write(&path, recorded).unwrap_err());
    let message = refused(&small("gemv", 3.0));
    assert!(
        message.contains("mine.json\" is a recording of matmul on cpu; give the new one another name"),
        "{message}"
    );
    let mut sized = small("matmul", 3.0);
    sized.problem = Some("[8]".into());
    assert!(refused(&sized).contains("is a recording of matmul on cpu"));
    assert_eq!(recorded::read(&path).unwrap().judge().optimum_s(), 2.0);

    // What is no recording stays, too, and so does a table that would lie beside the new one.
    let own = small("matmul", 4.0);
    std::fs::write(place.path().join("mine.csv"), "a\n1\n").unwrap();
    assert!(refused(&own).contains("mine.csv\" is in the way of a recording"));
    std::fs::remove_file(place.path().join("mine.csv")).unwrap();
    for text in ["", "{}", "my notes"] {
        std::fs::write(&path, text).unwrap();
        assert!(refused(&own).contains("mine.json\" is in the way of a recording"), "{text:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
    std::fs::remove_file(&path).unwrap();
    assert!(refused(&own).contains("mine.csv.gz\" is in the way of a recording"));
}

#[test]
fn a_recording_that_cannot_be_written_leaves_the_older_one() {
    let place = folder(&[]);
    let path = place.path().join("mine.json");
    recorded::write(&path, &small("matmul", 1.0)).unwrap();
    let header = std::fs::read(&path).unwrap();
    // A folder that is not empty cannot be replaced by the table.
    let table = place.path().join("mine.csv.gz");
    std::fs::remove_file(&table).unwrap();
    std::fs::create_dir_all(table.join("inner")).unwrap();
    let message = chain(&recorded::write(&path, &small("matmul", 2.0)).unwrap_err());
    assert!(message.contains("cannot write") && message.contains("mine.csv.gz"), "{message}");
    assert_eq!(std::fs::read(&path).unwrap(), header);
    // Nothing half-written is left.
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 2);
}

#[test]
fn of_two_tables_none_is_chosen() {
    let both = folder(&[("s.json", HEADER.as_bytes()), ("s.csv", TABLE.as_bytes()), ("s.csv.gz", TABLE.as_bytes())]);
    let path = both.path().join("s.json");
    for message in
        [chain(&recorded::read(&path).unwrap_err()), chain(&tilewright_datasets::spaces::read(&path).unwrap_err())]
    {
        assert!(
            message.contains("there are both s.csv.gz and s.csv; remove the one that is not its table"),
            "{message}"
        );
    }
    std::fs::remove_file(both.path().join("s.csv")).unwrap();
    assert!(recorded::read(&path).is_ok());
}

#[test]
fn rows_that_break_a_constraint_are_counted() {
    let with =
        |constraints: &str| read(&HEADER.replace("\"n_configs\"", &format!("{constraints}, \"n_configs\"")), TABLE);
    assert_eq!(recorded::contradictions(&read(HEADER, TABLE).unwrap()), 0);
    assert_eq!(recorded::contradictions(&with("\"constraints\": [\"tile <= 16\"]").unwrap()), 0);
    // A row that breaks two constraints is one row.
    let found = with("\"constraints\": [\"tile <= 8\", \"tile <= 4 or tile == 8\", \"fits(tile)\"]").unwrap();
    assert_eq!((recorded::contradictions(&found), found.len()), (1, 3));
}

#[test]
fn files_without_measurements_are_named_for_what_they_are() {
    for (name, text, wanted) in [
        ("a.toml", "[parameters]\na = [1]\n", "a.toml\" declares a space, but has no measurements"),
        (
            "a.json",
            r#"{"tune_params": {"a": [1]}}"#,
            "is Kernel Tuner's, of which the space is read, but no measurements",
        ),
        ("a.json", r#"{"tune_params": {"a": [1]}, "cache": {"1": {"a": 1, "time": 2.0},"#, "is Kernel Tuner's"),
        ("a.json", "[]", "a.json\" is no recorded space; a recorded space is a header with \"format\""),
        ("a.json", "{}", "is no recorded space"),
        ("a.csv", "a,status,time_ms\n1,ok,2\n", "is no recorded space"),
    ] {
        let files = folder(&[(name, text.as_bytes())]);
        let message = chain(&recorded::read(&files.path().join(name)).unwrap_err());
        assert!(message.contains(wanted), "{text}: {message}");
    }
    // A byte order mark changes nothing.
    let marked = format!("\u{feff}{HEADER}");
    assert_eq!(read(&marked, TABLE).unwrap().len(), 3);
    let alone = folder(&[("s.json", marked.as_bytes())]);
    assert_eq!(tilewright_datasets::spaces::read(&alone.path().join("s.json")).unwrap().space.count(), 4);
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
        let number = (outcome == Outcome::Ok).then(|| 1.0 / (3.0 + at as f64));
        // Every other one that worked was cut off.
        let (seconds, at_least_seconds) = if at.is_multiple_of(2) { (number, None) } else { (None, number) };
        let cost = Duration::from_nanos(1_234_567) * u32::try_from(rank).unwrap();
        (space.unrank(rank).unwrap(), Recorded { outcome, seconds, at_least_seconds, cost })
    });
    let rows: Vec<_> = rows.collect();
    assert!(rows.iter().any(|(_, row)| row.at_least_seconds.is_some()));
    let mut written = RecordedSpace::new("mine", "matmul", "cpu", space, rows).unwrap();
    written.problem = Some("[512,512]".into());

    let place = folder(&[]);
    let path = place.path().join("mine.json");
    recorded::write(&path, &written).unwrap();
    let bytes = |name: &str| std::fs::read(place.path().join(name)).unwrap();
    let first = (bytes("mine.json"), bytes("mine.csv.gz"));
    let found = recorded::read(&path).unwrap();
    assert_eq!((&found.name, &found.kernel, &found.device), (&written.name, &written.kernel, &written.device));
    assert_eq!(found.problem, written.problem);
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
        assert!(close(read.at_least_seconds, row.at_least_seconds), "{read:?} {row:?}");
        assert_eq!((read.outcome, read.cost), (row.outcome, row.cost));
    }
    // Equal recordings are equal files.
    recorded::write(&path, &found).unwrap();
    assert_eq!(first.1, bytes("mine.csv.gz"));
    recorded::write(&path, &written).unwrap();
    assert_eq!(first, (bytes("mine.json"), bytes("mine.csv.gz")));
}
