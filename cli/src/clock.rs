//! Time as the session sees it, so that deadlines are tested without waiting.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A clock.
pub trait Clock: Send + Sync {
    /// Time since the run began; never goes back.
    fn now(&self) -> Duration;

    /// Seconds since 1970-01-01 UTC, for records.
    fn unix_s(&self) -> u64;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose run begins now.
    #[must_use]
    pub fn start() -> SystemClock {
        SystemClock { start: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn unix_s(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }
}

#[cfg(test)]
pub(crate) mod fake {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    /// A clock that stands until it is moved.
    #[derive(Debug, Default)]
    pub(crate) struct FakeClock(AtomicU64);

    impl FakeClock {
        pub(crate) fn advance(&self, by: Duration) {
            self.0.fetch_add(u64::try_from(by.as_nanos()).unwrap(), Ordering::SeqCst);
        }
    }

    impl super::Clock for FakeClock {
        fn now(&self) -> Duration {
            Duration::from_nanos(self.0.load(Ordering::SeqCst))
        }

        fn unix_s(&self) -> u64 {
            1_800_000_000 + self.now().as_secs()
        }
    }
}
