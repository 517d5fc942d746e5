//! The property that holds the levels together on the CPU: for random workloads and random schedules,
//! reference = interpreter of level 1 = compiled kernel, bit for bit on inputs from {-1, 0, 1}.
//!
//! `CASES=1000 cargo test -p tilewright-codegen --test cpu` runs more; a failure prints the seed that replays it.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    reason = "a test may panic, print its seed and round its inputs"
)]

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use search_space::{Schedule, Target, Workload, families, reference, samples};
use tilewright_codegen::tile::{Buffer, Source, interpret::interpret};
use tilewright_codegen::{emit::llvm, lower};

/// Elements before and after each buffer that no kernel may touch.
const CANARY: usize = 64;
const CANARY_VALUE: f32 = 1234.5;

fn cpu_target(vector_bytes: u64, threads: u64) -> Target {
    let (arch, host) = llvm::host_cpu();
    let wanted: &[&str] = match vector_bytes {
        64 => &["avx", "avx2", "avx512bw", "avx512dq", "avx512f", "avx512vl", "fma"],
        32 => &["avx", "avx2", "fma"],
        _ => &[],
    };
    let features: Vec<&str> = host.iter().map(String::as_str).filter(|feature| wanted.contains(feature)).collect();
    let arch = if vector_bytes == 64 { &arch } else { "x86-64" };
    samples::cpu_target(arch, &features, vector_bytes, threads)
}

/// The widest vectors this host has.
fn widest() -> u64 {
    let (_, features) = llvm::host_cpu();
    match () {
        () if features.iter().any(|feature| feature == "avx512f") => 64,
        () if features.iter().any(|feature| feature == "avx2") => 32,
        () => 16,
    }
}

/// Elements at an address that is a multiple of 64, as workloads promise of their operands.
struct Aligned {
    store: Vec<f32>,
    start: usize,
    len: usize,
}

impl Aligned {
    fn new(elements: &[f32]) -> Aligned {
        let mut store = vec![0.0; elements.len() + 16];
        let start = store.as_ptr().align_offset(64);
        store[start..start + elements.len()].copy_from_slice(elements);
        Aligned { store, start, len: elements.len() }
    }

    fn all(&mut self) -> &mut [f32] {
        &mut self.store[self.start..self.start + self.len]
    }
}

/// Runs a schedule and compares every element of every buffer, canaries included. What Winograd's transforms round is
/// allowed for; all else is exact.
fn check(workload: &Workload, target: &Target, schedule: &Schedule, rng: &mut ChaCha8Rng) {
    let lowered = lower(workload, target, schedule).expect("members of the space can be lowered");
    let length = |i: usize| usize::try_from(workload.operand_len(i)).unwrap();
    let mut plain: Vec<Vec<f64>> = (0..workload.operands.len())
        .map(|i| (0..length(i)).map(|_| f64::from(rng.random_range(-1..=1))).collect())
        .collect();
    let outputs: Vec<usize> = workload.outputs().into_iter().collect();
    for &output in &outputs {
        plain[output].fill(f64::NAN);
    }
    let inputs: Vec<&[f64]> = workload.inputs().into_iter().map(|i| plain[i].as_slice()).collect();
    let wanted = reference::evaluate(workload, &inputs).expect("the reference knows contractions");

    let canaries = [CANARY_VALUE; CANARY];
    let mut memory: Vec<Aligned> = plain
        .iter()
        .map(|buffer| {
            let body = buffer.iter().map(|&value| value as f32);
            Aligned::new(&canaries.into_iter().chain(body).chain(canaries).collect::<Vec<f32>>())
        })
        .collect();
    let compiled = llvm::compile(&lowered.lane, &target.key).expect("lanes can be compiled");
    let cores = target.key.threads;
    // Workspace, as scratch, begins as NaN, so that a panel element that was never packed shows.
    let mut workspace: Vec<Vec<f32>> = lowered.lane.workspace_bytes.iter().map(|bytes| aligned_nan(*bytes)).collect();
    for (position, kernel) in compiled.kernels().iter().enumerate() {
        let pointer = |buffer: &Buffer| match buffer.source {
            Source::Operand(operand) => memory[operand].all()[CANARY..].as_mut_ptr().cast::<u8>(),
            Source::Workspace(position) => {
                let start = workspace[position].as_ptr().align_offset(64);
                workspace[position][start + CANARY..].as_mut_ptr().cast::<u8>()
            }
        };
        let pointers: Vec<*mut u8> = kernel.buffers.iter().map(pointer).collect();
        for core in 0..cores {
            let mut scratch = aligned_nan(kernel.scratch_bytes);
            let aligned = scratch.as_ptr().align_offset(64);
            let pointer = scratch[aligned + CANARY..].as_mut_ptr().cast();
            // SAFETY: each buffer has the length the kernel states, scratch as asked for.
            unsafe { compiled.call(position, &pointers, core, cores, pointer) };
        }
    }
    let rounds = schedule.name("form").is_some_and(|form| form.starts_with("winograd"));
    let (interpreted, ran_within) = if rounds { (1e-9, 1e-3) } else { (0.0, 0.0) };
    interpret(&lowered.tile, &mut plain).expect("every access is inside");
    for (&output, wanted) in outputs.iter().zip(&wanted) {
        let ran = &memory[output].all()[CANARY..CANARY + wanted.len()];
        for (at, &value) in wanted.iter().enumerate() {
            let same = |other: f64, within: f64| {
                (value.is_nan() && other.is_nan()) || value == other || (value - other).abs() < within
            };
            assert!(
                same(plain[output][at], interpreted),
                "interpreter: element {at} is {}, not {value}",
                plain[output][at]
            );
            assert!(same(f64::from(ran[at]), ran_within), "kernel: element {at} is {}, not {value}", ran[at]);
        }
    }
    for (buffer, bytes) in workspace.iter().zip(&lowered.lane.workspace_bytes) {
        let (start, length) = (buffer.as_ptr().align_offset(64), usize::try_from(bytes / 4).unwrap());
        let mut edges = buffer[..start + CANARY].iter().chain(&buffer[start + CANARY + length..]);
        assert!(edges.all(|value| value.is_nan()), "the kernel wrote outside its workspace");
    }
    for buffer in &mut memory {
        let buffer = buffer.all();
        let edges = buffer[..CANARY].iter().chain(&buffer[buffer.len() - CANARY..]);
        assert!(edges.copied().all(|value| value == CANARY_VALUE), "the kernel wrote outside a buffer");
    }
}

