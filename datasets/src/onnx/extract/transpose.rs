//! `Transpose` nodes.

use search_space::workload::{Op, Role, TransposeSpec};

use super::super::call::axis_in;
use super::super::value::Unknown;
use super::{Found, Place, dense, dtype_of};

/// Reads the `Transpose` at a place; `None` for one that leaves every element where it lies.
pub(super) fn read(place: &Place<'_, '_>) -> Result<Option<Found>, String> {
    let text = |why: Unknown| why.to_string();
    let call = place.call();
    let shape = call.shape(0).map_err(text)?;
    let order: Vec<usize> = match call.ints("perm").map_err(text)?.filter(|perm| !perm.is_empty()) {
        Some(perm) => perm.iter().map(|axis| axis_in(*axis, shape.len()).map_err(text)).collect::<Result<_, _>>()?,
        None => (0..shape.len()).rev().collect(),
    };
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if sorted != (0..shape.len()).collect::<Vec<usize>>() {
        return Err(format!("its order {order:?} is no permutation of the dimensions of {shape:?}"));
    }
    let dtype = dtype_of(place.graph, place.node(), 0)?;
    // Runs of dimensions that stay together, in the order of the output.
    let mut runs: Vec<Vec<usize>> = Vec::new();
    for &axis in order.iter().filter(|axis| shape[**axis] != 1) {
        let next = |last: &usize| (last + 1..axis).all(|between| shape[between] == 1) && *last < axis;
        match runs.last_mut() {
            Some(run) if run.last().is_some_and(next) => run.push(axis),
            _ => runs.push(vec![axis]),
        }
    }
    if runs.len() < 2 {
        return Ok(None);
    }
    let extent = |run: &Vec<usize>| dense::count(&run.iter().map(|axis| shape[*axis]).collect::<Vec<u64>>());
    let extents: Vec<u64> = runs.iter().map(extent).collect::<Result<_, _>>()?;
    // Axes are in the order of the input; `to` is their order in the output.
    let mut from: Vec<usize> = (0..runs.len()).collect();
    from.sort_by_key(|run| runs[*run][0]);
    if let [second, first] = extents[..] {
        let spec = TransposeSpec { rows: first, cols: second, dtype };
        return Ok(Found::alone(spec.workload().map_err(|why| why.to_string())?));
    }
    let groups: Vec<dense::Group> =
        from.iter().map(|run| dense::Group { extent: extents[*run], reduced: false }).collect();
    let axes = dense::axes(&groups)?;
    let to: Vec<usize> = (0..runs.len()).map(|run| from.iter().position(|at| *at == run).unwrap_or(run)).collect();
    let all: Vec<usize> = (0..runs.len()).collect();
    let x = dense::tensor(Role::In, "x", dtype, &axes, &all);
    let y = dense::tensor(Role::Out, "y", dtype, &axes, &to);
    Ok(Found::alone(dense::workload(Op::Map, axes, vec![x, y], Vec::new())?))
}
