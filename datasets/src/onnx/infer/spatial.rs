//! Operators over spatial dimensions: convolutions, pools, resizing. Values are `[batch, channels, spatial...]`.

use super::super::call::Call;
use super::super::proto::data_type;
use super::super::value::{Shape, Unknown, Value};
use super::window::{Window, windows};

/// A convolution taken apart.
pub(crate) struct ConvParts {
    /// Batch.
    pub(crate) batch: u64,
    /// Input channels, over all groups.
    pub(crate) channels: u64,
    /// Output channels, over all groups.
    pub(crate) filters: u64,
    /// Groups.
    pub(crate) groups: u64,
    /// One window per spatial dimension.
    pub(crate) windows: Vec<Window>,
}

/// Batch, channels and spatial dimensions of a shape.
fn split_spatial<'a>(op: &str, shape: &'a [u64]) -> Result<(u64, u64, &'a [u64]), Unknown> {
    match shape {
        [batch, channels, spatial @ ..] if !spatial.is_empty() => Ok((*batch, *channels, spatial)),
        _ => Err(Unknown::because(format!("{op} of {shape:?}, which has no spatial dimension"))),
    }
}

/// Takes a `Conv` with input `[batch, channels, spatial...]` and weights `[filters, channels / groups, kernel...]` apart.
pub(crate) fn conv_parts(call: &Call<'_>) -> Result<ConvParts, Unknown> {
    let (batch, channels, spatial) = split_spatial(&call.node.op_type, call.shape(0)?)?;
    let weights = call.shape(1)?;
    let (filters, channels_per_group, kernel) = split_spatial("a convolution with weights", weights)?;
    if let Some(declared) = call.ints("kernel_shape")?.filter(|list| !list.is_empty()) {
        let same = declared.len() == kernel.len()
            && declared.iter().zip(kernel).all(|(a, b)| u64::try_from(*a).is_ok_and(|a| a == *b));
        if !same {
            return Err(Unknown::because(format!("kernel_shape {declared:?} and weights {weights:?} differ")));
        }
    }
    let groups = call.int("group")?.unwrap_or(1);
    let groups = u64::try_from(groups).ok().filter(|groups| *groups > 0);
    let groups = groups.ok_or_else(|| Unknown::because("a convolution with no groups"))?;
    if channels_per_group.checked_mul(groups) != Some(channels) || filters % groups != 0 {
        return Err(Unknown::because(format!("{channels} channels in {groups} groups do not fit weights {weights:?}")));
    }
    Ok(ConvParts { batch, channels, filters, groups, windows: windows(call, spatial, kernel, false)? })
}

pub(super) fn conv(call: &Call<'_>, dtype: Option<i32>) -> Result<Vec<Value>, Unknown> {
    let parts = conv_parts(call)?;
    let mut shape = vec![parts.batch, parts.filters];
    shape.extend(parts.windows.iter().map(|window| window.output));
    Ok(vec![Value::new(dtype, shape)])
}

/// `ConvTranspose`: `stride (input - 1) + output_padding + reach - pads`, or `output_shape`.
pub(super) fn conv_transpose(call: &Call<'_>) -> Result<Vec<Value>, Unknown> {
    let (batch, channels, spatial) = split_spatial("ConvTranspose", call.shape(0)?)?;
    let (weight_channels, filters, kernel) = split_spatial("a convolution with weights", call.shape(1)?)?;
    let wrong = || Unknown::because("the parameters of a ConvTranspose do not fit its operands");
    let groups = u64::try_from(call.int("group")?.unwrap_or(1)).map_err(|_| wrong())?;
    if weight_channels != channels || kernel.len() != spatial.len() {
        return Err(wrong());
    }
    let list = |name: &str, len: usize, default: i128| -> Result<Vec<i128>, Unknown> {
        match call.ints(name)?.filter(|list| !list.is_empty()) {
            None => Ok(vec![default; len]),
            Some(list) if list.len() == len => {
                list.iter().map(|x| i32::try_from(*x).map(i128::from).map_err(|_| wrong())).collect()
            }
            Some(_) => Err(wrong()),
        }
    };
    let rank = spatial.len();
    let (strides, dilations) = (list("strides", rank, 1)?, list("dilations", rank, 1)?);
    let (extra, pads) = (list("output_padding", rank, 0)?, list("pads", 2 * rank, 0)?);
    let wanted = call.ints("output_shape")?.filter(|list| list.len() == rank);
    let same = call.text("auto_pad")?.is_some_and(|auto| auto.starts_with("SAME"));
    let mut shape = vec![batch, filters.checked_mul(groups).ok_or_else(wrong)?];
    for axis in 0..rank {
        let (input, kernel) = (i128::from(spatial[axis]), i128::from(kernel[axis]));
        let extent = if let Some(wanted) = wanted {
            i128::from(wanted[axis])
        } else if same {
            input * strides[axis]
        } else {
            // Sums of products of 32- and 64-bit numbers: no overflow in 128 bits.
            let full = strides[axis] * (input - 1) + extra[axis] + (kernel - 1) * dilations[axis] + 1;
            full - pads[axis] - pads[axis + rank]
        };
        shape.push(u64::try_from(extent).ok().filter(|extent| *extent > 0).ok_or_else(wrong)?);
    }
    Ok(vec![Value::new(call.dtype(0), shape)])
}

