//! Operators that move, cut, join or reduce elements.

use super::super::call::{Call, axis_in};
use super::super::proto::data_type;
use super::super::value::{Elements, MAX_FOLDED, Shape, Unknown, Value, element_count};
use super::{axis_attribute, broadcast, fold};

/// A dimension from an integer constant.
fn dimension(op: &str, size: i64) -> Result<u64, Unknown> {
    u64::try_from(size).map_err(|_| Unknown::because(format!("{op} to a dimension of {size}")))
}

/// A required list of integers, from an attribute or an input.
fn required<'a>(call: &Call<'a>, name: &str, index: usize) -> Result<&'a [i64], Unknown> {
    call.ints_or_input(name, index)?
        .ok_or_else(|| Unknown::because(format!("{} without \"{name}\"", call.node.op_type)))
}

/// One output of this shape with the elements of the first input in the same order.
fn reshaped(call: &Call<'_>, shape: Shape) -> Result<Vec<Value>, Unknown> {
    let input = call.input(0)?;
    let mut value = Value::new(input.dtype, shape);
    value.elements = input.elements.clone();
    Ok(vec![value])
}

/// `Reshape`: 0 keeps the dimension, -1 is what remains.
pub(super) fn reshape(call: &Call<'_>) -> Result<Vec<Value>, Unknown> {
    let target = required(call, "shape", 1)?;
    let input = call.shape(0)?;
    let wrong = || Unknown::because(format!("Reshape of {input:?} to {target:?}"));
    let keeps = !call.flag("allowzero", false)?;
    if target.iter().filter(|size| **size == -1).count() > 1 {
        return Err(wrong());
    }
    let mut shape = Vec::with_capacity(target.len());
    for (axis, size) in target.iter().enumerate() {
        shape.push(match size {
            0 if keeps => *input.get(axis).ok_or_else(wrong)?,
            -1 => 1,
            size => u64::try_from(*size).map_err(|_| wrong())?,
        });
    }
    let (wanted, given) = (element_count(input).ok_or_else(wrong)?, element_count(&shape).ok_or_else(wrong)?);
    match target.iter().position(|size| *size == -1) {
        Some(axis) if given != 0 && wanted % given == 0 => shape[axis] = wanted / given,
        None if given == wanted => {}
        _ => return Err(wrong()),
    }
    reshaped(call, shape)
}

pub(super) fn flatten(call: &Call<'_>) -> Result<Vec<Value>, Unknown> {
    let input = call.shape(0)?;
    // The axis may be the rank itself: everything goes to the first dimension.
    let axis = match call.int("axis")?.unwrap_or(1) {
        axis if usize::try_from(axis).is_ok_and(|axis| axis == input.len()) => input.len(),
        axis => axis_in(axis, input.len())?,
    };
    let count = |shape| element_count(shape).ok_or_else(|| Unknown::because(format!("Flatten of {input:?}")));
    reshaped(call, vec![count(&input[..axis])?, count(&input[axis..])?])
}

pub(super) fn transpose(call: &Call<'_>) -> Result<Vec<Value>, Unknown> {
    let input = call.shape(0)?;
    let rank = input.len();
    let order: Vec<usize> = match call.ints("perm")?.filter(|perm| !perm.is_empty()) {
        Some(perm) => perm.iter().map(|axis| axis_in(*axis, rank)).collect::<Result<_, _>>()?,
        None => (0..rank).rev().collect(),
    };
    let mut seen = vec![false; rank];
    order.iter().for_each(|axis| seen[*axis] = true);
    if order.len() != rank || seen.contains(&false) {
        return Err(Unknown::because(format!("Transpose of {input:?} by {order:?}, which is no permutation")));
    }
    let mut value = Value::new(call.dtype(0), order.iter().map(|axis| input[*axis]).collect());
    value.elements = call.input(0)?.elements.as_ref().and_then(|elements| {
        fold::rearranged(elements, value.shape.as_ref().ok()?, |at| {
            let mut from = vec![0; rank];
            order.iter().zip(at).for_each(|(axis, at)| from[*axis] = *at);
            fold::stretched_position(input, &from)
        })
    });
    Ok(vec![value])
}

