//! The command line of the joint table: `tests/peers/table` runs it.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use datasets::suite::{self, Line};
use search_space::workload::MathMode;
use serde_json::json;

use super::{PEERS, PEERS_OF_SEVERAL, Peers, Row, Setting, measure};
use crate::check::lab::Lab;

/// What the program says when it is asked, or asked wrongly.
const USAGE: &str = "\
usage: tests/peers/table --db FILE [OPTION...]

Times the winners in a tuning database beside every peer: in each round each system once, in random order, pinned to the
same cores. Prints per line our time, the best peer, and the median of the paired ratios to each peer (above 1: we are
faster) with its 95 % interval.

  --db FILE          tuning database that `tilewright bench` has filled
  --workloads FILE   workload suite                                       [datasets/workloads/cpu.json]
  --threads N        threads of each system                               [1]
  --only TEXT        the line of this name, or those whose names contain the text
  --math M           ieee or fast: for which convolutions were tuned      [ieee]
  --reader           read the whole output after each call, inside of its time
  --peers A,B        numpy, mkl, torch, ort, iree, gemm                   [all; without numpy for several threads]
  --rounds N         rounds that count, 9 or more for an interval         [11]
  --seconds S        time of each system in each round                    [0.2]
  --seed N           of the order within rounds                           [0]
  --json FILE        the same for programs";

/// The schema of the JSON.
const JOINT: &str = "tilewright.joint/1";

struct Arguments {
    setting: Setting,
    workloads: PathBuf,
    only: Option<String>,
    peers: Vec<String>,
    json: Option<PathBuf>,
}

/// Runs the program; `arguments` are those after its name.
///
/// # Errors
/// When they are wrong, or nothing can be measured at all.
pub fn main(arguments: &[String], out: &mut impl Write) -> anyhow::Result<()> {
    if arguments.iter().any(|word| word == "--help" || word == "-h") {
        writeln!(out, "{USAGE}")?;
        return Ok(());
    }
    let lab = Lab::open()?;
    let arguments = read(arguments, &lab.root)?;
    let lines = chosen(suite::read(&arguments.workloads)?, arguments.only.as_deref())?;
    let names: Vec<&str> = arguments.peers.iter().map(String::as_str).collect();
    let mut peers = Peers::set_up(&lab, &names, arguments.setting.threads)?;
    let mut rows: Vec<Row> = Vec::new();
    for line in &lines {
        let row = measure(&lab, &arguments.setting, &mut peers, line);
        writeln!(out, "{}", row.text())?;
        out.flush()?;
        rows.push(row);
        if let Some(path) = &arguments.json {
            write(path, &arguments.setting, &rows).with_context(|| format!("cannot write {path:?}"))?;
        }
    }
    Ok(())
}

/// Writes the whole table.
fn write(path: &Path, setting: &Setting, rows: &[Row]) -> std::io::Result<()> {
    let table = json!({
        "schema": JOINT,
        "threads": setting.threads,
        "rounds": setting.rounds,
        "secs": setting.seconds,
        "seed": setting.seed,
        "clock": "wall",
        "cache": "warm",
        "rows": rows.iter().map(Row::json).collect::<Vec<_>>(),
    });
    std::fs::write(path, format!("{table:#}\n"))
}

fn chosen(mut lines: Vec<Line>, only: Option<&str>) -> anyhow::Result<Vec<Line>> {
    let Some(only) = only else { return Ok(lines) };
    let exact = lines.iter().any(|line| line.name == only);
    lines.retain(|line| if exact { line.name == only } else { line.name.contains(only) });
    if lines.is_empty() {
        bail!("--only {only:?} is in no name of the suite");
    }
    Ok(lines)
}

fn read(words: &[String], root: &Path) -> anyhow::Result<Arguments> {
    let mut setting = Setting {
        database: PathBuf::new(),
        threads: 1,
        rounds: 11,
        seconds: 0.2,
        reader: false,
        math: MathMode::Ieee,
        seed: 0,
    };
    let (mut workloads, mut only, mut peers, mut json) = (root.join("datasets/workloads/cpu.json"), None, None, None);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--reader" {
            setting.reader = true;
            continue;
        }
        let known = [
            "--db",
            "--workloads",
            "--threads",
            "--only",
            "--math",
            "--peers",
            "--rounds",
            "--seconds",
            "--seed",
            "--json",
        ];
        if !known.contains(&word.as_str()) {
            bail!("unknown argument {word:?}; --help lists those there are");
        }
        let value = words.next().with_context(|| format!("{word} needs a value"))?;
        let wrong = || format!("{word} {value:?} is not what it should be; --help says what");
        match word.as_str() {
            "--db" => setting.database = std::path::absolute(value)?,
            "--workloads" => workloads = value.into(),
            "--threads" => setting.threads = value.parse().ok().filter(|n| *n > 0).with_context(wrong)?,
            "--only" => only = Some(value.clone()),
            "--math" => {
                setting.math = match value.as_str() {
                    "ieee" => MathMode::Ieee,
                    "fast" => MathMode::Fast,
                    _ => bail!(wrong()),
                }
            }
            "--peers" => peers = Some(value.split(',').map(str::to_owned).collect()),
            "--rounds" => setting.rounds = value.parse().ok().filter(|n| *n > 0).with_context(wrong)?,
            "--seconds" => {
                let seconds = value.parse().ok().filter(|s: &f64| s.is_finite() && *s > 0.0 && *s < 3600.0);
                setting.seconds = seconds.with_context(wrong)?;
            }
            "--seed" => setting.seed = value.parse().ok().with_context(wrong)?,
            _ => json = Some(PathBuf::from(value)),
        }
    }
    if setting.database.as_os_str().is_empty() {
        bail!("--db is missing; --help says what it is");
    }
    let all = || match setting.threads {
        1 => PEERS.iter().map(|peer| peer.0.to_owned()).collect(),
        _ => PEERS_OF_SEVERAL.map(str::to_owned).to_vec(),
    };
    let peers = peers.unwrap_or_else(all);
    Ok(Arguments { setting, workloads, only, peers, json })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(text: &str) -> anyhow::Result<Arguments> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        read(&words, Path::new("/root"))
    }

    #[test]
    fn arguments_are_read_and_mistakes_are_named() {
        let read = arguments("--db a.tune --threads 2 --math fast --reader --rounds 9 --seconds 0.1 --seed 3").unwrap();
        let setting = &read.setting;
        assert_eq!((setting.threads, setting.rounds, setting.seconds, setting.seed), (2, 9, 0.1, 3));
        assert!(setting.reader && setting.math == MathMode::Fast && setting.database.is_absolute());
        assert_eq!(read.peers, PEERS_OF_SEVERAL);
        assert_eq!(arguments("--db a.tune").unwrap().peers.len(), PEERS.len());
        assert_eq!(arguments("--db a.tune --peers ort,mkl").unwrap().peers, ["ort", "mkl"]);
        for (text, word) in [
            ("", "--db is missing"),
            ("--db", "--db needs a value"),
            ("--db a --threads 0", "--threads \"0\""),
            ("--db a --seconds nan", "--seconds \"nan\""),
            ("--db a --math exact", "--math \"exact\""),
            ("--db a --only", "--only needs a value"),
            ("--db a extra", "unknown argument \"extra\""),
        ] {
            let error = arguments(text).err().unwrap().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
