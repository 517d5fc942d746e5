//! Size, time and speed of spaces shaped like those of real kernels. Prints the numbers (`--nocapture`); time is not
//! asserted.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "the numbers are the point")]

use std::time::Instant;

use rand::RngExt;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tilewright_search_space::families::plan;
use tilewright_search_space::space::{Config, ParameterSpace, SpaceBuilder};
use tilewright_search_space::target::{Limits, Target, TargetKey, TargetKind};
use tilewright_search_space::workload::{Conv2dSpec, MatmulSpec};

/// Small integers times powers of two, up to `most`.
fn sizes(most: i64) -> Vec<i64> {
    let mut sizes: Vec<i64> = [1, 3, 5, 7].iter().flat_map(|odd| (0..14).map(move |shift| odd << shift)).collect();
    sizes.extend([6, 10, 12, 14, 18, 24, 36, 72, 96, 144, 192, 288, 336, 480, 576, 720, 960]);
    sizes.retain(|&size| size <= most);
    sizes
}

/// A matrix product on a CPU with 16-lane vectors.
fn matmul(m: i64, n: i64, k: i64) -> ParameterSpace {
    let waste =
        |tile: &str, extent: i64| format!("ceildiv({extent}, {tile}) * {tile} * 4 <= {extent} * 5 || {tile} <= 16");
    let mut builder = SpaceBuilder::new();
    builder
        .param("mr", 1..=16)
        .param("nv", 1..=6)
        .param("mc", sizes(m))
        .param("nc", sizes(n))
        .param("kc", sizes(k))
        .names("order", &["jc.pc.ic", "jc.ic.pc", "ic.jc.pc", "ic.pc.jc", "pc.jc.ic", "pc.ic.jc"])
        .names("pack_a", &["no", "yes"])
        .names("pack_b", &["no", "yes"])
        .param("unroll", [1, 2, 4, 8])
        .names("tail", &["masked", "separate", "overlap"])
        .names("parallel", &["-", "ic", "jc"])
        .values("grain", vec!["-".into(), 1.into(), 2.into(), 4.into(), 8.into()])
        .param("prefetch", [0, 1, 2, 4, 8])
        .param("align", [16, 32, 64])
        .structural("order")
        .structural("pack_a")
        .require("registers", "mr * nv + nv + 1 <= 32")
        .require("mc holds whole register tiles", "mc % mr == 0")
        .require("nc holds whole register tiles", "nc % (nv * 16) == 0 || nc < 16")
        .require("A block in L2", "mc * kc * 4 <= 2097152")
        .require("B block in L3", "kc * nc * 4 <= 33554432")
        .require("B panel in L1", "kc * nv * 64 <= 49152 || pack_b == 'no'")
        .require("waste m", &waste("mc", m))
        .require("waste n", &waste("nc", n))
        .require("waste k", &waste("kc", k))
        .require("unroll divides kc", "kc % unroll == 0")
        .require("packing A pays", "pack_a == 'yes' => mc >= 2 * mr && kc >= 8")
        .require("packing B pays", "pack_b == 'yes' => kc >= 8")
        .require("overlap needs a full tile", &format!("tail == 'overlap' => mr <= {m}"))
        .require("grain applies", "(parallel == '-') => grain == '-'")
        .require("grain given", "(parallel != '-') => grain != '-'")
        .require("grain ic", &format!("parallel == 'ic' => grain * mc <= {m}"))
        .require("grain jc", &format!("parallel == 'jc' => grain * nc <= {n}"))
        .require("align of packed", "pack_a == 'no' && pack_b == 'no' => align == 64");
    builder.build().unwrap()
}

/// A matrix product on a GPU: shared memory couples five parameters, the thread block four others.
fn shared_memory(extent: i64) -> ParameterSpace {
    SpaceBuilder::new()
        .param("bm", (1..=32).map(|i| 8 * i))
        .param("bn", (1..=32).map(|i| 8 * i))
        .param("bk", sizes(128))
        .param("stages", 1..=4)
        .param("pad", [0, 4, 8])
        .param("tm", 1..=16)
        .param("tn", 1..=16)
        .param("vector", [1, 2, 4])
        .param("split_k", [1, 2, 3, 4, 6, 8, 12, 16])
        .names("swizzle", &["none", "row", "xor"])
        .param("group", [1, 2, 4, 8, 16])
        .param("unroll", [1, 2, 4, 8])
        .require("shared memory", "(bm * (bk + pad) + bk * bn) * 4 * stages <= 101376")
        .require("rows", "bm % tm == 0")
        .require("columns", "bn % tn == 0")
        .require("threads", "(bm / tm) * (bn / tn) <= 1024 && (bm / tm) * (bn / tn) % 32 == 0")
        .require("registers", "tm * tn + tm + tn <= 200")
        .require("vector loads", "tn % vector == 0 && bk % vector == 0")
        .require("split", &format!("split_k * bk <= {extent}"))
        .require("padding or swizzle", "swizzle != 'none' => pad == 0")
        .require("unroll", "bk % unroll == 0")
        .build()
        .unwrap()
}

