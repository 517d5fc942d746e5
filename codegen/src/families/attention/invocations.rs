//! Attention as invocations: a few queries of one head and some columns of their results each. Scores and results are
//! variables; whatever walks over them is written out.
//!
//! ```text
//! for blocks of queries and columns, shared by the invocations:
//!   m = lowest;  l = 0;  o = 0
//!   for blocks of keys (up to the last that is seen):
//!     s = scale · k qᵀ
//!     m' = max(m, max s);  c = e^(m - m');  l = c l;  o = c o
//!     s = e^(s - m');  l += Σ s
//!     o += vᵀ s
//!   out = o / l
//! ```

use search_space::Schedule;
use search_space::families::attention::AttentionView;
use search_space::families::attention::vulkan::InvocationSchedule;
use search_space::families::choice::Store;
use search_space::workload::DType;

use super::{LOWEST, blocks_seen, coords, epilogue, exists, factor, score};
use crate::atoms::{self, Atom};
use crate::families::elementwise::{binary, mul, unary};
use crate::families::nest::{Draft, fold, spread, store, tile};
use crate::index::Index;
use crate::lower::LowerError;
use crate::tile::{BinaryOp, Fold, FoldOp, Guard, Program, Scalar, Stmt, UnaryOp, View};

/// Partial results of a maximum or a sum over the keys of a block.
const ACCUMULATORS: u64 = 4;

/// The program of a schedule.
///
/// # Errors
/// [`LowerError::Schedule`] names a parameter without meaning.
pub fn build(attention: &AttentionView, schedule: &Schedule) -> Result<Program, LowerError> {
    let schedule = InvocationSchedule::read(schedule).map_err(|why| LowerError::Schedule { why })?;
    let atom = atoms::fma_f32(1).expect("invariant: the table has a multiply-add of one element");
    let mut draft = Draft::of(&attention.workload, schedule.workers);
    let mut scratch = |name: &str, shape: &[u64]| draft.scratch(name, shape, DType::F32);
    let form = Form {
        scores: scratch("scores", &[schedule.keys, schedule.queries]),
        max: scratch("max", &[schedule.queries]),
        before: scratch("before", &[schedule.queries]),
        sum: scratch("sum", &[schedule.queries]),
        attention,
        schedule,
        atom,
    };
    let blocks = attention.queries.div_ceil(schedule.queries);
    let width = attention.extents[attention.axes.e];
    // Neighbours have neighbouring queries, so that they read the same keys and values.
    let extents = [(attention.problems(), 1), (width.div_ceil(schedule.columns), 1), (blocks, 1)];
    let body = draft.blocks_together("block", &extents, spread(schedule.workers), |draft, at, _| {
        let block = Block {
            problem: &at[0],
            first_column: &(at[1].clone() * Index::of(schedule.columns)),
            first_query: &(at[2].clone() * Index::of(schedule.queries)),
            results: draft.register_tile("results", schedule.columns, schedule.queries),
        };
        form.block(draft, &block)
    });
    draft.kernel("attention", Store::Plain, DType::F32, body);
    Ok(draft.program())
}

struct Form<'a> {
    attention: &'a AttentionView,
    schedule: InvocationSchedule,
    atom: Atom,
    /// `[key, query]`.
    scores: usize,
    /// `[query]`, as the next two.
    max: usize,
    before: usize,
    sum: usize,
}

/// What one invocation computes in one turn.
struct Block<'b> {
    problem: &'b Index,
    first_column: &'b Index,
    first_query: &'b Index,
    /// Register tile `[column, query]`.
    results: usize,
}

