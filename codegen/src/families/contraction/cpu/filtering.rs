//! Winograd's minimal filtering F(m, 3) as matrices, and linear transforms as scalar expressions.
//!
//! `y = Aᵀ[(G g) ⊙ (Bᵀ d)]` gives the m outputs of a filter of three taps `g` over m + 2 inputs `d` with m + 2
//! multiplications; nested in two dimensions, `Y = Aᵀ[(G g Gᵀ) ⊙ (Bᵀ d B)]A`. The matrices are those of Lavin and Gray,
//! "Fast Algorithms for Convolutional Neural Networks" (CVPR 2016), from the points 0, ±1, ∞ and 0, ±1, ±2, ∞.

use crate::tile::{BinaryOp, Scalar};

type Matrix = &'static [&'static [f64]];

/// The three transforms of F(m, 3).
pub(super) struct Filtering {
    /// Outputs of a tile along one dimension.
    pub outputs: u64,
    /// `Bᵀ`: of the inputs.
    pub input: Matrix,
    /// `G`: of the taps.
    pub weights: Matrix,
    /// `Aᵀ`: to the outputs.
    pub output: Matrix,
}

const F2: Filtering = Filtering {
    outputs: 2,
    input: &[&[1.0, 0.0, -1.0, 0.0], &[0.0, 1.0, 1.0, 0.0], &[0.0, -1.0, 1.0, 0.0], &[0.0, 1.0, 0.0, -1.0]],
    weights: &[&[1.0, 0.0, 0.0], &[0.5, 0.5, 0.5], &[0.5, -0.5, 0.5], &[0.0, 0.0, 1.0]],
    output: &[&[1.0, 1.0, 1.0, 0.0], &[0.0, 1.0, -1.0, -1.0]],
};

const F4: Filtering = Filtering {
    outputs: 4,
    input: &[
        &[4.0, 0.0, -5.0, 0.0, 1.0, 0.0],
        &[0.0, -4.0, -4.0, 1.0, 1.0, 0.0],
        &[0.0, 4.0, -4.0, -1.0, 1.0, 0.0],
        &[0.0, -2.0, -1.0, 2.0, 1.0, 0.0],
        &[0.0, 2.0, -1.0, -2.0, 1.0, 0.0],
        &[0.0, 4.0, 0.0, -5.0, 0.0, 1.0],
    ],
    weights: &[
        &[1.0 / 4.0, 0.0, 0.0],
        &[-1.0 / 6.0, -1.0 / 6.0, -1.0 / 6.0],
        &[-1.0 / 6.0, 1.0 / 6.0, -1.0 / 6.0],
        &[1.0 / 24.0, 1.0 / 12.0, 1.0 / 6.0],
        &[1.0 / 24.0, -1.0 / 12.0, 1.0 / 6.0],
        &[0.0, 0.0, 1.0],
    ],
    output: &[
        &[1.0, 1.0, 1.0, 1.0, 1.0, 0.0],
        &[0.0, 1.0, -1.0, 2.0, -2.0, 0.0],
        &[0.0, 1.0, 1.0, 4.0, 4.0, 0.0],
        &[0.0, 1.0, -1.0, 8.0, -8.0, 1.0],
    ],
};

/// The transforms with `outputs` outputs along each dimension, 2 or 4.
pub(super) fn filtering(outputs: u64) -> Option<&'static Filtering> {
    [&F2, &F4].into_iter().find(|filtering| filtering.outputs == outputs)
}

/// `M X Mᵀ` of the square matrix `X` whose elements, row by row, are `inputs`. The steps are added to `lets`; the result
/// holds their positions, row by row.
pub(super) fn both_sides(matrix: Matrix, inputs: &[Scalar], lets: &mut Vec<Scalar>) -> Vec<usize> {
    let (rows, size) = (matrix.len(), matrix[0].len());
    // Columns first: `half[column][row]` of M X.
    let half: Vec<Vec<Scalar>> = (0..size)
        .map(|column| {
            let column: Vec<Scalar> = (0..size).map(|row| inputs[row * size + column].clone()).collect();
            times(matrix, &column, lets)
        })
        .collect();
    (0..rows)
        .flat_map(|row| {
            let row: Vec<Scalar> = half.iter().map(|column| column[row].clone()).collect();
            let row = times(matrix, &row, lets);
            row.into_iter().map(|value| named(value, lets)).collect::<Vec<_>>()
        })
        .collect()
}

