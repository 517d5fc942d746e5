//! Contractions as workgroups of lanes: the text of all three levels, the extremes of the space, and the limits.
//! That the kernels compute the right numbers is tested on a device, by `measure/tests/vulkan.rs`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use search_space::families::contraction::{ContractionView, vulkan};
use search_space::target::Limits;
use search_space::workload::{Activation, Conv2dSpec, MatmulSpec};
use search_space::{Schedule, Target, Workload, families, samples};
use tilewright_codegen::emit::wgsl::{self, WgslError};
use tilewright_codegen::lower::simt::loop_iterations;
use tilewright_codegen::{LowerError, lower};

fn target() -> Target {
    samples::workgroup_target()
}

fn matmul(m: u64, n: u64, k: u64) -> Workload {
    MatmulSpec::new(m, n, k).workload().unwrap()
}

fn convolution() -> Workload {
    let spec = Conv2dSpec { stride_h: 2, stride_w: 2, pad_top: 1, pad_left: 1, ..Conv2dSpec::new(1, 3, 8, 8, 6, 3, 3) };
    Conv2dSpec { bias: true, activation: Some(Activation::Relu), ..spec }.workload().unwrap()
}

fn schedule(text: &str) -> Schedule {
    text.split_whitespace()
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap();
            (name, value.parse::<i64>().map_or_else(|_| value.into(), Into::into))
        })
        .collect()
}

/// Level 1, level 2 and WGSL of a schedule.
fn text(workload: &Workload, text: &str) -> String {
    let schedule = schedule(text);
    let plan = families::plan(workload, &target()).unwrap();
    assert!(plan.space.config(&schedule).is_ok(), "{:?}", plan.space.config(&schedule));
    let lowered = lower(workload, &target(), &schedule).unwrap();
    let wgsl: String = lowered.lane.kernels.iter().map(|kernel| wgsl::emit(kernel).unwrap()).collect();
    format!("{}\n{schedule}\n\n{}\n{}\n{wgsl}", workload.key(), lowered.tile, lowered.lane)
}

#[test]
fn text_of_a_staged_matmul() {
    insta::assert_snapshot!(text(
        &matmul(16, 16, 8),
        "reduce=fused lanes_m=2 lanes_n=2 tile_m=2 tile_n=4 run_m=2 run_n=4 lane_order=nm grid_order=nm unroll=2 depth=4 \
         stage_a=shared stage_b=shared layout_a=km vector_a=4 vector_b=4 pad_a=0 pad_b=4"
    ));
}

#[test]
fn text_of_a_convolution_with_one_long_sum() {
    insta::assert_snapshot!(text(
        &convolution(),
        "reduce=fused lanes_m=2 lanes_n=4 tile_m=1 tile_n=2 run_m=1 run_n=2 lane_order=nm grid_order=mn unroll=3 depth=8 \
         stage_a=shared stage_b=direct layout_a=mk vector_a=1 vector_b=- pad_a=1 pad_b=-"
    ));
}

#[test]
fn text_of_a_convolution_with_a_loop_over_the_filter() {
    insta::assert_snapshot!(text(
        &convolution(),
        "reduce=split lanes_m=2 lanes_n=4 tile_m=1 tile_n=2 run_m=1 run_n=1 lane_order=nm grid_order=nm unroll=3 depth=4 \
         stage_a=direct stage_b=shared layout_a=- vector_a=- vector_b=1 pad_a=- pad_b=0"
    ));
}

