//! Row passes as tile programs: every group of rows takes a few passes over its columns.
//!
//! ```text
//! softmax     m = max x;  s = Σ e^(x - m), kept;  out = kept / s
//! online      per block: m' = max(m, max x);  s = s e^(m - m') + Σ e^(x - m'), kept with m';  out = kept e^(m' - m) / s
//! layer norm  Σ (x - x₀), Σ (x - x₀)²;  out = (x - mean) / √(var + ε)          (or the mean first, then the variance)
//! arg-max     m = max x;  least position of m
//! ```
//!
//! Groups can also be chained: the reductions of one go on while the one before is written (`chain.rs`).

mod chain;

use search_space::Schedule;
use search_space::families::choice::Store;
use search_space::families::nest::Nest;
use search_space::families::rows::{Moments, RowsSchedule};
use search_space::workload::{DType, Op};

use self::chain::{Links, Norm, Softmax};
use super::elementwise::{add, binary, mul, unary};
use super::nest::{Draft, digits, finish, fold, position, spread, store, tile, view};
use crate::index::Index;
use crate::lower::LowerError;
use crate::tile::{BinaryOp, Compare, Fold, FoldOp, LoopKind, Program, Scalar, Stmt, UnaryOp, View};

/// Below every finite number that a maximum can be of, yet finite: the difference to minus infinity stays minus
/// infinity, and is never NaN.
const LOWEST: f64 = f32::MIN as f64;

/// The program of a schedule.
///
/// # Errors
/// [`LowerError::Schedule`] names a parameter without meaning.
pub fn build(nest: &Nest, schedule: &Schedule) -> Result<Program, LowerError> {
    let schedule = RowsSchedule::read(schedule).map_err(|why| LowerError::Schedule { why })?;
    let (kept, reduced) = (nest.axes(false), nest.axes(true));
    let (rows, cols) = (nest.count(&kept), nest.count(&reduced));
    let mut draft = Draft::of(&nest.workload, schedule.workers);
    let tiles = Tiles::new(nest, &mut draft, &schedule, cols);
    let kind = spread(schedule.workers);
    if schedule.chain > 1 {
        let links: &dyn Links = match nest.workload.op {
            Op::RowsSoftmax => &Softmax,
            Op::RowsLayerNorm { eps } => &Norm { centred: true, eps: eps.get() },
            Op::RowsRmsNorm { eps } => &Norm { centred: false, eps: eps.get() },
            op => {
                let why = format!("chain={}: groups of {} are not chained", schedule.chain, op.as_str());
                return Err(LowerError::Schedule { why });
            }
        };
        let group = schedule.group;
        let body = draft.blocks("chain", rows, group * schedule.chain, kind, |draft, at, size| {
            let at = at.clone() * Index::of(schedule.chain);
            let pass =
                Pass { nest, schedule: &schedule, kept: &kept, reduced: &reduced, tiles: &tiles, at: &at, size: group };
            chain::chain(draft, links, &pass, &at, size / group)
        });
        draft.kernel("rows", schedule.store, DType::F32, body);
        return Ok(draft.program());
    }
    let body = draft.blocks("group", rows, schedule.group, kind, |draft, at, size| {
        let pass = Pass { nest, schedule: &schedule, kept: &kept, reduced: &reduced, tiles: &tiles, at, size };
        match nest.workload.op {
            Op::RowsSoftmax if schedule.block < cols => pass.online(draft, false),
            Op::RowsLogSoftmax if schedule.block < cols => pass.online(draft, true),
            Op::RowsSoftmax => pass.softmax(false),
            Op::RowsLogSoftmax => pass.softmax(true),
            Op::RowsLayerNorm { eps } => pass.layer_norm(eps.get()),
            Op::RowsRmsNorm { eps } => pass.rms_norm(eps.get()),
            _ => pass.arg_max(),
        }
    });
    draft.kernel("rows", schedule.store, DType::F32, body);
    Ok(draft.program())
}

