//! Attention as tile programs: queries lie along the lanes, so that softmax needs no shuffles and keys and values are
//! only ever broadcast.
//!
//! ```text
//! for problems, for blocks of queries:
//!   qt = qᵀ;  m = lowest;  l = 0;  ot = 0
//!   for blocks of keys (up to the last that is seen):
//!     p = scale · k qt                                        register tiles of keys × queries
//!     m' = max(m, max p);  c = e^(m - m');  l = c l;  ot = c ot
//!     p = e^(p - m');  l += Σ p
//!     ot += vᵀ p                                              register tiles of columns × queries
//!   o = (ot / l)ᵀ
//! ```

pub mod invocations;

use search_space::Schedule;
use search_space::families::attention::{AttentionSchedule, AttentionView};
use search_space::families::choice::Store;
use search_space::workload::DType;

use super::elementwise::{add, binary, mul, unary};
use super::nest::{Draft, finish, fold, spread, store, tile, view};
use crate::atoms::{self, Atom};
use crate::index::Index;
use crate::lower::LowerError;
use crate::tile::{BinaryOp, Compare, Fold, FoldOp, Guard, LoopKind, Program, Scalar, Stmt, UnaryOp, View};

/// Below every score, yet finite: the difference to a masked score stays minus infinity, and is never NaN.
const LOWEST: f64 = f32::MIN as f64;

/// The program of a schedule.
///
/// # Errors
/// [`LowerError::Schedule`] names a parameter without meaning.
pub fn build(attention: &AttentionView, schedule: &Schedule) -> Result<Program, LowerError> {
    let schedule = AttentionSchedule::read(schedule).map_err(|why| LowerError::Schedule { why })?;
    let vw = schedule.vw;
    let missing = || LowerError::Schedule { why: format!("vw={vw}: no multiply-add is that wide") };
    let atom = atoms::fma_f32(vw).ok_or_else(missing)?;
    let mut draft = Draft::of(&attention.workload, schedule.workers);
    let form = Form::new(attention, schedule, atom, &mut draft);
    let kind = spread(schedule.workers);
    let (problems, blocks) = (attention.problems(), attention.queries.div_ceil(form.lanes));
    // The cores share blocks of queries of all problems alike.
    let body = draft.each("block", problems * blocks, kind, |draft, at| {
        let blocks = i64::try_from(blocks).expect("invariant: extents are below 2^31");
        let (problem, block) = (at.clone().floor_div(blocks), at.modulo(blocks));
        form.queries(draft, &problem, &block)
    });
    draft.kernel("attention", Store::Plain, DType::F32, body);
    Ok(draft.program())
}

/// The coordinates of all axes: those of a problem, and the given ones.
fn coords(attention: &AttentionView, problem: &Index, own: &[(usize, Index)]) -> Vec<Index> {
    let mut coords = vec![Index::ZERO; attention.extents.len()];
    let mut rest = problem.clone();
    for (position, &axis) in attention.batch.iter().enumerate().rev() {
        let extent = i64::try_from(attention.extents[axis]).expect("invariant: extents are below 2^31");
        coords[axis] = if position == 0 { rest.clone() } else { rest.clone().modulo(extent) };
        rest = rest.floor_div(extent);
    }
    for (axis, at) in own {
        coords[*axis] = at.clone();
    }
    coords
}

/// q (0), k (1) or v (2).
fn factor(attention: &AttentionView, which: usize, coords: &[Index]) -> View {
    view(&attention.maps[attention.workload.factors()[which]], coords)
}

/// The scaled score `Arg(0)` of a query and a key; minus infinity where the query does not see the key.
fn score(attention: &AttentionView, query: Index, key: Index) -> Scalar {
    let value = mul(Scalar::Arg(0), Scalar::Const(attention.scale));
    if !attention.causal {
        return value;
    }
    let extent = |axis: usize| i64::try_from(attention.extents[axis]).unwrap_or(i64::MAX);
    let (queries, keys) = (extent(attention.axes.m), extent(attention.axes.n));
    let several_heads = attention.queries != attention.extents[attention.axes.m];
    let query = if several_heads { query.modulo(queries) } else { query };
    let last = Scalar::Position(query + Index::Const(keys - queries));
    Scalar::Select(Compare::Le, Box::new([Scalar::Position(key), last, value, Scalar::Const(f64::NEG_INFINITY)]))
}

