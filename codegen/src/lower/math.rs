//! Elementary functions as short sequences of lane operations, for targets that lack them.
//!
//! Polynomials are minimax fits of our own (Lawson's iteratively reweighted least squares on 4,000 Chebyshev points).
//! Errors in units in the last place over the whole range are printed by `cargo test -p tilewright-codegen --test
//! functions -- --nocapture`. NaN gives NaN; infinities and the ends of the range give what IEEE 754 recommends.

use crate::lane::build::Builder;
use crate::lane::{BinOp, CmpOp, Elem, Type, Value};
use crate::tile::UnaryOp;

/// What a target does by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Functions {
    /// Arithmetic, and scaling by powers of two in one instruction for vectors of these widths at least.
    Scaling {
        /// Narrowest vector.
        least_lanes: u16,
    },
    /// Arithmetic only.
    Arithmetic,
    /// Exponentials too.
    Exponential,
}

/// `op(x)`.
pub fn unary(b: &mut Builder, op: UnaryOp, x: Value, functions: Functions) -> Value {
    match op {
        UnaryOp::Neg => b.neg(x),
        UnaryOp::Exp | UnaryOp::ExpBelowZero | UnaryOp::ExpShort if functions == Functions::Exponential => {
            b.math(UnaryOp::Exp, x)
        }
        UnaryOp::Exp => {
            let x = at_most(b, x, EXP_RANGE.1);
            exp(b, x, functions)
        }
        UnaryOp::ExpBelowZero => exp(b, x, functions),
        UnaryOp::ExpShort => exp_short(b, x, functions),
        UnaryOp::Log => log(b, x),
        UnaryOp::Tanh => tanh(b, x, functions),
        UnaryOp::Erf => erf(b, x, functions),
        UnaryOp::Sqrt | UnaryOp::Recip => b.math(op, x),
    }
}

/// Bounds beyond which f32 has no finite or no non-zero exponential.
const EXP_RANGE: (f64, f64) = (-104.0, 89.0);
/// The part of log2(e) that f32 drops.
const LOG2_E_LOW: f64 = std::f64::consts::LOG2_E - std::f32::consts::LOG2_E as f64;

/// `2ⁿ · 2ᶠ` with `n + f = x · log2(e)`, `f` to twice the precision of f32 and 2ᶠ by a polynomial of degree 6;
/// arguments above 89 are not met.
fn exp(b: &mut Builder, x: Value, functions: Functions) -> Value {
    let x = at_least(b, x, EXP_RANGE.0);
    let (n, f) = split_power(b, x);
    let low = constant(b, x, LOG2_E_LOW);
    let f = b.fma(x, low, f);
    let power = polynomial(
        b,
        f,
        &[
            1.000_000_001,
            0.693_147_205_7,
            0.240_226_468_9,
            0.055_503_287_77,
            0.009_618_488_958,
            0.001_339_993_122,
            0.000_153_458_116_3,
        ],
    );
    scale(b, power, n, functions)
}

/// As [`exp`] without the low part and with degree 5; arguments above 89 are not met.
fn exp_short(b: &mut Builder, x: Value, functions: Functions) -> Value {
    let x = at_least(b, x, EXP_RANGE.0);
    let (n, f) = split_power(b, x);
    let power = polynomial(
        b,
        f,
        &[1.000_000_072, 0.693_146_967_1, 0.240_221_197_2, 0.055_507_132_74, 0.009_675_541_333, 0.001_327_647_178],
    );
    scale(b, power, n, functions)
}

/// `x · log2(e)`, less than 2²² away from zero, as an integral float and a rest in [-1/2, 1/2], from one product that is
/// not rounded in between.
fn split_power(b: &mut Builder, x: Value) -> (Value, Value) {
    let factor = constant(b, x, std::f64::consts::LOG2_E);
    // Beside a number of this size floats are one apart: the sum is rounded to an integer, in two steps that a core
    // does twice in each cycle, where rounding takes two by itself.
    let large = constant(b, x, 12_582_912.0);
    let rounded = b.fma(x, factor, large);
    let n = b.bin(BinOp::Sub, rounded, large);
    let minus = b.neg(n);
    let f = b.fma(x, factor, minus);
    (n, f)
}

