//! A workload as a nest of few axes: axes of extent 1 are dropped, and neighbours that every operand steps through like
//! one axis are fused.

use super::Unsupported;
use super::contraction::{OperandMap, fixed_extents, operand_map};
use crate::workload::{AxisKind, DType, EpilogueStep, Role, Storage, Subscript, Workload};

/// The fused axes of a workload and the operands over them.
#[derive(Clone, Debug, PartialEq)]
pub struct Nest {
    /// The workload.
    pub workload: Workload,
    /// Extent of each fused axis, outermost first; at least one of each kind that the workload has.
    pub extents: Vec<u64>,
    /// Whether an axis is reduced.
    pub reduced: Vec<bool>,
    /// Every operand in call order; strides and guards name fused axes.
    pub maps: Vec<OperandMap>,
}

impl Nest {
    /// Fuses the axes of a workload.
    ///
    /// # Errors
    /// [`Unsupported`] names the first property that has no lowering.
    pub fn new(workload: &Workload) -> Result<Nest, Unsupported> {
        let extents = fixed_extents(workload)?;
        for operand in &workload.operands {
            let what = if operand.dtype == DType::F64 {
                "type f64"
            } else if operand.role == Role::InOut {
                "an in-out operand"
            } else if operand.prologue.is_some() {
                "a prologue"
            } else if operand.alias.is_some() {
                "an alias"
            } else if operand.storage == Storage::Free {
                "a free layout"
            } else {
                continue;
            };
            return Err(Unsupported::Operand { operand: operand.name.clone(), what: what.into() });
        }
        if !matches!(workload.acc, DType::F32 | DType::I32) {
            let what = format!("type {}", workload.acc.as_str());
            return Err(Unsupported::Operand { operand: "acc".into(), what });
        }
        let integers = workload.operands.iter().any(|operand| operand.role == Role::In && !operand.dtype.is_float());
        for step in &workload.epilogue {
            let plain = matches!(
                step,
                EpilogueStep::Bias(_)
                    | EpilogueStep::Add(_)
                    | EpilogueStep::Mul(_)
                    | EpilogueStep::Relu
                    | EpilogueStep::Clip(..)
            );
            if matches!(step, EpilogueStep::Cast(_)) || (integers && !plain) {
                return Err(Unsupported::Epilogue { step: step.word().into() });
            }
        }
        let maps: Vec<OperandMap> = (0..workload.operands.len()).map(|i| operand_map(workload, i)).collect();
        let reduced: Vec<bool> = workload.axes.iter().map(|axis| axis.kind == AxisKind::Reduction).collect();
        let guarded = |axis: usize| {
            maps.iter().any(|map| map.guards.iter().any(|guard| guard.terms.iter().any(|&(at, _)| at == axis)))
        };
        // Groups of original axes, each one fused axis.
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for axis in (0..extents.len()).filter(|&axis| extents[axis] > 1) {
            let joins = groups.last().and_then(|group| group.last()).is_some_and(|&before| {
                let steps = |map: &OperandMap| {
                    map.strides[axis].checked_mul(i64::try_from(extents[axis]).unwrap_or(i64::MAX))
                        == Some(map.strides[before])
                };
                let small = groups.last().is_some_and(|group| {
                    let product = group.iter().map(|&axis| u128::from(extents[axis])).product::<u128>();
                    product * u128::from(extents[axis]) < 1 << 31
                });
                small
                    && reduced[before] == reduced[axis]
                    && !guarded(before)
                    && !guarded(axis)
                    && maps.iter().all(steps)
            });
            match groups.last_mut() {
                Some(group) if joins => group.push(axis),
                _ => groups.push(vec![axis]),
            }
        }
        // A kind all of whose axes have extent 1 keeps one of them, so that rows and columns always exist.
        for kind in [false, true] {
            let has = |axis: &usize| reduced[*axis] == kind;
            if !groups.iter().flatten().any(&has)
                && let Some(axis) = (0..extents.len()).find(has)
            {
                groups.push(vec![axis]);
            }
        }
        groups.sort_by_key(|group| group[0]);
        let fused = |axis: usize| groups.iter().position(|group| group.contains(&axis));
        let map = |map: &OperandMap| OperandMap {
            strides: groups.iter().map(|group| map.strides[group[group.len() - 1]]).collect(),
            guards: map
                .guards
                .iter()
                .map(|guard| Subscript {
                    // Axes of extent 1 are always at 0.
                    terms: guard.terms.iter().filter_map(|&(axis, c)| fused(axis).map(|axis| (axis, c))).collect(),
                    ..guard.clone()
                })
                .collect(),
            ..map.clone()
        };
        Ok(Nest {
            extents: groups.iter().map(|group| group.iter().map(|&axis| extents[axis]).product()).collect(),
            reduced: groups.iter().map(|group| reduced[group[0]]).collect(),
            maps: maps.iter().map(map).collect(),
            workload: workload.clone(),
        })
    }

    /// Positions of the axes that are not reduced, or of those that are.
    pub fn axes(&self, reduced: bool) -> Vec<usize> {
        (0..self.extents.len()).filter(|&axis| self.reduced[axis] == reduced).collect()
    }

    /// Product of the extents of some axes.
    pub fn count(&self, axes: &[usize]) -> u64 {
        axes.iter().map(|&axis| self.extents[axis]).product()
    }

    /// Map of the operand that is written.
    pub fn out(&self) -> &OperandMap {
        &self.maps[self.workload.outputs()[0]]
    }

    /// Map of the only operand that takes part in the operation itself.
    pub fn factor(&self) -> &OperandMap {
        &self.maps[self.workload.factors()[0]]
    }

    /// Whether every row of `lanes` elements along `axis` of an operand begins at a whole vector: streaming stores of
    /// anything else fall apart.
    pub fn whole_vectors(&self, map: &OperandMap, axis: usize, lanes: u64) -> bool {
        let operand = &self.workload.operands[map.operand];
        let lanes_signed = i64::try_from(lanes).unwrap_or(i64::MAX);
        map.strides[axis] == 1
            && self.extents[axis].is_multiple_of(lanes)
            && map.guards.is_empty()
            && map.offset % lanes_signed == 0
            && (0..self.extents.len()).all(|other| other == axis || map.strides[other] % lanes_signed == 0)
            && operand.align >= lanes * operand.dtype.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nest(text: &str) -> Nest {
        Nest::new(&Workload::parse(text).unwrap()).unwrap()
    }

    #[test]
    fn dense_axes_are_one() {
        let softmax = nest("softmax rows=1536 cols=128 dtype=f32");
        assert_eq!((softmax.extents.clone(), softmax.reduced.clone()), (vec![1536, 128], vec![false, true]));
        let sum = nest("reduce rows=1 cols=77 dtype=f32");
        assert_eq!((sum.extents.clone(), sum.reduced.clone()), (vec![1, 77], vec![false, true]));
        let pool = nest("maxpool n=2 c=3 h=9 w=9 r=3 s=3 pad=1 dtype=f32");
        assert_eq!(pool.extents, [6, 9, 9, 3, 3]);
        let turned = nest("transpose rows=5 cols=7 dtype=f32");
        assert_eq!(turned.extents.len(), 2);
    }

    #[test]
    fn whole_vectors_need_every_row_to_begin_at_one() {
        let even = nest("softmax rows=8 cols=32 dtype=f32");
        assert!(even.whole_vectors(even.out(), 1, 16));
        let odd = nest("softmax rows=8 cols=40 dtype=f32");
        assert!(!odd.whole_vectors(odd.out(), 1, 16));
    }
}
