//! Where bars are measured: the `tilewright` program, the repository, a scratch folder, and commands with a deadline.

use anyhow::{Context, bail};
use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What bars share.
pub struct Lab {
    /// The `tilewright` program: `TILEWRIGHT_BIN`, otherwise the one beside this program.
    pub tilewright: PathBuf,
    /// The repository.
    pub root: PathBuf,
    scratch: tempfile::TempDir,
}

/// A command that ended.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Exit code; 128 + the signal's number for one that a signal ended.
    pub code: i32,
    /// What it answered.
    pub stdout: String,
    /// What else it said.
    pub stderr: String,
    /// From start to end.
    pub wall: Duration,
}

impl Lab {
    /// Finds the program and makes a scratch folder, which is removed with the lab.
    ///
    /// # Errors
    /// When the program is not there or the folder cannot be made.
    pub fn open() -> anyhow::Result<Lab> {
        let tilewright = match std::env::var_os("TILEWRIGHT_BIN") {
            Some(path) => PathBuf::from(path),
            None => std::env::current_exe().context("finding this program")?.with_file_name("tilewright"),
        };
        if !tilewright.is_file() {
            bail!("{} is not there; run `cargo build --bin tilewright`, or set TILEWRIGHT_BIN", tilewright.display());
        }
        let scratch = tempfile::Builder::new().prefix("tilewright-check-").tempdir().context("a scratch folder")?;
        Ok(Lab { tilewright, root: repository(), scratch })
    }

    /// A fresh, empty folder of the name of its bar.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn folder(&self, name: &str) -> anyhow::Result<PathBuf> {
        let folder = self.scratch.path().join(name);
        if folder.exists() {
            std::fs::remove_dir_all(&folder).with_context(|| format!("emptying {}", folder.display()))?;
        }
        std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        Ok(folder)
    }

    /// Where `name` of the real model graphs lies: in `TILEWRIGHT_MODELS`, otherwise in `../shared/models`. They are
    /// other projects' files, so the repository does not hold them.
    #[must_use]
    pub fn model(&self, name: &str) -> Option<PathBuf> {
        let folder = match std::env::var_os("TILEWRIGHT_MODELS") {
            Some(folder) => PathBuf::from(folder),
            None => self.root.parent()?.join("shared/models"),
        };
        Some(folder.join(name)).filter(|path| path.is_file())
    }

    /// `tilewright` with these arguments.
    #[must_use]
    pub fn command<S: AsRef<std::ffi::OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(&self.tilewright);
        command.args(arguments).current_dir(&self.root).stdin(Stdio::null());
        command
    }

    /// Runs `tilewright` with these arguments, for at most `limit`.
    ///
    /// # Errors
    /// When it cannot be started, or has not ended in time.
    pub fn run<S: AsRef<std::ffi::OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
        limit: Duration,
    ) -> anyhow::Result<Ran> {
        run(self.command(arguments), limit)
    }

    /// Runs `tilewright` and reads one JSON object per line of its answer.
    ///
    /// # Errors
    /// When it ends with another code than 0, or a line is not JSON; also as [`Lab::run`].
    pub fn json<S: AsRef<std::ffi::OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
        limit: Duration,
    ) -> anyhow::Result<Vec<serde_json::Value>> {
        let ran = self.run(arguments, limit)?.ok()?;
        ran.stdout.lines().map(|line| serde_json::from_str(line).with_context(|| format!("not JSON: {line}"))).collect()
    }

    /// A lab without a program, for tests of what does not start it.
    #[cfg(test)]
    pub(super) fn for_tests() -> Lab {
        Lab { tilewright: "/nonexistent".into(), root: repository(), scratch: tempfile::tempdir().unwrap() }
    }
}

impl Ran {
    /// This, if it ended with code 0.
    ///
    /// # Errors
    /// Otherwise, with the last thing it said.
    pub fn ok(self) -> anyhow::Result<Ran> {
        if self.code != 0 {
            let said = if self.stderr.trim().is_empty() { &self.stdout } else { &self.stderr };
            bail!("exit code {}: {}", self.code, said.trim().lines().last().unwrap_or("(nothing said)"));
        }
        Ok(self)
    }
}

/// The repository that this program was built from.
fn repository() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests).to_owned()
}

/// Runs `command` in a process group of its own, and kills the group at the deadline.
///
/// # Errors
/// When it cannot be started, or is not done after `limit`.
pub(super) fn run(mut command: Command, limit: Duration) -> anyhow::Result<Ran> {
    let start = Instant::now();
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut group = Group::start(command)?;
    let stdout = drain(group.child.stdout.take());
    let stderr = drain(group.child.stderr.take());
    let status = loop {
        if let Some(status) = group.child.try_wait().context("waiting for a command")? {
            break status;
        }
        if start.elapsed() > limit {
            drop(group);
            let said = stderr.join().unwrap_or_default();
            bail!("not done after {limit:?}; last said: {}", said.lines().last().unwrap_or("(nothing)"));
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let wall = start.elapsed();
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(Ran { code, stdout: stdout.join().unwrap_or_default(), stderr: stderr.join().unwrap_or_default(), wall })
}

/// Reads a pipe to its end on a thread of its own, so that a full pipe never stops the command.
fn drain(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // A pipe that breaks ends the text there.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// A child process that leads a process group of its own. The whole group is killed when this is dropped, and by
/// [`kill_all`].
pub(super) struct Group {
    /// The leader.
    pub(super) child: Child,
}

/// The groups that are running, by the id of their leader.
static GROUPS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

fn groups() -> MutexGuard<'static, BTreeSet<u32>> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Group {
    /// Starts `command` as the leader of a new group.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) fn start(mut command: Command) -> anyhow::Result<Group> {
        // Held over the start, so that `kill_all` misses nothing.
        let mut groups = groups();
        let child = command.process_group(0).spawn();
        let child = child.with_context(|| format!("starting {}", command.get_program().display()))?;
        groups.insert(child.id());
        Ok(Group { child })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Out of the set before the leader is waited for: afterwards its number may be another's.
        groups().remove(&self.child.id());
        kill(self.child.id());
        // It was killed, so this ends; its status says nothing more.
        let _ = self.child.wait();
    }
}

/// Kills every group that is running: for an interrupted `check`, whose children a terminal's Ctrl-C does not reach.
pub fn kill_all() {
    groups().iter().for_each(|&leader| kill(leader));
}

/// Sends SIGKILL to the process group of `leader`, a child that was not waited for.
fn kill(leader: u32) {
    let Ok(group) = i32::try_from(leader) else { return };
    // SAFETY: `kill` reads no memory of ours.
    unsafe { libc::kill(-group, libc::SIGKILL) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        command
    }

    #[test]
    fn a_command_tells_its_code_and_what_it_said() {
        let ran = run(shell("echo out; echo err >&2; exit 3"), Duration::from_secs(10)).unwrap();
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (3, "out\n", "err\n"));
        assert_eq!(ran.ok().unwrap_err().to_string(), "exit code 3: err");
        assert_eq!(run(shell("kill -9 $$"), Duration::from_secs(10)).unwrap().code, 137);
    }

    #[test]
    fn the_deadline_ends_the_whole_group() {
        let start = Instant::now();
        // The grandchild holds the pipes: only killing the group lets the readers end.
        let error = run(shell("echo busy >&2; sleep 60 & sleep 60"), Duration::from_millis(200)).unwrap_err();
        assert!(error.to_string().contains("last said: busy"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}
