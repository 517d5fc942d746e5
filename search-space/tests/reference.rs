//! What workloads mean, checked by hand-written tables, by laws, and by two evaluations that share no loops.

#![allow(clippy::unwrap_used, reason = "helpers of tests stop the test")]

use std::time::Instant;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tilewright_search_space::reference::{self, ReferenceError};
use tilewright_search_space::workload::{Activation, Conv2dSpec, DType, EpilogueStep, MatmulSpec, Storage};
use tilewright_search_space::{Workload, samples};

fn parse(text: &str) -> Workload {
    Workload::parse(text).unwrap()
}

/// Small integers, so that sums are exact in any order.
fn data(length: u64, seed: u64) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..length).map(|_| f64::from(rng.random_range(-4i32..=4))).collect()
}

fn inputs(workload: &Workload, seed: u64) -> Vec<Vec<f64>> {
    let reads = workload.inputs();
    reads.iter().zip(seed..).map(|(i, seed)| data(workload.operand_len(*i), seed)).collect()
}

fn evaluate(workload: &Workload, inputs: &[Vec<f64>]) -> Vec<f64> {
    let slices: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
    reference::evaluate(workload, &slices).unwrap().remove(0)
}

/// The definition on single points gives the same as the loops over the whole, in the same places.
fn check_both_ways(workload: &Workload, inputs: &[Vec<f64>]) {
    let whole = evaluate(workload, inputs);
    let slices: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
    let points: Vec<Vec<u64>> = reference::output_points(workload).collect();
    let values = reference::evaluate_points(workload, &slices, &points).unwrap();
    let output = workload.outputs()[0];
    let mut unwritten = vec![true; whole.len()];
    for (point, value) in points.iter().zip(values) {
        let address = usize::try_from(reference::output_address(workload, output, point).unwrap()).unwrap();
        let (left, right): (f64, f64) = (whole[address], value);
        let near = (left - right).abs() <= 1e-12 * right.abs().max(1.0);
        let same = left == right || (left.is_nan() && right.is_nan()) || (!workload.op.is_contraction() && near);
        assert!(same, "{workload} at {point:?}: {left} or {right}");
        unwritten[address] = false;
    }
    let gaps_stay = whole.iter().zip(&unwritten).all(|(value, gap)| value.is_nan() || !*gap);
    assert!(gaps_stay, "{workload}: gaps are NaN");
}

#[test]
fn two_by_two() {
    let a = vec![1.0, 2.0, 3.0, 4.0];
    let b = vec![5.0, 6.0, 7.0, 8.0];
    let inputs = [a, b];
    assert_eq!(evaluate(&parse("matmul m=2 n=2 k=2 dtype=f32"), &inputs), [19.0, 22.0, 43.0, 50.0]);
    assert_eq!(evaluate(&parse("matmul m=2 n=2 k=2 dtype=f32 ta=1"), &inputs), [26.0, 30.0, 38.0, 44.0]);
    assert_eq!(evaluate(&parse("matmul m=2 n=2 k=2 dtype=f32 tb=1"), &inputs), [17.0, 23.0, 39.0, 53.0]);
}

#[test]
fn batch_bias_and_relu() {
    let workload = parse("matmul batch=2 m=1 n=2 k=2 dtype=f32 bias=1 relu=1");
    let inputs = [vec![1.0, 2.0, -1.0, 1.0], vec![1.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0], vec![-1.5, 0.5]];
    assert_eq!(evaluate(&workload, &inputs), [0.0, 2.5, 0.5, 2.5]);
}

#[test]
fn padded_convolution_against_a_table() {
    // A 3x3 kernel of ones with padding 1 sums each 3x3 neighbourhood.
    let workload = parse("conv2d n=1 c=1 h=3 w=3 k=1 r=3 s=3 pad=1 dtype=f32");
    let image: Vec<f64> = (1..=9).map(f64::from).collect();
    let table = [12.0, 21.0, 16.0, 27.0, 45.0, 33.0, 24.0, 39.0, 28.0];
    assert_eq!(evaluate(&workload, &[image.clone(), vec![1.0; 9]]), table);
    // An asymmetric kernel tells correlation (meant) from convolution with a flipped kernel.
    let flat = parse("conv2d n=1 c=1 h=3 w=3 k=1 r=1 s=2 pad_l=1 dtype=f32");
    assert_eq!(evaluate(&flat, &[image, vec![10.0, 1.0]]), [1.0, 12.0, 23.0, 4.0, 45.0, 56.0, 7.0, 78.0, 89.0]);
}

