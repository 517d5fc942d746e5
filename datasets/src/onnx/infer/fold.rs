//! Arithmetic on small constants, as exporters use it to compute shapes.
//!
//! Every function gives `None` where the result is not followed: more than [`MAX_FOLDED`] elements, an operator that
//! does not occur in shape arithmetic, an overflow, a division by zero.

use super::super::call::Call;
use super::super::proto::data_type;
use super::super::value::{Elements, MAX_FOLDED, Unknown, Value, element_count};

/// Number of elements of a shape, when small enough to follow.
fn small_count(shape: &[u64]) -> Option<usize> {
    element_count(shape).and_then(|count| usize::try_from(count).ok()).filter(|count| *count <= MAX_FOLDED)
}

/// Elements of an output, each taken from the input position that `source` gives for its coordinates.
pub(super) fn rearranged(
    elements: &Elements,
    output: &[u64],
    source: impl Fn(&[u64]) -> Option<u64>,
) -> Option<Elements> {
    let count = small_count(output)?;
    let mut at = vec![0u64; output.len()];
    let mut positions = Vec::with_capacity(count);
    for _ in 0..count {
        positions.push(usize::try_from(source(&at)?).ok()?);
        for axis in (0..output.len()).rev() {
            at[axis] += 1;
            if at[axis] < output[axis] {
                break;
            }
            at[axis] = 0;
        }
    }
    fn pick<T: Copy>(from: &[T], positions: &[usize]) -> Option<Vec<T>> {
        positions.iter().map(|position| from.get(*position).copied()).collect()
    }
    Some(match elements {
        Elements::Ints(ints) => Elements::Ints(pick(ints, &positions)?),
        Elements::Floats(floats) => Elements::Floats(pick(floats, &positions)?),
    })
}

/// Row-major position of `coordinates` in `shape`, where a dimension of 1 repeats and leading dimensions may be missing.
pub(super) fn stretched_position(shape: &[u64], coordinates: &[u64]) -> Option<u64> {
    let offset = coordinates.len().checked_sub(shape.len())?;
    shape
        .iter()
        .zip(&coordinates[offset..])
        .try_fold(0u64, |position, (dim, at)| position.checked_mul(*dim)?.checked_add(if *dim == 1 { 0 } else { *at }))
}

/// The elements of a value stretched to `output`.
pub(super) fn stretched(value: &Value, output: &[u64]) -> Option<Elements> {
    let shape = value.shape.as_ref().ok()?;
    rearranged(value.elements.as_ref()?, output, |at| stretched_position(shape, at))
}

/// `value` with every element equal to the only one of `fill`.
pub(super) fn filled(value: &Value, fill: Option<&Elements>) -> Option<Elements> {
    let count = small_count(value.shape.as_ref().ok()?)?;
    Some(match fill? {
        Elements::Ints(ints) => Elements::Ints(vec![*ints.first()?; count]),
        Elements::Floats(floats) => Elements::Floats(vec![*floats.first()?; count]),
    })
}

/// Operators of one operand.
pub(super) fn unary(op: &str, value: &Value) -> Option<Elements> {
    let floats = |f: fn(f64) -> f64, x: &[f64]| Some(Elements::Floats(x.iter().map(|x| f(*x)).collect()));
    match (op, value.elements.as_ref()?) {
        ("Identity", elements) => Some(elements.clone()),
        ("Neg", Elements::Ints(x)) => Some(Elements::Ints(x.iter().map(|x| x.checked_neg()).collect::<Option<_>>()?)),
        ("Abs", Elements::Ints(x)) => Some(Elements::Ints(x.iter().map(|x| x.checked_abs()).collect::<Option<_>>()?)),
        ("Not", Elements::Ints(x)) => Some(Elements::Ints(x.iter().map(|x| i64::from(*x == 0)).collect())),
        ("Neg", Elements::Floats(x)) => floats(|x| -x, x),
        ("Floor", Elements::Floats(x)) => floats(f64::floor, x),
        ("Ceil", Elements::Floats(x)) => floats(f64::ceil, x),
        ("Round", Elements::Floats(x)) => floats(f64::round_ties_even, x),
        ("Sqrt", Elements::Floats(x)) => floats(f64::sqrt, x),
        _ => None,
    }
}

/// Conversion to the ONNX element type `to`.
pub(super) fn cast(value: &Value, to: i32) -> Option<Elements> {
    let elements = value.elements.as_ref()?;
    match to {
        data_type::BOOL => Some(Elements::Ints(match elements {
            Elements::Ints(ints) => ints.iter().map(|x| i64::from(*x != 0)).collect(),
            Elements::Floats(floats) => floats.iter().map(|x| i64::from(*x != 0.0)).collect(),
        })),
        data_type::INT32 | data_type::INT64 => Some(Elements::Ints(match elements {
            Elements::Ints(ints) => ints.clone(),
            // `as` saturates and turns NaN into 0; shapes are far from both.
            #[expect(clippy::cast_possible_truncation, reason = "saturation is meant")]
            Elements::Floats(floats) => floats.iter().map(|x| *x as i64).collect(),
        })),
        data_type::FLOAT | data_type::DOUBLE => Some(Elements::Floats(floats_of(elements))),
        _ => None,
    }
}

