//! What a reader may count on in every source file: a first line that says what it is for, a name that says it too, and
//! nothing left unfinished or switched off.

use std::path::{Path, PathBuf};

/// File and folder names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &["utils", "util", "common", "misc", "manager", "helpers"];

/// Every fault of one file: `path` relative to the repository, `text` its contents.
fn faults(path: &Path, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut fault = |what: &str| faults.push(format!("{}: {what}", path.display()));
    if !text.starts_with("//!") {
        fault("does not begin with `//!`");
    }
    for part in path.with_extension("").components() {
        let name = part.as_os_str().to_string_lossy();
        if EMPTY_NAMES.contains(&name.as_ref()) {
            fault(&format!("`{name}` does not say what is inside"));
        }
    }
    // Assembled here, so that this file does not find itself.
    for marker in [concat!("#[", "ignore"), concat!("todo", "!("), concat!("unimplemented", "!(")] {
        for (number, _) in text.lines().enumerate().filter(|(_, line)| line.contains(marker)) {
            fault(&format!("line {}: `{marker}`", number + 1));
        }
    }
    faults
}

/// The Rust files below `folder`; build outputs and hidden folders are not entered.
fn sources(folder: &Path, into: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in folder.read_dir()? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                sources(&path, into)?;
            }
        } else if name.ends_with(".rs") {
            into.push(path);
        }
    }
    Ok(())
}

#[test]
fn every_source_file_says_what_it_is_for() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    sources(root, &mut files).unwrap();
    assert!(files.iter().any(|file| file.ends_with("tests/tests/hygiene.rs")), "the sources were found");
    let found: Vec<String> = files
        .iter()
        .flat_map(|file| faults(file.strip_prefix(root).unwrap(), &std::fs::read_to_string(file).unwrap()))
        .collect();
    assert_eq!(found, Vec::<String>::new());
}

/// Seeded faults, one of each kind.
#[test]
fn faults_are_found() {
    let good = Path::new("measure/src/worker/frame.rs");
    assert_eq!(faults(good, "//! Frames.\n"), Vec::<String>::new());
    assert_eq!(faults(good, "use std::fs;\n").len(), 1);
    assert_eq!(faults(Path::new("measure/src/utils.rs"), "//! x\n").len(), 1);
    assert_eq!(faults(Path::new("measure/src/common/mod.rs"), "//! x\n").len(), 1);
    let unfinished = format!("//! x\n#[{}]\nfn f() {{ {}!() }}\n", "ignore", "todo");
    assert_eq!(faults(good, &unfinished).len(), 2);
}