#[test]
fn stride_dilation_and_groups_against_tables() {
    let image: Vec<f64> = (0..16).map(f64::from).collect();
    let strided = parse("conv2d n=1 c=1 h=4 w=4 k=1 r=1 s=1 stride_h=3 stride_w=2 dtype=f32");
    let reads = usize::try_from(strided.operand_len(0)).unwrap();
    assert_eq!(evaluate(&strided, &[image[..reads].to_vec(), vec![2.0]]), [0.0, 4.0, 24.0, 28.0]);
    let dilated = parse("conv2d n=1 c=1 h=4 w=4 k=1 r=2 s=2 dilation_h=3 dilation_w=2 dtype=f32");
    assert_eq!(evaluate(&dilated, &[image, vec![1.0, 10.0, 100.0, 1000.0]]), [15220.0, 16331.0]);
    let groups = parse("conv2d n=1 c=4 h=1 w=1 k=2 r=1 s=1 groups=2 dtype=f32 bias=1");
    let inputs = [vec![1.0, 2.0, 3.0, 4.0], vec![1.0, 10.0, 100.0, 1000.0], vec![0.5, 0.25]];
    assert_eq!(evaluate(&groups, &inputs), [21.5, 4300.25]);
}

#[test]
fn pooling_ignores_padding_for_max_and_counts_it_for_sums() {
    let pool = |op: &str, epilogue: &str| {
        parse(&format!(
            "tw1;{op};oh:p2,ow:p2,r:r2,s:r2;in.x=f32[2*oh+r-1:2,2*ow+s-1:2]@s(2,1)a4;out.y=f32[oh,ow]@s(2,1)a4;\
             acc=f32;epi={epilogue};math=ieee;det=fixed;ws=0"
        ))
    };
    let image = [vec![-1.0, -2.0, -3.0, -4.0]];
    assert_eq!(evaluate(&pool("contract.max", "-"), &image), [-1.0, -2.0, -3.0, -4.0]);
    assert_eq!(evaluate(&pool("contract.add", "scale(0.25)"), &image), [-0.25, -0.5, -0.75, -1.0]);
    assert!(evaluate(&pool("contract.max", "-"), &[vec![f64::NAN; 4]]).iter().all(|value| value.is_nan()));
}

#[test]
fn identity_weights_return_the_input() {
    let workload = parse("matmul m=7 n=13 k=13 dtype=f32");
    let a = data(7 * 13, 1);
    let identity: Vec<f64> = (0..169).map(|i| if i / 13 == i % 13 { 1.0 } else { 0.0 }).collect();
    assert_eq!(evaluate(&workload, &[a.clone(), identity]), a);
    let conv = parse("conv2d n=2 c=3 h=5 w=4 k=3 r=3 s=3 pad=1 dtype=f32");
    let x = data(2 * 3 * 5 * 4, 2);
    // Weight one at the middle of the kernel where output and input channel agree.
    let weights: Vec<f64> = (0..81).map(|i| if i % 9 == 4 && i / 27 == i / 9 % 3 { 1.0 } else { 0.0 }).collect();
    assert_eq!(evaluate(&conv, &[x.clone(), weights]), x);
}

#[test]
fn gaps_broadcasts_residuals_and_casts() {
    let mut workload = parse("matmul m=3 n=2 k=2 dtype=f32");
    workload.operands[2].storage = Storage::Strides(vec![5, 2]);
    workload.operands[1].storage = Storage::Strides(vec![0, 1]);
    check_both_ways(&workload, &inputs(&workload, 3));
    let residual = parse(
        "tw1;contract.madd;m:p2,n:p2,k:r1;in.a=f32[m,k]@s(1,1)a4;in.b=f32[k,n]@s(2,1)a4;in.r=f32[m,n]@s(2,1)a4;\
         out.c=f16[n,m]@s(2,1)a4;acc=f32;epi=add(r).scale(0.5).cast(f16);math=ieee;det=fixed;ws=0",
    );
    let inputs = [vec![1.0, 2.0], vec![2048.0, 1.0], vec![2050.0, 0.0, 0.0, 1.0]];
    assert_eq!(evaluate(&residual, &inputs), [2048.0, 2048.0, 0.5, 1.5]);
}

