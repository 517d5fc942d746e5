//! Every family against faults seeded for it, and against honest kernels in plain f32 loops, which must pass.

use std::collections::BTreeMap;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use search_space::target::{Limits, TargetKey, TargetKind};
use search_space::workload::{EpilogueStep, Op, Real};
use search_space::{Schedule, Target, reference, samples};

use super::*;
use crate::device::{After, Batch, Identity, KernelInfo, Placement};
use crate::peak::Peak;

/// The output's buffer from the input buffers; elements it leaves NaN are not written.
type Kernel = fn(&Workload, &[Vec<f64>]) -> Vec<f64>;

struct Fake {
    identity: Identity,
    kernel: Kernel,
}

impl Fake {
    fn new(kernel: Kernel) -> Fake {
        let key = TargetKey::new(TargetKind::Cpu, "fake", "core", [""; 0], 1).unwrap();
        let limits = Limits {
            vector_bytes: 0,
            vector_registers: 0,
            l1_bytes: 0,
            l2_bytes: 0,
            shared_bytes: 0,
            workgroup_invocations: 0,
            grid_per_dim: 0,
            loop_iterations: 0,
            buffer_bytes: 0,
        };
        let identity = Identity {
            target: Target { key, limits },
            name: String::new(),
            driver: String::new(),
            environment: BTreeMap::new(),
            resource: String::new(),
        };
        Fake { identity, kernel }
    }
}

impl Device for Fake {
    type Kernel = Workload;
    type Memory = Vec<Vec<u8>>;
    fn identity(&self) -> &Identity {
        &self.identity
    }
    fn compile(&mut self, workload: &Workload, _: &Schedule) -> Result<Workload, Failure> {
        Ok(workload.clone())
    }
    fn describe(&self, _: &Workload) -> KernelInfo {
        KernelInfo::default()
    }
    fn allocate(&mut self, w: &Workload, _: Placement) -> Result<Vec<Vec<u8>>, Failure> {
        let bytes = |i: usize| usize::try_from(w.operand_len(i) * w.operands[i].dtype.bytes()).unwrap();
        Ok((0..w.operands.len()).map(|i| vec![0; bytes(i)]).collect())
    }
    fn write(&mut self, memory: &mut Vec<Vec<u8>>, operand: usize, bytes: &[u8]) -> Result<(), Failure> {
        memory[operand].copy_from_slice(bytes);
        Ok(())
    }
    fn read(&mut self, memory: &mut Vec<Vec<u8>>, operand: usize) -> Result<Vec<u8>, Failure> {
        Ok(memory[operand].clone())
    }
    fn run(&mut self, w: &mut Workload, memory: &mut Vec<Vec<u8>>) -> Result<f64, Failure> {
        let inputs: Vec<Vec<f64>> =
            w.inputs().iter().map(|i| inputs::decode(w.operands[*i].dtype, &memory[*i])).collect();
        let output = w.outputs()[0];
        let dtype = w.operands[output].dtype;
        let bytes = inputs::encode(dtype, &mut (self.kernel)(w, &inputs));
        let width = usize::try_from(dtype.bytes()).unwrap();
        let gaps = expected::gaps(w, output);
        for (at, (to, from)) in memory[output].chunks_mut(width).zip(bytes.chunks(width)).enumerate() {
            let skipped = from == SKIPPED.to_ne_bytes() || gaps.get(at).copied().unwrap_or(false);
            if !skipped {
                to.copy_from_slice(from);
            }
        }
        Ok(1.0)
    }
    fn prepack(&mut self, _: &mut Workload, _: &mut Vec<Vec<u8>>) -> Result<f64, Failure> {
        Ok(0.0)
    }
    fn time_batch(&mut self, _: &mut Workload, _: &mut Vec<Vec<u8>>, _: u32, _: After) -> Result<Batch, Failure> {
        Ok(Batch { ns: 1.0, disturbed: false })
    }
    fn min_batch_ns(&self) -> f64 {
        1.0
    }
    fn control(&mut self) -> Option<f64> {
        None
    }
    fn peak(&mut self) -> Result<Peak, Failure> {
        Ok(Peak::default())
    }
}