pub(super) fn squeeze(call: &Call<'_>) -> Result<Vec<Value>, Unknown> {
    let input = call.shape(0)?;
    let drop: Vec<usize> = match call.ints_or_input("axes", 1)? {
        Some(axes) => axes.iter().map(|axis| axis_in(*axis, input.len())).collect::<Result<_, _>>()?,
        None => (0..input.len()).filter(|axis| input[*axis] == 1).collect(),
    };
    if drop.iter().any(|axis| input[*axis] != 1) {
        return Err(Unknown::because(format!("Squeeze of {input:?} over axes {drop:?}")));
    }
    reshaped(call, (0..input.len()).filter(|axis| !drop.contains(axis)).map(|axis| input[axis]).collect())
}

pub(super) fn unsqueeze(call: &Call<'_>) -> Result<Vec<Value>, Unknown> {
    let input = call.shape(0)?;
    let axes = required(call, "axes", 1)?;
    let rank = input.len() + axes.len();
    let mut is_new = vec![false; rank];
    for axis in axes {
        is_new[axis_in(*axis, rank)?] = true;
    }
    if is_new.iter().filter(|new| **new).count() != axes.len() {
        return Err(Unknown::because(format!("Unsqueeze names an axis twice: {axes:?}")));
    }
    let mut old = input.iter();
    let shape = is_new.iter().map(|new| if *new { 1 } else { old.next().copied().unwrap_or(1) }).collect();
    reshaped(call, shape)
}

pub(super) fn concat(call: &Call<'_>) -> Result<Vec<Value>, Unknown> {
    let mut shape = call.shape(0)?.to_vec();
    let axis = axis_attribute(call, 1, shape.len())?;
    for index in 1..call.inputs.len() {
        let other = call.shape(index)?;
        let fits = other.len() == shape.len() && (0..shape.len()).all(|i| i == axis || other[i] == shape[i]);
        let sum = fits.then(|| shape[axis].checked_add(other[axis])).flatten();
        shape[axis] =
            sum.ok_or_else(|| Unknown::because(format!("Concat of {shape:?} and {other:?} over axis {axis}")))?;
    }
    let mut value = Value::new(call.dtype(0), shape);
    if axis == 0 {
        value.elements = joined(call);
    }
    Ok(vec![value])
}

/// The integers of all inputs, one after the other.
fn joined(call: &Call<'_>) -> Option<Elements> {
    let mut all = Vec::new();
    for input in &call.inputs {
        all.extend_from_slice(input.as_ref()?.as_ints()?);
        if all.len() > MAX_FOLDED {
            return None;
        }
    }
    Some(Elements::Ints(all))
}

pub(super) fn split(call: &Call<'_>) -> Result<Vec<Value>, Unknown> {
    let input = call.shape(0)?;
    let axis = axis_attribute(call, 0, input.len())?;
    let parts = call.node.output.len() as u64;
    let sizes: Vec<u64> = match call.ints_or_input("split", 1)?.filter(|sizes| !sizes.is_empty()) {
        Some(sizes) => sizes.iter().map(|size| dimension("Split", *size)).collect::<Result<_, _>>()?,
        // Equal parts, the last one smaller where it does not come out even.
        None => {
            let part = input[axis].div_ceil(parts.max(1));
            (0..parts).map(|i| part.min(input[axis].saturating_sub(part.saturating_mul(i)))).collect()
        }
    };
    let sum = sizes.iter().try_fold(0u64, |sum, size| sum.checked_add(*size));
    if sum != Some(input[axis]) {
        return Err(Unknown::because(format!("Split of {input:?} over axis {axis} into {sizes:?}")));
    }
    let part = |size: &u64| {
        let mut shape = input.to_vec();
        shape[axis] = *size;
        Value::new(call.dtype(0), shape)
    };
    Ok(sizes.iter().take(call.node.output.len()).map(part).collect())
}

/// First element, step and number of elements that a slice takes from a dimension.
fn slice_range(dim: u64, start: i64, end: i64, step: i64) -> Option<(i128, i128, u64)> {
    let (dim, step) = (i128::from(dim), i128::from(step));
    let from_front = |at: i64| if at < 0 { i128::from(at) + dim } else { i128::from(at) };
    let (start, count) = match step.signum() {
        1 => {
            let start = from_front(start).clamp(0, dim);
            (start, (from_front(end).clamp(0, dim) - start + step - 1) / step)
        }
        -1 => {
            let start = from_front(start).clamp(0, (dim - 1).max(0));
            let end = from_front(end).clamp(-1, (dim - 1).max(-1));
            (start, if dim == 0 { 0 } else { (start - end - step - 1) / -step })
        }
        _ => return None,
    };
    Some((start, step, u64::try_from(count.max(0)).ok()?))
}

