//! Hand-computed features of small products, the same counts one by one on random programs, and how features move.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use search_space::workload::MatmulSpec;
use search_space::{Value, families, samples};

use super::*;
use crate::index::{Index, Var};
use crate::tile::{Cond, Kernel, Phase, Place, Space, Stmt, View};

fn schedule(text: &str) -> Schedule {
    let value = |text: &str| text.parse::<i64>().map_or_else(|_| Value::Name(text.into()), Value::Int);
    text.split_whitespace().map(|word| word.split_once('=').unwrap()).map(|(name, text)| (name, value(text))).collect()
}

fn matmul(m: u64, n: u64, k: u64) -> Workload {
    MatmulSpec::new(m, n, k).workload().unwrap()
}

fn cpu(threads: u64) -> Target {
    samples::cpu_target("x86-64", &[], 64, threads)
}

const DIRECT: &str = "vec=n vw=16 mr=4 nv=2 mt=2 nt=1 kc=4 order=jpi.ji pack_a=none pack_b=none ku=1 tail=- par=-";

#[track_caller]
fn of(workload: &Workload, target: &Target, text: &str) -> ProgramFeatures {
    features(workload, target, &schedule(text)).unwrap()
}

#[test]
fn a_small_product_on_the_cpu() {
    let found = of(&matmul(8, 32, 4), &cpu(1), DIRECT);
    let wanted = ProgramFeatures {
        operations: 2.0 * 8.0 * 32.0 * 4.0,
        // Two register tiles: 4x4 of a, 4x32 of b, 4x32 of c each.
        global_bytes: 2.0 * 4.0 * (16.0 + 128.0 + 128.0),
        // Cleared and read by the store.
        register_bytes: 2.0 * 4.0 * 2.0 * 128.0,
        line_bytes: 2.0 * (64.0 + 512.0 + 512.0),
        // Everything fits, so each line comes once.
        beyond_l1_bytes: 4.0 * (32.0 + 128.0 + 256.0),
        beyond_l2_bytes: 4.0 * (32.0 + 128.0 + 256.0),
        vector_width: 16.0,
        accumulators: 8.0,
        register_pressure: 11.0 / 32.0,
        register_tiles: 2.0,
        steps: 4.0,
        work_items: 1.0,
        lanes: 1.0,
        balance: 1.0,
        ..ProgramFeatures::default()
    };
    assert_eq!(found, wanted);

    let packed = of(&matmul(8, 32, 4), &cpu(1), &DIRECT.replace("pack_b=none", "pack_b=panel"));
    // b is copied once, and read twice from the copy.
    assert_eq!(packed.global_bytes, found.global_bytes - 4.0 * 128.0);
    assert_eq!(packed.packed_bytes, 4.0 * (128.0 + 2.0 * 128.0));
    assert_eq!(packed.packed_held_bytes, 4.0 * 128.0);
    let reuse: Vec<(&str, f64)> = packed.levels().iter().map(|level| (level.name, level.reuse)).collect();
    assert_eq!(reuse[1], ("packed", 2048.0 / 1536.0));
}

#[test]
fn a_small_product_in_workgroups() {
    let text = "lanes_m=8 lanes_n=8 tile_m=4 tile_n=4 run_m=1 run_n=2 stage_a=shared stage_b=shared depth=16 \
                vector_a=1 vector_b=1 pad_a=0 pad_b=0 layout_a=km lane_order=nm grid_order=nm unroll=1 reduce=-";
    let found = of(&matmul(64, 64, 32), &samples::workgroup_target(), text);
    // 2x2 workgroups of 32x32 elements, two steps of 16 along k; a lane loads 4 + 4 elements for each k.
    let (groups, steps) = (4.0, 2.0);
    let wanted = ProgramFeatures {
        operations: 2.0 * 64.0 * 64.0 * 32.0,
        global_bytes: groups * 4.0 * (steps * 2.0 * 512.0 + 1024.0),
        shared_bytes: groups * steps * 4.0 * (2.0 * 512.0 + 64.0 * 8.0 * 16.0),
        register_bytes: groups * 4.0 * 2.0 * 1024.0,
        // Rows of 16 elements of a and of 32 elements of b and c.
        line_bytes: groups * (steps * (32.0 * 64.0 + 16.0 * 128.0) + 32.0 * 128.0),
        vector_width: 2.0,
        accumulators: 8.0,
        register_pressure: 24.0 / 256.0,
        register_tiles: groups * steps,
        steps: 16.0,
        work_items: groups,
        lanes: 64.0,
        balance: 1.0,
        shared_held_bytes: 2.0 * 4.0 * 512.0,
        barriers: 2.0 * steps,
        ..ProgramFeatures::default()
    };
    assert_eq!(found, wanted);
}

#[test]
fn work_on_padding_is_waste() {
    let text = DIRECT.replace("pack_a=none", "pack_a=panel");
    let masked = |m| of(&matmul(m, 32, 4), &cpu(1), &text.replace("tail=-", "tail=masked")).waste;
    assert_eq!((masked(12), masked(11)), (0.0, 12.0 / 11.0 - 1.0));
    let separate = |n| of(&matmul(8, n, 4), &cpu(1), &DIRECT.replace("tail=-", "tail=separate")).waste;
    // The last tile has 5 columns, and takes a vector of 16.
    assert_eq!((separate(64), separate(69)), (0.0, 80.0 / 69.0 - 1.0));
}

