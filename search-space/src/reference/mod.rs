//! What each workload means: naive loops over the iteration space with sums kept in `f64`.
//!
//! Every backend is judged against this module, so it shares nothing with their lowerings: it knows index maps and
//! epilogue steps, no tiles. Values stay `f64` throughout; only a `cast` step rounds. NaN propagates through every
//! step, and padding that is multiplied by an infinite weight gives NaN, as the definition says.
//!
//! Row passes and attention are the usual formulas in IEEE arithmetic: softmax subtracts the largest number of the row
//! (NaN is not one), so a row that holds NaN or plus infinity is NaN throughout (`exp(inf - inf)`), as is one of minus
//! infinities only; a norm of a row with an infinity or NaN is NaN, except that `rms` divides finite elements by
//! infinity. Keys that a causal attention hides take no part at all, whatever they hold.
//!
//! ```
//! use tilewright_search_space::{Workload, reference};
//! let matmul = Workload::parse("matmul m=2 n=1 k=2 dtype=f32")?;
//! let c = reference::evaluate(&matmul, &[&[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0]])?;
//! assert_eq!(c, [[17.0, 39.0]]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod access;
mod attention;
mod contract;
mod epilogue;
mod map;
mod rows;

use thiserror::Error;

use crate::workload::{AxisKind, EpilogueStep, InvalidWorkload, Op, Role, Workload, row_major};
use access::Access;

/// Largest buffer [`evaluate`] makes, in elements (8 GiB); beyond it, ask for points.
pub const MAX_ELEMENTS: u64 = 1 << 30;

/// Why a workload could not be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReferenceError {
    /// The workload contradicts itself.
    #[error(transparent)]
    Invalid(#[from] InvalidWorkload),
    /// The reference does not know this yet.
    #[error("the reference cannot evaluate {feature}")]
    Unsupported {
        /// What it does not know.
        feature: String,
    },
    /// The wrong number of input buffers.
    #[error("the workload reads {expected} operands, {found} buffers were given")]
    InputCount {
        /// Operands read.
        expected: usize,
        /// Buffers given.
        found: usize,
    },
    /// A buffer that does not fit its operand.
    #[error("operand {operand:?} has {expected} elements, the buffer given has {found}")]
    InputLength {
        /// Operand.
        operand: String,
        /// Its `operand_len`.
        expected: u64,
        /// Elements given.
        found: usize,
    },
    /// A point outside the output's iteration space.
    #[error("point {point:?} is not in the output's iteration space {extents:?}")]
    Point {
        /// The point.
        point: Vec<u64>,
        /// Extents of the output's axes.
        extents: Vec<u64>,
    },
    /// A buffer too large to evaluate as a whole.
    #[error("{operand:?} needs {elements} elements, more than {MAX_ELEMENTS}; use evaluate_points")]
    TooLarge {
        /// Operand.
        operand: String,
        /// Elements of the buffer, with padding.
        elements: u128,
    },
}

/// Evaluates the whole output.
///
/// `inputs` are the physical buffers of the operands that are read, in operand order, each of `operand_len` elements.
/// Returns the physical buffers of the operands that are written, alike; elements in gaps between rows are NaN, so
/// that whoever reads them notices.
///
/// # Errors
///
/// [`ReferenceError`]: an invalid or unsupported workload, buffers that do not fit, more than [`MAX_ELEMENTS`].
pub fn evaluate(workload: &Workload, inputs: &[&[f64]]) -> Result<Vec<Vec<f64>>, ReferenceError> {
    let problem = Problem::new(workload, inputs)?;
    let output = match workload.op {
        Op::ContractMadd | Op::ContractAdd | Op::ContractMax => contract::evaluate(&problem)?,
        Op::Map => map::evaluate(&problem)?,
        Op::Attention { scale, causal } => attention::Attention::new(&problem, scale, causal)?.evaluate()?,
        Op::RowsSoftmax | Op::RowsLogSoftmax | Op::RowsLayerNorm { .. } | Op::RowsRmsNorm { .. } | Op::RowsArgMax => {
            rows::evaluate(&problem)?
        }
    };
    Ok(vec![output])
}

