//! What this host is: processors, caches, features, circumstances.

use std::collections::BTreeMap;
use std::fs;

use codegen::emit::llvm;
use search_space::Outcome;
use search_space::Target;
use search_space::target::{Limits, TargetKey, TargetKind};

use crate::device::{Failure, Features, HOST_CPU, Identity};

/// Identity of the processor. `cores` are the processors the threads are pinned to.
pub(super) fn identity(threads: u64, features: &Features, cores: &[usize], pinned: bool) -> Result<Identity, Failure> {
    let (arch, host) = llvm::host_cpu();
    let features = features.choose(&host).map_err(|lacking| {
        let message =
            format!("the processor (or this process) lacks the feature {lacking}; it has {}", host.join(", "));
        Failure::new(Outcome::ResourceLimit, message)
    })?;
    let vector_bytes = if features.iter().any(|f| f == "avx512f") {
        64
    } else if features.iter().any(|f| f == "avx") {
        32
    } else {
        16
    };
    // AVX-512 doubles the number of registers, also of the narrower ones.
    let vector_registers = if vector_bytes == 64 { 32 } else { 16 };
    let limits = Limits {
        vector_bytes,
        vector_registers,
        l1_bytes: cache_bytes(1).unwrap_or(32 << 10),
        l2_bytes: cache_bytes(2).unwrap_or(256 << 10),
        shared_bytes: 0,
        workgroup_invocations: 0,
        grid_per_dim: 0,
        loop_iterations: 0,
        buffer_bytes: 0,
    };
    let key = TargetKey::new(TargetKind::Cpu, &TargetKey::word(&arch), "core", features, threads)
        .map_err(|error| Failure::new(Outcome::CompileError, error.to_string()))?;
    Ok(Identity {
        target: Target { key, limits },
        name: field(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default(), "model name").unwrap_or(arch),
        driver: "LLVM 22".into(),
        environment: environment(cores, pinned),
        resource: HOST_CPU.into(),
    })
}

fn environment(cores: &[usize], pinned: bool) -> BTreeMap<String, String> {
    let word = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_string());
    let unknown = || "unknown".to_string();
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let governor = word("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").unwrap_or_else(unknown);
    let huge = word("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_else(unknown);
    // `always [madvise] never`: the one in brackets is in force.
    let huge =
        huge.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(huge.clone(), |(word, _)| word.into());
    let pinned = if pinned { cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(",") } else { "no".into() };
    let flags = field(&info, "flags").unwrap_or_default();
    let virtual_machine = flags.split(' ').any(|flag| flag == "hypervisor");
    [
        ("cache", "warm".to_string()),
        ("governor", governor),
        ("huge_pages", huge),
        ("kernel", word("/proc/sys/kernel/osrelease").unwrap_or_else(unknown)),
        ("llc_bytes", last_level_bytes().map_or_else(unknown, |bytes| bytes.to_string())),
        ("microcode", field(&info, "microcode").unwrap_or_else(unknown)),
        ("pinned", pinned),
        ("virtual_machine", if virtual_machine { "yes" } else { "no" }.into()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_string(), value))
    .collect()
}

/// The first value of a field of `/proc/cpuinfo`.
fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
    line.split_once(':').map(|(_, value)| value.trim().to_string())
}

/// Size of the data or unified cache of a level; `None` when the system does not tell.
fn cache_bytes(level: u32) -> Option<u64> {
    caches().into_iter().find(|(l, _)| *l == level).map(|(_, bytes)| bytes)
}

fn last_level_bytes() -> Option<u64> {
    caches().into_iter().max().map(|(_, bytes)| bytes)
}

fn caches() -> Vec<(u32, u64)> {
    let read = |index: usize, file: &str| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{file}");
        fs::read_to_string(path).ok().map(|text| text.trim().to_string())
    };
    (0..8)
        .filter(|index| read(*index, "type").is_some_and(|kind| kind != "Instruction"))
        .filter_map(|index| {
            let size = read(index, "size")?;
            let kib: u64 = size.strip_suffix('K')?.parse().ok()?;
            Some((read(index, "level")?.parse().ok()?, kib << 10))
        })
        .collect()
}

/// Processors this process may run on, ascending.
pub(super) fn allowed_processors() -> Vec<usize> {
    // SAFETY: an all-zero set is a valid empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a valid set of the size given.
    let failed = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) } != 0;
    if failed {
        return vec![0];
    }
    let most = usize::try_from(libc::CPU_SETSIZE).unwrap_or(0);
    // SAFETY: every index is below the size of the set.
    (0..most).filter(|processor| unsafe { libc::CPU_ISSET(*processor, &set) }).collect()
}

/// Pins the calling thread; false when the system refuses.
pub(super) fn pin(processor: usize) -> bool {
    // SAFETY: an all-zero set is a valid empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the index comes from `allowed_processors`, so it is below the size of the set.
    unsafe { libc::CPU_SET(processor, &mut set) };
    // SAFETY: `set` is a valid set of the size given.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) == 0 }
}

/// What the calling thread used so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadUse {
    pub(super) cpu_ns: f64,
    pub(super) involuntary_switches: i64,
}

impl ThreadUse {
    pub(super) fn now() -> ThreadUse {
        // SAFETY: an all-zero rusage is valid.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `usage` is valid for the duration of the call.
        unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
        let mut clock = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `clock` is valid for the duration of the call.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut clock) };
        #[expect(clippy::cast_precision_loss, reason = "a worker does not run for months")]
        let cpu_ns = clock.tv_sec as f64 * 1e9 + clock.tv_nsec as f64;
        ThreadUse { cpu_ns, involuntary_switches: usage.ru_nivcsw }
    }

    pub(super) fn since(&self, before: &ThreadUse) -> ThreadUse {
        ThreadUse {
            cpu_ns: self.cpu_ns - before.cpu_ns,
            involuntary_switches: self.involuntary_switches - before.involuntary_switches,
        }
    }
}
