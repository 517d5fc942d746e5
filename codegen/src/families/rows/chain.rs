//! Chains of groups of rows: while one group is written, the reductions of the next one are taken, so that stores and
//! loads of memory go on beside the arithmetic.
//!
//! ```text
//! norms    sums(0);  for g: { out(g) | sums(g + 1) };  out(last)
//! softmax  kept = exp(0);  for g: per block: max(g + 1), { out(g) = kept · factor | kept = exp(g + 1) };  out(last)
//! ```
//!
//! What is between the braces is one walk. The exponentials of the next group take the place of those of this one, each
//! as soon as it has been read.

use search_space::families::rows::RowsSchedule;

use super::{Draft, LOWEST, Pass, Tiles, asking, sub};
use crate::families::elementwise::{mul, unary};
use crate::families::nest::{fold, store, tile};
use crate::index::Index;
use crate::tile::{Compare, Fold, FoldOp, LoopKind, Scalar, Stmt, UnaryOp, View};

/// How the groups of an operation are chained.
pub(super) trait Links {
    /// The reductions of a group.
    fn first(&self, draft: &mut Draft, next: &Pass) -> Vec<Stmt>;
    /// The output of a group beside the reductions of the next.
    fn both(&self, draft: &mut Draft, this: &Pass, next: &Pass) -> Vec<Stmt>;
    /// The output of a group.
    fn last(&self, draft: &mut Draft, this: &Pass) -> Vec<Stmt>;
}

/// A chain of the groups from `first` on, `count` of them.
pub(super) fn chain(draft: &mut Draft, links: &dyn Links, pass: &Pass, first: &Index, count: u64) -> Vec<Stmt> {
    let mut stmts = links.first(draft, &Pass { at: first, ..*pass });
    if count > 1 {
        stmts.extend(draft.each("link", count - 1, LoopKind::Serial, |draft, link| {
            let this = first.clone() + link;
            let next = this.clone() + Index::of(1);
            links.both(draft, &Pass { at: &this, ..*pass }, &Pass { at: &next, ..*pass })
        }));
    }
    let end = first.clone() + Index::of(count - 1);
    stmts.extend(links.last(draft, &Pass { at: &end, ..*pass }));
    stmts
}

/// The rows of a tile with one element for each.
fn row(t: usize) -> View {
    tile(t, vec![Index::Coord(0)])
}

/// Norms whose moments come from one pass.
pub(super) struct Norm {
    /// Whether the mean is taken off; its sums are of distances to the first element.
    pub(super) centred: bool,
    pub(super) eps: f64,
}

impl Norm {
    /// Arguments and values of the sums, the first of which is value `at` of its walk; argument `x` is the element and
    /// the one after it the row's first.
    fn sums(&self, pass: &Pass, x: usize, at: usize) -> (Vec<View>, Vec<Scalar>, Vec<Fold>) {
        let (sum, square) = (pass.tiles.first, pass.tiles.second);
        let element = pass.input(&pass.coords(None, false));
        let add = |t: usize, value: usize| Fold { into: row(t), op: FoldOp::Add, value };
        if !self.centred {
            return (vec![element], vec![mul(Scalar::Arg(x), Scalar::Arg(x))], vec![add(square, at)]);
        }
        let first = pass.input(&pass.coords(None, true));
        let lets = vec![sub(Scalar::Arg(x), Scalar::Arg(x + 1)), mul(Scalar::Let(at), Scalar::Let(at))];
        (vec![element, first], lets, vec![add(sum, at), add(square, at + 1)])
    }

    /// Sets the sums to zero.
    fn cleared(&self, tiles: &Tiles) -> Vec<Stmt> {
        let used = [Some(tiles.second), self.centred.then_some(tiles.first)];
        used.into_iter().flatten().map(|tile| Stmt::Fill { tile, value: 0.0 }).collect()
    }

