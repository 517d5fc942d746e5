//! `Softmax`, `LogSoftmax`, `LayerNormalization`, `RMSNormalization` and `ArgMax` nodes.

use search_space::Workload;
use search_space::workload::{DType, EpilogueStep, Op, Real, Role, RowPass, RowsSpec};

use super::super::call::{Call, axis_in};
use super::super::value::Unknown;
use super::{Found, Place, dense, dtype_of};

/// The operator set from which a softmax runs along one axis; before, along all from that axis on.
const SOFTMAX_OF_ONE_AXIS: i64 = 13;

/// Reads the `Softmax` or `LogSoftmax` at a place.
pub(super) fn softmax(place: &Place<'_, '_>) -> Result<Option<Found>, String> {
    let node = place.node();
    let call = place.call();
    let shape = call.shape(0).map_err(text)?;
    let one = place.operator_set >= SOFTMAX_OF_ONE_AXIS;
    let axis = axis_in(call.int("axis").map_err(text)?.unwrap_or(if one { -1 } else { 1 }), shape.len());
    let axis = axis.map_err(text)?;
    let pass = if node.op_type == "Softmax" { RowPass::Softmax } else { RowPass::LogSoftmax };
    let until = if one { axis + 1 } else { shape.len() };
    Ok(Found::alone(along(pass, shape, axis, until, dtype_of(place.graph, node, 0)?)?))
}

/// Reads the `ArgMax` at a place. Its result has 64 bits in the model, 32 in the workload.
pub(super) fn arg_max(place: &Place<'_, '_>) -> Result<Option<Found>, String> {
    let call = place.call();
    if call.flag("select_last_index", false).map_err(text)? {
        return Err("select_last_index is 1; only the first of equal maxima is found".to_owned());
    }
    let shape = call.shape(0).map_err(text)?;
    let axis = axis_in(call.int("axis").map_err(text)?.unwrap_or(0), shape.len()).map_err(text)?;
    Ok(Found::alone(along(RowPass::ArgMax, shape, axis, axis + 1, dtype_of(place.graph, place.node(), 0)?)?))
}

/// Reads the `LayerNormalization` or `RMSNormalization` at a place.
pub(super) fn norm(place: &Place<'_, '_>) -> Result<Option<Found>, String> {
    let node = place.node();
    let call = place.call();
    if node.output.iter().skip(1).any(|name| !name.is_empty()) {
        return Err("its mean and deviation are used; only the normalised values are computed".to_owned());
    }
    let shape = call.shape(0).map_err(text)?;
    let axis = axis_in(call.int("axis").map_err(text)?.unwrap_or(-1), shape.len()).map_err(text)?;
    let (rows, cols) = (dense::count(&shape[..axis])?, dense::count(&shape[axis..])?);
    for index in 1..call.inputs.len().min(3) {
        let Some(value) = call.optional(index) else { continue };
        let found = value.shape.as_ref().map_err(Unknown::to_string)?;
        let leading = found.len().saturating_sub(shape.len() - axis);
        if found[leading..] != shape[axis..] || found[..leading].iter().any(|dim| *dim != 1) {
            return Err(format!("its input {index} has the shape {found:?}, not {:?}", &shape[axis..]));
        }
    }
    let eps = epsilon(&call)?;
    let layer = node.op_type == "LayerNormalization";
    let pass = if layer { RowPass::LayerNorm { eps, affine: true } } else { RowPass::RmsNorm { eps, affine: true } };
    let spec = RowsSpec { pass, rows, cols, dtype: dtype_of(place.graph, node, 0)? };
    let mut workload = spec.workload().map_err(|why| why.to_string())?;
    if layer && call.optional(2).is_none() {
        workload.operands.retain(|operand| operand.name != "beta");
        workload.epilogue.retain(|step| !matches!(step, EpilogueStep::Add(_)));
    }
    Ok(Found::alone(workload))
}

/// The attribute `epsilon`: what was meant by its 32 bits, 1e-5 and not 9.999999747378752e-6.
fn epsilon(call: &Call<'_>) -> Result<Real, String> {
    let bits = call.float("epsilon").map_err(text)?.unwrap_or(1e-5);
    let meant = bits.to_string().parse().ok().and_then(Real::new);
    meant.filter(|_| bits >= 0.0).ok_or_else(|| format!("its epsilon is {bits}"))
}

/// A pass along the dimensions `from..until`.
fn along(pass: RowPass, shape: &[u64], from: usize, until: usize, dtype: DType) -> Result<Workload, String> {
    let (outer, inner) = (dense::count(&shape[..from])?, dense::count(&shape[until..])?);
    let cols = dense::count(&shape[from..until])?;
    if inner == 1 {
        let spec = RowsSpec { pass, rows: outer, cols, dtype };
        return spec.workload().map_err(|why| why.to_string());
    }
    let group = |extent, reduced| dense::Group { extent, reduced };
    let axes = dense::axes(&[group(outer, false), group(cols, true), group(inner, false)])?;
    let x = dense::tensor(Role::In, "x", dtype, &axes, &[0, 1, 2]);
    let whole = dense::tensor(Role::Out, "y", dtype, &axes, &[0, 1, 2]);
    let (op, y) = match pass {
        RowPass::Softmax => (Op::RowsSoftmax, whole),
        RowPass::LogSoftmax => (Op::RowsLogSoftmax, whole),
        RowPass::ArgMax => (Op::RowsArgMax, dense::tensor(Role::Out, "y", DType::I32, &axes, &[0, 2])),
        RowPass::LayerNorm { .. } | RowPass::RmsNorm { .. } => return Err("a norm along inner dimensions".to_owned()),
    };
    dense::workload(op, axes, vec![x, y], Vec::new())
}

fn text(why: Unknown) -> String {
    why.to_string()
}
