//! What the programs of maps, row passes and reductions share: views of operands over a nest's axes, loops, buffers.

use search_space::families::choice::Store;
use search_space::families::contraction::OperandMap;
use search_space::families::nest::Nest;
use search_space::families::workers::Workers;
use search_space::workload::{DType, Workload};

use super::contraction::Names;
use super::elementwise;
use crate::index::Index;
use crate::layout::{Distribution, Layout};
use crate::tile::{
    Access, Buffer, Cond, Fold, FoldOp, Guard, Kernel, LoopKind, Phase, Place, Program, Scalar, Source, Space, Stmt,
    Tile, View,
};

/// One kernel while it is being written.
pub struct Draft<'w> {
    /// What is computed.
    workload: &'w Workload,
    names: Names,
    tiles: Vec<Tile>,
    workspace_bytes: Vec<u64>,
    kernels: Vec<Kernel>,
    /// Invocations of a workgroup.
    workgroup: u64,
}

impl<'w> Draft<'w> {
    /// Nothing yet.
    pub fn new(workload: &'w Workload) -> Draft<'w> {
        Draft {
            workload,
            names: Names::default(),
            tiles: Vec::new(),
            workspace_bytes: Vec::new(),
            kernels: Vec::new(),
            workgroup: 1,
        }
    }

    /// Nothing yet, of kernels that these workers run.
    pub fn of(workload: &'w Workload, workers: Workers) -> Draft<'w> {
        let workgroup = if let Workers::Invocations { workgroup, .. } = workers { workgroup } else { 1 };
        Draft { workgroup, ..Draft::new(workload) }
    }

    /// A tile private to a core, row-major.
    pub fn scratch(&mut self, name: &str, shape: &[u64], dtype: DType) -> usize {
        let space = Space::Scratch(Layout::row_major(shape, 0));
        self.tiles.push(Tile { name: name.into(), shape: shape.to_vec(), dtype, space });
        self.tiles.len() - 1
    }

    /// A workspace buffer of `elements` elements; gives its position among the buffers of each kernel.
    pub fn workspace(&mut self, elements: u64, dtype: DType) -> usize {
        self.workspace_bytes.push(elements * dtype.bytes());
        self.workload.operands.len() + self.workspace_bytes.len() - 1
    }

    /// `for name in 0..extent`; one iteration needs no loop unless the cores share it.
    pub fn each(
        &mut self,
        name: &str,
        extent: u64,
        kind: LoopKind,
        body: impl FnOnce(&mut Self, Index) -> Vec<Stmt>,
    ) -> Vec<Stmt> {
        // A loop over the cores stays even for one iteration: it is what keeps the other cores from running it too.
        if extent == 1 && kind == LoopKind::Serial {
            return body(self, Index::ZERO);
        }
        let var = self.names.var(name);
        let body = body(self, Index::Var(var));
        vec![Stmt::For { var, extent: Index::of(extent), kind, body }]
    }

    /// Blocks of `size` of an extent: the body gets the index of the block and its size, which is smaller in the last
    /// one when `size` does not divide.
    pub fn blocks(
        &mut self,
        name: &str,
        extent: u64,
        size: u64,
        kind: LoopKind,
        mut body: impl FnMut(&mut Self, &Index, u64) -> Vec<Stmt>,
    ) -> Vec<Stmt> {
        self.each(name, extent.div_ceil(size), kind, |draft, at| {
            block(&at, extent, size, &mut |size| body(draft, &at, size))
        })
    }

    /// Blocks of several extents, each with the size of its blocks, as one loop, in which those of the last extent come
    /// fastest: the body gets the index and the size of the block of each.
    pub fn blocks_together(
        &mut self,
        name: &str,
        extents: &[(u64, u64)],
        kind: LoopKind,
        mut body: impl FnMut(&mut Self, &[Index], &[u64]) -> Vec<Stmt>,
    ) -> Vec<Stmt> {
        let counts: Vec<u64> = extents.iter().map(|(extent, size)| extent.div_ceil(*size)).collect();
        self.each(name, counts.iter().product(), kind, |draft, fused| {
            let mut at = Vec::new();
            let mut rest = fused;
            for (position, &count) in counts.iter().enumerate().rev() {
                let count = i64::try_from(count).expect("invariant: extents are below 2^62");
                at.push(if position == 0 { rest.clone() } else { rest.clone().modulo(count) });
                rest = rest.floor_div(count);
            }
            at.reverse();
            sized(&at, extents, &mut Vec::new(), &mut |sizes| body(draft, &at, sizes))
        })
    }

    /// As [`Draft::blocks`], serially, only the first `steps` blocks.
    pub fn blocks_until(
        &mut self,
        name: &str,
        steps: Index,
        extent: u64,
        size: u64,
        mut body: impl FnMut(&mut Self, &Index, u64) -> Vec<Stmt>,
    ) -> Vec<Stmt> {
        let (whole, rest) = (extent / size, extent % size);
        let var = self.names.var(name);
        let at = Index::Var(var);
        let mut stmts = body(self, &at, size);
        if rest != 0 {
            let otherwise = body(self, &at, rest);
            stmts = vec![Stmt::If { cond: Cond::Lt(at, Index::of(whole)), then: stmts, otherwise }];
        }
        vec![Stmt::For { var, extent: steps, kind: LoopKind::Serial, body: stmts }]
    }

    /// A register tile of f32 for one core; one for each shape.
    pub fn registers(&mut self, rows: u64, cols: u64) -> usize {
        self.register_tile("acc", rows, cols)
    }

    /// A register tile of f32 for one core; one for each use and shape.
    pub fn register_tile(&mut self, purpose: &str, rows: u64, cols: u64) -> usize {
        let (name, shape) = (format!("{purpose}_{rows}x{cols}"), vec![rows, cols]);
        let same = |tile: &Tile| matches!(tile.space, Space::Register(_)) && tile.name == name;
        if let Some(found) = self.tiles.iter().position(same) {
            return found;
        }
        let space = Space::Register(Distribution::single_lane(&shape));
        self.tiles.push(Tile { name, shape, dtype: DType::F32, space });
        self.tiles.len() - 1
    }

    /// Ends the kernel. `stream` names how the outputs are stored; buffers are the operands, then the workspace.
    pub fn kernel(&mut self, name: &str, store: Store, dtype: DType, body: Vec<Stmt>) {
        let workload = self.workload;
        let outputs = workload.outputs();
        let mut buffers: Vec<Buffer> = workload
            .operands
            .iter()
            .enumerate()
            .map(|(position, operand)| Buffer {
                name: operand.name.clone(),
                source: Source::Operand(position),
                dtype: operand.dtype,
                len: workload.operand_len(position),
                align: operand.align,
                access: if outputs.contains(&position) { Access::ReadWrite } else { Access::Read },
                stream: outputs.contains(&position) && store == Store::Stream,
            })
            .collect();
        buffers.extend(self.workspace_bytes.iter().enumerate().map(|(position, bytes)| Buffer {
            name: format!("partial{position}"),
            source: Source::Workspace(position),
            dtype,
            len: bytes / dtype.bytes(),
            align: 64,
            access: Access::ReadWrite,
            stream: false,
        }));
        self.kernels.push(Kernel {
            name: name.into(),
            phase: Phase::Run,
            buffers,
            workgroup: [self.workgroup, 1, 1],
            vars: std::mem::take(&mut self.names).0,
            tiles: std::mem::take(&mut self.tiles),
            pipes: Vec::new(),
            body,
        });
    }

    /// The kernels ended so far.
    pub fn program(self) -> Program {
        Program { kernels: self.kernels, workspace_bytes: self.workspace_bytes }
    }
}

/// The body for block `at` of an extent, which is smaller in the last one when `size` does not divide.
fn block(at: &Index, extent: u64, size: u64, body: &mut dyn FnMut(u64) -> Vec<Stmt>) -> Vec<Stmt> {
    let (whole, rest) = (extent / size, extent % size);
    if rest == 0 {
        return body(size);
    }
    if whole == 0 {
        return body(rest);
    }
    let then = body(size);
    let otherwise = body(rest);
    vec![Stmt::If { cond: Cond::Lt(at.clone(), Index::of(whole)), then, otherwise }]
}

/// As [`block`], of several extents.
fn sized(
    at: &[Index],
    extents: &[(u64, u64)],
    sizes: &mut Vec<u64>,
    body: &mut dyn FnMut(&[u64]) -> Vec<Stmt>,
) -> Vec<Stmt> {
    let Some(&(extent, size)) = extents.get(sizes.len()) else { return body(sizes) };
    block(&at[sizes.len()], extent, size, &mut |size| {
        sizes.push(size);
        let stmts = sized(at, extents, sizes, body);
        sizes.pop();
        stmts
    })
}

/// The element of an operand at a coordinate for each axis of the nest.
pub fn view(map: &OperandMap, coords: &[Index]) -> View {
    let sum = |terms: &mut dyn Iterator<Item = (usize, i64)>, constant: i64| {
        terms.fold(Index::Const(constant), |sum, (axis, step)| sum + coords[axis].clone() * Index::Const(step))
    };
    let mut strides = map.strides.iter().copied().enumerate().filter(|(_, stride)| *stride != 0);
    let guards = map
        .guards
        .iter()
        .map(|guard| Guard {
            index: sum(&mut guard.terms.iter().copied(), guard.offset),
            bound: Index::of(guard.bound.unwrap_or(u64::MAX >> 2)),
        })
        .collect();
    View { place: Place::Buffer(map.operand), index: vec![sum(&mut strides, map.offset)], guards }
}

/// The coordinates of some axes from their fused, row-major index.
pub fn digits(nest: &Nest, axes: &[usize], fused: &Index, coords: &mut [Index]) {
    let mut rest = fused.clone();
    for (position, &axis) in axes.iter().enumerate().rev() {
        let extent = i64::try_from(nest.extents[axis]).expect("invariant: extents are below 2^31");
        coords[axis] = if position == 0 { rest.clone() } else { rest.clone().modulo(extent) };
        rest = rest.floor_div(extent);
    }
}

/// The row-major index of coordinates over some axes.
pub fn position(nest: &Nest, axes: &[usize], coords: &[Index], outer: Index) -> Index {
    axes.iter().fold(outer, |index, &axis| index * Index::of(nest.extents[axis]) + coords[axis].clone())
}

/// `out = epilogue(value)` over a window, with side operands at `coords`.
///
/// `maps` are the maps of all operands over the axes that `coords` are of.
pub fn finish(
    workload: &Workload,
    maps: &[OperandMap],
    shape: Vec<Index>,
    coords: &[Index],
    mut args: Vec<View>,
    value: Scalar,
) -> Stmt {
    let mut lets = Vec::new();
    let value = workload.epilogue.iter().fold(value, |value, step| {
        let side = step.operand().and_then(|name| workload.operand(name)).map(|operand| {
            args.push(view(&maps[operand], coords));
            Scalar::Arg(args.len() - 1)
        });
        elementwise::step(step, value, side, &mut lets)
    });
    store(shape, view(&maps[workload.outputs()[0]], coords), args, lets, value)
}

/// The kind of the loop that the workers share.
pub fn spread(workers: Workers) -> LoopKind {
    match workers {
        Workers::One => LoopKind::Serial,
        Workers::Cores { shares: 1 } => LoopKind::Cores,
        Workers::Cores { shares } => LoopKind::Shares(shares),
        Workers::Invocations { turns, .. } => LoopKind::Invocations(turns),
    }
}

/// An element of a tile.
pub fn tile(tile: usize, index: Vec<Index>) -> View {
    View { place: Place::Tile(tile), index, guards: Vec::new() }
}

/// A walk that stores its last value, or a plain map when that is the only one.
pub fn store(shape: Vec<Index>, dst: View, args: Vec<View>, mut lets: Vec<Scalar>, value: Scalar) -> Stmt {
    if lets.is_empty() {
        return Stmt::Map { shape, dst, args, expr: value };
    }
    lets.push(value);
    let stores = vec![(dst, lets.len() - 1)];
    Stmt::Sweep { shape, args, lets, stores, folds: Vec::new(), accumulators: 1, ahead: 0 }
}

/// A walk that folds one expression into a tile.
pub fn fold(shape: Vec<Index>, args: Vec<View>, value: Scalar, into: View, op: FoldOp, accumulators: u64) -> Stmt {
    let folds = vec![Fold { into, op, value: 0 }];
    Stmt::Sweep { shape, args, lets: vec![value], stores: Vec::new(), folds, accumulators, ahead: 0 }
}
