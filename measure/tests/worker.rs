//! Real worker processes on the real processor: what candidates may do to a night.

#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use search_space::families::plan;
use search_space::{Outcome, Schedule, Workload};
use tilewright_measure::device::fixtures::Fault;
use tilewright_measure::resource::Resource;
use tilewright_measure::{
    After, DeviceHandle, DeviceSpec, Error, Features, FinalistRole, FinalsOptions, FoundDevice, ScreenOptions, Verdict,
    WorkerOptions, list_devices,
};

fn options() -> WorkerOptions {
    WorkerOptions {
        executable: Some(PathBuf::from(env!("CARGO_BIN_EXE_tilewright-worker"))),
        timeout: Duration::from_secs(5),
        ..WorkerOptions::default()
    }
}

fn open(spec: &str, options: WorkerOptions) -> DeviceHandle {
    DeviceHandle::open(&spec.parse().unwrap(), options).unwrap()
}

fn matmul(size: u64) -> Workload {
    Workload::parse(&format!("matmul m={size} n={size} k={size} dtype=f32")).unwrap()
}

/// The default schedule and some random ones.
fn schedules(device: &DeviceHandle, workload: &Workload, count: usize) -> (Schedule, Vec<Schedule>) {
    use rand::SeedableRng;
    let plan = plan(workload, &device.identity().target).unwrap();
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(7);
    let drawn = (0..count).map(|_| plan.space.schedule(&plan.space.sample(&mut rng, 0.5))).collect();
    (plan.default, drawn)
}

fn screen(device: &mut DeviceHandle, workload: &Workload, schedule: &Schedule) -> tilewright_measure::Measured {
    device.measure(workload, schedule, &ScreenOptions::default()).unwrap()
}

#[test]
fn candidates_are_compiled_verified_and_timed() {
    let mut device = open("cpu", options());
    for workload in
        [matmul(64), Workload::parse("conv2d n=1 c=5 h=9 w=9 k=7 r=3 s=3 pad=1 bias=1 relu=1 dtype=f32").unwrap()]
    {
        let (default, drawn) = schedules(&device, &workload, 10);
        for schedule in drawn.iter().chain([&default]) {
            let measured = screen(&mut device, &workload, schedule);
            assert_eq!(measured.outcome, Outcome::Ok, "{schedule}: {:?}", measured.message);
            assert!(measured.samples_ns.len() >= 3 && measured.samples_ns.iter().all(|ns| *ns > 0.0));
            assert_eq!(measured.control_ns.len(), measured.samples_ns.len());
            assert!(!measured.kernel.program_hash.is_empty() && !measured.kernel.code_hash.is_empty());
            let parts = measured.breakdown;
            assert!(parts.compile_ns + parts.verify_ns + parts.time_ns <= parts.total_ns);
            assert!(parts.total_ns <= parts.round_trip_ns);
            device.hostile(&workload, schedule).unwrap().unwrap_or_else(|failure| panic!("{schedule}: {failure}"));
        }
    }
    assert_eq!(device.restarts(), 0);
}

#[test]
fn free_weights_are_packed_once_and_timed_apart() {
    let mut device = open("cpu", options());
    let free = "conv2d n=1 c=40 h=12 w=12 k=48 r=3 s=3 pad=1 dtype=f32 free_w=1 math=fast";
    let workload = Workload::parse(free).unwrap();
    let (default, _) = schedules(&device, &workload, 0);
    for (form, packing) in [("direct", "ahead"), ("direct", "panel"), ("winograd2", "ahead"), ("winograd4", "ahead")] {
        let mut schedule = default.clone();
        for (name, value) in [("mr", 3), ("th", 1), ("mt", 1)] {
            schedule.set(name, value);
        }
        schedule.set("form", form);
        schedule.set("pack_a", packing);
        // Tiles of 3 pixels divide rows of 12 pixels, of 6 tiles and of 3 tiles.
        schedule.set("tail", "-");
        let measured = screen(&mut device, &workload, &schedule);
        assert_eq!(measured.outcome, Outcome::Ok, "{schedule}: {:?}", measured.message);
        assert_eq!(measured.prepack_ns > 0.0, packing == "ahead", "{schedule}");
        device.hostile(&workload, &schedule).unwrap().unwrap_or_else(|failure| panic!("{schedule}: {failure}"));
    }
    assert_eq!(device.restarts(), 0);
}

