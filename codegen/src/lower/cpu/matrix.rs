//! Contractions on the matrix unit: register tiles are blocks of 16×16 sums, one hardware register each.
//!
//! ```text
//! for k in steps of one instruction:  load a block of a per 16 rows and one of b per 16 columns, multiply each with each
//!   after every `wake` steps:         store a register where nobody reads it
//! ```
//! On the processor this was measured on (Xeon, family 6 model 207), the first store after a microsecond without one
//! takes some 900 cycles, a quarter of what 32 steps take, and another within that time a twentieth.
//!
//! A register tile is filled with zeros or copied from memory, contracted into, and copied to memory; all register
//! tiles of a kernel share the hardware's registers, so that only one is alive at a time (verifier).

use search_space::workload::DType;

use super::Lowering;
use crate::atoms::Atom;
use crate::index::Index;
use crate::lane::matrix::{Matrix, REGISTERS, ROW_BYTES, ROWS};
use crate::lane::{Address, Array, Mem};
use crate::tile::{Place, View};

/// The blocks of a register tile; block `(r, c)` is register `r · columns + c`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    rows: u8,
    columns: u8,
}

/// Where the blocks of a factor are: every step of k adds `step` elements.
pub(super) struct Panel {
    mem: Mem,
    first: Index,
    step: i64,
    row: i64,
}

/// The factors of a product: their registers and where their blocks are.
struct Factors {
    rows: Vec<(u8, Panel)>,
    columns: Vec<(u8, Panel)>,
    types: [DType; 2],
    /// Steps of k.
    prefetch: u64,
}

/// How the steps of k are walked, see [`Stmt::Contract`](crate::tile::Stmt::Contract).
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    pub(super) unroll: u64,
    pub(super) prefetch: u64,
    pub(super) wake: u64,
}

impl Blocks {
    /// The blocks of a register tile of a shape.
    pub(super) fn of(shape: &[u64]) -> Blocks {
        let count = |extent: u64| u8::try_from(extent.div_ceil(ROWS)).expect("invariant: register tiles are small");
        let blocks = Blocks { rows: count(shape[0]), columns: count(shape[1]) };
        assert!(blocks.registers() <= REGISTERS, "invariant: spaces hold what fits the registers");
        blocks
    }

    /// Registers that hold the sums and one step of both factors.
    fn registers(self) -> u8 {
        self.rows * self.columns + self.rows + self.columns
    }
}

