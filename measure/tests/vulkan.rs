//! The property that holds the levels together on Vulkan: for random workloads and random schedules,
//! reference = interpreter of level 1 = device, bit for bit on inputs from {-1, 0, 1}.
//!
//! `CASES=1000 cargo test -p tilewright-measure --test vulkan` runs more; a failure prints the seed that replays it.
//! Without a Vulkan device the kernels are only interpreted, and a line says so.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test fails by panicking and says what it skipped")]

use codegen::tile::interpret::interpret;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use search_space::families::Unsupported;
use search_space::families::contraction::{ContractionView, vulkan};
use search_space::workload::{Activation, Conv2dSpec, MatmulSpec};
use search_space::{Schedule, Target, Workload, families, reference, samples};
use tilewright_measure::device::{Device, Placement, VulkanDevice};
use tilewright_measure::verify::Suite;

fn device() -> Option<VulkanDevice> {
    match VulkanDevice::open(0) {
        Ok(device) => Some(device),
        Err(failure) => {
            eprintln!("skipped: {failure}");
            None
        }
    }
}

fn floats(values: &[f64]) -> Vec<u8> {
    #[expect(clippy::cast_possible_truncation, reason = "the values are small integers or NaN")]
    values.iter().flat_map(|&value| (value as f32).to_ne_bytes()).collect()
}

/// Compares every element of the output, gaps included.
fn check(
    device: Option<&mut VulkanDevice>,
    target: &Target,
    workload: &Workload,
    schedule: &Schedule,
    rng: &mut ChaCha8Rng,
) {
    let lowered = codegen::lower(workload, target, schedule).expect("members of the space can be lowered");
    let length = |i: usize| usize::try_from(workload.operand_len(i)).unwrap();
    let mut plain: Vec<Vec<f64>> = (0..workload.operands.len())
        .map(|i| (0..length(i)).map(|_| f64::from(rng.random_range(-1..=1))).collect())
        .collect();
    let output = workload.outputs()[0];
    plain[output].fill(f64::NAN);
    let ran = device.map(|device| {
        let mut kernel = device.compile(workload, schedule).unwrap_or_else(|failure| panic!("{failure}"));
        let mut memory = device.allocate(workload, Placement::Guarded).unwrap();
        for (operand, values) in plain.iter().enumerate() {
            device.write(&mut memory, operand, &floats(values)).unwrap();
        }
        device.run(&mut kernel, &mut memory).unwrap_or_else(|failure| panic!("{failure}"));
        device.read(&mut memory, output).unwrap()
    });
    let inputs: Vec<&[f64]> = workload.inputs().into_iter().map(|i| plain[i].as_slice()).collect();
    let wanted = reference::evaluate(workload, &inputs).expect("the reference knows contractions").remove(0);
    interpret(&lowered.tile, &mut plain).expect("every access is inside");
    for (at, &value) in wanted.iter().enumerate() {
        let same = |other: f64| (value.is_nan() && other.is_nan()) || value == other;
        assert!(same(plain[output][at]), "interpreter: element {at} is {}, not {value}", plain[output][at]);
        if let Some(bytes) = &ran {
            let got = f32::from_ne_bytes(bytes[4 * at..4 * at + 4].try_into().unwrap());
            assert!(same(f64::from(got)), "device: element {at} is {got}, not {value}");
        }
    }
}

