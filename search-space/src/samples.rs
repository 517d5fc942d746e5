//! Targets and random workloads for property tests and examples of every backend, so that all are tested on the same
//! kind of problem: odd, prime, 1, strided, padded, dilated, grouped. Nothing outside tests uses them.

use rand::{Rng, RngExt};

use crate::target::{Limits, Target, TargetKey, TargetKind};
use crate::workload::{
    Activation, AttentionSpec, Axis, AxisKind, Conv2dSpec, DEFAULT_ALIGN, DEFAULT_WORKSPACE_BYTES, DType, Determinism,
    EpilogueStep, ImageLayout, MathMode, MatmulSpec, Op, Operand, PoolSpec, Real, ReduceSpec, Reduction, Role, Storage,
    Subscript, Workload, row_major,
};

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

/// A small random matmul or convolution with plain arithmetic after it (scale, bias, residual, ReLU, clip), sometimes
/// with rows longer than needed or with an input whose layout is free.
///
/// # Panics
/// Never: the sizes are small.
pub fn contraction(rng: &mut impl Rng) -> Workload {
    let mut workload = if rng.random_bool(0.5) { matmul(rng) } else { plain_convolution(rng) };
    if rng.random_bool(0.15) {
        workload.epilogue.push(EpilogueStep::Clip(-1.5, [2.0, 6.0][rng.random_range(0..2)]));
    }
    widen_rows(&mut workload, rng);
    if rng.random_bool(0.3) {
        workload.operands[rng.random_range(0..2)].storage = Storage::Free;
    }
    workload
}

/// A [`contraction`] with factors of other types: floating-point ones give binary32 or, if the factors agree, their own
/// type; integers give 32-bit integers, and then scales are left out.
///
/// # Panics
/// When one factor is an integer and the other is not.
pub fn typed(mut workload: Workload, factors: [DType; 2], rng: &mut impl Rng) -> Workload {
    let float = factors[0].is_float();
    assert_eq!(float, factors[1].is_float(), "factors of one kind");
    let wide = if float { DType::F32 } else { DType::I32 };
    let narrow = if float && factors[0] == factors[1] && rng.random_bool(0.6) { factors[0] } else { wide };
    let positions = workload.factors();
    for (i, operand) in workload.operands.iter_mut().enumerate() {
        operand.dtype = positions.iter().position(|at| *at == i).map_or(narrow, |at| factors[at]);
    }
    workload.acc = wide;
    if !float {
        workload.epilogue.retain(|step| !matches!(step, EpilogueStep::Scale(_)));
        for step in &mut workload.epilogue {
            if let EpilogueStep::Clip(lo, _) = step {
                *lo = lo.floor();
            }
        }
    }
    debug_assert_eq!(workload.validate(), Ok(()));
    workload
}

/// A [`contraction`] with an activation after it that needs an approximation: GELU or SiLU.
///
/// # Panics
/// Never: the sizes are small.
pub fn activated(rng: &mut impl Rng) -> Workload {
    let mut workload = contraction(rng);
    workload.epilogue.push(Activation::ALL[rng.random_range(1..4)].step());
    workload
}

/// A small random row pass: any of them, over one or two axes, sometimes with a batch axis, gain, shift, a residual,
/// axes in another order in memory, a row that is broadcast, or rows longer than needed.
///
/// # Panics
/// Never: the sizes are small.
pub fn rows(rng: &mut impl Rng) -> Workload {
    let eps = Real::new([1e-5, 1e-6, 0.25][rng.random_range(0..3)]).unwrap_or(Real::ZERO);
    let op = [Op::RowsSoftmax, Op::RowsLogSoftmax, Op::RowsLayerNorm { eps }, Op::RowsRmsNorm { eps }, Op::RowsArgMax]
        [rng.random_range(0..5)];
    let mut axes = Vec::new();
    if rng.random_bool(0.3) {
        axes.push(Axis::fixed("b", AxisKind::Batch, rng.random_range(1..=3)));
    }
    axes.push(Axis::fixed("m", AxisKind::Parallel, size(rng, 20)));
    axes.push(Axis::fixed("n", AxisKind::Reduction, size(rng, 100)));
    if rng.random_bool(0.3) {
        axes.push(Axis::fixed("l", AxisKind::Reduction, size(rng, 9)));
    }
    let all: Vec<usize> = (0..axes.len()).collect();
    let (reduced, kept): (Vec<usize>, Vec<usize>) =
        all.iter().partition(|axis| axes[**axis].kind == AxisKind::Reduction);
    let (mut operands, mut epilogue) = (Vec::new(), Vec::new());
    operands.push(tensor(Role::In, "x", &axes, &shuffled(rng, &all, 0.25)));
    if op != Op::RowsArgMax {
        if rng.random_bool(0.4) {
            operands.push(tensor(Role::In, "gamma", &axes, &reduced));
            epilogue.push(EpilogueStep::Mul("gamma".into()));
        }
        if rng.random_bool(0.3) {
            // Along the rows, along one row, or a whole tensor.
            let over = [&kept, &reduced, &all][rng.random_range(0..3)];
            operands.push(tensor(Role::In, "beta", &axes, over));
            epilogue.push(EpilogueStep::Add("beta".into()));
        }
        if rng.random_bool(0.2) {
            epilogue.push(EpilogueStep::Scale(0.5));
        }
        operands.push(tensor(Role::Out, "y", &axes, &shuffled(rng, &all, 0.25)));
    } else {
        let mut index = tensor(Role::Out, "y", &axes, &kept);
        index.dtype = DType::I32;
        operands.push(index);
    }
    finished(op, axes, operands, epilogue, rng)
}

