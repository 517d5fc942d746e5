//! `kill -9` of the whole process group at random moments of a tune, round after round on the same database.
//!
//! After each: no trial that was counted on stdout is missing, the file is sound, no process is left, and the next run
//! goes on with exactly the candidates that a replay of the event log proposes.

use super::lab::Group;
use super::{Bar, Finding, Lab};
use anyhow::{Context, ensure};
use rand::{RngExt as _, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc;
use std::time::{Duration, Instant};

const ROUNDS: u64 = 200;

const ROUNDS_PER_DATABASE: u64 = 40;

const WORKLOAD: &str = "matmul m=48 n=40 k=56 dtype=f32";

/// Candidates compared between the replay and the run that follows.
const COMPARED: usize = 4;

/// Names the processes of one round in their environment, which survives every `fork` and `exec`.
const MARK: &str = "TILEWRIGHT_CHECK_MARK";

pub(super) fn bars() -> Vec<Bar> {
    let wanted = "no counted trial lost, file sound, no orphan, resumes with the replay's candidates";
    vec![Bar::new(format!("{ROUNDS} x kill -9"), wanted, rounds)]
}

fn rounds(lab: &Lab) -> anyhow::Result<Finding> {
    let folder = lab.folder("kill")?;
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let (mut counted, mut kept, mut compared) = (0, 0, 0);
    for round in 0..ROUNDS {
        // Every resume replays the whole log, so one log for all rounds would take most of the time.
        let database = folder.join(format!("night-{}.tune", round / ROUNDS_PER_DATABASE));
        if round % ROUNDS_PER_DATABASE == 0 {
            kept += counted;
            counted = 0;
        }
        // The default says one candidate ahead, the other one batches.
        let strategy = if (round / ROUNDS_PER_DATABASE).is_multiple_of(2) { "gp" } else { "evolution" };
        let proposals = if database.exists() { proposals(lab, &database, strategy)? } else { Vec::new() };
        let moment = Moment {
            after_a_trial: rng.random_range(0..4) > 0,
            delay: Duration::from_millis(rng.random_range(0..600)),
        };
        let mark = format!("{}-{round}", std::process::id());
        let trials = killed_tune(lab, &database, strategy, moment, &mark).with_context(|| format!("round {round}"))?;
        for (trial, proposal) in trials.iter().zip(&proposals) {
            ensure!(
                trial["schedule"] == *proposal,
                "round {round}: tried {} where the replay has {proposal}",
                trial["schedule"]
            );
            compared += 1;
        }
        let orphans = orphans(&mark);
        ensure!(orphans.is_empty(), "round {round}: processes {orphans:?} outlive the tune");
        if let Some(last) = trials.last() {
            let count = last["trial"].as_u64().context("a trial without its number")?;
            ensure!(
                count >= counted + trials.len() as u64,
                "round {round}: trial {count} after {counted} were counted"
            );
            counted = count;
        }
        if database.exists() {
            let stored = stored(&database).with_context(|| format!("round {round}"))?;
            ensure!(stored >= counted, "round {round}: {counted} trials were counted, {stored} are stored");
        }
    }
    kept += counted;
    let enough = kept >= ROUNDS && compared >= ROUNDS;
    Ok(Finding::of(enough, format!("{kept} trials counted and kept, {compared} candidates as replayed")))
}

/// When the kill comes.
#[derive(Clone, Copy)]
struct Moment {
    /// Counted from the first trial that is shown, so that the search is under way on a slow machine too; otherwise from
    /// the start, which hits opening and resuming.
    after_a_trial: bool,
    delay: Duration,
}

/// Starts a tune, kills its process group at `moment`, and returns the trials that it counted.
fn killed_tune(lab: &Lab, database: &Path, strategy: &str, moment: Moment, mark: &str) -> anyhow::Result<Vec<Value>> {
    let database = database.to_string_lossy();
    let mut command = lab.command(["tune", WORKLOAD, "--device", "cpu", "--time", "60s", "--stop-gain", "0", "--json"]);
    command.args(["--strategy", strategy, "--seed", "1", "--db", &database]);
    command.env(MARK, mark).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut tune = Group::start(command)?;
    let stdout = tune.child.stdout.take().context("no stdout")?;
    let (shown, first) = mpsc::channel();
    let lines = std::thread::spawn(move || {
        // Nobody listens after the first line.
        let tell = |_: &String| {
            let _ = shown.send(());
        };
        BufReader::new(stdout).lines().map_while(Result::ok).inspect(tell).collect::<Vec<_>>()
    });
    if moment.after_a_trial {
        // An early end closes the channel, and is reported below.
        let _ = first.recv_timeout(Duration::from_secs(30));
    }
    std::thread::sleep(moment.delay);
    let early = tune.child.try_wait()?;
    let stderr = tune.child.stderr.take();
    drop(tune); // kills the group
    if let Some(status) = early {
        let mut said = String::new();
        if let Some(mut stderr) = stderr {
            std::io::Read::read_to_string(&mut stderr, &mut said)?;
        }
        anyhow::bail!(
            "the tune ended by itself ({status}): {}",
            said.trim().lines().last().unwrap_or("(nothing said)")
        );
    }
    let lines = lines.join().ok().context("reading the trials")?;
    // A line that the kill cut short was not shown whole, so it does not count.
    let events = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(events.filter(|event| event["kind"] == "trial").collect())
}

/// The schedules that a replay of the event log proposes next.
fn proposals(lab: &Lab, database: &Path, strategy: &str) -> anyhow::Result<Vec<Value>> {
    let (database, next) = (database.to_string_lossy(), COMPARED.to_string());
    let question = ["db", "replay", &database, WORKLOAD, "--device", "cpu", "--next", &next, "--json"];
    let arguments = question.into_iter().chain(["--strategy", strategy, "--seed", "1"]);
    let answer = lab.json(arguments, Duration::from_secs(30))?;
    Ok(answer.into_iter().map(|mut line| line["schedule"].take()).collect())
}

/// How many observations the file holds, once SQLite finds it sound.
fn stored(database: &Path) -> anyhow::Result<u64> {
    let database = rusqlite::Connection::open(database)?;
    let sound: String = database.query_row("pragma integrity_check", (), |row| row.get(0))?;
    ensure!(sound == "ok", "integrity_check: {sound}");
    let count: i64 = database.query_row("select count(*) from observation", (), |row| row.get(0))?;
    Ok(u64::try_from(count)?)
}

/// Processes that carry `mark` and are still there two seconds later.
fn orphans(mark: &str) -> Vec<u32> {
    let entry = format!("{MARK}={mark}");
    let end = Instant::now() + Duration::from_secs(2);
    loop {
        let left = marked(&entry);
        if left.is_empty() || Instant::now() > end {
            return left;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn marked(entry: &str) -> Vec<u32> {
    let Ok(folder) = std::fs::read_dir("/proc") else { return Vec::new() };
    let ids = folder.filter_map(|process| process.ok()?.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| {
        let environment = std::fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == entry.as_bytes())
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// A seeded orphan: a grandchild in a session of its own, which killing the group does not reach.
    #[test]
    fn a_process_that_left_the_group_is_found() {
        let mark = format!("test-{}", std::process::id());
        let mut command = Command::new("sh");
        command.args(["-c", "setsid sleep 30 & sleep 30"]).env(MARK, &mark);
        let group = Group::start(command).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        drop(group);
        let orphans = orphans(&mark);
        assert_eq!(orphans.len(), 1, "{orphans:?}");
        // SAFETY: the process was started by this test and is still there.
        unsafe { libc::kill(i32::try_from(orphans[0]).unwrap(), libc::SIGKILL) };
    }
}
