//! `Conv` nodes.

use search_space::workload::{Activation, Conv2dSpec};

use super::super::infer::conv_parts;
use super::fuse::Chain;
use super::{Found, Place, common_dtype};

/// Reads the `Conv` at a place: two spatial dimensions, any stride, dilation, padding and groups.
pub(super) fn read(place: &Place<'_, '_>) -> Result<Option<Found>, String> {
    let (graph, position) = (place.graph, place.position);
    let node = &graph.nodes[position];
    let call = graph.call(node);
    let parts = conv_parts(&call).map_err(|why| why.to_string())?;
    let [rows, columns] = parts.windows.as_slice() else {
        return Err(format!(
            "a convolution over {} spatial dimension(s); only those over 2 are read",
            parts.windows.len()
        ));
    };
    let dtype = common_dtype(graph, node)?;
    if let Some(bias) = call.optional(2) {
        let shape = bias.shape.as_ref().map_err(|why| format!("the shape of its bias is not known: {why}"))?;
        if *shape != [parts.filters] {
            return Err(format!("its bias has the shape {shape:?}, not [{}]", parts.filters));
        }
    }
    let mut chain = Chain::new(graph, position, call.optional(2).is_some());
    chain.absorb_batch_normalization();
    chain.absorb_bias(1);
    chain.absorb_relu();
    let (n, c, k) = (parts.batch, parts.channels, parts.filters);
    let spec = Conv2dSpec {
        stride_h: rows.stride,
        stride_w: columns.stride,
        pad_top: rows.pad_begin,
        pad_left: columns.pad_begin,
        pad_bottom: rows.pad_end,
        pad_right: columns.pad_end,
        dilation_h: rows.dilation,
        dilation_w: columns.dilation,
        groups: parts.groups,
        dtype,
        bias: chain.bias,
        activation: chain.relu.then_some(Activation::Relu),
        ..Conv2dSpec::new(n, c, rows.input, columns.input, k, rows.kernel, columns.kernel)
    };
    let workload = spec.workload().map_err(|why| why.to_string())?;
    Ok(Some(Found { workload, fused: chain.fused }))
}