/// A small random attention: causal or not, fewer heads of keys, fewer queries than keys, columns of values unlike
/// those of queries, rows longer than needed.
///
/// # Panics
/// Never: the sizes are small.
pub fn attention(rng: &mut impl Rng) -> Workload {
    let kv_heads = rng.random_range(1..=2);
    let (q, d) = (size(rng, 20), size(rng, 40));
    let plain = AttentionSpec::new(kv_heads * rng.random_range(1..=3), q, d);
    let mut workload = AttentionSpec {
        batch: if rng.random_bool(0.3) { 2 } else { 1 },
        kv_heads,
        kv: if rng.random_bool(0.5) { q } else { q + size(rng, 40) },
        e: if rng.random_bool(0.6) { d } else { size(rng, 40) },
        causal: rng.random_bool(0.5),
        ..plain
    }
    .workload()
    .expect("invariant: the sizes are small");
    widen_rows(&mut workload, rng);
    workload
}

/// A small random map: a transposition of up to four axes, a copy of a slice, or a chain of steps with operands that
/// are broadcast.
///
/// # Panics
/// Never: the sizes are small.
pub fn map(rng: &mut impl Rng) -> Workload {
    let most = [400, 50, 20, 9];
    let rank = rng.random_range(1..=4);
    let axes: Vec<Axis> = (0..rank)
        .map(|i| Axis::fixed(["i", "j", "k", "l"][i], AxisKind::Parallel, size(rng, most[rank - 1])))
        .collect();
    let all: Vec<usize> = (0..rank).collect();
    let mut operands = vec![tensor(Role::In, "x", &axes, &shuffled(rng, &all, 0.5))];
    let mut epilogue = Vec::new();
    if rng.random_bool(0.3) {
        let over: Vec<usize> = all.iter().copied().filter(|_| rng.random_bool(0.5)).collect();
        operands.push(tensor(Role::In, "side", &axes, &over));
        let side = "side".to_string();
        epilogue.push(if rng.random_bool(0.5) { EpilogueStep::Add(side) } else { EpilogueStep::Mul(side) });
    }
    // A logarithm comes first: of values that carry an error, whether they are positive is a matter of rounding.
    if epilogue.is_empty() && rng.random_bool(0.1) {
        epilogue.push(EpilogueStep::Log);
    }
    let steps = [
        EpilogueStep::Scale(0.5),
        EpilogueStep::Relu,
        EpilogueStep::Clip(-1.0, 1.0),
        EpilogueStep::GeluErf,
        EpilogueStep::GeluTanh,
        EpilogueStep::Silu,
        EpilogueStep::Exp,
        EpilogueStep::Tanh,
        EpilogueStep::Erf,
    ];
    while rng.random_bool(0.4) && epilogue.len() < 4 {
        epilogue.push(steps[rng.random_range(0..steps.len())].clone());
    }
    operands.push(tensor(Role::Out, "y", &axes, &shuffled(rng, &all, 0.2)));
    finished(Op::Map, axes, operands, epilogue, rng)
}

/// A small random sum, mean or maximum: of a matrix along either direction, or pooling.
///
/// # Panics
/// Never: the sizes are small.
pub fn reduction(rng: &mut impl Rng) -> Workload {
    let reduction = [Reduction::Sum, Reduction::Mean, Reduction::Max][rng.random_range(0..3)];
    let mut workload = if rng.random_bool(0.5) {
        let (rows, cols) = (size(rng, 90), size(rng, 300));
        ReduceSpec { reduction, rows, cols, over_rows: rng.random_bool(0.5), dtype: DType::F32 }.workload()
    } else {
        PoolSpec {
            reduction,
            n: rng.random_range(1..=2),
            c: rng.random_range(1..=9),
            h: rng.random_range(3..=12),
            w: rng.random_range(3..=20),
            r: rng.random_range(1..=3),
            s: rng.random_range(1..=3),
            stride: rng.random_range(1..=3),
            pad: rng.random_range(0..=1),
            dtype: DType::F32,
        }
        .workload()
    }
    .expect("invariant: the sizes are small");
    widen_rows(&mut workload, rng);
    workload
}

fn size(rng: &mut impl Rng, most: u64) -> u64 {
    if rng.random_bool(0.2) { 1 } else { rng.random_range(1..=most) }
}

fn shuffled(rng: &mut impl Rng, dims: &[usize], probability: f64) -> Vec<usize> {
    let mut dims = dims.to_vec();
    if rng.random_bool(probability) {
        for last in (1..dims.len()).rev() {
            dims.swap(last, rng.random_range(0..=last));
        }
    }
    dims
}

