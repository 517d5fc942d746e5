//! Freivalds' product check, for any contraction of two factors.
//!
//! Let the axes that index only one factor and the output be *N*. With random weights r over N,
//!
//! ```text
//! Σ_n r(n) · out[p, n]  =  Σ_k a[p, k] · (Σ_n r(n) · b[k, n])
//! ```
//!
//! so the whole output is checked with a contraction that is smaller by the extent of N. All numbers are integers below
//! 2^53 and all sums exact. Weights are 1 to 2^w: a single wrong element on a line along N is always seen, several
//! escape with probability 2^-w. Both factors give a check, along different lines (Freivalds, "Probabilistic machines
//! can use less running time", IFIP 1977). Applies where the epilogue only adds vectors; a ReLU hides what it cuts off.
//! Outputs of 16-bit types must hold the sums without rounding, which `Inputs::ternary` sees to.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use search_space::workload::{AxisKind, EpilogueStep, Extent, Op, Operand, Storage, row_major};
use search_space::{Workload, reference};

use super::inputs::Inputs;

/// One projection of the output and what it must be.
#[derive(Debug)]
pub(super) struct Sketch {
    /// Projected-out axes by name, for the message.
    along: String,
    /// For each element of the output: its place in the projection, its address, its weight and what an epilogue added.
    terms: Vec<Term>,
    expected: Vec<f64>,
}

#[derive(Debug)]
struct Term {
    line: u32,
    address: u32,
    weight: f64,
    added: f64,
}

impl Sketch {
    /// The projections that apply to `workload` with integer `inputs`.
    pub(super) fn both(workload: &Workload, inputs: &Inputs) -> Vec<Sketch> {
        let adds = |step: &EpilogueStep| matches!(step, EpilogueStep::Bias(_) | EpilogueStep::Add(_));
        let factors = workload.factors();
        if workload.op != Op::ContractMadd || factors.len() != 2 || !workload.epilogue.iter().all(adds) {
            return Vec::new();
        }
        [(factors[0], factors[1]), (factors[1], factors[0])]
            .into_iter()
            .filter_map(|(kept, projected)| Sketch::new(workload, inputs, kept, projected))
            .collect()
    }

    fn new(workload: &Workload, inputs: &Inputs, kept: usize, projected: usize) -> Option<Sketch> {
        let only_here = |axis: &usize| {
            workload.axes[*axis].kind == AxisKind::Parallel
                && workload.operands[projected].uses(*axis)
                && !workload.operands[kept].uses(*axis)
        };
        let axes: Vec<usize> = (0..workload.axes.len()).filter(only_here).collect();
        // The projected subscripts must be plain axes, so that lines of the factor are lines of the output.
        let plain = workload.operands[projected].index.iter().all(|subscript| {
            let touched = axes.iter().any(|axis| subscript.coefficient(*axis) != 0);
            !touched || (subscript.terms.len() == 1 && subscript.terms[0].1 == 1 && subscript.bound.is_none())
        });
        let extents = workload.fixed_extents()?;
        let lines: u64 = axes.iter().map(|axis| extents[*axis]).product();
        if axes.is_empty() || !plain || lines < 2 {
            return None;
        }
        // Σ |a|·|r|·|b| stays below 2^53: the product of all three bounds.
        let room = 52u32.checked_sub((lines.checked_mul(super::reduction_length(workload))?).ilog2() + 1)?;
        let weight_max = 1u32 << room.min(16);
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let weights: Vec<f64> = (0..lines).map(|_| f64::from(rng.random_range(1..=weight_max))).collect();
        let weight = |coords: &[u64]| {
            let rank = axes.iter().fold(0, |rank, axis| rank * extents[*axis] + coords[*axis]);
            weights[usize::try_from(rank).unwrap_or(0)]
        };

        // The small problem: the projected axes have extent 1, its buffers are dense, its epilogue is empty.
        let mut small = workload.clone();
        axes.iter().for_each(|axis| small.axes[*axis].extent = Extent::Fixed(1));
        small.epilogue.clear();
        let output = workload.outputs()[0];
        small.operands =
            [kept, projected, output].into_iter().map(|operand| workload.operands[operand].clone()).collect();
        if kept > projected {
            small.operands.swap(0, 1);
        }
        for position in 0..3 {
            let operand = &mut small.operands[position];
            operand.alias = None;
            if operand.name != workload.operands[kept].name {
                let shape = small.operand_shape(position);
                small.operands[position].storage = Storage::Strides(row_major(&shape));
            }
        }
        let at = |name: &str| small.operand(name);
        let (small_projected, small_output) =
            (at(&workload.operands[projected].name)?, at(&workload.operands[output].name)?);

        let factor = inputs.of(projected)?;
        let mut sums = vec![0.0; usize::try_from(small.operand_len(small_projected)).ok()?];
        let factor_axes: Vec<usize> =
            (0..workload.axes.len()).filter(|axis| workload.operands[projected].uses(*axis)).collect();
        let mut coords = vec![0u64; extents.len()];
        let mut first = coords.clone();
        let (of_factor, of_sums) = (Addresses::new(workload, projected), Addresses::new(&small, small_projected));
        for_each_point(&extents, &factor_axes, &mut coords, &mut |coords| {
            first.copy_from_slice(coords);
            axes.iter().for_each(|axis| first[*axis] = 0);
            let from = of_factor.at(coords).and_then(|at| factor.get(at));
            let to = of_sums.at(&first).and_then(|at| sums.get_mut(at));
            if let (Some(from), Some(to)) = (from, to) {
                *to += weight(coords) * from;
            }
        });
        let data = inputs.of(kept)?;
        let buffers: Vec<&[f64]> = if kept < projected { vec![data, &sums] } else { vec![&sums, data] };
        let expected = reference::evaluate(&small, &buffers).ok()?.swap_remove(0);

        let (of_line, of_output) = (Addresses::new(&small, small_output), Addresses::new(workload, output));
        let side = |step: &EpilogueStep| {
            let operand = workload.operand(step.operand()?)?;
            Some((inputs.of(operand)?, Addresses::new(workload, operand)))
        };
        let sides: Vec<(&[f64], Addresses<'_>)> = workload.epilogue.iter().filter_map(side).collect();
        let mut terms = Vec::new();
        let output_axes = reference::output_axes(workload);
        let mut complete = true;
        for_each_point(&extents, &output_axes, &mut coords, &mut |coords| {
            first.copy_from_slice(coords);
            axes.iter().for_each(|axis| first[*axis] = 0);
            let place = |at: Option<usize>| at.and_then(|at| u32::try_from(at).ok());
            let line = place(of_line.at(&first));
            let element = place(of_output.at(coords));
            let added = sides.iter().filter_map(|(values, addresses)| values.get(addresses.at(coords)?).copied());
            match (line, element) {
                (Some(line), Some(address)) => {
                    terms.push(Term { line, address, weight: weight(coords), added: added.sum() });
                }
                _ => complete = false,
            }
        });
        let along: Vec<&str> = axes.iter().map(|axis| workload.axes[*axis].name.as_str()).collect();
        complete.then(|| Sketch { along: along.join(", "), terms, expected })
    }

    /// Projects the output's buffer and compares.
    pub(super) fn compare(&self, found: &[f64]) -> Result<(), String> {
        let mut sums = vec![0.0; self.expected.len()];
        for term in &self.terms {
            let value = usize::try_from(term.address).ok().and_then(|at| found.get(at)).copied().unwrap_or(f64::NAN);
            sums[usize::try_from(term.line).unwrap_or(0)] += term.weight * (value - term.added);
        }
        // NaN marks gaps of the small output.
        let differs = |(sum, wanted): (&f64, &f64)| !wanted.is_nan() && sum != wanted;
        let wrong = sums.iter().zip(&self.expected).filter(|pair| differs(*pair)).count();
        if wrong == 0 {
            return Ok(());
        }
        Err(format!("{wrong} of {} weighted sums along {} differ", self.expected.len(), self.along))
    }
}

/// Addresses of an operand's elements. Without bounds they are linear in the point, and the strides are worked out once.
pub(super) struct Addresses<'w> {
    operand: &'w Operand,
    strides: Vec<u64>,
    /// The first element's address, and what a step along each axis adds; `None` where a subscript has a bound.
    linear: Option<(i64, Vec<i64>)>,
}

