//! What a Vulkan device must never do. Without one these tests print `skipped` and the reason.

use codegen::lane::build::Builder;
use codegen::lane::{self, Address, CmpOp, Mem};
use codegen::lower::simt::{check_limits, loop_iterations};
use codegen::tile::Buffer;
use search_space::families;
use search_space::workload::{DType, MatmulSpec};

use super::*;
use crate::verify::Suite;

fn device() -> Option<VulkanDevice> {
    match VulkanDevice::open(0) {
        Ok(device) => Some(device),
        Err(failure) => {
            eprintln!("skipped: {failure}");
            None
        }
    }
}

fn matmul() -> Workload {
    MatmulSpec::new(32, 32, 32).workload().expect("sizes are small")
}

/// The buffers of a workload, and a kernel on them whose code `body` writes.
fn program(workload: &Workload, workgroup: u64, body: impl FnOnce(&mut Builder)) -> lane::Program {
    let output = workload.outputs()[0];
    let buffer = |i: usize| Buffer {
        name: workload.operands[i].name.clone(),
        source: codegen::tile::Source::Operand(i),
        dtype: DType::F32,
        len: workload.operand_len(i),
        align: 64,
        access: if i == output { codegen::tile::Access::ReadWrite } else { codegen::tile::Access::Read },
        stream: false,
    };
    let buffers = (0..workload.operands.len()).map(buffer).collect();
    let mut builder = Builder::new("seeded", Phase::Run, buffers, [workgroup, 1, 1]);
    body(&mut builder);
    lane::Program { kernels: vec![builder.finish()], workspace_bytes: Vec::new() }
}

/// `c[0] = 1`, by the first lane.
fn store_one(b: &mut Builder) {
    let at = Address { mem: Mem::Buffer(2), index: b.index_const(0), offset: 0, align: 4 };
    let one = b.float(lane::Type::F32, 1.0);
    b.store(at, one, None);
}

#[test]
fn an_invalid_pipeline_is_an_error_and_never_a_time() {
    let Some(mut device) = device() else { return };
    let workload = matmul();
    let limits = device.identity.target.limits.clone();
    let oversized = program(&workload, limits.workgroup_invocations * 2, store_one);
    // The check before the driver refuses it, and so does the device when that check is bypassed.
    assert!(check_limits(&oversized.kernels[0], &limits).is_err());
    let failure = device.build(&workload, &oversized, String::new()).unwrap_err();
    assert_eq!(failure.outcome, Outcome::CompileError, "{failure}");
    // A refusal is this candidate's alone: the next one is compiled, checked and timed.
    let schedule = families::plan(&workload, &device.identity.target).unwrap().default;
    let mut kernel = device.compile(&workload, &schedule).unwrap();
    let mut memory = device.allocate(&workload, Placement::Guarded).unwrap();
    Suite::new(&workload).unwrap().check(&mut device, &mut kernel, &mut memory).unwrap();
}

#[test]
fn an_invalid_launch_is_an_error_and_never_a_time() {
    let Some(mut device) = device() else { return };
    let workload = matmul();
    let mut wide = program(&workload, 1, store_one);
    wide.kernels[0].grid = [device.identity.target.limits.grid_per_dim + 1, 1, 1];
    let mut kernel = device.build(&workload, &wide, String::new()).expect("one workgroup of it is valid");
    let mut memory = device.allocate(&workload, Placement::Guarded).unwrap();
    for failure in [
        device.run(&mut kernel, &mut memory).unwrap_err(),
        device.time_batch(&mut kernel, &mut memory, 3, After::Nothing).unwrap_err(),
    ] {
        assert_eq!(failure.outcome, Outcome::CompileError, "{failure}");
    }
}

#[test]
fn a_kernel_that_writes_nothing_is_wrong() {
    let Some(mut device) = device() else { return };
    let workload = matmul();
    let schedule = families::plan(&workload, &device.identity.target).unwrap().default;
    let mut suite = Suite::new(&workload).unwrap();
    let mut memory = device.allocate(&workload, Placement::Guarded).unwrap();
    // The right result is there from a run before.
    let mut good = device.compile(&workload, &schedule).unwrap();
    suite.check(&mut device, &mut good, &mut memory).unwrap();
    let mut idle = device.build(&workload, &program(&workload, 1, |_| ()), "idle".into()).unwrap();
    let failure = suite.check(&mut device, &mut idle, &mut memory).unwrap_err();
    assert_eq!(failure.outcome, Outcome::Wrong, "{failure}");
}