/// A kernel that gives this f32 leaves the element as it is.
const SKIPPED: f32 = -123.456;

/// `check`, then `check_hostile`: the message of the first that fails.
fn judge(workload: &Workload, kernel: Kernel) -> Result<(), String> {
    let mut suite = Suite::new(workload).unwrap();
    let mut device = Fake::new(kernel);
    let mut compiled = device.compile(workload, &Schedule::default()).unwrap();
    let mut memory = device.allocate(workload, Placement::Guarded).unwrap();
    suite.check(&mut device, &mut compiled, &mut memory).map_err(|failure| failure.message)?;
    suite.check_hostile(&mut device, &mut compiled, &mut memory).map_err(|failure| failure.message)
}

#[track_caller]
fn caught(sugar: &str, kernel: Kernel, by: &str) {
    let workload = Workload::parse(sugar).unwrap();
    judge(&workload, right).unwrap_or_else(|message| panic!("{sugar}: {message}"));
    let message = judge(&workload, kernel).expect_err(sugar);
    assert!(message.starts_with(by), "{sugar} was caught by another check: {message}");
}

fn right(w: &Workload, inputs: &[Vec<f64>]) -> Vec<f64> {
    let slices: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
    reference::evaluate(w, &slices).unwrap().remove(0)
}

/// What `edit` makes of the workload, rightly computed.
fn other(w: &Workload, inputs: &[Vec<f64>], edit: impl Fn(&mut Workload)) -> Vec<f64> {
    let mut other = w.clone();
    edit(&mut other);
    right(&other, inputs)
}

fn single(x: f64) -> f32 {
    #[expect(clippy::cast_possible_truncation, reason = "kernels compute in f32")]
    let single = x as f32;
    single
}

/// Calls `row` with the f32 elements of each row of the first input and collects what it gives.
fn by_rows(w: &Workload, inputs: &[Vec<f64>], row: impl Fn(&[f32]) -> Vec<f32>) -> Vec<f64> {
    let cols = usize::try_from(w.extent(1).unwrap()).unwrap();
    let x: Vec<f32> = inputs[0].iter().map(|x| single(*x)).collect();
    x.chunks(cols).flat_map(row).map(f64::from).collect()
}

fn softmax_by(row: &[f32], exp: impl Fn(f32) -> f32) -> Vec<f32> {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let terms: Vec<f32> = row.iter().map(|x| exp(x - max)).collect();
    let sum: f32 = terms.iter().sum();
    terms.iter().map(|x| x / sum).collect()
}

/// `exp` with a polynomial of degree 3 on the fraction of the exponent to the base of two: 1e-4 off.
fn short_exp(x: f32) -> f32 {
    let t = x * std::f32::consts::LOG2_E;
    if !t.is_finite() || t.abs() > 126.0 {
        return x.exp();
    }
    let f = t - t.floor();
    (1.0 + f * (0.695_556 + f * (0.226_173 + f * 0.078_19))) * t.floor().exp2()
}

#[test]
fn honest_f32_rows_pass() {
    for cols in [1, 2, 3, 17, 1000, 30_011] {
        let softmax: Kernel = |w, inputs| by_rows(w, inputs, |row| softmax_by(row, f32::exp));
        judge(&parse(&format!("softmax rows=7 cols={cols} dtype=f32")), softmax).unwrap();
        let logsoftmax: Kernel = |w, inputs| {
            by_rows(w, inputs, |row| {
                let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let log: f32 = row.iter().map(|x| (x - max).exp()).sum::<f32>().ln();
                row.iter().map(|x| x - (max + log)).collect()
            })
        };
        judge(&parse(&format!("logsoftmax rows=7 cols={cols} dtype=f32")), logsoftmax).unwrap();
        let layernorm: Kernel = |w, inputs| {
            by_rows(w, inputs, |row| {
                let count = single(row.len() as f64);
                let mean = row.iter().sum::<f32>() / count;
                let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / count;
                row.iter().map(|x| (x - mean) * (1.0 / (variance + 1e-5).sqrt())).collect()
            })
        };
        judge(&parse(&format!("layernorm rows=7 cols={cols} dtype=f32 affine=0")), layernorm).unwrap();
        let rmsnorm: Kernel = |w, inputs| {
            by_rows(w, inputs, |row| {
                let square = row.iter().map(|x| x * x).sum::<f32>() / single(row.len() as f64);
                row.iter().map(|x| x * (1.0 / (square + 1e-5).sqrt())).collect()
            })
        };
        judge(&parse(&format!("rmsnorm rows=7 cols={cols} dtype=f32 affine=0")), rmsnorm).unwrap();
    }
}

