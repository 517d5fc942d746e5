//! The one writer of a file: a thread that commits what others hand in, in groups.
//!
//! A group is everything handed in since the last commit. It is committed at once when somebody waits for part of it,
//! and otherwise at most [`WriterOptions::group`] after its first row. A [`Ticket`] is answered only after the commit
//! reached the disk (`synchronous=FULL`), so what was reported as saved survives a killed process. A [`Batch`] is
//! committed whole or not at all: an observation and the event that tells the search of it stay together.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::commit::Committer;
use crate::lock::{WriterLock, beside};
use crate::rows::{Candidate, Event, Observation, Peak, Session, Verdict};
use crate::{DbError, Id, open};

/// Called in the writer's thread with the id and content of each observation, after it was committed.
pub type OnSaved = Box<dyn FnMut(Id, &Observation) + Send>;

/// How a writer works. `WriterOptions::default()` is right for a tuner.
pub struct WriterOptions {
    /// Longest time a row waits for company before it is committed. At most 100 ms.
    pub group: Duration,
    /// How long to wait for another writer of the same file to finish before giving up with [`DbError::Busy`].
    pub patience: Duration,
    /// Largest size of the file in bytes; reaching it is reported as [`DbError::Full`].
    pub max_bytes: Option<u64>,
    /// Where committed observations are reported: a trial is counted and shown from here.
    pub on_saved: Option<OnSaved>,
}

impl Default for WriterOptions {
    fn default() -> Self {
        WriterOptions { group: LONGEST_GROUP, patience: Duration::ZERO, max_bytes: None, on_saved: None }
    }
}

const LONGEST_GROUP: Duration = Duration::from_millis(100);

/// Rows that are committed together or not at all.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub(crate) changes: Vec<Change>,
}

#[derive(Clone, Debug)]
pub(crate) enum Change {
    Observation(Box<Observation>),
    Verdict(Box<Verdict>),
    Session(Session),
    Event(Event),
    AboutToRun { candidate: Candidate, session: Option<String>, now_s: u64 },
    Release(Candidate),
    Peak(Peak),
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Adds an observation. Its candidate leaves quarantine in the same commit.
    #[must_use]
    pub fn observation(self, observation: Observation) -> Batch {
        self.with(Change::Observation(Box::new(observation)))
    }

    /// Adds a verdict.
    #[must_use]
    pub fn verdict(self, verdict: Verdict) -> Batch {
        self.with(Change::Verdict(Box::new(verdict)))
    }

    /// Adds a session, or replaces the one with the same id (to set its end).
    #[must_use]
    pub fn session(self, session: Session) -> Batch {
        self.with(Change::Session(session))
    }

    /// Adds an event. One that is already there with the same content is left as it is.
    #[must_use]
    pub fn event(self, event: Event) -> Batch {
        self.with(Change::Event(event))
    }

    /// Adds events in order.
    #[must_use]
    pub fn events(self, events: impl IntoIterator<Item = Event>) -> Batch {
        events.into_iter().fold(self, Batch::event)
    }

    /// Notes that a candidate is about to run, so that a machine that dies with it quarantines it and nothing else.
    #[must_use]
    pub fn about_to_run(self, candidate: Candidate, session: Option<String>, now_s: u64) -> Batch {
        self.with(Change::AboutToRun { candidate, session, now_s })
    }

    /// Takes a candidate out of quarantine without an observation (it never ran).
    #[must_use]
    pub fn release(self, candidate: Candidate) -> Batch {
        self.with(Change::Release(candidate))
    }

    /// Adds or replaces a measured peak.
    #[must_use]
    pub fn peak(self, peak: Peak) -> Batch {
        self.with(Change::Peak(peak))
    }

    fn with(mut self, change: Change) -> Batch {
        self.changes.push(change);
        self
    }
}

/// Something handed in and not yet known to be saved.
#[derive(Debug)]
#[must_use = "until `wait` returns, nothing says that it was saved"]
pub struct Ticket<T> {
    value: T,
    answer: mpsc::Receiver<Result<(), DbError>>,
    shared: Arc<Shared>,
}

