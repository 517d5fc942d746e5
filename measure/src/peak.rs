//! What one thread of this processor can do at most: multiply-adds and memory reads. Measured beside the run, because
//! absolute figures of a shared machine do not carry over.

use std::hint::black_box;
use std::time::Instant;

use crate::device::Peak;

/// Bytes read by one bandwidth pass. Larger than the share of a last-level cache that one tenant usually gets; on
/// hosts with a very large one the figure is that cache's.
const READ_BYTES: usize = 256 << 20;

/// Work done and time it took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Operations or bytes.
    pub amount: f64,
    /// Nanoseconds.
    pub ns: f64,
}

/// Measures both peaks of the calling thread: the best of some passes, as everything else only slows a pass down.
pub fn measure() -> Peak {
    let flops = (0..40).map(|_| multiply_add(40_000)).map(|work| work.amount / work.ns * 1e9);
    let memory = vec![1u8; READ_BYTES];
    let bytes = (0..4).map(|_| read(&memory)).map(|work| work.amount / work.ns * 1e9);
    let best = |rates: &mut dyn Iterator<Item = f64>| rates.fold(0.0, f64::max);
    Peak { flops_per_s: best(&mut flops.into_iter()), bytes_per_s: best(&mut bytes.into_iter()) }
}

/// Runs `passes` rounds of independent f32 multiply-adds in registers, as wide as the processor can. It is also the
/// control kernel: nothing but clock and contention changes its time.
pub fn multiply_add(passes: u64) -> Work {
    let start = Instant::now();
    let per_pass = multiply_add_widest(passes);
    let ns = start.elapsed().as_secs_f64() * 1e9;
    #[expect(clippy::cast_precision_loss, reason = "passes are thousands")]
    let amount = passes as f64 * per_pass;
    Work { amount, ns: ns.max(1.0) }
}

/// Reads `memory` once.
fn read(memory: &[u8]) -> Work {
    let start = Instant::now();
    read_all(memory);
    let ns = start.elapsed().as_secs_f64() * 1e9;
    #[expect(clippy::cast_precision_loss, reason = "an amount of memory is below 2^53 bytes")]
    let amount = memory.len() as f64;
    Work { amount, ns: ns.max(1.0) }
}

/// Reads every byte, in vectors as wide as most processors have: what a consumer of an output does at least.
#[cfg(target_arch = "x86_64")]
pub(crate) fn read_all(memory: &[u8]) {
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the feature.
        unsafe { x86::read(memory) };
    } else {
        read_scalar(memory);
    }
}

/// Reads every byte: what a consumer of an output does at least.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn read_all(memory: &[u8]) {
    read_scalar(memory);
}

fn read_scalar(memory: &[u8]) {
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

/// Sixteen accumulators hide a latency of four cycles at two (on some cores three) multiply-adds per cycle.
const ACCUMULATORS: u16 = 16;

#[cfg(target_arch = "x86_64")]
fn multiply_add_widest(passes: u64) -> f64 {
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has the feature.
        unsafe { x86::avx512(passes) };
        return f64::from(ACCUMULATORS) * 16.0 * 2.0;
    }
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the processor has the features.
        unsafe { x86::avx2(passes) };
        return f64::from(ACCUMULATORS) * 8.0 * 2.0;
    }
    scalar(passes)
}

#[cfg(not(target_arch = "x86_64"))]
fn multiply_add_widest(passes: u64) -> f64 {
    scalar(passes)
}

/// Whatever the compiler makes of plain arithmetic.
fn scalar(passes: u64) -> f64 {
    let (a, b) = (black_box(0.5f32), black_box(1.0f32));
    let mut sums = [[0f32; 4]; ACCUMULATORS as usize];
    for _ in 0..passes {
        for lane in sums.as_flattened_mut() {
            *lane = *lane * a + b;
        }
    }
    black_box(sums);
    f64::from(ACCUMULATORS) * 4.0 * 2.0
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256i, _mm256_fmadd_ps, _mm256_loadu_si256, _mm256_or_si256, _mm256_set1_ps, _mm256_setzero_si256,
        _mm512_fmadd_ps, _mm512_set1_ps,
    };
    use std::hint::black_box;

    use super::ACCUMULATORS;

    // Written out: an array indexed by a loop that is not unrolled would live in memory.
    macro_rules! rounds {
        ($passes:expr, $set1:ident, $fmadd:ident) => {{
            let (a, b) = ($set1(black_box(0.5)), $set1(black_box(1.0)));
            let zero = $set1(0.0);
            let [mut s0, mut s1, mut s2, mut s3, mut s4, mut s5, mut s6, mut s7] = [zero; 8];
            let [mut t0, mut t1, mut t2, mut t3, mut t4, mut t5, mut t6, mut t7] = [zero; 8];
            for _ in 0..$passes {
                (s0, s1, s2, s3) = ($fmadd(s0, a, b), $fmadd(s1, a, b), $fmadd(s2, a, b), $fmadd(s3, a, b));
                (s4, s5, s6, s7) = ($fmadd(s4, a, b), $fmadd(s5, a, b), $fmadd(s6, a, b), $fmadd(s7, a, b));
                (t0, t1, t2, t3) = ($fmadd(t0, a, b), $fmadd(t1, a, b), $fmadd(t2, a, b), $fmadd(t3, a, b));
                (t4, t5, t6, t7) = ($fmadd(t4, a, b), $fmadd(t5, a, b), $fmadd(t6, a, b), $fmadd(t7, a, b));
            }
            black_box([[s0, s1, s2, s3], [s4, s5, s6, s7], [t0, t1, t2, t3], [t4, t5, t6, t7]]);
        }};
    }

    const _: () = assert!(ACCUMULATORS == 16, "the rounds are written out for 16");

    #[target_feature(enable = "avx512f")]
    pub(super) fn avx512(passes: u64) {
        rounds!(passes, _mm512_set1_ps, _mm512_fmadd_ps);
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn read(memory: &[u8]) {
        let (blocks, rest) = memory.as_chunks::<128>();
        let mut seen = [_mm256_setzero_si256(); 4];
        for block in blocks {
            let parts = block.as_chunks::<32>().0;
            // SAFETY: each part is 32 readable bytes; the load does not ask for alignment.
            let load = |part: &[u8; 32]| unsafe { _mm256_loadu_si256(part.as_ptr().cast::<__m256i>()) };
            seen[0] = _mm256_or_si256(seen[0], load(&parts[0]));
            seen[1] = _mm256_or_si256(seen[1], load(&parts[1]));
            seen[2] = _mm256_or_si256(seen[2], load(&parts[2]));
            seen[3] = _mm256_or_si256(seen[3], load(&parts[3]));
        }
        black_box((seen, rest.iter().fold(0, |seen, byte| seen | byte)));
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn avx2(passes: u64) {
        rounds!(passes, _mm256_set1_ps, _mm256_fmadd_ps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_beat_scalars_and_time_grows_with_work() {
        let best = |f: &dyn Fn() -> f64| (0..20).map(|_| f()).fold(f64::INFINITY, f64::min);
        let short = best(&|| multiply_add(2_000).ns);
        let long = best(&|| multiply_add(20_000).ns);
        assert!(long > 4.0 * short, "{short} {long}");
        let peak = measure();
        assert!(peak.flops_per_s > 1e8 && peak.bytes_per_s > 1e7, "{peak:?}");
    }
}
