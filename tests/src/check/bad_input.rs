//! What a person gets wrong: each is answered by one clear line on stderr and exit code 2, and nothing is written.

use super::{Bar, Finding, Lab, Ran, lab};
use anyhow::{Context, ensure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const WORKLOAD: &str = "matmul m=64 n=64 k=64 dtype=f32";

const LIMIT: Duration = Duration::from_secs(30);

/// What is wrong, a word that the answer must hold, and how to make the mistake in an empty folder.
type Mistake = (&'static str, &'static str, fn(&Lab, &Path) -> anyhow::Result<Vec<String>>);

const MISTAKES: &[Mistake] = &[
    ("truncated ONNX", "model.onnx", |lab, folder| {
        let whole = std::fs::read(lab.root.join("datasets/models/resnet50.onnx")).context("reading the demo model")?;
        model(folder, &whole[..whole.len() / 2])
    }),
    ("text as ONNX", "model.onnx", |_, folder| model(folder, b"Dear sir or madam,\n\nthis is no model.\n")),
    ("only unsupported operators", "NonMaxSuppression", |_, folder| model(folder, &unsupported_model())),
    ("m=0", "m", |_, folder| Ok(tune("matmul m=0 n=64 k=64 dtype=f32", "cpu", &["--trials", "4"], folder))),
    ("m=-1", "m", |_, folder| Ok(tune("matmul m=-1 n=64 k=64 dtype=f32", "cpu", &["--trials", "4"], folder))),
    ("m=99999999999", "99999999999", |_, folder| {
        Ok(tune("matmul m=99999999999 n=64 k=64 dtype=f32", "cpu", &["--trials", "4"], folder))
    }),
    ("unknown device", "abacus", |_, folder| Ok(tune(WORKLOAD, "abacus", &["--trials", "4"], folder))),
    ("--time 0", "--time", |_, folder| Ok(tune(WORKLOAD, "cpu", &["--time", "0"], folder))),
    ("a directory as --db", "night.tune", |_, folder| {
        std::fs::create_dir(folder.join("night.tune"))?;
        Ok(tune(WORKLOAD, "cpu", &["--trials", "4"], folder))
    }),
    ("text as --db", "night.tune", |_, folder| {
        std::fs::write(folder.join("night.tune"), "Dear sir or madam,\n\nthis is no database.\n".repeat(100))?;
        Ok(tune(WORKLOAD, "cpu", &["--trials", "4"], folder))
    }),
    ("a newer schema", "schema", |lab, folder| {
        let arguments = tune(WORKLOAD, "cpu", &["--trials", "2"], folder);
        lab.run(&arguments, Duration::from_secs(60))?.ok().context("making a database")?;
        let database = rusqlite::Connection::open(folder.join("night.tune"))?;
        database.pragma_update(None, "user_version", 9999)?;
        Ok(arguments)
    }),
];

pub(super) fn bars() -> Vec<Bar> {
    let wanted = "one line, exit 2, nothing written";
    let mut bars: Vec<Bar> = MISTAKES
        .iter()
        .map(|&(what, word, make)| {
            Bar::new(format!("bad input: {what}"), wanted, move |lab| {
                let folder = lab.folder("bad-input")?;
                let arguments = make(lab, &folder)?;
                let before = contents(&folder)?;
                let ran = lab.run(&arguments, LIMIT)?;
                Ok(judge(&ran, word, before == contents(&folder)?))
            })
        })
        .collect();
    bars.push(Bar::new("bad input: a read-only disk", wanted, |lab| on_disk(lab, "mount -o remount,ro \"$1\"")));
    bars.push(Bar::new("bad input: a full disk", wanted, |lab| {
        on_disk(lab, "dd if=/dev/zero of=\"$1/ballast\" bs=4096 2>/dev/null || true")
    }));
    bars
}

/// Whether the answer is one line with `word` in it, exit code 2, and nothing else happened.
fn judge(ran: &Ran, word: &str, untouched: bool) -> Finding {
    let lines: Vec<&str> = ran.stderr.lines().collect();
    let first = lines.first().copied().unwrap_or("(nothing said)");
    let faults: Vec<String> = [
        (ran.code != 2, format!("exit code {}", ran.code)),
        (lines.len() != 1, format!("{} lines", lines.len())),
        (!first.contains(word), format!("no word of {word:?}")),
        (!ran.stdout.is_empty(), "an answer on stdout".to_owned()),
        (!untouched, "something was written".to_owned()),
    ]
    .into_iter()
    .filter_map(|(wrong, what)| wrong.then_some(what))
    .collect();
    if faults.is_empty() {
        Finding::Met(first.to_owned())
    } else {
        Finding::Missed(format!("{}: {first}", faults.join(", ")))
    }
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|&word| word.to_owned()).collect()
}

fn tune(workload: &str, device: &str, more: &[&str], folder: &Path) -> Vec<String> {
    let database = folder.join("night.tune");
    let mut arguments = words(&["tune", workload, "--device", device, "--db", &database.to_string_lossy()]);
    arguments.extend(words(more));
    arguments
}

