//! Row passes: softmax, its logarithm, norms and arg-max over the reduction axes.

use super::access::{Access, addresses, advance, along, set};
use super::{Problem, ReferenceError};
use crate::workload::Op;

pub(super) fn evaluate(problem: &Problem<'_>) -> Result<Vec<f64>, ReferenceError> {
    let mut output = problem.buffer()?;
    let (base, steps) = addresses(problem.workload, problem.output);
    let mut write = |coords: &[u64], value: f64| {
        let address = usize::try_from(along(base, &steps, coords));
        output[address.expect("invariant: a valid workload writes inside its operands")] = value;
    };
    let axes = Axes::new(problem);
    let factor = problem.factor(0);
    let mut coords = vec![0u64; problem.extents.len()];
    let (mut at, mut row) = (vec![0u64; axes.outer.len()], Vec::new());
    loop {
        set(&mut coords, &axes.outer, &at);
        axes.gather(&factor, &mut coords, &mut row);
        let pass = Pass::new(problem.workload.op, &row);
        if let Pass::Index(index) = pass {
            write(&coords, index);
        } else {
            let mut within = vec![0u64; axes.inner.len()];
            for element in &row {
                set(&mut coords, &axes.inner, &within);
                write(&coords, problem.finish(pass.at(*element), &coords));
                advance(&mut within, &axes.inner_sizes);
            }
        }
        if !advance(&mut at, &axes.outer_sizes) {
            return Ok(output);
        }
    }
}

/// Chosen output elements; a row that several neighbouring points share is looked at once.
pub(super) fn evaluate_points(problem: &Problem<'_>, points: &[Vec<u64>]) -> Result<Vec<f64>, ReferenceError> {
    let axes = Axes::new(problem);
    let factor = problem.factor(0);
    let mut last: Option<(Vec<u64>, Pass)> = None;
    let mut row = Vec::new();
    points
        .iter()
        .map(|point| {
            let coords = problem.coords(point)?;
            let of_row: Vec<u64> = axes.outer.iter().map(|axis| coords[*axis]).collect();
            let pass = match &last {
                Some((same, pass)) if *same == of_row => *pass,
                _ => {
                    axes.gather(&factor, &mut coords.clone(), &mut row);
                    Pass::new(problem.workload.op, &row)
                }
            };
            last = Some((of_row, pass));
            Ok(match pass {
                Pass::Index(index) => index,
                _ => problem.finish(pass.at(factor.read(&coords)), &coords),
            })
        })
        .collect()
}

/// The axes of a row and those that count rows.
struct Axes {
    outer: Vec<usize>,
    outer_sizes: Vec<u64>,
    inner: Vec<usize>,
    inner_sizes: Vec<u64>,
}

impl Axes {
    fn new(problem: &Problem<'_>) -> Axes {
        let (inner, outer): (Vec<usize>, Vec<usize>) =
            (0..problem.extents.len()).partition(|axis| problem.is_reduced(*axis));
        let sizes = |axes: &[usize]| axes.iter().map(|axis| problem.extents[*axis]).collect();
        Axes { outer_sizes: sizes(&outer), inner_sizes: sizes(&inner), outer, inner }
    }

    /// Reads the row at `coords`, row-major over its axes, at which `coords` is left at 0.
    fn gather(&self, factor: &Access<'_>, coords: &mut [u64], row: &mut Vec<f64>) {
        row.clear();
        self.inner.iter().for_each(|axis| coords[*axis] = 0);
        let last = self.inner.len().saturating_sub(1);
        let mut at = vec![0u64; last];
        loop {
            set(coords, &self.inner[..last], &at);
            let count = self.inner_sizes.last().copied().unwrap_or(1);
            factor.read_line(coords, self.inner.last().copied(), count, row);
            if !advance(&mut at, &self.inner_sizes[..last]) {
                break;
            }
        }
        self.inner.iter().for_each(|axis| coords[*axis] = 0);
    }
}

/// What a row says about its elements.
#[derive(Clone, Copy)]
enum Pass {
    /// `exp(x - max) / sum`.
    Softmax { max: f64, sum: f64 },
    /// `x - max - log_sum`.
    LogSoftmax { max: f64, log_sum: f64 },
    /// `(x - mean) / deviation`.
    Norm { mean: f64, deviation: f64 },
    /// Position of the first maximum.
    Index(f64),
}

impl Pass {
    fn new(op: Op, row: &[f64]) -> Pass {
        #[expect(clippy::cast_precision_loss, reason = "rows are in memory, so shorter than 2^53")]
        let count = row.len() as f64;
        let mean = |of: &dyn Fn(f64) -> f64| row.iter().map(|x| of(*x)).sum::<f64>() / count;
        match op {
            Op::RowsLayerNorm { eps } => {
                let center = mean(&|x| x);
                let variance = mean(&|x| (x - center) * (x - center));
                Pass::Norm { mean: center, deviation: (variance + eps.get()).sqrt() }
            }
            Op::RowsRmsNorm { eps } => Pass::Norm { mean: 0.0, deviation: (mean(&|x| x * x) + eps.get()).sqrt() },
            Op::RowsArgMax => Pass::Index(first_maximum(row)),
            op => {
                let max = maximum(row);
                let sum: f64 = row.iter().map(|x| (x - max).exp()).sum();
                if op == Op::RowsSoftmax {
                    Pass::Softmax { max, sum }
                } else {
                    Pass::LogSoftmax { max, log_sum: sum.ln() }
                }
            }
        }
    }

    fn at(self, x: f64) -> f64 {
        match self {
            Pass::Softmax { max, sum } => (x - max).exp() / sum,
            Pass::LogSoftmax { max, log_sum } => x - max - log_sum,
            Pass::Norm { mean, deviation } => (x - mean) / deviation,
            Pass::Index(index) => index,
        }
    }
}

/// The largest number, NaN left out; minus infinity when there is none.
pub(super) fn maximum(row: &[f64]) -> f64 {
    row.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

fn first_maximum(row: &[f64]) -> f64 {
    let mut best = 0;
    for (at, x) in row.iter().enumerate() {
        if *x > row[best] || (x.is_nan() && !row[best].is_nan()) {
            best = at;
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "rows are in memory, so shorter than 2^53")]
    let index = best as f64;
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_maximum_wins_and_nan_is_largest() {
        assert_eq!(first_maximum(&[1.0, 3.0, 3.0, 2.0]), 1.0);
        assert_eq!(first_maximum(&[f64::INFINITY, f64::NAN, 1.0, f64::NAN]), 1.0);
        assert_eq!(first_maximum(&[f64::NEG_INFINITY; 3]), 0.0);
        assert_eq!(first_maximum(&[-0.0, 0.0]), 0.0);
    }
}
