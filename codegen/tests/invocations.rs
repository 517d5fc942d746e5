//! Maps, row passes, reductions and attention as invocations: the text of a softmax, the extremes of the spaces, and the limits.
//! That the kernels compute the right numbers is tested on a device, by `measure/tests/vulkan.rs`; of attention, which has
//! a program of its own here, the interpreter's numbers are tested too.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking and rounds its inputs"
)]

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use search_space::families::Unsupported;
use search_space::{Schedule, Target, Workload, families, reference, samples};
use tilewright_codegen::emit::wgsl;
use tilewright_codegen::tile::interpret::interpret;
use tilewright_codegen::{LowerError, lower};

fn target() -> Target {
    samples::workgroup_target()
}

fn workload(text: &str) -> Workload {
    Workload::parse(text).unwrap()
}

/// The default of a workload with some values changed.
fn changed(workload: &Workload, changes: &[(&str, i64)]) -> Schedule {
    let mut schedule = families::plan(workload, &target()).unwrap().default;
    changes.iter().for_each(|(name, value)| schedule.set(*name, *value));
    schedule
}

fn text(workload: &Workload, schedule: &Schedule) -> String {
    let lowered = lower(workload, &target(), schedule).unwrap();
    lowered.lane.kernels.iter().map(|kernel| wgsl::emit(kernel).unwrap()).collect()
}

/// That the space lacks a schedule and that the lowering refuses it for the same reason.
fn refused(workload: &Workload, changes: &[(&str, i64)], want: &str) {
    let plan = families::plan(workload, &target()).unwrap();
    let schedule = changed(workload, changes);
    let member = plan.space.config(&schedule).is_ok_and(|config| plan.space.contains(&config));
    assert!(!member, "{schedule} is in the space");
    match lower(workload, &target(), &schedule) {
        Err(LowerError::Limit { what, .. }) => assert_eq!(what, want),
        other => panic!("{schedule}: {other:?}"),
    }
}

#[test]
fn text_of_a_softmax() {
    let workload = workload("softmax rows=100 cols=40 dtype=f32");
    let schedule = changed(&workload, &[("workgroup", 32), ("turns", 2), ("acc", 2)]);
    let lowered = lower(&workload, &target(), &schedule).unwrap();
    insta::assert_snapshot!(format!(
        "{}\n{schedule}\n\n{}\n{}",
        workload.key(),
        lowered.tile,
        text(&workload, &schedule)
    ));
}

#[test]
fn text_of_an_attention() {
    let workload = workload("attention heads=2 q=5 kv=7 d=3 dtype=f32 causal=1");
    let schedule = changed(&workload, &[("workgroup", 32), ("queries", 2), ("columns", 3), ("keys", 4), ("ku", 3)]);
    let lowered = lower(&workload, &target(), &schedule).unwrap();
    let (key, tile) = (workload.key(), &lowered.tile);
    insta::assert_snapshot!(format!("{key}\n{schedule}\n\n{tile}\n{}", text(&workload, &schedule)));
}

#[test]
fn attention_agrees_with_the_reference() {
    for seed in 50_000..50_030 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let workload = samples::attention(&mut rng);
        let plan = families::plan(&workload, &target()).unwrap();
        let mut schedules = vec![plan.default.clone()];
        schedules.extend([0.0, 0.5].map(|exponent| plan.space.schedule(&plan.space.sample(&mut rng, exponent))));
        let output = workload.outputs()[0];
        for schedule in schedules {
            let lowered = lower(&workload, &target(), &schedule).unwrap();
            let mut value = || f64::from(rng.random_range(-4000..=4000)) / 1000.0;
            let mut plain: Vec<Vec<f64>> = (0..workload.operands.len())
                .map(|i| (0..workload.operand_len(i)).map(|_| f64::from(value() as f32)).collect())
                .collect();
            plain[output].fill(f64::NAN);
            let inputs: Vec<&[f64]> = workload.inputs().into_iter().map(|i| plain[i].as_slice()).collect();
            let wanted = reference::evaluate(&workload, &inputs).unwrap().remove(0);
            interpret(&lowered.tile, &mut plain).expect("every access is inside");
            for (at, (&wanted, &got)) in wanted.iter().zip(&plain[output]).enumerate() {
                // Gaps of the output are never written.
                let near = (wanted.is_nan() && got.is_nan()) || (wanted - got).abs() <= 1e-5 * (1.0 + wanted.abs());
                assert!(near, "seed {seed} {} | {schedule}: element {at} is {got}, not {wanted}", workload.key());
            }
        }
    }
}

