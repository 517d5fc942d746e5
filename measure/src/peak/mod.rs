//! What a device can do at most: arithmetic of each kind and memory reads, all its threads at once. Measured beside the
//! run, because absolute figures of a shared machine do not carry over.
//!
//! Each probe runs on every thread of the device from the same moment on; its rate is what all did together, divided by
//! the time from the first thread's start to the last one's end. The best of some passes counts, as everything else
//! only slows a pass down.

mod roof;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use codegen::emit::llvm;

pub use roof::{Demand, NEAR_BYTES, Peak, Roof};

/// Bytes read by one bandwidth pass, all threads together. Larger than the share of a last-level cache that one tenant
/// usually gets; on hosts with a very large one the figure is that cache's.
pub(crate) const READ_BYTES: usize = 256 << 20;
/// Passes of each arithmetic probe (some 0.1 ms each) and of reading.
const ARITHMETIC: usize = 40;
const READS: usize = 4;
const NEAR_READS: usize = 16;

/// Work done and time it took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Operations or bytes.
    pub amount: f64,
    /// Nanoseconds.
    pub ns: f64,
}

/// Threads that run something together.
pub(crate) trait Crew {
    /// How many there are.
    fn threads(&self) -> usize;

    /// Calls `work` once on each thread, with the number of the thread, all at the same time.
    fn each(&self, work: &(dyn Fn(usize) + Sync));
}

/// The units that a probe may use: those of a target that this processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Units {
    vectors: Vectors,
    vnni: bool,
    matrix_bf16: bool,
    matrix_int8: bool,
}

/// The widest multiply-add there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Vectors {
    Avx512,
    Avx2,
    /// Whatever the compiler makes of plain arithmetic.
    Plain,
}

impl Vectors {
    fn of(has: impl Fn(&str) -> bool) -> Vectors {
        if has("avx512f") {
            Vectors::Avx512
        } else if has("avx2") && has("fma") {
            Vectors::Avx2
        } else {
            Vectors::Plain
        }
    }

    /// What the processor has, whatever the target.
    fn widest() -> Vectors {
        #[cfg(target_arch = "x86_64")]
        return Vectors::of(|feature| match feature {
            "avx512f" => is_x86_feature_detected!("avx512f"),
            "avx2" => is_x86_feature_detected!("avx2"),
            _ => is_x86_feature_detected!("fma"),
        });
        #[cfg(not(target_arch = "x86_64"))]
        Vectors::Plain
    }
}

impl Units {
    /// The units that `features` of a target name. Of those the processor (or this process) lacks, none is used.
    pub(crate) fn of(features: &BTreeSet<String>) -> Units {
        let (_, host) = llvm::host_cpu();
        let has = |feature: &str| features.contains(feature) && host.iter().any(|has| has == feature);
        Units {
            vectors: Vectors::of(has),
            vnni: has("avx512vnni"),
            matrix_bf16: has("amx-bf16"),
            matrix_int8: has("amx-int8"),
        }
    }
}