#[test]
fn a_schedule_of_another_space_is_a_compile_error() {
    let mut device = open("cpu", options());
    let schedule: Schedule = [("mr", 3.into())].into_iter().collect();
    let measured = screen(&mut device, &matmul(16), &schedule);
    assert_eq!(measured.outcome, Outcome::CompileError);
    assert!(measured.samples_ns.is_empty() && measured.message.is_some());
    assert_eq!(device.restarts(), 0);
}

#[test]
fn each_fault_costs_its_timeout_and_one_restart_and_has_its_class() {
    let workload = matmul(32);
    let timeout = Duration::from_secs(2);
    let faults = [
        (Fault::Hang, Outcome::Timeout),
        (Fault::Stubborn, Outcome::Timeout),
        (Fault::Crash, Outcome::Crash),
        (Fault::Memory, Outcome::ResourceLimit),
        (Fault::Wrong, Outcome::Wrong),
        (Fault::Silent, Outcome::Wrong),
        (Fault::Close, Outcome::Crash),
        (Fault::Garbage, Outcome::Crash),
        (Fault::Flood, Outcome::Ok),
    ];
    for (fault, outcome) in faults {
        let word = Fault::ALL.iter().find(|(known, _)| *known == fault).unwrap().1;
        let options =
            WorkerOptions { timeout: if fault == Fault::Flood { timeout * 10 } else { timeout }, ..options() };
        let mut device = open(&format!("fixture:{word}/2"), options);
        let DeviceSpec::Fixture(rule) = device.spec().clone() else { unreachable!() };
        let (_, drawn) = schedules(&device, &workload, 40);
        let good = drawn.iter().find(|schedule| rule.fault_of(schedule).is_none()).unwrap();
        let bad = drawn.iter().find(|schedule| rule.fault_of(schedule).is_some()).unwrap();
        assert_eq!(screen(&mut device, &workload, good).outcome, Outcome::Ok);
        let first_worker = device.worker_id();
        let start = Instant::now();
        let measured = screen(&mut device, &workload, bad);
        let cost = start.elapsed();
        assert_eq!(measured.outcome, outcome, "{word}: {:?}", measured.message);
        if fault == Fault::Flood {
            continue;
        }
        assert!(measured.samples_ns.is_empty() && measured.median_ns().is_none());
        assert_eq!(screen(&mut device, &workload, good).outcome, Outcome::Ok, "after {word}");
        let survives = outcome == Outcome::Wrong;
        assert_eq!(device.restarts(), u32::from(!survives), "{word}");
        assert_eq!(device.worker_id() == first_worker, survives, "{word}");
        // Generous beside the timeout: these tests share their processor with others.
        assert!(cost < timeout + Duration::from_secs(2), "{word} cost {cost:?}");
        println!("{word}: {outcome}, {:.2} s: {}", cost.as_secs_f64(), measured.message.unwrap_or_default());
    }
}

#[test]
fn a_lost_device_costs_a_restart_and_is_given_up_when_it_stays_lost() {
    let workload = matmul(32);
    let mut device = open("fixture:lost/2", options());
    let DeviceSpec::Fixture(rule) = device.spec().clone() else { unreachable!() };
    let (_, drawn) = schedules(&device, &workload, 40);
    let (bad, good): (Vec<Schedule>, Vec<Schedule>) = drawn.into_iter().partition(|s| rule.fault_of(s).is_some());
    assert_eq!(screen(&mut device, &workload, &bad[0]).outcome, Outcome::LostDevice);
    assert_eq!(screen(&mut device, &workload, &good[0]).outcome, Outcome::Ok);
    assert_eq!(device.restarts(), 1);
    let mut device = open("fixture:lost/1", WorkerOptions { give_up_after: 2, ..options() });
    assert_eq!(screen(&mut device, &workload, &bad[0]).outcome, Outcome::LostDevice);
    let error = device.measure(&workload, &bad[0], &ScreenOptions::default()).unwrap_err();
    assert!(matches!(error, Error::GivenUp { failures: 2, .. }), "{error}");
}