#[test]
fn what_is_not_known_is_named() {
    let refuse = |workload: &Workload| {
        let inputs = inputs(workload, 0);
        let slices: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
        reference::evaluate(workload, &slices).unwrap_err().to_string()
    };
    let key = parse("matmul m=2 n=2 k=2 dtype=f32").key();
    for (from, to, named) in [
        ("contract.madd", "contract.max", "contract.max over 2 operands"),
        ("m:p2", "m:p1..2/1", "extents known only at run time"),
        ("m:p2", "m:g2", "the ragged axis \"m\""),
        ("s(2,1)a64;in.b", "s(2,1)a64<x*2>;in.b", "the prologue of operand \"a\""),
        ("out.c", "io.c", "operand \"c\", which is read and written"),
        ("epi=-", "epi=cast(i8)", "a cast to integers"),
    ] {
        assert_eq!(refuse(&parse(&key.replace(from, to))), format!("the reference cannot evaluate {named}"));
    }
    let mut invalid = parse(&key);
    invalid.operands[2].storage = Storage::Strides(vec![1, 1]);
    assert!(refuse(&invalid).contains("written twice"));
}

#[test]
fn buffers_and_points_are_checked() {
    let workload = parse("matmul m=2 n=2 k=2 dtype=f32");
    let (four, three) = ([0.0; 4], [0.0; 3]);
    assert_eq!(
        reference::evaluate(&workload, &[&four]).unwrap_err(),
        ReferenceError::InputCount { expected: 2, found: 1 }
    );
    assert!(matches!(
        reference::evaluate(&workload, &[&four, &three]),
        Err(ReferenceError::InputLength { found: 3, .. })
    ));
    for point in [vec![0], vec![0, 2], vec![0, 0, 0]] {
        let error = reference::evaluate_points(&workload, &[&four, &four], &[point]).unwrap_err();
        assert!(matches!(error, ReferenceError::Point { .. }), "{error}");
    }
    let huge = MatmulSpec::new(1 << 20, 1 << 20, 1).workload().unwrap();
    let vector = vec![1.0; 1 << 20];
    let error = reference::evaluate(&huge, &[&vector, &vector]).unwrap_err();
    assert!(matches!(error, ReferenceError::TooLarge { .. }), "{error}");
    let last = vec![(1 << 20) - 1, (1 << 20) - 1];
    assert_eq!(reference::evaluate_points(&huge, &[&vector, &vector], &[last]).unwrap(), [1.0]);
}

fn matmuls() -> impl Strategy<Value = Workload> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (1..4u64, 1..40u64, 1..40u64, 1..40u64, flags).prop_map(
        |(batch, m, n, k, (transpose_a, transpose_b, bias, relu))| {
            let activation = relu.then_some(Activation::Relu);
            let spec = MatmulSpec { batch, transpose_a, transpose_b, bias, activation, ..MatmulSpec::new(m, n, k) };
            MatmulSpec { dtype: DType::F64, ..spec }.workload().unwrap()
        },
    )
}

