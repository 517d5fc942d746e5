//! Maps: each element by itself, through the epilogue.

use super::access::{addresses, advance, along, set};
use super::{Problem, ReferenceError};

pub(super) fn evaluate(problem: &Problem<'_>) -> Result<Vec<f64>, ReferenceError> {
    let mut output = problem.buffer()?;
    let (base, steps) = addresses(problem.workload, problem.output);
    let factor = problem.factor(0);
    // Lines along the axis in which the output is most contiguous.
    let long = (0..problem.extents.len()).filter(|axis| problem.extents[*axis] > 1);
    let inner = long.min_by_key(|axis| steps[*axis].unsigned_abs());
    let outer: Vec<usize> = (0..problem.extents.len()).filter(|axis| Some(*axis) != inner).collect();
    let sizes: Vec<u64> = outer.iter().map(|axis| problem.extents[*axis]).collect();
    let count = inner.map_or(1, |axis| problem.extents[axis]);
    let (mut coords, mut at) = (vec![0u64; problem.extents.len()], vec![0u64; outer.len()]);
    let mut line = Vec::new();
    loop {
        set(&mut coords, &outer, &at);
        set(&mut coords, inner.as_slice(), &[0]);
        line.clear();
        factor.read_line(&mut coords, inner, count, &mut line);
        let start = along(base, &steps, &coords);
        let step = inner.map_or(0, |axis| steps[axis]);
        for (element, position) in line.iter().zip(0u64..) {
            let address = usize::try_from(start.wrapping_add(step.wrapping_mul(position.cast_signed())));
            let address = address.expect("invariant: a valid workload writes inside its operands");
            output[address] = if problem.steps.is_empty() {
                *element
            } else {
                set(&mut coords, inner.as_slice(), &[position]);
                problem.finish(*element, &coords)
            };
        }
        if !advance(&mut at, &sizes) {
            return Ok(output);
        }
    }
}

/// One output element, straight from the definition.
pub(super) fn evaluate_point(problem: &Problem<'_>, point: &[u64]) -> Result<f64, ReferenceError> {
    let coords = problem.coords(point)?;
    Ok(problem.finish(problem.factor(0).read(&coords), &coords))
}