#[test]
fn a_kernel_that_flickers_can_be_timed_but_never_wins() {
    let mut device = open("fixture:flicker/2", options());
    let DeviceSpec::Fixture(rule) = device.spec().clone() else { unreachable!() };
    let workload = matmul(32);
    let (_, drawn) = schedules(&device, &workload, 40);
    let (bad, good): (Vec<Schedule>, Vec<Schedule>) = drawn.into_iter().partition(|s| rule.fault_of(s).is_some());
    assert_eq!(screen(&mut device, &workload, &bad[0]).outcome, Outcome::Ok);
    let failure = device.hostile(&workload, &bad[0]).unwrap().unwrap_err();
    assert!(failure.outcome == Outcome::Wrong && failure.message.contains("two runs gave different bits"), "{failure}");
    let options = FinalsOptions { budget_s: 1.0, ..Default::default() };
    let finals = device.finals(&workload, &bad[..3], &good[0], None, &options).unwrap();
    assert!(matches!(finals.verdict, Verdict::NoGain { best: None, .. }), "{:?}", finals.verdict);
    assert!(finals.entries[..3].iter().all(|entry| entry.outcome == Outcome::Wrong));
}

#[test]
fn what_a_dying_worker_printed_is_shown_in_full_the_first_time() {
    let mut device = open("fixture:memory/1", options());
    let workload = matmul(16);
    let (default, _) = schedules(&device, &workload, 0);
    let first = screen(&mut device, &workload, &default).message.unwrap();
    assert!(first.contains("it printed: ") && first.contains("memory allocation of"), "{first}");
    let second = screen(&mut device, &workload, &default).message.unwrap();
    assert!(second.contains("out of memory") && !second.contains("it printed: "), "{second}");
}

#[test]
fn a_device_that_always_fails_is_given_up_by_name() {
    let mut device = open("fixture:crash/1", WorkerOptions { give_up_after: 3, ..options() });
    let workload = matmul(16);
    let (default, _) = schedules(&device, &workload, 0);
    let mut outcomes = Vec::new();
    let error = loop {
        match device.measure(&workload, &default, &ScreenOptions::default()) {
            Ok(measured) => outcomes.push(measured.outcome),
            Err(error) => break error,
        }
    };
    assert_eq!(outcomes, [Outcome::Crash; 2]);
    assert!(matches!(error, Error::GivenUp { failures: 3, .. }));
    let message = error.to_string();
    assert!(message.contains("fixture:crash/1 failed 3 times in a row") && message.contains("SIGSEGV"), "{message}");
}

#[test]
fn bad_finalists_leave_and_a_verdict_follows() {
    let mut device = open("fixture:all/3", WorkerOptions { timeout: Duration::from_secs(2), ..options() });
    let DeviceSpec::Fixture(rule) = device.spec().clone() else { unreachable!() };
    let workload = matmul(48);
    let (_, drawn) = schedules(&device, &workload, 60);
    // These two are found out only when chosen, or not at all: a flood is a nuisance, no fault of the kernel.
    let tame = |fault: Fault| !matches!(fault, Fault::Flood | Fault::Flicker);
    let bad: Vec<Schedule> = drawn.iter().filter(|s| rule.fault_of(s).is_some_and(tame)).take(3).cloned().collect();
    let good: Vec<Schedule> = drawn.iter().filter(|s| rule.fault_of(s).is_none()).take(4).cloned().collect();
    let candidates: Vec<Schedule> = bad.iter().chain(&good[1..]).cloned().collect();
    let options = FinalsOptions { budget_s: 2.0, ..Default::default() };
    let finals = device.finals(&workload, &candidates, &good[0], None, &options).unwrap();
    for (entry, schedule) in finals.entries.iter().zip(&candidates) {
        assert_eq!(entry.outcome == Outcome::Ok, rule.fault_of(schedule).is_none(), "{:?}", entry.message);
    }
    assert!(finals.workers >= 3 && finals.workers <= 6, "{} workers", finals.workers);
    assert!(!matches!(finals.verdict, Verdict::NoDefault { .. }));
    let chosen = finals.chosen().unwrap();
    assert!(rule.fault_of(&chosen.schedule).is_none());
    if let Verdict::Winner { over_default, .. } = finals.verdict {
        assert!(over_default.low > 1.0 && over_default.low <= over_default.speedup);
        assert_ne!(chosen.role, FinalistRole::Default);
    }
}