fn convolutions() -> impl Strategy<Value = Workload> {
    let sizes = (1..3u64, 1..4u64, 1..9u64, 1..12u64, 1..5u64);
    let kernel = (1..4u64, 1..4u64, 1..4u64, 1..3u64, 1..3u64, 1..3u64, 1..3u64);
    (sizes, kernel, (0..3u64, 0..3u64, 0..3u64, 0..3u64), any::<bool>()).prop_filter_map(
        "the kernel does not fit",
        |((n, c, h, w, k), (r, s, stride_h, stride_w, dilation_h, dilation_w, groups), pads, bias)| {
            let spec = Conv2dSpec {
                stride_h,
                stride_w,
                dilation_h,
                dilation_w,
                groups,
                bias,
                ..Conv2dSpec::new(n, c * groups, h, w, k * groups, r, s)
            };
            let (pad_top, pad_left, pad_bottom, pad_right) = pads;
            Conv2dSpec { pad_top, pad_left, pad_bottom, pad_right, ..spec }.workload().ok()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn loops_agree_with_the_definition(workload in prop_oneof![matmuls(), convolutions()], seed in any::<u32>()) {
        check_both_ways(&workload, &inputs(&workload, u64::from(seed)));
    }

    #[test]
    fn contractions_are_linear(mut workload in prop_oneof![matmuls(), convolutions()], seed in any::<u32>()) {
        workload.epilogue.retain(|step| !matches!(step, EpilogueStep::Relu));
        let first = inputs(&workload, u64::from(seed));
        let mut second = first.clone();
        second[0] = data(first[0].len() as u64, u64::from(seed) + 99);
        // The bias must come once, so only the first summand carries it.
        for bias in second.iter_mut().skip(2) {
            bias.fill(0.0);
        }
        let mut both = first.clone();
        both[0] = first[0].iter().zip(&second[0]).map(|(x, y)| x + 3.0 * y).collect();
        let sum: Vec<f64> = evaluate(&workload, &first)
            .iter()
            .zip(evaluate(&workload, &second))
            .map(|(x, y)| x + 3.0 * y)
            .collect();
        prop_assert_eq!(evaluate(&workload, &both), sum);
    }
}

fn others() -> impl Strategy<Value = Workload> {
    (any::<u64>(), 0..5u8).prop_map(|(seed, family)| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        match family {
            0 => samples::activated(&mut rng),
            1 => samples::rows(&mut rng),
            2 => samples::attention(&mut rng),
            3 => samples::map(&mut rng),
            _ => samples::reduction(&mut rng),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, rng_seed: RngSeed::Fixed(2), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_family_agrees_with_its_definition(workload in others(), seed in any::<u32>()) {
        check_both_ways(&workload, &inputs(&workload, u64::from(seed)));
    }

    #[test]
    fn rows_of_softmax_sum_to_one_whatever_is_added(seed in any::<u32>(), cols in 1..40u64, shift in -1000..1000i32) {
        let softmax = parse(&format!("softmax rows=3 cols={cols} dtype=f64"));
        let x = inputs(&softmax, u64::from(seed));
        let plain = evaluate(&softmax, &x);
        for row in plain.chunks(usize::try_from(cols).unwrap()) {
            prop_assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        }
        let shifted = evaluate(&softmax, &[x[0].iter().map(|x| x + f64::from(shift)).collect()]);
        prop_assert!(plain.iter().zip(&shifted).all(|(x, y)| (x - y).abs() < 1e-15));
        let logarithm = evaluate(&parse(&format!("logsoftmax rows=3 cols={cols} dtype=f64")), &x);
        prop_assert!(plain.iter().zip(&logarithm).all(|(x, y)| (x.ln() - y).abs() < 1e-12));
    }
}

fn near(found: &[f64], wanted: &[f64]) {
    assert_eq!(found.len(), wanted.len());
    let same = |(x, y): (&f64, &f64)| (x - y).abs() <= 1e-12 * y.abs() || (x.is_nan() && y.is_nan()) || x == y;
    assert!(found.iter().zip(wanted).all(same), "{found:?} is not {wanted:?}");
}

/// Figures of numpy 2.1 and of hand.
#[test]
fn row_passes_against_tables() {
    let row = [vec![1.0, 2.0, 3.0, 6.0]];
    let e = std::f64::consts::E;
    let sum = e.powi(-5) + e.powi(-4) + e.powi(-3) + 1.0;
    let softmax = [e.powi(-5) / sum, e.powi(-4) / sum, e.powi(-3) / sum, 1.0 / sum];
    near(&evaluate(&parse("softmax rows=1 cols=4 dtype=f64"), &row), &softmax);
    near(&evaluate(&parse("logsoftmax rows=1 cols=4 dtype=f64"), &row), &softmax.map(f64::ln));
    // Mean 3, biased variance (4 + 1 + 0 + 9) / 4 = 3.5; with eps 0.5 the deviation is 2.
    let affine = parse("layernorm rows=1 cols=4 dtype=f64 eps=0.5");
    let gain = [row[0].clone(), vec![1.0, 2.0, 3.0, 4.0], vec![0.0, 0.0, 1.0, -1.0]];
    near(&evaluate(&affine, &gain), &[-1.0, -1.0, 1.0, 5.0]);
    // Mean square (1 + 4 + 9 + 36) / 4 = 12.5; with eps 3.5 the root is 4.
    let rms = parse("rmsnorm rows=1 cols=4 dtype=f64 eps=3.5");
    near(&evaluate(&rms, &[row[0].clone(), vec![1.0, 1.0, 4.0, 2.0]]), &[0.25, 0.5, 3.0, 3.0]);
    let argmax = parse("argmax rows=2 cols=4 dtype=f32");
    assert_eq!(evaluate(&argmax, &[vec![1.0, 3.0, 3.0, 0.0, -1.0, f64::NAN, 9.0, f64::NAN]]), [1.0, 1.0]);
}

#[test]
fn special_values_in_rows_are_what_ieee_arithmetic_gives() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let softmax = parse("softmax rows=1 cols=3 dtype=f32");
    for row in [[1.0, nan, 2.0], [1.0, inf, 2.0], [-inf, -inf, -inf]] {
        near(&evaluate(&softmax, &[row.to_vec()]), &[nan; 3]);
    }
    near(&evaluate(&softmax, &[vec![0.0, -inf, 0.0]]), &[0.5, 0.0, 0.5]);
    near(&evaluate(&softmax, &[vec![1e4, -1e4, 1e4]]), &[0.5, 0.0, 0.5]);
    let log = parse("logsoftmax rows=1 cols=3 dtype=f32");
    let half = 0.5f64.ln();
    near(&evaluate(&log, &[vec![0.0, -inf, 0.0]]), &[half, -inf, half]);
    let norm = parse("layernorm rows=1 cols=3 dtype=f32 affine=0");
    near(&evaluate(&norm, &[vec![1.0, inf, 2.0]]), &[nan; 3]);
    let rms = parse("rmsnorm rows=1 cols=3 dtype=f32 affine=0");
    near(&evaluate(&rms, &[vec![1.0, inf, 2.0]]), &[0.0, nan, 0.0]);
}

#[test]
fn attention_against_tables() {
    // Equal scores weigh the visible values alike.
    let causal = parse("attention heads=1 q=2 kv=3 d=1 e=2 dtype=f64 causal=1");
    let values = vec![1.0, 10.0, 3.0, 30.0, 8.0, 80.0];
    let found = evaluate(&causal, &[vec![0.0, 0.0], vec![1.0, 2.0, 3.0], values.clone()]);
    near(&found, &[2.0, 20.0, 4.0, 40.0]);
    // ln 3 apart: weights 1/4 and 3/4. Two query heads share one head of keys.
    let grouped = parse("attention heads=2 kv_heads=1 q=1 kv=2 d=1 scale=0.5 dtype=f64");
    let found = evaluate(&grouped, &[vec![2.0, -2.0], vec![0.0, 3f64.ln()], vec![4.0, 8.0]]);
    near(&found, &[7.0, 5.0]);
    // A key that is not visible takes no part, whatever it holds.
    let hidden = [vec![0.0, 0.0], vec![1.0, 2.0, f64::NAN], vec![1.0, 10.0, 3.0, 30.0, f64::NAN, f64::INFINITY]];
    near(&evaluate(&causal, &hidden)[..2], &[2.0, 20.0]);
}

#[test]
fn maps_move_and_transform() {
    let transpose = parse("transpose rows=2 cols=3 dtype=i32");
    assert_eq!(evaluate(&transpose, &[(1..=6).map(f64::from).collect()]), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    let gate = parse("map n=2 dtype=f32 f=scale(2).mul(gate).add(skip)");
    assert_eq!(evaluate(&gate, &[vec![1.0, 2.0], vec![3.0, -1.0], vec![0.5, 0.25]]), [6.5, -3.75]);
    // A padded map reads zeros outside.
    let pad = parse("tw1;map;i:p4;in.x=f32[i-1:2]@s(1)a4;out.y=f32[i]@s(1)a4;acc=f32;epi=exp;math=ieee;det=fixed;ws=0");
    near(&evaluate(&pad, &[vec![0.5, 1.0]]), &[1.0, 0.5f64.exp(), std::f64::consts::E, 1.0]);
}

#[test]
fn reductions_and_images_with_channels_last() {
    let matrix = [(1..=6).map(f64::from).collect::<Vec<f64>>()];
    assert_eq!(evaluate(&parse("reduce rows=2 cols=3 dtype=f32"), &matrix), [6.0, 15.0]);
    assert_eq!(evaluate(&parse("reduce rows=2 cols=3 dtype=f32 axis=0 op=max"), &matrix), [4.0, 5.0, 6.0]);
    near(&evaluate(&parse("reduce rows=2 cols=3 dtype=f32 op=mean"), &matrix), &[2.0, 5.0]);
    let average = parse("avgpool n=1 c=1 h=2 w=2 r=2 s=2 pad=1 dtype=f32");
    let image = [vec![4.0, 8.0, 12.0, 16.0]];
    assert_eq!(evaluate(&average, &image), [1.0, 3.0, 2.0, 4.0, 10.0, 6.0, 3.0, 7.0, 4.0]);
    let most = parse("maxpool n=1 c=1 h=2 w=2 r=2 s=2 stride=2 pad=1 dtype=f32");
    assert_eq!(evaluate(&most, &image), [4.0, 8.0, 12.0, 16.0]);
    // The same numbers in both layouts.
    let [nchw, nhwc] = ["nchw", "nhwc"].map(|layout| {
        parse(&format!("conv2d n=1 c=2 h=3 w=4 k=3 r=2 s=2 pad_t=1 dtype=f64 bias=1 residual=1 layout={layout}"))
    });
    let reorder = |data: &[f64], dims: [usize; 4], to: [usize; 4]| -> Vec<f64> {
        let mut out = Vec::new();
        let at = |i: [usize; 4]| ((i[0] * dims[1] + i[1]) * dims[2] + i[2]) * dims[3] + i[3];
        let sizes = to.map(|d| dims[d]);
        for flat in 0..data.len() {
            let place = [
                flat / (sizes[1] * sizes[2] * sizes[3]),
                flat / (sizes[2] * sizes[3]) % sizes[1],
                flat / sizes[3] % sizes[2],
                flat % sizes[3],
            ];
            let mut from = [0; 4];
            to.iter().zip(place).for_each(|(d, i)| from[*d] = i);
            out.push(data[at(from)]);
        }
        out
    };
    let data = inputs(&nchw, 5);
    let (image, weights) = ([0, 2, 3, 1], [2, 3, 1, 0]);
    let moved = [
        reorder(&data[0], [1, 2, 3, 4], image),
        reorder(&data[1], [3, 2, 2, 2], weights),
        data[2].clone(),
        reorder(&data[3], [1, 3, 3, 3], image),
    ];
    assert_eq!(evaluate(&nhwc, &moved), reorder(&evaluate(&nchw, &data), [1, 3, 3, 3], image));
}

/// Prints what the evaluation costs; machines differ, so nothing is asserted about time.
#[test]
fn usual_sizes_are_evaluated_in_reasonable_time() {
    for sugar in [
        "matmul m=512 n=512 k=512 dtype=f32",
        "matmul m=512 n=512 k=512 dtype=f32 ta=1 tb=1",
        "matmul m=1024 n=1024 k=1024 dtype=f32",
        "gemv m=4096 k=4096 dtype=f32",
        "conv2d n=1 c=64 h=56 w=56 k=64 r=3 s=3 pad=1 dtype=f32 bias=1 relu=1",
        "conv2d n=1 c=512 h=7 w=7 k=512 r=3 s=3 pad=1 dtype=f32",
        "conv2d n=1 c=512 h=14 w=14 k=512 r=3 s=3 pad=1 groups=512 dtype=f32",
        "softmax rows=32 cols=32000 dtype=f32",
        "layernorm rows=128 cols=768 dtype=f32",
        "attention heads=2 q=512 d=64 dtype=f32",
        "map n=1048576 dtype=f32 f=gelu_erf",
        "transpose rows=4096 cols=4096 dtype=f32",
        "reduce rows=1 cols=16777216 dtype=f32",
        "reduce rows=4096 cols=4096 dtype=f32 axis=0",
        "maxpool n=1 c=64 h=112 w=112 r=3 s=3 stride=2 pad=1 dtype=f32",
    ] {
        let workload = parse(sugar);
        let inputs = inputs(&workload, 7);
        let start = Instant::now();
        let whole = evaluate(&workload, &inputs);
        let whole_ms = start.elapsed().as_secs_f64() * 1e3;
        let points: Vec<Vec<u64>> = reference::output_points(&workload).step_by(997).collect();
        let slices: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
        let start = Instant::now();
        let values = reference::evaluate_points(&workload, &slices, &points).unwrap();
        let points_ms = start.elapsed().as_secs_f64() * 1e3;
        for (point, value) in points.iter().zip(values) {
            let address = reference::output_address(&workload, workload.outputs()[0], point).unwrap();
            let found = whole[usize::try_from(address).unwrap()];
            assert!((found - value).abs() <= 1e-12 * value.abs().max(1.0), "{found} is not {value}");
        }
        println!("{:55} {whole_ms:8.1} ms, {} points {points_ms:.1} ms", workload.summary(), points.len());
    }
}