/// Evaluates chosen output elements, whatever the size of the output.
///
/// A point holds one coordinate for each axis of the output, in axis order ([`output_axes`]): `[m, n]` for a matmul or
/// a softmax, `[n, k, oh, ow]` for a convolution, `[n, g, k, oh, ow]` with groups. Values come back in the order of the
/// points.
///
/// # Errors
///
/// As [`evaluate`], and [`ReferenceError::Point`].
pub fn evaluate_points(
    workload: &Workload,
    inputs: &[&[f64]],
    points: &[Vec<u64>],
) -> Result<Vec<f64>, ReferenceError> {
    let problem = Problem::new(workload, inputs)?;
    match workload.op {
        Op::ContractMadd | Op::ContractAdd | Op::ContractMax => {
            points.iter().map(|point| contract::evaluate_point(&problem, point)).collect()
        }
        Op::Map => points.iter().map(|point| map::evaluate_point(&problem, point)).collect(),
        Op::Attention { scale, causal } => attention::Attention::new(&problem, scale, causal)?.evaluate_points(points),
        Op::RowsSoftmax | Op::RowsLogSoftmax | Op::RowsLayerNorm { .. } | Op::RowsRmsNorm { .. } | Op::RowsArgMax => {
            rows::evaluate_points(&problem, points)
        }
    }
}

/// The axes that index an output element, in axis order: batch and parallel; all axes for row passes other than
/// arg-max.
pub fn output_axes(workload: &Workload) -> Vec<usize> {
    let all = workload.op.keeps_reduction_axes();
    (0..workload.axes.len()).filter(|axis| all || workload.axes[*axis].kind != AxisKind::Reduction).collect()
}

/// Every output point in row-major order, for [`evaluate_points`] and [`output_address`]. Run-time extents count with
/// their largest value.
pub fn output_points(workload: &Workload) -> impl Iterator<Item = Vec<u64>> + use<> {
    let extents: Vec<u64> = output_axes(workload).iter().map(|axis| workload.axes[*axis].extent.max()).collect();
    let strides = row_major(&extents);
    let total = extents.iter().fold(1u64, |product, extent| product.saturating_mul(*extent));
    (0..total).map(move |rank| extents.iter().zip(&strides).map(|(extent, stride)| rank / stride % extent).collect())
}

/// Where the element at `point` lies in the physical buffer of operand `output`; `None` when the operand or a
/// coordinate is missing, or the element is not inside.
pub fn output_address(workload: &Workload, output: usize, point: &[u64]) -> Option<u64> {
    let operand = workload.operands.get(output)?;
    let axes = output_axes(workload);
    if axes.len() != point.len() {
        return None;
    }
    let (strides, shape) = (workload.operand_strides(output), workload.operand_shape(output));
    let mut address = 0u64;
    for ((subscript, stride), dim) in operand.index.iter().zip(&strides).zip(&shape) {
        let terms = axes.iter().zip(point);
        let value = terms.fold(i128::from(subscript.offset), |sum, (axis, at)| {
            sum + i128::from(subscript.coefficient(*axis)) * i128::from(*at)
        });
        let value = u64::try_from(value).ok().filter(|value| value < dim)?;
        address = address.checked_add(value.checked_mul(*stride)?)?;
    }
    Some(address)
}

/// A workload that can be evaluated, with its buffers.
struct Problem<'w> {
    workload: &'w Workload,
    extents: Vec<u64>,
    /// The multiplied (or summed, or compared) operands with their data.
    factors: Vec<(usize, &'w [f64])>,
    /// The steps after the reduction, operands resolved.
    steps: Vec<(&'w EpilogueStep, Option<Access<'w>>)>,
    output: usize,
}

