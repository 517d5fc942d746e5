//! Each form of a foreign space: the examples of the documentation, and what is refused.

use search_space::space::ParameterSpace;
use search_space::{Schedule, Value};
use tilewright_datasets::spaces::{self, ForeignSpace};
use tilewright_datasets::{DatasetError, recorded};

use super::{chain, folder};

/// The blocks of `docs/spaces.md` in order, with their languages.
fn examples() -> Vec<(String, String)> {
    let text = include_str!("../../../docs/spaces.md");
    let mut blocks = text.split("\n```").skip(1).step_by(2).map(|block| block.split_once('\n').unwrap());
    let found: Vec<_> = blocks.by_ref().map(|(language, text)| (language.to_owned(), text.to_owned())).collect();
    let languages: Vec<&str> = found.iter().map(|(language, _)| language.as_str()).collect();
    assert_eq!(languages, ["toml", "json", "json", "json", "csv"]);
    found
}

fn read(name: &str, text: &str) -> Result<ForeignSpace, DatasetError> {
    let folder = folder(&[(name, text.as_bytes())]);
    spaces::read(&folder.path().join(name))
}

fn refused(name: &str, text: &str) -> String {
    chain(&read(name, text).unwrap_err())
}

fn has(space: &ParameterSpace, text: &str) -> bool {
    let pairs = text.split(' ').map(|word| word.split_once('=').unwrap());
    let value = |text: &str| text.parse().map_or_else(|_| Value::Name(text.into()), Value::Int);
    let schedule: Schedule = pairs.map(|(name, text)| (name, value(text))).collect();
    space.config(&schedule).is_ok()
}

fn names(space: &ParameterSpace) -> Vec<&str> {
    space.params().iter().map(|param| param.name.as_str()).collect()
}

#[test]
fn the_example_by_hand() {
    let found = read("space.toml", &examples()[0].1).unwrap();
    assert_eq!((found.name.as_str(), found.kernel.as_str()), ("blocked matmul", "blocked matmul"));
    assert_eq!(names(&found.space), ["mc", "kc", "tile", "order"]);
    assert!(found.space.params()[3].structural && !found.space.params()[0].structural);
    let mut count = 0;
    for (mc, kc) in [8, 16, 32, 64].into_iter().flat_map(|mc| [16, 32, 64].map(|kc| (mc, kc))) {
        let tiles = (1..=16).filter(|tile| mc % tile == 0).count();
        count += if mc * kc <= 1024 { tiles * if kc >= 32 { 2 } else { 1 } } else { 0 };
    }
    assert_eq!(found.space.count(), count as u128);
    let texts: Vec<&str> = found.space.constraints().iter().map(|constraint| constraint.text.as_str()).collect();
    assert_eq!(texts, ["mc * kc <= 1024", "mc % tile == 0", "order == 'jc.ic.pc' => kc >= 32"]);
    assert_eq!(found.constants["cache"], 1024.into());
}

#[test]
fn the_examples_of_kernel_tuner() {
    let found = read("convolution.json", &examples()[1].1).unwrap();
    assert_eq!((found.name.as_str(), found.kernel.as_str(), &found.device), ("convolution", "convolution", &None));
    let mut count = 0;
    for (x, y) in [16, 32, 48, 64].into_iter().flat_map(|x| [1, 2, 4, 8].map(|y| (x, y))) {
        count += if (32..=256).contains(&(x * y)) { 2 * if x % 32 == 0 { 1 } else { 2 } } else { 0 };
    }
    assert_eq!(found.space.count(), count);
    assert!(has(&found.space, "block_size_x=48 block_size_y=1 use_padding=1 read_only=0"));
    assert_eq!(found.space.constraints()[0].name, "32 <= block_size_x*block_size_y <= 256");

    // Also when the last brackets are there.
    let open = &examples()[2].1;
    let closed = format!("{}\n}}}}\n", open.trim_end().trim_end_matches(','));
    for text in [open.as_str(), &closed] {
        let found = read("cache.json", text).unwrap();
        assert_eq!((found.kernel.as_str(), found.device.as_deref()), ("vector_add", Some("NVIDIA A100")));
        assert_eq!(found.space.count(), 2);
        assert!(has(&found.space, "block_size_x=512") && !has(&found.space, "block_size_x=256"));
    }
}