/// `value · 2ⁿ` for `n` from -151 to 129.
fn scale(b: &mut Builder, value: Value, n: Value, functions: Functions) -> Value {
    let ty = b.ty(value);
    if matches!(functions, Functions::Scaling { least_lanes } if ty.lanes >= least_lanes && ty.lanes > 1) {
        return b.scale(value, n);
    }
    // Two factors, so that results below the smallest normal number are rounded once, at the end.
    let n = b.convert(n, Elem::I32);
    let one = integer(b, n, 1);
    let half = b.bin(BinOp::Shr, n, one);
    let rest = b.bin(BinOp::Sub, n, half);
    let first = power_of_two(b, half);
    let second = power_of_two(b, rest);
    let value = b.bin(BinOp::Mul, value, first);
    b.bin(BinOp::Mul, value, second)
}

/// `2ⁿ` for `n` in -126..=127, by its bits.
fn power_of_two(b: &mut Builder, n: Value) -> Value {
    let bias = integer(b, n, 127);
    let exponent = b.bin(BinOp::Add, n, bias);
    let places = integer(b, n, 23);
    let bits = b.bin(BinOp::Shl, exponent, places);
    b.bitcast(bits, Elem::F32)
}

/// `e · ln 2 + ln(m)` with `x = 2ᵉ · m`, `m` in [2/3, 4/3) and `ln(1 + f) = f - f²/2 + f³ P(f)`, P of degree 8.
fn log(b: &mut Builder, x: Value) -> Value {
    // Below the smallest normal number the exponent's bits say nothing: 2²³ times the value is looked at instead.
    let least = constant(b, x, f64::from(f32::MIN_POSITIVE));
    let small = b.cmp(CmpOp::Lt, x, least);
    let up = constant(b, x, 8_388_608.0);
    let raised = b.bin(BinOp::Mul, x, up);
    let from = b.select(small, raised, x);
    let (zero, down) = (constant(b, x, 0.0), constant(b, x, -23.0));
    let offset = b.select(small, down, zero);

    let bits = b.bitcast(from, Elem::I32);
    // The bits of 2/3: subtracting them moves the break between exponents there.
    let two_thirds = integer(b, bits, i64::from((2.0f32 / 3.0).to_bits()));
    let shifted = b.bin(BinOp::Sub, bits, two_thirds);
    let places = integer(b, bits, 23);
    let e = b.bin(BinOp::Shr, shifted, places);
    let exponent_bits = b.bin(BinOp::Shl, e, places);
    let mantissa_bits = b.bin(BinOp::Sub, bits, exponent_bits);
    let m = b.bitcast(mantissa_bits, Elem::F32);
    let e = b.convert(e, Elem::F32);
    let e = b.bin(BinOp::Add, e, offset);

    let minus_one = constant(b, x, -1.0);
    let f = b.bin(BinOp::Add, m, minus_one);
    let p = polynomial(
        b,
        f,
        &[
            0.333_333_357_4,
            -0.249_998_202_7,
            0.199_995_977_5,
            -0.166_795_784_6,
            0.143_044_566_1,
            -0.121_957_761_7,
            0.107_542_364_9,
            -0.128_450_673,
            0.120_071_494_5,
        ],
    );
    let square = b.bin(BinOp::Mul, f, f);
    let minus_half = constant(b, x, -0.5);
    let tail = b.fma(p, f, minus_half);
    let ln_m = b.fma(tail, square, f);
    let ln_2 = constant(b, x, std::f64::consts::LN_2);
    let value = b.fma(e, ln_2, ln_m);

    // Zero gives minus infinity, less NaN; infinity and NaN give themselves.
    let infinity = constant(b, x, f64::INFINITY);
    let finite = b.cmp(CmpOp::Lt, x, infinity);
    let value = b.select(finite, value, x);
    let nan = constant(b, x, f64::NAN);
    let negative = b.cmp(CmpOp::Lt, x, zero);
    let value = b.select(negative, nan, value);
    let minus_infinity = constant(b, x, f64::NEG_INFINITY);
    let is_zero = b.cmp(CmpOp::Eq, x, zero);
    b.select(is_zero, minus_infinity, value)
}

