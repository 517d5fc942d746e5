//! Shape inference: from what is known about the inputs of a node to what is known about its outputs.
//!
//! Follows the operator definitions of ONNX (`docs/Operators.md`) over all operator sets: where a parameter moved from an
//! attribute to an input, either is read. Small constants are folded ([`fold`]), since exporters compute the target of a
//! `Reshape` from `Shape`, `Gather` and `Concat`. Deliberately absent: bodies of `If`, `Loop` and `Scan`, functions,
//! recurrent layers, and operators whose output shape depends on data; there the declared shapes have to serve.

mod broadcast;
mod fold;
mod layout;
mod spatial;
#[cfg(test)]
mod tests;
mod window;

pub(crate) use broadcast::{broadcast, matmul_operands};
pub(crate) use spatial::{conv_parts, pool_windows};
pub(crate) use window::Window;

use super::call::{Call, axis_in};
use super::proto::{TensorProto, data_type};
use super::value::{Elements, Unknown, Value};

/// What is known about the outputs of a node, first output first; trailing outputs may be missing.
///
/// # Errors
///
/// The reason why nothing is known.
pub(crate) fn infer(call: &Call<'_>) -> Result<Vec<Value>, Unknown> {
    let op = call.node.op_type.as_str();
    if !matches!(call.node.domain.as_str(), "" | "ai.onnx") {
        return Err(Unknown::because(format!(
            "operator {op} of domain \"{}\" is not followed, and the model declares no shape for its output",
            call.node.domain
        )));
    }
    match op {
        "Relu"
        | "LeakyRelu"
        | "PRelu"
        | "Elu"
        | "Selu"
        | "Celu"
        | "Sigmoid"
        | "HardSigmoid"
        | "HardSwish"
        | "Tanh"
        | "Erf"
        | "Exp"
        | "Log"
        | "Abs"
        | "Neg"
        | "Ceil"
        | "Floor"
        | "Round"
        | "Sign"
        | "Sqrt"
        | "Reciprocal"
        | "Sin"
        | "Cos"
        | "Tan"
        | "Asin"
        | "Acos"
        | "Atan"
        | "Sinh"
        | "Cosh"
        | "Asinh"
        | "Acosh"
        | "Atanh"
        | "Softplus"
        | "Softsign"
        | "Gelu"
        | "Mish"
        | "Swish"
        | "ThresholdedRelu"
        | "Softmax"
        | "LogSoftmax"
        | "Hardmax"
        | "Identity"
        | "Clip"
        | "LRN"
        | "InstanceNormalization"
        | "LayerNormalization"
        | "RMSNormalization"
        | "GroupNormalization"
        | "LpNormalization"
        | "MeanVarianceNormalization"
        | "CumSum"
        | "Trilu"
        | "Not"
        | "BitwiseNot"
        | "Shrink"
        | "ScatterND"
        | "ScatterElements"
        | "Scatter"
        | "ReverseSequence" => {
            let mut value = Value::new(call.dtype(0), call.shape(0)?.to_vec());
            value.elements = fold::unary(op, call.input(0)?);
            Ok(vec![value])
        }
        "IsNaN" | "IsInf" => same_shape(call, Some(data_type::BOOL)),
        "Cast" => cast(call),
        "CastLike" => same_shape(call, call.dtype(1)),
        "DequantizeLinear" => same_shape(call, call.dtype(1)),
        "QuantizeLinear" => same_shape(call, call.dtype(2).or(Some(data_type::UINT8))),
        "Dropout" => {
            let shape = call.shape(0)?.to_vec();
            Ok(vec![Value::new(call.dtype(0), shape.clone()), Value::new(Some(data_type::BOOL), shape)])
        }
        "BatchNormalization" => {
            let mut values = same_shape(call, call.dtype(0))?;
            if let Ok(channels) = call.shape(1) {
                values.extend((0..4).map(|_| Value::new(call.dtype(1), channels.to_vec())));
            }
            Ok(values)
        }
        "Add" | "Sub" | "Mul" | "Div" | "Pow" | "Mod" | "Min" | "Max" | "Sum" | "Mean" | "And" | "Or" | "Xor"
        | "BitwiseAnd" | "BitwiseOr" | "BitwiseXor" | "BitShift" | "Equal" | "Greater" | "Less" | "GreaterOrEqual"
        | "LessOrEqual" | "Where" => broadcast::elementwise(call),
        "MatMul" => {
            let operands = matmul_operands(call.shape(0)?, call.shape(1)?)?;
            Ok(vec![Value::new(call.dtype(0), operands.output)])
        }
        "MatMulInteger" => {
            let operands = matmul_operands(call.shape(0)?, call.shape(1)?)?;
            Ok(vec![Value::new(Some(data_type::INT32), operands.output)])
        }
        "Gemm" => gemm(call),
        "Conv" => spatial::conv(call, call.dtype(0)),
        "ConvInteger" => spatial::conv(call, Some(data_type::INT32)),
        "ConvTranspose" => spatial::conv_transpose(call),
        "MaxPool" | "AveragePool" | "LpPool" => spatial::pool(call),
        "GlobalAveragePool" | "GlobalMaxPool" | "GlobalLpPool" => spatial::global_pool(call),
        "DepthToSpace" | "SpaceToDepth" => spatial::depth_space(call),
        "Resize" | "Upsample" => spatial::resize(call),
        "Constant" => constant(call),
        "ConstantOfShape" => constant_of_shape(call),
        "Shape" => shape_of(call),
        "Size" => {
            let count = super::value::element_count(call.shape(0)?).and_then(|count| i64::try_from(count).ok());
            let count = count.ok_or_else(|| Unknown::because("a tensor has more than 2^63 elements"))?;
            Ok(vec![Value::ints(vec![], vec![count])])
        }
        "Range" => fold::range(call),
        "ArgMax" | "ArgMin" => layout::arg_reduce(call),
        "TopK" => layout::top_k(call),
        "OneHot" => layout::one_hot(call),
        "Reshape" => layout::reshape(call),
        "Flatten" => layout::flatten(call),
        "Transpose" => layout::transpose(call),
        "Squeeze" => layout::squeeze(call),
        "Unsqueeze" => layout::unsqueeze(call),
        "Concat" => layout::concat(call),
        "Split" => layout::split(call),
        "Slice" => layout::slice(call),
        "Gather" => layout::gather(call),
        "GatherElements" => Ok(vec![Value::new(call.dtype(0), call.shape(1)?.to_vec())]),
        "Expand" => layout::expand(call),
        "Tile" => layout::tile(call),
        "Pad" => layout::pad(call),
        _ if op.starts_with("Reduce") => layout::reduce(call),
        _ => Err(Unknown::because(format!(
            "operator {op} is not followed, and the model declares no shape for its output"
        ))),
    }
}