/// Measures every peak of a crew; `memory` is what is read, [`READ_BYTES`] of it.
pub(crate) fn measure(crew: &dyn Crew, units: Units, memory: &[u8]) -> Peak {
    let arithmetic = |probe: &(dyn Fn() -> f64 + Sync)| best(ARITHMETIC, || rate(crew, &|_| probe()));
    let read = |memory: &[u8], passes| {
        let parts = parts(memory, crew.threads());
        let read = |thread: usize| {
            let part = parts.get(thread).copied().unwrap_or_default();
            read_all(part);
            #[expect(clippy::cast_precision_loss, reason = "an amount of memory is below 2^53 bytes")]
            let amount = part.len() as f64;
            amount
        };
        best(passes, || rate(crew, &read))
    };
    let near = usize::try_from(NEAR_BYTES).unwrap_or(usize::MAX).min(memory.len());
    let mut peak = Peak {
        flops_per_s: arithmetic(&|| multiply_adds(units.vectors, 40_000)),
        near_bytes_per_s: read(&memory[..near], NEAR_READS),
        bytes_per_s: read(memory, READS),
        ..Peak::default()
    };
    #[cfg(target_arch = "x86_64")]
    {
        let byte_sums = || {
            // SAFETY: `Units::of` found the unit in the processor.
            unsafe { x86::byte_sums(40_000) }
        };
        let matrix_bf16 = || {
            // SAFETY: `Units::of` found the unit in the processor and usable by this process.
            unsafe { x86::matrix_bf16(3_000) }
        };
        let matrix_int8 = || {
            // SAFETY: as above.
            unsafe { x86::matrix_int8(3_000) }
        };
        if units.vnni {
            peak.vnni_int8_ops_per_s = arithmetic(&byte_sums);
        }
        if units.matrix_bf16 {
            peak.amx_bf16_flops_per_s = arithmetic(&matrix_bf16);
        }
        if units.matrix_int8 {
            peak.amx_int8_ops_per_s = arithmetic(&matrix_int8);
        }
    }
    peak
}

/// What each thread reads.
fn parts(memory: &[u8], threads: usize) -> Vec<&[u8]> {
    memory.chunks(memory.len().div_ceil(threads.max(1)).max(1)).collect()
}

fn best(passes: usize, mut pass: impl FnMut() -> f64) -> f64 {
    (0..passes).map(|_| pass()).fold(0.0, f64::max)
}

/// Work per second of all threads together, when each does what `work` says it did.
fn rate(crew: &dyn Crew, work: &(dyn Fn(usize) -> f64 + Sync)) -> f64 {
    let awaited = AtomicUsize::new(crew.threads());
    let done = Mutex::new(Vec::new());
    crew.each(&|thread| {
        // Threads wake up one after another; the clock starts when all are there.
        awaited.fetch_sub(1, Ordering::AcqRel);
        while awaited.load(Ordering::Acquire) > 0 {
            std::hint::spin_loop();
        }
        let start = Instant::now();
        let amount = work(thread);
        let end = Instant::now();
        done.lock().expect("invariant: probes do not panic").push((start, end, amount));
    });
    let done = done.into_inner().expect("invariant: probes do not panic");
    let first = done.iter().map(|part| part.0).min();
    let last = done.iter().map(|part| part.1).max();
    let (Some(first), Some(last)) = (first, last) else { return 0.0 };
    done.iter().map(|part| part.2).sum::<f64>() / last.duration_since(first).as_secs_f64().max(1e-9)
}

/// Runs `passes` rounds of independent f32 multiply-adds in registers on the calling thread, as wide as the processor
/// can. It is also the control kernel: nothing but clock and contention changes its time.
pub fn multiply_add(passes: u64) -> Work {
    let vectors = Vectors::widest();
    let start = Instant::now();
    let amount = multiply_adds(vectors, passes);
    let ns = start.elapsed().as_secs_f64() * 1e9;
    Work { amount, ns: ns.max(1.0) }
}

/// Operations of so many rounds, which it runs.
fn multiply_adds(vectors: Vectors, passes: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "passes are thousands")]
    let rounds = passes as f64 * f64::from(ACCUMULATORS);
    match vectors {
        #[cfg(target_arch = "x86_64")]
        Vectors::Avx512 => {
            // SAFETY: the processor has the feature, or it would not have been chosen.
            unsafe { x86::avx512(passes) };
            rounds * 16.0 * 2.0
        }
        #[cfg(target_arch = "x86_64")]
        Vectors::Avx2 => {
            // SAFETY: the processor has the features, or they would not have been chosen.
            unsafe { x86::avx2(passes) };
            rounds * 8.0 * 2.0
        }
        _ => {
            plain(passes);
            rounds * 4.0 * 2.0
        }
    }
}

/// Sixteen accumulators hide a latency of four cycles at two (on some cores three) multiply-adds per cycle.
const ACCUMULATORS: u16 = 16;