#[test]
fn random_kernels_agree_with_the_reference() {
    let mut device = device();
    let target = device.as_ref().map_or_else(samples::workgroup_target, |device| device.identity().target.clone());
    let cases: u64 = std::env::var("CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(30);
    for case in 0..cases {
        let seed = 5_000 + case;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let workload = samples::contraction(&mut rng);
        let plan = families::plan(&workload, &target).expect("every contraction has a space");
        let untiled = vulkan::untiled(&ContractionView::new(&workload).unwrap(), &target).unwrap();
        let sampled = [0.0, 0.5].map(|exponent| plan.space.schedule(&plan.space.sample(&mut rng, exponent)));
        // The long bodies of wide unrolling take the driver seconds and differ only in length.
        let short = |schedule: &Schedule| {
            let size =
                ["tile_m", "tile_n", "unroll"].iter().map(|name| schedule.int(name).unwrap_or(1)).product::<i64>();
            size <= 256
        };
        let fixed = if case % 2 == 0 { plan.default.clone() } else { untiled };
        for schedule in sampled.iter().filter(|schedule| short(schedule)).chain([&fixed]) {
            println!("seed {seed} {} | {schedule}", workload.key());
            check(device.as_mut(), &target, &workload, schedule, &mut rng);
        }
    }
}

/// The suite of checks on `cases` random workloads of a family (or `CASES`), under the default and under random schedules.
fn families_pass_the_suite(first: u64, cases: usize, of: fn(&mut ChaCha8Rng) -> Workload) {
    let mut device = device();
    let target = device.as_ref().map_or_else(samples::workgroup_target, |device| device.identity().target.clone());
    let cases: usize = std::env::var("CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(cases);
    let planned = (first..).filter_map(|seed| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let workload = of(&mut rng);
        match families::plan(&workload, &target) {
            Ok(plan) => Some((seed, rng, workload, plan)),
            Err(Unsupported::Operand { what, .. }) if what.ends_with("on a vulkan target") => None,
            Err(error) => panic!("seed {seed} {}: {error}", workload.key()),
        }
    });
    for (seed, mut rng, workload, plan) in planned.take(cases) {
        let mut schedules = vec![plan.default.clone()];
        schedules.extend((0..2).map(|_| plan.space.schedule(&plan.space.sample(&mut rng, 0.3))));
        for schedule in schedules {
            eprintln!("seed {seed} {} | {schedule}", workload.key());
            let lowered = codegen::lower(&workload, &target, &schedule).expect("members of the space can be lowered");
            for kernel in &lowered.lane.kernels {
                codegen::emit::wgsl::emit(kernel).expect("what is lowered can be written");
            }
            let Some(device) = &mut device else { continue };
            let mut suite = Suite::new(&workload).unwrap();
            let mut kernel = device.compile(&workload, &schedule).unwrap_or_else(|failure| panic!("{failure}"));
            let mut memory = device.allocate(&workload, Placement::Guarded).unwrap();
            suite.check(device, &mut kernel, &mut memory).unwrap_or_else(|failure| panic!("{failure}"));
            suite.check_hostile(device, &mut kernel, &mut memory).unwrap_or_else(|failure| panic!("{failure}"));
        }
    }
}

#[test]
fn random_maps_pass_the_suite() {
    families_pass_the_suite(10_000, 14, samples::map);
}

#[test]
fn random_row_passes_pass_the_suite() {
    families_pass_the_suite(20_000, 14, samples::rows);
}

#[test]
fn random_reductions_pass_the_suite() {
    families_pass_the_suite(30_000, 14, samples::reduction);
}

#[test]
fn random_attention_passes_the_suite() {
    // The driver takes seconds for each.
    families_pass_the_suite(40_000, 5, samples::attention);
}

#[test]
fn kernels_pass_the_whole_suite_of_checks() {
    let Some(mut device) = device() else { return };
    let target = device.identity().target.clone();
    let plain = Conv2dSpec { pad_top: 1, pad_left: 1, bias: true, ..Conv2dSpec::new(1, 4, 9, 9, 8, 3, 3) };
    let conv = Conv2dSpec { activation: Some(Activation::Relu), ..plain };
    for workload in [MatmulSpec::new(33, 40, 52).workload().unwrap(), conv.workload().unwrap()] {
        let plan = families::plan(&workload, &target).unwrap();
        let mut suite = Suite::new(&workload).unwrap();
        let mut kernel = device.compile(&workload, &plan.default).unwrap();
        assert!(device.describe(&kernel).compile_ns > 0);
        let mut memory = device.allocate(&workload, Placement::Guarded).unwrap();
        let ns = suite.check(&mut device, &mut kernel, &mut memory).unwrap();
        assert!(ns > 0.0);
        suite.check_hostile(&mut device, &mut kernel, &mut memory).unwrap();
    }
}