fn parse(sugar: &str) -> Workload {
    Workload::parse(sugar).unwrap()
}

#[test]
fn softmax_without_the_maximum_is_caught() {
    for sugar in ["softmax rows=1 cols=9 dtype=f32", "softmax rows=5 cols=1000 dtype=f32"] {
        caught(
            sugar,
            |w, inputs| {
                by_rows(w, inputs, |row| {
                    let sum: f32 = row.iter().map(|x| x.exp()).sum();
                    row.iter().map(|x| x.exp() / sum).collect()
                })
            },
            "numeric check of y: [0, ",
        );
    }
}

#[test]
fn a_short_exponential_is_caught_unless_math_is_fast() {
    for sugar in ["softmax rows=5 cols=1000 dtype=f32", "softmax rows=1 cols=32000 dtype=f32"] {
        let kernel: Kernel = |w, inputs| by_rows(w, inputs, |row| softmax_by(row, short_exp));
        caught(sugar, kernel, "numeric check of y: [0, ");
        judge(&parse(&format!("{sugar} math=fast")), kernel).unwrap();
    }
    let map: Kernel = |_, inputs| inputs[0].iter().map(|x| f64::from(short_exp(single(*x)))).collect();
    caught("map n=1000 dtype=f32 f=exp", map, "numeric check of y: [");
    judge(&parse("map n=1000 dtype=f32 f=exp math=fast"), map).unwrap();
}

#[test]
fn norms_with_another_eps_or_variance_are_caught() {
    for sugar in ["layernorm rows=1 cols=7 dtype=f32", "layernorm rows=9 cols=768 dtype=f32"] {
        caught(
            sugar,
            |w, inputs| other(w, inputs, |w| w.op = Op::RowsLayerNorm { eps: Real::new(1.1e-5).unwrap() }),
            "numeric check of y: [0, ",
        );
        caught(
            sugar,
            |w, inputs| {
                let mut other = w.clone();
                let cols = w.extent(1).unwrap() as f64;
                other.epilogue.insert(0, EpilogueStep::Scale(((cols - 1.0) / cols).sqrt()));
                right(&other, inputs)
            },
            "numeric check of y: [0, ",
        );
        caught(
            sugar,
            |w, inputs| other(w, inputs, |w| w.op = Op::RowsRmsNorm { eps: Real::new(1e-5).unwrap() }),
            "numeric check of y: [0, ",
        );
    }
    for sugar in ["rmsnorm rows=1 cols=7 dtype=f32", "rmsnorm rows=9 cols=4096 dtype=f32"] {
        caught(sugar, |w, inputs| other(w, inputs, |w| w.op = Op::RowsRmsNorm { eps: Real::ZERO }), "numeric check");
    }
}

#[test]
fn the_last_maximum_is_caught() {
    caught(
        "argmax rows=5 cols=100 dtype=f32",
        |w, inputs| {
            let cols = usize::try_from(w.extent(1).unwrap()).unwrap();
            let last =
                |row: &[f64]| (0..row.len()).rev().max_by(|a, b| row[*a].total_cmp(&row[*b]).then(a.cmp(b))).unwrap();
            inputs[0].chunks(cols).map(|row| last(row) as f64).collect()
        },
        "exact check of y: [0] is ",
    );
    // NaN left out, as a comparison does.
    caught(
        "argmax rows=5 cols=100 dtype=f32",
        |w, inputs| {
            let cols = usize::try_from(w.extent(1).unwrap()).unwrap();
            let first = |row: &[f64]| (1..row.len()).fold(0, |best, at| if row[at] > row[best] { at } else { best });
            inputs[0].chunks(cols).map(|row| first(row) as f64).collect()
        },
        "hostile check of y: [",
    );
}