/// Tiles with one element for each row of a group; what an operation does not use is never asked for.
struct Tiles {
    first: usize,
    second: usize,
    third: usize,
    position: usize,
    /// The maxima that the kept exponentials of each block were taken against.
    against: usize,
    /// One over the roots of the norms of a chain.
    root: usize,
    /// What a chain multiplies the kept exponentials of each block with.
    factors: usize,
    /// Kept exponentials `[row, column]`, when the output cannot hold them.
    kept: Option<usize>,
}

impl Tiles {
    fn new(nest: &Nest, draft: &mut Draft, schedule: &RowsSchedule, cols: u64) -> Tiles {
        let group = schedule.group;
        let output = &nest.workload.operands[nest.out().operand];
        let exponentials = nest.workload.op == Op::RowsSoftmax;
        let holds = output.dtype == DType::F32 && schedule.store == Store::Plain && schedule.chain == 1;
        let mut row = |name: &str, dtype| draft.scratch(name, &[group], dtype);
        let (first, second, third) = (row("first", DType::F32), row("second", DType::F32), row("third", DType::F32));
        let (root, position) = (row("root", DType::F32), row("position", DType::I32));
        let blocks = cols.div_ceil(schedule.block);
        let [against, factors] = ["against", "factors"].map(|name| draft.scratch(name, &[blocks, group], DType::F32));
        let kept = (exponentials && !holds).then(|| draft.scratch("kept", &[group, cols], DType::F32));
        Tiles { first, second, third, position, against, root, factors, kept }
    }
}

/// The passes of one group of rows.
#[derive(Clone, Copy)]
struct Pass<'p> {
    nest: &'p Nest,
    schedule: &'p RowsSchedule,
    kept: &'p [usize],
    reduced: &'p [usize],
    tiles: &'p Tiles,
    /// Index of the group.
    at: &'p Index,
    /// Rows in it.
    size: u64,
}

