//! What workloads mean, checked by hand-written tables, by laws, and by two evaluations that share no loops.

#![allow(clippy::unwrap_used, reason = "helpers of tests stop the test")]

use std::time::Instant;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tilewright_search_space::reference::{self, ReferenceError};
use tilewright_search_space::workload::{Conv2dSpec, DType, MatmulSpec, Storage};
use tilewright_search_space::{Workload, workload::EpilogueStep};

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
        assert_eq!(whole[address], value, "{workload} at {point:?}");
        unwritten[address] = false;
    }
    assert!(whole.iter().zip(&unwritten).all(|(value, gap)| value.is_nan() == *gap), "{workload}: gaps are NaN");
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
        ("contract.madd", "rows.softmax", "the operation rows.softmax"),
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
            let spec = MatmulSpec { batch, transpose_a, transpose_b, bias, relu, ..MatmulSpec::new(m, n, k) };
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
            assert_eq!(whole[usize::try_from(address).unwrap()], value);
        }
        println!("{:55} {whole_ms:8.1} ms, {} points {points_ms:.1} ms", workload.summary(), points.len());
    }
}