impl<'w> Problem<'w> {
    fn new(workload: &'w Workload, inputs: &[&'w [f64]]) -> Result<Problem<'w>, ReferenceError> {
        workload.validate()?;
        supported(workload)?;
        let unsupported = |feature: &str| ReferenceError::Unsupported { feature: feature.into() };
        let extents = workload.fixed_extents().ok_or_else(|| unsupported("extents known only at run time"))?;
        let reads = workload.inputs();
        if reads.len() != inputs.len() {
            return Err(ReferenceError::InputCount { expected: reads.len(), found: inputs.len() });
        }
        for (i, data) in reads.iter().zip(inputs) {
            let expected = workload.operand_len(*i);
            if data.len() as u64 != expected {
                let operand = workload.operands[*i].name.clone();
                return Err(ReferenceError::InputLength { operand, expected, found: data.len() });
            }
        }
        let data = |operand: usize| {
            let position = reads.iter().position(|read| *read == operand);
            inputs[position.expect("invariant: a valid workload's factors and epilogue operands are inputs")]
        };
        let step = |step: &'w EpilogueStep| {
            let operand = step.operand().and_then(|name| workload.operand(name));
            (step, operand.map(|i| Access::new(workload, i, data(i), 0.0)))
        };
        Ok(Problem {
            workload,
            extents,
            factors: workload.factors().into_iter().map(|i| (i, data(i))).collect(),
            steps: workload.epilogue.iter().map(step).collect(),
            output: workload.outputs()[0],
        })
    }

    fn is_reduced(&self, axis: usize) -> bool {
        self.workload.axes[axis].kind == AxisKind::Reduction
    }

    /// The coordinates of an output point, one per axis; those of axes that the output does not have are 0.
    fn coords(&self, point: &[u64]) -> Result<Vec<u64>, ReferenceError> {
        let axes = output_axes(self.workload);
        let extents: Vec<u64> = axes.iter().map(|axis| self.extents[*axis]).collect();
        if point.len() != axes.len() || point.iter().zip(&extents).any(|(at, extent)| at >= extent) {
            return Err(ReferenceError::Point { point: point.into(), extents });
        }
        let mut coords = vec![0u64; self.extents.len()];
        access::set(&mut coords, &axes, point);
        Ok(coords)
    }

    /// A buffer for the whole output, NaN everywhere.
    fn buffer(&self) -> Result<Vec<f64>, ReferenceError> {
        let elements = self.workload.operand_len(self.output);
        let length = usize::try_from(elements).ok().filter(|_| elements <= MAX_ELEMENTS);
        let operand = || self.workload.operands[self.output].name.clone();
        let length =
            length.ok_or_else(|| ReferenceError::TooLarge { operand: operand(), elements: elements.into() })?;
        Ok(vec![f64::NAN; length])
    }

    /// Reads factor `position` of a valid workload from its buffer.
    fn factor(&self, position: usize) -> Access<'w> {
        let (operand, data) = self.factors[position];
        Access::new(self.workload, operand, data, self.identity())
    }

    /// What a reduction over nothing gives, and what elements outside a bound read as.
    fn identity(&self) -> f64 {
        if self.workload.op == Op::ContractMax { f64::NEG_INFINITY } else { 0.0 }
    }

    /// Applies the epilogue to a reduced value. `coords` has one entry per axis.
    fn finish(&self, value: f64, coords: &[u64]) -> f64 {
        self.steps.iter().fold(value, |value, (step, operand)| {
            epilogue::apply(step, value, operand.as_ref().map_or(0.0, |operand| operand.read(coords)))
        })
    }
}

fn supported(workload: &Workload) -> Result<(), ReferenceError> {
    let unsupported = |feature: String| Err(ReferenceError::Unsupported { feature });
    let op = workload.op.as_str();
    if let Some(axis) = workload.axes.iter().find(|axis| axis.kind == AxisKind::Grouped) {
        return unsupported(format!("the ragged axis {:?}", axis.name));
    }
    if let Some(operand) = workload.operands.iter().find(|operand| operand.prologue.is_some()) {
        return unsupported(format!("the prologue of operand {:?}", operand.name));
    }
    if let Some(operand) = workload.operands.iter().find(|operand| operand.role == Role::InOut) {
        return unsupported(format!("operand {:?}, which is read and written", operand.name));
    }
    if workload.outputs().len() != 1 {
        return unsupported(format!("{} outputs of one operation", workload.outputs().len()));
    }
    let factors = workload.factors().len();
    if factors == 0 || (factors != 1 && matches!(workload.op, Op::ContractAdd | Op::ContractMax)) {
        return unsupported(format!("{op} over {factors} operands"));
    }
    match workload.epilogue.iter().find(|step| matches!(step, EpilogueStep::Cast(dtype) if !dtype.is_float())) {
        Some(_) => unsupported("a cast to integers".into()),
        None => Ok(()),
    }
}
