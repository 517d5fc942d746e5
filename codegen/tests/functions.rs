//! Errors of the elementary functions in units in the last place, over the whole range of f32, on each vector width.
//!
//! `cargo test -p tilewright-codegen --test functions -- --nocapture` prints them.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::print_stdout,
    reason = "a test may panic, print what it measured and round its inputs"
)]

mod memory;

use memory::{Aligned, cpu_target, widest};
use search_space::workload::DType;
use search_space::{Workload, families};
use tilewright_codegen::{emit::llvm, lower};

/// Every sign and exponent with many mantissas, the ends of the range, and a fine grid where functions bend.
fn inputs() -> Vec<f64> {
    let mut values: Vec<f32> = Vec::new();
    for high in 0..1u32 << 16 {
        // 65,536 upper halves, each with another lower half.
        values.push(f32::from_bits(high << 16 | high.wrapping_mul(40_503) & 0xffff));
    }
    values.extend((-20_000..=20_000).map(|step| step as f32 * 5e-4));
    values.extend((-20_000..=20_000).map(|step| step as f32 * 5e-3));
    values.extend([0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN, f32::MIN_POSITIVE]);
    values.into_iter().map(f64::from).collect()
}

fn run(function: &str, vector_bytes: u64, values: &[f64]) -> Vec<f64> {
    let workload = Workload::parse(&format!("map n={} f={function} dtype=f32", values.len())).unwrap();
    let target = cpu_target(vector_bytes, 1);
    let plan = families::plan(&workload, &target).unwrap();
    let lowered = lower(&workload, &target, &plan.default).unwrap();
    let compiled = llvm::compile(&lowered.lane, &target.key).unwrap();
    let mut input = Aligned::new(DType::F32, values);
    let mut output = Aligned::new(DType::F32, values);
    let mut scratch = Aligned::poisoned(compiled.kernels()[0].scratch_bytes);
    let pointers = [input.start(), output.start()];
    // SAFETY: input and output have as many elements as the workload, scratch is as asked for.
    unsafe { compiled.call(0, &pointers, 0, 1, scratch.start()) };
    assert!(input.intact() && output.intact(), "the kernel wrote outside a buffer");
    output.values(DType::F32, values.len())
}

#[test]
fn functions_are_as_good_as_they_say() {
    type Exact = fn(f64) -> f64;
    let cases: [(&str, Exact, f64); 4] =
        [("exp", f64::exp, 1.1), ("log", f64::ln, 1.0), ("tanh", f64::tanh, 1.2), ("erf", libm::erf, 1.5)];
    let values = inputs();
    for (name, exact, most) in cases {
        for vector_bytes in [widest(), 32.min(widest()), 16] {
            let found = run(name, vector_bytes, &values);
            let mut worst = (0.0, 0.0);
            for (&x, &y) in values.iter().zip(&found) {
                let wanted = exact(x);
                let rounded = DType::F32.round(wanted);
                if rounded.is_nan() || rounded.is_infinite() {
                    assert!(y == rounded || y.is_nan() && rounded.is_nan(), "{name}({x}) is {y}, not {rounded}");
                    continue;
                }
                let error = (y - wanted).abs() / DType::F32.unit(wanted);
                assert!(error.is_finite(), "{name}({x}) is {y}, not {wanted}");
                if error > worst.0 {
                    worst = (error, x);
                }
            }
            println!("{name}, vectors of {vector_bytes} bytes: at most {:.2} ulp, at {:e}", worst.0, worst.1);
            assert!(worst.0 <= most, "{name}: {:.2} ulp at {:e}", worst.0, worst.1);
        }
    }
}
