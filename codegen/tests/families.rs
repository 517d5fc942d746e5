//! Row passes, maps, reductions and attention on the CPU: for random workloads and random schedules,
//! reference = interpreter of level 1 = compiled kernel. Sums and copies agree bit for bit on inputs from {-1, 0, 1};
//! what goes through elementary functions agrees within a few units in the last place of its type.
//!
//! `CASES=1000 cargo test -p tilewright-codegen --test families` runs more; a failure prints the seed that replays it.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::print_stdout,
    reason = "a test may panic, print its seed and round its inputs"
)]

mod memory;

use memory::{Aligned, cpu_target, widest};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use search_space::workload::{DType, EpilogueStep, Op};
use search_space::{Schedule, Target, Workload, families, reference, samples};
use tilewright_codegen::tile::Source;
use tilewright_codegen::{emit::llvm, lower, tile::interpret::interpret};

/// Whether every result is a sum, a maximum or a copy of inputs.
fn is_exact(workload: &Workload) -> bool {
    let plain = workload.epilogue.iter().all(|step| {
        matches!(step, EpilogueStep::Bias(_) | EpilogueStep::Add(_) | EpilogueStep::Relu | EpilogueStep::Clip(..))
    });
    plain && matches!(workload.op, Op::ContractAdd | Op::ContractMax | Op::Map | Op::RowsArgMax)
}

fn check(workload: &Workload, target: &Target, schedule: &Schedule, rng: &mut ChaCha8Rng) {
    let exact = is_exact(workload);
    let mut value = || match exact {
        true => f64::from(rng.random_range(-1..=1)),
        false => f64::from(rng.random_range(-4000..=4000)) / 1000.0,
    };
    check_with(workload, target, schedule, &mut value);
}

fn check_with(workload: &Workload, target: &Target, schedule: &Schedule, value: &mut dyn FnMut() -> f64) {
    let lowered = lower(workload, target, schedule).expect("members of the space can be lowered");
    let exact = is_exact(workload);
    let mut plain: Vec<Vec<f64>> = (0..workload.operands.len())
        .map(|i| {
            let dtype = workload.operands[i].dtype;
            (0..workload.operand_len(i)).map(|_| dtype.round(value())).collect()
        })
        .collect();
    let output = workload.outputs()[0];
    plain[output].fill(f64::NAN);
    let inputs: Vec<&[f64]> = workload.inputs().into_iter().map(|i| plain[i].as_slice()).collect();
    let wanted = reference::evaluate(workload, &inputs).expect("the reference knows every operation").remove(0);

    let dtype = |i: usize| workload.operands[i].dtype;
    let mut operands: Vec<Aligned> =
        plain.iter().enumerate().map(|(i, values)| Aligned::new(dtype(i), values)).collect();
    let mut workspace: Vec<Aligned> =
        lowered.lane.workspace_bytes.iter().map(|bytes| Aligned::poisoned(*bytes)).collect();
    let compiled = llvm::compile(&lowered.lane, &target.key).expect("lanes can be compiled");
    for (position, kernel) in compiled.kernels().iter().enumerate() {
        let mut pointers = Vec::new();
        for buffer in &kernel.buffers {
            pointers.push(match buffer.source {
                Source::Operand(i) => operands[i].start(),
                Source::Workspace(i) => workspace[i].start(),
            });
        }
        for core in 0..target.key.threads {
            let mut scratch = Aligned::poisoned(kernel.scratch_bytes);
            // SAFETY: one buffer per operand and workspace of the length the kernel states, scratch as asked for.
            unsafe { compiled.call(position, &pointers, core, target.key.threads, scratch.start()) };
        }
    }
    interpret(&lowered.tile, &mut plain).expect("every access is inside");
    let ran = operands[output].values(dtype(output), wanted.len());
    for (at, &value) in wanted.iter().enumerate() {
        let near = |other: f64| {
            let unit = dtype(output).unit(value).max(if exact { 0.0 } else { 1e-5 * (1.0 + value.abs()) });
            (value.is_nan() && other.is_nan())
                || value == other
                || (!exact && (value - other).abs() <= unit)
                || (value - other).abs() <= unit && !matches!(dtype(output), DType::F32 | DType::I32)
        };
        // Gaps of the output are never written; integers cannot say so.
        if value.is_nan() && !dtype(output).is_float() {
            continue;
        }
        assert!(near(plain[output][at]), "interpreter: element {at} is {}, not {value}", plain[output][at]);
        assert!(near(ran[at]), "kernel: element {at} is {}, not {value}", ran[at]);
    }
    assert!(operands.iter_mut().all(|operand| operand.intact()), "the kernel wrote outside a buffer");
}