    /// What the output needs of the sums.
    fn known(&self, pass: &Pass) -> Stmt {
        let tiles = pass.tiles;
        if self.centred {
            return pass.moments(self.eps, tiles.root);
        }
        store(pass.rows(), row(tiles.root), vec![row(tiles.second)], Vec::new(), pass.root_of_squares(self.eps))
    }

    /// `out = epilogue(value)` with the element and what is known of its row as arguments after `args`.
    fn written(&self, pass: &Pass, mut args: Vec<View>) -> Stmt {
        let (coords, tiles) = (pass.coords(None, false), pass.tiles);
        let x = args.len();
        args.extend([pass.input(&coords), row(tiles.root)]);
        let mut value = Scalar::Arg(x);
        if self.centred {
            args.push(row(tiles.third));
            value = sub(value, Scalar::Arg(x + 2));
        }
        pass.finish(pass.whole(), &coords, args, mul(value, Scalar::Arg(x + 1)))
    }
}

impl Links for Norm {
    fn first(&self, _: &mut Draft, next: &Pass) -> Vec<Stmt> {
        let (args, lets, folds) = self.sums(next, 0, 0);
        let mut stmts = self.cleared(next.tiles);
        let accumulators = next.schedule.accumulators;
        stmts.push(Stmt::Sweep { shape: next.whole(), args, lets, stores: Vec::new(), folds, accumulators, ahead: 0 });
        stmts.push(self.known(next));
        stmts
    }

    fn both(&self, _: &mut Draft, this: &Pass, next: &Pass) -> Vec<Stmt> {
        let mut stmts = self.cleared(next.tiles);
        let (args, ..) = self.sums(next, 0, 0);
        let (shape, args, mut lets, stores) = parts(self.written(this, args));
        let (_, more, folds) = self.sums(next, 0, lets.len());
        lets.extend(more);
        let (accumulators, ahead) = (next.schedule.accumulators, next.schedule.ahead);
        stmts.push(Stmt::Sweep { shape, args, lets, stores, folds, accumulators, ahead });
        stmts.push(self.known(next));
        stmts
    }

    fn last(&self, _: &mut Draft, this: &Pass) -> Vec<Stmt> {
        vec![self.written(this, Vec::new())]
    }
}

/// Softmax, in blocks of columns or in one.
pub(super) struct Softmax;

impl Softmax {
    /// Blocks of columns with their width.
    fn blocks(draft: &mut Draft, pass: &Pass, mut body: impl FnMut(&Index, Vec<Index>) -> Vec<Stmt>) -> Vec<Stmt> {
        let RowsSchedule { block, .. } = *pass.schedule;
        draft.blocks("block", pass.columns(), block, LoopKind::Serial, |_, at, width| {
            // Several column axes make one block.
            let whole = width == pass.columns();
            body(at, if whole { pass.whole() } else { vec![Index::of(pass.size), Index::of(width)] })
        })
    }

    /// Where the factor of a block is.
    fn factor(pass: &Pass, at: &Index) -> View {
        tile(pass.tiles.factors, vec![at.clone(), Index::Coord(0)])
    }

    /// The largest element so far and the sum so far against it, of block `at`.
    fn grown(pass: &Pass, at: &Index, shape: Vec<Index>) -> Vec<Stmt> {
        let (max, sum, before) = (pass.tiles.first, pass.tiles.second, pass.tiles.third);
        let x = pass.input(&pass.coords(Some(at), false));
        let [sum_before, max_before, max_now] = [0, 1, 2].map(Scalar::Arg);
        let decayed = mul(sum_before.clone(), unary(UnaryOp::ExpBelowZero, sub(max_before.clone(), max_now.clone())));
        let decay = Scalar::Select(Compare::Eq, Box::new([max_before, max_now, sum_before, decayed]));
        let against = tile(pass.tiles.against, vec![at.clone(), Index::Coord(0)]);
        vec![
            Stmt::Copy { shape: pass.rows(), dst: row(before), src: row(max) },
            fold(shape, vec![x], Scalar::Arg(0), row(max), FoldOp::Max, pass.schedule.accumulators),
            store(pass.rows(), row(sum), vec![row(sum), row(before), row(max)], Vec::new(), decay),
            Stmt::Copy { shape: pass.rows(), dst: against, src: row(max) },
        ]
    }