#[test]
fn attention_that_would_be_written_out_too_long_is_left_out() {
    let workload = workload("attention heads=12 q=128 d=128 dtype=f32");
    let plan = families::plan(&workload, &target()).unwrap();
    let base = [("queries", 1), ("columns", 32), ("keys", 8), ("ku", 2)];
    for (changes, constraint) in [
        (&[][..], None),
        (&[("queries", 2), ("columns", 128)], Some("result_registers")),
        (&[("queries", 2), ("keys", 32)], Some("score_registers")),
        (&[("columns", 128)], Some("loads_written_out")),
        (&[("queries", 4), ("ku", 16)], Some("products_written_out")),
    ] {
        let schedule = changed(&workload, &[&base[..], changes].concat());
        let why = plan.space.why_schedule(&schedule).map(|why| why.to_string());
        match constraint {
            None => assert_eq!(why, None),
            Some(name) => assert!(why.as_ref().is_some_and(|why| why.contains(name)), "{schedule}: {why:?}"),
        }
    }
}

#[test]
fn members_of_extreme_spaces_can_be_lowered_and_written() {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    for text in [
        "softmax rows=1 cols=1 dtype=f32",
        "softmax rows=997 cols=1009 dtype=f32",
        "softmax rows=3 cols=128256 dtype=f32",
        "logsoftmax rows=2000000 cols=3 dtype=f32",
        "layernorm rows=77 cols=4096 dtype=f32",
        "rmsnorm rows=5 cols=30011 dtype=f32",
        "argmax rows=64 cols=32768 dtype=f32",
        "reduce rows=1 cols=16777216 dtype=f32",
        "reduce rows=1021 cols=4099 dtype=f32 axis=0 op=max",
        "reduce rows=100003 cols=7 dtype=f32 op=mean",
        "maxpool n=2 c=17 h=33 w=29 r=3 s=3 stride=2 pad=1 dtype=f32",
        "avgpool n=1 c=2048 h=7 w=7 r=7 s=7 dtype=f32",
        "transpose rows=3001 cols=1999 dtype=f32",
        "map n=33554432 dtype=f32 f=gelu_tanh",
        "map n=1 dtype=f32 f=gelu_erf",
        "attention heads=1 q=1 d=1 dtype=f32",
        "attention heads=3 q=1009 d=61 dtype=f32 causal=1",
        "attention heads=32 kv_heads=8 q=1 kv=8191 d=128 dtype=f32",
        "attention heads=1 q=5 kv=50021 d=257 e=131 dtype=f32",
        "attention heads=16 q=4096 d=64 dtype=f32 causal=1",
    ] {
        let workload = workload(text);
        let plan = families::plan(&workload, &target()).unwrap_or_else(|error| panic!("{text}: {error}"));
        let mut schedules = vec![plan.default.clone()];
        schedules.extend((0..40).map(|_| plan.space.schedule(&plan.space.sample(&mut rng, 0.5))));
        for schedule in schedules {
            let lowered =
                lower(&workload, &target(), &schedule).unwrap_or_else(|error| panic!("{text} {schedule}: {error}"));
            for kernel in &lowered.lane.kernels {
                wgsl::emit(kernel).unwrap_or_else(|error| panic!("{text} {schedule}: {error}"));
            }
        }
    }
}