impl<T> Ticket<T> {
    /// Waits for the commit.
    ///
    /// # Errors
    /// Why it was not saved: [`DbError::InvalidRow`] (this batch only), or the failure that stopped the writer.
    pub fn wait(self) -> Result<T, DbError> {
        self.shared.lock().waiting += 1;
        self.shared.changed.notify_all();
        let answer = self.answer.recv();
        let mut queue = self.shared.lock();
        queue.waiting -= 1;
        let answer = answer.unwrap_or_else(|_| Err(queue.stopped_by()));
        queue.told |= answer.is_err() && queue.failure.is_some();
        drop(queue);
        answer.map(|()| self.value)
    }

    /// The value `wait` will return: the id of an observation is known before it is saved.
    pub fn value(&self) -> &T {
        &self.value
    }
}

/// Writes a tuning database. Can be shared between threads; there is one per file, in all processes.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<(), DbError>>>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<Entry>,
    /// When the oldest entry came.
    since: Option<Instant>,
    /// Threads blocked in `Ticket::wait`.
    waiting: usize,
    closing: bool,
    failure: Option<Arc<DbError>>,
    /// Somebody was given the failure.
    told: bool,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) batch: Batch,
    pub(crate) answer: mpsc::Sender<Result<(), DbError>>,
}

impl Queue {
    fn stopped_by(&self) -> DbError {
        match &self.failure {
            Some(cause) => DbError::WriterStopped { cause: Arc::clone(cause) },
            None => DbError::invalid("row", "its writer was closed"),
        }
    }
}

impl Shared {
    // A panic elsewhere leaves the queue whole: entries are pushed and taken in single steps.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writer {
    /// Opens a database for writing; makes it when there is none. A candidate left in quarantine by a run that died
    /// stays there, and is listed by [`crate::Database::quarantined`].
    ///
    /// # Errors
    /// One variant for each thing that `path` can be instead of a place for a tuning database, [`DbError::Busy`] while
    /// another process writes it, [`DbError::Full`]. When it fails, nothing new is left on the disk.
    pub fn open(path: impl AsRef<Path>, options: WriterOptions) -> Result<Writer, DbError> {
        let path = path.as_ref().to_path_buf();
        open::check_writable_place(&path)?;
        let lock = WriterLock::take(&path, options.patience)?;
        // Asked again under the lock: a waiting writer finds what the one before it made.
        let existed = open::check_writable_place(&path)?;
        let committer = open::writer(&path, options.max_bytes)
            .and_then(|connection| Committer::new(&path, connection, options.on_saved))
            .inspect_err(|error| {
                if existed && matches!(error, DbError::Full { .. }) {
                    open::put_to_rest(&path);
                }
                if !existed {
                    for suffix in ["", "-journal", "-wal", "-shm"] {
                        // Best effort: the error that brought us here is the one to report.
                        let _ = std::fs::remove_file(beside(&path, suffix));
                    }
                }
            })?;
        let shared = Arc::new(Shared { path: path.clone(), queue: Mutex::default(), changed: Condvar::new() });
        let group = options.group.min(LONGEST_GROUP);
        let thread = std::thread::Builder::new()
            .name("tuning-db writer".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || {
                    let result = serve(&shared, committer, group);
                    // Only now may another writer begin.
                    drop(lock);
                    result
                }
            })
            .map_err(|error| DbError::io(&path, "starting its writer thread", error))?;
        Ok(Writer { path, shared, thread: Some(thread) })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Hands in one observation.
    ///
    /// # Errors
    /// [`DbError::InvalidRow`] when it breaks a rule of the schema; [`DbError::WriterStopped`].
    pub fn record(&self, observation: Observation) -> Result<Ticket<Id>, DbError> {
        self.record_with(observation, [])
    }

    /// Hands in one observation together with the events that tell the search of it.
    ///
    /// # Errors
    /// As [`Writer::record`].
    pub fn record_with(
        &self,
        observation: Observation,
        events: impl IntoIterator<Item = Event>,
    ) -> Result<Ticket<Id>, DbError> {
        let id = observation.id()?;
        self.enqueue(Batch::new().observation(observation).events(events), id)
    }

