//! Contractions of 16-bit floats and of integers: for random workloads and random schedules,
//! reference = interpreter of level 1 = compiled kernel, bit for bit on small integers, on every width of vectors and on
//! the matrix unit.
//!
//! `CASES=1000 cargo test -p tilewright-codegen --test dtypes` runs more; a failure prints the seed that replays it.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    reason = "a test may panic, print its seed and round its inputs"
)]

mod memory;

use std::collections::BTreeMap;

use memory::{Aligned, cpu_target, widest};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use search_space::workload::{DType, Role};
use search_space::{Schedule, Target, Workload, families, reference, samples};
use tilewright_codegen::tile::Source;
use tilewright_codegen::{emit::llvm, lower, tile::interpret::interpret};

fn check(workload: &Workload, target: &Target, schedule: &Schedule, rng: &mut ChaCha8Rng) {
    let lowered = lower(workload, target, schedule).expect("members of the space can be lowered");
    let dtype = |i: usize| workload.operands[i].dtype;
    let mut plain: Vec<Vec<f64>> = (0..workload.operands.len())
        .map(|i| {
            let least = if dtype(i) == DType::U8 { 0 } else { -1 };
            // Integers of all sizes, floats that sums hold exactly.
            let scale = if dtype(i).is_float() { 1 } else { [1, 7, 120][rng.random_range(0..3)] };
            (0..workload.operand_len(i)).map(|_| f64::from(scale * rng.random_range(least..=1))).collect()
        })
        .collect();
    let output = workload.outputs()[0];
    plain[output].fill(if dtype(output).is_float() { f64::NAN } else { -77.0 });
    let inputs: Vec<&[f64]> = workload.inputs().into_iter().map(|i| plain[i].as_slice()).collect();
    let wanted = reference::evaluate(workload, &inputs).expect("the reference knows contractions").remove(0);

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
            assert!(scratch.intact(), "the kernel wrote outside its scratch");
        }
    }
    interpret(&lowered.tile, &mut plain).expect("every access is inside");
    let ran = operands[output].values(dtype(output), wanted.len());
    for (at, &value) in wanted.iter().enumerate() {
        // Gaps of the output are never written; integers cannot say so.
        if value.is_nan() {
            continue;
        }
        // The interpreter rounds nothing; what the output holds is rounded.
        let interpreted = dtype(output).round(plain[output][at]);
        assert!(interpreted == value, "interpreter: element {at} is {interpreted}, not {value}");
        assert!(ran[at] == value, "kernel: element {at} is {}, not {value}", ran[at]);
    }
    assert!(operands.iter_mut().all(|operand| operand.intact()), "the kernel wrote outside a buffer");
    assert!(workspace.iter_mut().all(|buffer| buffer.intact()), "the kernel wrote outside its workspace");
}

