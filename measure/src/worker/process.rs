//! The worker as an operating-system process: start, bounded stderr, memory, death. The only place that spawns.
//!
//! Four things keep a worker from outliving its tuner or harming it: a process group of its own (killed as a whole),
//! `PR_SET_PDEATHSIG`, end-of-file on its stdin (the worker leaves by itself), and limits set before `exec`.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How much of what a worker printed last is kept, in bytes.
const TAIL_BYTES: usize = 16 << 10;

/// A running worker process. Dropping it kills the process group and reaps the child.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    tail: Arc<Mutex<VecDeque<u8>>>,
    drain: Option<JoinHandle<()>>,
    page_bytes: u64,
}

impl Process {
    /// Starts `executable args...`. `address_space_bytes` caps the address space (`RLIMIT_AS`) when given; `inherited` is
    /// a descriptor that the worker has too, under the same number.
    pub(crate) fn start(
        executable: &Path,
        args: &[String],
        address_space_bytes: Option<u64>,
        inherited: Option<RawFd>,
    ) -> io::Result<Process> {
        let mut command = command(executable);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        // SAFETY: `getpid` only reads.
        let parent = unsafe { libc::getpid() };
        // SAFETY: the closure runs between fork and exec and calls only async-signal-safe functions.
        unsafe { command.pre_exec(move || before_exec(parent, address_space_bytes, inherited)) };
        let mut child = spawn(command)?;
        let missing = || io::Error::other("the worker's pipes are missing");
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let stdout = child.stdout.take().ok_or_else(missing)?;
        let mut stderr = child.stderr.take().ok_or_else(missing)?;
        let tail = Arc::new(Mutex::new(VecDeque::new()));
        let kept = Arc::clone(&tail);
        // Drained without pause, so that a worker that prints a gigabyte neither blocks nor fills our memory.
        let drain = std::thread::Builder::new().name("worker-stderr".into()).spawn(move || {
            let mut buffer = [0u8; 8192];
            while let Ok(read @ 1..) = stderr.read(&mut buffer) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend(&buffer[..read]);
                let excess = kept.len().saturating_sub(TAIL_BYTES);
                kept.drain(..excess);
            }
        })?;
        // SAFETY: `sysconf` only reads.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        Ok(Process { child, stdin, stdout, tail, drain: Some(drain), page_bytes: u64::try_from(page).unwrap_or(4096) })
    }

    /// Waits at most `timeout_ms` for bytes on the worker's protocol pipe and reads what is there. `Ok(None)`: nothing
    /// came; `Ok(Some(0))`: the pipe is closed.
    pub(crate) fn read(&mut self, buffer: &mut [u8], timeout_ms: i32) -> io::Result<Option<usize>> {
        let fd: RawFd = self.stdout.as_raw_fd();
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: `poll` is one valid pollfd for the duration of the call.
        let ready = unsafe { libc::poll(&raw mut poll, 1, timeout_ms) };
        match ready {
            0 => Ok(None),
            1.. => self.stdout.read(buffer).map(Some),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() == io::ErrorKind::Interrupted { Ok(None) } else { Err(error) }
            }
        }
    }

    /// Resident memory in bytes; `None` when the process is gone.
    pub(crate) fn resident_bytes(&self) -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", self.child.id())).ok()?;
        let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
        Some(pages * self.page_bytes)
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process group and reaps the child. Gives how it ended and the last it printed.
    pub(crate) fn end(mut self) -> (Option<ExitStatus>, String) {
        let status = self.kill();
        if let Some(drain) = self.drain.take() {
            // The group is dead, so the write end of the pipe is closed and the thread ends.
            let _ = drain.join();
        }
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = tail.iter().copied().collect();
        (status, String::from_utf8_lossy(&bytes).trim().to_string())
    }

    /// Kills what is left. The status is of a worker that ended by itself if it did, else of the kill.
    fn kill(&mut self) -> Option<ExitStatus> {
        if let Ok(Some(status)) = self.child.try_wait() {
            self.kill_group();
            return Some(status);
        }
        self.kill_group();
        self.child.wait().ok()
    }

    fn kill_group(&self) {
        if let Ok(group) = i32::try_from(self.child.id()) {
            // SAFETY: signals the group that this worker leads; harmless when it is gone. The child is not yet reaped
            // or was reaped a moment ago by us, so its id has not been given to a stranger's group.
            unsafe { libc::kill(-group, libc::SIGKILL) };
        }
    }

    /// Waits up to `patience` for the process to end by itself, so that its real exit status is seen. False when it
    /// still lives.
    pub(crate) fn wait_briefly(&mut self, patience: Duration) -> bool {
        let start = Instant::now();
        while start.elapsed() < patience {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// How a process ended, for people: `signal 11 (SIGSEGV)`, `exit code 3`.
pub(crate) fn describe(status: Option<ExitStatus>) -> String {
    let Some(status) = status else { return "it could not be waited for".into() };
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("signal {signal} ({})", signal_name(signal)),
        (None, Some(code)) => format!("exit code {code}"),
        (None, None) => "unknown status".into(),
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGILL => "SIGILL",
        libc::SIGKILL => "SIGKILL",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGTERM => "SIGTERM",
        _ => "see \"kill -l\"",
    }
}

#[expect(clippy::disallowed_methods, reason = "this module is where workers are spawned")]
fn command(executable: &Path) -> Command {
    let mut command = Command::new(executable);
    // What a worker prints before it dies is quoted in one line.
    command.env("RUST_BACKTRACE", "0");
    command
}

type Spawned = io::Result<Child>;
type Order = (Command, Sender<Spawned>);

/// Spawns on a thread that lives as long as the process: `PR_SET_PDEATHSIG` fires when the *thread* that forked ends.
fn spawn(command: Command) -> Spawned {
    static SPAWNER: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, receiver) = channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, reply) in receiver {
                let _ = reply.send(command.spawn());
            }
        });
        Mutex::new(sender)
    });
    let (reply, answer) = channel();
    let gone = |_| io::Error::other("the spawning thread is gone");
    let sent = spawner.lock().unwrap_or_else(PoisonError::into_inner).send((command, reply));
    sent.map_err(|_| io::Error::other("the spawning thread is gone"))?;
    answer.recv().map_err(gone)?
}

/// Runs in the child between fork and exec: only system calls.
fn before_exec(parent: libc::pid_t, address_space_bytes: Option<u64>, inherited: Option<RawFd>) -> io::Result<()> {
    if let Some(fd) = inherited {
        // The child's copy alone: other programs that this process starts do not get it.
        // SAFETY: a plain system call.
        if unsafe { libc::fcntl(fd, libc::F_SETFD, 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: a plain system call.
    let death = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    if death != 0 {
        return Err(io::Error::last_os_error());
    }
    // The parent may have died before the line above: then nobody would ever signal us.
    // SAFETY: a plain system call.
    if unsafe { libc::getppid() } != parent {
        return Err(io::Error::from_raw_os_error(libc::ECHILD));
    }
    limit(libc::RLIMIT_CORE, 0)?;
    if let Some(bytes) = address_space_bytes {
        limit(libc::RLIMIT_AS, bytes)?;
    }
    Ok(())
}

fn limit(resource: libc::__rlimit_resource_t, bytes: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: `limit` is a valid rlimit for the duration of the call.
    if unsafe { libc::setrlimit(resource, &raw const limit) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
