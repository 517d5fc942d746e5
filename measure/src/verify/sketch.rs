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
use search_space::workload::{AxisKind, DType, EpilogueStep, Extent, Op, Operand, Storage, row_major};
use search_space::{Workload, reference};

use super::inputs::{Inputs, decode, encode};
use super::shelf::Bytes;

/// One projection of the output and what it must be.
#[derive(Debug)]
pub(super) struct Sketch {
    /// Projected-out axes by name, for the message.
    along: String,
    /// For each element of the output: its address, its place in the projection, and the rank of its weight.
    walk: Walk<3>,
    /// One weight for each point of the projected-out axes.
    weights: Vec<f64>,
    expected: Vec<f64>,
    /// What an epilogue added to each element, in the order of the walk; empty when nothing.
    added: Vec<f64>,
}

impl Sketch {
    /// Parts of one sketch in a shelf.
    const PARTS: usize = 3;

    /// The projections that apply to `workload` with integer `inputs`.
    pub(super) fn both(workload: &Workload, inputs: &Inputs) -> Vec<Sketch> {
        let projections = Projection::all(workload);
        projections.into_iter().filter_map(|projection| projection.sketch(workload, inputs)).collect()
    }

    /// Everything but what follows from the workload.
    pub(super) fn parts(&self) -> [Vec<u8>; Sketch::PARTS] {
        [&self.weights, &self.expected, &self.added].map(|values| encode(DType::F64, &mut values.clone()))
    }

    /// What [`Sketch::both`] gave, from the parts of all; `None` when they do not fit.
    pub(super) fn restore(workload: &Workload, parts: &[Bytes]) -> Option<Vec<Sketch>> {
        let (each, rest) = parts.as_chunks::<{ Sketch::PARTS }>();
        let projections = Projection::all(workload);
        if !rest.is_empty() || !(each.is_empty() || each.len() == projections.len()) {
            return None;
        }
        let sketches = projections.into_iter().zip(each).map(|(projection, parts)| {
            let [weights, expected, added] = [0, 1, 2].map(|part| decode(DType::F64, &parts[part]));
            Sketch { along: projection.along, walk: projection.walk, weights, expected, added }
        });
        Some(sketches.collect())
    }

    /// Projects the output's buffer and compares.
    pub(super) fn compare(&self, found: &[f64]) -> Result<(), String> {
        let mut sums = vec![0.0; self.expected.len()];
        let mut added = self.added.iter();
        self.walk.lines(|[mut address, mut line, mut rank], steps, count| {
            for _ in 0..count {
                let value = element(found, address).unwrap_or(f64::NAN) - added.next().copied().unwrap_or(0.0);
                let weight = element(&self.weights, rank).unwrap_or(f64::NAN);
                if let Some(sum) = usize::try_from(line).ok().and_then(|line| sums.get_mut(line)) {
                    *sum += weight * value;
                }
                address += steps[0];
                line += steps[1];
                rank += steps[2];
            }
        });
        // NaN marks gaps of the small output.
        let differs = |(sum, wanted): (&f64, &f64)| !wanted.is_nan() && sum != wanted;
        let wrong = sums.iter().zip(&self.expected).filter(|pair| differs(*pair)).count();
        if wrong == 0 {
            return Ok(());
        }
        Err(format!("{wrong} of {} weighted sums along {} differ", self.expected.len(), self.along))
    }
}

fn element(values: &[f64], at: i64) -> Option<f64> {
    values.get(usize::try_from(at).ok()?).copied()
}

/// Which axes are projected out, and the problem that remains.
struct Projection {
    along: String,
    kept: usize,
    projected: usize,
    /// The projected-out axes.
    axes: Vec<usize>,
    extents: Vec<u64>,
    /// Points of those axes.
    points: u64,
    weight_max: u32,
    /// The small problem: the projected axes have extent 1, its buffers are dense, its epilogue is empty.
    small: Workload,
    small_projected: usize,
    walk: Walk<3>,
}

impl Projection {
    fn all(workload: &Workload) -> Vec<Projection> {
        let adds = |step: &EpilogueStep| matches!(step, EpilogueStep::Bias(_) | EpilogueStep::Add(_));
        let factors = workload.factors();
        if workload.op != Op::ContractMadd || factors.len() != 2 || !workload.epilogue.iter().all(adds) {
            return Vec::new();
        }
        [(factors[0], factors[1]), (factors[1], factors[0])]
            .into_iter()
            .filter_map(|(kept, projected)| Projection::new(workload, kept, projected))
            .collect()
    }