/// Random contractions of the given types, each in every form its space has; gives how often each was.
fn run_cases(target: &Target, seed: u64, dtypes: &[[DType; 2]]) -> BTreeMap<String, u64> {
    let cases = std::env::var("CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(16);
    let mut seen = BTreeMap::new();
    for seed in seed..seed + cases {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let factors = dtypes[rng.random_range(0..dtypes.len())];
        let workload = samples::typed(samples::contraction(&mut rng), factors, &mut rng);
        let plan = match families::plan(&workload, target) {
            Ok(plan) => plan,
            Err(error) => panic!("seed {seed} {}: {error}", workload.key()),
        };
        assert!(plan.space.config(&plan.default).is_ok_and(|config| plan.space.contains(&config)), "default");
        let mut schedules = vec![plan.default.clone(), plan.space.schedule(&plan.space.sample(&mut rng, 0.5))];
        if let Some(position) = plan.space.position("form") {
            for at in 0..plan.space.params()[position].values.len() {
                // The member with this form that is nearest to a random one.
                let drawn = plan.space.sample(&mut rng, 0.5);
                let mut fixed = vec![None; plan.space.params().len()];
                fixed[position] = Some(at as u16);
                let near = plan.space.nearest(&drawn, &vec![1.0; fixed.len()], &fixed);
                // Winograd's transforms round.
                let exact = |schedule: &Schedule| !schedule.name("form").unwrap().starts_with("winograd");
                schedules.extend(near.map(|config| plan.space.schedule(&config)).filter(exact));
            }
        }
        for schedule in schedules {
            println!("seed {seed} {} | {schedule}", workload.key());
            check(&workload, target, &schedule, &mut rng);
            *seen.entry(schedule.name("form").unwrap_or("gemm").to_string()).or_default() += 1;
        }
    }
    seen
}

const FLOATS: [[DType; 2]; 4] =
    [[DType::Bf16, DType::Bf16], [DType::F16, DType::F16], [DType::Bf16, DType::F32], [DType::F32, DType::F16]];
const INTEGERS: [[DType; 2]; 4] =
    [[DType::I8, DType::I8], [DType::U8, DType::I8], [DType::I8, DType::U8], [DType::U8, DType::U8]];

#[test]
fn narrow_floats_agree_with_the_reference_on_the_widest_vectors() {
    run_cases(&cpu_target(widest(), 1), 1_000, &FLOATS);
    run_cases(&cpu_target(widest(), 3), 1_500, &FLOATS);
}

#[test]
fn narrow_floats_agree_with_the_reference_on_avx2() {
    run_cases(&cpu_target(32.min(widest()), 1), 2_000, if widest() >= 32 { &FLOATS } else { &FLOATS[..1] });
}

#[test]
fn narrow_floats_agree_with_the_reference_on_sse() {
    // Without f16c there is no binary16.
    run_cases(&cpu_target(16, 1), 3_000, &FLOATS[..1]);
}

#[test]
fn integers_agree_with_the_reference_on_every_width() {
    run_cases(&cpu_target(widest(), 1), 4_000, &INTEGERS);
    run_cases(&cpu_target(32.min(widest()), 1), 5_000, &INTEGERS);
    run_cases(&cpu_target(16, 1), 6_000, &INTEGERS);
}

#[test]
fn the_matrix_unit_agrees_with_the_reference() {
    let (arch, host) = llvm::host_cpu();
    let features: Vec<&str> = host.iter().map(String::as_str).collect();
    for (feature, seed, dtypes) in [("amx-bf16", 7_000, &FLOATS[..1]), ("amx-int8", 8_000, &INTEGERS[..])] {
        if !features.contains(&feature) {
            println!("skipped: this process may not use {feature}");
            continue;
        }
        for threads in [1, 3] {
            let target = samples::cpu_target(&arch, &features, 64, threads);
            let seen = run_cases(&target, seed + threads, dtypes);
            assert!(seen["tile"] > 15, "{seen:?}");
        }
    }
}

#[test]
fn stores_that_keep_the_matrix_unit_awake_change_nothing() {
    let (arch, host) = llvm::host_cpu();
    let features: Vec<&str> = host.iter().map(String::as_str).collect();
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    // Twelve steps along k, the last one partial; two blocks of rows, and one of columns, which is packed once.
    let workload = Workload::parse("matmul m=80 n=48 k=360 dtype=bf16").unwrap();
    let target = samples::cpu_target(&arch, &["amx-bf16", "amx-tile", "avx512f"], 64, 1);
    for (wake, ku) in [(0, 2), (4, 1), (4, 2), (4, 4), (8, 1), (8, 8)] {
        let mut schedule = families::plan(&workload, &target).unwrap().default;
        for (name, value) in [("wake", wake), ("ku", ku), ("mr", 32), ("nv", 2), ("mt", 2), ("nt", 2)] {
            schedule.set(name, value);
        }
        let lowered = lower(&workload, &target, &schedule).unwrap();
        let text = lowered.lane.to_string();
        assert_eq!(text.contains("wake"), wake > 0, "{schedule}: {text}");
        // Columns are packed before the loop over the blocks of rows.
        let tile = lowered.tile.to_string();
        assert!(tile.find("cols_packed[").unwrap() < tile.find("for ic").unwrap(), "{tile}");
        if features.contains(&"amx-bf16") {
            check(&workload, &samples::cpu_target(&arch, &features, 64, 1), &schedule, &mut rng);
        }
    }
}

#[test]
fn sums_of_bytes_in_lanes_agree_with_the_reference() {
    let (arch, host) = llvm::host_cpu();
    let features: Vec<&str> = host.iter().map(String::as_str).filter(|feature| !feature.starts_with("amx")).collect();
    if !features.contains(&"avx512vnni") {
        println!("skipped: this host has no avx512vnni");
        return;
    }
    for threads in [1, 3] {
        let seen = run_cases(&samples::cpu_target(&arch, &features, 64, threads), 9_000 + threads, &INTEGERS[..3]);
        assert!(seen["bytes"] > 15 && !seen.contains_key("tile"), "{seen:?}");
    }
}

#[test]
fn a_matrix_unit_that_is_not_there_is_refused() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let features = ["amx-bf16", "amx-tile", "avx512f"];
    let with = samples::cpu_target("sapphirerapids", &features, 64, 1);
    let without = samples::cpu_target("sapphirerapids", &features[1..], 64, 1);
    let workload = samples::typed(samples::contraction(&mut rng), FLOATS[0], &mut rng);
    let forms = |target: &Target| {
        let space = families::plan(&workload, target).unwrap().space;
        space.position("form").map_or(String::new(), |at| format!("{:?}", space.params()[at].values))
    };
    assert!(forms(&with).contains("tile") && !forms(&without).contains("tile"));
    let plan = families::plan(&workload, &with).unwrap();
    let position = plan.space.position("form").unwrap();
    let tile = plan.space.params()[position].values.iter().position(|value| value.to_string() == "tile").unwrap();
    let mut fixed = vec![None; plan.space.params().len()];
    fixed[position] = Some(tile as u16);
    let drawn = plan.space.sample(&mut rng, 0.5);
    let near = plan.space.nearest(&drawn, &vec![1.0; fixed.len()], &fixed).unwrap();
    let schedule = plan.space.schedule(&near);
    assert!(lower(&workload, &with, &schedule).is_ok());
    let error = lower(&workload, &without, &schedule).unwrap_err().to_string();
    assert!(error.contains("amx-bf16"), "{error}");
}