#[test]
fn workers_end_with_their_handle_and_leave_no_descriptor_behind() {
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mut device = open("cpu", options());
    let workload = matmul(16);
    let (default, _) = schedules(&device, &workload, 0);
    screen(&mut device, &workload, &default);
    let id = device.worker_id().unwrap();
    drop(device);
    assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
    // Other tests of this process open and close descriptors meanwhile, so a leak shows only as steady growth.
    let before = descriptors();
    for _ in 0..40 {
        drop(open("cpu", options()));
    }
    let after = descriptors();
    assert!(after < before + 40, "{before} descriptors before, {after} after 40 workers");
}

/// Names the file into which a tuner that is to be killed writes the process id of its worker.
const VICTIM: &str = "TILEWRIGHT_TEST_VICTIM";

/// No test by itself: the tuner that [`workers_die_with_their_tuner`] kills.
#[test]
fn the_tuner_that_is_killed() {
    let Ok(file) = std::env::var(VICTIM) else { return };
    if let Some(file) = file.strip_prefix("deaf:") {
        // A worker that never reads its stdin, so that only the signal of the dying parent can end it.
        let script = format!("echo $$ > {file}.new; mv {file}.new {file}; exec sleep 60");
        let options = WorkerOptions {
            executable: Some("/bin/sh".into()),
            args: vec!["-c".into(), script],
            open_timeout: Duration::from_secs(60),
            ..options()
        };
        let _ = DeviceHandle::open(&DeviceSpec::cpu(1), options);
        return;
    }
    let mut device = open("fixture:hang/1", WorkerOptions { timeout: Duration::from_secs(60), ..options() });
    let workload = matmul(16);
    let (default, _) = schedules(&device, &workload, 0);
    let new = format!("{file}.new");
    std::fs::write(&new, device.worker_id().unwrap().to_string()).unwrap();
    std::fs::rename(&new, &file).unwrap();
    screen(&mut device, &workload, &default);
}

