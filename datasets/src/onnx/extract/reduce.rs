//! `ReduceSum`, `ReduceMean`, `ReduceMax`, pooling, and pooling over whole images.

use search_space::Workload;
use search_space::workload::{Axis, AxisKind, DType, EpilogueStep, Op, ReduceSpec, Reduction, Role, Subscript};

use super::super::call::axis_in;
use super::super::infer::{Window, pool_windows};
use super::super::value::Unknown;
use super::{Found, Place, dense, dtype_of};

/// Reads the `ReduceSum`, `ReduceMean` or `ReduceMax` at a place.
pub(super) fn reduce(place: &Place<'_, '_>) -> Result<Option<Found>, String> {
    let call = place.call();
    let shape = call.shape(0).map_err(text)?;
    let axes = call.ints_or_input("axes", 1).map_err(text)?.filter(|axes| !axes.is_empty());
    let axes: Vec<usize> = match axes {
        Some(axes) => axes.iter().map(|axis| axis_in(*axis, shape.len()).map_err(text)).collect::<Result<_, _>>()?,
        None if call.flag("noop_with_empty_axes", false).map_err(text)? => Vec::new(),
        None => (0..shape.len()).collect(),
    };
    let reduction = match place.node().op_type.as_str() {
        "ReduceSum" => Reduction::Sum,
        "ReduceMean" => Reduction::Mean,
        _ => Reduction::Max,
    };
    let workload = over(reduction, shape, &axes, dtype_of(place.graph, place.node(), 0)?)?;
    Ok(workload.and_then(Found::alone))
}

/// Reads the `GlobalAveragePool` or `GlobalMaxPool` at a place.
pub(super) fn global_pool(place: &Place<'_, '_>) -> Result<Option<Found>, String> {
    let call = place.call();
    let shape = call.shape(0).map_err(text)?;
    let axes: Vec<usize> = (2..shape.len()).collect();
    let reduction = if place.node().op_type == "GlobalMaxPool" { Reduction::Max } else { Reduction::Mean };
    let workload = over(reduction, shape, &axes, dtype_of(place.graph, place.node(), 0)?)?;
    Ok(workload.and_then(Found::alone))
}

/// A reduction of a dense tensor over some dimensions.
fn over(reduction: Reduction, shape: &[u64], reduced: &[usize], dtype: DType) -> Result<Option<Workload>, String> {
    let groups = dense::grouped(shape, reduced)?;
    let matrix = |rows, cols, over_rows| {
        let spec = ReduceSpec { reduction, rows, cols, over_rows, dtype };
        spec.workload().map(Some).map_err(|why| why.to_string())
    };
    match groups.as_slice() {
        [columns] if columns.reduced => return matrix(1, columns.extent, false),
        [kept, columns] if columns.reduced => return matrix(kept.extent, columns.extent, false),
        [rows, kept] if rows.reduced => return matrix(rows.extent, kept.extent, true),
        // Over dimensions of extent 1: every number stays what it is.
        groups if !groups.iter().any(|group| group.reduced) => return Ok(None),
        _ => {}
    }
    let count = groups.iter().filter(|group| group.reduced).map(|group| group.extent).collect::<Vec<u64>>();
    let count = dense::count(&count)?;
    let axes = dense::axes(&groups)?;
    let all: Vec<usize> = (0..groups.len()).collect();
    let kept: Vec<usize> = all.iter().copied().filter(|axis| !groups[*axis].reduced).collect();
    let x = dense::tensor(Role::In, "x", dtype, &axes, &all);
    let y = dense::tensor(Role::Out, "y", dtype, &axes, &kept);
    let (op, epilogue) = parts(reduction, count, dtype)?;
    dense::workload(op, axes, vec![x, y], epilogue).map(Some)
}

/// Operation and epilogue for `count` elements.
fn parts(reduction: Reduction, count: u64, dtype: DType) -> Result<(Op, Vec<EpilogueStep>), String> {
    #[expect(clippy::cast_precision_loss, reason = "the mean is rounded anyway")]
    let scale = 1.0 / count as f64;
    match reduction {
        Reduction::Max => Ok((Op::ContractMax, Vec::new())),
        _ if !dtype.is_float() => Err(format!("sums and means of {} are not read", dtype.as_str())),
        Reduction::Sum => Ok((Op::ContractAdd, Vec::new())),
        Reduction::Mean => Ok((Op::ContractAdd, vec![EpilogueStep::Scale(scale)])),
    }
}