impl Form<'_> {
    fn queries(&self) -> Vec<Index> {
        vec![Index::of(self.schedule.queries)]
    }

    fn of_query(&self, held: usize) -> View {
        tile(held, vec![Index::Coord(0)])
    }

    fn block(&self, draft: &mut Draft, block: &Block) -> Vec<Stmt> {
        let sum = self.of_query(self.sum);
        let mut stmts = vec![
            Stmt::Fill { tile: self.max, value: LOWEST },
            Stmt::Fill { tile: self.sum, value: 0.0 },
            Stmt::Fill { tile: block.results, value: 0.0 },
        ];
        stmts.extend(self.key_blocks(draft, block));
        let inverse = unary(UnaryOp::Recip, Scalar::Arg(0));
        stmts.push(store(self.queries(), sum.clone(), vec![sum], Vec::new(), inverse));
        stmts.push(self.finish(block));
        stmts
    }

    fn finish(&self, block: &Block) -> Stmt {
        let axes = &self.attention.axes;
        let query = block.first_query.clone() + Index::Coord(1);
        let column = block.first_column.clone() + Index::Coord(0);
        let mut guards = exists(self.attention, &query, self.schedule.queries);
        guards.extend(self.guards_of_columns(&column));
        let coords = coords(self.attention, block.problem, &[(axes.m, query), (axes.e, column)]);
        let held = vec![self.results(block), tile(self.sum, vec![Index::Coord(1)])];
        let value = mul(Scalar::Arg(0), Scalar::Arg(1));
        epilogue(self.attention, self.window(), &coords, held, value, &guards)
    }

    /// Where a column exists, for windows that reach over the last one.
    fn guards_of_columns(&self, column: &Index) -> Vec<Guard> {
        let width = self.attention.extents[self.attention.axes.e];
        if width.is_multiple_of(self.schedule.columns) {
            return Vec::new();
        }
        vec![Guard { index: column.clone(), bound: Index::of(width) }]
    }

    /// The window of all results, `[column, query]`.
    fn window(&self) -> Vec<Index> {
        vec![Index::of(self.schedule.columns), Index::of(self.schedule.queries)]
    }

    fn results(&self, block: &Block) -> View {
        tile(block.results, vec![Index::Coord(0), Index::Coord(1)])
    }

    /// Whole blocks of keys, then the keys that are left one by one: a second body for what is left would double the
    /// text that the driver compiles.
    fn key_blocks(&self, draft: &mut Draft, block: &Block) -> Vec<Stmt> {
        let (keys, size) = (self.attention.extents[self.attention.axes.n], self.schedule.keys);
        let (whole, rest) = (keys / size, keys % size);
        let (mut blocks, mut singles) = (Index::of(whole), Index::of(rest));
        if self.attention.causal && keys > size {
            // The minima tell how long the loops can be.
            let seen = |size: u64| blocks_seen(self.attention, block.first_query, self.schedule.queries, size);
            blocks = seen(size).min(blocks);
            singles = (seen(1) - Index::of(whole * size)).max(Index::ZERO).min(singles);
        }
        let mut stmts = draft.blocks_until("keys", blocks, whole * size, size, |draft, at, size| {
            self.key_block(draft, block, &(at.clone() * Index::of(size)), size)
        });
        if rest > 0 {
            stmts.extend(draft.blocks_until("key", singles, rest, 1, |draft, at, size| {
                self.key_block(draft, block, &(at.clone() + Index::of(whole * self.schedule.keys)), size)
            }));
        }
        stmts
    }

    /// `size` keys from `first` on.
    fn key_block(&self, draft: &mut Draft, block: &Block, first: &Index, size: u64) -> Vec<Stmt> {
        let axes = &self.attention.axes;
        let schedule = &self.schedule;
        let mut stmts = self.scores(draft, block, first, size);
        let row = self.queries();
        let [before, max, sum] = [self.before, self.max, self.sum].map(|held| self.of_query(held));
        stmts.push(Stmt::Copy { shape: row.clone(), dst: before.clone(), src: max.clone() });
        let keys = vec![Index::of(size)];
        // One statement for each query, so that all places are known.
        let each = || {
            (0..schedule.queries).map(|query| {
                let [max, sum] = [self.max, self.sum].map(|held| tile(held, vec![Index::of(query)]));
                (tile(self.scores, vec![Index::Coord(0), Index::of(query)]), max, sum)
            })
        };
        let largest = |scores, max| fold(keys.clone(), vec![scores], Scalar::Arg(0), max, FoldOp::Max, ACCUMULATORS);
        stmts.extend(each().map(|(scores, max, _)| largest(scores, max)));
        let power = unary(UnaryOp::ExpBelowZero, binary(BinaryOp::Sub, Scalar::Arg(0), Scalar::Arg(1)));
        if self.attention.extents[axes.n] > size {
            // What was summed so far was taken against the maximum before this block.
            stmts.push(store(row.clone(), before.clone(), vec![before.clone(), max], Vec::new(), power.clone()));
            let decayed = mul(Scalar::Arg(0), Scalar::Arg(1));
            stmts.push(store(row, sum.clone(), vec![sum, before], Vec::new(), decayed.clone()));
            let held = self.results(block);
            let args = vec![held.clone(), tile(self.before, vec![Index::Coord(1)])];
            stmts.push(store(self.window(), held, args, Vec::new(), decayed));
        }
        stmts.extend(each().map(|(scores, max, sum)| Stmt::Sweep {
            shape: keys.clone(),
            args: vec![scores.clone(), max],
            lets: vec![power.clone()],
            stores: vec![(scores, 0)],
            folds: vec![Fold { into: sum, op: FoldOp::Add, value: 0 }],
            accumulators: ACCUMULATORS,
            ahead: 0,
        }));
        let mut column = block.first_column.clone() + Index::Coord(0);
        if !self.guards_of_columns(&column).is_empty() {
            // What is computed of columns that do not exist is not stored.
            column = column.min(Index::of(self.attention.extents[axes.e] - 1));
        }
        let own = [(axes.n, first.clone() + Index::Coord(2)), (axes.e, column)];
        stmts.push(Stmt::Contract {
            shape: [Index::of(schedule.columns), Index::of(schedule.queries), Index::of(size)],
            acc: block.results,
            a: factor(self.attention, 2, &coords(self.attention, block.problem, &own)),
            b: tile(self.scores, vec![Index::Coord(2), Index::Coord(1)]),
            atom: self.atom,
            unroll: size,
            prefetch: 0,
            wake: 0,
            keep: None,
        });
        stmts
    }

    /// `scores = scale · k qᵀ`, minus infinity where a query does not see a key.
    fn scores(&self, draft: &mut Draft, block: &Block, first: &Index, size: u64) -> Vec<Stmt> {
        let axes = &self.attention.axes;
        let queries = self.schedule.queries;
        let key = first.clone() + Index::Coord(0);
        let query = block.first_query.clone() + Index::Coord(1);
        let at = |own: (usize, Index)| coords(self.attention, block.problem, &[own, (axes.d, Index::Coord(2))]);
        let mut q = factor(self.attention, 0, &at((axes.m, query.clone())));
        q.guards.extend(exists(self.attention, &query, queries));
        let products = draft.register_tile("products", size, queries);
        let held = vec![Index::Coord(0), Index::Coord(1)];
        vec![
            Stmt::Fill { tile: products, value: 0.0 },
            Stmt::Contract {
                shape: [Index::of(size), Index::of(queries), Index::of(self.attention.extents[axes.d])],
                acc: products,
                a: factor(self.attention, 1, &at((axes.n, key.clone()))),
                b: q,
                atom: self.atom,
                unroll: self.schedule.ku,
                prefetch: 0,
                wake: 0,
                keep: None,
            },
            Stmt::Map {
                shape: vec![Index::of(size), Index::of(queries)],
                dst: tile(self.scores, held.clone()),
                args: vec![tile(products, held)],
                expr: score(self.attention, query, key),
            },
        ]
    }
}
