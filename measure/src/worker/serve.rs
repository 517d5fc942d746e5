//! The worker's side: opens a device and answers requests until its tuner goes away.
//!
//! Drivers print to stdout. So the protocol moves to a private copy of the descriptor and whatever is written to
//! stdout goes to stderr, of which the tuner keeps the tail. A thread reads stdin all the time: at its end the process
//! leaves at once, even while a kernel hangs.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use search_space::{Schedule, Workload};

use super::frame::{self, Decoder};
use super::message::{EntryBlocks, Event, Reply, Request, ShelfAt, Step};
use crate::device::fixtures::FixtureDevice;
use crate::device::{
    After, Batch, CpuDevice, Device, DeviceSpec, Failure, Features, KernelInfo, Placement, VulkanDevice,
};
use crate::protocol::screen::{self, Source};
use crate::protocol::{Breakdown, Loading, Measured, ScreenOptions, block_orders};
use crate::verify::Suite;
use crate::verify::shelf::Shelf;

/// A launch of a final that lasts longer than this, in nanoseconds, is neither warmed up nor repeated.
const LONG_LAUNCH_NS: f64 = 1e7;

static PROTOCOL: AtomicI32 = AtomicI32::new(-1);

/// The descriptor that frames are written to; `-1` outside of a worker. For faults that spoil it.
pub(crate) fn protocol_fd() -> RawFd {
    PROTOCOL.load(Ordering::Relaxed)
}

/// Runs a worker on this process's stdin and stdout until stdin ends. What the hidden verb calls.
///
/// # Errors
///
/// When the pipes to the tuner fail. A device that does not open is told to the tuner.
pub fn serve(spec: &DeviceSpec) -> io::Result<()> {
    let (requests, out) = take_pipes()?;
    let requests = listen(requests);
    match spec {
        DeviceSpec::Cpu { threads, features } => answer(CpuDevice::open(*threads, features), &requests, out),
        DeviceSpec::Vulkan { index } => answer(VulkanDevice::open(*index), &requests, out),
        DeviceSpec::Fixture(rule) => {
            let device = CpuDevice::open(1, &Features::default());
            answer(device.map(|device| FixtureDevice::new(device, rule.clone())), &requests, out)
        }
    }
}

/// Private copies of the pipes; stdin becomes empty and stdout becomes stderr.
fn take_pipes() -> io::Result<(File, File)> {
    let requests = duplicate(io::stdin().as_raw_fd())?;
    let out = duplicate(io::stdout().as_raw_fd())?;
    let empty = File::open("/dev/null")?;
    replace(io::stdin().as_raw_fd(), empty.as_raw_fd())?;
    replace(io::stdout().as_raw_fd(), io::stderr().as_raw_fd())?;
    PROTOCOL.store(out.as_raw_fd(), Ordering::Relaxed);
    Ok((File::from(requests), File::from(out)))
}

fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: duplicates an open descriptor.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was made a moment ago and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

fn replace(fd: RawFd, by: RawFd) -> io::Result<()> {
    // SAFETY: both descriptors are open; `fd` is one of the standard ones, which nothing owns.
    if unsafe { libc::dup2(by, fd) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads requests on a thread; leaves the process when the tuner is gone or talks nonsense.
fn listen(mut pipe: File) -> Receiver<Request> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut decoder = Decoder::default();
        let mut buffer = [0u8; 16384];
        while let Ok(read @ 1..) = pipe.read(&mut buffer) {
            decoder.push(&buffer[..read]);
            loop {
                match decoder.next::<Request>() {
                    Ok(Some(request)) => {
                        let _ = sender.send(request);
                    }
                    Ok(None) => break,
                    Err(_) => leave(),
                }
            }
        }
        leave()
    });
    receiver
}

/// Ends the process without running destructors: a driver's may never return (a Vulkan device that hangs).
fn leave() -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) }
}

fn answer<D: Device>(device: Result<D, Failure>, requests: &Receiver<Request>, mut out: File) -> io::Result<()> {
    let device = match device {
        Ok(device) => device,
        Err(failure) => return frame::write(&mut out, &Event::Refused { message: failure.message }),
    };
    let identity = Box::new(device.identity().clone());
    frame::write(&mut out, &Event::Ready { identity })?;
    let mut worker = Session { device, out, requests, loaded: None };
    while let Ok(request) = requests.recv() {
        let reply = worker.handle(request)?;
        frame::write(&mut worker.out, &Event::Done(reply))?;
    }
    Ok(())
}