#[test]
fn members_of_extreme_spaces_can_be_lowered() {
    let batched = MatmulSpec { batch: 100_000, ..MatmulSpec::new(3, 5, 7) }.workload().unwrap();
    let workloads = [
        ("gemv", matmul(1, 4096, 4096)),
        ("column", matmul(4096, 1, 4096)),
        ("one", matmul(1, 1, 1)),
        ("prime", matmul(997, 1009, 1013)),
        ("long sums", matmul(8, 8, 500_000)),
        ("tall", matmul(2_000_000, 3, 2)),
        ("batch over the grid", batched),
        ("convolution", convolution()),
    ];
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    for (name, workload) in workloads {
        let plan = families::plan(&workload, &target()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(plan.space.count() >= 8, "{name}: {} schedules", plan.space.count());
        let view = ContractionView::new(&workload).unwrap();
        let untiled = vulkan::untiled(&view, &target()).unwrap();
        // Two elements per lane where the grid has no room for one.
        let elements = untiled.int("tile_m").unwrap() * untiled.int("tile_n").unwrap();
        assert!(elements <= if name == "tall" { 2 } else { 1 }, "{name}: {untiled}");
        assert_eq!((untiled.name("stage_a"), untiled.name("stage_b")), (Some("direct"), Some("direct")), "{name}");
        let mut schedules = vec![plan.default.clone(), untiled];
        schedules.extend((0..30).map(|_| plan.space.schedule(&plan.space.sample(&mut rng, 0.5))));
        for schedule in schedules {
            let lowered =
                lower(&workload, &target(), &schedule).unwrap_or_else(|error| panic!("{name} {schedule}: {error}"));
            for kernel in &lowered.lane.kernels {
                assert!(loop_iterations(kernel) <= 65_000, "{name} {schedule}");
                wgsl::emit(kernel).unwrap_or_else(|error| panic!("{name} {schedule}: {error}"));
            }
        }
    }
}

#[test]
fn a_loop_over_the_limit_is_refused_by_the_space_and_by_the_lowering() {
    let workload = matmul(16, 16, 70_000);
    let plan = families::plan(&workload, &target()).unwrap();
    let view = ContractionView::new(&workload).unwrap();
    let mut endless = vulkan::untiled(&view, &target()).unwrap();
    assert_ne!(endless.int("unroll"), Some(1), "one step at a time is 70,000 iterations");
    endless.set("unroll", 1);
    assert!(plan.space.config(&endless).is_err());
    let error = lower(&workload, &target(), &endless).unwrap_err();
    assert!(matches!(error, LowerError::Limit { needed: 70_000, limit: 65_000, .. }), "{error}");
    // Elsewhere it is an ordinary kernel.
    let mut patient = target();
    patient.limits.loop_iterations = u64::MAX;
    assert!(lower(&workload, &patient, &endless).is_ok());
}

#[test]
fn every_other_limit_is_checked_before_a_driver_sees_the_kernel() {
    let workload = matmul(64, 64, 64);
    let staged = families::plan(&workload, &target()).unwrap().default;
    let refused = |change: fn(&mut Limits)| {
        let mut target = target();
        change(&mut target.limits);
        match lower(&workload, &target, &staged) {
            Err(LowerError::Limit { what, .. }) => what,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(|limits| limits.shared_bytes = 64), "workgroup memory in bytes");
    assert_eq!(refused(|limits| limits.workgroup_invocations = 2), "invocations of a workgroup");
    assert_eq!(refused(|limits| limits.buffer_bytes = 1000), "bytes of a buffer");
    let untiled = vulkan::untiled(&ContractionView::new(&workload).unwrap(), &target()).unwrap();
    let mut small = target();
    small.limits.grid_per_dim = 1;
    assert!(matches!(lower(&workload, &small, &untiled), Err(LowerError::Limit { .. })));
}

#[test]
fn schedules_of_other_spaces_are_refused_by_name() {
    let workload = matmul(16, 16, 16);
    let good = families::plan(&workload, &target()).unwrap().default;
    for (name, value, part) in [
        ("tile_m", 0, "tile_m=0 has no meaning here; it must be a positive integer"),
        ("run_n", 3, "run_n=3 has no meaning here"),
        ("vector_a", 3, "vector_a=3 has no meaning here"),
        ("stage_a", 1, "stage_a=1 has no meaning here; it must be shared or direct"),
    ] {
        let mut bad = good.clone();
        bad.set(name, value);
        let message = lower(&workload, &target(), &bad).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
    let message = lower(&workload, &target(), &Schedule::default()).unwrap_err().to_string();
    assert!(message.contains("parameter lanes_m is missing"), "{message}");
}

#[test]
fn what_wgsl_cannot_say_is_refused() {
    let workload = matmul(16, 16, 16);
    let plan = families::plan(&workload, &target()).unwrap();
    let lowered = lower(&workload, &target(), &plan.default).unwrap();
    let mut huge = lowered.lane.kernels[0].clone();
    huge.buffers[0].len = (1 << 31) + 1;
    assert!(matches!(wgsl::emit(&huge), Err(WgslError::TooLarge { elements: 2_147_483_649, .. })));
    let mut half = lowered.lane.kernels[0].clone();
    half.buffers[0].dtype = search_space::workload::DType::F16;
    assert!(matches!(wgsl::emit(&half), Err(WgslError::Unsupported { .. })));
    let clipped = MatmulSpec::new(4, 4, 4).workload().unwrap();
    let clip = search_space::workload::EpilogueStep::Clip(0.0, f64::INFINITY);
    let clipped = Workload { epilogue: vec![clip], ..clipped };
    let plan = families::plan(&clipped, &target()).unwrap();
    let lowered = lower(&clipped, &target(), &plan.default).unwrap();
    // An infinite limit is none.
    let text = wgsl::emit(&lowered.lane.kernels[0]).unwrap();
    assert!(text.contains("select(") && !text.contains("inf"), "{text}");
}
