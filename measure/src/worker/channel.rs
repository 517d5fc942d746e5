//! The tuner's end of a worker: send a request, wait for events with a deadline and a memory cap, classify a death.

use std::os::fd::RawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use search_space::Outcome;

use super::frame::{self, Decoder};
use super::message::{Event, Request, Step};
use super::process::{self, Process};
use crate::device::Failure;

/// How often memory is looked at while waiting, in milliseconds.
const TICK_MS: u64 = 20;

/// How long a request may take.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// In total.
    Total(Duration),
    /// Between two signs of life; the worker's steps are bounded in number.
    PerStep(Duration),
}

/// Why a worker is given up.
#[derive(Debug)]
pub(crate) enum Cause {
    /// The deadline passed.
    Deadline(Duration),
    /// It uses more memory than allowed.
    Memory { used_bytes: u64, allowed_bytes: u64 },
    /// It closed its end of the pipe, usually by dying.
    Closed,
    /// It sent something that is no frame.
    BadFrame(frame::BadFrame),
    /// It sent an event that does not belong here.
    OutOfTurn,
    /// The pipe failed.
    Pipe(std::io::Error),
}

/// A worker that is gone.
#[derive(Debug)]
pub(crate) struct Lost {
    /// What that means for the candidate.
    pub(crate) failure: Failure,
    /// What the worker printed last.
    pub(crate) printed: String,
    /// Which entry of a final it was busy with.
    pub(crate) entry: Option<usize>,
}

impl Lost {
    /// The failure with everything the worker printed last.
    pub(crate) fn in_full(&self) -> String {
        if self.printed.is_empty() {
            self.failure.message.clone()
        } else {
            format!("{}; it printed: {}", self.failure.message, self.printed)
        }
    }
}

/// A worker process and the frames to and from it.
#[derive(Debug)]
pub(crate) struct Channel {
    process: Process,
    decoder: Decoder,
    memory_bytes: u64,
    step: Step,
    entry: Option<usize>,
    /// When the present request was sent, and when the last event came.
    asked: Instant,
    heard: Instant,
}

impl Channel {
    pub(crate) fn start(
        executable: &Path,
        args: &[String],
        address_space_bytes: Option<u64>,
        memory_bytes: u64,
        inherited: Option<RawFd>,
    ) -> std::io::Result<Channel> {
        let now = Instant::now();
        let process = Process::start(executable, args, address_space_bytes, inherited)?;
        Ok(Channel {
            process,
            decoder: Decoder::default(),
            memory_bytes,
            step: Step::Opening,
            entry: None,
            asked: now,
            heard: now,
        })
    }

    /// Sends a request. Requests are far smaller than a pipe's buffer and the worker reads them at once, so this does
    /// not block.
    pub(crate) fn send(&mut self, request: &Request) -> Result<(), Cause> {
        self.asked = Instant::now();
        self.heard = self.asked;
        self.step = Step::Starting;
        self.entry = None;
        frame::write(&mut self.process.stdin, request).map_err(Cause::Pipe)
    }

