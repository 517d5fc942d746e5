//! Maps as tile programs.
//!
//! ```text
//! for the other axes: for blocks of rows: for blocks of columns: out[r, c] = epilogue(in[r, c])
//! ```
//!
//! Where the input is contiguous along the rows, a block is turned in registers: on its way to the output when nothing
//! is computed, else on its way to a tile.

use search_space::Schedule;
use search_space::families::map::{self, MapSchedule, Outer};
use search_space::families::nest::Nest;
use search_space::families::workers::Workers;
use search_space::workload::DType;

use super::nest::{Draft, digits, finish, spread, tile, view};
use crate::index::Index;
use crate::lower::LowerError;
use crate::tile::{LoopKind, Program, Scalar, Stmt};

/// The program of a schedule.
///
/// # Errors
/// [`LowerError::Schedule`] names a parameter without meaning.
pub fn build(nest: &Nest, schedule: &Schedule) -> Result<Program, LowerError> {
    let schedule = MapSchedule::read(schedule).map_err(|why| LowerError::Schedule { why })?;
    let (rows, cols) = map::axes(nest);
    let others: Vec<usize> = (0..nest.extents.len()).filter(|&axis| axis != rows && axis != cols).collect();
    let mut draft = Draft::of(&nest.workload, schedule.workers);
    let turned = nest.factor().strides[cols] != 1 && rows != cols && nest.factor().strides[rows] == 1;
    let computes = !nest.workload.epilogue.is_empty();
    let invocations = matches!(schedule.workers, Workers::Invocations { .. });
    // Invocations have no vectors to turn.
    let held = (turned && computes && !invocations)
        .then(|| draft.scratch("turned", &[schedule.rows, schedule.cols], DType::F32));
    let row_extent = if rows == cols { 1 } else { nest.extents[rows] };

    let block = |other: &Index, [row, col]: [&Index; 2], [height, width]: [u64; 2]| {
        let mut coords = vec![Index::ZERO; nest.extents.len()];
        digits(nest, &others, other, &mut coords);
        if rows != cols {
            coords[rows] = row.clone() * Index::of(schedule.rows) + Index::Coord(0);
        }
        coords[cols] = col.clone() * Index::of(schedule.cols) + Index::Coord(1);
        let shape = vec![Index::of(height), Index::of(width)];
        let (src, dst) = (view(nest.factor(), &coords), view(nest.out(), &coords));
        if !computes {
            return vec![Stmt::Copy { shape, dst, src }];
        }
        let mut stmts = Vec::new();
        let mut args = vec![src];
        if let Some(held) = held {
            let place = tile(held, vec![Index::Coord(0), Index::Coord(1)]);
            stmts.push(Stmt::Copy { shape: shape.clone(), dst: place.clone(), src: args[0].clone() });
            args[0] = place;
        }
        stmts.push(finish(&nest.workload, &nest.maps, shape, &coords, args, Scalar::Arg(0)));
        stmts
    };
    if invocations {
        let (rows, cols) = ((row_extent, schedule.rows), (nest.extents[cols], schedule.cols));
        let turned = schedule.outer == Outer::Cols;
        let extents = [(nest.count(&others), 1), if turned { cols } else { rows }, if turned { rows } else { cols }];
        let body = draft.blocks_together("block", &extents, spread(schedule.workers), |_, at, sizes| {
            let (row, col) = if turned { (2, 1) } else { (1, 2) };
            block(&at[0], [&at[row], &at[col]], [sizes[row], sizes[col]])
        });
        draft.kernel("map", schedule.store, DType::F32, body);
        return Ok(draft.program());
    }
    // The cores share the outermost loop that has more than one step.
    let mut shared = true;
    let mut kind = |steps: u64| {
        let cores = shared && steps > 1;
        shared &= !cores;
        if cores { spread(schedule.workers) } else { LoopKind::Serial }
    };
    let (row_blocks, col_blocks) = (row_extent.div_ceil(schedule.rows), nest.extents[cols].div_ceil(schedule.cols));
    let other_kind = kind(nest.count(&others));
    let (outer_steps, inner_steps) = match schedule.outer {
        Outer::Rows => (row_blocks, col_blocks),
        Outer::Cols => (col_blocks, row_blocks),
    };
    let (outer_kind, inner_kind) = (kind(outer_steps), kind(inner_steps));
    let body = draft.each("other", nest.count(&others), other_kind, |draft, other| match schedule.outer {
        Outer::Rows => draft.blocks("row", row_extent, schedule.rows, outer_kind, |draft, row, height| {
            draft.blocks("col", nest.extents[cols], schedule.cols, inner_kind, |_, col, width| {
                block(&other, [row, col], [height, width])
            })
        }),
        Outer::Cols => draft.blocks("col", nest.extents[cols], schedule.cols, outer_kind, |draft, col, width| {
            draft.blocks("row", row_extent, schedule.rows, inner_kind, |_, row, height| {
                block(&other, [row, col], [height, width])
            })
        }),
    });
    draft.kernel("map", schedule.store, DType::F32, body);
    Ok(draft.program())
}