struct Session<'r, D: Device> {
    device: D,
    out: File,
    requests: &'r Receiver<Request>,
    loaded: Option<Loaded<D>>,
}

/// A workload with its checks and its memory.
struct Loaded<D: Device> {
    workload: Workload,
    suite: Suite,
    /// For checked runs.
    guarded: D::Memory,
    /// For timing; always holds the timing inputs.
    timed: D::Memory,
}

/// Result inside a session: the candidate's failure, or the pipe's.
type Step2<T> = io::Result<Result<T, Failure>>;

impl<D: Device> Session<'_, D> {
    fn handle(&mut self, request: Request) -> io::Result<Reply> {
        Ok(match request {
            Request::Load { workload, round, shelf } => {
                self.progress(Step::Loading, None)?;
                let start = Instant::now();
                // Before the shelf is opened for another workload: what is loaded may lie there.
                self.loaded = None;
                match load(&mut self.device, &workload, round, shelf) {
                    Ok(loaded) => {
                        let computing = self.loaded.insert(loaded).suite.computing();
                        Reply::Loaded(Loading {
                            total_ns: since(start),
                            spared_ns: nanos(computing.spared),
                            case_ns: nanos(computing.case),
                        })
                    }
                    Err(message) => Reply::Unverifiable(message),
                }
            }
            // It answers nothing: this one belongs to no candidate.
            Request::Go => leave(),
            Request::Measure { schedule, options } => Reply::Measured(Box::new(self.measure(&schedule, &options)?)),
            Request::Blocks { entries, blocks, seed, budget_ns } => {
                Reply::Blocks(self.blocks(&entries, blocks, seed, budget_ns)?)
            }
            Request::Hostile { schedule } => Reply::Checked(self.hostile(&schedule)?),
            Request::Peak => {
                self.progress(Step::Timing, None)?;
                Reply::Peak(self.device.peak())
            }
        })
    }

    fn progress(&mut self, step: Step, entry: Option<usize>) -> io::Result<()> {
        frame::write(&mut self.out, &Event::Progress { step, entry })
    }

    fn measure(&mut self, schedule: &Schedule, options: &ScreenOptions) -> io::Result<Measured> {
        let start = Instant::now();
        let mut breakdown = Breakdown::default();
        let mut info = KernelInfo::default();
        let result = self.try_measure(schedule, options, &mut breakdown, &mut info)?;
        let mut measured = result.unwrap_or_else(|failure| Measured::failed(failure.outcome, failure.message));
        breakdown.total_ns = since(start);
        measured.breakdown = breakdown;
        measured.kernel = info;
        Ok(measured)
    }

    fn try_measure(
        &mut self,
        schedule: &Schedule,
        options: &ScreenOptions,
        breakdown: &mut Breakdown,
        info: &mut KernelInfo,
    ) -> Step2<Measured> {
        if self.device.compiling_runs() {
            self.wait_for_go();
        }
        let start = Instant::now();
        let kernel = self.compile(schedule, None)?;
        breakdown.compile_ns = since(start);
        if !self.device.compiling_runs() {
            self.wait_for_go();
        }
        let mut kernel = match kernel {
            Ok(kernel) => kernel,
            Err(failure) => return Ok(Err(failure)),
        };
        *info = self.device.describe(&kernel);

        let start = Instant::now();
        let checked = self.check(&mut kernel, None)?;
        breakdown.verify_ns = since(start);
        // Some drivers compile at the first dispatch.
        *info = self.device.describe(&kernel);
        let first_ns = match checked {
            Ok(first_ns) => first_ns,
            Err(failure) => return Ok(Err(failure)),
        };

        self.progress(Step::Timing, None)?;
        let start = Instant::now();
        let timed = self.screen(&mut kernel, first_ns, options);
        breakdown.time_ns = since(start);
        Ok(timed)
    }

    fn screen(&mut self, kernel: &mut D::Kernel, first_ns: f64, options: &ScreenOptions) -> Result<Measured, Failure> {
        let (device, loaded) = parts(&mut self.device, &mut self.loaded);
        let prepack_ns = device.prepack(kernel, &mut loaded.timed)?;
        let min_batch_ns = device.min_batch_ns();
        let mut source = Timed { device, kernel, memory: &mut loaded.timed, after: options.after };
        let screened = screen::screen(&mut source, first_ns, min_batch_ns, options)?;
        Ok(Measured {
            outcome: search_space::Outcome::Ok,
            samples_ns: screened.samples_ns,
            control_ns: screened.control_ns,
            censored_at_least_ns: screened.censored_at_least_ns,
            prepack_ns,
            disturbed: screened.disturbed,
            kernel: KernelInfo::default(),
            breakdown: Breakdown::default(),
            message: None,
        })
    }

    /// Waits until the tuner has saved that the candidate is about to run.
    fn wait_for_go(&self) {
        if !matches!(self.requests.recv(), Ok(Request::Go)) {
            leave();
        }
    }

    fn compile(&mut self, schedule: &Schedule, entry: Option<usize>) -> Step2<D::Kernel> {
        self.progress(Step::Compiling, entry)?;
        let (device, loaded) = parts(&mut self.device, &mut self.loaded);
        Ok(device.compile(&loaded.workload, schedule))
    }

    fn check(&mut self, kernel: &mut D::Kernel, entry: Option<usize>) -> Step2<f64> {
        self.progress(Step::Verifying, entry)?;
        let (device, loaded) = parts(&mut self.device, &mut self.loaded);
        Ok(loaded.suite.check(device, kernel, &mut loaded.guarded))
    }

    fn hostile(&mut self, schedule: &Schedule) -> io::Result<Result<KernelInfo, Failure>> {
        let mut kernel = match self.compile(schedule, None)? {
            Ok(kernel) => kernel,
            Err(failure) => return Ok(Err(failure)),
        };
        if let Err(failure) = self.check(&mut kernel, None)? {
            return Ok(Err(failure));
        }
        let (device, loaded) = parts(&mut self.device, &mut self.loaded);
        let checked = loaded.suite.check_hostile(device, &mut kernel, &mut loaded.guarded);
        Ok(checked.map(|()| device.describe(&kernel)))
    }

    /// Everything compiled and verified first, then one batch of each entry per block.
    fn blocks(
        &mut self,
        entries: &[(usize, Schedule)],
        blocks: u32,
        seed: u64,
        budget_ns: f64,
    ) -> io::Result<Vec<EntryBlocks>> {
        let mut timed: Vec<EntryBlocks> = Vec::new();
        let mut kernels: Vec<(usize, D::Kernel, f64)> = Vec::new();
        for (slot, (entry, schedule)) in entries.iter().enumerate() {
            let ready = self.ready(schedule, *entry)?;
            let kernel = match ready {
                Ok((kernel, launch_ns)) => {
                    let info = self.device.describe(&kernel);
                    kernels.push((slot, kernel, launch_ns));
                    Ok(info)
                }
                Err(failure) => Err(failure),
            };
            timed.push(EntryBlocks { entry: *entry, kernel, samples_ns: Vec::new(), read_ns: Vec::new() });
        }
        // Where one entry leaves its outputs outside of the caches, what that costs their reader counts too.
        let read = timed.iter().any(|entry| entry.kernel.as_ref().is_ok_and(|kernel| kernel.streams));
        let afters: &[After] = if read { &[After::Nothing, After::ReadOutputs] } else { &[After::Nothing] };
        // Longer batches than in screening: they decide.
        let min_batch_ns = 4.0 * self.device.min_batch_ns();
        let batches: Vec<u32> = kernels.iter().map(|(_, _, ns)| screen::launches_for(min_batch_ns, *ns)).collect();
        let warm = |ns: f64| u32::from(ns < LONG_LAUNCH_NS);
        let block_ns: f64 =
            kernels.iter().zip(&batches).map(|((_, _, ns), launches)| ns * f64::from(launches + warm(*ns))).sum();
        let block_ns = block_ns * if read { 2.5 } else { 1.0 };
        let affordable = (1..=blocks).rev().find(|blocks| f64::from(*blocks) * block_ns <= budget_ns).unwrap_or(0);
        let blocks = affordable.clamp(blocks.min(8), blocks.max(1));
        for order in block_orders(kernels.len(), blocks, seed) {
            for position in order {
                let (slot, kernel, launch_ns) = &mut kernels[position];
                if timed[*slot].kernel.is_err() {
                    continue;
                }
                let entry = Some(timed[*slot].entry);
                frame::write(&mut self.out, &Event::Progress { step: Step::Timing, entry })?;
                let (device, loaded) = parts(&mut self.device, &mut self.loaded);
                for after in afters {
                    let mut source = Timed { device, kernel, memory: &mut loaded.timed, after: *after };
                    // One launch brings the kernel's code and workspace back into the caches after another entry ran. One
                    // that lasts longer needs no such help, and is never undisturbed on a busy machine.
                    let long = warm(*launch_ns) == 0;
                    let warmed = if long { Ok(()) } else { source.batch(1).map(|_| ()) };
                    let repeats = if long { 0 } else { 3 };
                    let batch =
                        warmed.and_then(|()| screen::undisturbed(&mut source, batches[position], repeats, &mut 0.0));
                    let one = &mut timed[*slot];
                    let samples = if *after == After::Nothing { &mut one.samples_ns } else { &mut one.read_ns };
                    match batch {
                        Ok(batch) => samples.push(batch.ns / f64::from(batches[position])),
                        Err(failure) => {
                            one.kernel = Err(failure);
                            break;
                        }
                    }
                }
            }
        }
        Ok(timed)
    }

    /// Compiles and verifies an entry and warms it up; gives the time of one launch.
    fn ready(&mut self, schedule: &Schedule, entry: usize) -> Step2<(D::Kernel, f64)> {
        let mut kernel = match self.compile(schedule, Some(entry))? {
            Ok(kernel) => kernel,
            Err(failure) => return Ok(Err(failure)),
        };
        let first_ns = match self.check(&mut kernel, Some(entry))? {
            Ok(first_ns) => first_ns,
            Err(failure) => return Ok(Err(failure)),
        };
        self.progress(Step::Timing, Some(entry))?;
        let (device, loaded) = parts(&mut self.device, &mut self.loaded);
        let warmed = device.prepack(&mut kernel, &mut loaded.timed).and_then(|_| {
            let mut launch_ns = first_ns;
            for _ in 0..2 {
                let launches = screen::launches_for(device.min_batch_ns(), launch_ns);
                launch_ns = device.time_batch(&mut kernel, &mut loaded.timed, launches, After::Nothing)?.ns
                    / f64::from(launches);
            }
            Ok(launch_ns)
        });
        Ok(warmed.map(|launch_ns| (kernel, launch_ns)))
    }
}