impl<'w> Addresses<'w> {
    pub(super) fn new(workload: &'w Workload, operand: usize) -> Addresses<'w> {
        let strides = match &workload.operands[operand].storage {
            Storage::Strides(strides) => strides.clone(),
            Storage::Free => row_major(&workload.operand_shape(operand)),
        };
        let operand = &workload.operands[operand];
        let linear = || {
            let (mut first, mut steps) = (0i64, vec![0i64; workload.axes.len()]);
            for (subscript, stride) in operand.index.iter().zip(&strides) {
                if subscript.bound.is_some() {
                    return None;
                }
                let stride = i64::try_from(*stride).ok()?;
                first = first.checked_add(subscript.offset.checked_mul(stride)?)?;
                for (axis, coefficient) in &subscript.terms {
                    steps[*axis] = steps[*axis].checked_add(coefficient.checked_mul(stride)?)?;
                }
            }
            Some((first, steps))
        };
        Addresses { operand, linear: linear(), strides }
    }

    /// The address at `coords` (one per axis); `None` outside.
    pub(super) fn at(&self, coords: &[u64]) -> Option<usize> {
        if let Some((first, steps)) = &self.linear {
            let step = |(coord, step): (&u64, &i64)| i64::try_from(*coord).ok()?.checked_mul(*step);
            let at = coords.iter().zip(steps).try_fold(*first, |at, pair| at.checked_add(step(pair)?))?;
            return usize::try_from(at).ok();
        }
        let mut at = 0u64;
        for (subscript, stride) in self.operand.index.iter().zip(&self.strides) {
            let value = subscript.terms.iter().fold(i128::from(subscript.offset), |sum, (axis, coefficient)| {
                sum + i128::from(*coefficient) * i128::from(coords[*axis])
            });
            let value = u64::try_from(value).ok().filter(|value| subscript.bound.is_none_or(|bound| *value < bound))?;
            at = at.checked_add(value.checked_mul(*stride)?)?;
        }
        usize::try_from(at).ok()
    }
}

/// Calls `visit` with every point of the given axes, the last one fastest; other coordinates are 0.
pub(super) fn for_each_point(extents: &[u64], axes: &[usize], coords: &mut [u64], visit: &mut impl FnMut(&[u64])) {
    coords.fill(0);
    loop {
        visit(coords);
        let mut outer = axes.iter().rev();
        loop {
            let Some(axis) = outer.next() else { return };
            coords[*axis] += 1;
            if coords[*axis] < extents[*axis] {
                break;
            }
            coords[*axis] = 0;
        }
    }
}
