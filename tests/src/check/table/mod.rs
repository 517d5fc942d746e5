//! The joint table: our stored winners and every peer on the same lines, in turn.
//!
//! Each system is a process with its data ready, pinned to the same core (or cores). In each round every system is timed
//! once, in random order; the first round warms all and is not counted. Ratios are taken within rounds, so that a slow
//! phase of the machine cancels. Times are wall-clock times of warm caches.

mod command;
mod row;
mod systems;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use datasets::suite::Line;
use measure::device::HOST_CPU;
use measure::resource::Resource;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use search_space::workload::MathMode;

use super::lab::Lab;
use super::lockstep::{TimedProgram, Timer};

pub use command::main;
pub(super) use row::{OURS, Row, System};
pub(super) use systems::{PEERS, PEERS_OF_SEVERAL, Peers, last_allowed_cores, pinned};

#[cfg(test)]
pub(super) use row::tests::row as row_for_tests;

/// Between two systems of more than one thread, so that the threads of the last are asleep.
const PAUSE: Duration = Duration::from_millis(60);

/// Longest wait for another tuner to give the processor up.
const LONGEST_WAIT: Duration = Duration::from_secs(120);

/// How the table is measured.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// Database that holds our winners.
    pub(super) database: PathBuf,
    /// Threads of each system.
    pub(super) threads: usize,
    /// Rounds that count; one more is measured before them.
    pub(super) rounds: usize,
    /// Seconds of each system in each round.
    pub(super) seconds: f64,
    /// Whether the output is read after each call, inside of the time.
    pub(super) reader: bool,
    /// Mathematics of our kernel, where the line has a choice.
    pub(super) math: MathMode,
    /// Of the order within rounds.
    pub(super) seed: u64,
}

/// Measures one line on all systems. What a system cannot do is its own result.
pub(super) fn measure(lab: &Lab, setting: &Setting, peers: &mut Peers, line: &Line) -> Row {
    let start = Instant::now();
    let before = load();
    let mut ours = start_ours(lab, setting, line);
    let mut systems = vec![System {
        name: OURS.into(),
        result: ours.as_ref().map(|_| Vec::new()).map_err(|error| format!("{error:#}")),
    }];
    let mut reference: Option<(String, Vec<f64>)> = None;
    for name in peers.names() {
        let prepared = peers.prepare(lab, &name, line, setting.reader).and_then(|prepared| {
            let Some(samples) = prepared.samples else { return Ok(()) };
            match &reference {
                None => reference = Some((name.clone(), samples)),
                Some((other, wanted)) if differ(wanted, &samples, tolerance(line)) => {
                    bail!("its output is not that of {other}")
                }
                Some(_) => {}
            }
            Ok(())
        });
        systems.push(System { name, result: prepared.map(|()| Vec::new()).map_err(|error| format!("{error:#}")) });
    }
    let mut rng = ChaCha8Rng::seed_from_u64(setting.seed);
    for round in 0..=setting.rounds {
        let mut order: Vec<usize> = (0..systems.len()).collect();
        order.shuffle(&mut rng);
        for at in order {
            let System { name, result } = &mut systems[at];
            let Ok(times) = result else { continue };
            if setting.threads > 1 {
                std::thread::sleep(PAUSE);
            }
            let timed = if name == OURS {
                ours.as_mut().ok().map(|program| program.median_ns(setting.seconds))
            } else {
                let alone = alone();
                peers.alive(name).map(|program| alone.and_then(|_held| program.median_ns(setting.seconds)))
            };
            let Some(timed) = timed else { continue };
            match timed {
                Ok(_) if round == 0 => {}
                Ok(ns) => times.push(ns),
                Err(error) => {
                    *result = Err(format!("{error:#}"));
                    peers.end(name);
                }
            }
        }
    }
    let math = if line.has_math() { setting.math } else { MathMode::Ieee };
    Row { line: line.clone(), math, reader: setting.reader, systems, load: [before, load()], took: start.elapsed() }
}

/// `tilewright time` with the winner, or why there is none.
fn start_ours(lab: &Lab, setting: &Setting, line: &Line) -> anyhow::Result<TimedProgram> {
    let key = match line.workload(setting.math) {
        Ok(workload) => workload.key(),
        Err(problem) => bail!("unsupported: {problem}"),
    };
    let (threads, database) = (setting.threads.to_string(), setting.database.to_string_lossy());
    let asked = [key.as_str(), "--device", "cpu", "--threads", &threads, "--db", &database];
    // A look-up says in one line why there is no answer.
    let found = lab.run(["lookup"].iter().chain(&asked), Duration::from_secs(60))?;
    if found.code != 0 {
        let said = found.stderr.trim().lines().last().unwrap_or("the look-up says nothing");
        // What follows the reason is how near other records are.
        bail!("{}", said.split(';').next().unwrap_or(said));
    }
    let mut arguments = vec!["time"];
    arguments.extend(asked);
    if setting.reader {
        arguments.push("--reader");
    }
    let cores = last_allowed_cores(setting.threads)?;
    let mut command = pinned(&cores, &lab.tilewright, &arguments);
    command.current_dir(&lab.root);
    TimedProgram::start("tilewright time", command, None)
}

/// Keeps other tuners off the processor while a peer is timed, as ours does for itself.
fn alone() -> anyhow::Result<impl Drop> {
    let resource = Resource::open(HOST_CPU).context("the processor's lock")?;
    resource.hold(LONGEST_WAIT).context("waiting for other tuners")
}

/// How far outputs may lie apart, as a share of the largest element.
fn tolerance(line: &Line) -> f64 {
    match line.dtype.as_str() {
        "bf16" | "f16" => 2e-2,
        _ => 1e-3,
    }
}

/// Whether two outputs are not the same result. One with another number of elements, or with a NaN, is another.
fn differ(wanted: &[f64], found: &[f64], tolerance: f64) -> bool {
    let scale = wanted.iter().fold(f64::MIN_POSITIVE, |most, value| most.max(value.abs()));
    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= tolerance * scale;
    wanted.len() != found.len() || !wanted.iter().zip(found).all(near)
}

/// The load average of the last minute, where it is known.
fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_compared_by_the_largest_element() {
        assert!(!differ(&[100.0, 1.0], &[100.05, 1.05], 1e-3));
        assert!(differ(&[100.0, 1.0], &[100.0, 1.2], 1e-3));
        assert!(differ(&[1.0], &[f64::NAN], 1e-3));
        assert!(differ(&[1.0], &[1.0, 2.0], 1e-3));
        assert!(!differ(&[0.0], &[0.0], 1e-3));
    }
}
