//! The tuner's side of a device: one worker at a time, replaced when a candidate takes it down.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use search_space::{Outcome, Schedule, Workload};

use crate::Error;
use crate::device::{DeviceSpec, Failure, Identity, KernelInfo};
use crate::peak::Peak;
use crate::protocol::finals::{self, Entry, Stage};
use crate::protocol::{Finalist, FinalistRole, Finals, FinalsOptions, Loading, Measured, ScreenOptions};
use crate::resource::Resource;
use crate::worker::message::{EntryBlocks, Reply, Request, ShelfAt};
use crate::worker::{Lost, Patience, Worker, WorkerOptions};

/// An open device.
///
/// All methods take the device's physical resource for as long as the worker is busy, so handles of the CPU and of a
/// software Vulkan device, in this process or another, wait for each other.
#[derive(Debug)]
pub struct DeviceHandle {
    spec: DeviceSpec,
    options: WorkerOptions,
    identity: Identity,
    worker: Option<Worker>,
    /// Key of the workload the present worker has loaded.
    loaded: Option<String>,
    resource: Resource,
    /// Where each worker leaves what it computed for the next one; `None` where the system has no such files.
    shelf: Option<OwnedFd>,
    /// What the last request spent on loading its workload.
    loading: Loading,
    /// How long the last request waited for the resource.
    waited: Duration,
    /// Workers started so far.
    started: u32,
    /// Failures since the last success.
    failures: u32,
    /// Classes of failure that were already shown in full.
    shown: BTreeSet<Outcome>,
}

impl DeviceHandle {
    /// Starts a worker and opens the device in it.
    ///
    /// # Errors
    ///
    /// [`Error::Spawn`] when the worker cannot be started, [`Error::Open`] when the device does not open.
    pub fn open(spec: &DeviceSpec, options: WorkerOptions) -> Result<DeviceHandle, Error> {
        let shelf = memory_file();
        let worker = Worker::start(spec, &options, shelf.as_ref().map(AsFd::as_fd))?;
        let resource = Resource::open(&worker.identity.resource)?;
        Ok(DeviceHandle {
            spec: spec.clone(),
            options,
            identity: worker.identity.clone(),
            worker: Some(worker),
            loaded: None,
            resource,
            shelf,
            loading: Loading::default(),
            waited: Duration::ZERO,
            started: 1,
            failures: 0,
            shown: BTreeSet::new(),
        })
    }

    /// Which device this is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// How the device was named.
    pub fn spec(&self) -> &DeviceSpec {
        &self.spec
    }

    /// How often a worker was replaced.
    pub fn restarts(&self) -> u32 {
        self.started - 1
    }

    /// Process id of the present worker; `None` between two workers.
    pub fn worker_id(&self) -> Option<u32> {
        self.worker.as_ref().map(Worker::id)
    }

    /// Compiles, verifies and screens one candidate.
    ///
    /// A candidate that fails, hangs or crashes is a [`Measured`] with that outcome; it costs at most
    /// [`WorkerOptions::timeout`] and one restart.
    ///
    /// # Errors
    ///
    /// [`Error::GivenUp`] after too many failures in a row, [`Error::Unverifiable`], [`Error::ResourceBusy`], and
    /// [`Error::Spawn`] or [`Error::Open`] when no worker can be started any more.
    pub fn measure(
        &mut self,
        workload: &Workload,
        schedule: &Schedule,
        options: &ScreenOptions,
    ) -> Result<Measured, Error> {
        self.measure_when(workload, schedule, options, &mut || true)
    }

    /// As [`DeviceHandle::measure`], but the kernel runs only after `go` gave true: what must be saved before a
    /// candidate runs is saved while it is compiled.
    ///
    /// # Errors
    ///
    /// [`Error::Withheld`] when `go` gave false; then the candidate was not run.
    pub fn measure_when(
        &mut self,
        workload: &Workload,
        schedule: &Schedule,
        options: &ScreenOptions,
        go: &mut dyn FnMut() -> bool,
    ) -> Result<Measured, Error> {
        let start = Instant::now();
        let request = Request::Measure { schedule: schedule.clone(), options: options.clone() };
        let patience = Patience::Total(self.options.timeout);
        let mut measured = match self.ask_when(workload, &request, patience, Some(go))? {
            Ok(Reply::Measured(measured)) => *measured,
            Ok(_) => Measured::failed(Outcome::Crash, "the worker answered another question"),
            Err(lost) => self.lost_candidate(&lost)?,
        };
        if measured.outcome != Outcome::Ok && self.shown.insert(measured.outcome) {
            tracing::warn!(outcome = %measured.outcome, %schedule, message = measured.message.as_deref().unwrap_or(""),
                "first candidate that failed in this way");
        }
        measured.breakdown.loading = self.loading;
        measured.breakdown.wait_ns = nanos(self.waited);
        measured.breakdown.round_trip_ns = nanos(start.elapsed().saturating_sub(self.waited));
        Ok(measured)
    }

