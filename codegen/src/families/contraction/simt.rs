//! Contractions as workgroups of lanes: shared tiles of the factors, a register tile spread over the lanes.
//!
//! ```text
//! for batch, m tile, n tile (grid):
//!     acc[bm, bn] = 0
//!     for each k tile:                               one step without a loop when both factors are read directly
//!         as[bm, bk] ← a,  bs[bk, bn] ← b            zeros outside; only the staged factors
//!         acc += as · bs                             barriers around, from the pipe
//!     c ← epilogue(acc)                              elements outside are not stored
//! ```
//!
//! A convolution is the same program: its image operand has a longer index expression and guards for the padding. Its
//! sum over channels and filter positions is either one long k, which costs divisions at each element, or (`reduce=split`)
//! a loop over the filter positions around a k of channels alone, in which the padding is the same for all of k.
//! The parameters are those of [`search_space::families::contraction::vulkan`].

use search_space::families::contraction::{ContractionView, Group, OperandMap, vulkan};
use search_space::{Schedule, Target};

use super::{Names, Point, buffers, element, epilogue};
use crate::atoms;
use crate::index::{Index, Var};
use crate::layout::{Distribution, Layout, Mode};
use crate::lower::LowerError;
use crate::tile::{
    Cond, Guard, Kernel, LoopKind, Phase, Pipe, PipeStep, Place, Program, Scalar, Space, Stmt, Tile, View,
};

/// Positions of the kernel's tiles: the register tile, then the shared tiles that exist.
const ACC: usize = 0;

/// The values of a schedule, checked for what the program itself relies on.
struct Plan {
    lanes: [u64; 2],
    tile: [u64; 2],
    run: [u64; 2],
    n_fastest: bool,
    grid_n_first: bool,
    /// Staging of `a` and `b`.
    staging: [Option<Staging>; 2],
    /// k of one staged tile; all of k when nothing is staged.
    depth: u64,
    unroll: u64,
}

/// How a factor's shared tile is filled and laid out.
struct Staging {
    /// Width of the loads.
    vector: u64,
    /// Elements added to each row of the shared tile.
    pad: u64,
    /// Whether k is the contiguous dimension of the shared tile.
    k_contiguous: bool,
}