    fn new(workload: &Workload, kept: usize, projected: usize) -> Option<Projection> {
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
        let points: u64 = axes.iter().map(|axis| extents[*axis]).product();
        if axes.is_empty() || !plain || points < 2 {
            return None;
        }
        // Σ |a|·|r|·|b| stays below 2^53: the product of all three bounds.
        let room = 52u32.checked_sub((points.checked_mul(super::reduction_length(workload))?).ilog2() + 1)?;

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
        let at = |operand: usize| small.operand(&workload.operands[operand].name);
        let (small_projected, small_output) = (at(projected)?, at(output)?);
        let (of_output, of_line) = (Addresses::new(workload, output), Addresses::new(&small, small_output));
        let maps = [of_output.linear?, still(of_line.linear?, &axes), rank(&axes, &extents)];
        let along: Vec<&str> = axes.iter().map(|axis| workload.axes[*axis].name.as_str()).collect();
        Some(Projection {
            along: along.join(", "),
            kept,
            projected,
            points,
            weight_max: 1u32 << room.min(16),
            small_projected,
            walk: Walk::new(&reference::output_axes(workload), &extents, &maps),
            axes,
            extents,
            small,
        })
    }

    fn sketch(self, workload: &Workload, inputs: &Inputs) -> Option<Sketch> {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let weights: Vec<f64> = (0..self.points).map(|_| f64::from(rng.random_range(1..=self.weight_max))).collect();
        let sums = self.sums(workload, inputs.of(self.projected)?, &weights)?;
        let data = inputs.of(self.kept)?;
        let buffers: Vec<&[f64]> = if self.kept < self.projected { vec![data, &sums] } else { vec![&sums, data] };
        let expected = reference::evaluate(&self.small, &buffers).ok()?.swap_remove(0);
        let added = self.added(workload, inputs)?;
        Some(Sketch { along: self.along, walk: self.walk, weights, expected, added })
    }

    /// `Σ_n r(n) · b[k, n]`: the buffer of the small problem's factor.
    fn sums(&self, workload: &Workload, factor: &[f64], weights: &[f64]) -> Option<Vec<f64>> {
        let mut sums = vec![0.0; usize::try_from(self.small.operand_len(self.small_projected)).ok()?];
        let axes: Vec<usize> =
            (0..workload.axes.len()).filter(|axis| workload.operands[self.projected].uses(*axis)).collect();
        let of_factor = Addresses::new(workload, self.projected);
        let of_sums = Addresses::new(&self.small, self.small_projected);
        let rank = rank(&self.axes, &self.extents);
        if let (Some(from), Some(to)) = (&of_factor.linear, &of_sums.linear) {
            let maps = [from.clone(), still(to.clone(), &self.axes), rank];
            Walk::new(&axes, &self.extents, &maps).lines(|[mut from, mut to, mut rank], steps, count| {
                for _ in 0..count {
                    let term = element(factor, from).zip(element(weights, rank));
                    let sum = usize::try_from(to).ok().and_then(|to| sums.get_mut(to));
                    if let (Some((value, weight)), Some(sum)) = (term, sum) {
                        *sum += weight * value;
                    }
                    from += steps[0];
                    to += steps[1];
                    rank += steps[2];
                }
            });
            return Some(sums);
        }
        // Some points are outside of the factor.
        let mut coords = vec![0u64; self.extents.len()];
        let mut first = coords.clone();
        for_each_point(&self.extents, &axes, &mut coords, &mut |coords| {
            first.copy_from_slice(coords);
            self.axes.iter().for_each(|axis| first[*axis] = 0);
            let from = of_factor.at(coords).and_then(|at| factor.get(at));
            let to = of_sums.at(&first).and_then(|at| sums.get_mut(at));
            let weight = linear(&rank, coords).and_then(|at| weights.get(at));
            if let (Some(from), Some(to), Some(weight)) = (from, to, weight) {
                *to += weight * from;
            }
        });
        Some(sums)
    }

