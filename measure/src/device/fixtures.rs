//! A device that misbehaves by rule, so that what a bad candidate costs can be shown through a whole tuning run.
//!
//! `fixture:hang/7` is the CPU on which about every seventh candidate hangs. Which ones is decided by a hash of the
//! schedule: a bad candidate is bad in every worker and every run.

use std::fmt;
use std::io::Write;
use std::str::FromStr;

use search_space::{Outcome, Schedule, Workload};
use serde::{Deserialize, Serialize};

use super::{After, Batch, Device, Failure, Identity, KernelInfo, Placement};
use crate::peak::Peak;
use crate::worker::protocol_fd;

/// What a bad candidate does when it first runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Never returns.
    Hang,
    /// Never returns and ignores `SIGTERM`.
    Stubborn,
    /// Writes to an unmapped address.
    Crash,
    /// Asks for 64 GiB and touches them.
    Memory,
    /// Computes everything right but for one element.
    Wrong,
    /// Returns at once without computing anything.
    Silent,
    /// Closes the pipe to the tuner and goes on.
    Close,
    /// Prints to the pipe to the tuner.
    Garbage,
    /// Prints a gigabyte to stdout.
    Flood,
    /// Changes one bit in every second run.
    Flicker,
    /// Reports that the device was reset; nothing after that can be trusted.
    Lost,
}

impl Fault {
    /// Every fault with its word in device names.
    pub const ALL: [(Fault, &'static str); 11] = [
        (Fault::Hang, "hang"),
        (Fault::Stubborn, "stubborn"),
        (Fault::Crash, "crash"),
        (Fault::Memory, "memory"),
        (Fault::Wrong, "wrong"),
        (Fault::Silent, "silent"),
        (Fault::Close, "close"),
        (Fault::Garbage, "garbage"),
        (Fault::Flood, "flood"),
        (Fault::Flicker, "flicker"),
        (Fault::Lost, "lost"),
    ];
}

/// Which candidates misbehave, and how: `hang/7`, or `all/7` for every fault in turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// What they do; `None` for every fault in turn.
    pub fault: Option<Fault>,
    /// One in this many; 1 for all.
    pub every: u64,
}