    /// Takes the exponentials of a group, beside which a walk writes the group before.
    fn reduced(
        draft: &mut Draft,
        next: &Pass,
        mut beside: impl FnMut(&Index, Vec<Index>, Vec<View>) -> Option<Stmt>,
    ) -> Vec<Stmt> {
        let (max, sum) = (next.tiles.first, next.tiles.second);
        let mut stmts = vec![Stmt::Fill { tile: max, value: LOWEST }, Stmt::Fill { tile: sum, value: 0.0 }];
        stmts.extend(Softmax::blocks(draft, next, |at, shape| {
            let mut stmts = Softmax::grown(next, at, shape.clone());
            let coords = next.coords(Some(at), false);
            let args = vec![next.input(&coords), row(max)];
            let (shape, args, mut lets, mut stores) = match beside(at, shape.clone(), args.clone()) {
                Some(stmt) => parts(stmt),
                None => (shape, args, Vec::new(), Vec::new()),
            };
            let value = lets.len();
            lets.push(next.exp(sub(Scalar::Arg(0), Scalar::Arg(1))));
            stores.push((next.held(&coords), value));
            stmts.push(Stmt::Sweep {
                shape,
                args,
                lets,
                stores,
                folds: vec![Fold { into: row(sum), op: FoldOp::Add, value }],
                accumulators: next.schedule.accumulators,
                ahead: next.schedule.ahead,
            });
            stmts
        }));
        stmts.push(store(next.rows(), row(sum), vec![row(sum)], Vec::new(), unary(UnaryOp::Recip, Scalar::Arg(0))));
        stmts.extend(Softmax::blocks(draft, next, |at, _| {
            let against = tile(next.tiles.against, vec![at.clone(), Index::Coord(0)]);
            let grown = unary(UnaryOp::ExpBelowZero, sub(Scalar::Arg(0), Scalar::Arg(1)));
            let args = vec![against, row(max), row(sum)];
            vec![store(next.rows(), Softmax::factor(next, at), args, Vec::new(), mul(grown, Scalar::Arg(2)))]
        }));
        stmts
    }

    /// `out = epilogue(kept · factor)` of a block, with its arguments after `args`.
    fn written(pass: &Pass, at: &Index, shape: Vec<Index>, mut args: Vec<View>) -> Stmt {
        let coords = pass.coords(Some(at), false);
        let kept = args.len();
        args.extend([pass.held(&coords), Softmax::factor(pass, at)]);
        pass.finish(shape, &coords, args, mul(Scalar::Arg(kept), Scalar::Arg(kept + 1)))
    }
}

impl Links for Softmax {
    fn first(&self, draft: &mut Draft, next: &Pass) -> Vec<Stmt> {
        Softmax::reduced(draft, next, |_, _, _| None)
    }

    fn both(&self, draft: &mut Draft, this: &Pass, next: &Pass) -> Vec<Stmt> {
        Softmax::reduced(draft, next, |at, shape, args| Some(Softmax::written(this, at, shape, args)))
    }

    fn last(&self, draft: &mut Draft, this: &Pass) -> Vec<Stmt> {
        Softmax::blocks(draft, this, |at, shape| vec![asking(Softmax::written(this, at, shape, Vec::new()), 0)])
    }
}

/// Shape, arguments, values and stores of a walk without folds.
#[expect(clippy::type_complexity, reason = "the parts of one statement")]
fn parts(stmt: Stmt) -> (Vec<Index>, Vec<View>, Vec<Scalar>, Vec<(View, usize)>) {
    match stmt {
        Stmt::Map { shape, dst, args, expr } => (shape, args, vec![expr], vec![(dst, 0)]),
        Stmt::Sweep { shape, args, lets, stores, .. } => (shape, args, lets, stores),
        _ => unreachable!("invariant: outputs are written by maps and sweeps"),
    }
}