/// One output of the shape of the first input.
fn same_shape(call: &Call<'_>, dtype: Option<i32>) -> Result<Vec<Value>, Unknown> {
    Ok(vec![Value::new(dtype, call.shape(0)?.to_vec())])
}

/// `Gemm`: `A` is `[m, k]` or, with `transA`, `[k, m]`; `B` likewise.
fn gemm(call: &Call<'_>) -> Result<Vec<Value>, Unknown> {
    let [m, n, _] = gemm_extents(call)?;
    Ok(vec![Value::new(call.dtype(0), vec![m, n])])
}

/// `[m, n, k]` of a `Gemm`.
///
/// # Errors
///
/// The reason when the operands are no matrices, or disagree about `k`.
pub(crate) fn gemm_extents(call: &Call<'_>) -> Result<[u64; 3], Unknown> {
    let (a, b) = (call.shape(0)?, call.shape(1)?);
    let ([a0, a1], [b0, b1]) = (a, b) else {
        return Err(Unknown::because(format!("Gemm of {a:?} and {b:?}, which are not both matrices")));
    };
    let (m, k) = if call.flag("transA", false)? { (*a1, *a0) } else { (*a0, *a1) };
    let (n, k_right) = if call.flag("transB", false)? { (*b0, *b1) } else { (*b1, *b0) };
    if k != k_right {
        return Err(Unknown::because(format!(
            "Gemm of {a:?} and {b:?}, whose inner dimensions {k} and {k_right} differ"
        )));
    }
    Ok([m, n, k])
}