#[test]
fn attention_mask_scale_and_maximum_are_checked() {
    let causal = "attention heads=2 q=33 d=8 dtype=f32 causal=1";
    let fewer = "attention heads=2 q=9 kv=12 d=8 dtype=f32 causal=1";
    for sugar in [causal, fewer] {
        caught(
            sugar,
            |w, inputs| {
                let Op::Attention { scale, .. } = w.op else { unreachable!("an attention") };
                other(w, inputs, |w| w.op = Op::Attention { scale, causal: false })
            },
            "numeric check of o: [",
        );
        caught(sugar, |w, inputs| plain_attention(w, inputs, -1, true), "numeric check of o: [");
        caught(sugar, |w, inputs| plain_attention(w, inputs, 1, true), "numeric check of o: [");
        caught(sugar, |w, inputs| plain_attention(w, inputs, 0, false), "hostile check of o: [");
        judge(&parse(sugar), |w, inputs| plain_attention(w, inputs, 0, true)).unwrap();
    }
    caught(
        "attention heads=3 q=16 d=64 dtype=f32",
        |w, inputs| other(w, inputs, |w| w.op = Op::Attention { scale: Real::new(0.1251).unwrap(), causal: false }),
        "numeric check of o: [",
    );
    for sugar in ["attention heads=1 q=1 d=1 dtype=f32", "attention heads=2 q=50 kv=500 d=64 e=3 dtype=f32"] {
        judge(&parse(sugar), |w, inputs| plain_attention(w, inputs, 0, true)).unwrap();
    }
}

/// Attention of dense heads in f32 loops; the mask is moved by `off` keys, the maximum subtracted or not.
fn plain_attention(w: &Workload, inputs: &[Vec<f64>], off: i64, subtract: bool) -> Vec<f64> {
    let axes = w.attention_axes().unwrap();
    let extent = |axis: usize| usize::try_from(w.extent(axis).unwrap()).unwrap();
    let (m, n, d, e) = (extent(axes.m), extent(axes.n), extent(axes.d), extent(axes.e));
    let Op::Attention { scale, causal } = w.op else { unreachable!("an attention") };
    let data: Vec<Vec<f32>> = inputs.iter().map(|x| x.iter().map(|x| single(*x)).collect()).collect();
    let mut out = Vec::new();
    for (h, queries) in data[0].chunks(m * d).enumerate() {
        for (row, q) in queries.chunks(d).enumerate() {
            let keys = data[1][h * n * d..][..n * d].chunks(d);
            let visible =
                if causal { (row as i64 + 1 + n as i64 - m as i64 + off).clamp(1, n as i64) } else { n as i64 };
            let scores: Vec<f32> = keys
                .take(usize::try_from(visible).unwrap())
                .map(|k| single(scale.get()) * q.iter().zip(k).map(|(a, b)| a * b).sum::<f32>())
                .collect();
            let weights = if subtract {
                softmax_by(&scores, f32::exp)
            } else {
                let sum: f32 = scores.iter().map(|x| x.exp()).sum();
                scores.iter().map(|x| x.exp() / sum).collect()
            };
            for column in 0..e {
                let value = |key: usize| data[2][(h * n + key) * e + column];
                out.push(f64::from(weights.iter().enumerate().map(|(key, weight)| weight * value(key)).sum::<f32>()));
            }
        }
    }
    out
}

#[test]
fn a_transposed_tile_that_is_skipped_or_not_transposed_is_caught() {
    let sugar = "transpose rows=20 cols=24 dtype=f32";
    caught(
        sugar,
        |w, inputs| {
            let mut out = right(w, inputs);
            for row in 16..24 {
                out[row * 20 + 16..row * 20 + 20].fill(f64::from(SKIPPED));
            }
            out
        },
        "exact check of y: [16, 16] was not written, as 32 elements in all",
    );
    // A square block in place.
    caught(
        sugar,
        |w, inputs| {
            let mut out = right(w, inputs);
            for row in 0..4 {
                for column in 0..row {
                    out.swap(row * 20 + column, column * 20 + row);
                }
            }
            out
        },
        "exact check of y: [0, 1] is ",
    );
}

