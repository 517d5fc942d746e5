//! Targets and random workloads for property tests and examples of every backend, so that all are tested on the same
//! kind of problem: odd, prime, 1, strided, padded, dilated, grouped. Nothing outside tests uses them.

use rand::{Rng, RngExt};

use crate::target::{Limits, Target, TargetKey, TargetKind};
use crate::workload::{Conv2dSpec, DType, MatmulSpec, Storage, Workload};

/// A CPU of LLVM's name `arch` with vectors of `vector_bytes` and small caches.
///
/// # Panics
/// When `arch` or a feature is no word of a target key.
#[must_use]
pub fn cpu_target(arch: &str, features: &[&str], vector_bytes: u64, threads: u64) -> Target {
    let key = TargetKey::new(TargetKind::Cpu, arch, "core", features.iter().copied(), threads);
    let limits = Limits {
        vector_bytes,
        vector_registers: if vector_bytes == 64 { 32 } else { 16 },
        l1_bytes: 32 << 10,
        l2_bytes: 256 << 10,
        shared_bytes: 0,
        workgroup_invocations: 0,
        grid_per_dim: 0,
        loop_iterations: u64::MAX,
        buffer_bytes: u64::MAX,
    };
    Target { key: key.expect("the caller gives legal words"), limits }
}

/// A Vulkan device with the limits of lavapipe.
///
/// # Panics
/// Never: its words are legal.
#[must_use]
pub fn workgroup_target() -> Target {
    let key = TargetKey::new(TargetKind::Vulkan, "10005.0", "llvmpipe", [""; 0], 1);
    let limits = Limits {
        vector_bytes: 16,
        vector_registers: 64,
        l1_bytes: 0,
        l2_bytes: 0,
        shared_bytes: 32 << 10,
        workgroup_invocations: 1024,
        grid_per_dim: 65_535,
        loop_iterations: 65_000,
        buffer_bytes: 128 << 20,
    };
    Target { key: key.expect("invariant: legal words"), limits }
}

/// A small random matmul or convolution, sometimes with rows longer than needed.
///
/// # Panics
/// Never: the sizes are small.
pub fn contraction(rng: &mut impl Rng) -> Workload {
    let mut workload = if rng.random_bool(0.5) { matmul(rng) } else { convolution(rng) };
    // Rows longer than needed, as in a slice of a larger tensor.
    if rng.random_bool(0.3) {
        for operand in &mut workload.operands {
            let Storage::Strides(strides) = &mut operand.storage else { continue };
            let pad = rng.random_range(1..=3);
            let inner = strides.len() - 1;
            if strides[inner] == 1 && inner > 0 {
                let row = strides[inner - 1];
                strides[..inner].iter_mut().for_each(|stride| *stride += *stride / row * pad);
            }
        }
    }
    workload
}

fn matmul(rng: &mut impl Rng) -> Workload {
    let mut size = |most: u64| if rng.random_bool(0.2) { 1 } else { rng.random_range(1..=most) };
    let (m, n, k) = (size(70), size(90), size(80));
    // Sizes that vectors divide are rare among random ones.
    let step = [1, 1, 4, 8][rng.random_range(0..4)];
    MatmulSpec {
        batch: if rng.random_bool(0.2) { 3 } else { 1 },
        transpose_a: rng.random_bool(0.3),
        transpose_b: rng.random_bool(0.3),
        bias: rng.random_bool(0.3),
        relu: rng.random_bool(0.3),
        ..MatmulSpec::new(m.next_multiple_of(step), n.next_multiple_of(step), k.next_multiple_of(step))
    }
    .workload()
    .expect("invariant: the sizes are small")
}

fn convolution(rng: &mut impl Rng) -> Workload {
    let groups = [1, 1, 1, 2, 3][rng.random_range(0..5)];
    Conv2dSpec {
        n: rng.random_range(1..=2),
        c: groups * rng.random_range(1..=4),
        h: rng.random_range(5..=11),
        w: rng.random_range(5..=11),
        k: groups * rng.random_range(1..=9),
        r: rng.random_range(1..=3),
        s: rng.random_range(1..=3),
        stride_h: rng.random_range(1..=2),
        stride_w: rng.random_range(1..=2),
        pad_top: rng.random_range(0..=2),
        pad_left: rng.random_range(0..=2),
        pad_bottom: rng.random_range(0..=2),
        pad_right: rng.random_range(0..=2),
        dilation_h: rng.random_range(1..=2),
        dilation_w: rng.random_range(1..=2),
        groups,
        dtype: DType::F32,
        bias: rng.random_bool(0.3),
        relu: rng.random_bool(0.3),
    }
    .workload()
    .expect("invariant: the kernel fits the input")
}
