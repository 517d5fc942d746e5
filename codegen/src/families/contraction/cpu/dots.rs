//! Products of operands that are both contiguous along the reduction, as dot products: vectors run along k.
//!
//! ```text
//! for batch, for the columns, for groups of mr rows
//!   sums[r] = Σ over k of row[r, k] · column[k]            ku partial results each, one tree for all rows
//!   out[r] = epilogue(sums[r])
//! ```
//! For matrices times few vectors, which read each element once and have nothing to keep in registers but sums.

use search_space::families::choice::Store;
use search_space::families::contraction::ContractionView;
use search_space::families::contraction::cpu::{CpuSchedule, Parallel, VectorAxis};
use search_space::workload::DType;

use crate::families::contraction::{Point, element, epilogue};
use crate::families::elementwise::mul;
use crate::families::nest::{Draft, fold, store, tile};
use crate::index::Index;
use crate::lower::LowerError;
use crate::tile::{FoldOp, LoopKind, Place, Program, Scalar, Stmt, View};

/// Builds the program.
pub(super) fn build(view: &ContractionView, schedule: &CpuSchedule) -> Result<Program, LowerError> {
    if !view.has_dots() {
        let why = "form=dots needs two operands that are contiguous along the reduction".into();
        return Err(LowerError::Schedule { why });
    }
    let (m, n, _) = view.extents();
    let rows_are_m = schedule.vec == VectorAxis::N;
    let (rows, cols) = if rows_are_m { (m, n) } else { (n, m) };
    let mut draft = Draft::new(&view.workload);
    let sums = draft.scratch("sums", &[schedule.mr], DType::F32);
    let kind = |parallel| if schedule.par == parallel { LoopKind::Cores } else { LoopKind::Serial };
    let batch = view.batch.extent();
    let body = draft.each("batch", batch, kind(Parallel::Batch), |draft, batch| {
        draft.each("col", cols, kind(Parallel::Cols), |draft, col| {
            draft.blocks("row", rows, schedule.mr, kind(Parallel::Rows), |_, at, size| {
                let row = at.clone() * Index::of(schedule.mr) + Index::Coord(0);
                let point = |k: Index| {
                    let (m, n) = if rows_are_m { (row.clone(), col.clone()) } else { (col.clone(), row.clone()) };
                    Point { batch: batch.clone(), m, n, k }
                };
                group(view, schedule, sums, size, &point)
            })
        })
    });
    draft.kernel("contraction", Store::Plain, DType::F32, body);
    Ok(draft.program())
}

fn group(
    view: &ContractionView,
    schedule: &CpuSchedule,
    sums: usize,
    size: u64,
    point: &dyn Fn(Index) -> Point,
) -> Vec<Stmt> {
    let factor = |map| {
        let (index, guards) = element(view, map, &point(Index::Coord(1)));
        View { place: Place::Buffer(map.operand), index: vec![index], guards }
    };
    let held = tile(sums, vec![Index::Coord(0)]);
    let window = vec![Index::of(size), Index::of(view.k.extent())];
    let product = mul(Scalar::Arg(0), Scalar::Arg(1));
    let out = point(Index::ZERO);
    let (index, guards) = element(view, &view.out, &out);
    let dst = View { place: Place::Buffer(view.out.operand), index: vec![index], guards };
    let (mut args, mut lets) = (vec![held.clone()], Vec::new());
    let (value, side) = epilogue(view, Scalar::Arg(0), 1, &|map| element(view, map, &out), &mut lets);
    args.extend(side);
    vec![
        Stmt::Fill { tile: sums, value: 0.0 },
        fold(window, vec![factor(&view.a), factor(&view.b)], product, held, FoldOp::Add, schedule.ku),
        store(vec![Index::of(size)], dst, args, lets, value),
    ]
}
