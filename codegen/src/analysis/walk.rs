//! Adds up what the statements of a kernel do, each as often as the loops around it run.

use search_space::Target;
use search_space::target::TargetKind;

use super::ProgramFeatures;
use super::footprint::{Access, Node};
use crate::atoms::{Atom, Scope};
use crate::index::{Index, Var};
use crate::lane::matrix::REGISTERS;
use crate::layout::{Distribution, Layout};
use crate::tile::{Cond, Guard, Kernel, LoopKind, PipeStep, Place, Space, Stmt, View};

/// Adds the features of one kernel to those of the kernels before it.
pub(super) fn add(kernel: &Kernel, target: &Target, into: &mut ProgramFeatures) {
    let lanes = kernel.workgroup.iter().product::<u64>() as f64;
    let mut walk = Walk {
        kernel,
        target,
        extents: vec![Index::of(1); kernel.vars.len()],
        shares: vec![1.0; kernel.vars.len()],
        lanes,
        items: 1.0,
        cores: 1.0,
        into,
    };
    let body = walk.block(&kernel.body, 1.0, 1.0);
    let (shares, cores, items) = (walk.shares, walk.cores, walk.items);
    let root = Node::some(1.0, body).measured(&shares);
    into.line_bytes += root.traffic(0.0) * cores;
    let limits = &target.limits;
    // A cache whose size is not known says nothing.
    for (bytes, size) in [(&mut into.beyond_l1_bytes, limits.l1_bytes), (&mut into.beyond_l2_bytes, limits.l2_bytes)] {
        if size > 0 {
            *bytes += root.traffic(size as f64) * cores;
        }
    }
    into.work_items = into.work_items.max(items);
    into.lanes = into.lanes.max(lanes);
    let threads = target.key.threads.max(1) as f64;
    into.balance = into.balance.max(items / ((items / threads).ceil() * threads));
    let held = |layout: &Layout, bytes: u64| (layout.span() * bytes) as f64;
    for tile in &kernel.tiles {
        match &tile.space {
            Space::Scratch(layout) => into.packed_held_bytes += held(layout, tile.dtype.bytes()),
            Space::Shared(layout) => into.shared_held_bytes += held(layout, tile.dtype.bytes()),
            Space::Register(_) => {}
        }
    }
}

struct Walk<'a> {
    kernel: &'a Kernel,
    target: &'a Target,
    /// Iterations of the loop of each variable.
    extents: Vec<Index>,
    /// Mean iterations of it that one core runs.
    shares: Vec<f64>,
    lanes: f64,
    /// Iterations that may run at the same time.
    items: f64,
    /// Cores with work.
    cores: f64,
    into: &'a mut ProgramFeatures,
}