impl Rule {
    /// What the candidate with this schedule does, if it misbehaves.
    pub fn fault_of(&self, schedule: &Schedule) -> Option<Fault> {
        // FNV-1a over the text, then a multiplication that carries high bits down (Fowler, Noll and Vo; Steele et al.,
        // "Fast splittable pseudorandom number generators", 2014).
        let text = schedule.to_string();
        let fnv = text
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        let hash = (fnv ^ (fnv >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let hash = hash ^ (hash >> 27);
        if !hash.is_multiple_of(self.every.max(1)) {
            return None;
        }
        let turn = usize::try_from(hash / self.every.max(1)).unwrap_or(0) % Fault::ALL.len();
        Some(self.fault.unwrap_or(Fault::ALL[turn].0))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Fault::ALL.iter().find(|(fault, _)| Some(*fault) == self.fault);
        write!(f, "{}/{}", known.map_or("all", |(_, word)| word), self.every)
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Rule, String> {
        let words: Vec<&str> = Fault::ALL.iter().map(|(_, word)| *word).collect();
        let expected =
            || format!("expected fixture:FAULT/N with N at least 1 and FAULT one of all {}", words.join(" "));
        let (word, every) = text.split_once('/').ok_or_else(expected)?;
        let every = every.parse().ok().filter(|every| *every > 0).ok_or_else(expected)?;
        let known = Fault::ALL.iter().find(|(_, known)| *known == word).map(|(fault, _)| *fault);
        if known.is_none() && word != "all" {
            return Err(expected());
        }
        Ok(Rule { fault: known, every })
    }
}

/// A device whose candidates misbehave by rule.
#[derive(Debug)]
pub struct FixtureDevice<D> {
    inner: D,
    /// The inner one with a unit of its own: what a faulty device shows is never the record of a real one.
    identity: Identity,
    rule: Rule,
}

/// A kernel of a [`FixtureDevice`].
#[derive(Debug)]
pub struct FixtureKernel<K> {
    inner: K,
    fault: Option<Fault>,
    output: usize,
    runs: u32,
}

impl<D: Device> FixtureDevice<D> {
    /// Wraps a device.
    pub fn new(inner: D, rule: Rule) -> FixtureDevice<D> {
        let mut identity = inner.identity().clone();
        identity.target.key.unit = "fixture".into();
        FixtureDevice { inner, identity, rule }
    }
}

impl<D: Device> Device for FixtureDevice<D> {
    type Kernel = FixtureKernel<D::Kernel>;
    type Memory = D::Memory;

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn compile(&mut self, workload: &Workload, schedule: &Schedule) -> Result<Self::Kernel, Failure> {
        let output = workload.outputs().first().copied().unwrap_or(0);
        let fault = self.rule.fault_of(schedule);
        Ok(FixtureKernel { inner: self.inner.compile(workload, schedule)?, fault, output, runs: 0 })
    }

    fn describe(&self, kernel: &Self::Kernel) -> KernelInfo {
        let mut info = self.inner.describe(&kernel.inner);
        if let Some(fault) = kernel.fault {
            // A bad kernel is another program than the good one of the same text.
            info.program_hash = format!("{fault:?}-{}", info.program_hash);
        }
        info
    }

    fn allocate(&mut self, workload: &Workload, placement: Placement) -> Result<Self::Memory, Failure> {
        self.inner.allocate(workload, placement)
    }

    fn write(&mut self, memory: &mut Self::Memory, operand: usize, bytes: &[u8]) -> Result<(), Failure> {
        self.inner.write(memory, operand, bytes)
    }

    fn read(&mut self, memory: &mut Self::Memory, operand: usize) -> Result<Vec<u8>, Failure> {
        self.inner.read(memory, operand)
    }

    fn run(&mut self, kernel: &mut Self::Kernel, memory: &mut Self::Memory) -> Result<f64, Failure> {
        kernel.runs += 1;
        let Some(fault) = kernel.fault else { return self.inner.run(&mut kernel.inner, memory) };
        misbehave(fault);
        match fault {
            Fault::Silent => return Ok(1.0),
            Fault::Lost => return Err(Failure::new(Outcome::LostDevice, "the device was reset")),
            _ => {}
        }
        let ns = self.inner.run(&mut kernel.inner, memory)?;
        if fault == Fault::Wrong || (fault == Fault::Flicker && kernel.runs.is_multiple_of(2)) {
            let mut bytes = self.inner.read(memory, kernel.output)?;
            let middle = (bytes.len() / 2) & !3;
            // One unit in the last place (little-endian f32), or a far larger number.
            match fault {
                Fault::Flicker => bytes[middle] ^= 1,
                _ => bytes[middle + 3] ^= 0x10,
            }
            self.inner.write(memory, kernel.output, &bytes)?;
        }
        Ok(ns)
    }

    fn prepack(&mut self, kernel: &mut Self::Kernel, memory: &mut Self::Memory) -> Result<f64, Failure> {
        self.inner.prepack(&mut kernel.inner, memory)
    }

    fn time_batch(
        &mut self,
        kernel: &mut Self::Kernel,
        memory: &mut Self::Memory,
        launches: u32,
        after: After,
    ) -> Result<Batch, Failure> {
        self.inner.time_batch(&mut kernel.inner, memory, launches, after)
    }

    fn min_batch_ns(&self) -> f64 {
        self.inner.min_batch_ns()
    }

    fn control(&mut self) -> Option<f64> {
        self.inner.control()
    }

    fn peak(&mut self) -> Result<Peak, Failure> {
        self.inner.peak()
    }
}

/// The faults that do not come from the output.
fn misbehave(fault: Fault) {
    match fault {
        Fault::Hang => hang(),
        Fault::Stubborn => {
            // SAFETY: changes how this process takes a signal.
            unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
            hang()
        }
        Fault::Crash => {
            // SAFETY: none; this is the fault. The address is in the first page, which is never mapped.
            unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(1) };
        }
        Fault::Memory => {
            let mut memory: Vec<u8> = Vec::with_capacity(64 << 30);
            memory.resize(64 << 30, 1);
            std::hint::black_box(&memory);
        }
        Fault::Close => {
            // SAFETY: the descriptor is the protocol's, which nothing else in this process uses from here on.
            unsafe { libc::close(protocol_fd()) };
            hang()
        }
        Fault::Garbage => {
            let text = b"driver: warning: all is lost\n";
            // SAFETY: the bytes live for the duration of the call.
            unsafe { libc::write(protocol_fd(), text.as_ptr().cast(), text.len()) };
            hang()
        }
        Fault::Flood => {
            let block = [b'.'; 1 << 16];
            let mut out = std::io::stdout().lock();
            for _ in 0..1 << 14 {
                let _ = out.write_all(&block);
            }
        }
        Fault::Wrong | Fault::Silent | Fault::Flicker | Fault::Lost => {}
    }
}

fn hang() -> ! {
    loop {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_hits_about_one_in_so_many_and_always_the_same() {
        let rule: Rule = "all/5".parse().unwrap();
        let schedule = |i: i64| -> Schedule { [("i", i.into())].into_iter().collect() };
        let faults: Vec<_> = (0..2000).map(|i| rule.fault_of(&schedule(i))).collect();
        let bad = faults.iter().flatten().count();
        assert!((320..480).contains(&bad), "{bad} of 2000");
        for (fault, word) in Fault::ALL {
            assert!(faults.contains(&Some(fault)), "{word} never comes");
        }
        assert_eq!(faults, (0..2000).map(|i| rule.fault_of(&schedule(i))).collect::<Vec<_>>());
    }
}