#[test]
fn reductions_and_pooling_are_exact() {
    caught(
        "reduce rows=3 cols=1000 dtype=f32",
        |w, inputs| {
            let mut out = right(w, inputs);
            out[2] += 1.0;
            out
        },
        "exact check of y: [2] is ",
    );
    caught(
        "reduce rows=3 cols=1000 dtype=f32 op=max",
        |_, inputs| {
            inputs[0].chunks(1000).map(|row| row[..999].iter().copied().fold(f64::NEG_INFINITY, f64::max)).collect()
        },
        "",
    );
    // Padding taken for zero, as in a sum.
    caught(
        "maxpool n=1 c=2 h=4 w=4 r=3 s=3 pad=1 dtype=f32",
        |w, inputs| other(w, inputs, |w| w.epilogue.push(EpilogueStep::Relu)),
        "",
    );
    // Padding left out of the count.
    caught(
        "avgpool n=1 c=2 h=4 w=4 r=3 s=3 pad=1 dtype=f32",
        |w, inputs| {
            let mut out = right(w, inputs);
            out[0] *= 9.0 / 4.0;
            out
        },
        "numeric check of y: [0, 0, 0, 0] is ",
    );
    // A sum kept in 16 bits.
    caught(
        "reduce rows=2 cols=4096 dtype=f32",
        |_, inputs| {
            inputs[0].chunks(4096).map(|row| row.iter().fold(0.0, |sum, x| DType::Bf16.round(sum + x))).collect()
        },
        "numeric check of y: [",
    );
}

#[test]
fn steps_of_low_precision_are_caught() {
    for f in ["gelu_erf", "gelu_tanh", "silu", "tanh", "erf", "log", "exp", "exp.log"] {
        let sugar = format!("map n=1000 dtype=f32 f={f}");
        // A relative error of 2^-15 in the function.
        caught(
            &sugar,
            |w, inputs| {
                right(w, inputs)
                    .into_iter()
                    .map(|y| if y.is_finite() { y * (1.0 + 2f64.powi(-15)) } else { y })
                    .collect()
            },
            "numeric check of y: [",
        );
    }
    // The two GELUs are not the same.
    caught(
        "map n=1000 dtype=f32 f=gelu_erf",
        |w, inputs| other(w, inputs, |w| w.epilogue = vec![EpilogueStep::GeluTanh]),
        "numeric check of y: [",
    );
}

#[test]
fn narrow_types_are_compared_in_their_own_units() {
    for dtype in ["f16", "bf16"] {
        for text in
            ["matmul m=5 n=6 k=300", "softmax rows=4 cols=100", "map n=300 f=gelu_erf", "attention heads=2 q=9 d=16"]
        {
            let sugar = format!("{text} dtype={dtype}");
            // Three units off.
            caught(
                &sugar,
                |w, inputs| {
                    let dtype = w.operands[w.outputs()[0]].dtype;
                    let off = |y: f64| if y.is_finite() { y + 3.0 * dtype.unit(y) } else { y };
                    right(w, inputs).into_iter().map(off).collect()
                },
                "",
            );
        }
    }
    // Rounding that cuts off is within one unit, but not what the exact check asks.
    caught(
        "matmul m=2 n=3 k=300000 dtype=bf16",
        |w, inputs| {
            let dtype = w.operands[w.outputs()[0]].dtype;
            let cut = |y: f64| {
                if y.is_finite() { (y.abs() / dtype.unit(y)).floor() * dtype.unit(y) * y.signum() } else { y }
            };
            right(w, inputs).into_iter().map(cut).collect()
        },
        "exact check of c: [",
    );
    for dtype in ["i8", "u8", "i32"] {
        caught(
            &format!("matmul m=5 n=6 k=300 dtype={dtype}"),
            |w, inputs| {
                let mut out = right(w, inputs);
                out[7] += 1.0;
                out
            },
            "exact check of c: [1, 1] is ",
        );
        judge(&parse(&format!("transpose rows=9 cols=7 dtype={dtype}")), right).unwrap();
    }
    // Sums of large integers kept in f32.
    caught(
        "matmul m=5 n=6 k=3000 dtype=u8",
        |_, inputs| {
            let (a, b) = (&inputs[0], &inputs[1]);
            let sum =
                |i: usize, j: usize| (0..3000).fold(0.0f32, |sum, k| sum + single(a[i * 3000 + k] * b[k * 6 + j]));
            (0..30).map(|at| f64::from(sum(at / 6, at % 6))).collect()
        },
        "numeric check of c: [",
    );
}