/// The windows of a `MaxPool`, `AveragePool` or `LpPool`, one per spatial dimension.
pub(crate) fn pool_windows(call: &Call<'_>) -> Result<Vec<Window>, Unknown> {
    let (_, _, spatial) = split_spatial(&call.node.op_type, call.shape(0)?)?;
    let kernel: Option<Shape> =
        call.ints("kernel_shape")?.and_then(|list| list.iter().map(|x| u64::try_from(*x).ok()).collect());
    let kernel = kernel.ok_or_else(|| Unknown::because(format!("{} without kernel_shape", call.node.op_type)))?;
    windows(call, spatial, &kernel, call.flag("ceil_mode", false)?)
}

pub(super) fn pool(call: &Call<'_>) -> Result<Vec<Value>, Unknown> {
    let (batch, channels, _) = split_spatial(&call.node.op_type, call.shape(0)?)?;
    let mut shape = vec![batch, channels];
    shape.extend(pool_windows(call)?.iter().map(|window| window.output));
    Ok(vec![Value::new(call.dtype(0), shape.clone()), Value::new(Some(data_type::INT64), shape)])
}

pub(super) fn global_pool(call: &Call<'_>) -> Result<Vec<Value>, Unknown> {
    let (batch, channels, spatial) = split_spatial(&call.node.op_type, call.shape(0)?)?;
    let mut shape = vec![batch, channels];
    shape.extend(spatial.iter().map(|_| 1));
    Ok(vec![Value::new(call.dtype(0), shape)])
}

pub(super) fn depth_space(call: &Call<'_>) -> Result<Vec<Value>, Unknown> {
    let [batch, channels, height, width] = *call.shape(0)? else {
        return Err(Unknown::because(format!("{} of other than four dimensions", call.node.op_type)));
    };
    let block = call.int("blocksize")?.and_then(|block| u64::try_from(block).ok()).filter(|block| *block > 0);
    let shape = block.and_then(|block| {
        let area = block.checked_mul(block)?;
        if call.node.op_type == "DepthToSpace" {
            (channels % area == 0).then_some(())?;
            Some(vec![batch, channels / area, height.checked_mul(block)?, width.checked_mul(block)?])
        } else {
            (height % block == 0 && width % block == 0).then_some(())?;
            Some(vec![batch, channels.checked_mul(area)?, height / block, width / block])
        }
    });
    let shape =
        shape.ok_or_else(|| Unknown::because(format!("the blocksize of {} does not fit", call.node.op_type)))?;
    Ok(vec![Value::new(call.dtype(0), shape)])
}

/// `Resize` (scales or sizes as inputs) and the older `Upsample` (scales as attribute or input).
pub(super) fn resize(call: &Call<'_>) -> Result<Vec<Value>, Unknown> {
    let input = call.shape(0)?;
    let fits = |len: usize| {
        (len == input.len())
            .then_some(())
            .ok_or_else(|| Unknown::because(format!("{} of {input:?} by {len} factors", call.node.op_type)))
    };
    if let Some(sizes) = call.constant_ints(3)?.filter(|sizes| !sizes.is_empty()) {
        fits(sizes.len())?;
        let shape: Option<Shape> = sizes.iter().map(|size| u64::try_from(*size).ok()).collect();
        let shape = shape.ok_or_else(|| Unknown::because("Resize to a negative size"))?;
        return Ok(vec![Value::new(call.dtype(0), shape)]);
    }
    let scales: Vec<f64> = match call.floats("scales")? {
        Some(scales) => scales.iter().map(|scale| f64::from(*scale)).collect(),
        None => {
            let index = if call.inputs.len() > 2 { 2 } else { 1 };
            call.constant_floats(index)?.map(<[f64]>::to_vec).unwrap_or_default()
        }
    };
    fits(scales.len())?;
    let shape: Option<Shape> = input.iter().zip(&scales).map(|(dim, scale)| scaled(*dim, *scale)).collect();
    let shape = shape.ok_or_else(|| Unknown::because(format!("{} by {scales:?}", call.node.op_type)))?;
    Ok(vec![Value::new(call.dtype(0), shape)])
}

/// `floor(dim × scale)`; `None` outside `1..2^32`, where a shape is a mistake.
fn scaled(dim: u64, scale: f64) -> Option<u64> {
    let dim = u32::try_from(dim).ok()?;
    let extent = (f64::from(dim) * scale).floor();
    let inside = extent >= 1.0 && extent <= f64::from(u32::MAX);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an integer inside 1..2^32")]
    inside.then_some(extent as u64)
}