fn cast(call: &Call<'_>) -> Result<Vec<Value>, Unknown> {
    let to = call.int("to")?.and_then(|code| i32::try_from(code).ok());
    let mut value = Value::new(to, call.shape(0)?.to_vec());
    value.elements = to.and_then(|to| fold::cast(call.input(0).ok()?, to));
    Ok(vec![value])
}

fn constant(call: &Call<'_>) -> Result<Vec<Value>, Unknown> {
    let list = |len: usize| vec![len as u64];
    let float = |shape, floats: Vec<f64>| {
        let mut value = Value::new(Some(data_type::FLOAT), shape);
        value.elements = (floats.len() <= super::value::MAX_FOLDED).then_some(Elements::Floats(floats));
        value
    };
    let value = if let Some(tensor) = call.tensor("value")? {
        Value::constant(tensor)
    } else if let Some(int) = call.int("value_int")? {
        Value::ints(vec![], vec![int])
    } else if let Some(ints) = call.ints("value_ints")? {
        let mut value = Value::new(Some(data_type::INT64), list(ints.len()));
        value.elements = (ints.len() <= super::value::MAX_FOLDED).then(|| Elements::Ints(ints.to_vec()));
        value
    } else if let Some(x) = call.float("value_float")? {
        float(vec![], vec![f64::from(x)])
    } else if let Some(floats) = call.floats("value_floats")? {
        float(list(floats.len()), floats.iter().map(|x| f64::from(*x)).collect())
    } else {
        return Err(Unknown::because("a Constant holds no numbers that are read"));
    };
    Ok(vec![value])
}

fn constant_of_shape(call: &Call<'_>) -> Result<Vec<Value>, Unknown> {
    let dims = call.constant_ints(0)?.ok_or_else(|| Unknown::because("ConstantOfShape lacks its shape"))?;
    let shape: Option<Vec<u64>> = dims.iter().map(|dim| u64::try_from(*dim).ok()).collect();
    let shape = shape.ok_or_else(|| Unknown::because(format!("ConstantOfShape of negative dimensions {dims:?}")))?;
    let default =
        TensorProto { dims: vec![1], data_type: data_type::FLOAT, float_data: vec![0.0], ..Default::default() };
    let fill = Value::constant(call.tensor("value")?.unwrap_or(&default));
    let mut value = Value::new(fill.dtype, shape);
    value.elements = fold::filled(&value, fill.elements.as_ref());
    Ok(vec![value])
}

/// `Shape`, since operator set 15 of a range of the dimensions.
fn shape_of(call: &Call<'_>) -> Result<Vec<Value>, Unknown> {
    let shape = call.shape(0)?;
    let clamp = |axis: i64| {
        let rank = i64::try_from(shape.len()).unwrap_or(i64::MAX);
        let axis = if axis < 0 { axis.saturating_add(rank) } else { axis };
        usize::try_from(axis.clamp(0, rank)).unwrap_or(0)
    };
    let start = clamp(call.int("start")?.unwrap_or(0));
    let end = call.int("end")?.map_or(shape.len(), clamp).max(start);
    let ints: Option<Vec<i64>> = shape[start..end].iter().map(|dim| i64::try_from(*dim).ok()).collect();
    let ints = ints.ok_or_else(|| Unknown::because("a dimension is above 2^63"))?;
    Ok(vec![Value::ints(vec![ints.len() as u64], ints)])
}

/// The attribute `axis` as a position in `0..rank`.
fn axis_attribute(call: &Call<'_>, default: i64, rank: usize) -> Result<usize, Unknown> {
    axis_in(call.int("axis")?.unwrap_or(default), rank)
}
