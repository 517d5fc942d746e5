//! Contractions: matmul, batched matmul, gemv and convolution as one generalised matrix product.
//!
//! A [`ContractionView`] sorts the axes of a workload into batch, m, n and k groups, so that
//! `out[batch, m, n] = Σ_k a[batch, m, k] · b[batch, n, k]` where each of m, n, k is a *fused* coordinate over the axes
//! of its group. A convolution is the case in which the offset of the image operand is not linear in n and k.

pub mod cpu;
pub mod image;
mod types;
pub mod vulkan;

pub use types::check_conversions;

use super::Unsupported;
use crate::schedule::{Schedule, Value};
use crate::space::ParameterSpace;
use crate::workload::{AxisKind, EpilogueStep, Extent, Op, Operand, Role, Storage, Subscript, Workload};

/// Where the element of an operand lies, as a function of the axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperandMap {
    /// Position in [`Workload::operands`].
    pub operand: usize,
    /// Constant part of the element offset; negative with padding.
    pub offset: i64,
    /// Elements per step of each axis of the workload.
    pub strides: Vec<i64>,
    /// Subscripts that can leave the operand; outside, the element reads as zero.
    pub guards: Vec<Subscript>,
}

/// The axes of a group, outermost first; their fused coordinate has the last axis fastest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Positions in [`Workload::axes`].
    pub axes: Vec<usize>,
    /// Extent of each.
    pub extents: Vec<u64>,
}

/// A contraction seen as a batched matrix product.
#[derive(Clone, Debug, PartialEq)]
pub struct ContractionView {
    /// The workload.
    pub workload: Workload,
    /// Axes of both inputs and the output.
    pub batch: Group,
    /// Output axes of `a` alone.
    pub m: Group,
    /// Output axes of `b` alone; holds the axis along which the output is contiguous.
    pub n: Group,
    /// Reduced axes.
    pub k: Group,
    /// Left input.
    pub a: OperandMap,
    /// Right input.
    pub b: OperandMap,
    /// Output.
    pub out: OperandMap,
    /// Maps of the operands that epilogue steps read, in operand order.
    pub side: Vec<OperandMap>,
}

impl Group {
    /// Number of values of the fused coordinate.
    pub fn extent(&self) -> u64 {
        self.extents.iter().product()
    }
}

impl ContractionView {
    /// Sorts the axes and operands of a workload.
    ///
    /// # Errors
    /// [`Unsupported`] names the first property that has no lowering.
    pub fn new(workload: &Workload) -> Result<ContractionView, Unsupported> {
        if workload.op != Op::ContractMadd {
            return Err(Unsupported::Operation { op: workload.op.as_str() });
        }
        let extents = fixed_extents(workload)?;
        types::check(workload)?;
        let side_names: Vec<&str> = workload.epilogue.iter().filter_map(EpilogueStep::operand).collect();
        let positions = |role: Role| {
            let wanted = |operand: &Operand| operand.role == role && !side_names.contains(&operand.name.as_str());
            (0..workload.operands.len()).filter(|&i| wanted(&workload.operands[i])).collect::<Vec<_>>()
        };
        let maps: Vec<OperandMap> = (0..workload.operands.len()).map(|i| operand_map(workload, i)).collect();
        let side: Vec<OperandMap> = (0..workload.operands.len())
            .filter(|&i| is_side(workload, &workload.operands[i].name))
            .map(|i| maps[i].clone())
            .collect();
        let shape = |why: &str| Unsupported::Shape { why: why.into() };
        let (inputs, outputs) = (positions(Role::In), positions(Role::Out));
        let &[first, second] = inputs.as_slice() else { return Err(shape("it needs two inputs")) };
        let &[out] = outputs.as_slice() else { return Err(shape("it needs one output")) };
        let uses = |operand: usize, axis: usize| uses_axis(&workload.operands[operand], axis);

        // The vectors run along n: that is the side that owns the axis along which the output is most contiguous.
        let inner = (0..extents.len())
            .filter(|&axis| extents[axis] > 1 && uses(out, axis) && uses(first, axis) != uses(second, axis))
            .min_by_key(|&axis| (maps[out].strides[axis], usize::from(uses(first, axis))));
        let (a, b) = match inner {
            Some(axis) if uses(first, axis) => (second, first),
            _ => (first, second),
        };
        let mut view = ContractionView {
            workload: workload.clone(),
            batch: Group::default(),
            m: Group::default(),
            n: Group::default(),
            k: Group::default(),
            a: maps[a].clone(),
            b: maps[b].clone(),
            out: maps[out].clone(),
            side,
        };
        for (axis, &extent) in extents.iter().enumerate() {
            let reduced = workload.axes[axis].kind == AxisKind::Reduction;
            let group = match (uses(out, axis), uses(a, axis), uses(b, axis)) {
                (true, true, true) if !reduced => &mut view.batch,
                (true, true, false) if !reduced => &mut view.m,
                (true, false, true) if !reduced => &mut view.n,
                (false, true, _) | (false, _, true) if reduced => &mut view.k,
                _ => {
                    return Err(Unsupported::Shape {
                        why: format!("axis {} fits no role of a matrix product", workload.axes[axis].name),
                    });
                }
            };
            group.axes.push(axis);
            group.extents.push(extent);
        }
        Ok(view)
    }

