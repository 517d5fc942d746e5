//! Threads that run a kernel together. The caller is core 0; the others spin for a moment between launches, then
//! sleep, so that launches in a row cost no system call and an idle worker costs no processor. Probes of the peak run on
//! the same threads.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{JoinHandle, Thread};

use codegen::emit::llvm::Compiled;

use super::host;
use super::memory::Region;
use crate::peak::Crew;

/// How often a thread looks for work before it sleeps: some 50 µs.
const SPINS: u32 = 20_000;

/// One launch.
#[derive(Clone, Copy)]
pub(super) struct Job<'a> {
    pub(super) compiled: &'a Compiled,
    pub(super) kernel: usize,
    pub(super) buffers: &'a [*mut u8],
    /// One block per thread.
    pub(super) scratch: &'a [Region],
    /// Calls in all: as many as threads, or more when the work is cut into shares.
    pub(super) calls: u64,
}

/// What the threads do together.
#[derive(Clone, Copy)]
enum Task<'a> {
    /// Run a kernel.
    Launch(Job<'a>),
    /// Call a function, each with its number.
    Call(&'a (dyn Fn(usize) + Sync)),
}

/// A team of threads, the caller included.
#[derive(Debug)]
pub(super) struct Pool {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
}

struct Shared {
    /// Raised once per task; helpers take part when they see a new value.
    launch: AtomicU64,
    /// Helpers that have not finished the task.
    busy: AtomicUsize,
    /// The call that the next free thread makes.
    next: AtomicU64,
    stop: AtomicBool,
    task: UnsafeCell<Option<Task<'static>>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

// SAFETY: `task` is written only while no helper is busy, before `launch` is raised (release); helpers read it after
// they saw the raise (acquire) and before they lower `busy` (release), which the writer awaits (acquire). The kernel's
// cores touch disjoint parts of the buffers.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Pool {
    /// A pool with one helper pinned to each of `processors`.
    pub(super) fn new(processors: &[usize]) -> Pool {
        let shared = Arc::new(Shared {
            launch: AtomicU64::new(0),
            busy: AtomicUsize::new(0),
            next: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            task: UnsafeCell::new(None),
        });
        let helpers = (1u64..)
            .zip(processors)
            .map(|(core, processor)| {
                let (shared, processor) = (Arc::clone(&shared), *processor);
                std::thread::spawn(move || {
                    host::pin(processor);
                    help(&shared, core);
                })
            })
            .collect();
        Pool { shared, helpers }
    }

    /// Threads, the caller included.
    pub(super) fn threads(&self) -> u64 {
        1 + self.helpers.len() as u64
    }

    /// Runs a kernel on all threads and waits for all.
    pub(super) fn run(&self, job: Job<'_>) {
        if self.helpers.is_empty() {
            call(&job, 0, 0, 1);
            return;
        }
        self.together(Task::Launch(Job { calls: job.calls.max(self.threads()), ..job }));
    }

    /// Has all threads take part in a task and waits for all.
    fn together(&self, task: Task<'_>) {
        self.shared.next.store(0, Ordering::Relaxed);
        // SAFETY: only the lifetime changes; all helpers are done with the task before this function returns.
        let lasting: Task<'static> = unsafe { std::mem::transmute(task) };
        // SAFETY: no helper is busy, see `Sync`.
        unsafe { *self.shared.task.get() = Some(lasting) };
        self.shared.busy.store(self.helpers.len(), Ordering::Release);
        self.shared.launch.fetch_add(1, Ordering::Release);
        // Unparking a thread that is awake is cheap, and one that is about to sleep wakes at once.
        self.helpers.iter().map(JoinHandle::thread).for_each(Thread::unpark);
        take_part(&self.shared, &task, 0);
        while self.shared.busy.load(Ordering::Acquire) > 0 {
            std::hint::spin_loop();
        }
    }
}

impl Crew for Pool {
    fn threads(&self) -> usize {
        1 + self.helpers.len()
    }

    fn each(&self, work: &(dyn Fn(usize) + Sync)) {
        self.together(Task::Call(work));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        for helper in self.helpers.drain(..) {
            helper.thread().unpark();
            let _ = helper.join();
        }
    }
}

fn help(shared: &Shared, core: u64) {
    let mut seen = 0;
    let mut idle = 0;
    while !shared.stop.load(Ordering::Acquire) {
        let launch = shared.launch.load(Ordering::Acquire);
        if launch == seen {
            idle += 1;
            if idle < SPINS {
                std::hint::spin_loop()
            } else {
                std::thread::park()
            }
            continue;
        }
        (seen, idle) = (launch, 0);
        // SAFETY: the caller waits for `busy` before it writes the task again, see `Sync`.
        if let Some(task) = unsafe { *shared.task.get() } {
            take_part(shared, &task, core);
        }
        shared.busy.fetch_sub(1, Ordering::Release);
    }
}

/// One thread's part of a task; of a launch its own call, or the next share until none is left.
fn take_part(shared: &Shared, task: &Task<'_>, thread: u64) {
    let job = match task {
        Task::Launch(job) => job,
        Task::Call(work) => return work(usize::try_from(thread).expect("invariant: threads are few")),
    };
    if job.calls == job.scratch.len() as u64 {
        return call(job, thread, thread, job.calls);
    }
    loop {
        let share = shared.next.fetch_add(1, Ordering::Relaxed);
        if share >= job.calls {
            return;
        }
        call(job, thread, share, job.calls);
    }
}

fn call(job: &Job<'_>, thread: u64, core: u64, cores: u64) {
    let scratch = usize::try_from(thread).ok().and_then(|thread| job.scratch.get(thread));
    let scratch = scratch.expect("invariant: there is one scratch block per thread").start();
    // SAFETY: `CpuDevice::launch` checked that every buffer holds what the kernel asks for; operands and workspace are
    // separate mappings, aligned as the workload promises; scratch is this core's own; the code was compiled for this
    // host. Whether the generated code keeps inside is what verification, guard pages and the worker process are for.
    unsafe { job.compiled.call(job.kernel, job.buffers, core, cores, scratch) };
}
