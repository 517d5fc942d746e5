//! Contractions: `out[p] = finish(⊕_r Π_f factor_f[p, r])` with ⊕ sum or maximum.
//!
//! The whole output is computed over packed copies of the factors, so that the inner loop has no bounds to check: one
//! output axis is innermost and contiguous, a tile of it stays in the first-level cache while the reduction runs, and
//! four terms are added per pass. Single points are computed straight from the definition instead, on the given
//! buffers, so the two paths check each other.

use super::access::{Access, Packed, addresses, advance, along, set};
use super::{Problem, ReferenceError};
use crate::workload::Op;

/// Elements of the contiguous factor that one tile may touch over the whole reduction: 512 KiB, in most second-level
/// caches.
const PANEL: u64 = 1 << 16;
/// Terms of a single point that are multiplied together.
const LINE: usize = 1 << 10;

pub(super) fn evaluate(problem: &Problem<'_>) -> Result<Vec<f64>, ReferenceError> {
    let workload = problem.workload;
    let reduction: Vec<usize> = (0..workload.axes.len()).filter(|axis| problem.is_reduced(*axis)).collect();
    let inner = inner_axis(problem);
    let fits = |axis: &usize| problem.extents[*axis];
    let deepest = reduction.iter().copied().max_by_key(fits);
    let mut loops = Loops {
        inner,
        deepest,
        terms: deepest.map_or(1, |axis| problem.extents[axis]),
        max: workload.op == Op::ContractMax,
        factors: Vec::new(),
    };
    for (i, data) in &problem.factors {
        loops.factors.push(Packed::new(workload, *i, data, inner, problem.identity())?);
    }
    if loops.factors.len() == 1 && !loops.max {
        // A plain sum is a sum of products with one.
        loops.factors.push(Packed { data: vec![1.0], base: 0, steps: vec![0; workload.axes.len()] });
    }

    let mut output = problem.buffer()?;
    let (base, steps) = addresses(workload, problem.output);

    let outer: Vec<usize> =
        (0..workload.axes.len()).filter(|axis| !problem.is_reduced(*axis) && Some(*axis) != inner).collect();
    let shallow: Vec<usize> = reduction.iter().copied().filter(|axis| Some(*axis) != deepest).collect();
    let sizes = |axes: &[usize]| axes.iter().map(|axis| problem.extents[*axis]).collect::<Vec<u64>>();
    let (outer_sizes, shallow_sizes) = (sizes(&outer), sizes(&shallow));
    let depth = sizes(&reduction).iter().product::<u64>();
    let width = inner.map_or(1, |axis| problem.extents[axis]);
    let tile = (PANEL / depth).clamp(32, 1024).min(width);

    let mut coords = vec![0u64; workload.axes.len()];
    let mut sums = Vec::new();
    for start in (0..width).step_by(usize::try_from(tile).expect("invariant: a tile is at most 1024")) {
        let count = tile.min(width - start);
        let mut outer_at = vec![0u64; outer.len()];
        loop {
            set(&mut coords, &outer, &outer_at);
            set(&mut coords, inner.as_slice(), &[start]);
            sums.clear();
            sums.resize(usize::try_from(count).expect("invariant: a tile is at most 1024"), problem.identity());
            let mut shallow_at = vec![0u64; shallow.len()];
            loop {
                set(&mut coords, &shallow, &shallow_at);
                loops.add(&mut sums, &coords);
                if !advance(&mut shallow_at, &shallow_sizes) {
                    break;
                }
            }
            for (sum, at) in sums.iter().zip(start..) {
                set(&mut coords, inner.as_slice(), &[at]);
                let address = usize::try_from(along(base, &steps, &coords));
                let address = address.expect("invariant: a valid workload writes inside its operands");
                output[address] = problem.finish(*sum, &coords);
            }
            if !advance(&mut outer_at, &outer_sizes) {
                break;
            }
        }
        set(&mut coords, &shallow, &vec![0; shallow.len()]);
    }
    Ok(output)
}

/// One output element, straight from the definition.
pub(super) fn evaluate_point(problem: &Problem<'_>, point: &[u64]) -> Result<f64, ReferenceError> {
    let workload = problem.workload;
    let mut coords = problem.coords(point)?;
    let factors: Vec<Access<'_>> =
        problem.factors.iter().map(|(i, data)| Access::new(workload, *i, data, problem.identity())).collect();
    let reduction = (0..workload.axes.len()).filter(|axis| problem.is_reduced(*axis));
    let deepest = reduction.clone().max_by_key(|axis| problem.extents[*axis]);
    let terms = deepest.map_or(1, |axis| problem.extents[axis]);
    let shallow: Vec<usize> = reduction.filter(|axis| Some(*axis) != deepest).collect();
    let sizes: Vec<u64> = shallow.iter().map(|axis| problem.extents[*axis]).collect();
    let mut at = vec![0u64; shallow.len()];
    let mut value = problem.identity();
    let fold = if workload.op == Op::ContractMax { maximum } else { |value, product| value + product };
    let (mut products, mut line) = (Vec::new(), Vec::new());
    loop {
        set(&mut coords, &shallow, &at);
        for first in (0..terms).step_by(LINE) {
            set(&mut coords, deepest.as_slice(), &[first]);
            let count = (terms - first).min(LINE as u64);
            products.clear();
            products.resize(usize::try_from(count).expect("invariant: a line is short"), 1.0);
            for factor in &factors {
                line.clear();
                factor.read_line(&mut coords, deepest, count, &mut line);
                products.iter_mut().zip(&line).for_each(|(product, element)| *product *= element);
            }
            value = products.iter().copied().fold(value, fold);
        }
        if !advance(&mut at, &sizes) {
            break;
        }
    }
    set(&mut coords, deepest.as_slice(), &[0]);
    Ok(problem.finish(value, &coords))
}