    /// The element stride of an operand along a fused coordinate, when its offset is linear in it and no guard depends
    /// on it. `Some(0)` when the operand ignores the group.
    pub fn linear(&self, map: &OperandMap, group: &Group) -> Option<i64> {
        let guarded = |axis: usize| map.guards.iter().any(|guard| guard.terms.iter().any(|&(a, _)| a == axis));
        let mut found: Option<(i64, i64)> = None; // (innermost stride, stride expected of the next axis outward)
        for (&axis, &extent) in group.axes.iter().zip(&group.extents).rev() {
            if extent == 1 {
                continue;
            }
            if guarded(axis) {
                return None;
            }
            let stride = map.strides[axis];
            let inner = match found {
                None => stride,
                Some((inner, expected)) if expected == stride => inner,
                Some(_) => return None,
            };
            found = Some((inner, stride.checked_mul(i64::try_from(extent).ok()?)?));
        }
        Some(found.map_or(0, |(inner, _)| inner))
    }

    /// Whether a schedule may choose the layout of an operand.
    pub fn is_free(&self, map: &OperandMap) -> bool {
        self.workload.operands[map.operand].storage == Storage::Free
    }

    /// Whether both operands are contiguous along the reduction, so that vectors can run along it.
    pub fn has_dots(&self) -> bool {
        self.k.extent() > 1 && [&self.a, &self.b].iter().all(|map| self.linear(map, &self.k) == Some(1))
    }

    /// Extents `(m, n, k)` of the matrix product.
    pub fn extents(&self) -> (u64, u64, u64) {
        (self.m.extent(), self.n.extent(), self.k.extent())
    }
}

/// The member of a space closest to wished values: each wish is rounded to its domain, then the whole is repaired.
/// Structural parameters weigh most, so that a repair shrinks a block rather than change an algorithm.
pub(crate) fn closest(space: &ParameterSpace, wish: &[(&str, Value)]) -> Schedule {
    let mut config = Vec::new();
    let mut weights = Vec::new();
    for parameter in space.params() {
        let wished = wish.iter().find(|(name, _)| *name == parameter.name).map(|(_, value)| value);
        let miss = |value: &Value| match (wished, value) {
            (Some(Value::Int(wished)), Value::Int(value)) => {
                let ratio = (wished.max(&1)).max(value) * 1000 / (wished.max(&1)).min(value.max(&1));
                // As a ratio 0 is as good as 1.
                (ratio.unsigned_abs(), u8::from(wished != value))
            }
            (Some(wished), value) if wished == value => (0, 0),
            _ => (u64::MAX, 0),
        };
        let position = (0..parameter.values.len()).min_by_key(|&at| miss(&parameter.values[at])).unwrap_or(0);
        config.push(u16::try_from(position).expect("invariant: domains have at most 2^16 values"));
        weights.push(if parameter.structural { 8.0 } else { 1.0 });
    }
    let nearest = space.nearest(&config.into(), &weights, &[]).expect("invariant: a built space is not empty");
    space.schedule(&nearest)
}

pub(crate) fn fixed_extents(workload: &Workload) -> Result<Vec<u64>, Unsupported> {
    workload
        .axes
        .iter()
        .map(|axis| match axis.extent {
            Extent::Fixed(extent) if axis.kind != AxisKind::Grouped => Ok(extent),
            _ => Err(Unsupported::Extent { axis: axis.name.clone() }),
        })
        .collect()
}

fn is_side(workload: &Workload, name: &str) -> bool {
    workload.epilogue.iter().any(|step| step.operand() == Some(name))
}

fn uses_axis(operand: &Operand, axis: usize) -> bool {
    operand.index.iter().any(|subscript| subscript.terms.iter().any(|&(a, _)| a == axis))
}

pub(crate) fn operand_map(workload: &Workload, position: usize) -> OperandMap {
    let operand = &workload.operands[position];
    let mut map =
        OperandMap { operand: position, offset: 0, strides: vec![0; workload.axes.len()], guards: Vec::new() };
    // A free operand is row-major in the caller's buffer.
    for (subscript, stride) in operand.index.iter().zip(workload.operand_strides(position)) {
        let stride = i64::try_from(stride).expect("invariant: strides are below 2^62");
        map.offset += subscript.offset * stride;
        for &(axis, coefficient) in &subscript.terms {
            map.strides[axis] += coefficient * stride;
        }
        if subscript.bound.is_some() {
            map.guards.push(subscript.clone());
        }
    }
    map
}