#[test]
fn forms_that_would_round_or_have_no_such_sums_are_refused() {
    let target = cpu_target(widest(), 1);
    let refusal = |workload: &str, changes: &[(&str, search_space::Value)]| {
        let workload = Workload::parse(workload).unwrap();
        let mut schedule = families::plan(&workload, &target).unwrap().default;
        changes.iter().for_each(|(name, value)| schedule.set(*name, value.clone()));
        lower(&workload, &target, &schedule).unwrap_err().to_string()
    };
    let split = refusal("matmul m=8 n=8 k=64 dtype=bf16", &[("kc", 16.into())]);
    assert!(split.contains("kc=16"), "{split}");
    let form = refusal("conv2d n=1 c=4 h=8 w=8 k=8 r=3 s=3 dtype=i8", &[("form", "direct".into())]);
    assert!(form.contains("i32"), "{form}");
}

#[test]
fn binary16_needs_its_feature() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let half = samples::typed(samples::contraction(&mut rng), [DType::F16, DType::F16], &mut rng);
    let error = families::plan(&half, &cpu_target(16, 1)).unwrap_err().to_string();
    assert!(error.contains("f16c"), "{error}");
    let target = cpu_target(widest(), 1);
    if target.key.features.contains("f16c") {
        let plan = families::plan(&half, &target).unwrap();
        let error = lower(&half, &cpu_target(16, 1), &plan.default).unwrap_err().to_string();
        assert!(error.contains("f16c"), "{error}");
    }
    assert!(half.operands.iter().any(|operand| operand.role == Role::In && operand.dtype == DType::F16));
}