#[test]
fn the_example_of_a_recorded_space() {
    let (header, table) = (&examples()[3].1, &examples()[4].1);
    let both = folder(&[("copy.json", header.as_bytes()), ("copy.csv", table.as_bytes())]);
    let found = recorded::read(&both.path().join("copy.json")).unwrap();
    assert_eq!((found.name.as_str(), found.kernel.as_str(), found.device.as_str()), ("copy-T1000", "copy", "T1000"));
    assert_eq!((found.len(), found.judge().optimum_s(), found.judge().within(0.1)), (4, 0.39e-3, 2));

    let listed = spaces::read(&both.path().join("copy.json")).unwrap();
    assert_eq!((listed.space.count(), listed.device.as_deref()), (4, Some("T1000")));
    assert_eq!(listed.space.constraints()[0].text, "32 * vector % tile == 0");
    // Alone, its constraints decide.
    let alone = read("copy.json", header).unwrap();
    assert_eq!(alone.space.count(), 8);
}

#[test]
fn a_constraint_that_is_not_understood_matters_only_without_a_table() {
    let header = examples()[3].1.replace("tile*vector <= 64", "fits(tile)");
    let both = folder(&[("copy.json", header.as_bytes()), ("copy.csv", examples()[4].1.as_bytes())]);
    let found = spaces::read(&both.path().join("copy.json")).unwrap();
    assert_eq!((found.space.count(), found.space.constraints().len()), (4, 1));
    assert_eq!(found.untranslated[0].constraint, "fits(tile)");
    let message = refused("copy.json", &header);
    assert!(message.contains("constraint `fits(tile)`, byte 0: the function `fits` cannot be translated"), "{message}");
}

#[test]
fn packed_files_are_unpacked() {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packer, examples()[1].1.as_bytes()).unwrap();
    let packed = packer.finish().unwrap();
    let whole = folder(&[("a.json.gz", &packed), ("cut.json.gz", &packed[..packed.len() / 2])]);
    assert!(spaces::read(&whole.path().join("a.json.gz")).is_ok());
    let message = chain(&spaces::read(&whole.path().join("cut.json.gz")).unwrap_err());
    assert!(message.contains("cannot be unpacked; it is damaged or cut short"), "{message}");
}

#[test]
fn mistakes_by_hand_are_named() {
    let many = format!("[parameters]\na = {:?}", (0..4097).collect::<Vec<_>>());
    for (text, wanted) in [
        ("[parameters]\n", "it declares no parameter"),
        ("name = 'x'\n", "missing field `parameters`"),
        ("\n[parameters]\na = [1\n", "space.toml:3"),
        ("[parameters]\na = [1]\na = [2]", "space.toml:3: duplicate key"),
        ("[parameter]\na = [1]", "unknown field `parameter`, expected one of"),
        ("[parameter]\na = [1]", "`parameters`, `constants`"),
        ("tile_m,tile_n\n1,2\n", "expected TOML with [parameters], or JSON (docs/spaces.md)"),
        ("[parameters]\na = 3", "`a` is `3`; write a list such as [8, 16] or a range such as { range = [1, 16] }"),
        ("[parameters]\na = { rnage = [1, 2] }", "write a list"),
        ("[parameters]\na = { range = [2, 1] }", "the range of `a` must be [first, last] or [first, last, step]"),
        ("[parameters]\na = { range = [1, 2, 0] }", "the range of `a`"),
        ("[parameters]\na = { range = [1] }", "the range of `a`"),
        ("[parameters]\na = { range = [1.5, 2] }", "the range of `a`"),
        ("[parameters]\na = { range = [0, 9223372036854775807] }", "`a` has more than 4096 values"),
        (&many, "`a` has more than 4096 values"),
        ("[parameters]\na = []", "parameter `a` has no values"),
        ("[parameters]\na = [1, 1.0]", "parameter `a` lists the value `1` twice"),
        ("[parameters]\na = [[1]]", "`a` cannot be `[1]`; values are numbers, texts, true or false"),
        ("structural = ['b']\n[parameters]\na = [1]", "`structural` names `b`, which is no parameter"),
        ("[parameters]\na = [1]\n[constants]\nc = [1]", "`c` cannot be `[1]`"),
        (
            "[parameters]\na = [1]\n[constants]\na = 1",
            "`a` is both a parameter and a constant; drop or rename one of them",
        ),
        ("[parameters]\na = [1]\n[constraints]\nr = 'a ='", "constraint `r`: at byte 2 of `a =`: expected"),
        ("[parameters]\na = [1]\n[constraints]\nr = 'q == 1'", "constraint `r` names `q`, which is no parameter"),
        ("[parameters]\na = [1]\n[constraints]\nr = 'a == 2'", "the first that leaves none is `r`"),
    ] {
        let message = refused("space.toml", text);
        assert!(message.contains(wanted) && message.contains("space.toml"), "{text}: {message}");
    }
}