/// Elements as floating-point numbers.
fn floats_of(elements: &Elements) -> Vec<f64> {
    match elements {
        // Sizes are below 2^53; larger integers round as in the operator.
        Elements::Ints(ints) => ints.iter().map(|x| *x as f64).collect(),
        Elements::Floats(floats) => floats.clone(),
    }
}

/// Operators on corresponding elements of inputs that broadcast to `output`.
pub(super) fn elementwise(op: &str, inputs: &[Option<&Value>], output: &Value) -> Option<Elements> {
    let shape = output.shape.as_ref().ok()?;
    let operands: Vec<Elements> =
        inputs.iter().map(|value| stretched(value.as_ref()?, shape)).collect::<Option<_>>()?;
    match (op, operands.as_slice()) {
        ("Where", [Elements::Ints(condition), Elements::Ints(a), Elements::Ints(b)]) => Some(Elements::Ints(
            condition.iter().zip(a.iter().zip(b)).map(|(c, (a, b))| if *c != 0 { *a } else { *b }).collect(),
        )),
        (_, [Elements::Ints(a), Elements::Ints(b)]) => {
            Some(Elements::Ints(a.iter().zip(b).map(|(a, b)| int_op(op, *a, *b)).collect::<Option<_>>()?))
        }
        (_, [a @ Elements::Floats(_), b]) | (_, [a, b @ Elements::Floats(_)]) => {
            let pairs = floats_of(a).into_iter().zip(floats_of(b));
            Some(Elements::Floats(pairs.map(|(a, b)| float_op(op, a, b)).collect::<Option<_>>()?))
        }
        _ => None,
    }
}

fn int_op(op: &str, a: i64, b: i64) -> Option<i64> {
    match op {
        "Add" | "Sum" => a.checked_add(b),
        "Sub" => a.checked_sub(b),
        "Mul" => a.checked_mul(b),
        "Div" => a.checked_div(b),
        "Mod" => a.checked_rem_euclid(b),
        "Min" => Some(a.min(b)),
        "Max" => Some(a.max(b)),
        "Equal" => Some(i64::from(a == b)),
        "Less" => Some(i64::from(a < b)),
        "Greater" => Some(i64::from(a > b)),
        "And" => Some(i64::from(a != 0 && b != 0)),
        "Or" => Some(i64::from(a != 0 || b != 0)),
        _ => None,
    }
}

fn float_op(op: &str, a: f64, b: f64) -> Option<f64> {
    match op {
        "Add" | "Sum" => Some(a + b),
        "Sub" => Some(a - b),
        "Mul" => Some(a * b),
        "Div" => Some(a / b),
        "Min" => Some(a.min(b)),
        "Max" => Some(a.max(b)),
        _ => None,
    }
}

/// `Range` of constant integers.
pub(super) fn range(call: &Call<'_>) -> Result<Vec<Value>, Unknown> {
    let scalar = |index| Ok::<_, Unknown>(call.constant_ints(index)?.and_then(|ints| ints.first().copied()));
    let (Some(start), Some(limit), Some(delta)) = (scalar(0)?, scalar(1)?, scalar(2)?) else {
        return Err(Unknown::because("Range lacks an input"));
    };
    if delta == 0 {
        return Err(Unknown::because("Range with a step of 0"));
    }
    let (start, limit, delta) = (i128::from(start), i128::from(limit), i128::from(delta));
    // Ceiling division; the signs agree whenever the range is not empty.
    let count = ((limit - start + delta - delta.signum()) / delta).max(0);
    let count = u64::try_from(count).map_err(|_| Unknown::because("a Range of more than 2^64 elements"))?;
    let mut value = Value::new(call.dtype(0), vec![count]);
    value.elements = small_count(&[count]).and_then(|count| {
        let all = (0..count).map(|i| i64::try_from(start + delta * i128::try_from(i).ok()?).ok());
        Some(Elements::Ints(all.collect::<Option<_>>()?))
    });
    Ok(vec![value])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_broadcast_before_they_are_combined() {
        let column = Value::ints(vec![2, 1], vec![10, 20]);
        let row = Value::ints(vec![3], vec![1, 2, 3]);
        let output = Value::new(None, vec![2, 3]);
        let sum = elementwise("Add", &[Some(&column), Some(&row)], &output);
        assert_eq!(sum, Some(Elements::Ints(vec![11, 12, 13, 21, 22, 23])));
    }

    #[test]
    fn what_overflows_is_not_folded() {
        let big = Value::ints(vec![], vec![i64::MAX]);
        let zero = Value::ints(vec![], vec![0]);
        let output = Value::new(None, vec![]);
        assert_eq!(elementwise("Add", &[Some(&big), Some(&big)], &output), None);
        assert_eq!(elementwise("Div", &[Some(&big), Some(&zero)], &output), None);
        let lowest = Value::ints(vec![], vec![i64::MIN]);
        assert_eq!(unary("Neg", &lowest), None);
    }

    #[test]
    fn large_outputs_are_not_built() {
        let one = Value::ints(vec![], vec![1]);
        assert_eq!(stretched(&one, &[1 << 40]), None);
        assert!(stretched(&one, &[MAX_FOLDED as u64]).is_some());
        assert_eq!(stretched(&one, &[MAX_FOLDED as u64 + 1]), None);
    }
}