/// Writes `bytes` as a model and asks for it to be tuned.
fn model(folder: &Path, bytes: &[u8]) -> anyhow::Result<Vec<String>> {
    let path = folder.join("model.onnx");
    std::fs::write(&path, bytes)?;
    let database = folder.join("night.tune");
    let (path, database) = (path.to_string_lossy(), database.to_string_lossy());
    Ok(words(&["tune", "--model", &path, "--device", "cpu", "--time", "5s", "--db", &database]))
}

/// A valid ONNX file whose two nodes nobody tunes. Protocol-buffer fields, by number: `ModelProto` ir_version 1, graph
/// 7, opset_import 8 (version 2); `GraphProto` node 1, name 2; `NodeProto` output 2, op_type 4.
fn unsupported_model() -> Vec<u8> {
    fn bytes(field: u8, value: &[u8]) -> Vec<u8> {
        let length = u8::try_from(value.len()).unwrap_or(127);
        [&[field << 3 | 2, length], value].concat()
    }
    let node = |op: &str| bytes(1, &[bytes(2, op.as_bytes()), bytes(4, op.as_bytes())].concat());
    let graph = [node("NonMaxSuppression"), node("LSTM"), bytes(2, b"main")].concat();
    [vec![1 << 3, 8], bytes(7, &graph), bytes(8, &[2 << 3, 17])].concat()
}

/// Every file and folder below `folder`, with the bytes of files.
fn contents(folder: &Path) -> anyhow::Result<BTreeMap<PathBuf, Option<Vec<u8>>>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(contents(&path)?);
            found.insert(path, None);
        } else {
            found.insert(path.clone(), Some(std::fs::read(&path)?));
        }
    }
    Ok(found)
}

/// Tunes into a small disk of its own, after `spoil` (a shell command; `$1` is the disk) made it unfit. The disk is
/// mounted in a private namespace, so it goes with the command.
fn on_disk(lab: &Lab, spoil: &str) -> anyhow::Result<Finding> {
    let folder = lab.folder("disk")?;
    let (disk, lists) = (folder.join("disk"), folder.join("lists"));
    std::fs::create_dir(&disk)?;
    std::fs::create_dir(&lists)?;
    let script = format!(
        "mount -t tmpfs -o size=64k tilewright-check \"$1\" || exit 99\n{spoil}\n\
         ls -lAR \"$1\" > \"$2/before\"; shift 2\n\"$@\"; code=$?\n\
         ls -lAR {disk} > {lists}/after; exit $code",
        disk = disk.display(),
        lists = lists.display(),
    );
    // SAFETY: `geteuid` takes nothing and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    let mut command = Command::new("unshare");
    command.args(if root { &["--mount"][..] } else { &["--user", "--map-root-user", "--mount"] });
    command.args(["sh", "-c", &script, "sh"]).arg(&disk).arg(&lists).arg(&lab.tilewright);
    command.args(tune(WORKLOAD, "cpu", &["--trials", "4"], &disk)).current_dir(&lab.root).stdin(Stdio::null());
    let ran = lab::run(command, LIMIT)?;
    let list = |name: &str| std::fs::read_to_string(lists.join(name));
    let Ok(before) = list("before") else {
        return Ok(Finding::Skipped(format!("no private mount is allowed here: {}", ran.stderr.trim())));
    };
    let after = list("after").context("listing the disk afterwards")?;
    ensure!(before.contains(&*disk.to_string_lossy()), "the disk was not listed");
    Ok(judge(&ran, "night.tune", before == after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(code: i32, stdout: &str, stderr: &str) -> Ran {
        Ran { code, stdout: stdout.into(), stderr: stderr.into(), wall: Duration::ZERO }
    }

    #[test]
    fn only_one_line_code_2_and_nothing_written_will_do() {
        let line = "error: m is 0; an extent is at least 1\n";
        assert_eq!(judge(&ran(2, "", line), "m is 0", true), Finding::Met(line.trim().into()));
        for (bad, word, untouched) in [
            (ran(1, "", line), "m is 0", true),
            (ran(2, "{}", line), "m is 0", true),
            (ran(2, "", &line.repeat(2)), "m is 0", true),
            (ran(2, "", ""), "", true),
            (ran(2, "", line), "device", true),
            (ran(2, "", line), "m is 0", false),
        ] {
            assert!(matches!(judge(&bad, word, untouched), Finding::Missed(_)), "{bad:?}");
        }
    }

    #[test]
    fn what_is_written_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let before = contents(folder.path()).unwrap();
        std::fs::create_dir(folder.path().join("a")).unwrap();
        let middle = contents(folder.path()).unwrap();
        std::fs::write(folder.path().join("a/b"), "x").unwrap();
        let after = contents(folder.path()).unwrap();
        assert!(before != middle && middle != after);
    }
}