#[test]
fn ranges_reach_the_ends_of_64_bits() {
    let (least, most) = (i64::MIN, i64::MAX);
    for (range, wanted) in [
        (format!("[{least}, 0, 4611686018427387904]"), vec![least, least / 2, 0]),
        (format!("[{least}, {most}, {most}]"), vec![least, -1, most - 1]),
        (format!("[{}, {most}]", most - 1), vec![most - 1, most]),
        (format!("[{most}, {most}, {most}]"), vec![most]),
    ] {
        let found = read("space.toml", &format!("[parameters]\na = {{ range = {range} }}")).unwrap();
        let wanted: Vec<Value> = wanted.into_iter().map(Value::Int).collect();
        assert_eq!(found.space.params()[0].values, wanted, "{range}");
    }
    let message = refused("space.toml", &format!("[parameters]\na = {{ range = [{least}, {most}] }}"));
    assert!(message.contains("`a` has more than 4096 values"), "{message}");
}

#[test]
fn names_fit_a_line_and_mean_one_thing() {
    let long = "n".repeat(201);
    let name = |toml: &str| refused("space.toml", toml);
    for message in [
        name("[parameters]\n\"a\\nb\" = [1]"),
        name(&format!("[parameters]\n{long} = [1]")),
        name("[parameters]\na = [1]\n[constants]\n\"c\\t\" = 1"),
        name("[parameters]\na = [1]\n[constraints]\n\"r\\u001b\" = 'a == 1'"),
        refused("space.json", r#"{"tune_params": {"a\u0000": [1]}}"#),
    ] {
        assert!(
            message.contains("control characters, or more than 200 characters") && message.len() < 400,
            "{message}"
        );
    }
    assert!(read("space.toml", &format!("[parameters]\n{} = [1]", &long[1..])).is_ok());
    // A constraint without a name is called by its text, on one line.
    let found = read("space.json", r#"{"tune_params": {"a": [1, 2]}, "restrictions": ["(a ==\n\t1)"]}"#).unwrap();
    assert_eq!(found.space.constraints()[0].name, "(a == 1)");
    for message in [
        name("[parameters]\na = [1]\n[constants]\na = 2"),
        refused("space.json", r#"{"tune_params": {"a": [1]}, "constants": {"a": 2}}"#),
    ] {
        assert!(message.contains("`a` is both a parameter and a constant"), "{message}");
    }
}

#[test]
fn long_texts_are_shortened_in_messages() {
    let long = format!("{}a", "a + ".repeat(1000));
    let toml =
        |constraint: &str| refused("space.toml", &format!("[parameters]\na = [1]\n[constraints]\nr = {constraint:?}"));
    let json =
        |text: &str| refused("space.json", &format!(r#"{{"tune_params": {{"a": [1]}}, "restrictions": ["{text}"]}}"#));
    for message in [
        toml(&format!("{long} $")),
        toml(&long),
        json(&format!("{long} $")),
        json(&format!("{long} == 'x'")),
        json(&format!("{long} == 0")),
        json(&format!("{}f(a) == 0", "1 + ".repeat(1000))),
        refused("space.toml", &format!("[parameters]\na = {long:?}")),
    ] {
        assert!(message.contains("...") && message.len() < 500, "{message}");
    }
    // Where the trouble is, not where the text begins.
    assert!(toml(&format!("{long} $")).contains("a + a $`"));
}

#[test]
fn constraints_have_a_limit_together() {
    let lines: String = (0..3000).map(|n| format!("c{n} = \"{} > 0\"\n", vec!["a"; 120].join(" + "))).collect();
    let message = refused("space.toml", &format!("[parameters]\na = [1]\n[constraints]\n{lines}"));
    assert!(message.contains("its constraints have more than 1048576 bytes together"), "{message}");
}

#[test]
fn a_byte_order_mark_is_passed_over() {
    assert!(read("space.json", "\u{feff}{\"tune_params\": {\"a\": [1]}}").is_ok());
    assert!(read("space.toml", "\u{feff}[parameters]\na = [1]").is_ok());
}

#[test]
fn mistakes_in_json_are_named() {
    let cache = |entry: &str| format!(r#"{{"tune_params": {{"a": [1, 2]}}, "cache": {{"1": {entry}}}}}"#);
    for (text, wanted) in [
        ("{", "is not the JSON that was expected"),
        ("{}", "it is none of: a header with"),
        (r#"{"format": "replay-space/2"}"#, "missing field"),
        (r#"{"tune_params": {}}"#, "it declares no parameter"),
        (r#"{"tune_params": {"a": 1}}"#, "invalid type: integer `1`, expected a sequence"),
        (r#"{"tune_params": {"a": [[1]]}}"#, "`a` cannot be `null, a list or an object`"),
        (r#"{"tune_params": {"a": [1]}, "restrictions": ["a == "]}"#, "constraint `a == `, byte 5: expected"),
        (r#"{"tune_params": {"a": [1]}, "restrictions": ["a == 2"]}"#, "the first that leaves none is `a == 2`"),
        (&cache("{}"), "entry `1` of the cache has no value of `a` that `tune_params` lists"),
        (&cache(r#"{"a": 3}"#), "entry `1` of the cache has no value of `a`"),
        (&cache(r#"{"a": [1]}"#), "entry `1` of the cache has no value of `a`"),
    ] {
        let message = refused("space.json", text);
        assert!(message.contains(wanted), "{text}: {message}");
    }
    let header = &examples()[3].1;
    for (from, to, wanted) in [
        ("replay-space/1", "replay-space/2", "its format is `replay-space/2`; this build reads `replay-space/1`"),
        ("\"ms\"", "\"us\"", "its unit of time is `us`; convert the times to ms"),
        ("[8, 16, 32]", "[8, null]", "`tile` cannot be `null`"),
        ("32}", "[32]}", "`WARP` cannot be `[32]`"),
        ("WARP\": 32}", "tile\": 32}", "`tile` is both a parameter and a constant"),
        ("\"constants\"", "\"constraint_language\": \"basic\", \"constants\"", "its constraints are in `basic`"),
    ] {
        let message = refused("space.json", &header.replace(from, to));
        assert!(message.contains(wanted), "{message}");
    }
}

#[test]
fn large_headers_and_bombs_are_refused() {
    let padded = examples()[3].1.replace("Example T1000", &"x".repeat(5 << 20));
    let message = refused("space.json", &padded);
    assert!(message.contains("more than the 4194304 that are read"), "{message}");
    let message = refused("space.toml", &format!("[parameters]\na = [{}1]", "1,".repeat(2 << 20)));
    assert!(message.contains("more than the 4194304 that are read"), "{message}");
    let bomb = |limit: u64| {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::copy(&mut std::io::Read::take(std::io::repeat(b' '), limit + 1), &mut packer).unwrap();
        packer.finish().unwrap()
    };
    let header = examples()[3].1.clone();
    let files = folder(&[
        ("bomb.json.gz", &bomb(spaces::MAX_FILE_BYTES)),
        ("copy.json", header.as_bytes()),
        ("copy.csv.gz", &bomb(recorded::MAX_TABLE_BYTES)),
    ]);
    let message = chain(&spaces::read(&files.path().join("bomb.json.gz")).unwrap_err());
    assert!(message.contains("unpacks to more than the 67108864 bytes that are read"), "{message}");
    let message = chain(&recorded::read(&files.path().join("copy.json")).unwrap_err());
    assert!(message.contains("copy.csv.gz\" unpacks to more than the 134217728 bytes that are read"), "{message}");
}