    /// What the epilogue adds to each element of the output, in the order of the walk.
    fn added(&self, workload: &Workload, inputs: &Inputs) -> Option<Vec<f64>> {
        let side = |step: &EpilogueStep| {
            let operand = workload.operand(step.operand()?)?;
            Some((inputs.of(operand)?, Addresses::new(workload, operand)))
        };
        let sides: Vec<(&[f64], Addresses<'_>)> = workload.epilogue.iter().map(side).collect::<Option<_>>()?;
        let mut added = Vec::new();
        if sides.is_empty() {
            return Some(added);
        }
        let mut coords = vec![0; self.extents.len()];
        for_each_point(&self.extents, &self.walk.axes, &mut coords, &mut |coords| {
            let values = sides.iter().filter_map(|(values, addresses)| values.get(addresses.at(coords)?).copied());
            added.push(values.sum());
        });
        Some(added)
    }
}

/// An address that is linear in a point: that of the origin, and what a step along each axis adds.
type Linear = (i64, Vec<i64>);

fn linear((first, steps): &Linear, coords: &[u64]) -> Option<usize> {
    let step = |(coord, step): (&u64, &i64)| i64::try_from(*coord).ok()?.checked_mul(*step);
    let at = coords.iter().zip(steps).try_fold(*first, |at, pair| at.checked_add(step(pair)?))?;
    usize::try_from(at).ok()
}

/// The row-major rank of a point among those of `axes`.
fn rank(axes: &[usize], extents: &[u64]) -> Linear {
    let mut steps = vec![0; extents.len()];
    let sizes: Vec<u64> = axes.iter().map(|axis| extents[*axis]).collect();
    for (axis, stride) in axes.iter().zip(row_major(&sizes)) {
        steps[*axis] = stride.cast_signed();
    }
    (0, steps)
}

/// The same address at every point of `axes`.
fn still((first, mut steps): Linear, axes: &[usize]) -> Linear {
    axes.iter().for_each(|axis| steps[*axis] = 0);
    (first, steps)
}

/// All points of some axes with several addresses of each.
#[derive(Debug)]
struct Walk<const N: usize> {
    /// The axes, from the longest step of the first address to the shortest.
    axes: Vec<usize>,
    extents: Vec<u64>,
    first: [i64; N],
    steps: Vec<[i64; N]>,
}

impl<const N: usize> Walk<N> {
    fn new(axes: &[usize], extents: &[u64], maps: &[Linear; N]) -> Walk<N> {
        let mut axes = axes.to_vec();
        axes.sort_by_key(|axis| std::cmp::Reverse(maps[0].1[*axis].unsigned_abs()));
        Walk {
            extents: axes.iter().map(|axis| extents[*axis]).collect(),
            first: std::array::from_fn(|map| maps[map].0),
            steps: axes.iter().map(|axis| std::array::from_fn(|map| maps[map].1[*axis])).collect(),
            axes,
        }
    }

    /// Calls `line` with the addresses of the first point of each line along the last axis, the steps along it, and the
    /// number of its points.
    fn lines(&self, mut line: impl FnMut([i64; N], [i64; N], u64)) {
        if self.extents.contains(&0) {
            return;
        }
        let (count, step) = match (self.extents.last(), self.steps.last()) {
            (Some(count), Some(step)) => (*count, *step),
            _ => (1, [0; N]),
        };
        let outer = self.extents.len().saturating_sub(1);
        let (mut at, mut coords) = (self.first, vec![0u64; outer]);
        loop {
            line(at, step, count);
            let mut axis = outer;
            loop {
                let Some(next) = axis.checked_sub(1) else { return };
                axis = next;
                coords[axis] += 1;
                let back = if coords[axis] < self.extents[axis] { 0 } else { coords[axis] };
                for (at, step) in at.iter_mut().zip(&self.steps[axis]) {
                    *at += step - step * back.cast_signed();
                }
                if back == 0 {
                    break;
                }
                coords[axis] = 0;
            }
        }
    }
}

/// Addresses of an operand's elements. Without bounds they are linear in the point, and the strides are worked out once.
pub(super) struct Addresses<'w> {
    operand: &'w Operand,
    strides: Vec<u64>,
    /// `None` where a subscript has a bound.
    linear: Option<Linear>,
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
        if let Some(map) = &self.linear {
            return linear(map, coords);
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