/// How many blocks of `block` keys are seen by some of `count` queries from `start` on.
fn blocks_seen(attention: &AttentionView, start: &Index, count: u64, block: u64) -> Index {
    // The last query sees most; of several heads the last query of a head does.
    let (queries, keys) = (attention.extents[attention.axes.m], attention.extents[attention.axes.n]);
    let ahead = i64::try_from(keys).unwrap_or(i64::MAX) - i64::try_from(queries).unwrap_or(i64::MAX);
    let last = if queries == attention.queries {
        (start.clone() + Index::of(count - 1)).min(Index::of(queries - 1))
    } else {
        Index::of(queries - 1)
    };
    let step = i64::try_from(block).expect("invariant: blocks are small");
    let seen = (last + Index::Const(ahead + 1)).max(Index::ZERO);
    (seen + Index::Const(step - 1)).floor_div(step)
}

/// Whether a query exists, for windows of `count` queries that reach over the end.
fn exists(attention: &AttentionView, query: &Index, count: u64) -> Vec<Guard> {
    if attention.queries.is_multiple_of(count) {
        return Vec::new();
    }
    vec![Guard { index: query.clone(), bound: Index::of(attention.queries) }]
}

/// `out = epilogue(value)` at `coords`, where `guards` hold; `held` are the arguments of `value`, which always exist.
fn epilogue(
    attention: &AttentionView,
    shape: Vec<Index>,
    coords: &[Index],
    held: Vec<View>,
    value: Scalar,
    guards: &[Guard],
) -> Stmt {
    let own = held.len();
    let mut stmt = finish(&attention.workload, &attention.maps, shape, coords, held, value);
    match &mut stmt {
        Stmt::Map { dst, args, .. } => {
            dst.guards.extend(guards.iter().cloned());
            args[own..].iter_mut().for_each(|arg| arg.guards.extend(guards.iter().cloned()));
        }
        Stmt::Sweep { stores, args, .. } => {
            stores.iter_mut().for_each(|(dst, _)| dst.guards.extend(guards.iter().cloned()));
            args[own..].iter_mut().for_each(|arg| arg.guards.extend(guards.iter().cloned()));
        }
        _ => {}
    }
    stmt
}

struct Form<'a> {
    attention: &'a AttentionView,
    schedule: AttentionSchedule,
    atom: Atom,
    /// Queries of a block.
    lanes: u64,
    keys: u64,
    width: u64,
    depth: u64,
    queries: usize,
    scores: usize,
    results: usize,
    max: usize,
    before: usize,
    sum: usize,
}