    /// Runs every check there is on one candidate: also hostile inputs and a second run for equal bits.
    ///
    /// # Errors
    ///
    /// As [`DeviceHandle::measure`].
    pub fn hostile(&mut self, workload: &Workload, schedule: &Schedule) -> Result<Result<KernelInfo, Failure>, Error> {
        let request = Request::Hostile { schedule: schedule.clone() };
        match self.ask(workload, &request, Patience::PerStep(self.options.timeout))? {
            Ok(Reply::Checked(result)) => Ok(result),
            Ok(_) => Ok(Err(Failure::new(Outcome::Crash, "the worker answered another question"))),
            Err(lost) => {
                self.count_failure(&lost.in_full())?;
                Ok(Err(lost.failure))
            }
        }
    }

    /// Compares the best candidates with the default, and with an incumbent, in fresh workers.
    ///
    /// One worker chooses among all entries; others compare the chosen one with the default, so that luck in the
    /// choice does not flatter the result (see [`protocol::finals`](crate::protocol::finals)). The chosen entry passes
    /// the hostile check or another is chosen.
    ///
    /// # Errors
    ///
    /// As [`DeviceHandle::measure`].
    pub fn finals(
        &mut self,
        workload: &Workload,
        candidates: &[Schedule],
        default: &Schedule,
        incumbent: Option<&Schedule>,
        options: &FinalsOptions,
    ) -> Result<Finals, Error> {
        let entrants = candidates
            .iter()
            .map(|schedule| (FinalistRole::Candidate, schedule))
            .chain([(FinalistRole::Default, default)])
            .chain(incumbent.map(|schedule| (FinalistRole::Incumbent, schedule)));
        let entries = entrants.map(|(role, schedule)| Finalist::new(role, schedule.clone())).collect();
        let mut arena = Arena { device: self, workload };
        finals::decide(entries, &mut arena, options)
    }

    /// Measures the roofline, next to the run it is compared with.
    ///
    /// # Errors
    ///
    /// As [`DeviceHandle::measure`].
    pub fn peak(&mut self) -> Result<Result<Peak, Failure>, Error> {
        let _held = self.resource.hold(self.options.resource_timeout)?;
        let worker = self.worker()?;
        match worker.call(&Request::Peak, Patience::Total(self.options.timeout)) {
            Ok((worker, Reply::Peak(peak))) => {
                self.worker = Some(worker);
                Ok(peak)
            }
            Ok((_, _)) => Ok(Err(Failure::new(Outcome::Crash, "the worker answered another question"))),
            Err(lost) => {
                self.count_failure(&lost.in_full())?;
                Ok(Err(lost.failure))
            }
        }
    }

    /// Asks the worker about `workload`, loading it first where needed. The inner `Err` is a worker that was lost.
    fn ask(
        &mut self,
        workload: &Workload,
        request: &Request,
        patience: Patience,
    ) -> Result<Result<Reply, Box<Lost>>, Error> {
        self.ask_when(workload, request, patience, None)
    }