/// Builds the program of a schedule.
///
/// # Errors
/// [`LowerError::Schedule`] names a parameter that is absent or has no meaning.
pub fn build(view: &ContractionView, target: &Target, schedule: &Schedule) -> Result<Program, LowerError> {
    let (m, n, _) = view.extents();
    let split = match schedule.name("reduce") {
        Some("split") => vulkan::split_reduction(view),
        _ => None,
    };
    // The factors as seen inside the loop over the axes that are split off.
    let inner = split.as_ref().unwrap_or(view);
    let taps = inner.batch.extent() / view.batch.extent();
    let k = inner.k.extent();
    let plan = Plan::new(inner, schedule)?;
    let [bm, bn] = plan.block();
    let mut names = Names::default();
    let [batch, mt, nt, kt, tap] = ["batch", "mt", "nt", "kt", "tap"].map(|name| names.var(name));
    let (batch_loops, batch_index) = batch_loops(&mut names, batch, view.batch.extent(), target.limits.grid_per_dim);
    let origin = |tile: Var, size: u64| Index::from(tile) * Index::of(size);
    let outer = Point { batch: batch_index.clone(), m: origin(mt, bm), n: origin(nt, bn), k: Index::ZERO };
    let base = Point {
        batch: if taps > 1 { batch_index * Index::of(taps) + tap.into() } else { batch_index },
        k: origin(kt, plan.depth),
        ..outer.clone()
    };

    let mut tiles = vec![Tile {
        name: "acc".into(),
        shape: vec![bm, bn],
        dtype: view.workload.acc,
        space: Space::Register(plan.distribution()),
    }];
    let factor = |side: usize| {
        let (map, group) = if side == 0 { (&inner.a, &inner.m) } else { (&inner.b, &inner.n) };
        Factor { view: inner, map, group, side, block: plan.block()[side], depth: plan.depth, base: &base }
    };
    let mut views = Vec::new();
    let mut copies = Vec::new();
    for (side, factor) in [factor(0), factor(1)].into_iter().enumerate() {
        let Some(staging) = &plan.staging[side] else {
            views.push(factor.direct(plan.staging.iter().any(Option::is_some)));
            continue;
        };
        let dims = if side == 0 { [factor.block, plan.depth] } else { [plan.depth, factor.block] };
        let position = tiles.len();
        tiles.push(Tile {
            name: if side == 0 { "as" } else { "bs" }.into(),
            shape: dims.to_vec(),
            dtype: view.workload.operands[factor.map.operand].dtype,
            space: Space::Shared(staging.layout(side, factor.block, plan.depth)),
        });
        copies.push(factor.copy(staging, position));
        let own = Index::Coord(side);
        let index = if side == 0 { vec![own, Index::Coord(2)] } else { vec![Index::Coord(2), own] };
        views.push(View { place: Place::Tile(position), index, guards: Vec::new() });
    }
    let (b_view, a_view) = (views.pop().expect("invariant: two factors"), views.pop().expect("invariant: two factors"));
    let contract = Stmt::Contract {
        shape: [Index::of(bm), Index::of(bn), Index::of(plan.depth)],
        acc: ACC,
        a: a_view,
        b: b_view,
        atom: atoms::fma_f32(1).expect("invariant: the scalar row exists"),
        unroll: plan.unroll,
        prefetch: 0,
        keep: None,
        wake: 0,
    };
    let staged: Vec<usize> = (1..tiles.len()).collect();
    let pipes =
        if staged.is_empty() { Vec::new() } else { vec![Pipe { name: "stage".into(), stages: 1, tiles: staged }] };
    let reduction = if pipes.is_empty() {
        vec![contract]
    } else {
        let step = |step| Stmt::Pipe { pipe: 0, step };
        let mut body = vec![step(PipeStep::Acquire)];
        body.append(&mut copies);
        body.extend([step(PipeStep::Commit), step(PipeStep::Wait), contract, step(PipeStep::Release)]);
        vec![Stmt::For { var: kt, extent: Index::of(k.div_ceil(plan.depth)), kind: LoopKind::Serial, body }]
    };

    let mut body = vec![Stmt::Fill { tile: ACC, value: 0.0 }];
    if taps > 1 {
        body.push(Stmt::For { var: tap, extent: Index::of(taps), kind: LoopKind::Serial, body: reduction });
    } else {
        body.extend(reduction);
    }
    body.push(store(view, &outer, (m, bm), (n, bn)));
    let [grid_m, grid_n] = if plan.grid_n_first { [1, 0] } else { [0, 1] };
    let grid = |var, blocks, dim, body| Stmt::For { var, extent: Index::of(blocks), kind: LoopKind::Grid(dim), body };
    let body = vec![grid(nt, n.div_ceil(bn), grid_n, batch_loops(body))];
    let body = vec![grid(mt, m.div_ceil(bm), grid_m, body)];
    let kernel = Kernel {
        name: "main_kernel".into(),
        phase: Phase::Run,
        buffers: buffers(view),
        workgroup: [plan.lanes[0] * plan.lanes[1], 1, 1],
        vars: names.0,
        tiles,
        pipes,
        body,
    };
    Ok(Program { kernels: vec![kernel], workspace_bytes: Vec::new() })
}

/// The loops over the batch, and the batch coordinate inside them. More problems than the grid has room for are taken
/// in turn by each workgroup.
fn batch_loops(
    names: &mut Names,
    batch: Var,
    extent: u64,
    limit: u64,
) -> (impl FnOnce(Vec<Stmt>) -> Vec<Stmt> + use<>, Index) {
    let turns = extent.div_ceil(limit.max(1)).max(1);
    let groups = extent.div_ceil(turns);
    let turn = (turns > 1).then(|| names.var("turn"));
    let index = match turn {
        None => batch.into(),
        Some(turn) => Index::from(turn) * Index::of(groups) + batch.into(),
    };
    let inside = index.clone();
    let wrap = move |mut body: Vec<Stmt>| {
        if let Some(turn) = turn {
            if groups * turns > extent {
                let cond = Cond::Lt(inside, Index::of(extent));
                body = vec![Stmt::If { cond, then: body, otherwise: Vec::new() }];
            }
            body = vec![Stmt::For { var: turn, extent: Index::of(turns), kind: LoopKind::Serial, body }];
        }
        vec![Stmt::For { var: batch, extent: Index::of(groups), kind: LoopKind::Grid(2), body }]
    };
    (wrap, index)
}

/// The guard that keeps a coordinate inside an extent its blocks do not divide.
fn range(index: &Index, extent: u64, block: u64) -> Option<Guard> {
    (!extent.is_multiple_of(block)).then(|| Guard { index: index.clone(), bound: Index::of(extent) })
}

