//! Operators whose operands are stretched to a common shape: elementwise ones, and the batch of `MatMul`.

use super::super::call::Call;
use super::super::proto::data_type;
use super::super::value::{Shape, Unknown, Value};
use super::fold;

/// The common shape of two shapes, aligned at the last dimension; a dimension of 1 stretches.
pub(crate) fn broadcast(left: &[u64], right: &[u64]) -> Result<Shape, Unknown> {
    let rank = left.len().max(right.len());
    let at = |shape: &[u64], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |axis| shape[axis]);
    (0..rank)
        .map(|axis| match (at(left, axis), at(right, axis)) {
            (1, size) | (size, 1) => Ok(size),
            (a, b) if a == b => Ok(a),
            (a, b) => Err(Unknown::because(format!("{left:?} and {right:?} do not broadcast: {a} against {b}"))),
        })
        .collect()
}

/// Any operator that applies a function to corresponding elements of its inputs.
pub(super) fn elementwise(call: &Call<'_>) -> Result<Vec<Value>, Unknown> {
    let op = call.node.op_type.as_str();
    let mut shape = call.shape(0)?.to_vec();
    // Before operator set 7, "broadcast" stretches the second operand from "axis" on; the first has the result's shape.
    if !call.flag("broadcast", false)? {
        for index in 1..call.inputs.len() {
            shape = broadcast(&shape, call.shape(index)?)?;
        }
    }
    let dtype = match op {
        "Equal" | "Greater" | "Less" | "GreaterOrEqual" | "LessOrEqual" => Some(data_type::BOOL),
        "Where" => call.dtype(1),
        _ => call.dtype(0),
    };
    let mut value = Value::new(dtype, shape);
    value.elements = fold::elementwise(op, &call.inputs, &value);
    Ok(vec![value])
}

/// A `MatMul` taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MatMulOperands {
    /// Batch dimensions of the left operand, stretched by ones to the length of `batch_right`.
    pub(crate) batch_left: Shape,
    /// Batch dimensions of the right operand.
    pub(crate) batch_right: Shape,
    /// Rows of the left matrices; 1 when the left operand is a vector.
    pub(crate) m: u64,
    /// Columns of the right matrices; 1 when the right operand is a vector.
    pub(crate) n: u64,
    /// Inner dimension.
    pub(crate) k: u64,
    /// Whether the output has a dimension for `n`.
    pub(crate) has_columns: bool,
    /// Shape of the result.
    pub(crate) output: Shape,
}

/// Takes a `MatMul` of the two shapes apart, by the rules of `numpy.matmul`.
pub(crate) fn matmul_operands(left: &[u64], right: &[u64]) -> Result<MatMulOperands, Unknown> {
    let wrong = |why: &str| Unknown::because(format!("MatMul of {left:?} and {right:?}{why}"));
    let (batch_left, m, k) = match left {
        [] => return Err(wrong(", the left of which is a scalar")),
        [k] => (&left[..0], None, *k),
        [batch @ .., m, k] => (batch, Some(*m), *k),
    };
    let (batch_right, k_right, n) = match right {
        [] => return Err(wrong(", the right of which is a scalar")),
        [k] => (&right[..0], *k, None),
        [batch @ .., k, n] => (batch, *k, Some(*n)),
    };
    if k != k_right {
        return Err(wrong(&format!(", whose inner dimensions {k} and {k_right} differ")));
    }
    let mut output = broadcast(batch_left, batch_right)?;
    let rank = output.len();
    let stretched = |batch: &[u64]| [vec![1; rank - batch.len()], batch.to_vec()].concat();
    let (batch_left, batch_right) = (stretched(batch_left), stretched(batch_right));
    output.extend(m);
    output.extend(n);
    Ok(MatMulOperands {
        batch_left,
        batch_right,
        m: m.unwrap_or(1),
        n: n.unwrap_or(1),
        k,
        has_columns: n.is_some(),
        output,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_stretch_from_the_last_dimension() {
        assert_eq!(broadcast(&[3, 1, 5], &[4, 1]), Ok(vec![3, 4, 5]));
        assert_eq!(broadcast(&[], &[2]), Ok(vec![2]));
        assert_eq!(broadcast(&[0], &[1]), Ok(vec![0]));
        assert!(broadcast(&[2, 3], &[2]).is_err());
    }

    #[test]
    fn matmul_follows_numpy() {
        let got = matmul_operands(&[2, 1, 5, 7], &[3, 7, 9]).unwrap();
        assert_eq!((got.output, got.batch_right), (vec![2, 3, 5, 9], vec![1, 3]));
        assert_eq!(matmul_operands(&[7], &[7]).unwrap().output, Vec::<u64>::new());
        assert_eq!(matmul_operands(&[7], &[4, 7, 9]).unwrap().output, vec![4, 9]);
        assert_eq!(matmul_operands(&[4, 5, 7], &[7]).unwrap().output, vec![4, 5]);
        assert!(matmul_operands(&[5, 7], &[8, 9]).is_err());
        assert!(matmul_operands(&[], &[8, 9]).is_err());
    }
}