#[test]
fn a_loop_over_the_limit_is_refused_by_the_space_and_by_the_lowering() {
    let loops = "loop iterations of an invocation";
    refused(&workload("softmax rows=4096 cols=4096 dtype=f32"), &[("turns", 64), ("workgroup", 32)], loops);
    refused(&workload("reduce rows=64 cols=262144 dtype=f32"), &[("parts", 1), ("acc", 1)], loops);
    refused(&workload("map n=33554432 dtype=f32 f=exp"), &[("cols", 1024), ("turns", 256)], loops);
    refused(&workload("attention heads=64 q=2048 d=64 dtype=f32"), &[("keys", 2), ("ku", 1)], loops);
    // Rows that no schedule can take within the limit.
    let long = workload("softmax rows=2 cols=300000 dtype=f32");
    match families::plan(&long, &target()) {
        Err(Unsupported::Space { why }) => assert!(why.contains("loop_iterations"), "{why}"),
        other => panic!("{other:?}"),
    }
    let mut patient = target();
    patient.limits.loop_iterations = u64::MAX;
    let plan = families::plan(&long, &patient).unwrap();
    assert!(lower(&long, &patient, &plan.default).is_ok());
}

#[test]
fn grids_over_the_limit_are_refused() {
    let rows = workload("logsoftmax rows=5000000 cols=3 dtype=f32");
    refused(&rows, &[("workgroup", 32), ("group", 1), ("turns", 1)], "workgroups along a grid dimension");
}

#[test]
fn private_arrays_over_the_limit_are_refused() {
    // A maximum is kept for each block.
    let long = workload("softmax rows=2 cols=2000000 dtype=f32");
    let mut patient = target();
    patient.limits.loop_iterations = u64::MAX;
    let plan = families::plan(&long, &patient).unwrap();
    let mut many = plan.default.clone();
    many.set("block", 512);
    assert!(!plan.space.config(&many).is_ok_and(|config| plan.space.contains(&config)), "{many}");
    let error = lower(&long, &patient, &many).unwrap_err();
    assert!(matches!(error, LowerError::Limit { what: "memory of an invocation in bytes", .. }), "{error}");
}

#[test]
fn invocations_and_turns_without_work_are_left_out() {
    let few = workload("softmax rows=40 cols=64 dtype=f32");
    let plan = families::plan(&few, &target()).unwrap();
    for (changes, member) in [
        ([("workgroup", 64), ("turns", 1)], true),
        ([("workgroup", 128), ("turns", 1)], false),
        ([("workgroup", 32), ("turns", 2)], false),
    ] {
        let schedule = changed(&few, &[changes[0], changes[1], ("group", 1)]);
        let found = plan.space.config(&schedule).is_ok_and(|config| plan.space.contains(&config));
        assert_eq!(found, member, "{schedule}");
    }
}

#[test]
fn memory_that_wgsl_lacks_is_refused_by_name() {
    for dtype in ["f16", "bf16"] {
        let error = families::plan(&workload(&format!("softmax rows=8 cols=8 dtype={dtype}")), &target()).unwrap_err();
        assert_eq!(error.to_string(), format!("operand x: type {dtype} on a vulkan target cannot be generated yet"));
    }
    let mut small = target();
    small.limits.buffer_bytes = 1000;
    let error = families::plan(&workload("map n=251 dtype=f32 f=exp"), &small).unwrap_err();
    assert!(matches!(error, Unsupported::Limit { needed: 1004, limit: 1000, .. }), "{error}");
}

#[test]
fn what_is_not_finite_survives_drivers_that_assume_it_is() {
    // `x - x` and `x == x` are written so that nobody can tell that both sides are the same.
    let one = workload("layernorm rows=8 cols=1 dtype=f32 affine=0");
    assert!(text(&one, &changed(&one, &[])).contains("^ 0x80000000u"));
    let first = workload("argmax rows=8 cols=3 dtype=f32");
    assert!(text(&first, &changed(&first, &[])).contains("& 0x7fffffff) <= 0x7f800000"));
    // Constants that are not finite come out of variables.
    let log = workload("reduce rows=8 cols=3 dtype=f32 op=max");
    let text = text(&log, &changed(&log, &[]));
    assert!(text.contains("var<private> minus_infinity_bits: u32 = 0xff800000u;"), "{text}");
    assert!(!text.contains("inff") && !text.contains("NaNf"), "{text}");
}
