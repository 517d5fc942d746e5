//! The probes of x86 processors. Each runs so many rounds of independent instructions on registers; those of narrow types
//! give the operations they did, a product and its sum counted as two.

use std::arch::asm;
use std::arch::x86_64::{
    __m256i, _mm256_fmadd_ps, _mm256_loadu_si256, _mm256_or_si256, _mm256_set1_ps, _mm256_setzero_ps,
    _mm256_setzero_si256, _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_set1_epi8, _mm512_set1_ps, _mm512_setzero_ps,
    _mm512_setzero_si512,
};
use std::hint::black_box;

use super::ACCUMULATORS;

// Written out: an array indexed by a loop that is not unrolled would live in memory.
macro_rules! rounds {
    ($passes:expr, $zero:expr, $sum:ident => $step:expr) => {{
        let [mut s0, mut s1, mut s2, mut s3, mut s4, mut s5, mut s6, mut s7] = [$zero; 8];
        let [mut t0, mut t1, mut t2, mut t3, mut t4, mut t5, mut t6, mut t7] = [$zero; 8];
        macro_rules! step {
            ($s:ident) => {{
                let $sum = $s;
                $s = $step;
            }};
        }
        for _ in 0..$passes {
            (step!(s0), step!(s1), step!(s2), step!(s3), step!(s4), step!(s5), step!(s6), step!(s7));
            (step!(t0), step!(t1), step!(t2), step!(t3), step!(t4), step!(t5), step!(t6), step!(t7));
        }
        black_box([[s0, s1, s2, s3], [s4, s5, s6, s7], [t0, t1, t2, t3], [t4, t5, t6, t7]]);
    }};
}

const _: () = assert!(ACCUMULATORS == 16, "the rounds are written out for 16");

#[target_feature(enable = "avx512f")]
pub(super) fn avx512(passes: u64) {
    let (a, b) = (_mm512_set1_ps(black_box(0.5)), _mm512_set1_ps(black_box(1.0)));
    rounds!(passes, _mm512_setzero_ps(), sum => _mm512_fmadd_ps(sum, a, b));
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn avx2(passes: u64) {
    let (a, b) = (_mm256_set1_ps(black_box(0.5)), _mm256_set1_ps(black_box(1.0)));
    rounds!(passes, _mm256_setzero_ps(), sum => _mm256_fmadd_ps(sum, a, b));
}

/// Sums of four products of bytes in each lane of 32 bits.
#[target_feature(enable = "avx512f,avx512vnni")]
pub(super) fn byte_sums(passes: u64) -> f64 {
    let (a, b) = (_mm512_set1_epi8(black_box(1)), _mm512_set1_epi8(black_box(-1)));
    rounds!(passes, _mm512_setzero_si512(), sum => _mm512_dpbusd_epi32(sum, a, b));
    #[expect(clippy::cast_precision_loss, reason = "passes are thousands")]
    let rounds = passes as f64 * f64::from(ACCUMULATORS);
    rounds * 64.0 * 2.0
}

/// The operand of `ldtilecfg`. Intel, "Software Developer's Manual", volume 1, section 18.
#[repr(C, align(64))]
struct Shape {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// Palette 1, all eight registers of full size: 16 rows of 64 bytes.
const SHAPE: Shape = Shape {
    palette: 1,
    start_row: 0,
    reserved: [0; 14],
    row_bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
};

/// A register's worth of memory.
#[repr(C, align(64))]
struct Factor([u16; 512]);

// Six sums cover the latency of a product (some 52 cycles, one every 16). As assembly, because the intrinsics are not
// stable; the registers are named, and no compiled code around uses them.
macro_rules! matrix {
    ($passes:expr, $element:expr, $product:literal) => {{
        let (shape, factor) = (SHAPE, Factor([$element; 512]));
        if $passes > 0 {
            // SAFETY: the caller promises the unit; what is read are the two values above, and the unit is given back.
            unsafe {
                asm!(
                    "ldtilecfg [{shape}]",
                    "tileloadd tmm6, [{factor} + {step}]",
                    "tileloadd tmm7, [{factor} + {step}]",
                    "tilezero tmm0",
                    "tilezero tmm1",
                    "tilezero tmm2",
                    "tilezero tmm3",
                    "tilezero tmm4",
                    "tilezero tmm5",
                    "2:",
                    concat!($product, " tmm0, tmm6, tmm7"),
                    concat!($product, " tmm1, tmm6, tmm7"),
                    concat!($product, " tmm2, tmm6, tmm7"),
                    concat!($product, " tmm3, tmm6, tmm7"),
                    concat!($product, " tmm4, tmm6, tmm7"),
                    concat!($product, " tmm5, tmm6, tmm7"),
                    "dec {passes}",
                    "jnz 2b",
                    "tilerelease",
                    shape = in(reg) &raw const shape,
                    factor = in(reg) &raw const factor,
                    step = in(reg) 64usize,
                    passes = inout(reg) $passes => _,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack, readonly),
                );
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "passes are thousands")]
        let products = $passes as f64 * 6.0 * 256.0;
        products
    }};
}

/// Products of blocks of bf16, 32 along k.
///
/// # Safety
/// The processor has `amx-bf16`, and the system lets this process use it.
pub(super) unsafe fn matrix_bf16(passes: u64) -> f64 {
    // 1.0
    matrix!(passes, 0x3f80u16, "tdpbf16ps") * 32.0 * 2.0
}

/// Products of blocks of bytes, 64 along k.
///
/// # Safety
/// The processor has `amx-int8`, and the system lets this process use it.
pub(super) unsafe fn matrix_int8(passes: u64) -> f64 {
    matrix!(passes, 0x0101u16, "tdpbssd") * 64.0 * 2.0
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