#[test]
fn larger_blocks_move_fewer_bytes() {
    let (workload, target) = (matmul(512, 512, 512), cpu(1));
    let block = |mr: u64, mt: u64, kc: u64| {
        let text = format!(
            "vec=n vw=16 mr={mr} nv=2 mt={mt} nt=4 kc={kc} order=jpi.ji pack_a=panel pack_b=panel ku=1 tail=separate par=-"
        );
        of(&workload, &target, &text)
    };
    let wide: Vec<f64> = [1, 2, 4, 8].map(|mr| block(mr, 16, 128).packed_bytes).to_vec();
    assert!(wide.is_sorted_by(|a, b| a > b), "taller register tiles: {wide:?}");
    let deep: Vec<f64> = [16, 32, 64, 128].map(|kc| block(8, 8, kc).register_bytes).to_vec();
    assert!(deep.is_sorted_by(|a, b| a > b), "fewer stores of partial sums: {deep:?}");
    let cached: Vec<f64> = [1, 4, 16].map(|mt| block(8, mt, 128).beyond_l2_bytes).to_vec();
    assert!(cached.is_sorted_by(|a, b| a > b), "taller blocks: {cached:?}");
}

#[test]
fn larger_caches_fetch_less_and_at_least_everything_once() {
    let workload = matmul(300, 280, 260);
    let operands = 4.0 * (300.0 * 260.0 + 260.0 * 280.0 + 300.0 * 280.0);
    let text = "vec=n vw=16 mr=6 nv=2 mt=8 nt=3 kc=64 order=jpi.ji pack_a=none pack_b=none ku=1 tail=separate par=-";
    let mut target = cpu(1);
    let mut last = f64::INFINITY;
    for size in [1 << 10, 16 << 10, 128 << 10, 1 << 20, 1 << 30] {
        target.limits.l2_bytes = size;
        let bytes = of(&workload, &target, text).beyond_l2_bytes;
        assert!(bytes <= last && bytes >= operands * 0.99, "{size}: {bytes}, before {last}, operands {operands}");
        last = bytes;
    }
    assert!(last < operands * 1.1, "{last} of {operands}");
}

#[test]
fn cores_share_the_work() {
    let text = DIRECT.replace("mt=2", "mt=1").replace("par=-", "par=rows");
    let found = of(&matmul(12, 32, 4), &cpu(2), &text);
    assert_eq!((found.work_items, found.balance), (3.0, 0.75));
    let alone = of(&matmul(12, 32, 4), &cpu(2), DIRECT);
    assert_eq!((alone.work_items, alone.balance), (1.0, 0.5));
}

/// The same counts by running every loop.
struct Count<'a> {
    kernel: &'a Kernel,
    vars: Vec<i64>,
    operations: f64,
    /// Global, packed, shared, registers.
    bytes: [f64; 4],
    barriers: f64,
}

impl Count<'_> {
    fn eval(&self, index: &Index) -> i64 {
        index.eval(&|var: Var| self.vars[var.0 as usize], &[0; 3])
    }

    fn block(&mut self, body: &[Stmt]) {
        for stmt in body {
            self.stmt(stmt);
        }
    }

    fn moved(&mut self, place: Place, elements: f64) {
        let level = match place {
            Place::Buffer(_) => 0,
            Place::Tile(tile) => match self.kernel.tiles[tile].space {
                Space::Scratch(_) => 1,
                Space::Shared(_) => 2,
                Space::Register(_) => 3,
            },
        };
        self.bytes[level] += 4.0 * elements;
    }

    fn window(&mut self, shape: &[Index], views: Vec<&View>) {
        let elements: i64 = shape.iter().map(|extent| self.eval(extent)).product();
        for view in views {
            let constant = |index: &Index| (0..3).all(|dim| !index.uses_coord(dim));
            let exists =
                view.guards.iter().filter(|guard| constant(&guard.index) && constant(&guard.bound)).all(|guard| {
                    let at = self.eval(&guard.index);
                    at >= 0 && at < self.eval(&guard.bound)
                });
            if exists {
                self.moved(view.place, elements as f64);
            }
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::For { var, extent, body, .. } => {
                for at in 0..self.eval(extent) {
                    self.vars[var.0 as usize] = at;
                    self.block(body);
                }
            }
            Stmt::If { cond, then, otherwise } => {
                let holds = match cond {
                    Cond::Lt(lhs, rhs) => self.eval(lhs) < self.eval(rhs),
                    Cond::Eq(lhs, rhs) => self.eval(lhs) == self.eval(rhs),
                };
                self.block(if holds { then } else { otherwise });
            }
            Stmt::Copy { shape, dst, src } => self.window(shape, vec![dst, src]),
            Stmt::Map { shape, dst, args, .. } => self.window(shape, std::iter::once(dst).chain(args).collect()),
            Stmt::Sweep { shape, args, stores, folds, .. } => {
                let written = stores.iter().map(|(view, _)| view).chain(folds.iter().map(|fold| &fold.into));
                self.window(shape, written.chain(args).collect());
            }
            Stmt::Fill { tile, .. } => {
                self.moved(Place::Tile(*tile), self.kernel.tiles[*tile].shape.iter().product::<u64>() as f64);
            }
            Stmt::Contract { shape, acc, a, b, atom, keep, .. } => {
                let [m, n, k] = [0, 1, 2].map(|dim| self.eval(&shape[dim]) as f64);
                let width = atom.shape.1 as f64;
                self.operations += 2.0 * m * (n / width).ceil() * width * k;
                let Space::Register(distribution) = &self.kernel.tiles[*acc].space else { unreachable!() };
                // Each lane loads each of its rows and columns once.
                let mut loads = [std::collections::BTreeSet::new(), std::collections::BTreeSet::new()];
                for coord in distribution.lanes.coords() {
                    let lane = distribution.lanes.offset(&coord);
                    loads.iter_mut().zip(&coord).for_each(|(loads, &at)| _ = loads.insert((lane, at)));
                }
                self.moved(a.place, loads[0].len() as f64 * k);
                self.moved(b.place, loads[1].len() as f64 * k);
                if let Some(keep) = keep {
                    self.moved(keep.place, n * k);
                }
            }
            Stmt::Prefetch { .. } => {}
            Stmt::Pipe { .. } => self.barriers += 0.5,
        }
    }
}

