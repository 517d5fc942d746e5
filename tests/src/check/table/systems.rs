//! The systems of the joint table as processes: pinned to the same cores, each with its data ready.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use datasets::suite::Line;
use serde::Deserialize;
use serde_json::json;

use crate::check::lab::{self, Lab};
use crate::check::lockstep::TimedProgram;

/// Each peer, and the word that `tests/peers/setup` knows its environment by.
pub(crate) const PEERS: [(&str, &str); 6] =
    [("numpy", "numpy"), ("mkl", "torch"), ("torch", "torch"), ("ort", "onnx"), ("iree", "onnx"), ("gemm", "gemm")];

/// Peers of more than one thread. OpenBLAS keeps its threads spinning after a call, which takes the cores from whoever
/// is timed next.
pub(crate) const PEERS_OF_SEVERAL: [&str; 5] = ["mkl", "torch", "ort", "iree", "gemm"];

/// The last cores that this process may use; the first ones serve most interrupts. As `taskset` takes them.
pub(crate) fn last_allowed_cores(count: usize) -> anyhow::Result<String> {
    let status = std::fs::read_to_string("/proc/self/status").context("reading the allowed cores")?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).context("no allowed cores")?;
    let cores = listed(list.trim()).with_context(|| format!("reading the allowed cores {list:?}"))?;
    let Some(first) = cores.len().checked_sub(count) else {
        bail!("{count} threads asked for, this process may use {} cores", cores.len());
    };
    Ok(cores[first..].iter().map(usize::to_string).collect::<Vec<_>>().join(","))
}

/// `0-2,5` as numbers.
fn listed(list: &str) -> Option<Vec<usize>> {
    let mut cores = Vec::new();
    for part in list.split(',') {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        cores.extend(low.parse::<usize>().ok()?..=high.parse::<usize>().ok()?);
    }
    Some(cores)
}

/// `program` on these cores, by `taskset` of util-linux.
pub(crate) fn pinned(cores: &str, program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", cores]).arg(program).args(arguments);
    command
}

/// Peers that stay alive from line to line.
pub(crate) struct Peers {
    threads: usize,
    cores: String,
    programs: BTreeMap<String, Result<PathBuf, String>>,
    alive: BTreeMap<String, TimedProgram>,
}

/// What a peer says of a line it was told to prepare.
#[derive(Deserialize)]
pub(crate) struct Prepared {
    ok: bool,
    why: Option<String>,
    /// Elements of its output.
    pub(crate) samples: Option<Vec<f64>>,
}

impl Peers {
    /// Finds or makes the environments of `names`. One that cannot be made is no peer, and says why.
    ///
    /// # Errors
    /// When a name is no peer's, or the machine has too few cores.
    pub(crate) fn set_up(lab: &Lab, names: &[&str], threads: usize) -> anyhow::Result<Peers> {
        let mut programs = BTreeMap::new();
        for name in names {
            let known = PEERS.iter().find(|(peer, _)| peer == name);
            let (_, environment) = known.with_context(|| {
                let known: Vec<&str> = PEERS.iter().map(|peer| peer.0).collect();
                format!("no peer is called {name:?}; there are {}", known.join(", "))
            })?;
            let mut setup = Command::new(lab.root.join("tests/peers/setup"));
            setup.arg(environment);
            let ran = lab::run(setup, Duration::from_secs(1800)).and_then(lab::Ran::ok);
            let program = ran.map(|ran| PathBuf::from(ran.stdout.trim())).map_err(|error| format!("{error:#}"));
            programs.insert((*name).to_owned(), program);
        }
        Ok(Peers { threads, cores: last_allowed_cores(threads)?, programs, alive: BTreeMap::new() })
    }

    /// Their names, in the order of [`PEERS`].
    pub(crate) fn names(&self) -> Vec<String> {
        PEERS.iter().map(|peer| peer.0.to_owned()).filter(|name| self.programs.contains_key(name)).collect()
    }