    /// The next event.
    pub(crate) fn next(&mut self, patience: Patience) -> Result<Event, Cause> {
        let mut buffer = [0u8; 16384];
        loop {
            if let Some(event) = self.decoder.next::<Event>().map_err(Cause::BadFrame)? {
                self.heard = Instant::now();
                if let Event::Progress { step, entry } = &event {
                    (self.step, self.entry) = (*step, *entry);
                }
                return Ok(event);
            }
            let (limit, since) = match patience {
                Patience::Total(limit) => (limit, self.asked),
                Patience::PerStep(limit) => (limit, self.heard),
            };
            let left = limit.checked_sub(since.elapsed()).ok_or(Cause::Deadline(limit))?;
            let tick = left.min(Duration::from_millis(TICK_MS)).as_millis().max(1);
            match self.process.read(&mut buffer, i32::try_from(tick).unwrap_or(1)).map_err(Cause::Pipe)? {
                Some(0) => return Err(Cause::Closed),
                Some(read) => self.decoder.push(&buffer[..read]),
                None => {
                    let used_bytes = self.process.resident_bytes().unwrap_or(0);
                    if used_bytes > self.memory_bytes {
                        return Err(Cause::Memory { used_bytes, allowed_bytes: self.memory_bytes });
                    }
                }
            }
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn is_bloated(&self) -> bool {
        self.process.resident_bytes().is_some_and(|used| used > self.memory_bytes / 2)
    }

    /// Kills the worker and says what its end means for the candidate.
    pub(crate) fn bury(mut self, cause: Cause) -> Lost {
        // The pipe closes an instant before the process is a zombie with its real status.
        let died =
            matches!(cause, Cause::Closed | Cause::Pipe(_)) && self.process.wait_briefly(Duration::from_millis(200));
        let (step, entry) = (self.step, self.entry);
        let (status, printed) = self.process.end();
        let failure = match cause {
            Cause::Deadline(limit) => {
                Failure::new(Outcome::Timeout, format!("killed after {:.1} s while {step}", limit.as_secs_f64()))
            }
            Cause::Memory { used_bytes, allowed_bytes } => Failure::new(
                Outcome::ResourceLimit,
                format!("killed while {step}: it used {} MiB of {} MiB", used_bytes >> 20, allowed_bytes >> 20),
            ),
            Cause::Closed | Cause::Pipe(_) if ran_out_of_memory(&printed) => Failure::new(
                Outcome::ResourceLimit,
                format!("out of memory while {step} ({} MiB allowed)", self.memory_bytes >> 20),
            ),
            Cause::Closed if !died => {
                Failure::new(Outcome::Crash, format!("killed while {step}: it closed the pipe to the tuner"))
            }
            Cause::Closed => {
                Failure::new(Outcome::Crash, format!("the worker died while {step}: {}", process::describe(status)))
            }
            Cause::Pipe(error) => Failure::new(
                Outcome::Crash,
                format!("the worker died while {step}: {} ({error})", process::describe(status)),
            ),
            Cause::BadFrame(bad) => Failure::new(Outcome::Crash, format!("killed while {step}: {bad}")),
            Cause::OutOfTurn => Failure::new(Outcome::Crash, format!("killed while {step}: it answered out of turn")),
        };
        Lost { failure, printed, entry }
    }
}

/// Whether the last words are those of a failed allocation: Rust's, C++'s, LLVM's.
fn ran_out_of_memory(printed: &str) -> bool {
    ["memory allocation of", "std::bad_alloc", "LLVM ERROR: out of memory"].iter().any(|words| printed.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker made of a shell script.
    fn shell(script: &str, address_space_bytes: Option<u64>) -> Channel {
        let args = ["-c".to_string(), script.to_string()];
        Channel::start(Path::new("/bin/sh"), &args, address_space_bytes, 100 << 20, None).unwrap()
    }

    /// What becomes of it.
    fn fate(script: &str, patience: Patience) -> Lost {
        let mut channel = shell(script, None);
        let cause = loop {
            if let Err(cause) = channel.next(patience) {
                break cause;
            }
        };
        channel.bury(cause)
    }

    const SHORT: Patience = Patience::Total(Duration::from_millis(300));
    const LONG: Patience = Patience::Total(Duration::from_secs(20));
    /// `{"Done":{"Blocks":[]}}` as a frame.
    const LOADED: &str = r#"printf '\026\000\000\000{"Done":{"Blocks":[]}}'"#;

    #[test]
    fn each_end_has_its_class() {
        let late = fate("sleep 30", SHORT).failure;
        assert_eq!(
            (late.outcome, late.message.as_str()),
            (Outcome::Timeout, "killed after 0.3 s while opening the device")
        );
        let gone = fate("exit 3", LONG).failure;
        assert_eq!(
            (gone.outcome, gone.message.as_str()),
            (Outcome::Crash, "the worker died while opening the device: exit code 3")
        );
        let abort = fate("kill -ABRT $$", LONG).failure;
        assert!(abort.outcome == Outcome::Crash && abort.message.ends_with("signal 6 (SIGABRT)"), "{abort}");
        let words = fate("echo 'terminate called after std::bad_alloc' >&2; kill -ABRT $$", LONG);
        assert_eq!(
            (words.failure.outcome, words.printed.as_str()),
            (Outcome::ResourceLimit, "terminate called after std::bad_alloc")
        );
        let closed = fate("exec 1>&-; sleep 30", LONG).failure;
        assert!(
            closed.outcome == Outcome::Crash && closed.message.ends_with("it closed the pipe to the tuner"),
            "{closed}"
        );
        let garbage = fate("echo hello, hello; sleep 30", LONG).failure;
        assert!(garbage.outcome == Outcome::Crash && garbage.message.contains("something else wrote"), "{garbage}");
    }

    #[test]
    fn memory_beyond_the_cap_is_seen_from_outside() {
        let lost = fate("x=$(head -c 300000000 /dev/zero | tr '\\0' a); sleep 30", LONG).failure;
        assert_eq!(lost.outcome, Outcome::ResourceLimit, "{lost}");
        assert!(lost.message.contains("of 100 MiB"), "{lost}");
    }

    #[test]
    fn signs_of_life_extend_only_the_patience_per_step() {
        let chatter = format!("while true; do {LOADED}; sleep 0.1; done");
        let start = Instant::now();
        assert_eq!(fate(&chatter, SHORT).failure.outcome, Outcome::Timeout);
        assert!(start.elapsed() < Duration::from_secs(10));
        let spoken = format!("for i in 1 2 3 4 5 6; do {LOADED}; sleep 0.1; done; sleep 30");
        let start = Instant::now();
        let patience = Patience::PerStep(Duration::from_millis(400));
        assert_eq!(fate(&spoken, patience).failure.outcome, Outcome::Timeout);
        assert!(start.elapsed() > Duration::from_millis(900));
    }

    #[test]
    fn what_is_printed_is_kept_in_bounds() {
        let lost = fate("head -c 50000000 /dev/zero | tr '\\0' a >&2; echo last words >&2", LONG);
        assert!(lost.printed.len() <= 16 << 10 && lost.printed.ends_with("last words"), "{}", lost.printed.len());
    }

    #[test]
    fn limits_are_set_before_the_worker_starts() {
        let script = "test $(ulimit -c) = 0 && test $(ulimit -v) = 204800 && exit 7";
        let mut channel = shell(script, Some(200 << 20));
        let cause = channel.next(LONG).unwrap_err();
        let lost = channel.bury(cause);
        assert!(lost.failure.message.ends_with("exit code 7"), "{}", lost.failure);
    }

    #[test]
    fn the_whole_process_group_dies() {
        let mut channel = shell("sleep 30 & echo $! >&2; wait", None);
        assert!(matches!(channel.next(SHORT), Err(Cause::Deadline(_))));
        let lost = channel.bury(Cause::OutOfTurn);
        let grandchild = format!("/proc/{}/exe", lost.printed);
        let start = Instant::now();
        while std::fs::read_link(&grandchild).is_ok() {
            assert!(start.elapsed() < Duration::from_secs(5), "a grandchild survived");
        }
    }
}
