//! `Gemm` and `MatMul` nodes.

use search_space::workload::{Activation, MatmulSpec};

use super::super::infer::{gemm_extents, matmul_operands};
use super::super::value::{Unknown, element_count};
use super::fuse::Chain;
use super::{Found, Place, common_dtype};

/// Reads the `Gemm` at a place: `A · B` or `A · B + C` with `C` a vector over the columns.
pub(super) fn gemm(place: &Place<'_, '_>) -> Result<Option<Found>, String> {
    let (graph, position) = (place.graph, place.position);
    let node = &graph.nodes[position];
    let call = graph.call(node);
    let text = |why: Unknown| why.to_string();
    let [m, n, k] = gemm_extents(&call).map_err(text)?;
    let addend = call.optional(2);
    // Without C, beta has no effect.
    for (name, matters) in [("alpha", true), ("beta", addend.is_some())] {
        let factor = call.float(name).map_err(text)?.unwrap_or(1.0);
        if matters && factor != 1.0 {
            return Err(format!("{name} is {factor}; only 1 is read"));
        }
    }
    if let Some(addend) = addend {
        let shape = addend.shape.as_ref().map_err(|why| format!("the shape of its C is not known: {why}"))?;
        let is_vector = match shape.as_slice() {
            [columns] | [1, columns] => *columns == n,
            _ => false,
        };
        if !is_vector {
            return Err(format!("its C has the shape {shape:?}; only a vector over the {n} columns is read"));
        }
    }
    let dtype = common_dtype(graph, node)?;
    let mut chain = Chain::new(graph, position, addend.is_some());
    chain.absorb_bias(1);
    chain.absorb_relu();
    let spec = MatmulSpec {
        transpose_a: call.flag("transA", false).map_err(text)?,
        transpose_b: call.flag("transB", false).map_err(text)?,
        dtype,
        bias: chain.bias,
        activation: chain.relu.then_some(Activation::Relu),
        ..MatmulSpec::new(m, n, k)
    };
    let workload = spec.workload().map_err(|why| why.to_string())?;
    Ok(Some(Found { workload, fused: chain.fused }))
}

/// Reads the `MatMul` at a place.
///
/// Where all matrices on the left meet the same matrix on the right, their rows become one long `m`.
pub(super) fn matmul(place: &Place<'_, '_>) -> Result<Option<Found>, String> {
    let (graph, position) = (place.graph, place.position);
    let node = &graph.nodes[position];
    let call = graph.call(node);
    let text = |why: Unknown| why.to_string();
    let operands = matmul_operands(call.shape(0).map_err(text)?, call.shape(1).map_err(text)?).map_err(text)?;
    let dtype = common_dtype(graph, node)?;
    let count = |shape: &[u64]| element_count(shape).ok_or_else(|| "its batch is above 2^64".to_owned());
    let (batch, m) = if operands.batch_right.iter().all(|dim| *dim == 1) {
        let rows = count(&operands.batch_left)?.checked_mul(operands.m);
        (1, rows.ok_or_else(|| "it has more than 2^64 rows".to_owned())?)
    } else if operands.batch_left == operands.batch_right {
        (count(&operands.batch_left)?, operands.m)
    } else {
        return Err(format!(
            "its batches {:?} and {:?} differ, and repeating a matrix across a batch is not read",
            operands.batch_left, operands.batch_right
        ));
    };
    let mut chain = Chain::new(graph, position, false);
    // Without a dimension for the columns, a vector added to the result runs over the rows.
    if operands.has_columns && !operands.output.is_empty() {
        chain.absorb_bias(operands.output.len() - 1);
    }
    chain.absorb_relu();
    let spec = MatmulSpec {
        batch,
        dtype,
        bias: chain.bias,
        activation: chain.relu.then_some(Activation::Relu),
        ..MatmulSpec::new(m, operands.n, operands.k)
    };
    let workload = spec.workload().map_err(|why| why.to_string())?;
    Ok(Some(Found { workload, fused: chain.fused }))
}