/// `M x`. Neighbouring columns that meet every row with equal or opposite weights are added and subtracted once; so are
/// the even and odd parts of neighbouring rows. This halves the multiplications: the points come in pairs ±p.
fn times(matrix: Matrix, x: &[Scalar], lets: &mut Vec<Scalar>) -> Vec<Scalar> {
    let columns = matrix[0].len();
    let mirrored = |at: usize| {
        at + 1 < columns
            && matrix.iter().all(|row| row[at].abs() == row[at + 1].abs())
            && matrix.iter().any(|row| row[at] != 0.0 && row[at] != row[at + 1])
    };
    // (sum, difference) of column `at` and the next.
    let mut pairs: Vec<Option<(Scalar, Scalar)>> = vec![None; columns];
    let mut at = 1;
    while at + 1 < columns {
        if mirrored(at) {
            let [sum, difference] = [BinaryOp::Add, BinaryOp::Sub]
                .map(|op| let_of(Scalar::Binary(op, Box::new(x[at].clone()), Box::new(x[at + 1].clone())), lets));
            pairs[at] = Some((sum, difference));
            at += 1;
        }
        at += 1;
    }
    let terms = |row: &[f64]| {
        let mut terms = Vec::new();
        let mut at = 0;
        while at < columns {
            match &pairs[at] {
                Some((sum, difference)) => {
                    terms.push((row[at], if row[at] == row[at + 1] { sum.clone() } else { difference.clone() }));
                    at += 2;
                }
                None => {
                    terms.push((row[at], x[at].clone()));
                    at += 1;
                }
            }
        }
        terms
    };
    let mut results: Vec<Scalar> = Vec::new();
    while let Some(row) = matrix.get(results.len()) {
        let next = matrix.get(results.len() + 1).filter(|_| pairs.iter().all(Option::is_none));
        let halves = next.and_then(|next| {
            let half = |sign: f64| row.iter().zip(*next).map(|(a, b)| (a + sign * b) / 2.0).collect::<Vec<f64>>();
            let (even, odd) = (half(1.0), half(-1.0));
            let count = |row: &[f64]| row.iter().filter(|value| **value != 0.0).count();
            let apart = even.iter().zip(&odd).all(|(e, o)| *e == 0.0 || *o == 0.0);
            (apart && count(&even) > 0 && count(&odd) > 0 && count(&even) + count(&odd) > 2).then_some((even, odd))
        });
        match halves {
            Some((even, odd)) => {
                let [even, odd] = [even, odd].map(|row| let_of(weighted(terms(&row)), lets));
                for op in [BinaryOp::Add, BinaryOp::Sub] {
                    let value = Scalar::Binary(op, Box::new(even.clone()), Box::new(odd.clone()));
                    results.push(let_of(value, lets));
                }
            }
            None => results.push(let_of(weighted(terms(row)), lets)),
        }
    }
    results
}

/// `Σ weight · x`, beginning with a term that needs no multiplication if there is one.
fn weighted(terms: Vec<(f64, Scalar)>) -> Scalar {
    let mut terms: Vec<(f64, Scalar)> = terms.into_iter().filter(|(weight, _)| *weight != 0.0).collect();
    terms.sort_by_key(|(weight, _)| (*weight != 1.0, weight.abs() != 1.0));
    let binary = |op, a, b| Scalar::Binary(op, Box::new(a), Box::new(b));
    let product = |weight, x| binary(BinaryOp::Mul, x, Scalar::Const(weight));
    let mut terms = terms.into_iter();
    let Some((weight, first)) = terms.next() else { return Scalar::Const(0.0) };
    let first = if weight == 1.0 { first } else { product(weight, first) };
    terms.fold(first, |sum, (weight, x)| match weight {
        1.0 => binary(BinaryOp::Add, sum, x),
        -1.0 => binary(BinaryOp::Sub, sum, x),
        _ => binary(BinaryOp::Add, product(weight, x), sum),
    })
}