#[test]
fn fast_math_keeps_winograd_and_no_more() {
    // 1.4e-5 of the largest output, as F(4x4) was measured.
    let sugar = "conv2d n=1 c=64 h=6 w=6 k=4 r=3 s=3 pad=1 dtype=f32";
    let off: Kernel = |w, inputs| {
        let out = right(w, inputs);
        let largest = out.iter().copied().filter(|y| y.is_finite()).fold(0.0f64, |most, y| most.max(y.abs()));
        out.into_iter().map(|y| y + 2.0 * 1.4e-5 * largest).collect()
    };
    judge(&parse(&format!("{sugar} math=fast")), off).unwrap();
    caught(sugar, off, "exact check of y: [");
    let cut: Kernel = |w, inputs| {
        let round = |x: &Vec<f64>| x.iter().map(|x| DType::Bf16.round(*x)).collect::<Vec<f64>>();
        right(w, &inputs.iter().map(round).collect::<Vec<_>>())
    };
    caught(&format!("{sugar} math=fast"), cut, "numeric check of y: [");
}

#[test]
fn right_kernels_of_every_family_pass() {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    for _ in 0..60 {
        for workload in [
            samples::rows(&mut rng),
            samples::attention(&mut rng),
            samples::map(&mut rng),
            samples::reduction(&mut rng),
            samples::activated(&mut rng),
        ] {
            judge(&workload, right).unwrap_or_else(|message| panic!("{workload}: {message}"));
        }
    }
}

/// Prints what checks of usual sizes cost; machines differ, so nothing is asserted about time.
#[test]
fn usual_sizes_are_checked_in_reasonable_time() {
    for sugar in [
        "softmax rows=32 cols=32000 dtype=f32",
        "attention heads=32 q=1024 d=64 dtype=f32",
        "map n=1048576 dtype=f32 f=gelu_tanh",
        "transpose rows=4096 cols=4096 dtype=f32",
        "reduce rows=1 cols=16777216 dtype=f32",
        "reduce rows=4096 cols=4096 dtype=f32 op=max axis=0",
    ] {
        let workload = parse(sugar);
        let start = std::time::Instant::now();
        let suite = Suite::new(&workload).unwrap();
        let new = start.elapsed().as_secs_f64();
        let output = workload.outputs()[0];
        let case = suite.exact.as_ref().unwrap_or(&suite.numeric);
        let mut values = match workload.op {
            // The whole of it takes too long.
            Op::Attention { .. } => vec![0.0; usize::try_from(workload.operand_len(output)).unwrap()],
            _ => {
                let operands = workload.inputs().into_iter().zip(case.inputs.parts());
                let values: Vec<Vec<f64>> =
                    operands.map(|(i, bytes)| inputs::decode(workload.operands[i].dtype, bytes)).collect();
                let values: Vec<&[f64]> = values.iter().map(Vec::as_slice).collect();
                reference::evaluate(&workload, &values).unwrap().remove(0)
            }
        };
        let bytes = inputs::encode(workload.operands[output].dtype, &mut values);
        let start = std::time::Instant::now();
        let answer = suite.compare(case, &bytes);
        assert_eq!(answer.is_ok(), !matches!(workload.op, Op::Attention { .. }));
        println!("{:50} made in {new:.2} s, compared in {:.2} s", workload.summary(), start.elapsed().as_secs_f64());
    }
}