pub(super) fn slice(call: &Call<'_>) -> Result<Vec<Value>, Unknown> {
    let input = call.shape(0)?;
    let (starts, ends) = (required(call, "starts", 1)?, required(call, "ends", 2)?);
    let axes = match call.ints_or_input("axes", 3)? {
        Some(axes) => axes.iter().map(|axis| axis_in(*axis, input.len())).collect::<Result<Vec<_>, _>>()?,
        None => (0..starts.len()).collect(),
    };
    let steps = call.constant_ints(4)?;
    let same = ends.len() == starts.len() && axes.len() == starts.len();
    if !same || steps.is_some_and(|steps| steps.len() != starts.len()) {
        return Err(Unknown::because("Slice with lists of different lengths"));
    }
    let mut taken: Vec<(i128, i128, u64)> = input.iter().map(|dim| (0, 1, *dim)).collect();
    for (i, axis) in axes.iter().enumerate() {
        let step = steps.map_or(1, |steps| steps[i]);
        let dim = input.get(*axis).ok_or_else(|| Unknown::because("Slice over more axes than there are"))?;
        taken[*axis] =
            slice_range(*dim, starts[i], ends[i], step).ok_or_else(|| Unknown::because("Slice with a step of 0"))?;
    }
    let mut value = Value::new(call.dtype(0), taken.iter().map(|(_, _, count)| *count).collect());
    value.elements = call.input(0)?.elements.as_ref().and_then(|elements| {
        fold::rearranged(elements, value.shape.as_ref().ok()?, |at| {
            let from =
                taken.iter().zip(at).map(|((start, step, _), at)| u64::try_from(start + step * i128::from(*at)).ok());
            fold::stretched_position(input, &from.collect::<Option<Vec<u64>>>()?)
        })
    });
    Ok(vec![value])
}

/// `Gather`: the axis is replaced by the dimensions of the indices.
pub(super) fn gather(call: &Call<'_>) -> Result<Vec<Value>, Unknown> {
    let (input, indices) = (call.shape(0)?, call.shape(1)?);
    let axis = axis_attribute(call, 0, input.len())?;
    let shape = [&input[..axis], indices, &input[axis + 1..]].concat();
    let mut value = Value::new(call.dtype(0), shape);
    if let (Some(elements), Some(picked)) = (&call.input(0)?.elements, call.input(1)?.as_ints()) {
        value.elements = value.shape.as_ref().ok().and_then(|shape| {
            fold::rearranged(elements, shape, |at| {
                let (before, rest) = at.split_at(axis);
                let (index_at, after) = rest.split_at(indices.len());
                let position = usize::try_from(fold::stretched_position(indices, index_at)?).ok()?;
                let index = axis_in(*picked.get(position)?, usize::try_from(input[axis]).ok()?).ok()?;
                fold::stretched_position(input, &[before, &[index as u64], after].concat())
            })
        });
    }
    Ok(vec![value])
}

pub(super) fn expand(call: &Call<'_>) -> Result<Vec<Value>, Unknown> {
    let target = required(call, "shape", 1)?;
    let target: Shape = target.iter().map(|size| dimension("Expand", *size)).collect::<Result<_, _>>()?;
    let mut value = Value::new(call.dtype(0), broadcast(call.shape(0)?, &target)?);
    value.elements = value.shape.as_ref().ok().and_then(|shape| fold::stretched(call.input(0).ok()?, shape));
    Ok(vec![value])
}

pub(super) fn tile(call: &Call<'_>) -> Result<Vec<Value>, Unknown> {
    let (input, repeats) = (call.shape(0)?, required(call, "repeats", 1)?);
    let wrong = || Unknown::because(format!("Tile of {input:?} by {repeats:?}"));
    if repeats.len() != input.len() {
        return Err(wrong());
    }
    let grown = |(dim, by): (&u64, &i64)| u64::try_from(*by).ok().and_then(|by| dim.checked_mul(by));
    let shape: Option<Shape> = input.iter().zip(repeats).map(grown).collect();
    Ok(vec![Value::new(call.dtype(0), shape.ok_or_else(wrong)?)])
}

