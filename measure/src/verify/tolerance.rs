//! How far a value may be from the reference's, derived from element types, lengths and the steps after the operation.
//!
//! `u` is half a unit of the accumulator's type at 1, `w` that of the arithmetic after it (f32, or f64 where sums are
//! f64), `f` the error of one approximated function: 8w, which is four units in the last place of the result. Inputs
//! are those of [`Inputs::normal`](super::Inputs): |x| ≤ 7.
//!
//! `math=fast` declares more: for sums of products 4e-5 of the largest output (about 6√K), three times what Winograd
//! F(4×4) was measured to lose, and `f` = 2⁻¹³, which a polynomial of degree 3 for `exp` keeps.

use search_space::Workload;
use search_space::workload::{AxisKind, DType, EpilogueStep, MathMode, Op};

use super::expected::Class;

/// Finite values may differ by `absolute + relative · |value|`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tolerance {
    pub(super) absolute: f64,
    pub(super) relative: f64,
}

/// What is flushed where denormals are not kept; below this no value is told from zero.
const TINY: f64 = f32::MIN_POSITIVE as f64;
/// Bound of an N(0, 1) value: one of 10^11 is larger.
const NORMAL: f64 = 7.0;

/// Largest offset that [`Inputs`](super::Inputs) gives rows of softmax: `exp` of it, and of its negative, is out of the
/// accumulator's range.
pub(super) fn shift(acc: DType) -> f64 {
    if acc == DType::F64 { 960.0 } else { 120.0 }
}

/// The class of the numeric check: exact for data movement, maxima and integers.
pub(super) fn numeric(workload: &Workload) -> Class {
    let plain = workload.epilogue.iter().all(|step| matches!(step, EpilogueStep::Relu | EpilogueStep::Clip(..)));
    let moved = plain && matches!(workload.op, Op::Map | Op::ContractMax | Op::RowsArgMax);
    if moved { Class::Bits } else { Class::Within(bound(workload, false)) }
}

/// The class of the hostile check, where denormals may be flushed by devices that were asked not to.
pub(super) fn hostile(workload: &Workload) -> Class {
    let Tolerance { absolute, relative } = bound(workload, true);
    Class::Within(Tolerance { absolute: absolute + TINY, relative })
}

/// Largest error of one output element on normal inputs, or on hostile ones, where the scores of attention are moved.
fn bound(workload: &Workload, hostile: bool) -> Tolerance {
    let output = workload.outputs().first().map_or(workload.acc, |output| workload.operands[*output].dtype);
    let start = Error::of_operation(workload, hostile);
    let end = workload.epilogue.iter().fold(start, |error, step| error.after(step));
    if output.is_float() {
        Tolerance { absolute: end.absolute, relative: end.relative }
    } else {
        // Integers are exact, sums of them too.
        Tolerance { absolute: 0.0, relative: 0.0 }
    }
}

/// Error and size of a value on its way to the output.
#[derive(Clone, Copy, Debug)]
struct Error {
    absolute: f64,
    relative: f64,
    /// Largest magnitude of the value.
    size: f64,
    w: f64,
    f: f64,
}

