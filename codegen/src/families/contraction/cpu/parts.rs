//! Split-K: each core sums a part of the reduction into a workspace of its own, and a second kernel adds the parts up.

use search_space::families::contraction::ContractionView;
use search_space::workload::DType;

use crate::families::contraction::{Names, Point, buffers, element, epilogue};
use crate::families::nest::store;
use crate::index::Index;
use crate::tile::{Access, BinaryOp, Buffer, Kernel, LoopKind, Phase, Place, Scalar, Source, Stmt, View};

/// Partial sums `[part, batch, row, column]` in a workspace buffer.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    /// Position in [`crate::tile::Program::workspace_bytes`].
    pub workspace: usize,
    /// Parts.
    pub count: u64,
    /// Values of the fused batch coordinate.
    pub batch: u64,
    /// Rows of the output.
    pub rows: u64,
    /// Columns of the output, along which vectors run.
    pub cols: u64,
    /// Type of the sums.
    pub dtype: DType,
}

impl Parts {
    fn len(&self) -> u64 {
        self.count * self.batch * self.rows * self.cols
    }

    /// Bytes of the workspace buffer.
    pub(super) fn bytes(&self) -> u64 {
        self.len() * self.dtype.bytes()
    }

    /// The workspace buffer as a parameter of a kernel.
    pub(super) fn buffer(&self, access: Access) -> Buffer {
        Buffer {
            name: "parts".into(),
            source: Source::Workspace(self.workspace),
            dtype: self.dtype,
            len: self.len(),
            align: 64,
            access,
            stream: false,
        }
    }

    /// One partial sum.
    pub(super) fn view(&self, buffer: usize, part: Index, batch: Index, row: Index, col: Index) -> View {
        let at = (part * Index::of(self.batch) + batch) * Index::of(self.rows) + row;
        View { place: Place::Buffer(buffer), index: vec![at * Index::of(self.cols) + col], guards: Vec::new() }
    }

    /// The kernel that stores the epilogue of the sum of the parts; the cores share the rows. `point` finds a
    /// coordinate of the output from batch, row and column.
    pub(super) fn kernel(&self, view: &ContractionView, point: &dyn Fn(Index, Index, Index) -> Point) -> Kernel {
        let mut buffers = buffers(view);
        buffers.push(self.buffer(Access::Read));
        let parts = buffers.len() - 1;
        let mut names = Names::default();
        let batch_var = (self.batch > 1).then(|| names.var("batch"));
        let batch = batch_var.map_or(Index::ZERO, Index::Var);
        let row = names.var("row");
        let col = Index::Coord(0);
        let part = |at: u64| self.view(parts, Index::of(at), batch.clone(), Index::Var(row), col.clone());
        let mut args: Vec<View> = (0..self.count).map(part).collect();
        let sum = (1..args.len())
            .fold(Scalar::Arg(0), |sum, arg| Scalar::Binary(BinaryOp::Add, Box::new(sum), Box::new(Scalar::Arg(arg))));
        let point = point(batch.clone(), Index::Var(row), col);
        let (index, guards) = element(view, &view.out, &point);
        let out = View { place: Place::Buffer(view.out.operand), index: vec![index], guards };
        let mut lets = Vec::new();
        let (value, mut side) = epilogue(view, sum, args.len(), &|map| element(view, map, &point), &mut lets);
        side.iter_mut().for_each(|view| view.guards.extend(out.guards.iter().cloned()));
        args.extend(side);
        let write = store(vec![Index::of(self.cols)], out, args, lets, value);
        let mut body =
            vec![Stmt::For { var: row, extent: Index::of(self.rows), kind: LoopKind::Cores, body: vec![write] }];
        if let Some(var) = batch_var {
            body = vec![Stmt::For { var, extent: Index::of(self.batch), kind: LoopKind::Serial, body }];
        }
        Kernel {
            name: "sum_parts".into(),
            phase: Phase::Run,
            buffers,
            workgroup: [1; 3],
            vars: names.0,
            tiles: Vec::new(),
            pipes: Vec::new(),
            body,
        }
    }
}
