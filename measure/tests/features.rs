//! The processor with some of its features switched off: the target says so, and the same workloads verify.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test ends at the first surprise")]

use std::path::PathBuf;
use std::time::Duration;

use search_space::families::plan;
use search_space::{Outcome, Workload};
use tilewright_measure::{DeviceHandle, DeviceSpec, Features, ScreenOptions, WorkerOptions};

fn open(features: &str) -> Result<DeviceHandle, tilewright_measure::Error> {
    let options = WorkerOptions {
        executable: Some(PathBuf::from(env!("CARGO_BIN_EXE_tilewright-worker"))),
        timeout: Duration::from_secs(5),
        ..WorkerOptions::default()
    };
    let features: Features = features.parse().unwrap();
    DeviceHandle::open(&DeviceSpec::Cpu { threads: 1, features }, options)
}

#[test]
fn the_same_workloads_verify_with_features_switched_off() {
    let workloads = [
        "matmul m=65 n=70 k=67 dtype=bf16",
        "matmul m=33 n=130 k=70 dtype=i8",
        "matmul m=64 n=64 k=96 dtype=bf16 tb=1 bias=1 act=gelu_tanh",
        "conv2d n=1 c=5 h=9 w=9 k=7 r=3 s=3 pad=1 dtype=bf16",
        "matmul m=40 n=50 k=60 dtype=f32",
    ];
    for (features, vector_bytes) in [("", None), ("-amx-tile", None), ("avx2,fma", Some(32)), ("none", Some(16))] {
        let mut device = match open(features) {
            Ok(device) => device,
            Err(error) => {
                println!("skipped {features}: {error}");
                continue;
            }
        };
        let target = device.identity().target.clone();
        if let Some(bytes) = vector_bytes {
            assert_eq!(target.limits.vector_bytes, bytes, "{}", target.key);
            assert_eq!(target.limits.vector_registers, 16, "{}", target.key);
        }
        if features == "avx2,fma" {
            assert!(target.key.to_string().contains(";avx,avx2,fma;"), "{}", target.key);
        }
        for workload in workloads {
            let workload = Workload::parse(workload).unwrap();
            let schedule = plan(&workload, &target).unwrap().default;
            let measured = device.measure(&workload, &schedule, &ScreenOptions::default()).unwrap();
            let what = format!("{} on {} with {schedule}: {:?}", workload.summary(), target.key, measured.message);
            assert_eq!(measured.outcome, Outcome::Ok, "{what}");
        }
        assert_eq!(device.restarts(), 0);
    }
}

#[test]
fn without_its_feature_a_type_is_refused_by_name() {
    let device = open("none").unwrap();
    let half = Workload::parse("matmul m=8 n=8 k=8 dtype=f16").unwrap();
    let error = plan(&half, &device.identity().target).unwrap_err().to_string();
    assert!(error.contains("f16c"), "{error}");
}