#[test]
fn random_programs_are_counted_as_one_by_one() {
    let rng = &mut ChaCha8Rng::seed_from_u64(1);
    let mut checked = 0;
    for case in 0..120 {
        let workload = samples::contraction(rng);
        let target = match case % 3 {
            0 => cpu(1),
            1 => cpu(3),
            _ => samples::workgroup_target(),
        };
        let Ok(plan) = families::plan(&workload, &target) else { continue };
        let schedule = plan.space.schedule(&plan.space.sample(rng, 1.0));
        let found = features(&workload, &target, &schedule).unwrap();
        let program = lower::build(&workload, &target, &schedule).unwrap();
        let (mut operations, mut bytes, mut barriers) = (0.0, [0.0; 4], 0.0);
        for kernel in program.kernels.iter().filter(|kernel| kernel.phase == Phase::Run) {
            let vars = vec![0; kernel.vars.len()];
            let mut count = Count { kernel, vars, operations: 0.0, bytes: [0.0; 4], barriers: 0.0 };
            count.block(&kernel.body);
            operations += count.operations;
            bytes.iter_mut().zip(count.bytes).for_each(|(sum, bytes)| *sum += bytes);
            barriers += count.barriers;
        }
        let near = |what: &str, found: f64, wanted: f64| {
            let about = || format!("{what} of {} with {schedule}: {found}, counted {wanted}", workload.key());
            assert!((found - wanted).abs() <= 1e-9 * wanted.max(1.0), "{}", about());
        };
        near("operations", found.operations, operations);
        near("global", found.global_bytes, bytes[0]);
        near("packed", found.packed_bytes, bytes[1]);
        near("shared", found.shared_bytes, bytes[2]);
        near("registers", found.register_bytes, bytes[3]);
        if program.kernels.iter().any(|kernel| kernel.workgroup != [1; 3]) {
            near("barriers", found.barriers * found.work_items, barriers);
        }
        assert!(found.waste > -1e-9 && found.balance > 0.0 && found.balance <= 1.0, "{found:?}");
        assert!(
            found.line_bytes >= found.beyond_l1_bytes && found.beyond_l1_bytes >= found.beyond_l2_bytes,
            "{found:?}"
        );
        assert!(found.values().iter().all(|value| value.is_finite()), "{found:?}");
        checked += 1;
    }
    assert!(checked > 100, "{checked}");
}

#[test]
fn sizes_of_any_kind_have_finite_features() {
    let rng = &mut ChaCha8Rng::seed_from_u64(2);
    for (m, n, k) in
        [(1, 1, 1), (1, 4096, 1), (7919, 1, 13), (1, 1, 1 << 20), (1 << 14, 1 << 14, 1 << 14), (97, 89, 83)]
    {
        for target in [cpu(1), cpu(64), samples::workgroup_target()] {
            let workload = matmul(m, n, k);
            let Ok(plan) = families::plan(&workload, &target) else { continue };
            for _ in 0..20 {
                let schedule = plan.space.schedule(&plan.space.sample(rng, 1.0));
                let found = features(&workload, &target, &schedule).unwrap();
                assert!(
                    found.values().iter().all(|value| value.is_finite() && *value >= -1e-9),
                    "{schedule}: {found:?}"
                );
            }
        }
    }
    assert!(features(&matmul(8, 8, 8), &cpu(1), &Schedule::default()).is_err());
}

#[test]
fn names_fit_values() {
    let names = ProgramFeatures::names();
    let distinct: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!((distinct.len(), names.len()), (20, ProgramFeatures::default().values().len()));
}
