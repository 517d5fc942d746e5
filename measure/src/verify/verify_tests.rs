//! Every check against a fault seeded for it: a matmul in plain loops that can be told to go wrong.

use std::collections::BTreeMap;

use search_space::target::{Limits, TargetKey, TargetKind};
use search_space::workload::Storage;
use search_space::{Schedule, Target};

use super::*;
use crate::device::{After, Batch, Identity, KernelInfo, Placement};
use crate::peak::Peak;

/// What a matmul may do wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bug {
    None,
    /// The last row of the tail is computed with one product too few.
    WrongTail,
    /// Elements from this row and column on are not written.
    SkippedTile(usize, usize),
    /// Rows of the output are as far apart as they are long.
    WrongStride,
    /// Reads one element too far along k.
    OffByOne,
    /// NaN becomes zero, as `maxnum(x, 0)` of a ReLU does.
    DropsNan,
    /// Adds in another order in every second run.
    Nondeterministic,
    /// Rounds its inputs to bf16.
    LowPrecision,
    /// One element is one too large.
    OneElement(usize, usize),
    /// Writes into the gap after each row.
    FillsGaps,
    /// Multiplies denormals as zero.
    Flushes,
    /// Infinity becomes the largest number.
    Saturates,
}

struct Naive {
    identity: Identity,
    bug: Bug,
    runs: u32,
}

type Buffers = Vec<Vec<u8>>;

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|b| f32::from_ne_bytes(*b)).collect()
}

impl Naive {
    fn new(bug: Bug) -> Naive {
        let key = TargetKey::new(TargetKind::Cpu, "naive", "core", [""; 0], 1).unwrap();
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
        Naive { identity, bug, runs: 0 }
    }

    fn compute(&self, w: &Workload, memory: &mut Buffers) {
        let e = |axis: &str| usize::try_from(w.extent(w.axis(axis).unwrap()).unwrap()).unwrap();
        let (m, n, k) = (e("m"), e("n"), e("k"));
        let strides =
            |i: usize| -> Vec<usize> { w.operand_strides(i).iter().map(|s| usize::try_from(*s).unwrap()).collect() };
        let (sa, sb) = (strides(0), strides(1));
        let round = |bytes: &[u8]| -> Vec<f32> {
            floats(bytes)
                .into_iter()
                .map(|x| match self.bug {
                    Bug::LowPrecision => f32::from_bits(x.to_bits() & 0xffff_0000),
                    Bug::Flushes if x.is_subnormal() => 0.0,
                    Bug::Saturates if x.is_infinite() => f32::MAX.copysign(x),
                    _ => x,
                })
                .collect()
        };
        let (a, b) = (round(&memory[0]), round(&memory[1]));
        let bias = w.operand("bias").map(|i| floats(&memory[i]));
        let output = w.outputs()[0];
        let mut sc = strides(output);
        if self.bug == Bug::WrongStride {
            sc[0] = n;
        }
        let mut c = floats(&memory[output]);
        for i in 0..m {
            for j in 0..n {
                if let Bug::SkippedTile(row, column) = self.bug
                    && i >= row
                    && j >= column
                {
                    continue;
                }
                let terms = if self.bug == Bug::WrongTail && i + 1 == m { k - 1 } else { k };
                let shift = usize::from(self.bug == Bug::OffByOne);
                let product = |p: usize| a[(i * sa[0] + p * sa[1] + shift).min(a.len() - 1)] * b[p * sb[0] + j * sb[1]];
                let mut sum = 0.0f32;
                if self.bug == Bug::Nondeterministic && self.runs % 2 == 1 {
                    (0..terms).rev().for_each(|p| sum += product(p));
                } else {
                    (0..terms).for_each(|p| sum += product(p));
                }
                sum += bias.as_ref().map_or(0.0, |bias| bias[j]);
                if self.bug == Bug::OneElement(i, j) {
                    sum += 1.0;
                }
                for step in &w.epilogue {
                    if *step == EpilogueStep::Relu && sum < 0.0 {
                        sum = 0.0;
                    }
                }
                if self.bug == Bug::DropsNan && sum.is_nan() {
                    sum = 0.0;
                }
                c[i * sc[0] + j * sc[1]] = sum;
            }
            if self.bug == Bug::FillsGaps && sc[0] > n && i + 1 < m {
                c[i * sc[0] + n] = 0.0;
            }
        }
        memory[output] = c.iter().flat_map(|x| x.to_ne_bytes()).collect();
    }
}

