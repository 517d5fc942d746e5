//! Contractions as tile programs. The CPU and workgroup programs share how fused coordinates become element indices
//! and how the epilogue becomes a scalar expression.

pub mod cpu;
pub mod simt;

use search_space::families::contraction::{ContractionView, Group, OperandMap};
use search_space::workload::EpilogueStep;

use crate::index::{Index, Var};
use crate::tile::{Access, BinaryOp, Buffer, Guard, Place, Scalar, Source, UnaryOp, View};

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
fn split(group: &Group, fused: &Index) -> Vec<(usize, Index)> {
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
            }
        })
        .collect()
}

/// The epilogue applied to `value`: side operands become arguments `first_arg, first_arg + 1, ...`, whose views at
/// `point` are returned beside the expression.
pub fn epilogue(view: &ContractionView, value: Scalar, first_arg: usize, point: &Point) -> (Scalar, Vec<View>) {
    let mut args = Vec::new();
    let mut value = value;
    let binary = |op, lhs, rhs| Scalar::Binary(op, Box::new(lhs), Box::new(rhs));
    for step in &view.workload.epilogue {
        value = match step {
            EpilogueStep::Bias(name) | EpilogueStep::Add(name) => {
                let is_named = |map: &&OperandMap| view.workload.operands[map.operand].name == *name;
                let map = view.side.iter().find(is_named).expect("invariant: validated workloads name their operands");
                let (index, guards) = element(view, map, point);
                args.push(View { place: Place::Buffer(map.operand), index: vec![index], guards });
                binary(BinaryOp::Add, value, Scalar::Arg(first_arg + args.len() - 1))
            }
            // The constant comes first: these operations give their right operand when one is NaN, and NaN must stay.
            EpilogueStep::Relu => binary(BinaryOp::Max, Scalar::Const(0.0), value),
            EpilogueStep::Clip(lo, hi) => {
                binary(BinaryOp::Min, Scalar::Const(*hi), binary(BinaryOp::Max, Scalar::Const(*lo), value))
            }
            EpilogueStep::Scale(factor) => binary(BinaryOp::Mul, value, Scalar::Const(*factor)),
            EpilogueStep::GeluErf
            | EpilogueStep::GeluTanh
            | EpilogueStep::Silu
            | EpilogueStep::Mul(_)
            | EpilogueStep::Exp
            | EpilogueStep::Log
            | EpilogueStep::Tanh
            | EpilogueStep::Erf
            | EpilogueStep::Cast(_) => {
                unreachable!("invariant: ContractionView::new refuses these steps")
            }
        };
    }
    (value, args)
}

/// Used by scalar evaluation everywhere.
impl Scalar {
    /// The value for given arguments, in binary64.
    pub fn eval(&self, args: &[f64]) -> f64 {
        match self {
            Scalar::Arg(position) => args[*position],
            Scalar::Const(value) => *value,
            Scalar::Unary(UnaryOp::Neg, value) => -value.eval(args),
            Scalar::Binary(op, lhs, rhs) => {
                let (lhs, rhs) = (lhs.eval(args), rhs.eval(args));
                match op {
                    BinaryOp::Add => lhs + rhs,
                    BinaryOp::Sub => lhs - rhs,
                    BinaryOp::Mul => lhs * rhs,
                    BinaryOp::Min => {
                        if lhs < rhs {
                            lhs
                        } else {
                            rhs
                        }
                    }
                    BinaryOp::Max => {
                        if lhs > rhs {
                            lhs
                        } else {
                            rhs
                        }
                    }
                }
            }
        }
    }
}