/// Names of the axes of a pool over some spatial dimensions: of its results, and of the elements of a window.
const POOLS: [&[[&str; 2]]; 3] =
    [&[["ow", "s"]], &[["oh", "r"], ["ow", "s"]], &[["od", "q"], ["oh", "r"], ["ow", "s"]]];

/// Reads the `MaxPool` or `AveragePool` at a place: up to three spatial dimensions, any stride, dilation and padding.
///
/// Padding of a mean must count: otherwise the divisor differs from window to window.
pub(super) fn pool(place: &Place<'_, '_>) -> Result<Option<Found>, String> {
    let node = place.node();
    let call = place.call();
    if node.output.iter().skip(1).any(|name| !name.is_empty()) {
        return Err("its second output, where the maxima were found, is used; only the maxima are computed".to_owned());
    }
    let shape = call.shape(0).map_err(text)?;
    let windows = pool_windows(&call).map_err(text)?;
    let rank = windows.len();
    let names = rank.checked_sub(1).and_then(|at| POOLS.get(at));
    let names = names.ok_or_else(|| format!("pooling over {rank} spatial dimensions; only up to 3 are read"))?;
    let mean = node.op_type == "AveragePool";
    let padding_counts = call.flag("count_include_pad", false).map_err(text)?;
    let mut index = vec![Subscript::axis(0), Subscript::axis(1)];
    for (at, window) in windows.iter().enumerate() {
        let elements = Elements::of(window)?;
        if mean && (elements.overhang || (elements.padded && !padding_counts)) {
            let why = "windows at the border have fewer elements to divide by; only means with count_include_pad=1 and \
                       without ceil_mode, or without padding, are read";
            return Err(why.to_owned());
        }
        index.push(elements.subscript(2 + at, 2 + rank + at, window));
    }
    let axis = |name: &str, kind, extent| Axis::fixed(name, kind, extent);
    let mut axes = vec![axis("n", AxisKind::Parallel, shape[0]), axis("c", AxisKind::Parallel, shape[1])];
    axes.extend(windows.iter().zip(*names).map(|(window, names)| axis(names[0], AxisKind::Parallel, window.output)));
    axes.extend(windows.iter().zip(*names).map(|(window, names)| axis(names[1], AxisKind::Reduction, window.kernel)));
    let taps = dense::count(&windows.iter().map(|window| window.kernel).collect::<Vec<u64>>())?;
    let dtype = dtype_of(place.graph, node, 0)?;
    let (op, epilogue) = parts(if mean { Reduction::Mean } else { Reduction::Max }, taps, dtype)?;
    let x = dense::operand(Role::In, "x", dtype, index, shape);
    let y = dense::tensor(Role::Out, "y", dtype, &axes, &(0..2 + rank).collect::<Vec<usize>>());
    Ok(Found::alone(dense::workload(op, axes, vec![x, y], epilogue)?))
}

/// Which elements the windows along one dimension reach.
struct Elements {
    stride: i64,
    dilation: i64,
    /// The first one.
    first: i64,
    /// Whether some lie in the padding.
    padded: bool,
    /// Whether some lie behind the padding.
    overhang: bool,
}

impl Elements {
    fn of(window: &Window) -> Result<Elements, String> {
        let small = |size: u64| i64::try_from(size).ok().filter(|size| *size < 1 << 31);
        let known = (|| {
            let (stride, dilation, pad) = (small(window.stride)?, small(window.dilation)?, small(window.pad_begin)?);
            // Products of numbers below 2^31.
            let last = (small(window.output)? - 1) * stride + (small(window.kernel)? - 1) * dilation - pad;
            let (input, behind) = (small(window.input)?, small(window.pad_end)?);
            let padded = pad > 0 || last >= input;
            Some(Elements { stride, dilation, first: -pad, padded, overhang: last >= input + behind })
        })();
        known.ok_or_else(|| format!("its windows are too large: {window:?}"))
    }

    /// The element that window `output` reads as its element `tap`. A bound is written only where it can be left.
    fn subscript(&self, output: usize, tap: usize, window: &Window) -> Subscript {
        let terms = vec![(output, self.stride), (tap, self.dilation)];
        Subscript { terms, offset: self.first, bound: self.padded.then_some(window.input) }
    }
}

fn text(why: Unknown) -> String {
    why.to_string()
}