    /// Lets a peer make the line's data ready; it is started when it is not alive.
    ///
    /// # Errors
    /// What keeps it from that. It is ended then, and started anew for the next line.
    pub(crate) fn prepare(&mut self, lab: &Lab, name: &str, line: &Line, reader: bool) -> anyhow::Result<Prepared> {
        let mut peer = match self.alive.remove(name) {
            Some(peer) => peer,
            None => self.start(lab, name)?,
        };
        let answer: Prepared = peer.ask(&json!({ "prepare": line, "reader": reader }).to_string())?;
        self.alive.insert(name.to_owned(), peer);
        match answer.ok {
            true => Ok(answer),
            false => bail!("{}", answer.why.as_deref().unwrap_or("no reason given")),
        }
    }

    /// A peer that was prepared.
    pub(crate) fn alive(&mut self, name: &str) -> Option<&mut TimedProgram> {
        self.alive.get_mut(name)
    }

    /// Ends a peer that failed.
    pub(crate) fn end(&mut self, name: &str) {
        self.alive.remove(name);
    }

    fn start(&self, lab: &Lab, name: &str) -> anyhow::Result<TimedProgram> {
        let program = match &self.programs[name] {
            Ok(program) => program,
            Err(why) => bail!("it could not be set up: {why}"),
        };
        let threads = self.threads.to_string();
        let mut command = if name == "gemm" {
            pinned(&self.cores, program, &[&threads])
        } else {
            // FOLDER/ENVIRONMENT/bin/python
            let folder = program.ancestors().nth(3).context("the environment has no folder")?;
            let (worker, cache) = (lab.root.join("tests/peers/worker.py"), folder.join("cache"));
            pinned(&self.cores, program, &[&worker.to_string_lossy(), name, &threads, &cache.to_string_lossy()])
        };
        for variable in ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"] {
            command.env(variable, &threads);
        }
        // Idle threads of one peer give the core up soon after its last call.
        command.env("KMP_BLOCKTIME", "20");
        // What makes older builds of OpenBLAS run at all slows this one down.
        command.env_remove("OPENBLAS_CORETYPE").env_remove("OPENBLAS_L2_SIZE");
        TimedProgram::start(name, command, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_read() {
        assert_eq!(listed("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!(listed("7"), Some(vec![7]));
        assert_eq!(listed("a"), None);
        assert!(last_allowed_cores(1).unwrap().parse::<usize>().is_ok());
        assert!(last_allowed_cores(100_000).unwrap_err().to_string().contains("100000 threads asked for"));
    }

    #[test]
    fn a_peer_that_nobody_knows_is_named() {
        let error = Peers::set_up(&Lab::for_tests(), &["abacus"], 1).err().unwrap().to_string();
        assert!(error.contains("no peer is called \"abacus\"; there are numpy, mkl"), "{error}");
    }

    #[test]
    fn a_peer_answers_for_each_line_and_is_started_anew_when_it_died() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("peer");
        let text = r#"#!/bin/sh
while read line; do
    case $line in
        *good*) echo '{"ok": true, "samples": [1.0]}' ;;
        *bad*) echo '{"ok": false, "why": "no such operation"}' ;;
        go*) echo '{"median_ns": 5e3}' ;;
        *) exit 1 ;;
    esac
done
"#;
        std::fs::write(&script, text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&script, mode).unwrap();
        let mut peers = Peers {
            threads: 1,
            cores: last_allowed_cores(1).unwrap(),
            programs: [("gemm".to_owned(), Ok(script))].into(),
            alive: BTreeMap::new(),
        };
        let lab = Lab::for_tests();
        let line = |name: &str| super::super::row::tests::row(name, &[]).line;
        assert_eq!(peers.prepare(&lab, "gemm", &line("good"), false).unwrap().samples, Some(vec![1.0]));
        let why = |error: Option<anyhow::Error>| error.unwrap().to_string();
        assert_eq!(why(peers.prepare(&lab, "gemm", &line("bad"), false).err()), "no such operation");
        assert!(why(peers.prepare(&lab, "gemm", &line("deadly"), false).err()).contains("ended without an answer"));
        assert!(peers.alive("gemm").is_none());
        assert!(peers.prepare(&lab, "gemm", &line("good"), true).unwrap().ok);
    }
}
