//! A persistent worker process per device, and how it is asked, timed out, killed and replaced.
//!
//! The executable re-executes itself with a hidden verb; [`serve`] is what that verb runs. Requests and events are
//! frames over stdin and stdout. Isolation per candidate would cost a process start each (eleven times slower,
//! pytorch#96729), so a worker lives until a candidate hangs or crashes it.

mod channel;
mod frame;
pub(crate) mod message;
mod process;
mod serve;

use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use crate::Error;
use crate::device::{DeviceSpec, Identity};
use channel::Channel;
pub(crate) use channel::{Lost, Patience};
use message::{Event, Reply, Request};
pub(crate) use serve::protocol_fd;
pub use serve::serve;

/// How workers are started and how patient the tuner is with them.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// The program; `None` for the running executable.
    pub executable: Option<PathBuf>,
    /// Its first arguments; `--device SPEC` follows.
    pub args: Vec<String>,
    /// Most time for one candidate: compiling, checking, timing. Then the worker is killed.
    pub timeout: Duration,
    /// Most time for starting and opening the device.
    pub open_timeout: Duration,
    /// Most time for computing the expected outputs of a workload.
    pub load_timeout: Duration,
    /// Most time to wait for another process that uses the same resource.
    pub resource_timeout: Duration,
    /// Most resident memory of a worker in bytes; on the CPU also the most address space. Beyond that the candidate is
    /// a `resource_limit`.
    pub memory_bytes: u64,
    /// Most memory for what the workers of a device leave each other: inputs and expected outputs of one workload. Where
    /// that is not enough, every worker computes the rest anew.
    pub shelf_bytes: u64,
    /// The device is given up after this many failures without a success in between.
    pub give_up_after: u32,
}

impl Default for WorkerOptions {
    fn default() -> WorkerOptions {
        WorkerOptions {
            executable: None,
            args: vec!["worker".into()],
            timeout: Duration::from_secs(10),
            open_timeout: Duration::from_secs(30),
            load_timeout: Duration::from_secs(120),
            resource_timeout: Duration::from_secs(600),
            memory_bytes: 8 << 30,
            shelf_bytes: 2 << 30,
            give_up_after: 20,
        }
    }
}

/// A worker process with its device open.
#[derive(Debug)]
pub(crate) struct Worker {
    channel: Channel,
    /// The device.
    pub(crate) identity: Identity,
}

impl Worker {
    /// Starts a worker and waits until its device is open.
    /// The worker inherits `shelf` under the same number.
    pub(crate) fn start(
        spec: &DeviceSpec,
        options: &WorkerOptions,
        shelf: Option<BorrowedFd<'_>>,
    ) -> Result<Worker, Error> {
        let device = spec.to_string();
        // `/proc/self/exe` still names the running program after it was replaced on disk.
        let executable = options.executable.clone().unwrap_or_else(|| PathBuf::from("/proc/self/exe"));
        let mut args = options.args.clone();
        args.extend(["--device".to_string(), device.clone()]);
        // Drivers of real GPUs reserve far more address space than memory, so only the CPU's is capped.
        let capped = matches!(spec, DeviceSpec::Cpu { .. } | DeviceSpec::Fixture(_));
        let address_space = capped.then_some(options.memory_bytes);
        let inherited = shelf.map(|shelf| shelf.as_raw_fd());
        let mut channel = Channel::start(&executable, &args, address_space, options.memory_bytes, inherited)
            .map_err(|source| Error::Spawn { device: device.clone(), executable, source })?;
        match channel.next(Patience::Total(options.open_timeout)) {
            Ok(Event::Ready { identity }) => Ok(Worker { channel, identity: *identity }),
            Ok(Event::Refused { message }) => Err(Error::Open { device, message }),
            Ok(_) => Err(Error::Open { device, message: "the worker speaks another protocol".into() }),
            Err(cause) => Err(Error::Open { device, message: channel.bury(cause).in_full() }),
        }
    }

    /// Sends one request. On `Err` the worker is dead.
    pub(crate) fn send(mut self, request: &Request) -> Result<Worker, Box<Lost>> {
        match self.channel.send(request) {
            Ok(()) => Ok(self),
            Err(cause) => Err(Box::new(self.channel.bury(cause))),
        }
    }

    /// Sends one request and waits for its reply. On `Err` the worker is dead.
    pub(crate) fn call(self, request: &Request, patience: Patience) -> Result<(Worker, Reply), Box<Lost>> {
        let mut worker = self.send(request)?;
        loop {
            match worker.channel.next(patience) {
                Ok(Event::Done(reply)) => return Ok((worker, reply)),
                Ok(Event::Progress { .. }) => {}
                Ok(Event::Ready { .. } | Event::Refused { .. }) => {
                    return Err(Box::new(worker.channel.bury(channel::Cause::OutOfTurn)));
                }
                Err(cause) => return Err(Box::new(worker.channel.bury(cause))),
            }
        }
    }

    /// The worker's process id.
    pub(crate) fn id(&self) -> u32 {
        self.channel.id()
    }

    /// Whether the worker's resident memory grew beyond half of what it may use: then a fresh one is due, before an
    /// innocent candidate pays for a leak.
    pub(crate) fn is_bloated(&self) -> bool {
        self.channel.is_bloated()
    }
}