impl<'a> Form<'a> {
    fn new(attention: &'a AttentionView, schedule: AttentionSchedule, atom: Atom, draft: &mut Draft) -> Form<'a> {
        let lanes = schedule.nv * schedule.vw;
        let extent = |axis: usize| attention.extents[axis];
        let axes = &attention.axes;
        let (keys, width, depth) = (extent(axes.n), extent(axes.e), extent(axes.d));
        let mut scratch = |name: &str, shape: &[u64]| draft.scratch(name, shape, DType::F32);
        Form {
            queries: scratch("queries", &[depth, lanes]),
            scores: scratch("scores", &[schedule.keys, lanes]),
            results: scratch("results", &[width, lanes]),
            max: scratch("max", &[lanes]),
            before: scratch("before", &[lanes]),
            sum: scratch("sum", &[lanes]),
            attention,
            schedule,
            atom,
            lanes,
            keys,
            width,
            depth,
        }
    }

    fn coords(&self, problem: &Index, own: &[(usize, Index)]) -> Vec<Index> {
        coords(self.attention, problem, own)
    }

    fn factor(&self, which: usize, coords: &[Index]) -> View {
        factor(self.attention, which, coords)
    }

    fn exists(&self, query: &Index) -> Vec<Guard> {
        exists(self.attention, query, self.lanes)
    }

    fn row(&self, t: usize) -> View {
        tile(t, vec![Index::Coord(0)])
    }

    fn queries(&self, draft: &mut Draft, problem: &Index, block: &Index) -> Vec<Stmt> {
        let axes = &self.attention.axes;
        let start = block.clone() * Index::of(self.lanes);
        let query = start.clone() + Index::Coord(1);
        let coords = self.coords(problem, &[(axes.m, query.clone()), (axes.d, Index::Coord(0))]);
        let mut src = self.factor(0, &coords);
        src.guards.extend(self.exists(&query));
        let lanes = vec![Index::of(self.lanes)];
        let mut stmts = vec![
            Stmt::Copy {
                shape: vec![Index::of(self.depth), Index::of(self.lanes)],
                dst: tile(self.queries, vec![Index::Coord(0), Index::Coord(1)]),
                src,
            },
            Stmt::Fill { tile: self.max, value: LOWEST },
            Stmt::Fill { tile: self.sum, value: 0.0 },
            Stmt::Fill { tile: self.results, value: 0.0 },
        ];
        stmts.extend(self.key_blocks(draft, problem, &start));
        stmts.push(store(lanes, self.row(self.sum), vec![self.row(self.sum)], Vec::new(), {
            unary(UnaryOp::Recip, Scalar::Arg(0))
        }));
        let held = tile(self.results, vec![Index::Coord(0), Index::Coord(1)]);
        stmts.push(Stmt::Map {
            shape: vec![Index::of(self.width), Index::of(self.lanes)],
            dst: held.clone(),
            args: vec![held, tile(self.sum, vec![Index::Coord(1)])],
            expr: mul(Scalar::Arg(0), Scalar::Arg(1)),
        });
        stmts.push(self.finish(problem, &start));
        stmts
    }

    /// `o = epilogue(resultsᵀ)`.
    fn finish(&self, problem: &Index, start: &Index) -> Stmt {
        let axes = &self.attention.axes;
        let query = start.clone() + Index::Coord(0);
        let coords = self.coords(problem, &[(axes.m, query.clone()), (axes.e, Index::Coord(1))]);
        let shape = vec![Index::of(self.lanes), Index::of(self.width)];
        let held = vec![tile(self.results, vec![Index::Coord(1), Index::Coord(0)])];
        let stmt = epilogue(self.attention, shape, &coords, held, Scalar::Arg(0), &self.exists(&query));
        match stmt {
            // Without an epilogue it is a copy.
            Stmt::Map { shape, dst, mut args, expr: Scalar::Arg(0) } => Stmt::Copy { shape, dst, src: args.remove(0) },
            stmt => stmt,
        }
    }

    fn key_blocks(&self, draft: &mut Draft, problem: &Index, start: &Index) -> Vec<Stmt> {
        let (keys, block) = (self.keys, self.schedule.keys);
        if !self.attention.causal || keys <= block {
            return draft.blocks("keys", keys, block, LoopKind::Serial, |draft, at, size| {
                self.key_block(draft, problem, start, at, size)
            });
        }
        let steps = blocks_seen(self.attention, start, self.lanes, block);
        draft
            .blocks_until("keys", steps, keys, block, |draft, at, size| self.key_block(draft, problem, start, at, size))
    }

    fn key_block(&self, draft: &mut Draft, problem: &Index, start: &Index, at: &Index, size: u64) -> Vec<Stmt> {
        let first = at.clone() * Index::of(self.schedule.keys);
        let acc = self.schedule.accumulators;
        let lanes = vec![Index::of(self.lanes)];
        // Dimension 0 is the key, 1 the query.
        let window = vec![Index::of(size), Index::of(self.lanes)];
        let scores = tile(self.scores, vec![Index::Coord(0), Index::Coord(1)]);
        let of_query = |t: usize| tile(t, vec![Index::Coord(1)]);
        let mut stmts = self.score_tiles(draft, problem, start, &first, size);
        stmts.push(Stmt::Copy { shape: lanes.clone(), dst: self.row(self.before), src: self.row(self.max) });
        let largest = of_query(self.max);
        stmts.push(fold(window.clone(), vec![scores.clone()], Scalar::Arg(0), largest, FoldOp::Max, acc));
        let exp = if self.schedule.short_exp { UnaryOp::ExpShort } else { UnaryOp::ExpBelowZero };
        let power = |op| unary(op, binary(BinaryOp::Sub, Scalar::Arg(0), Scalar::Arg(1)));
        if self.keys > self.schedule.keys {
            // What was summed so far was taken against the maximum before this block.
            let args = vec![self.row(self.before), self.row(self.max)];
            stmts.push(store(lanes.clone(), self.row(self.before), args, Vec::new(), power(UnaryOp::ExpBelowZero)));
            let args = vec![self.row(self.sum), self.row(self.before)];
            let decayed = mul(Scalar::Arg(0), Scalar::Arg(1));
            stmts.push(store(lanes, self.row(self.sum), args, Vec::new(), decayed.clone()));
            let held = tile(self.results, vec![Index::Coord(0), Index::Coord(1)]);
            let shape = vec![Index::of(self.width), Index::of(self.lanes)];
            let args = vec![held.clone(), of_query(self.before)];
            stmts.push(store(shape, held, args, Vec::new(), decayed));
        }
        stmts.push(Stmt::Sweep {
            shape: window,
            args: vec![scores.clone(), of_query(self.max)],
            lets: vec![power(exp)],
            stores: vec![(scores, 0)],
            folds: vec![Fold { into: of_query(self.sum), op: FoldOp::Add, value: 0 }],
            accumulators: acc,
            ahead: 0,
        });
        stmts.extend(self.result_tiles(draft, problem, &first, size));
        stmts
    }

    /// `scores = scale · k qt`, minus infinity where a query does not see a key.
    fn score_tiles(&self, draft: &mut Draft, problem: &Index, start: &Index, first: &Index, size: u64) -> Vec<Stmt> {
        let axes = &self.attention.axes;
        draft.blocks("key", size, self.schedule.mk, LoopKind::Serial, |draft, at, rows| {
            let key = at.clone() * Index::of(self.schedule.mk) + Index::Coord(0);
            let place = first.clone() + key.clone();
            let coords = self.coords(problem, &[(axes.n, place.clone()), (axes.d, Index::Coord(2))]);
            let acc = draft.registers(rows, self.lanes);
            let value = score(self.attention, start.clone() + Index::Coord(1), place);
            vec![
                Stmt::Fill { tile: acc, value: 0.0 },
                Stmt::Contract {
                    shape: [Index::of(rows), Index::of(self.lanes), Index::of(self.depth)],
                    acc,
                    a: self.factor(1, &coords),
                    b: tile(self.queries, vec![Index::Coord(2), Index::Coord(1)]),
                    atom: self.atom,
                    unroll: self.schedule.ku,
                    prefetch: 0,
                    keep: None,
                    wake: 0,
                },
                Stmt::Map {
                    shape: vec![Index::of(rows), Index::of(self.lanes)],
                    dst: tile(self.scores, vec![key, Index::Coord(1)]),
                    args: vec![tile(acc, vec![Index::Coord(0), Index::Coord(1)])],
                    expr: value,
                },
            ]
        })
    }

    /// `results += vᵀ scores`.
    fn result_tiles(&self, draft: &mut Draft, problem: &Index, first: &Index, size: u64) -> Vec<Stmt> {
        let axes = &self.attention.axes;
        draft.blocks("column", self.width, self.schedule.me, LoopKind::Serial, |draft, at, rows| {
            let column = at.clone() * Index::of(self.schedule.me) + Index::Coord(0);
            let key = first.clone() + Index::Coord(2);
            let coords = self.coords(problem, &[(axes.n, key), (axes.e, column.clone())]);
            let acc = draft.registers(rows, self.lanes);
            let held = tile(self.results, vec![column, Index::Coord(1)]);
            vec![
                Stmt::Fill { tile: acc, value: 0.0 },
                Stmt::Contract {
                    shape: [Index::of(rows), Index::of(self.lanes), Index::of(size)],
                    acc,
                    a: self.factor(2, &coords),
                    b: tile(self.scores, vec![Index::Coord(2), Index::Coord(1)]),
                    atom: self.atom,
                    unroll: self.schedule.ku,
                    prefetch: 0,
                    keep: None,
                    wake: 0,
                },
                Stmt::Map {
                    shape: vec![Index::of(rows), Index::of(self.lanes)],
                    dst: held.clone(),
                    args: vec![tile(acc, vec![Index::Coord(0), Index::Coord(1)]), held],
                    expr: add(Scalar::Arg(0), Scalar::Arg(1)),
                },
            ]
        })
    }
}