/// The output axis for the innermost loop: preferably long enough, contiguous in exactly one packed factor and absent
/// from the others, then the longest.
fn inner_axis(problem: &Problem<'_>) -> Option<usize> {
    let workload = problem.workload;
    (0..workload.axes.len()).filter(|axis| !problem.is_reduced(*axis)).max_by_key(|axis| {
        let used: Vec<Vec<i64>> = problem
            .factors
            .iter()
            .map(|(i, _)| {
                workload.operands[*i].index.iter().map(|s| s.coefficient(*axis)).filter(|c| *c != 0).collect()
            })
            .filter(|used: &Vec<i64>| !used.is_empty())
            .collect();
        let one = matches!(&used[..], [only] if only[..] == [1]);
        (one && problem.extents[*axis] >= 8, problem.extents[*axis])
    })
}

/// The larger of two; NaN when one is (`f64::max` would drop it).
fn maximum(left: f64, right: f64) -> f64 {
    if left > right || left.is_nan() { left } else { right }
}

/// The two innermost loops, over the deepest reduction axis and a run of the inner output axis.
struct Loops {
    inner: Option<usize>,
    deepest: Option<usize>,
    terms: u64,
    max: bool,
    factors: Vec<Packed>,
}

impl Loops {
    /// Adds all terms of the deepest reduction axis to a run of sums that begins at `coords`.
    fn add(&self, sums: &mut [f64], coords: &[u64]) {
        let step = |factor: &Packed, axis: Option<usize>| axis.map_or(0, |axis| factor.steps[axis]);
        let terms = isize::try_from(self.terms).expect("invariant: packed factors are in memory");
        let streams: Vec<Stream<'_>> = self
            .factors
            .iter()
            .map(|factor| {
                let start = factor.steps.iter().zip(coords).fold(factor.base, |sum, (step, at)| {
                    sum + step * isize::try_from(*at).expect("invariant: extents are below 2^31")
                });
                Stream { data: &factor.data, start, term: step(factor, self.deepest), column: step(factor, self.inner) }
            })
            .collect();
        match &streams[..] {
            [scalar, row] | [row, scalar] if !self.max && scalar.column == 0 && row.column == 1 => {
                axpy(sums, scalar, row, terms);
            }
            _ => {
                for term in 0..terms {
                    for (sum, column) in sums.iter_mut().zip(0..) {
                        let product: f64 = streams.iter().map(|stream| stream.at(term, column)).product();
                        *sum = if self.max { maximum(*sum, product) } else { *sum + product };
                    }
                }
            }
        }
    }
}

/// A packed factor seen from the two innermost loops.
struct Stream<'d> {
    data: &'d [f64],
    start: isize,
    term: isize,
    column: isize,
}

impl Stream<'_> {
    fn at(&self, term: isize, column: isize) -> f64 {
        self.data[position(self.start + term * self.term + column * self.column)]
    }

    fn row(&self, term: isize, length: usize) -> &[f64] {
        let start = position(self.start + term * self.term);
        &self.data[start..start + length]
    }
}

fn position(address: isize) -> usize {
    usize::try_from(address).expect("invariant: a packed factor holds all that its subscripts reach")
}

/// `sums[j] += Σ_t scalar[t] · row[t][j]`, four terms per pass to spare loads and stores of the sums.
fn axpy(sums: &mut [f64], scalar: &Stream<'_>, row: &Stream<'_>, terms: isize) {
    let length = sums.len();
    let mut term = 0;
    while term + 4 <= terms {
        let [f0, f1, f2, f3] = [0, 1, 2, 3].map(|i| scalar.at(term + i, 0));
        let [r0, r1, r2, r3] = [0, 1, 2, 3].map(|i| row.row(term + i, length));
        for ((((sum, x0), x1), x2), x3) in sums.iter_mut().zip(r0).zip(r1).zip(r2).zip(r3) {
            *sum += (f0 * x0 + f1 * x1) + (f2 * x2 + f3 * x3);
        }
        term += 4;
    }
    while term < terms {
        let factor = scalar.at(term, 0);
        for (sum, x) in sums.iter_mut().zip(row.row(term, length)) {
            *sum += factor * x;
        }
        term += 1;
    }
}