impl Lowering<'_> {
    /// Whether a register tile is one of the matrix unit.
    pub(super) fn matrix_of(&self, place: Place) -> Option<Blocks> {
        match place {
            Place::Tile(tile) => self.matrices[tile],
            Place::Buffer(_) => None,
        }
    }

    pub(super) fn matrix_zero(&mut self, blocks: Blocks) {
        for register in 0..blocks.rows * blocks.columns {
            self.builder.matrix(Matrix::Zero { register });
        }
    }

    /// Copies between a register tile and memory of sums; `false` leaves other copies.
    pub(super) fn matrix_copy(&mut self, dst: &View, src: &View) -> bool {
        let (blocks, view, stores) = match (self.matrix_of(dst.place), self.matrix_of(src.place)) {
            (Some(blocks), None) => (blocks, src, false),
            (None, Some(blocks)) => (blocks, dst, true),
            _ => return false,
        };
        for row in 0..blocks.rows {
            for column in 0..blocks.columns {
                let register = row * blocks.columns + column;
                let panel = self.panel(view, [start(row), start(column)], 0, [1, 0], 0);
                let (at, row_bytes) = (self.block_at(&panel, Index::ZERO, 0), self.row_bytes(&panel));
                self.builder.matrix(if stores {
                    Matrix::Store { register, at, row_bytes }
                } else {
                    Matrix::Load { register, at, row_bytes }
                });
            }
        }
        true
    }

    pub(super) fn matrix_contract(
        &mut self,
        (depth, blocks): (&Index, Blocks),
        [a, b]: [&View; 2],
        atom: &Atom,
        steps: Steps,
    ) {
        let step = i64::try_from(atom.shape.2).expect("invariant: atoms are small");
        let Blocks { rows, columns } = blocks;
        let sums = rows * columns;
        // A row of `a` is one of the tile; a row of `b` holds as many steps of k as fit four bytes.
        let group = 4 / i64::try_from(atom.factors[1].bytes()).expect("invariant: elements are small");
        let factors = Factors {
            rows: (0..rows).map(|row| (sums + row, self.panel(a, [start(row), 0], step, [1, 0], 0))).collect(),
            columns: (0..columns)
                .map(|column| (sums + rows + column, self.panel(b, [0, start(column)], step, [0, 0], group)))
                .collect(),
            types: atom.factors,
            prefetch: steps.prefetch,
        };
        let trips = depth.clone().floor_div(step);
        let [unroll, wake] =
            [steps.unroll, steps.wake].map(|count| i64::try_from(count).expect("invariant: factors are small"));
        let long = trips.as_const().is_none_or(|trips| trips > wake);
        let parts = if wake > 0 && long { trips.clone().floor_div(wake) } else { Index::ZERO };
        if parts != Index::ZERO {
            let count = self.builder.index(&parts);
            self.unrolled(count, 1, &mut |this, part| {
                let inside = this.builder.index_const(wake);
                this.unrolled(inside, unroll, &mut |this, at| {
                    this.matrix_step(&factors, &(part.clone() * Index::Const(wake) + at));
                });
                this.wake_stores(sums);
            });
        }
        let done = parts * Index::Const(wake);
        let rest = self.builder.index(&(trips - done.clone()));
        self.unrolled(rest, unroll, &mut |this, at| this.matrix_step(&factors, &(done.clone() + at)));
    }

    /// One step of k. Each block is loaded right before its first product, so that the unit has work while the next one
    /// arrives, and the lines of later steps are asked for in between.
    fn matrix_step(&mut self, factors: &Factors, at: &Index) {
        for (row, (a, panel)) in factors.rows.iter().enumerate() {
            self.factor(*a, panel, at);
            for (column, (b, panel_b)) in factors.columns.iter().enumerate() {
                if row == 0 {
                    self.factor(*b, panel_b, at);
                }
                let acc = u8::try_from(row * factors.columns.len() + column).expect("invariant: few registers");
                self.builder.matrix(Matrix::Multiply { acc, a: *a, b: *b, factors: factors.types });
                if column == 0 {
                    self.ask_for_block(panel, at, factors.prefetch);
                }
                if row == 0 {
                    self.ask_for_block(panel_b, at, factors.prefetch);
                }
            }
        }
    }

    fn factor(&mut self, register: u8, panel: &Panel, at: &Index) {
        let (address, row_bytes) = (self.block_at(panel, at.clone(), 0), self.row_bytes(panel));
        self.builder.matrix(Matrix::Load { register, at: address, row_bytes });
    }

    fn ask_for_block(&mut self, panel: &Panel, at: &Index, ahead: u64) {
        if ahead == 0 {
            return;
        }
        for row in 0..16 {
            let line = self.block_at(panel, at.clone() + Index::of(ahead), row);
            self.builder.prefetch(line);
        }
    }

    /// Stores a register where nobody reads it.
    fn wake_stores(&mut self, register: u8) {
        let len = ROWS * ROWS;
        let array = Array { name: "wake".into(), dtype: DType::F32, len };
        let mem = match self.wake {
            Some(mem) => mem,
            None => self.builder.scratch(array),
        };
        self.wake = Some(mem);
        let at = self.builder.address(mem, &Index::ZERO, 4);
        let row_bytes = i64::try_from(ROW_BYTES).expect("invariant: 64");
        self.builder.matrix(Matrix::Store { register, at, row_bytes });
    }

    /// The block of a view that begins at a row and a column; `row` and `group` say which coordinates the next row of
    /// the block has, `step` how far the next block is along k.
    pub(super) fn panel(&self, view: &View, from: [i64; 2], step: i64, row: [i64; 2], group: i64) -> Panel {
        let at = |m: i64, n: i64, k: i64| {
            let coords = [from[0] + m, from[1] + n, k].map(Index::Const);
            self.flat(&view.at(&coords)).expect("invariant: factors are in memory")
        };
        let (mem, first) = at(0, 0, 0);
        let apart = |other: Index| {
            let ((rest, begin), (same, end)) = (first.split_constant(), other.split_constant());
            debug_assert_eq!(rest, same, "invariant: families lay factors out in blocks");
            end - begin
        };
        let (step, row) = (apart(at(0, 0, step).1), apart(at(row[0], row[1], group).1));
        Panel { mem, first, step, row }
    }

    pub(super) fn block_at(&mut self, panel: &Panel, step: Index, row: i64) -> Address {
        let index = panel.first.clone() + step * Index::Const(panel.step) + Index::Const(row * panel.row);
        self.element_address(panel.mem, &index)
    }

    fn row_bytes(&self, panel: &Panel) -> i64 {
        panel.row * i64::try_from(self.bytes_of(panel.mem)).expect("invariant: elements are small")
    }
}

/// The first coordinate of a block.
fn start(block: u8) -> i64 {
    i64::from(block) * i64::try_from(ROWS).expect("invariant: 16")
}
