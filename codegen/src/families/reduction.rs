//! Sums and maxima as tile programs.
//!
//! ```text
//! for blocks of results:  t = identity;  for blocks of the outermost reduced axis: t ⊕= x;  out = epilogue(t)
//! in two stages:          the same for each part into workspace, then over the parts
//! ```

use search_space::Schedule;
use search_space::families::choice::Store;
use search_space::families::nest::Nest;
use search_space::families::reduction::ReductionSchedule;
use search_space::families::workers::Workers;
use search_space::workload::Op;

use super::nest::{Draft, digits, finish, position, spread, tile, view};
use crate::index::Index;
use crate::lower::LowerError;
use crate::tile::{Compare, Fold, FoldOp, LoopKind, Place, Program, Scalar, Stmt, View};

/// The program of a schedule.
///
/// # Errors
/// [`LowerError::Schedule`] names a parameter without meaning.
pub fn build(nest: &Nest, schedule: &Schedule) -> Result<Program, LowerError> {
    let schedule = ReductionSchedule::read(schedule).map_err(|why| LowerError::Schedule { why })?;
    let (kept, reduced) = (nest.axes(false), nest.axes(true));
    let op = if nest.workload.op == Op::ContractMax { FoldOp::NanMax } else { FoldOp::Add };
    let mut draft = Draft::of(&nest.workload, schedule.workers);
    let form = Form { nest, schedule: &schedule, kept: &kept, reduced: &reduced, op };
    if schedule.parts == 1 {
        let body = form.results(&mut draft, spread(schedule.workers), None);
        draft.kernel("reduction", Store::Plain, nest.workload.acc, body);
        return Ok(draft.program());
    }
    let partial = draft.workspace(form.parts() * nest.count(&kept), nest.workload.acc);
    let body = form.apart(&mut draft, partial);
    draft.kernel("parts", Store::Plain, nest.workload.acc, body);
    let body = form.together(&mut draft, partial);
    draft.kernel("together", Store::Plain, nest.workload.acc, body);
    Ok(draft.program())
}

/// A part of the outermost reduced axis.
struct Part<'p> {
    at: &'p Index,
    /// Steps of the axis in it.
    length: u64,
    /// Workspace for the parts' results.
    partial: usize,
}

struct Form<'f> {
    nest: &'f Nest,
    schedule: &'f ReductionSchedule,
    kept: &'f [usize],
    reduced: &'f [usize],
    op: FoldOp,
}