/// A dense f32 tensor over `dims`.
fn tensor(role: Role, name: &str, axes: &[Axis], dims: &[usize]) -> Operand {
    let shape: Vec<u64> = dims.iter().map(|axis| axes[*axis].extent.max()).collect();
    Operand {
        role,
        name: name.into(),
        dtype: DType::F32,
        index: dims.iter().copied().map(Subscript::axis).collect(),
        storage: Storage::Strides(row_major(&shape)),
        align: DEFAULT_ALIGN,
        alias: None,
        prologue: None,
    }
}

fn finished(
    op: Op,
    axes: Vec<Axis>,
    operands: Vec<Operand>,
    epilogue: Vec<EpilogueStep>,
    rng: &mut impl Rng,
) -> Workload {
    let mut workload = Workload {
        op,
        axes,
        operands,
        acc: DType::F32,
        epilogue,
        math: MathMode::Ieee,
        det: Determinism::Fixed,
        workspace_bytes: DEFAULT_WORKSPACE_BYTES,
    };
    widen_rows(&mut workload, rng);
    debug_assert_eq!(workload.validate(), Ok(()));
    workload
}

/// Sometimes makes rows longer than needed, as in a slice of a larger tensor.
fn widen_rows(workload: &mut Workload, rng: &mut impl Rng) {
    if rng.random_bool(0.3) {
        for operand in &mut workload.operands {
            let Storage::Strides(strides) = &mut operand.storage else { continue };
            let pad = rng.random_range(1..=3);
            let inner = strides.len().saturating_sub(1);
            if inner > 0 && strides[inner] == 1 {
                let row = strides[inner - 1];
                strides[..inner].iter_mut().for_each(|stride| *stride += *stride / row * pad);
            }
        }
    }
}

fn matmul(rng: &mut impl Rng) -> Workload {
    let (m, n, k) = (size(rng, 70), size(rng, 90), size(rng, 80));
    // Sizes that vectors divide are rare among random ones.
    let step = [1, 1, 4, 8][rng.random_range(0..4)];
    MatmulSpec {
        batch: if rng.random_bool(0.2) { 3 } else { 1 },
        transpose_a: rng.random_bool(0.3),
        transpose_b: rng.random_bool(0.3),
        scale: if rng.random_bool(0.2) { Real::new(0.125) } else { None },
        bias: rng.random_bool(0.3),
        residual: rng.random_bool(0.2),
        activation: rng.random_bool(0.3).then_some(Activation::Relu),
        ..MatmulSpec::new(m.next_multiple_of(step), n.next_multiple_of(step), k.next_multiple_of(step))
    }
    .workload()
    .expect("invariant: the sizes are small")
}

/// A small random convolution: often with weights whose layout is free, often depthwise, often one that may be rearranged by Winograd's
/// filtering.
///
/// # Panics
/// Never: the sizes are small.
pub fn convolution(rng: &mut impl Rng) -> Workload {
    let mut spec = convolution_spec(rng);
    spec.free_weights = rng.random_bool(0.5);
    if rng.random_bool(0.3) {
        // Depthwise: one output channel per group.
        let groups = rng.random_range(1..=20);
        spec = Conv2dSpec { c: groups * rng.random_range(1..=2), k: groups, groups, ..spec };
    }
    if rng.random_bool(0.4) {
        let (h, w) = (rng.random_range(3..=14), rng.random_range(3..=14));
        let one = Conv2dSpec { stride_h: 1, stride_w: 1, dilation_h: 1, dilation_w: 1, ..spec };
        spec = Conv2dSpec { h, w, r: 3, s: 3, math: MathMode::Fast, ..one };
    }
    spec.workload().expect("invariant: the kernel fits the input")
}

fn plain_convolution(rng: &mut impl Rng) -> Workload {
    convolution_spec(rng).workload().expect("invariant: the kernel fits the input")
}

fn convolution_spec(rng: &mut impl Rng) -> Conv2dSpec {
    let groups = [1, 1, 1, 2, 3][rng.random_range(0..5)];
    let (c, k) = (groups * rng.random_range(1..=4), groups * rng.random_range(1..=9));
    let (h, w) = (rng.random_range(5..=11), rng.random_range(5..=11));
    let (r, s) = (rng.random_range(1..=3), rng.random_range(1..=3));
    Conv2dSpec {
        stride_h: rng.random_range(1..=2),
        stride_w: rng.random_range(1..=2),
        pad_top: rng.random_range(0..=2),
        pad_left: rng.random_range(0..=2),
        pad_bottom: rng.random_range(0..=2),
        pad_right: rng.random_range(0..=2),
        dilation_h: rng.random_range(1..=2),
        dilation_w: rng.random_range(1..=2),
        groups,
        layout: if rng.random_bool(0.3) { ImageLayout::Nhwc } else { ImageLayout::Nchw },
        bias: rng.random_bool(0.3),
        residual: rng.random_bool(0.2),
        activation: rng.random_bool(0.3).then_some(Activation::Relu),
        ..Conv2dSpec::new(rng.random_range(1..=2), c, h, w, k, r, s)
    }
}