fn run_cases(vector_bytes: u64, threads: u64, seed: u64, sample: fn(&mut ChaCha8Rng) -> Workload) {
    let cases = std::env::var("CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(30);
    for seed in seed..seed + cases {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let workload = sample(&mut rng);
        let mut target = cpu_target(vector_bytes, threads);
        if seed % 2 == 1 {
            // Outputs that are large beside the caches may be stored past them.
            target.limits.l2_bytes = 64;
        }
        let plan = match families::plan(&workload, &target) {
            Ok(plan) => plan,
            Err(error) => panic!("seed {seed} {}: {error}", workload.key()),
        };
        assert!(plan.space.config(&plan.default).is_ok_and(|config| plan.space.contains(&config)), "default");
        for schedule in [
            plan.default.clone(),
            plan.space.schedule(&plan.space.sample(&mut rng, 0.0)),
            plan.space.schedule(&plan.space.sample(&mut rng, 0.5)),
        ] {
            println!("seed {seed} {} | {schedule}", workload.key());
            check(&workload, &target, &schedule, &mut rng);
        }
    }
}

fn all_targets(seed: u64, sample: fn(&mut ChaCha8Rng) -> Workload) {
    run_cases(widest(), 1, seed, sample);
    run_cases(32.min(widest()), 1, seed + 1_000, sample);
    run_cases(16, 1, seed + 2_000, sample);
    run_cases(widest(), 3, seed + 3_000, sample);
}

#[test]
fn maps_agree_with_the_reference() {
    all_targets(10_000, samples::map);
}

#[test]
fn rows_agree_with_the_reference() {
    all_targets(20_000, samples::rows);
}

/// Rows that are long enough for blocks of columns, many enough for chains, and of lengths that no vector divides.
#[test]
fn long_rows_agree_with_the_reference() {
    let mut chained = 0;
    for (number, text) in [
        "softmax rows=12 cols=1100 dtype=f32",
        "softmax rows=9 cols=1040 dtype=f32",
        "softmax rows=24 cols=40 dtype=f32",
        "logsoftmax rows=3 cols=1100 dtype=f32",
        "layernorm rows=12 cols=600 dtype=f32",
        "layernorm rows=7 cols=37 dtype=f32 affine=0",
        "rmsnorm rows=12 cols=624 dtype=f32",
    ]
    .into_iter()
    .enumerate()
    {
        let workload = Workload::parse(text).unwrap();
        for (vector_bytes, threads) in [(widest(), 1), (16, 1), (widest(), 3)] {
            let mut rng = ChaCha8Rng::seed_from_u64(60_000 + number as u64);
            let mut target = cpu_target(vector_bytes, threads);
            target.limits.l2_bytes = 16 << 10;
            let plan = families::plan(&workload, &target).unwrap();
            let mut schedules = vec![plan.default.clone()];
            schedules.extend((0..12).map(|_| plan.space.schedule(&plan.space.sample(&mut rng, 0.5))));
            for schedule in schedules {
                println!("{text} | {schedule}");
                chained += usize::from(schedule.int("chain").is_some_and(|chain| chain > 1));
                check(&workload, &target, &schedule, &mut rng);
                // Few elements that are not finite leave some rows without any, few enough to be told apart.
                let mut odd = || match rng.random_range(0..3000) {
                    0 => f64::NAN,
                    1 => f64::INFINITY,
                    2..40 => f64::NEG_INFINITY,
                    40..60 => -1e30,
                    _ => f64::from(rng.random_range(-4000..=4000)) / 1000.0,
                };
                if text.starts_with("softmax") {
                    check_with(&workload, &target, &schedule, &mut odd);
                }
            }
        }
    }
    assert!(chained > 50, "only {chained} of the schedules chain rows");
}

#[test]
fn reductions_agree_with_the_reference() {
    all_targets(30_000, samples::reduction);
}

#[test]
fn attention_agrees_with_the_reference() {
    all_targets(50_000, samples::attention);
}

/// The same workload over elements of 16 bits or integers, where it allows.
fn narrowed(mut workload: Workload, rng: &mut impl Rng) -> Workload {
    let dtype = [DType::F16, DType::Bf16][rng.random_range(0..2)];
    for operand in workload.operands.iter_mut().filter(|operand| operand.dtype == DType::F32) {
        operand.dtype = dtype;
    }
    workload
}

#[test]
fn narrow_elements_agree_with_the_reference() {
    run_cases(widest(), 1, 40_000, |rng| {
        let workload = samples::rows(rng);
        narrowed(workload, rng)
    });
    run_cases(32.min(widest()), 1, 41_000, |rng| {
        let workload = samples::map(rng);
        narrowed(workload, rng)
    });
}
