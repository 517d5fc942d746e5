//! Contractions as tile programs. The CPU and workgroup programs share how fused coordinates become element indices
//! and how the epilogue becomes a scalar expression.

pub mod cpu;
pub mod simt;

use search_space::families::contraction::{ContractionView, Group, OperandMap};

use super::elementwise;
use crate::index::{Index, Var};
use crate::tile::{Access, Buffer, Guard, Place, Scalar, Source, View};

/// Fused coordinates of one point (or window) of a contraction.
#[derive(Clone, Debug)]
pub struct Point {
    /// Over the batch axes.
    pub batch: Index,
    /// Over the m axes.
    pub m: Index,
    /// Over the n axes.
    pub n: Index,
    /// Over the k axes.
    pub k: Index,
}

/// Names the variables of a kernel.
#[derive(Debug, Default)]
pub struct Names(pub Vec<String>);

impl Names {
    /// A new variable.
    pub fn var(&mut self, name: &str) -> Var {
        self.0.push(name.into());
        Var(u32::try_from(self.0.len() - 1).expect("invariant: few variables"))
    }
}

/// The flat element index of an operand at a point, and the guards of its padding.
pub fn element(view: &ContractionView, map: &OperandMap, point: &Point) -> (Index, Vec<Guard>) {
    let mut index = Index::Const(map.offset);
    let mut digits: Vec<Option<Index>> = vec![None; view.workload.axes.len()];
    let groups = [(&view.batch, &point.batch), (&view.m, &point.m), (&view.n, &point.n), (&view.k, &point.k)];
    for (group, fused) in groups {
        if let Some(stride) = view.linear(map, group) {
            index = index + fused.clone() * Index::Const(stride);
            continue;
        }
        for (axis, digit) in split(group, fused) {
            index = index + digit.clone() * Index::Const(map.strides[axis]);
            digits[axis] = Some(digit);
        }
    }
    let guards = map
        .guards
        .iter()
        .map(|guard| {
            let mut position = Index::Const(guard.offset);
            for &(axis, coefficient) in &guard.terms {
                // An axis of extent 1 is left out of a linear group: its coordinate is 0.
                let digit = digits[axis].clone().unwrap_or(Index::ZERO);
                position = position + digit * Index::Const(coefficient);
            }
            Guard { index: position, bound: Index::of(guard.bound.unwrap_or(u64::MAX >> 2)) }
        })
        .collect();
    (index, guards)
}

/// The coordinate of each axis of a group. The outermost digit is not reduced: points outside are guarded elsewhere.
pub(crate) fn split(group: &Group, fused: &Index) -> Vec<(usize, Index)> {
    let mut rest = fused.clone();
    let mut digits = Vec::new();
    let outermost = group.extents.iter().position(|&extent| extent > 1).unwrap_or(0);
    for position in (0..group.axes.len()).rev() {
        let extent = i64::try_from(group.extents[position]).expect("invariant: extents are below 2^31");
        let digit = match position.cmp(&outermost) {
            std::cmp::Ordering::Greater => rest.clone().modulo(extent),
            std::cmp::Ordering::Equal => rest.clone(),
            std::cmp::Ordering::Less => Index::ZERO,
        };
        rest = rest.floor_div(extent);
        digits.push((group.axes[position], digit));
    }
    digits
}

/// The kernel's buffers: every operand, in the workload's order.
pub fn buffers(view: &ContractionView) -> Vec<Buffer> {
    let workload = &view.workload;
    (0..workload.operands.len())
        .map(|position| {
            let operand = &workload.operands[position];
            let output = position == view.out.operand;
            Buffer {
                name: operand.name.clone(),
                source: Source::Operand(position),
                dtype: operand.dtype,
                len: workload.operand_len(position),
                align: operand.align,
                access: if output { Access::ReadWrite } else { Access::Read },
                stream: false,
            }
        })
        .collect()
}

/// The epilogue applied to `value`: side operands become arguments `first_arg, first_arg + 1, ...`, whose views are
/// returned beside the expression; `at` finds the element and the guards of an operand. Values that are used more than
/// once are added to `lets`.
pub fn epilogue(
    view: &ContractionView,
    value: Scalar,
    first_arg: usize,
    at: &dyn Fn(&OperandMap) -> (Index, Vec<Guard>),
    lets: &mut Vec<Scalar>,
) -> (Scalar, Vec<View>) {
    let mut args = Vec::new();
    let mut value = value;
    for step in &view.workload.epilogue {
        let side = step.operand().map(|name| {
            let is_named = |map: &&OperandMap| view.workload.operands[map.operand].name == *name;
            let map = view.side.iter().find(is_named).expect("invariant: validated workloads name their operands");
            let (index, guards) = at(map);
            args.push(View { place: Place::Buffer(map.operand), index: vec![index], guards });
            Scalar::Arg(first_arg + args.len() - 1)
        });
        value = elementwise::step(step, value, side, lets);
    }
    (value, args)
}