    /// As [`DeviceHandle::ask`]; with `go`, the request waits in the worker until `go` gave true.
    fn ask_when(
        &mut self,
        workload: &Workload,
        request: &Request,
        patience: Patience,
        go: Option<&mut dyn FnMut() -> bool>,
    ) -> Result<Result<Reply, Box<Lost>>, Error> {
        let start = Instant::now();
        let _held = self.resource.hold(self.options.resource_timeout)?;
        self.waited = start.elapsed();
        self.loading = Loading::default();
        if self.worker.as_ref().is_some_and(Worker::is_bloated) {
            tracing::debug!(device = %self.spec, "replacing a worker that grew");
            self.retire();
        }
        let mut worker = self.worker()?;
        let key = workload.key();
        if self.loaded.as_deref() != Some(&key) {
            let shelf = self.shelf.as_ref().map(AsRawFd::as_raw_fd);
            let shelf = shelf.map(|fd| ShelfAt { fd, most_bytes: self.options.shelf_bytes });
            let load = Request::Load { workload: key.clone(), round: u64::from(self.started), shelf };
            match worker.call(&load, Patience::Total(self.options.load_timeout)) {
                Ok((loaded, Reply::Loaded(loading))) => {
                    worker = loaded;
                    tracing::debug!(device = %self.spec, ?loading, waited = ?self.waited, "loaded a workload");
                    self.loading = loading;
                }
                Ok((loaded, reply)) => {
                    self.worker = Some(loaded);
                    let message = match reply {
                        Reply::Unverifiable(message) => message,
                        _ => "the worker answered another question".into(),
                    };
                    return Err(Error::Unverifiable { workload: key, message });
                }
                Err(lost) => return Err(Error::Unverifiable { workload: key, message: lost.in_full() }),
            }
            self.loaded = Some(key);
        }
        let answer = match go {
            None => worker.call(request, patience),
            Some(go) => {
                let sent = worker.send(request);
                // Saved even when the worker is lost already: the candidate's end is saved after it.
                if !go() {
                    return Err(Error::Withheld);
                }
                sent.and_then(|worker| worker.call(&Request::Go, patience))
            }
        };
        Ok(match answer {
            Ok((worker, reply)) => {
                match reply.device_is_gone() {
                    // The worker lives, its device does not: the next candidate gets a fresh one.
                    Some(failure) => {
                        drop(worker);
                        self.count_failure(&failure.message)?;
                    }
                    None => {
                        self.worker = Some(worker);
                        self.failures = 0;
                    }
                }
                Ok(reply)
            }
            Err(lost) => Err(lost),
        })
    }

    /// Takes the present worker, or starts one.
    fn worker(&mut self) -> Result<Worker, Error> {
        if let Some(worker) = self.worker.take() {
            return Ok(worker);
        }
        self.loaded = None;
        let worker = Worker::start(&self.spec, &self.options, self.shelf.as_ref().map(AsFd::as_fd))?;
        self.started += 1;
        Ok(worker)
    }

    /// Ends the present worker; the next request starts a fresh one.
    fn retire(&mut self) {
        self.worker = None;
        self.loaded = None;
    }

    /// What a lost worker means for the candidate: the first of each class with everything that was printed.
    fn lost_candidate(&mut self, lost: &Lost) -> Result<Measured, Error> {
        self.count_failure(&lost.in_full())?;
        let outcome = lost.failure.outcome;
        let message = if self.shown.contains(&outcome) { lost.failure.message.clone() } else { lost.in_full() };
        Ok(Measured::failed(outcome, message))
    }

    fn count_failure(&mut self, message: &str) -> Result<(), Error> {
        self.failures += 1;
        if self.failures < self.options.give_up_after {
            return Ok(());
        }
        Err(Error::GivenUp { device: self.spec.to_string(), failures: self.failures, last: message.into() })
    }
}

/// A device as the final sees it.
struct Arena<'a> {
    device: &'a mut DeviceHandle,
    workload: &'a Workload,
}

impl Stage for Arena<'_> {
    type Error = Error;

    fn fresh(&mut self) {
        self.device.retire();
    }

    fn blocks(
        &mut self,
        entries: &[Entry<'_>],
        blocks: u32,
        seed: u64,
        budget_s: f64,
    ) -> Result<Result<Vec<EntryBlocks>, (Option<usize>, Failure)>, Error> {
        let request = Request::Blocks {
            entries: entries.iter().map(|entry| (entry.position, entry.schedule.clone())).collect(),
            blocks,
            seed,
            budget_ns: budget_s * 1e9,
        };
        let patience = Patience::PerStep(self.device.options.timeout);
        match self.device.ask(self.workload, &request, patience)? {
            Ok(Reply::Blocks(blocks)) => Ok(Ok(blocks)),
            Ok(_) => Ok(Err((None, Failure::new(Outcome::Crash, "the worker answered another question")))),
            Err(lost) => {
                self.device.count_failure(&lost.in_full())?;
                Ok(Err((lost.entry, lost.failure)))
            }
        }
    }

    fn hostile(&mut self, schedule: &Schedule) -> Result<Result<(), Failure>, Error> {
        Ok(self.device.hostile(self.workload, schedule)?.map(|_| ()))
    }
}

/// A file that lives in memory, has no name, and goes when the last process that has it open does.
fn memory_file() -> Option<OwnedFd> {
    // SAFETY: a plain system call with a valid string.
    let fd = unsafe { libc::memfd_create(c"tilewright-cases".as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: the descriptor was made a moment ago and nobody else owns it.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