fn plain(passes: u64) {
    let (a, b) = (black_box(0.5f32), black_box(1.0f32));
    let mut sums = [[0f32; 4]; ACCUMULATORS as usize];
    for _ in 0..passes {
        for lane in sums.as_flattened_mut() {
            *lane = *lane * a + b;
        }
    }
    black_box(sums);
}

/// Reads every byte, in vectors as wide as most processors have: what a consumer of an output does at least.
pub(crate) fn read_all(memory: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the feature.
        unsafe { x86::read(memory) };
        return;
    }
    read_words(memory);
}

fn read_words(memory: &[u8]) {
    let (blocks, rest) = memory.as_chunks::<64>();
    // Several results, so that the operations do not wait for each other.
    let mut seen = [0u64; 8];
    for block in blocks {
        for (seen, word) in seen.iter_mut().zip(block.as_chunks::<8>().0) {
            *seen |= u64::from_ne_bytes(*word);
        }
    }
    black_box((seen, rest.iter().fold(0, |seen, byte| seen | byte)));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Threads of the standard library.
    struct Threads(usize);

    impl Crew for Threads {
        fn threads(&self) -> usize {
            self.0
        }

        fn each(&self, work: &(dyn Fn(usize) + Sync)) {
            std::thread::scope(|scope| {
                for thread in 0..self.0 {
                    scope.spawn(move || work(thread));
                }
            });
        }
    }

    fn features(words: &[&str]) -> BTreeSet<String> {
        words.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn vectors_beat_scalars_and_time_grows_with_work() {
        let best = |f: &dyn Fn() -> f64| (0..20).map(|_| f()).fold(f64::INFINITY, f64::min);
        let short = best(&|| multiply_add(2_000).ns);
        let long = best(&|| multiply_add(20_000).ns);
        assert!(long > 4.0 * short, "{short} {long}");
    }

    #[test]
    fn what_threads_do_at_the_same_time_counts_together() {
        let nap = Duration::from_millis(50);
        let slept = |threads| {
            rate(&Threads(threads), &|_| {
                std::thread::sleep(nap);
                1.0
            })
        };
        let (one, four) = (slept(1), slept(4));
        assert!(one > 5.0 && one <= 20.0, "{one}");
        assert!(four > 1.5 * one && four <= 80.0, "{one} {four}");
    }

    #[test]
    fn every_part_of_the_memory_is_read_once() {
        let memory: Vec<u8> = (0..100).collect();
        for threads in [1, 2, 3, 7] {
            let parts = parts(&memory, threads);
            assert_eq!(parts.len(), threads);
            assert_eq!(parts.concat(), memory);
        }
        assert!(parts(&[], 2).is_empty());
    }

    #[test]
    fn units_that_the_target_lacks_have_no_peak() {
        let memory = vec![1u8; 1 << 16];
        let (_, host) = llvm::host_cpu();
        let all: BTreeSet<String> = host.into_iter().collect();
        let whole = measure(&Threads(1), Units::of(&all), &memory);
        for (feature, rate) in [
            ("amx-bf16", whole.amx_bf16_flops_per_s),
            ("amx-int8", whole.amx_int8_ops_per_s),
            ("avx512vnni", whole.vnni_int8_ops_per_s),
        ] {
            // A unit for one type is there to beat the multiply-adds of f32.
            assert_eq!(rate > whole.flops_per_s, all.contains(feature), "{feature}: {whole:?}");
        }
        let narrow = measure(&Threads(1), Units::of(&features(&["avx", "avx2", "fma"])), &memory);
        let none = [narrow.amx_bf16_flops_per_s, narrow.amx_int8_ops_per_s, narrow.vnni_int8_ops_per_s];
        assert_eq!(none, [0.0; 3]);
        if all.contains("avx512f") {
            assert!(narrow.flops_per_s < 0.8 * whole.flops_per_s, "{narrow:?} {whole:?}");
        }
    }
}