/// `Pad`: all begins, then all ends; negative ones cut.
pub(super) fn pad(call: &Call<'_>) -> Result<Vec<Value>, Unknown> {
    let input = call.shape(0)?;
    let pads = match call.ints("paddings")? {
        Some(pads) => pads,
        None => required(call, "pads", 1)?,
    };
    let axes = match call.constant_ints(3)? {
        Some(axes) => axes.iter().map(|axis| axis_in(*axis, input.len())).collect::<Result<Vec<_>, _>>()?,
        None => (0..input.len()).collect(),
    };
    let wrong = || Unknown::because(format!("Pad of {input:?} by {pads:?}"));
    if pads.len() != 2 * axes.len() {
        return Err(wrong());
    }
    let mut shape = input.to_vec();
    for (i, axis) in axes.iter().enumerate() {
        let extent = i128::from(shape[*axis]) + i128::from(pads[i]) + i128::from(pads[i + axes.len()]);
        shape[*axis] = u64::try_from(extent).map_err(|_| wrong())?;
    }
    Ok(vec![Value::new(call.dtype(0), shape)])
}

/// Any `Reduce*`.
pub(super) fn reduce(call: &Call<'_>) -> Result<Vec<Value>, Unknown> {
    let input = call.shape(0)?;
    let axes = call.ints_or_input("axes", 1)?.filter(|axes| !axes.is_empty());
    let axes: Vec<usize> = match axes {
        Some(axes) => axes.iter().map(|axis| axis_in(*axis, input.len())).collect::<Result<_, _>>()?,
        None if call.flag("noop_with_empty_axes", false)? => vec![],
        None => (0..input.len()).collect(),
    };
    Ok(vec![Value::new(call.dtype(0), without(input, &axes, call.flag("keepdims", true)?))])
}

/// A shape whose `axes` are reduced to 1, or removed.
fn without(input: &[u64], axes: &[usize], keep: bool) -> Shape {
    let dims = input.iter().enumerate();
    dims.filter_map(|(axis, dim)| if !axes.contains(&axis) { Some(*dim) } else { keep.then_some(1) }).collect()
}

pub(super) fn arg_reduce(call: &Call<'_>) -> Result<Vec<Value>, Unknown> {
    let input = call.shape(0)?;
    let axis = axis_attribute(call, 0, input.len())?;
    Ok(vec![Value::new(Some(data_type::INT64), without(input, &[axis], call.flag("keepdims", true)?))])
}

pub(super) fn top_k(call: &Call<'_>) -> Result<Vec<Value>, Unknown> {
    let mut shape = call.shape(0)?.to_vec();
    let axis = axis_attribute(call, -1, shape.len())?;
    let k = match call.int("k")? {
        Some(k) => Some(k),
        None => call.constant_ints(1)?.and_then(|ints| ints.first().copied()),
    };
    shape[axis] = dimension("TopK", k.ok_or_else(|| Unknown::because("TopK without k"))?)?;
    Ok(vec![Value::new(call.dtype(0), shape.clone()), Value::new(Some(data_type::INT64), shape)])
}

pub(super) fn one_hot(call: &Call<'_>) -> Result<Vec<Value>, Unknown> {
    let mut shape = call.shape(0)?.to_vec();
    let axis = axis_attribute(call, -1, shape.len() + 1)?;
    let depth = call.constant_ints(1)?.and_then(|ints| ints.first().copied());
    shape.insert(axis, dimension("OneHot", depth.ok_or_else(|| Unknown::because("OneHot without depth"))?)?);
    Ok(vec![Value::new(call.dtype(2), shape)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_follow_numpy() {
        assert_eq!(slice_range(10, 2, 8, 3), Some((2, 3, 2)));
        assert_eq!(slice_range(10, -3, i64::MAX, 1), Some((7, 1, 3)));
        assert_eq!(slice_range(10, -1, i64::MIN, -1), Some((9, -1, 10)));
        assert_eq!(slice_range(10, 8, 2, 1), Some((8, 1, 0)));
        assert_eq!(slice_range(0, 0, i64::MIN, -1), Some((0, -1, 0)));
        assert_eq!(slice_range(10, 0, 1, 0), None);
    }
}