/// `x + x³ P(x²)` for |x| below 0.62, `±(1 - 2 / (1 + e^(2|x|)))` beyond.
fn tanh(b: &mut Builder, x: Value, functions: Functions) -> Value {
    if functions == Functions::Exponential {
        return b.math(UnaryOp::Tanh, x);
    }
    let square = b.bin(BinOp::Mul, x, x);
    let p = polynomial(
        b,
        square,
        &[-0.333_332_855_9, 0.133_315_482_1, -0.053_749_120_15, 0.020_671_486_69, -0.005_743_011_355],
    );
    let cube = b.bin(BinOp::Mul, square, x);
    let near = b.fma(p, cube, x);
    let size = magnitude(b, x);
    let twice = b.bin(BinOp::Add, size, size);
    let grown = unary(b, UnaryOp::Exp, twice, functions);
    let (one, minus_two) = (constant(b, x, 1.0), constant(b, x, -2.0));
    let below = b.bin(BinOp::Add, grown, one);
    let share = b.bin(BinOp::Div, minus_two, below);
    let far = b.bin(BinOp::Add, share, one);
    let far = with_sign_of(b, far, x);
    let limit = constant(b, x, 0.62);
    let is_near = b.cmp(CmpOp::Lt, size, limit);
    b.select(is_near, near, far)
}

/// `x + x P(x²)` for |x| below 1, `±(1 - e^-Q(|x|))` beyond, where `Q` fits `-ln erfc`.
fn erf(b: &mut Builder, x: Value, functions: Functions) -> Value {
    let square = b.bin(BinOp::Mul, x, x);
    let p = polynomial(
        b,
        square,
        &[
            0.128_379_166,
            -0.376_126_258_3,
            0.112_835_851_7,
            -0.026_853_812_69,
            0.005_188_328_928,
            -0.000_801_020_345_8,
            0.000_078_538_913_34,
        ],
    );
    let near = b.fma(p, x, x);
    let size = magnitude(b, x);
    // From 4 on the result is one; NaN passes through the minimum.
    let size = at_most(b, size, 4.0);
    let q = polynomial(
        b,
        size,
        &[
            0.000_312_469_806_7,
            1.127_202_277,
            0.637_965,
            0.103_256_201,
            -0.021_906_475_19,
            0.002_964_005_794,
            -0.000_187_971_652_7,
        ],
    );
    let power = b.neg(q);
    let rest = unary(b, UnaryOp::ExpBelowZero, power, functions);
    let one = constant(b, x, 1.0);
    let far = b.bin(BinOp::Sub, one, rest);
    let far = with_sign_of(b, far, x);
    let limit = constant(b, x, 1.0);
    let is_near = b.cmp(CmpOp::Lt, size, limit);
    b.select(is_near, near, far)
}

/// `c[0] + c[1] x + c[2] x² + ...` by Horner's rule.
fn polynomial(b: &mut Builder, x: Value, coefficients: &[f64]) -> Value {
    let mut rest = coefficients.iter().rev();
    let first = *rest.next().expect("invariant: a polynomial has coefficients");
    let mut value = constant(b, x, first);
    for &coefficient in rest {
        let coefficient = constant(b, x, coefficient);
        value = b.fma(value, x, coefficient);
    }
    value
}

fn magnitude(b: &mut Builder, x: Value) -> Value {
    let bits = b.bitcast(x, Elem::I32);
    let mask = integer(b, bits, 0x7fff_ffff);
    let bits = b.bin(BinOp::And, bits, mask);
    b.bitcast(bits, Elem::F32)
}

/// `value` (not negative) with the sign of `x`.
fn with_sign_of(b: &mut Builder, value: Value, x: Value) -> Value {
    let zero = constant(b, x, 0.0);
    let negative = b.cmp(CmpOp::Lt, x, zero);
    let minus = b.neg(value);
    b.select(negative, minus, value)
}

/// The larger of `x` and a constant; NaN stays.
fn at_least(b: &mut Builder, x: Value, least: f64) -> Value {
    let least = constant(b, x, least);
    b.bin(BinOp::Max, least, x)
}

/// The smaller of `x` and a constant; NaN stays.
fn at_most(b: &mut Builder, x: Value, most: f64) -> Value {
    let most = constant(b, x, most);
    b.bin(BinOp::Min, most, x)
}

fn constant(b: &mut Builder, like: Value, value: f64) -> Value {
    let ty = Type { elem: Elem::F32, ..b.ty(like) };
    b.float(ty, value)
}

fn integer(b: &mut Builder, like: Value, value: i64) -> Value {
    let ty = b.ty(like);
    b.int(ty, value)
}
