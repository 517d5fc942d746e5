//! Schedule spaces: exact counts in a fraction of a second, uniform draws, fast neighbours.

use super::{Bar, Finding, Lab, lab, lavapipe};
use anyhow::{Context, bail};
use measure::{Features, FoundDevice, WorkerOptions, list_devices};
use rand::{RngExt as _, SeedableRng};
use rand_chacha::ChaCha8Rng;
use search_space::families::{SchedulePlan, plan};
use search_space::space::{Config, ParameterSpace};
use search_space::target::TargetKind;
use search_space::{Target, Workload};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Workloads whose spaces are counted on both devices: large, awkward, and a layer of a ResNet.
const WORKLOADS: &[&str] = &[
    "matmul m=4096 n=4096 k=4096 dtype=f32",
    "matmul m=1000 n=999 k=1001 dtype=f32",
    "conv2d n=1 h=28 w=28 c=128 k=128 r=3 s=3 stride=1 pad=1 dtype=f32",
];

const KINDS: [TargetKind; 2] = [TargetKind::Cpu, TargetKind::Vulkan];

pub(super) fn bars() -> Vec<Bar> {
    let mut bars = Vec::new();
    for workload in WORKLOADS {
        for kind in KINDS {
            let name: Vec<&str> = workload.split(' ').take(4).collect();
            bars.push(Bar::new(
                format!("space {} {}", name.join(" "), kind.as_str()),
                "counted exactly in < 0.3 s",
                move |lab| {
                    let target = match target(lab, kind) {
                        Ok(target) => target,
                        Err(reason) if kind == TargetKind::Vulkan && lavapipe::adapters().is_empty() => {
                            return Ok(Finding::Skipped(reason));
                        }
                        Err(reason) => bail!(reason),
                    };
                    let (plan, ms) = counted(workload, &target)?;
                    Ok(Finding::of(ms < 300.0, format!("{} in {ms:.1} ms", plan.space.count())))
                },
            ));
        }
    }
    bars.push(Bar::new("largest space", ">= 10^8 valid schedules", |lab| {
        let largest = largest(lab)?.count();
        Ok(Finding::of(largest >= 100_000_000, largest.to_string()))
    }));
    bars.push(Bar::new("nearest", ">= 20,000 per second in the largest space", |lab| {
        let rate = nearest_per_s(&largest(lab)?);
        Ok(Finding::of(rate >= 20_000.0, format!("{rate:.0} per second")))
    }));
    for (name, wanted, test) in [
        ("count = enumeration", "on random small systems", "compiled_space_equals_enumeration"),
        ("sample(1) is uniform", "chi-square", "exponent_one_is_uniform_and_one_half_is_not"),
        ("nearest = enumeration", "on random small systems", "nearest_equals_enumeration"),
        ("neighbours", "at least two each", "every_configuration_has_two_neighbours"),
    ] {
        bars.push(Bar::new(name, wanted, move |lab| cargo_test(lab, "tilewright-search-space", "space", test)));
    }
    bars
}

/// The first device of `kind`, or why there is none.
fn target(lab: &Lab, kind: TargetKind) -> Result<Target, String> {
    let options = WorkerOptions { executable: Some(lab.tilewright.clone()), ..WorkerOptions::default() };
    let mut missing = String::new();
    for device in list_devices(&options, &Features::default()) {
        match device {
            FoundDevice::Present { identity, .. } if identity.target.key.kind == kind => return Ok(identity.target),
            FoundDevice::Missing { spec, reason } if spec.starts_with(kind.as_str()) => missing = reason,
            _ => {}
        }
    }
    Err(missing)
}

/// The space of `workload`, and the milliseconds from its text to the exact count.
fn counted(workload: &str, target: &Target) -> anyhow::Result<(SchedulePlan, f64)> {
    let start = Instant::now();
    let parsed: Workload = workload.parse().with_context(|| workload.to_owned())?;
    let plan = plan(&parsed, target).with_context(|| workload.to_owned())?;
    if plan.space.count() == 0 {
        bail!("{workload} has no schedule");
    }
    Ok((plan, start.elapsed().as_secs_f64() * 1e3))
}

fn largest(lab: &Lab) -> anyhow::Result<ParameterSpace> {
    let mut largest: Option<ParameterSpace> = None;
    for target in KINDS.iter().filter_map(|&kind| target(lab, kind).ok()) {
        for workload in WORKLOADS {
            let space = counted(workload, &target)?.0.space;
            if largest.as_ref().is_none_or(|best| best.count() < space.count()) {
                largest = Some(space);
            }
        }
    }
    largest.context("no device here")
}

/// Repairs, mutations and crossovers in equal parts, drawn beforehand.
fn nearest_per_s(space: &ParameterSpace) -> f64 {
    const EACH: usize = 4000;
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let width = space.params().len();
    let any = |parameter: usize, rng: &mut ChaCha8Rng| {
        let values = space.params()[parameter].values.len();
        // Domains have at most 2^16 values: a configuration holds a `u16` for each parameter.
        u16::try_from(rng.random_range(0..values)).unwrap_or(0)
    };
    let mut queries: Vec<(Config, Vec<Option<u16>>)> = Vec::with_capacity(3 * EACH);
    for _ in 0..EACH {
        let noise: Vec<u16> = (0..width).map(|parameter| any(parameter, &mut rng)).collect();
        queries.push((noise.into(), Vec::new()));
        let mut fixed = vec![None; width];
        let parameter = rng.random_range(0..width);
        fixed[parameter] = Some(any(parameter, &mut rng));
        let (one, other) = (space.sample(&mut rng, 0.5), space.sample(&mut rng, 0.5));
        let child: Vec<u16> = one.iter().zip(other.iter()).map(|(&a, &b)| if rng.random() { a } else { b }).collect();
        queries.push((one, fixed));
        queries.push((child.into(), Vec::new()));
    }
    let start = Instant::now();
    let found = queries.iter().filter(|(config, fixed)| space.nearest(config, &[], fixed).is_some()).count();
    std::hint::black_box(found);
    // 12,000 at most, exact as a float.
    f64::from(u32::try_from(queries.len()).unwrap_or(u32::MAX)) / start.elapsed().as_secs_f64()
}

/// Runs one named test of `package`; a test that is not there is a failure.
fn cargo_test(lab: &Lab, package: &str, suite: &str, test: &str) -> anyhow::Result<Finding> {
    let mut command = Command::new("cargo");
    command.args(["test", "--package", package, "--test", suite, "--", "--exact", test]);
    command.current_dir(&lab.root).stdin(Stdio::null());
    let ran = lab::run(command, Duration::from_secs(1200))?;
    let line = ran.stdout.lines().rfind(|line| line.starts_with("test result:")).unwrap_or("no result");
    let passed = ran.code == 0 && line.contains("ok. 1 passed");
    Ok(Finding::of(passed, format!("{test}: {}", line.trim_start_matches("test result: "))))
}