impl Error {
    /// The error of the operation itself.
    ///
    /// **Sums.** A sum of K products kept in precision `u` differs from the true one by at most `λ √K u Σ|a||b|` with
    /// high probability (Higham and Mary, "A new approach to probabilistic rounding error analysis", SIAM J. Sci.
    /// Comput. 41, 2019, theorem 3.1); the worst case has K in place of √K and no kernel comes near it. On N(0, 1)
    /// inputs `Σ|a||b|` is `2K/π` on average; `7√K + 16` more covers the largest of 10^8 elements. λ = 4. For K = 512
    /// in f32 this is 0.0027, some hundred times the error of a usual kernel; inputs rounded to bf16 give 0.02, one
    /// product left out gives 0.8. A plain sum can do with the largest partial sum, `7√K + 16`, in place of `Σ|x|`.
    ///
    /// **Softmax.** The argument of `exp` is rounded (at most 14 of it: 14u), `exp` and the quotient are off by `f` and
    /// 2u, the sum of positive terms by 2√K u (as above with the sum itself as largest partial sum and λ/2). In the
    /// logarithm these are absolute, and `x - (max + log Σ)` rounds at the size of the row's offset.
    ///
    /// **Norms.** The mean of N(0, 1) is off by `λu(7 + 16/√K) ≤ 92u`, with an offset of 1 by 4√K u more, in units of the
    /// deviation; short rows may have a small deviation, which makes that larger. The mean square is a sum of positive
    /// terms: 2√K u, half of it after the root.
    ///
    /// **Attention.** Scores are off by the error of a sum of D products, times the scale; the weights relatively by as
    /// much and by the error of a softmax over N. Their mean of values of up to 7, but 0.8 on average, gets twice that,
    /// plus its relative error. 16-bit kernels may round the weights to their type before they are multiplied.
    fn of_operation(workload: &Workload, hostile: bool) -> Error {
        let half_unit = |dtype: DType| dtype.unit(1.0) / 2.0;
        let u = half_unit(workload.acc);
        let w = half_unit(if workload.acc == DType::F64 { DType::F64 } else { DType::F32 });
        let fast = workload.math == MathMode::Fast;
        let f = if fast { 2f64.powi(-13) } else { 8.0 * w };
        let reduced = |axis: usize| workload.axes[axis].kind == AxisKind::Reduction;
        let extent = |axis: usize| {
            #[expect(clippy::cast_precision_loss, reason = "a bound needs no more than 53 bits")]
            let extent = workload.axes[axis].extent.max() as f64;
            extent
        };
        let length: f64 = (0..workload.axes.len()).filter(|axis| reduced(*axis)).map(extent).product();
        let products = |length: f64| {
            let magnitudes = length * std::f64::consts::FRAC_2_PI + 7.0 * length.sqrt() + 16.0;
            4.0 * length.sqrt() * u * magnitudes
        };
        let partial = 7.0 * length.sqrt() + 16.0;
        let softmax = |length: f64| (24.0 + 2.0 * length.sqrt()) * u + f;
        let (absolute, relative, size) = match workload.op {
            Op::ContractMadd if !workload.acc.is_float() => (0.0, 0.0, 128.0 * 128.0 * length),
            Op::ContractMadd => {
                let declared = if fast { 4e-5 * 6.0 * length.sqrt() } else { 0.0 };
                (products(length) + declared, 8.0 * w, partial)
            }
            Op::ContractAdd if !workload.acc.is_float() => (0.0, 0.0, 256.0 * length),
            Op::ContractAdd => (4.0 * length.sqrt() * u * partial, 8.0 * w, partial),
            Op::RowsSoftmax => (TINY, softmax(length), 1.0),
            Op::RowsLogSoftmax => (softmax(length) + 2.0 * shift(workload.acc) * u, 4.0 * u, 4.0 * NORMAL),
            Op::RowsLayerNorm { eps } => {
                let deviation = if length < 16.0 { eps.get().sqrt().max(1e-3) } else { 0.5 };
                let mean = (92.0 + 4.0 * length.sqrt()) * u / deviation.min(1.0);
                (mean, (16.0 + 2.0 * length.sqrt()) * u + f, NORMAL)
            }
            Op::RowsRmsNorm { .. } => (TINY, (16.0 + 2.0 * length.sqrt()) * u + f, NORMAL),
            Op::Attention { scale, .. } => {
                let axes = workload.attention_axes().ok();
                let (keys, columns) = axes.map_or((length, length), |axes| (extent(axes.n), extent(axes.d)));
                let narrow = workload.factors().into_iter().map(|factor| workload.operands[factor].dtype);
                let narrow = narrow.map(half_unit).fold(0.0, f64::max);
                let moved = if hostile { 4.0 * columns.sqrt() * u * shift(workload.acc) } else { 0.0 };
                let weights = products(columns) * scale.get().abs() + moved + softmax(keys) + narrow;
                (2.0 * weights + TINY, weights, NORMAL)
            }
            // Maxima and maps move values.
            _ => (0.0, 0.0, if workload.acc.is_float() { NORMAL } else { 256.0 }),
        };
        Error { absolute, relative, size, w, f }
    }

