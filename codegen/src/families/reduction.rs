//! Sums and maxima as tile programs.
//!
//! ```text
//! for blocks of results:  t = identity;  for blocks of the outermost reduced axis: t ⊕= x;  out = epilogue(t)
//! in two stages:          the same for each part into workspace, then over the parts
//! ```

use search_space::Schedule;
use search_space::families::choice::Store;
use search_space::families::nest::Nest;
use search_space::families::reduction::{ReductionSchedule, Spread};
use search_space::workload::Op;

use super::nest::{Draft, digits, finish, position, tile, view};
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
    let mut draft = Draft::new(&nest.workload);
    let form = Form { nest, schedule: &schedule, kept: &kept, reduced: &reduced, op };
    if schedule.parts == 1 {
        let kind = if schedule.parallel == Spread::Results { LoopKind::Cores } else { LoopKind::Serial };
        let body = form.results(&mut draft, kind, None);
        draft.kernel("reduction", Store::Plain, nest.workload.acc, body);
        return Ok(draft.program());
    }
    let results = nest.count(&kept);
    let partial = draft.workspace(schedule.parts * results, nest.workload.acc);
    let body = draft.each("part", schedule.parts, LoopKind::Cores, |draft, part| {
        form.results(draft, LoopKind::Serial, Some((&part, partial)))
    });
    draft.kernel("parts", Store::Plain, nest.workload.acc, body);
    let body = form.together(&mut draft, partial);
    draft.kernel("together", Store::Plain, nest.workload.acc, body);
    Ok(draft.program())
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

    /// All results of the whole reduction or of one part of it, which go to workspace.
    fn results(&self, draft: &mut Draft, kind: LoopKind, part: Option<(&Index, usize)>) -> Vec<Stmt> {
        let (outer, last) = self.split();
        let sums = draft.scratch("sums", &[self.schedule.block], self.nest.workload.acc);
        let shared = |wanted: bool| if wanted { kind } else { LoopKind::Serial };
        let many = self.nest.count(outer) > 1;
        draft.each("outer", self.nest.count(outer), shared(many), |draft, at_outer| {
            draft.blocks("block", last, self.schedule.block, shared(!many), |draft, at, size| {
                let coords = self.coords(&at_outer, at);
                let mut stmts = vec![Stmt::Fill { tile: sums, value: self.op.identity() }];
                stmts.extend(self.steps(draft, sums, &coords, size, part));
                let held = tile(sums, vec![Index::Coord(0)]);
                stmts.push(match part {
                    Some((part, partial)) => Stmt::Copy {
                        shape: vec![Index::of(size)],
                        dst: self.partial(partial, part, &coords),
                        src: held,
                    },
                    None => finish(
                        &self.nest.workload,
                        &self.nest.maps,
                        vec![Index::of(size)],
                        &coords,
                        vec![held],
                        Scalar::Arg(0),
                    ),
                });
                stmts
            })
        })
    }

    /// `sums ⊕= x` over the reduced axes, or over a part of the outermost one.
    fn steps(
        &self,
        draft: &mut Draft,
        sums: usize,
        coords: &[Index],
        size: u64,
        part: Option<(&Index, usize)>,
    ) -> Vec<Stmt> {
        let outermost = self.nest.extents[self.reduced[0]];
        let length = part.map_or(outermost, |_| outermost.div_ceil(self.schedule.parts));
        let start = part.map_or(Index::ZERO, |(part, _)| part.clone() * Index::of(length));
        let depth = self.schedule.depth.min(length);
        draft.blocks("step", length, depth, LoopKind::Serial, |_, at, steps| {
            let mut coords = coords.to_vec();
            let from = start.clone() + at.clone() * Index::of(depth);
            for (position, &axis) in self.reduced.iter().enumerate() {
                coords[axis] = Index::Coord(1 + position);
            }
            coords[self.reduced[0]] = from.clone() + Index::Coord(1);
            let mut shape = vec![Index::of(size)];
            shape.extend(self.reduced.iter().map(|&axis| Index::of(self.nest.extents[axis])));
            // The last part may reach over the end.
            let left = (Index::of(outermost) - from).min(Index::of(steps)).max(Index::ZERO);
            shape[1] = if part.is_some() { left } else { Index::of(steps) };
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

    /// The second stage: the parts of each result.
    fn together(&self, draft: &mut Draft, partial: usize) -> Vec<Stmt> {
        let (outer, last) = self.split();
        let sums = draft.scratch("sums", &[self.schedule.block], self.nest.workload.acc);
        draft.each("outer", self.nest.count(outer), LoopKind::Serial, |draft, at_outer| {
            draft.blocks("block", last, self.schedule.block, LoopKind::Serial, |_, at, size| {
                let coords = self.coords(&at_outer, at);
                let held = tile(sums, vec![Index::Coord(0)]);
                let fold = Fold { into: held.clone(), op: self.op, value: 0 };
                vec![
                    Stmt::Fill { tile: sums, value: self.op.identity() },
                    Stmt::Sweep {
                        shape: vec![Index::of(size), Index::of(self.schedule.parts)],
                        args: vec![self.partial(partial, &Index::Coord(1), &coords)],
                        lets: vec![Scalar::Arg(0)],
                        stores: Vec::new(),
                        folds: vec![fold],
                        accumulators: 1,
                        ahead: 0,
                    },
                    finish(
                        &self.nest.workload,
                        &self.nest.maps,
                        vec![Index::of(size)],
                        &coords,
                        vec![held],
                        Scalar::Arg(0),
                    ),
                ]
            })
        })
    }
}