impl Pass<'_> {
    /// The coordinates of a window `[row, columns..]`, or of its first column.
    fn coords(&self, cols: Option<&Index>, first: bool) -> Vec<Index> {
        let mut coords = vec![Index::ZERO; self.nest.extents.len()];
        let row = self.at.clone() * Index::of(self.schedule.group) + Index::Coord(0);
        digits(self.nest, self.kept, &row, &mut coords);
        if !first {
            for (position, &axis) in self.reduced.iter().enumerate() {
                let start = cols.map_or(Index::ZERO, |block| block.clone() * Index::of(self.schedule.block));
                coords[axis] = start + Index::Coord(1 + position);
            }
        }
        coords
    }

    /// The window of all columns.
    fn whole(&self) -> Vec<Index> {
        let columns = self.reduced.iter().map(|&axis| Index::of(self.nest.extents[axis]));
        std::iter::once(Index::of(self.size)).chain(columns).collect()
    }

    fn rows(&self) -> Vec<Index> {
        vec![Index::of(self.size)]
    }

    fn input(&self, coords: &[Index]) -> View {
        view(self.nest.factor(), coords)
    }

    fn columns(&self) -> u64 {
        self.nest.count(self.reduced)
    }

    /// Where exponentials are kept between passes.
    fn held(&self, coords: &[Index]) -> View {
        match self.tiles.kept {
            // Several column axes are one dimension of the tile.
            Some(kept) => {
                let column = position(self.nest, self.reduced, coords, Index::ZERO);
                tile(kept, vec![Index::Coord(0), column])
            }
            None => view(self.nest.out(), coords),
        }
    }

    /// `out = epilogue(value)` over a window.
    fn finish(&self, shape: Vec<Index>, coords: &[Index], args: Vec<View>, value: Scalar) -> Stmt {
        finish(&self.nest.workload, &self.nest.maps, shape, coords, args, value)
    }

    fn exp(&self, x: Scalar) -> Scalar {
        unary(if self.schedule.short_exp { UnaryOp::ExpShort } else { UnaryOp::ExpBelowZero }, x)
    }

    fn softmax(&self, log: bool) -> Vec<Stmt> {
        let (max, sum) = (self.tiles.first, self.tiles.second);
        let row = |t: usize| tile(t, vec![Index::Coord(0)]);
        let coords = self.coords(None, false);
        let x = self.input(&coords);
        let acc = self.schedule.accumulators;
        let power = self.exp(sub(Scalar::Arg(0), Scalar::Arg(1)));
        let stores = if log { Vec::new() } else { vec![(self.held(&coords), 0)] };
        let mut stmts = vec![
            Stmt::Fill { tile: max, value: LOWEST },
            Stmt::Fill { tile: sum, value: 0.0 },
            fold(self.whole(), vec![x.clone()], Scalar::Arg(0), row(max), FoldOp::Max, acc),
            Stmt::Sweep {
                shape: self.whole(),
                args: vec![x.clone(), row(max)],
                lets: vec![power],
                stores,
                folds: vec![Fold { into: row(sum), op: FoldOp::Add, value: 0 }],
                accumulators: acc,
                ahead: if log { 0 } else { self.schedule.ahead },
            },
        ];
        let op = if log { UnaryOp::Log } else { UnaryOp::Recip };
        stmts.push(store(self.rows(), row(sum), vec![row(sum)], Vec::new(), unary(op, Scalar::Arg(0))));
        stmts.push(if log {
            let value = sub(sub(Scalar::Arg(0), Scalar::Arg(1)), Scalar::Arg(2));
            asking(self.finish(self.whole(), &coords, vec![x, row(max), row(sum)], value), self.schedule.ahead)
        } else {
            let args = vec![self.held(&coords), row(sum)];
            self.finish(self.whole(), &coords, args, mul(Scalar::Arg(0), Scalar::Arg(1)))
        });
        stmts
    }

    /// Softmax in blocks of columns, each read from memory once before the last pass.
    fn online(&self, draft: &mut Draft, log: bool) -> Vec<Stmt> {
        let (max, sum, factor) = (self.tiles.first, self.tiles.second, self.tiles.third);
        let row = |t: usize| tile(t, vec![Index::Coord(0)]);
        let (columns, block, acc) = (self.columns(), self.schedule.block, self.schedule.accumulators);
        let window = |width: u64| vec![Index::of(self.size), Index::of(width)];
        let against = |at: &Index| tile(self.tiles.against, vec![at.clone(), Index::Coord(0)]);
        // The sum so far was taken against the maximum before this block.
        let [sum_before, max_before, max_now] = [0, 1, 2].map(Scalar::Arg);
        let decayed = mul(sum_before.clone(), unary(UnaryOp::ExpBelowZero, sub(max_before.clone(), max_now.clone())));
        let decay = Scalar::Select(Compare::Eq, Box::new([max_before, max_now, sum_before, decayed]));
        let mut stmts = vec![Stmt::Fill { tile: max, value: LOWEST }, Stmt::Fill { tile: sum, value: 0.0 }];
        stmts.extend(draft.blocks("block", columns, block, LoopKind::Serial, |_, at, width| {
            let coords = self.coords(Some(at), false);
            let x = self.input(&coords);
            let stores = if log { Vec::new() } else { vec![(self.held(&coords), 0)] };
            vec![
                Stmt::Copy { shape: self.rows(), dst: row(factor), src: row(max) },
                fold(window(width), vec![x.clone()], Scalar::Arg(0), row(max), FoldOp::Max, acc),
                store(self.rows(), row(sum), vec![row(sum), row(factor), row(max)], Vec::new(), decay.clone()),
                Stmt::Copy { shape: self.rows(), dst: against(at), src: row(max) },
                Stmt::Sweep {
                    shape: window(width),
                    args: vec![x, row(max)],
                    lets: vec![self.exp(sub(Scalar::Arg(0), Scalar::Arg(1)))],
                    stores,
                    folds: vec![Fold { into: row(sum), op: FoldOp::Add, value: 0 }],
                    accumulators: acc,
                    ahead: self.schedule.ahead,
                },
            ]
        }));
        let op = if log { UnaryOp::Log } else { UnaryOp::Recip };
        stmts.push(store(self.rows(), row(sum), vec![row(sum)], Vec::new(), unary(op, Scalar::Arg(0))));
        stmts.extend(draft.blocks("block", columns, block, LoopKind::Serial, |_, at, width| {
            let coords = self.coords(Some(at), false);
            if log {
                let value = sub(sub(Scalar::Arg(0), Scalar::Arg(1)), Scalar::Arg(2));
                let args = vec![self.input(&coords), row(max), row(sum)];
                return vec![self.finish(window(width), &coords, args, value)];
            }
            let correction = mul(unary(UnaryOp::ExpBelowZero, sub(Scalar::Arg(0), Scalar::Arg(1))), Scalar::Arg(2));
            let args = vec![against(at), row(max), row(sum)];
            let value = mul(Scalar::Arg(0), Scalar::Arg(1));
            vec![
                store(self.rows(), row(factor), args, Vec::new(), correction),
                self.finish(window(width), &coords, vec![self.held(&coords), row(factor)], value),
            ]
        }));
        stmts
    }

    /// One over the number of columns.
    fn share(&self) -> Scalar {
        #[expect(clippy::cast_precision_loss, reason = "a row has fewer than 2^31 columns")]
        Scalar::Const(1.0 / self.columns() as f64)
    }

    /// One over the root of the mean, of argument 0, a sum of squares.
    fn root_of_squares(&self, eps: f64) -> Scalar {
        to_root(mul(Scalar::Arg(0), self.share()), eps)
    }

    /// The mean, and one over the root of the variance into `root`, from sums of distances to the first element.
    fn moments(&self, eps: f64, root: usize) -> Stmt {
        let (sum, square, shift) = (self.tiles.first, self.tiles.second, self.tiles.third);
        let row = |t: usize| tile(t, vec![Index::Coord(0)]);
        // The constant comes first, so that NaN stays.
        let variance = binary(
            BinaryOp::Max,
            Scalar::Const(0.0),
            sub(mul(Scalar::Arg(1), self.share()), mul(Scalar::Let(0), Scalar::Let(0))),
        );
        Stmt::Sweep {
            shape: self.rows(),
            args: vec![row(sum), row(square), self.input(&self.coords(None, true))],
            lets: vec![mul(Scalar::Arg(0), self.share()), to_root(variance, eps), add(Scalar::Arg(2), Scalar::Let(0))],
            stores: vec![(row(root), 1), (row(shift), 2)],
            folds: Vec::new(),
            accumulators: 1,
            ahead: 0,
        }
    }

    fn layer_norm(&self, eps: f64) -> Vec<Stmt> {
        let (sum, square, shift) = (self.tiles.first, self.tiles.second, self.tiles.third);
        let row = |t: usize| tile(t, vec![Index::Coord(0)]);
        let coords = self.coords(None, false);
        let (x, first) = (self.input(&coords), self.input(&self.coords(None, true)));
        let acc = self.schedule.accumulators;
        let count = self.share();
        let mut stmts = vec![Stmt::Fill { tile: sum, value: 0.0 }, Stmt::Fill { tile: square, value: 0.0 }];
        let difference = sub(Scalar::Arg(0), Scalar::Arg(1));
        let square_of = mul(Scalar::Let(0), Scalar::Let(0));
        match self.schedule.moments {
            Moments::Shifted => {
                let folds = vec![
                    Fold { into: row(sum), op: FoldOp::Add, value: 0 },
                    Fold { into: row(square), op: FoldOp::Add, value: 1 },
                ];
                stmts.push(Stmt::Sweep {
                    shape: self.whole(),
                    args: vec![x.clone(), first],
                    lets: vec![difference, square_of],
                    stores: Vec::new(),
                    folds,
                    accumulators: acc,
                    ahead: 0,
                });
                stmts.push(self.moments(eps, square));
            }
            Moments::TwoPass => {
                stmts.push(fold(self.whole(), vec![x.clone()], Scalar::Arg(0), row(sum), FoldOp::Add, acc));
                let mean = mul(Scalar::Arg(0), count.clone());
                stmts.push(store(self.rows(), row(shift), vec![row(sum)], Vec::new(), mean));
                stmts.push(Stmt::Sweep {
                    shape: self.whole(),
                    args: vec![x.clone(), row(shift)],
                    lets: vec![difference, square_of],
                    stores: Vec::new(),
                    folds: vec![Fold { into: row(square), op: FoldOp::Add, value: 1 }],
                    accumulators: acc,
                    ahead: 0,
                });
                let root = to_root(mul(Scalar::Arg(0), count), eps);
                stmts.push(store(self.rows(), row(square), vec![row(square)], Vec::new(), root));
            }
        }
        let value = mul(sub(Scalar::Arg(0), Scalar::Arg(1)), Scalar::Arg(2));
        stmts.push(asking(
            self.finish(self.whole(), &coords, vec![x, row(shift), row(square)], value),
            self.schedule.ahead,
        ));
        stmts
    }

    fn rms_norm(&self, eps: f64) -> Vec<Stmt> {
        let square = self.tiles.first;
        let row = |t: usize| tile(t, vec![Index::Coord(0)]);
        let coords = self.coords(None, false);
        let x = self.input(&coords);
        let acc = self.schedule.accumulators;
        let root = self.root_of_squares(eps);
        let squares = mul(Scalar::Arg(0), Scalar::Arg(0));
        let last =
            self.finish(self.whole(), &coords, vec![x.clone(), row(square)], mul(Scalar::Arg(0), Scalar::Arg(1)));
        vec![
            Stmt::Fill { tile: square, value: 0.0 },
            fold(self.whole(), vec![x], squares, row(square), FoldOp::Add, acc),
            store(self.rows(), row(square), vec![row(square)], Vec::new(), root),
            asking(last, self.schedule.ahead),
        ]
    }

    fn arg_max(&self) -> Vec<Stmt> {
        let (max, place) = (self.tiles.first, self.tiles.position);
        let row = |t: usize| tile(t, vec![Index::Coord(0)]);
        let coords = self.coords(None, false);
        let x = self.input(&coords);
        let acc = self.schedule.accumulators;
        let position = position(self.nest, self.reduced, &coords, Index::ZERO);
        let nowhere = f64::from(i32::MAX);
        let select = |parts: [Scalar; 4]| Scalar::Select(Compare::Eq, Box::new(parts));
        // NaN is the largest: it equals nothing, itself included.
        let nan = select([Scalar::Arg(0), Scalar::Arg(0), Scalar::Const(nowhere), Scalar::Position(position.clone())]);
        let found = select([Scalar::Arg(0), Scalar::Arg(1), Scalar::Position(position), nan]);
        let out = view(self.nest.out(), &self.coords(None, true));
        vec![
            Stmt::Fill { tile: max, value: f64::NEG_INFINITY },
            fold(self.whole(), vec![x.clone()], Scalar::Arg(0), row(max), FoldOp::NanMax, acc),
            Stmt::Fill { tile: place, value: nowhere },
            fold(self.whole(), vec![x, row(max)], found, row(place), FoldOp::Min, acc),
            Stmt::Copy { shape: self.rows(), dst: out, src: row(place) },
        ]
    }
}

/// One over the root of a variance.
fn to_root(variance: Scalar, eps: f64) -> Scalar {
    unary(UnaryOp::Recip, unary(UnaryOp::Sqrt, add(variance, Scalar::Const(eps))))
}

/// The walk, which then asks for the memory that many elements ahead of what its first argument reads.
fn asking(stmt: Stmt, elements: u64) -> Stmt {
    match stmt {
        Stmt::Map { shape, dst, args, expr } if elements > 0 => Stmt::Sweep {
            shape,
            args,
            lets: vec![expr],
            stores: vec![(dst, 0)],
            folds: Vec::new(),
            accumulators: 1,
            ahead: elements,
        },
        Stmt::Sweep { shape, args, lets, stores, folds, accumulators, .. } => {
            Stmt::Sweep { shape, args, lets, stores, folds, accumulators, ahead: elements }
        }
        stmt => stmt,
    }
}

fn sub(lhs: Scalar, rhs: Scalar) -> Scalar {
    binary(BinaryOp::Sub, lhs, rhs)
}