/// `c ← epilogue(acc)`.
fn store(view: &ContractionView, base: &Point, (m, bm): (u64, u64), (n, bn): (u64, u64)) -> Stmt {
    let point = Point {
        batch: base.batch.clone(),
        m: base.m.clone() + Index::Coord(0),
        n: base.n.clone() + Index::Coord(1),
        k: Index::ZERO,
    };
    let (index, mut guards) = element(view, &view.out, &point);
    let inside: Vec<Guard> = range(&point.m, m, bm).into_iter().chain(range(&point.n, n, bn)).collect();
    guards.extend(inside.clone());
    let dst = View { place: Place::Buffer(view.out.operand), index: vec![index], guards };
    let acc = View { place: Place::Tile(ACC), index: vec![Index::Coord(0), Index::Coord(1)], guards: Vec::new() };
    let mut lets = Vec::new();
    let (expr, side) = epilogue(view, Scalar::Arg(0), 1, &|map| element(view, map, &point), &mut lets);
    let expr = expr.inlined(&lets);
    let mut args = vec![acc];
    for mut arg in side {
        arg.guards.extend(inside.iter().filter(|guard| uses_any(&arg.index[0], &guard.index)).cloned());
        args.push(arg);
    }
    Stmt::Map { shape: vec![Index::of(bm), Index::of(bn)], dst, args, expr }
}

/// Whether two indices share a window coordinate.
fn uses_any(index: &Index, other: &Index) -> bool {
    (0..2).any(|dim| index.uses_coord(dim) && other.uses_coord(dim))
}

impl Staging {
    /// Layout of the shared tile: `[m, k]` of `a`, `[k, n]` of `b`.
    fn layout(&self, side: usize, block: u64, depth: u64) -> Layout {
        let (own, k) = if self.k_contiguous { (depth + self.pad, 1) } else { (1, block + self.pad) };
        match side {
            0 => Layout::strided(&[block, depth], &[own, k]),
            _ => Layout::strided(&[depth, block], &[k, own]),
        }
    }
}

/// One of the two factors, where a workgroup meets it.
struct Factor<'a> {
    view: &'a ContractionView,
    map: &'a OperandMap,
    /// Its own output axes.
    group: &'a Group,
    /// 0 for `a`, 1 for `b`.
    side: usize,
    /// Elements of a workgroup along its own axis.
    block: u64,
    depth: u64,
    /// First coordinates of the workgroup and of the step of k.
    base: &'a Point,
}

impl Factor<'_> {
    /// The factor read from memory by the contraction itself; window coordinates are `(m, n, k)`.
    fn direct(&self, k_tiled: bool) -> View {
        let mut point = self.base.clone();
        point.m = point.m + Index::Coord(0);
        point.n = point.n + Index::Coord(1);
        point.k = if k_tiled { point.k + Index::Coord(2) } else { Index::Coord(2) };
        self.at(&point)
    }

    /// The copy that fills the shared tile. Its window ends with the dimension that is contiguous in memory, split into
    /// vectors.
    fn copy(&self, staging: &Staging, position: usize) -> Stmt {
        let run = Index::Coord(1) * Index::of(staging.vector) + Index::Coord(2);
        let along_k =
            self.view.linear(self.map, &self.view.k) == Some(1) && self.view.linear(self.map, self.group) != Some(1);
        let (slow, fast) = if along_k { (self.block, self.depth) } else { (self.depth, self.block) };
        let (own, k) = if along_k { (Index::Coord(0), run) } else { (run, Index::Coord(0)) };
        let mut point = self.base.clone();
        point.k = point.k + k.clone();
        let coordinate = if self.side == 0 { &mut point.m } else { &mut point.n };
        *coordinate = coordinate.clone() + own.clone();
        let tile = if self.side == 0 { vec![own, k] } else { vec![k, own] };
        Stmt::Copy {
            shape: [slow, fast / staging.vector, staging.vector].map(Index::of).to_vec(),
            dst: View { place: Place::Tile(position), index: tile, guards: Vec::new() },
            src: self.at(&point),
        }
    }

    /// The element at a point; zero outside of the extents.
    fn at(&self, point: &Point) -> View {
        let (index, mut guards) = element(self.view, self.map, point);
        let own = if self.side == 0 { &point.m } else { &point.n };
        guards.extend(range(own, self.group.extent(), self.block));
        guards.extend(range(&point.k, self.view.k.extent(), self.depth));
        View { place: Place::Buffer(self.map.operand), index: vec![index], guards }
    }
}