    /// Hands in a batch.
    ///
    /// # Errors
    /// [`DbError::WriterStopped`]. What is wrong with the rows themselves is told by [`Ticket::wait`].
    pub fn submit(&self, batch: Batch) -> Result<Ticket<()>, DbError> {
        self.enqueue(batch, ())
    }

    /// Saves a session and waits until it is on the disk.
    ///
    /// # Errors
    /// As [`Ticket::wait`].
    pub fn save_session(&self, session: Session) -> Result<(), DbError> {
        self.submit(Batch::new().session(session))?.wait()
    }

    /// Notes on the disk that a candidate is about to run; returns when it may.
    ///
    /// # Errors
    /// As [`Ticket::wait`].
    pub fn about_to_run(&self, candidate: Candidate, session: Option<String>, now_s: u64) -> Result<(), DbError> {
        self.submit(Batch::new().about_to_run(candidate, session, now_s))?.wait()
    }

    /// Waits until everything handed in before is on the disk.
    ///
    /// # Errors
    /// The failure that stopped the writer.
    pub fn flush(&self) -> Result<(), DbError> {
        self.submit(Batch::new())?.wait()
    }

    /// Saves what was handed in, empties the write-ahead log and closes the file.
    ///
    /// # Errors
    /// The failure that stopped the writer earlier, or one of closing.
    pub fn close(mut self) -> Result<(), DbError> {
        self.finish()
    }

    fn enqueue<T>(&self, batch: Batch, value: T) -> Result<Ticket<T>, DbError> {
        let (sender, answer) = mpsc::channel();
        let mut queue = self.shared.lock();
        if queue.failure.is_some() || queue.closing {
            queue.told = true;
            return Err(queue.stopped_by());
        }
        queue.entries.push_back(Entry { batch, answer: sender });
        queue.since.get_or_insert_with(Instant::now);
        drop(queue);
        self.shared.changed.notify_all();
        Ok(Ticket { value, answer, shared: Arc::clone(&self.shared) })
    }

    fn finish(&mut self) -> Result<(), DbError> {
        self.shared.lock().closing = true;
        self.shared.changed.notify_all();
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(DbError::Io {
                path: self.shared.path.clone(),
                doing: "writing",
                source: Arc::new(std::io::Error::other("the writer thread panicked")),
            }),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Err(error) = self.finish()
            && !self.shared.lock().told
        {
            tracing::error!("{error}");
        }
    }
}

/// The writer thread: takes a group, commits it, answers, until closed.
fn serve(shared: &Shared, mut committer: Committer, group: Duration) -> Result<(), DbError> {
    loop {
        let (entries, closing) = next_group(shared, group);
        if let Err(error) = committer.commit(&entries) {
            let mut queue = shared.lock();
            // Told to those in the group with the error itself, to all later ones as the reason of the stop.
            queue.failure = Some(Arc::new(error.clone()));
            let later: Vec<Entry> = queue.entries.drain(..).collect();
            drop(queue);
            for entry in entries.iter().chain(&later) {
                let _ = entry.answer.send(Err(error.clone()));
            }
            // What was committed earlier stays readable whether or not the file can be tidied up now. The failure is for
            // those who handed something in, and for whoever closes.
            if let Err(error) = committer.close() {
                tracing::debug!("not tidied up: {error}");
            }
            return Err(error);
        }
        if closing {
            return committer.close();
        }
    }
}

/// Blocks until a group is due; the flag says that none will follow.
fn next_group(shared: &Shared, group: Duration) -> (Vec<Entry>, bool) {
    let mut queue = shared.lock();
    loop {
        if queue.closing {
            return (queue.entries.drain(..).collect(), true);
        }
        queue = match queue.since.map(|since| group.saturating_sub(since.elapsed())) {
            None => shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
            Some(left) if left.is_zero() || queue.waiting > 0 => {
                queue.since = None;
                return (queue.entries.drain(..).collect(), false);
            }
            Some(left) => shared.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0,
        };
    }
}