fn report(name: &str, build: impl Fn() -> ParameterSpace) -> ParameterSpace {
    let start = Instant::now();
    let space = build();
    let built = start.elapsed().as_secs_f64();
    println!("{name}: {} configurations, {} nodes, built in {:.1} ms", space.count(), space.nodes(), built * 1e3);
    space
}

/// The best rate over ten parts, which other work on the machine disturbs least.
fn per_second(label: &str, count: usize, mut query: impl FnMut(usize)) {
    query(0);
    let part = (count / 10).max(1);
    let rate = |first: usize, query: &mut dyn FnMut(usize)| {
        let start = Instant::now();
        (first..first + part).for_each(query);
        part as f64 / start.elapsed().as_secs_f64()
    };
    let best = (0..count / part).map(|at| rate(at * part, &mut query)).fold(0.0, f64::max);
    println!("  {label}: {best:.0} per second");
}

fn measure(space: &ParameterSpace) {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let members: Vec<Config> = (0..2000).map(|_| space.sample(&mut rng, 0.5)).collect();
    let position = |param: usize, rng: &mut ChaCha8Rng| {
        u16::try_from(rng.random_range(0..space.params()[param].values.len())).unwrap()
    };
    let noise: Vec<Config> = (0..2000)
        .map(|_| (0..space.params().len()).map(|param| position(param, &mut rng)).collect::<Vec<_>>().into())
        .collect();
    per_second("repairs of noise", noise.len(), |at| assert!(space.nearest(&noise[at], &[], &[]).is_some()));
    let mutants: Vec<Vec<Option<u16>>> = members
        .iter()
        .map(|_| {
            let param = rng.random_range(0..space.params().len());
            let mut fixed = vec![None; space.params().len()];
            fixed[param] = Some(position(param, &mut rng));
            fixed
        })
        .collect();
    per_second("mutations", mutants.len(), |at| {
        let _ = space.nearest(&members[at], &[], &mutants[at]);
    });
    let crossed: Vec<Config> = members
        .windows(2)
        .map(|pair| {
            let side = |(&a, &b): (&u16, &u16)| if rng.random() { a } else { b };
            pair[0].iter().zip(pair[1].iter()).map(side).collect::<Vec<_>>().into()
        })
        .collect();
    per_second("crossovers", crossed.len(), |at| assert!(space.nearest(&crossed[at], &[], &[]).is_some()));
    per_second("samples", members.len(), |_| assert_eq!(space.why(&space.sample(&mut rng, 0.5)), None));
    per_second("ranks", members.len(), |at| assert!(space.rank(&members[at]).is_some()));
    per_second("neighbourhoods", 20, |at| assert!(space.neighbours(&members[at]).len() >= 2));
}

fn target(kind: TargetKind) -> Target {
    let key = match kind {
        TargetKind::Cpu => TargetKey::new(kind, "sapphirerapids", "core", ["avx512f", "fma"], 1),
        _ => TargetKey::new(kind, "10005.0", "llvmpipe", [""; 0], 1),
    };
    let cpu = kind == TargetKind::Cpu;
    let limits = Limits {
        vector_bytes: if cpu { 64 } else { 16 },
        vector_registers: if cpu { 32 } else { 64 },
        l1_bytes: 49_152,
        l2_bytes: 2 << 20,
        shared_bytes: 32_768,
        workgroup_invocations: 1024,
        grid_per_dim: 65_535,
        loop_iterations: 65_000,
        buffer_bytes: 128 << 20,
    };
    Target { key: key.unwrap(), limits }
}

#[test]
fn spaces_of_the_families_count_and_repair_fast() {
    let mut conv = Conv2dSpec::new(1, 128, 28, 28, 128, 3, 3);
    (conv.pad_top, conv.pad_left, conv.pad_bottom, conv.pad_right) = (1, 1, 1, 1);
    let workloads = [
        ("matmul 4096^3", MatmulSpec::new(4096, 4096, 4096).workload().unwrap()),
        ("matmul 1000x999x1001", MatmulSpec::new(1000, 999, 1001).workload().unwrap()),
        ("conv 128x28x28", conv.workload().unwrap()),
    ];
    let mut largest = 0;
    for kind in [TargetKind::Cpu, TargetKind::Vulkan] {
        for (name, workload) in &workloads {
            let space = report(&format!("{} {name}", kind.as_str()), || plan(workload, &target(kind)).unwrap().space);
            measure(&space);
            largest = largest.max(space.count());
        }
    }
    assert!(largest >= 100_000_000);
}

#[test]
fn kernel_spaces_count_and_repair_fast() {
    for (m, n, k) in [(4096, 4096, 4096), (1000, 999, 1001), (64, 3136, 147), (1, 1, 1)] {
        let space = report(&format!("CPU matmul {m} x {n} x {k}"), || matmul(m, n, k));
        measure(&space);
        assert!(m < 4096 || space.count() >= 100_000_000);
    }
    let space = report("GPU matmul 4096", || shared_memory(4096));
    measure(&space);
    assert!(space.count() >= 100_000_000);
}