impl Plan {
    /// `view` is the one inside the loop over the axes that are split off.
    fn new(view: &ContractionView, schedule: &Schedule) -> Result<Plan, LowerError> {
        let absent = |name: &str, want: &str| LowerError::Schedule {
            why: match schedule.get(name) {
                None => format!("parameter {name} is missing; it must be {want}"),
                Some(value) => format!("{name}={value} has no meaning here; it must be {want}"),
            },
        };
        let positive = |name: &str| {
            let value = schedule.int(name).and_then(|value| u64::try_from(value).ok());
            value.filter(|value| (1..=1 << 20).contains(value)).ok_or_else(|| absent(name, "a positive integer"))
        };
        let choice = |name: &str, first: &str, second: &str| match schedule.name(name) {
            Some(value) if value == first => Ok(true),
            Some(value) if value == second => Ok(false),
            _ => Err(absent(name, &format!("{first} or {second}"))),
        };
        let lanes = [positive("lanes_m")?, positive("lanes_n")?];
        let tile = [positive("tile_m")?, positive("tile_n")?];
        let run = [positive("run_m")?, positive("run_n")?];
        for (side, name) in ["run_m", "run_n"].into_iter().enumerate() {
            if !tile[side].is_multiple_of(run[side]) {
                return Err(absent(name, &format!("a divisor of {}", tile[side])));
            }
        }
        let staged = [choice("stage_a", "shared", "direct")?, choice("stage_b", "shared", "direct")?];
        let depth = if staged == [false, false] { view.k.extent() } else { positive("depth")? };
        let mut staging = [None, None];
        for (side, letter) in ["a", "b"].into_iter().enumerate() {
            if !staged[side] {
                continue;
            }
            let vector = positive(&format!("vector_{letter}"))?;
            let (map, group) = if side == 0 { (&view.a, &view.m) } else { (&view.b, &view.n) };
            let k_fastest = view.linear(map, &view.k) == Some(1) && view.linear(map, group) != Some(1);
            let fast = if k_fastest { depth } else { lanes[side] * tile[side] };
            if ![1, 2, 4].contains(&vector) || !fast.is_multiple_of(vector) {
                return Err(absent(&format!("vector_{letter}"), &format!("1, 2 or 4 and a divisor of {fast}")));
            }
            let name = format!("pad_{letter}");
            let pad = schedule.int(&name).and_then(|pad| u64::try_from(pad).ok());
            let pad = pad.filter(|&pad| pad <= 64).ok_or_else(|| absent(&name, "0 to 64"))?;
            let k_contiguous = side == 0 && choice("layout_a", "mk", "km")?;
            staging[side] = Some(Staging { vector, pad, k_contiguous });
        }
        Ok(Plan {
            lanes,
            tile,
            run,
            n_fastest: choice("lane_order", "nm", "mn")?,
            grid_n_first: choice("grid_order", "nm", "mn")?,
            staging,
            depth,
            unroll: positive("unroll")?,
        })
    }

    /// Rows and columns of one workgroup.
    fn block(&self) -> [u64; 2] {
        [self.lanes[0] * self.tile[0], self.lanes[1] * self.tile[1]]
    }

    /// Along each dimension, from inside out: a run that one lane holds, the lanes, and as many such stripes as the
    /// lane's tile needs.
    fn distribution(&self) -> Distribution {
        let lane_strides = if self.n_fastest { [self.lanes[1], 1] } else { [1, self.lanes[0]] };
        let value_strides = [self.tile[1], 1];
        let (mut lanes, mut values) = (Vec::new(), Vec::new());
        for side in 0..2 {
            let stripes = self.tile[side] / self.run[side];
            let modes = |strides: [u64; 3]| {
                let extents = [self.run[side], self.lanes[side], stripes];
                extents.into_iter().zip(strides).map(|(extent, stride)| Mode { extent, stride }).collect::<Vec<_>>()
            };
            lanes.push(modes([0, lane_strides[side], 0]));
            values.push(modes([value_strides[side], 0, value_strides[side] * self.run[side]]));
        }
        let layout = |dims| Layout { dims, swizzle: None };
        Distribution { lanes: layout(lanes), values: layout(values) }
    }
}
