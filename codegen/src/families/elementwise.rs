//! Epilogue steps as scalar expressions.

use search_space::workload::EpilogueStep;

use crate::tile::{BinaryOp, Scalar, UnaryOp};

/// `step` applied to `value`; `side` is the element of the operand that the step names. A value that is used more than
/// once becomes the next of `lets`.
///
/// # Panics
/// When the step names an operand and `side` is `None`.
pub fn step(step: &EpilogueStep, value: Scalar, side: Option<Scalar>, lets: &mut Vec<Scalar>) -> Scalar {
    let side = || side.clone().expect("invariant: the step's operand is an argument");
    match step {
        EpilogueStep::Bias(_) | EpilogueStep::Add(_) => add(value, side()),
        // The constant comes first: these operations give their right operand when one is NaN, and NaN must stay.
        EpilogueStep::Relu => binary(BinaryOp::Max, Scalar::Const(0.0), value),
        EpilogueStep::Clip(lo, hi) => {
            // An infinite limit changes nothing.
            let limited = |op, limit: f64, value| {
                if limit.is_finite() { binary(op, Scalar::Const(limit), value) } else { value }
            };
            limited(BinaryOp::Min, *hi, limited(BinaryOp::Max, *lo, value))
        }
        EpilogueStep::Mul(_) => mul(value, side()),
        EpilogueStep::Exp => unary(UnaryOp::Exp, value),
        EpilogueStep::Log => unary(UnaryOp::Log, value),
        EpilogueStep::Tanh => unary(UnaryOp::Tanh, value),
        EpilogueStep::Erf => unary(UnaryOp::Erf, value),
        EpilogueStep::Scale(factor) => mul(value, Scalar::Const(*factor)),
        // The output's own type is what its memory holds; nothing is left to do.
        EpilogueStep::Cast(_) => value,
        EpilogueStep::GeluErf => {
            let x = shared(value, lets);
            let erf = unary(UnaryOp::Erf, mul(x.clone(), Scalar::Const(std::f64::consts::FRAC_1_SQRT_2)));
            mul(mul(x, Scalar::Const(0.5)), add(erf, Scalar::Const(1.0)))
        }
        EpilogueStep::GeluTanh => {
            // x/2 · (1 + tanh(u)) = x / (1 + exp(-2u)) with u = √(2/π) · (x + 0.044715 x³)
            let x = shared(value, lets);
            let twice = -2.0 * (2.0 / std::f64::consts::PI).sqrt();
            let square = mul(x.clone(), x.clone());
            let slope = add(mul(square, Scalar::Const(0.044_715 * twice)), Scalar::Const(twice));
            logistic(x.clone(), mul(x, slope))
        }
        EpilogueStep::Silu => {
            let x = shared(value, lets);
            logistic(x.clone(), unary(UnaryOp::Neg, x))
        }
    }
}

/// `x / (1 + exp(power))`.
fn logistic(x: Scalar, power: Scalar) -> Scalar {
    binary(BinaryOp::Div, x, add(unary(UnaryOp::Exp, power), Scalar::Const(1.0)))
}

fn shared(value: Scalar, lets: &mut Vec<Scalar>) -> Scalar {
    if matches!(value, Scalar::Let(_) | Scalar::Arg(_) | Scalar::Const(_)) {
        return value;
    }
    lets.push(value);
    Scalar::Let(lets.len() - 1)
}

/// `op(x)`.
pub fn unary(op: UnaryOp, x: Scalar) -> Scalar {
    Scalar::Unary(op, Box::new(x))
}

/// `op(lhs, rhs)`.
pub fn binary(op: BinaryOp, lhs: Scalar, rhs: Scalar) -> Scalar {
    Scalar::Binary(op, Box::new(lhs), Box::new(rhs))
}

/// `lhs + rhs`.
pub fn add(lhs: Scalar, rhs: Scalar) -> Scalar {
    binary(BinaryOp::Add, lhs, rhs)
}

/// `lhs · rhs`.
pub fn mul(lhs: Scalar, rhs: Scalar) -> Scalar {
    binary(BinaryOp::Mul, lhs, rhs)
}