fn parts<'a, D: Device>(device: &'a mut D, loaded: &'a mut Option<Loaded<D>>) -> (&'a mut D, &'a mut Loaded<D>) {
    (device, loaded.as_mut().expect("invariant: the tuner loads a workload before it asks about it"))
}

fn load<D: Device>(device: &mut D, key: &str, round: u64, shelf: Option<ShelfAt>) -> Result<Loaded<D>, String> {
    let workload = Workload::parse_key(key).map_err(|error| error.to_string())?;
    let open = |at: ShelfAt| Some(Shelf::open(File::from(duplicate(at.fd).ok()?), key, at.most_bytes));
    let suite = Suite::with_shelf(&workload, shelf.and_then(open))?;
    let guarded = device.allocate(&workload, Placement::Guarded).map_err(|failure| failure.to_string())?;
    let mut timed = device.allocate(&workload, Placement::Plain { round }).map_err(|failure| failure.to_string())?;
    suite.timing_inputs().write(device, &mut timed).map_err(|failure| failure.to_string())?;
    Ok(Loaded { workload, suite, guarded, timed })
}

/// A kernel with the memory it is timed on.
struct Timed<'a, D: Device> {
    device: &'a mut D,
    kernel: &'a mut D::Kernel,
    memory: &'a mut D::Memory,
    after: After,
}

impl<D: Device> Source for Timed<'_, D> {
    type Error = Failure;

    fn batch(&mut self, launches: u32) -> Result<Batch, Failure> {
        self.device.time_batch(self.kernel, self.memory, launches, self.after)
    }

    fn control(&mut self) -> Option<f64> {
        self.device.control()
    }
}

fn since(start: Instant) -> u64 {
    nanos(start.elapsed())
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