impl Walk<'_> {
    /// `count` executions of `body` in all, in each of which `spread` work items take part.
    fn block(&mut self, body: &[Stmt], count: f64, spread: f64) -> Vec<Node> {
        body.iter().filter_map(|stmt| self.stmt(stmt, count, spread)).collect()
    }

    fn stmt(&mut self, stmt: &Stmt, count: f64, spread: f64) -> Option<Node> {
        match stmt {
            Stmt::For { var, extent, kind, body } => {
                let trips = self.mean(extent).max(0.0);
                self.extents[var.0 as usize] = extent.clone();
                let (mut share, mut apart) = (trips, spread);
                match kind {
                    LoopKind::Cores | LoopKind::Shares(_) => {
                        let cores = trips.min(self.target.key.threads.max(1) as f64).max(1.0);
                        self.cores = self.cores.max(cores);
                        share = (trips / cores).ceil();
                        apart *= trips;
                    }
                    LoopKind::Grid(_) | LoopKind::Invocations(_) => apart *= trips,
                    LoopKind::Serial | LoopKind::Unroll(_) => {}
                }
                self.items = self.items.max(apart);
                self.shares[var.0 as usize] = share;
                let body = self.block(body, count * trips, apart);
                Some(Node::each(*var, share, matches!(kind, LoopKind::Grid(_) | LoopKind::Invocations(_)), body))
            }
            Stmt::If { cond, then, otherwise } => {
                let chance = self.chance(cond);
                let then = self.block(then, count * chance, spread);
                let otherwise = self.block(otherwise, count * (1.0 - chance), spread);
                Some(Node::some(1.0, vec![Node::some(chance, then), Node::some(1.0 - chance, otherwise)]))
            }
            Stmt::Copy { shape, dst, src } => Some(self.window(shape, dst, std::slice::from_ref(src), count)),
            Stmt::Map { shape, dst, args, .. } => Some(self.window(shape, dst, args, count)),
            Stmt::Sweep { shape, args, stores, folds, .. } => {
                let written = stores.iter().map(|(view, _)| view).chain(folds.iter().map(|fold| &fold.into));
                Some(self.windows(shape, written.chain(args), count))
            }
            Stmt::Fill { tile, .. } => {
                let elements = self.kernel.tiles[*tile].shape.iter().product::<u64>() as f64;
                self.moved(Place::Tile(*tile), elements * count);
                None
            }
            Stmt::Contract { shape, acc, a, b, atom, keep, .. } => {
                if let Some(keep) = keep {
                    let elements: f64 = shape[1..].iter().map(|extent| self.mean(extent).max(0.0)).product();
                    self.moved(keep.place, elements * self.exists(keep) * count);
                }
                Some(self.contract(shape, *acc, [a, b], atom, count))
            }
            Stmt::Prefetch { .. } => None,
            Stmt::Pipe { step, .. } => {
                if matches!(step, PipeStep::Wait | PipeStep::Release) && self.lanes > 1.0 {
                    self.into.barriers += count / spread;
                }
                None
            }
        }
    }

    /// A statement that reads and writes each element of its window once.
    fn window(&mut self, shape: &[Index], dst: &View, args: &[View], count: f64) -> Node {
        self.windows(shape, std::iter::once(dst).chain(args), count)
    }

    /// As [`Walk::window`], of any number of views.
    fn windows<'v>(&mut self, shape: &[Index], views: impl Iterator<Item = &'v View>, count: f64) -> Node {
        let extents: Vec<f64> = shape.iter().map(|extent| self.mean(extent).max(0.0)).collect();
        let elements: f64 = extents.iter().product();
        let mut accesses = Vec::new();
        for view in views {
            let exists = self.exists(view);
            self.moved(view.place, elements * exists * count);
            if exists > 0.0 {
                accesses.extend(self.access(view, &extents));
            }
        }
        Node::leaf(accesses)
    }

    fn contract(&mut self, shape: &[Index; 3], acc: usize, factors: [&View; 2], atom: &Atom, count: f64) -> Node {
        let [m, n, k] = [&shape[0], &shape[1], &shape[2]].map(|extent| self.mean(extent).max(0.0));
        let Space::Register(distribution) = &self.kernel.tiles[acc].space else {
            return Node::leaf(Vec::new());
        };
        let (atom_n, [rows, columns]) = (atom.shape.1 as f64, per_lane(distribution, [m, n]));
        let width = self.vector_width(distribution, atom);
        let vectors = (columns / width).ceil();
        // An instruction works on all its elements, whether they are needed or not.
        let issued = (n / atom_n).ceil() * atom_n;
        let operations = 2.0 * m * issued * k * count;
        let into = &mut *self.into;
        // Means of the tile that most of the work is in.
        let held = rows / atom.shape.0 as f64;
        if held * vectors >= into.accumulators {
            into.accumulators = held * vectors;
            into.vector_width = width;
            into.steps = k;
            let limits = &self.target.limits;
            let (live, registers) = match self.target.key.kind {
                _ if atom.scope == Scope::Matrix => (held * vectors + held + vectors, u64::from(REGISTERS)),
                // A narrow vector takes a whole register of a processor.
                TargetKind::Cpu => (rows * vectors + vectors + 1.0, limits.vector_registers),
                _ => (rows * columns + columns + rows, limits.vector_registers * limits.vector_bytes / 4),
            };
            into.register_pressure = live / registers.max(1) as f64;
        }
        into.operations += operations;
        into.register_tiles += count;
        let extents = [m, n, k];
        let mut accesses = Vec::new();
        for (view, own) in factors.into_iter().zip([rows, columns]) {
            self.moved(view.place, own * k * self.lanes * count);
            accesses.extend(self.access(view, &extents));
        }
        Node::leaf(accesses)
    }

    /// Elements of the vectors that hold a register tile, as the lowering of the target chooses them.
    fn vector_width(&self, distribution: &Distribution, atom: &Atom) -> f64 {
        let atom = atom.shape.1;
        if self.target.key.kind == TargetKind::Cpu {
            return atom as f64;
        }
        let run = match (distribution.lanes.dims.last(), distribution.values.dims.last()) {
            (Some(lanes), Some(values)) => lanes
                .iter()
                .zip(values)
                .take_while(|(lane, _)| lane.stride == 0)
                .map(|(_, value)| value.extent)
                .product(),
            _ => 1_u64,
        };
        let widest = (self.target.limits.vector_bytes / 4).max(1);
        let run = 1 << run.max(1).trailing_zeros().min(widest.ilog2());
        run.max(atom) as f64
    }

    /// Counts `elements` moved to or from a place.
    fn moved(&mut self, place: Place, elements: f64) {
        let into = &mut *self.into;
        match place {
            Place::Buffer(buffer) => into.global_bytes += elements * self.kernel.buffers[buffer].dtype.bytes() as f64,
            Place::Tile(tile) => {
                let tile = &self.kernel.tiles[tile];
                let bytes = elements * tile.dtype.bytes() as f64;
                match tile.space {
                    Space::Scratch(_) => into.packed_bytes += bytes,
                    Space::Shared(_) => into.shared_bytes += bytes,
                    Space::Register(_) => into.register_bytes += bytes,
                }
            }
        }
    }

    /// What a view touches of memory behind caches; `None` for shared memory and registers.
    fn access(&self, view: &View, extents: &[f64]) -> Option<Access> {
        match view.place {
            Place::Buffer(position) => {
                let buffer = &self.kernel.buffers[position];
                Some(Access::new(position, &view.index[0], extents, buffer.dtype.bytes(), buffer.len))
            }
            Place::Tile(position) => {
                let tile = &self.kernel.tiles[position];
                let Space::Scratch(layout) = &tile.space else { return None };
                let place = self.kernel.buffers.len() + position;
                Some(Access::new(place, &layout.index(&view.index), extents, tile.dtype.bytes(), layout.span()))
            }
        }
    }

    /// How often a window exists at all, judged by the guards that do not depend on the element.
    fn exists(&self, view: &View) -> f64 {
        let whole = |guard: &&Guard| !any_coord(&guard.index) && !any_coord(&guard.bound);
        let chance = |guard: &Guard| {
            self.sampled(&[&guard.index, &guard.bound], &|at| f64::from(u8::from(at[0] >= 0 && at[0] < at[1])))
        };
        view.guards.iter().filter(whole).map(chance).product()
    }

    fn chance(&self, cond: &Cond) -> f64 {
        match cond {
            Cond::Lt(lhs, rhs) => self.sampled(&[lhs, rhs], &|at| f64::from(u8::from(at[0] < at[1]))),
            Cond::Eq(lhs, rhs) => self.sampled(&[lhs, rhs], &|at| f64::from(u8::from(at[0] == at[1]))),
        }
    }

    fn mean(&self, index: &Index) -> f64 {
        match index {
            Index::Const(value) => *value as f64,
            _ => self.sampled(&[index], &|at| at[0] as f64),
        }
    }

    /// The mean of `of` the values of `indices` over the loops whose variables they use (and those that say how long
    /// these are), from the first and the last iteration and one that stands for all between: what a program does there
    /// is the same for all of them.
    fn sampled(&self, indices: &[&Index], of: &dyn Fn(&[i64]) -> f64) -> f64 {
        let mut vars = Vec::new();
        indices.iter().for_each(|index| collect_vars(index, &mut vars));
        let mut next = 0;
        while let Some(var) = vars.get(next).copied() {
            collect_vars(&self.extents[var.0 as usize], &mut vars);
            next += 1;
        }
        // Outer loops were named first, so the length of a loop is known when it is come to.
        vars.sort_by_key(|var| var.0);
        let mut at: Vec<(Var, i64)> = vars.iter().map(|&var| (var, 0)).collect();
        let (sum, weight) = self.sample(indices, of, &mut at, 0);
        sum / weight.max(1.0)
    }

    /// The sum of the samples of the loops from `depth` on, and their weight.
    fn sample(
        &self,
        indices: &[&Index],
        of: &dyn Fn(&[i64]) -> f64,
        at: &mut [(Var, i64)],
        depth: usize,
    ) -> (f64, f64) {
        let value = |index: &Index, at: &[(Var, i64)]| {
            index.eval(&|var| at.iter().find(|(known, _)| *known == var).map_or(0, |(_, value)| *value), &[])
        };
        let Some(&(var, _)) = at.get(depth) else {
            let values: Vec<i64> = indices.iter().map(|index| value(index, at)).collect();
            return (of(&values), 1.0);
        };
        let trips = value(&self.extents[var.0 as usize], at);
        let samples: &[(i64, i64)] = match trips {
            ..=0 => &[],
            1 => &[(0, 1)],
            2 => &[(0, 1), (1, 1)],
            _ => &[(0, 1), (1, trips - 2), (trips - 1, 1)],
        };
        let mut total = (0.0, 0.0);
        for &(value, weight) in samples {
            at[depth].1 = value;
            let (sum, inside) = self.sample(indices, of, at, depth + 1);
            total.0 += weight as f64 * sum;
            total.1 += weight as f64 * inside;
        }
        total
    }
}

/// Elements along m and n that one lane holds of a register tile.
fn per_lane(distribution: &Distribution, window: [f64; 2]) -> [f64; 2] {
    let mut own = window;
    for (own, modes) in own.iter_mut().zip(&distribution.lanes.dims) {
        let spread: u64 = modes.iter().filter(|mode| mode.stride > 0).map(|mode| mode.extent).product();
        *own /= spread.max(1) as f64;
    }
    own
}

fn any_coord(index: &Index) -> bool {
    match index {
        Index::Coord(_) => true,
        Index::Const(_) | Index::Var(_) => false,
        Index::Op(_, args) => any_coord(&args.0) || any_coord(&args.1),
    }
}

fn collect_vars(index: &Index, vars: &mut Vec<Var>) {
    match index {
        Index::Var(var) if !vars.contains(var) => vars.push(*var),
        Index::Op(_, args) => {
            collect_vars(&args.0, vars);
            collect_vars(&args.1, vars);
        }
        _ => {}
    }
}