#[test]
fn more_loop_iterations_than_the_driver_runs_are_over_the_limit() {
    let Some(mut device) = device() else { return };
    let workload = matmul();
    let count = |turns: i64| {
        program(&workload, 1, move |b| {
            let [zero, one, end] = [0, 1, turns].map(|value| b.index_const(value));
            let sum = b.slot(lane::Type::F32);
            let start = b.float(lane::Type::F32, 0.0);
            b.set(sum, start);
            b.for_loop(zero, end, one, |b, _| {
                let (sum_now, step) = (b.read(sum), b.float(lane::Type::F32, 1.0));
                let next = b.bin(lane::BinOp::Add, sum_now, step);
                b.set(sum, next);
            });
            let at = Address { mem: Mem::Buffer(2), index: zero, offset: 0, align: 4 };
            let total = b.read(sum);
            b.store(at, total, None);
        })
    };
    let limits = device.identity.target.limits.clone();
    let mut counted = |turns: i64| {
        let program = count(turns);
        let mut kernel = device.build(&workload, &program, String::new()).unwrap();
        let mut memory = device.allocate(&workload, Placement::Guarded).unwrap();
        device.run(&mut kernel, &mut memory).unwrap();
        let bytes = device.read(&mut memory, 2).unwrap();
        let total = f32::from_ne_bytes(bytes[..4].try_into().unwrap());
        (check_limits(&program.kernels[0], &limits).is_ok(), total)
    };
    assert_eq!(counted(64_999), (true, 64_999.0));
    let (allowed, total) = counted(70_000);
    assert!(!allowed || total.to_bits() == 70_000f32.to_bits(), "{total} of 70000 iterations, and nobody said so");
    assert_eq!(loop_iterations(&count(70_000).kernels[0]), 70_000);
}

#[test]
fn a_write_outside_the_operand_is_seen() {
    let Some(mut device) = device() else { return };
    let workload = matmul();
    let memory = device.allocate(&workload, Placement::Guarded).unwrap();
    let regions: Vec<_> = memory.operands.iter().collect();
    assert_eq!(memory::trespass(&device.gpu, &regions).unwrap(), None);
    memory.operands[1].write_at(&device.gpu, workload.operand_len(1) * 4, &[0; 4]).unwrap();
    assert_eq!(memory::trespass(&device.gpu, &regions).unwrap(), Some((1, "after")));
}

#[test]
fn time_stamps_agree_with_the_host_clock() {
    let instance = adapter::instance();
    let Ok(found) = adapter::find(&instance, 0) else {
        eprintln!("skipped: there is no Vulkan device");
        return;
    };
    if !found.features().contains(wgpu::Features::TIMESTAMP_QUERY) {
        eprintln!("skipped: the device has no time stamps");
        return;
    }
    let workload = MatmulSpec::new(128, 128, 128).workload().unwrap();
    let mut device = VulkanDevice::with(&found, true).unwrap();
    assert!(matches!(device.clock, Clock::Device { .. }));
    let schedule = families::plan(&workload, &device.identity.target).unwrap().default;
    let mut kernel = device.compile(&workload, &schedule).unwrap();
    let mut memory = device.allocate(&workload, Placement::Plain { round: 3 }).unwrap();
    let start = Instant::now();
    let stamped = device.time_batch(&mut kernel, &mut memory, 4, After::Nothing).unwrap().ns;
    let host = start.elapsed().as_secs_f64() * 1e9;
    assert!(stamped > 0.0 && stamped <= host, "stamps say {stamped} ns, the host {host} ns");
}

#[test]
fn a_device_that_is_not_there_is_one_clear_line() {
    let failure = VulkanDevice::open(1000).unwrap_err();
    assert_eq!(failure.outcome, Outcome::LostDevice);
    assert!(!failure.message.contains('\n'), "{failure}");
}

#[test]
fn one_lane_and_conditionals_run() {
    let Some(mut device) = device() else { return };
    let workload = matmul();
    let program = program(&workload, 4, |b| {
        let lane = b.builtin(lane::Builtin::Lane);
        let two = b.index_const(2);
        let second = b.cmp(CmpOp::Eq, lane, two);
        b.if_else(second, store_one, |_| ());
    });
    let mut kernel = device.build(&workload, &program, String::new()).unwrap();
    let mut memory = device.allocate(&workload, Placement::Guarded).unwrap();
    device.write(&mut memory, 2, &[0xff; 4096]).unwrap();
    device.run(&mut kernel, &mut memory).unwrap();
    let bytes = device.read(&mut memory, 2).unwrap();
    assert_eq!(bytes[..4], 1f32.to_ne_bytes());
    assert!(bytes[4..].iter().all(|&byte| byte == 0xff));
}