impl Form<'_> {
    /// The kept axes without the last one, and the extent of that.
    fn split(&self) -> (&[usize], u64) {
        match self.kept.split_last() {
            Some((&last, outer)) => (outer, self.nest.extents[last]),
            None => (&[], 1),
        }
    }

    /// Coordinates of a window of results (dimension 0): block `at` of the last kept axis.
    fn coords(&self, outer: &Index, at: &Index) -> Vec<Index> {
        let mut coords = vec![Index::ZERO; self.nest.extents.len()];
        digits(self.nest, self.split().0, outer, &mut coords);
        if let Some(&last) = self.kept.last() {
            coords[last] = at.clone() * Index::of(self.schedule.block) + Index::Coord(0);
        }
        coords
    }

    /// Steps of the outermost reduced axis in each part but the last.
    fn length(&self) -> u64 {
        self.nest.extents[self.reduced[0]].div_ceil(self.schedule.parts)
    }

    /// Parts that are not empty.
    fn parts(&self) -> u64 {
        self.nest.extents[self.reduced[0]].div_ceil(self.length())
    }

    /// The first stage: the parts of all results.
    fn apart(&self, draft: &mut Draft, partial: usize) -> Vec<Stmt> {
        let (outer, last) = self.split();
        let sums = self.sums(draft);
        let (outermost, kind) = (self.nest.extents[self.reduced[0]], spread(self.schedule.workers));
        if self.is_invocations() {
            let extents = [(outermost, self.length()), (self.nest.count(outer), 1), (last, self.schedule.block)];
            return draft.blocks_together("part", &extents, kind, |draft, at, sizes| {
                let part = Part { at: &at[0], length: sizes[0], partial };
                self.block(draft, sums, [&at[1], &at[2]], sizes[2], Some(&part))
            });
        }
        draft.blocks("part", outermost, self.length(), kind, |draft, at, length| {
            self.results(draft, LoopKind::Serial, Some(&Part { at, length, partial }))
        })
    }

    fn is_invocations(&self) -> bool {
        matches!(self.schedule.workers, Workers::Invocations { .. })
    }

    fn sums(&self, draft: &mut Draft) -> usize {
        draft.scratch("sums", &[self.schedule.block], self.nest.workload.acc)
    }

    /// All results of the whole reduction or of one part of it, which go to workspace.
    fn results(&self, draft: &mut Draft, kind: LoopKind, part: Option<&Part>) -> Vec<Stmt> {
        let sums = self.sums(draft);
        self.each_block(draft, kind, |draft, at, size| self.block(draft, sums, at, size, part))
    }

    /// Blocks of results: `[outer, block]` and the size.
    fn each_block(
        &self,
        draft: &mut Draft,
        kind: LoopKind,
        mut body: impl FnMut(&mut Draft, [&Index; 2], u64) -> Vec<Stmt>,
    ) -> Vec<Stmt> {
        let (outer, last) = self.split();
        if self.is_invocations() {
            let extents = [(self.nest.count(outer), 1), (last, self.schedule.block)];
            return draft
                .blocks_together("block", &extents, kind, |draft, at, sizes| body(draft, [&at[0], &at[1]], sizes[1]));
        }
        let shared = |wanted: bool| if wanted { kind } else { LoopKind::Serial };
        let many = self.nest.count(outer) > 1;
        draft.each("outer", self.nest.count(outer), shared(many), |draft, at_outer| {
            draft.blocks("block", last, self.schedule.block, shared(!many), |draft, at, size| {
                body(draft, [&at_outer, at], size)
            })
        })
    }

    /// One block of results of the whole reduction or of one part of it.
    fn block(
        &self,
        draft: &mut Draft,
        sums: usize,
        [outer, at]: [&Index; 2],
        size: u64,
        part: Option<&Part>,
    ) -> Vec<Stmt> {
        let coords = self.coords(outer, at);
        let mut stmts = vec![Stmt::Fill { tile: sums, value: self.op.identity() }];
        stmts.extend(self.steps(draft, sums, &coords, size, part));
        let held = tile(sums, vec![Index::Coord(0)]);
        stmts.push(match part {
            Some(part) => Stmt::Copy {
                shape: vec![Index::of(size)],
                dst: self.partial(part.partial, part.at, &coords),
                src: held,
            },
            None => self.finish(size, &coords, held),
        });
        stmts
    }

    /// `out = epilogue(sums)`.
    fn finish(&self, size: u64, coords: &[Index], held: View) -> Stmt {
        finish(&self.nest.workload, &self.nest.maps, vec![Index::of(size)], coords, vec![held], Scalar::Arg(0))
    }

    /// `sums ⊕= x` over the reduced axes, or over a part of the outermost one.
    fn steps(&self, draft: &mut Draft, sums: usize, coords: &[Index], size: u64, part: Option<&Part>) -> Vec<Stmt> {
        let length = part.map_or(self.nest.extents[self.reduced[0]], |part| part.length);
        let start = part.map_or(Index::ZERO, |part| part.at.clone() * Index::of(self.length()));
        let depth = self.schedule.depth.min(length);
        draft.blocks("step", length, depth, LoopKind::Serial, |_, at, steps| {
            let mut coords = coords.to_vec();
            for (position, &axis) in self.reduced.iter().enumerate() {
                coords[axis] = Index::Coord(1 + position);
            }
            coords[self.reduced[0]] = start.clone() + at.clone() * Index::of(depth) + Index::Coord(1);
            let mut shape = vec![Index::of(size)];
            shape.extend(self.reduced.iter().map(|&axis| Index::of(self.nest.extents[axis])));
            shape[1] = Index::of(steps);
            let x = view(self.nest.factor(), &coords);
            let value = self.inside(&x);
            vec![Stmt::Sweep {
                shape,
                args: vec![x],
                lets: vec![value],
                stores: Vec::new(),
                folds: vec![Fold { into: tile(sums, vec![Index::Coord(0)]), op: self.op, value: 0 }],
                accumulators: self.schedule.accumulators,
                ahead: self.schedule.ahead,
            }]
        })
    }

    /// The element, or what changes nothing where it does not exist: views read zero there.
    fn inside(&self, view: &View) -> Scalar {
        let neutral = Scalar::Const(self.op.identity());
        if self.op == FoldOp::Add {
            return Scalar::Arg(0);
        }
        view.guards.iter().fold(Scalar::Arg(0), |value, guard| {
            let below = Scalar::Select(
                Compare::Lt,
                Box::new([
                    Scalar::Position(guard.index.clone()),
                    Scalar::Position(guard.bound.clone()),
                    value,
                    neutral.clone(),
                ]),
            );
            let parts = [Scalar::Position(Index::ZERO), Scalar::Position(guard.index.clone()), below, neutral.clone()];
            Scalar::Select(Compare::Le, Box::new(parts))
        })
    }

    /// Where a part's result lies in workspace: `[part, kept..]`, row-major.
    fn partial(&self, buffer: usize, part: &Index, coords: &[Index]) -> View {
        let index = position(self.nest, self.kept, coords, part.clone());
        View { place: Place::Buffer(buffer), index: vec![index], guards: Vec::new() }
    }

    /// The second stage: the parts of each result. It is too little work for several cores.
    fn together(&self, draft: &mut Draft, partial: usize) -> Vec<Stmt> {
        let sums = self.sums(draft);
        let kind = if self.is_invocations() { spread(self.schedule.workers) } else { LoopKind::Serial };
        self.each_block(draft, kind, |_, [outer, at], size| {
            let coords = self.coords(outer, at);
            let held = tile(sums, vec![Index::Coord(0)]);
            let fold = Fold { into: held.clone(), op: self.op, value: 0 };
            vec![
                Stmt::Fill { tile: sums, value: self.op.identity() },
                Stmt::Sweep {
                    shape: vec![Index::of(size), Index::of(self.parts())],
                    args: vec![self.partial(partial, &Index::Coord(1), &coords)],
                    lets: vec![Scalar::Arg(0)],
                    stores: Vec::new(),
                    folds: vec![fold],
                    accumulators: 1,
                    ahead: 0,
                },
                self.finish(size, &coords, held),
            ]
        })
    }
}
