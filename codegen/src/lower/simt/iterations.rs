//! How many loop iterations one lane runs, which drivers limit.

use std::collections::HashMap;

use crate::lane::{BinOp, Kernel, Op, Stmt, Value};

/// Most loop iterations that one lane of the kernel runs in total, all loops together; `u64::MAX` when a loop's length
/// is not known from the text. Mesa's lavapipe leaves loops silently after 65,535 in total.
pub fn loop_iterations(kernel: &Kernel) -> u64 {
    let mut upper = HashMap::new();
    block(&kernel.body, &mut upper)
}

/// `upper` holds the largest value that values can take, where known.
fn block(body: &[Stmt], upper: &mut HashMap<Value, i64>) -> u64 {
    let mut total = 0u64;
    for stmt in body {
        let inside = match stmt {
            Stmt::Let(value, op) => {
                if let Some(most) = largest(op, upper) {
                    upper.insert(*value, most);
                }
                0
            }
            Stmt::For { index, lo, hi, step, body } => {
                let trips = match (upper.get(lo), upper.get(hi), upper.get(step)) {
                    (Some(lo), Some(hi), Some(step)) => {
                        u64::try_from((hi - lo).max(0)).unwrap_or(0).div_ceil(step.unsigned_abs().max(1))
                    }
                    _ => u64::MAX,
                };
                if let Some(&hi) = upper.get(hi) {
                    upper.insert(*index, hi - 1);
                }
                trips.saturating_mul(block(body, upper).saturating_add(1))
            }
            Stmt::If { then, otherwise, .. } => block(then, upper).max(block(otherwise, upper)),
            Stmt::Set(..)
            | Stmt::Store { .. }
            | Stmt::Scatter { .. }
            | Stmt::Barrier
            | Stmt::Fence
            | Stmt::Seam
            | Stmt::Matrix(_)
            | Stmt::Prefetch { .. } => 0,
        };
        total = total.saturating_add(inside);
    }
    total
}

fn largest(op: &Op, upper: &HashMap<Value, i64>) -> Option<i64> {
    match op {
        Op::Int(value) => Some(*value),
        Op::Bin(BinOp::Min, lhs, rhs) => match (upper.get(lhs), upper.get(rhs)) {
            (Some(&lhs), Some(&rhs)) => Some(lhs.min(rhs)),
            (Some(&one), None) | (None, Some(&one)) => Some(one),
            (None, None) => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::build::Builder;
    use crate::tile::Phase;

    #[test]
    fn nested_loops_multiply_and_neighbours_add() {
        let mut b = Builder::new("k", Phase::Run, Vec::new(), [1; 3]);
        let [zero, one, two, ten, seven] = [0, 1, 2, 10, 7].map(|value| b.index_const(value));
        b.for_loop(zero, ten, one, |b, _| {
            b.for_loop(zero, seven, two, |b, _| b.barrier());
            b.for_loop(zero, two, one, |b, _| b.barrier());
        });
        // 10 + 10 · (4 + 2)
        assert_eq!(loop_iterations(&b.finish()), 70);
    }

    #[test]
    fn a_loop_of_unknown_length_counts_as_endless_unless_bounded() {
        for (bounded, want) in [(false, u64::MAX), (true, 5)] {
            let mut b = Builder::new("k", Phase::Run, Vec::new(), [1; 3]);
            let [zero, one, five] = [0, 1, 5].map(|value| b.index_const(value));
            let group = b.builtin(crate::lane::Builtin::Group(0));
            let hi = if bounded { b.bin(BinOp::Min, group, five) } else { group };
            b.for_loop(zero, hi, one, |b, _| b.barrier());
            assert_eq!(loop_iterations(&b.finish()), want);
        }
    }
}