impl Device for Naive {
    type Kernel = Workload;
    type Memory = Buffers;
    fn identity(&self) -> &Identity {
        &self.identity
    }
    fn compile(&mut self, workload: &Workload, _: &Schedule) -> Result<Workload, Failure> {
        Ok(workload.clone())
    }
    fn describe(&self, _: &Workload) -> KernelInfo {
        KernelInfo { program_hash: format!("{:?}", self.bug), ..Default::default() }
    }
    fn allocate(&mut self, w: &Workload, _: Placement) -> Result<Buffers, Failure> {
        let bytes = |i: usize| usize::try_from(w.operand_len(i) * w.operands[i].dtype.bytes()).unwrap();
        Ok((0..w.operands.len()).map(|i| vec![0; bytes(i)]).collect())
    }
    fn write(&mut self, memory: &mut Buffers, operand: usize, bytes: &[u8]) -> Result<(), Failure> {
        memory[operand].copy_from_slice(bytes);
        Ok(())
    }
    fn read(&mut self, memory: &mut Buffers, operand: usize) -> Result<Vec<u8>, Failure> {
        Ok(memory[operand].clone())
    }
    fn run(&mut self, kernel: &mut Workload, memory: &mut Buffers) -> Result<f64, Failure> {
        self.runs += 1;
        self.compute(kernel, memory);
        Ok(1.0)
    }
    fn prepack(&mut self, _: &mut Workload, _: &mut Buffers) -> Result<f64, Failure> {
        Ok(0.0)
    }
    fn time_batch(&mut self, _: &mut Workload, _: &mut Buffers, _: u32, _: After) -> Result<Batch, Failure> {
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

fn matmul(text: &str) -> Workload {
    Workload::parse(&format!("matmul {text} dtype=f32")).unwrap()
}

/// A matmul whose output rows are three elements further apart than they are long.
fn strided() -> Workload {
    let mut workload = matmul("m=9 n=10 k=11");
    workload.operands[0].storage = Storage::Strides(vec![16, 1]);
    workload.operands[2].storage = Storage::Strides(vec![13, 1]);
    workload
}

/// `check`, then `check_hostile`: the message of the first that fails.
fn judge(workload: &Workload, bug: Bug) -> Result<(), String> {
    let mut suite = Suite::new(workload).unwrap();
    let mut device = Naive::new(bug);
    let mut kernel = device.compile(workload, &Schedule::default()).unwrap();
    let mut memory = device.allocate(workload, Placement::Guarded).unwrap();
    let failed = |failure: Failure| {
        assert_eq!(failure.outcome, Outcome::Wrong);
        failure.message
    };
    suite.check(&mut device, &mut kernel, &mut memory).map_err(failed)?;
    suite.check_hostile(&mut device, &mut kernel, &mut memory).map_err(failed)
}

#[track_caller]
fn caught(workload: &Workload, bug: Bug, by: &str) {
    let message = judge(workload, bug).unwrap_err();
    assert!(message.starts_with(by), "{bug:?} was caught by another check: {message}");
}

#[test]
fn a_right_kernel_passes_everything() {
    for text in ["m=1 n=1 k=1", "m=17 n=31 k=1", "m=1 n=64 k=257", "m=7 n=5 k=300 bias=1 relu=1"] {
        judge(&matmul(text), Bug::None).unwrap_or_else(|message| panic!("{text}: {message}"));
    }
    judge(&strided(), Bug::None).unwrap();
}

#[test]
fn wrong_numbers_are_caught_by_the_exact_check() {
    let workload = matmul("m=9 n=10 k=33");
    for bug in [Bug::WrongTail, Bug::OffByOne, Bug::OneElement(8, 9), Bug::OneElement(0, 0)] {
        caught(&workload, bug, "exact check of c: [");
    }
}

#[test]
fn a_skipped_tile_is_caught_although_it_was_right_last_time() {
    let workload = matmul("m=9 n=10 k=33");
    caught(&workload, Bug::SkippedTile(8, 8), "exact check of c: [8, 8] was not written, as 2 elements in all");
    // The stale values of an earlier, right run lie in memory.
    let mut suite = Suite::new(&workload).unwrap();
    let mut device = Naive::new(Bug::None);
    let (mut kernel, mut memory) = (workload.clone(), device.allocate(&workload, Placement::Guarded).unwrap());
    suite.check(&mut device, &mut kernel, &mut memory).unwrap();
    device.bug = Bug::SkippedTile(8, 8);
    assert_eq!(suite.check(&mut device, &mut kernel, &mut memory).unwrap_err().outcome, Outcome::Wrong);
}

#[test]
fn wrong_strides_and_written_gaps_are_caught() {
    caught(&strided(), Bug::WrongStride, "exact check of c: ");
    caught(&strided(), Bug::FillsGaps, "exact check of c: the gap at element 10 of the buffer was written");
    // A gap of an input that is read spoils the result.
    caught(&strided(), Bug::OffByOne, "exact check of c: ");
}

#[test]
fn lost_precision_is_caught_by_the_numeric_check_only() {
    for text in ["m=16 n=16 k=4", "m=16 n=16 k=64", "m=16 n=16 k=512", "m=4 n=4 k=8192"] {
        caught(&matmul(text), Bug::LowPrecision, "numeric check of c: ");
    }
}

#[test]
fn numeric_is_checked_once_per_program() {
    let workload = matmul("m=4 n=4 k=4");
    let mut suite = Suite::new(&workload).unwrap();
    let mut device = Naive::new(Bug::None);
    let (mut kernel, mut memory) = (workload.clone(), device.allocate(&workload, Placement::Guarded).unwrap());
    suite.check(&mut device, &mut kernel, &mut memory).unwrap();
    assert_eq!(device.runs, 2);
    suite.check(&mut device, &mut kernel, &mut memory).unwrap();
    assert_eq!(device.runs, 3);
    device.bug = Bug::WrongTail;
    suite.check(&mut device, &mut kernel, &mut memory).unwrap_err();
}

#[test]
fn what_only_a_winner_must_do_is_caught_by_the_hostile_check() {
    let workload = matmul("m=12 n=12 k=40");
    caught(&workload, Bug::DropsNan, "hostile check of c: ");
    caught(&workload, Bug::Saturates, "hostile check of c: ");
    caught(&workload, Bug::Nondeterministic, "hostile check: two runs gave different bits");
    let mut any = workload.clone();
    any.det = Determinism::Any;
    judge(&any, Bug::Nondeterministic).unwrap();
    // Rearranged arithmetic spreads NaN and infinity, so it is given none.
    let mut fast = workload.clone();
    fast.math = MathMode::Fast;
    for bug in [Bug::DropsNan, Bug::Saturates] {
        judge(&fast, bug).unwrap();
    }
}

#[test]
fn flushing_denormals_is_within_every_bound() {
    judge(&matmul("m=12 n=12 k=40"), Bug::Flushes).unwrap();
}

#[test]
fn large_problems_are_checked_everywhere_without_computing_them_twice() {
    // 2^27.2 multiply-adds, so beyond the full check; sizes are prime.
    let workload = matmul("m=263 n=2053 k=283");
    assert!(workload_madds(&workload) > FULL_MADDS);
    let suite = Suite::new(&workload).unwrap();
    let exact = suite.exact.as_ref().unwrap();
    assert_eq!(exact.sketches.len(), 2);
    let mut device = Naive::new(Bug::None);
    let mut memory = device.allocate(&workload, Placement::Guarded).unwrap();
    let mut kernel = workload.clone();
    let (_, right) = suite.run(exact, &mut device, &mut kernel, &mut memory).unwrap();
    // One element in the middle, where no chosen point is.
    let at = 131 * 2053 + 1023;
    let mut wrong = right.clone();
    let value = f32::from_ne_bytes(wrong[4 * at..][..4].try_into().unwrap()) + 1.0;
    wrong[4 * at..][..4].copy_from_slice(&value.to_ne_bytes());
    let message = suite.compare(exact, &wrong).unwrap_err();
    assert!(message.contains("weighted sums along"), "{message}");
    suite.compare(exact, &right).unwrap();
    // The corner is a chosen point.
    let mut wrong = right;
    let last = wrong.len() - 1;
    wrong[last] ^= 0x10;
    suite.compare(exact, &wrong).unwrap_err();
}

#[test]
fn sketches_know_biases_batches_and_convolutions() {
    let workloads = [
        matmul("m=5 n=6 k=7 bias=1"),
        matmul("m=5 n=6 k=7 batch=3"),
        Workload::parse("conv2d n=2 c=3 h=7 w=8 k=4 r=3 s=3 pad=1 stride=2 dtype=f32").unwrap(),
    ];
    for workload in workloads {
        let inputs = Inputs::ternary(&workload).unwrap();
        let sketches = Sketch::both(&workload, &inputs);
        assert!(!sketches.is_empty(), "{workload}");
        let mut output = search_space::reference::evaluate(&workload, &inputs.values()).unwrap().swap_remove(0);
        for sketch in &sketches {
            sketch.compare(&output).unwrap();
        }
        for at in 0..output.len() {
            output[at] += 1.0;
            assert!(sketches.iter().all(|sketch| sketch.compare(&output).is_err()), "element {at} of {workload}");
            output[at] -= 1.0;
        }
    }
    // A ReLU hides what it cuts off.
    let relu = matmul("m=5 n=6 k=7 relu=1");
    assert!(Sketch::both(&relu, &Inputs::ternary(&relu).unwrap()).is_empty());
}

#[test]
fn what_cannot_be_checked_says_why() {
    let two = "tw1;contract.add;m:p4,k:r2;in.x=f32[m,k]@s(2,1)a4;out.y=f32[m]@s(1)a4;out.z=f32[m]@s(1)a4;acc=f32;epi=-;\
               math=ieee;det=fixed;ws=0";
    assert!(Suite::new(&Workload::parse(two).unwrap()).unwrap_err().contains("more than one output"));
    let ragged = Workload::parse(&two.replace("m:p4", "m:g4").replace("out.z=f32[m]@s(1)a4;", "")).unwrap();
    assert!(Suite::new(&ragged).unwrap_err().contains("ragged axis"));
}

#[test]
fn results_of_the_exact_check_vary_and_stay_exact() {
    for k in [1u64, 2, 1000, 1 << 24] {
        let workload = matmul(&format!("m=1 n=1 k={k}"));
        let inputs = Inputs::ternary(&workload).unwrap();
        let products: Vec<f64> = inputs.of(0).unwrap().iter().zip(inputs.of(1).unwrap()).map(|(a, b)| a * b).collect();
        let nonzero = products.iter().filter(|x| **x != 0.0).count();
        assert!(nonzero < 1 << 24, "{nonzero} products");
        assert!(k < 1000 || nonzero > 100);
    }
}
