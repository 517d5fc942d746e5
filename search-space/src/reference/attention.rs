//! Attention: `o[m,e] = Σ_n softmax_n(scale · Σ_d q[m,d] · k[n,d]) · v[n,e]`, over visible keys.
//!
//! The whole output is computed head by head from dense copies of its keys and values; single points straight from the
//! definition on the given buffers, so the two paths check each other.

use super::access::{Access, addresses, advance, along, set};
use super::{Problem, ReferenceError, rows};
use crate::workload::{AttentionAxes, Real};

pub(super) struct Attention<'p, 'w> {
    problem: &'p Problem<'w>,
    axes: AttentionAxes,
    scale: f64,
    causal: bool,
    q: Access<'w>,
    k: Access<'w>,
    v: Access<'w>,
}

impl<'p, 'w> Attention<'p, 'w> {
    pub(super) fn new(
        problem: &'p Problem<'w>,
        scale: Real,
        causal: bool,
    ) -> Result<Attention<'p, 'w>, ReferenceError> {
        let axes = problem.workload.attention_axes();
        let unknown = || ReferenceError::Unsupported { feature: "an attention with other axes".into() };
        let [q, k, v] = [0, 1, 2].map(|position| problem.factor(position));
        Ok(Attention { problem, axes: axes.map_err(|_| unknown())?, scale: scale.get(), causal, q, k, v })
    }

    pub(super) fn evaluate(&self) -> Result<Vec<f64>, ReferenceError> {
        let AttentionAxes { m, e, n, d, .. } = self.axes;
        let extents = &self.problem.extents;
        let mut output = self.problem.buffer()?;
        let (base, steps) = addresses(self.problem.workload, self.problem.output);
        let heads: Vec<usize> = (0..extents.len()).filter(|axis| ![m, e, n, d].contains(axis)).collect();
        let sizes: Vec<u64> = heads.iter().map(|axis| extents[*axis]).collect();
        let width = |axis: usize| usize::try_from(extents[axis]).expect("invariant: the operands are in memory");
        let (mut coords, mut at) = (vec![0u64; extents.len()], vec![0u64; heads.len()]);
        let (mut keys, mut values, mut query) = (Vec::new(), Vec::new(), Vec::new());
        let mut sums = vec![0.0; width(e)];
        loop {
            coords.fill(0);
            set(&mut coords, &heads, &at);
            keys.clear();
            values.clear();
            for key in 0..extents[n] {
                coords[n] = key;
                self.k.read_line(&mut coords, Some(d), extents[d], &mut keys);
                self.v.read_line(&mut coords, Some(e), extents[e], &mut values);
            }
            coords[n] = 0;
            for row in 0..extents[m] {
                coords[m] = row;
                query.clear();
                self.q.read_line(&mut coords, Some(d), extents[d], &mut query);
                let visible = (0..self.visible(row)).zip(keys.chunks(width(d)));
                let scores: Vec<f64> = visible.map(|(_, key)| self.scale * dot(&query, key)).collect();
                sums.fill(0.0);
                for (weight, value) in softmax(&scores).zip(values.chunks(width(e))) {
                    sums.iter_mut().zip(value).for_each(|(sum, x)| *sum += weight * x);
                }
                for (sum, column) in sums.iter().zip(0..) {
                    coords[e] = column;
                    let address = usize::try_from(along(base, &steps, &coords));
                    let address = address.expect("invariant: a valid workload writes inside its operands");
                    output[address] = self.problem.finish(*sum, &coords);
                }
                coords[e] = 0;
            }
            if !advance(&mut at, &sizes) {
                return Ok(output);
            }
        }
    }

    /// Chosen output elements; weights that neighbouring points share are computed once.
    pub(super) fn evaluate_points(&self, points: &[Vec<u64>]) -> Result<Vec<f64>, ReferenceError> {
        let AttentionAxes { m, e, n, d, .. } = self.axes;
        let mut last: Option<(Vec<u64>, Vec<f64>)> = None;
        let (mut values, mut query, mut key) = (Vec::new(), Vec::new(), Vec::new());
        for point in points {
            let mut coords = self.problem.coords(point)?;
            let column = coords[e];
            coords[e] = 0;
            if last.as_ref().is_none_or(|(same, _)| *same != coords) {
                let depth = self.problem.extents[d];
                query.clear();
                self.q.read_line(&mut coords, Some(d), depth, &mut query);
                let scores: Vec<f64> = (0..self.visible(coords[m]))
                    .map(|at| {
                        coords[n] = at;
                        key.clear();
                        self.k.read_line(&mut coords, Some(d), depth, &mut key);
                        self.scale * query.iter().zip(&key).map(|(q, k)| q * k).sum::<f64>()
                    })
                    .collect();
                coords[n] = 0;
                last = Some((coords.clone(), softmax(&scores).collect()));
            }
            coords[e] = column;
            let weights = last.as_ref().map_or(&[][..], |(_, weights)| weights);
            let mut sum = 0.0;
            for (weight, key) in weights.iter().zip(0..) {
                coords[n] = key;
                sum += weight * self.v.read(&coords);
            }
            coords[n] = 0;
            values.push(self.problem.finish(sum, &coords));
        }
        Ok(values)
    }

    /// Keys that query `m` sees: the first so many.
    fn visible(&self, m: u64) -> u64 {
        let [queries, keys] = [self.axes.m, self.axes.n].map(|axis| self.problem.extents[axis]);
        // A valid causal attention has no more queries than keys.
        if self.causal { m + 1 + keys - queries } else { keys }
    }
}

fn softmax(scores: &[f64]) -> impl Iterator<Item = f64> {
    let max = rows::maximum(scores);
    let sum: f64 = scores.iter().map(|score| (score - max).exp()).sum();
    scores.iter().map(move |score| (score - max).exp() / sum)
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    // Four sums, as one would wait for itself.
    let mut sums = [0.0f64; 4];
    let (left_fours, left_rest) = left.as_chunks::<4>();
    let (right_fours, right_rest) = right.as_chunks::<4>();
    for (a, b) in left_fours.iter().zip(right_fours) {
        for i in 0..4 {
            sums[i] += a[i] * b[i];
        }
    }
    let rest: f64 = left_rest.iter().zip(right_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + rest
}