/// Memory for `bytes` bytes of floats that begin [`CANARY`] elements after a 64-byte boundary, all of it NaN.
fn aligned_nan(bytes: u64) -> Vec<f32> {
    vec![f32::NAN; usize::try_from(bytes).unwrap() / 4 + 2 * CANARY + 16]
}

fn run_cases(vector_bytes: u64, threads: u64, seed: u64) {
    let cases = std::env::var("CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(40);
    for case in 0..cases {
        let seed = seed + case;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let workload = samples::contraction(&mut rng);
        let target = cpu_target(vector_bytes, threads);
        let plan = families::plan(&workload, &target).expect("every contraction has a space");
        assert!(
            plan.space.config(&plan.default).is_ok_and(|config| plan.space.contains(&config)),
            "default is a member"
        );
        for exponent in [0.0, 0.5] {
            let schedule = plan.space.schedule(&plan.space.sample(&mut rng, exponent));
            println!("seed {seed} {} | {schedule}", workload.key());
            check(&workload, &target, &schedule, &mut rng);
        }
    }
}

/// Random contractions, each with every value of these parameters that its space has, at the member nearest to a random
/// one. How often each value was tried.
fn run_values(
    vector_bytes: u64,
    threads: u64,
    seed: u64,
    names: &[&str],
    sample: fn(&mut ChaCha8Rng) -> Workload,
) -> std::collections::BTreeMap<String, u32> {
    let cases = std::env::var("CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(30);
    let mut seen = std::collections::BTreeMap::<String, u32>::new();
    for seed in (seed..).take(cases) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let workload = sample(&mut rng);
        let target = cpu_target(vector_bytes, threads);
        let plan = families::plan(&workload, &target).expect("every contraction has a space");
        for position in names.iter().filter_map(|name| plan.space.position(name)) {
            for (at, value) in plan.space.params()[position].values.iter().enumerate() {
                let drawn = plan.space.sample(&mut rng, 0.5);
                let mut fixed = vec![None; plan.space.params().len()];
                fixed[position] = Some(at as u16);
                let Some(config) = plan.space.nearest(&drawn, &vec![1.0; fixed.len()], &fixed) else { continue };
                let schedule = plan.space.schedule(&config);
                println!("seed {seed} {} | {schedule}", workload.key());
                check(&workload, &target, &schedule, &mut rng);
                *seen.entry(value.to_string()).or_default() += 1;
            }
        }
        let starts = plan.space.starts().iter().map(|start| plan.space.schedule(start));
        for schedule in starts.chain([plan.default.clone()]) {
            println!("seed {seed} {} | {schedule}", workload.key());
            check(&workload, &target, &schedule, &mut rng);
        }
    }
    seen
}

#[test]
fn each_way_of_packing_and_sharing_agrees_with_the_reference() {
    let seen = run_values(widest(), 3, 7_000, &["pack_b", "par"], samples::contraction);
    for value in ["none", "panel", "fused", "rows", "cols", "k"] {
        assert!(seen.get(value).is_some_and(|&count| count >= 5), "{value} is hardly tested: {seen:?}");
    }
}

/// Random convolutions, each in every form its space has.
fn run_forms(vector_bytes: u64, threads: u64, seed: u64) {
    let seen = run_values(vector_bytes, threads, seed, &["form"], samples::convolution);
    for form in ["gemm", "direct", "winograd2", "winograd4", "stencil"] {
        assert!(seen.get(form).is_some_and(|&count| count >= 6), "{form} is hardly tested: {seen:?}");
    }
}

#[test]
fn each_form_of_a_convolution_agrees_with_the_reference() {
    run_forms(widest(), 1, 5_000);
}

#[test]
fn each_form_of_a_convolution_agrees_on_narrow_vectors_and_several_cores() {
    run_forms(16, 3, 6_000);
}

#[test]
fn widest_vectors_agree_with_the_reference() {
    run_cases(widest(), 1, 1_000);
}

#[test]
fn avx2_vectors_agree_with_the_reference() {
    if widest() < 32 {
        println!("skipped: this host has no AVX2");
        return;
    }
    run_cases(32, 1, 2_000);
}

#[test]
fn sse_vectors_agree_with_the_reference() {
    run_cases(16, 1, 3_000);
}

#[test]
fn shares_of_several_cores_make_the_whole() {
    run_cases(widest(), 3, 4_000);
}