#[test]
fn workers_die_with_their_tuner() {
    let folder = tempfile::tempdir().unwrap();
    for kind in ["", "deaf:"] {
        let file = folder.path().join(format!("worker{}", kind.len()));
        let mut tuner = tuner(&format!("{kind}{}", file.display()));
        let start = Instant::now();
        let id = loop {
            if let Ok(id) = std::fs::read_to_string(&file) {
                break id.trim().to_string();
            }
            assert!(start.elapsed() < Duration::from_secs(60), "no worker came up");
            std::thread::sleep(Duration::from_millis(10));
        };
        // Into the hanging kernel.
        std::thread::sleep(Duration::from_millis(500));
        let lives = || std::fs::read_link(format!("/proc/{id}/exe")).is_ok();
        assert!(lives());
        tuner.kill().unwrap();
        tuner.wait().unwrap();
        let start = Instant::now();
        while lives() {
            assert!(start.elapsed() < Duration::from_secs(10), "worker {id} outlived its tuner ({kind})");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the process under test is not a worker")]
fn tuner(victim: &str) -> std::process::Child {
    use std::process::{Command, Stdio};
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_tuner_that_is_killed"])
        .env(VICTIM, victim)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn no_clock_runs_while_another_holds_the_processor() {
    let mut device = open("cpu", WorkerOptions { resource_timeout: Duration::from_millis(100), ..options() });
    let workload = matmul(16);
    let (default, _) = schedules(&device, &workload, 0);
    let resource = Resource::open(&device.identity().resource).unwrap();
    let held = resource.hold(Duration::from_secs(120)).unwrap();
    let error = device.measure(&workload, &default, &ScreenOptions::default()).unwrap_err();
    assert!(matches!(error, Error::ResourceBusy { .. }), "{error}");
    drop(held);
}

#[test]
fn several_threads_compute_the_same() {
    let mut device = match DeviceHandle::open(&DeviceSpec::cpu(2), options()) {
        Ok(device) => device,
        Err(error) => {
            println!("skipped: {error}");
            return;
        }
    };
    let workload = matmul(96);
    let (default, drawn) = schedules(&device, &workload, 12);
    for schedule in drawn.iter().chain([&default]) {
        let measured = screen(&mut device, &workload, schedule);
        assert_eq!(measured.outcome, Outcome::Ok, "{schedule}: {:?}", measured.message);
    }
    assert!(drawn.iter().any(|schedule| schedule.name("par").is_some_and(|par| par != "-")), "none is parallel");
}

/// A share that nobody takes leaves rows unwritten, one that is taken twice is only slower: verification sees the first.
#[test]
fn shares_are_taken_by_whoever_is_free() {
    let mut device = match DeviceHandle::open(&DeviceSpec::cpu(2), options()) {
        Ok(device) => device,
        Err(error) => {
            println!("skipped: {error}");
            return;
        }
    };
    for text in ["softmax rows=301 cols=77 dtype=f32", "attention heads=3 q=65 d=24 causal=1 dtype=f32"] {
        let workload = Workload::parse(text).unwrap();
        let (mut schedule, _) = schedules(&device, &workload, 0);
        for shares in [1, 4, 16] {
            schedule.set("shares", shares);
            let measured = screen(&mut device, &workload, &schedule);
            assert_eq!(measured.outcome, Outcome::Ok, "{schedule}: {:?}", measured.message);
        }
    }
}

#[test]
fn missing_things_are_named() {
    let nowhere = WorkerOptions { executable: Some("/nonexistent/worker".into()), ..options() };
    let error = DeviceHandle::open(&DeviceSpec::cpu(1), nowhere).unwrap_err();
    assert!(matches!(error, Error::Spawn { .. }) && error.to_string().contains("/nonexistent/worker"), "{error}");
    let error = DeviceHandle::open(&DeviceSpec::cpu(1000), options()).unwrap_err();
    assert!(error.to_string().contains("1000 threads asked for"), "{error}");
    let found = list_devices(&options(), &Features::default());
    assert!(matches!(&found[0], FoundDevice::Present { spec: DeviceSpec::Cpu { .. }, .. }), "{found:?}");
    assert!(found.len() > 1, "Vulkan is listed, present or missing");
}

#[test]
fn peaks_and_drift_are_known() {
    let mut device = open("cpu", options());
    let peak = device.peak().unwrap().unwrap();
    assert!(peak.flops_per_s > 1e8 && peak.bytes_per_s > 1e7, "{peak:?}");
    println!("{peak:?}");
}

#[test]
fn a_memory_cap_that_is_exceeded_slowly_is_seen_from_outside() {
    // No address-space limit here would help: the cap is on resident memory, as for drivers of GPUs.
    let workload = Workload::parse("matmul m=6000 n=6000 k=1 dtype=f32").unwrap();
    let mut device = open("cpu", WorkerOptions { memory_bytes: 600 << 20, ..options() });
    let (default, _) = schedules(&device, &workload, 0);
    let error = device.measure(&workload, &default, &ScreenOptions::default()).unwrap_err();
    assert!(error.to_string().contains("memory") || error.to_string().contains("MiB"), "{error}");
}

#[test]
fn the_time_of_a_candidate_goes_into_compiling_checking_and_timing() {
    let mut device = open("cpu", options());
    let workload = matmul(256);
    let (default, drawn) = schedules(&device, &workload, 60);
    let mut best = screen(&mut device, &workload, &default).median_ns().unwrap();
    let start = Instant::now();
    let (mut compile, mut verify, mut time, mut total, mut waited, mut count) = (0, 0, 0, 0, 0, 0u32);
    for schedule in &drawn {
        let options = ScreenOptions { cutoff_ns: Some(best), ..Default::default() };
        let measured = device.measure(&workload, schedule, &options).unwrap();
        assert_eq!(measured.outcome, Outcome::Ok, "{schedule}: {:?}", measured.message);
        best = best.min(measured.median_ns().unwrap_or(best));
        let parts = measured.breakdown;
        compile += parts.compile_ns;
        verify += parts.verify_ns;
        time += parts.time_ns;
        total += parts.round_trip_ns;
        waited += parts.wait_ns;
        count += 1;
    }
    let rate = f64::from(count) / start.elapsed().saturating_sub(Duration::from_nanos(waited)).as_secs_f64();
    println!(
        "{rate:.1} candidates/s; per candidate compile {:.1} ms, verify {:.1} ms, time {:.1} ms, all {:.1} ms; best {:.0} us",
        per(compile, count),
        per(verify, count),
        per(time, count),
        per(total, count),
        best / 1e3
    );
    // Asking costs little, whatever else runs on the machine.
    assert!(compile + verify + time > total / 2, "most of the time is spent elsewhere");
}

#[test]
fn reading_what_was_written_is_part_of_the_time_where_asked_for() {
    // The output is 16 MiB and hardly computed, so that reading it is a good part of the whole.
    let workload = Workload::parse("matmul m=2048 n=2048 k=1 dtype=f32").unwrap();
    let mut device = open("cpu", options());
    let (default, _) = schedules(&device, &workload, 0);
    let mut least = |after| {
        let options = ScreenOptions { after, samples: 40, budget_ns: 500e6, ..Default::default() };
        let measured = device.measure(&workload, &default, &options).unwrap();
        assert_eq!(measured.outcome, Outcome::Ok, "{:?}", measured.message);
        measured.samples_ns.into_iter().fold(f64::INFINITY, f64::min)
    };
    let (alone, read) = (least(After::Nothing), least(After::ReadOutputs));
    assert!(read > 1.1 * alone, "{alone} {read}");
}

fn per(ns: u64, count: u32) -> f64 {
    Duration::from_nanos(ns).as_secs_f64() * 1e3 / f64::from(count)
}

#[test]
fn a_candidate_does_not_run_before_its_tuner_says_so() {
    let mut device = open("fixture:crash/1", options());
    let workload = matmul(16);
    let (default, _) = schedules(&device, &workload, 0);
    let status = format!("/proc/{}/stat", device.worker_id().unwrap());
    let lives = || std::fs::read_to_string(&status).is_ok_and(|stat| !stat.contains(") Z"));
    let mut go = || {
        // Long enough to compile; run, this candidate kills the worker at once.
        std::thread::sleep(Duration::from_millis(500));
        assert!(lives(), "the candidate ran before it was allowed to");
        false
    };
    let withheld = device.measure_when(&workload, &default, &ScreenOptions::default(), &mut go);
    assert!(matches!(withheld, Err(Error::Withheld)), "{withheld:?}");
    assert!(!lives(), "a worker that waits for leave is not used again");
    let measured = device.measure_when(&workload, &default, &ScreenOptions::default(), &mut || true).unwrap();
    assert_eq!(measured.outcome, Outcome::Crash);
}

#[test]
fn a_fresh_worker_finds_what_the_one_before_it_computed() {
    let mut device = open("fixture:crash/2", options());
    let DeviceSpec::Fixture(rule) = device.spec().clone() else { unreachable!() };
    let workload = matmul(96);
    let (_, drawn) = schedules(&device, &workload, 40);
    // One that the other workload has, too.
    let others = plan(&matmul(97), &device.identity().target).unwrap().space;
    let shared = |schedule: &&Schedule| others.config(schedule).is_ok_and(|config| others.contains(&config));
    let good = drawn.iter().filter(shared).find(|schedule| rule.fault_of(schedule).is_none()).unwrap();
    let bad = drawn.iter().find(|schedule| rule.fault_of(schedule).is_some()).unwrap();
    let loading = |device: &mut DeviceHandle, workload: &Workload| {
        let measured = screen(device, workload, good);
        assert_eq!(measured.outcome, Outcome::Ok, "{:?}", measured.message);
        measured.breakdown.loading
    };
    let first = loading(&mut device, &workload);
    assert!(first.case_ns > 0 && first.spared_ns >= first.case_ns && first.total_ns > first.spared_ns, "{first:?}");
    assert_eq!(loading(&mut device, &workload).total_ns, 0, "it is loaded");
    assert_eq!(screen(&mut device, &workload, bad).outcome, Outcome::Crash);
    let second = loading(&mut device, &workload);
    assert!(second.total_ns > 0 && second.spared_ns == 0 && second.case_ns == 0, "{second:?}");
    // What is kept is that of one workload.
    let other = matmul(97);
    assert!(loading(&mut device, &other).case_ns > 0);
    assert!(loading(&mut device, &workload).case_ns > 0);

    let mut device = open("fixture:crash/2", WorkerOptions { shelf_bytes: 1 << 10, ..options() });
    assert_eq!(loading(&mut device, &workload).spared_ns, 0, "more than may be kept");
    assert_eq!(screen(&mut device, &workload, bad).outcome, Outcome::Crash);
    assert!(loading(&mut device, &workload).case_ns > 0);
}