/// The value as an earlier let; loads and lets are their own name.
fn let_of(value: Scalar, lets: &mut Vec<Scalar>) -> Scalar {
    match value {
        Scalar::Arg(_) | Scalar::Let(_) => value,
        _ => {
            lets.push(value);
            Scalar::Let(lets.len() - 1)
        }
    }
}

/// The position of a value in the lets.
fn named(value: Scalar, lets: &mut Vec<Scalar>) -> usize {
    match value {
        Scalar::Let(position) => position,
        value => {
            lets.push(value);
            lets.len() - 1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the steps on numbers.
    fn run(matrix: Matrix, inputs: &[f64]) -> Vec<f64> {
        let mut lets = Vec::new();
        let args: Vec<Scalar> = (0..inputs.len()).map(Scalar::Arg).collect();
        let results = both_sides(matrix, &args, &mut lets);
        let mut values: Vec<f64> = Vec::new();
        for expr in &lets {
            let value = eval(expr, inputs, &values);
            values.push(value);
        }
        results.into_iter().map(|position| values[position]).collect()
    }

    fn eval(expr: &Scalar, args: &[f64], lets: &[f64]) -> f64 {
        match expr {
            Scalar::Arg(position) => args[*position],
            Scalar::Let(position) => lets[*position],
            Scalar::Const(value) => *value,
            Scalar::Binary(op, a, b) => {
                let (a, b) = (eval(a, args, lets), eval(b, args, lets));
                match op {
                    BinaryOp::Add => a + b,
                    BinaryOp::Sub => a - b,
                    BinaryOp::Mul => a * b,
                    _ => unreachable!("transforms are linear"),
                }
            }
            _ => unreachable!("transforms are linear"),
        }
    }

    #[test]
    fn transformed_products_are_the_outputs_of_the_filter() {
        for outputs in [2, 4] {
            let filtering = filtering(outputs).unwrap();
            let size = usize::try_from(outputs).unwrap() + 2;
            let d: Vec<f64> = (0..size * size).map(|at| ((at * 7 + 3) % 11) as f64 - 5.0).collect();
            let g: Vec<f64> = (0..9).map(|at| ((at * 5 + 1) % 7) as f64 - 3.0).collect();
            let (u, v) = (run(filtering.weights, &g), run(filtering.input, &d));
            let product: Vec<f64> = u.iter().zip(&v).map(|(u, v)| u * v).collect();
            let y = run(filtering.output, &product);
            for (at, &found) in y.iter().enumerate() {
                let (row, column) = (at / (size - 2), at % (size - 2));
                let tap = |t: usize| g[t] * d[(row + t / 3) * size + column + t % 3];
                let wanted: f64 = (0..9).map(tap).sum();
                assert!((found - wanted).abs() < 1e-9, "F({outputs}) output {at}: {found}, not {wanted}");
            }
        }
        assert!(filtering(3).is_none());
    }

    #[test]
    fn pairs_of_points_share_their_products() {
        let multiplications = |matrix: Matrix| {
            let args: Vec<Scalar> = (0..matrix[0].len()).map(Scalar::Arg).collect();
            let mut lets = Vec::new();
            times(matrix, &args, &mut lets);
            lets.iter().map(|expr| format!("{expr:?}").matches("Mul").count()).sum::<usize>()
        };
        // Row by row it would be 12 (4, 5 and 2 in F(4)) for the inputs, and 6 for the outputs.
        assert!(multiplications(F4.input) <= 8, "{}", multiplications(F4.input));
        assert_eq!(multiplications(F4.output), 3);
    }
}