    /// The error after one more step, through its steepness. What a sum leaves of a relative error is absolute, as the
    /// sum may cancel.
    fn after(self, step: &EpilogueStep) -> Error {
        let Error { absolute, relative, size, w, f } = self;
        let (absolute, relative, size) = match step {
            EpilogueStep::Bias(_) | EpilogueStep::Add(_) => {
                let size = size + NORMAL;
                (absolute + relative * size + w * size, 2.0 * w, size)
            }
            EpilogueStep::Mul(_) => (absolute * NORMAL, relative + 2.0 * w, size * NORMAL),
            EpilogueStep::Scale(factor) => (absolute * factor.abs(), relative + 2.0 * w, size * factor.abs()),
            EpilogueStep::Relu => (absolute, relative, size),
            EpilogueStep::Clip(lo, hi) => (absolute, relative, size.min(lo.abs().max(hi.abs()))),
            // At most 1.13 steep. Left of zero the error of erf or tanh is multiplied by x, and its effect on small
            // values is absolute.
            EpilogueStep::GeluErf | EpilogueStep::GeluTanh | EpilogueStep::Silu => {
                (1.2 * (absolute + relative * size) + 2.0 * f, 2.0 * f, size)
            }
            EpilogueStep::Exp => (TINY, absolute + relative * size + f, size.min(80.0).exp()),
            // Values nearer to zero than 2^-10 that carry an absolute error are not told apart.
            EpilogueStep::Log => (relative + 1024.0 * absolute + f, f, 100.0),
            // |x · tanh'(x)| and |x · erf'(x)| are below 1/2.
            EpilogueStep::Tanh | EpilogueStep::Erf => (1.2 * absolute + relative + f, f, 1.0),
            EpilogueStep::Cast(dtype) => (absolute + dtype.unit(0.0), relative + dtype.unit(1.0), size),
        };
        Error { absolute, relative, size, w, f }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sugar: &str) -> Tolerance {
        bound(&Workload::parse(sugar).unwrap(), false)
    }

    #[test]
    fn bounds_are_of_the_size_the_documentation_says() {
        let matmul = of("matmul m=2 n=2 k=512 dtype=f32");
        assert!((matmul.absolute - 0.0027).abs() < 1e-4, "{matmul:?}");
        let fast = of("matmul m=2 n=2 k=512 dtype=f32 math=fast").absolute;
        assert!(fast > matmul.absolute && fast < 0.02, "bf16 inputs would pass: {fast}");
        assert_eq!(of("matmul m=2 n=2 k=512 dtype=i8"), Tolerance { absolute: 0.0, relative: 0.0 });
        assert!(of("softmax rows=1 cols=32000 dtype=f32").relative < 7e-5, "an exp of degree 3 would pass");
        assert!(of("softmax rows=1 cols=1000 dtype=f32 math=fast").relative > 7e-5);
        assert!(of("map n=9 dtype=f32 f=exp").relative < 1e-6);
    }

    #[test]
    fn data_movement_and_maxima_are_exact() {
        for sugar in [
            "transpose rows=3 cols=4 dtype=bf16",
            "map n=9 dtype=f32 f=relu.clip(-1,1)",
            "reduce rows=3 cols=4 dtype=f32 op=max",
            "argmax rows=3 cols=4 dtype=f32",
        ] {
            assert_eq!(numeric(&Workload::parse(sugar).unwrap()), Class::Bits, "{sugar}");
        }
    }
}
