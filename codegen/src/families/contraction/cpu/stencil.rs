//! Convolutions with one output channel per group (depthwise): each output is a short sum over its window, with nothing
//! to share between channels, so there is no product of matrices in it.
//!
//! ```text
//! for image number, group, block of mt rows
//!   out[row, column] = epilogue(Σ over the window of image · weights)              vectors along what is contiguous
//! ```
//! The window is unrolled; padding is read as zero through masks, so nothing is copied. Where neighbouring groups are
//! neighbours in memory they are part of the walk, and the vectors run along them.

use search_space::families::contraction::cpu::{CpuSchedule, Parallel};
use search_space::families::contraction::image::ImageView;
use search_space::families::contraction::{ContractionView, OperandMap};

use super::window::{place, set};
use crate::families::contraction::{Names, buffers, epilogue};
use crate::families::nest::store;
use crate::index::{Index, Var};
use crate::lower::LowerError;
use crate::tile::{BinaryOp, Guard, Kernel, LoopKind, Phase, Place, Program, Scalar, Stmt, View};

/// Builds the program.
pub(super) fn build(view: &ContractionView, image: &ImageView, schedule: &CpuSchedule) -> Result<Program, LowerError> {
    if !view.is_stencil(image) {
        let why = "form=stencil needs groups of one output channel and a small window".into();
        return Err(LowerError::Schedule { why });
    }
    let mut names = Names::default();
    let mut loops = Vec::new();
    let mut open = |name: &str, extent: u64, parallel: Parallel| {
        let spread = schedule.par == parallel;
        if extent == 1 && !spread {
            return Index::ZERO;
        }
        let var: Var = names.var(name);
        loops.push((var, extent, if spread { LoopKind::Cores } else { LoopKind::Serial }));
        Index::Var(var)
    };
    let groups = view.batch.extent();
    // Groups are walked together when they are next to each other in all that is read and written.
    let together = groups > 1
        && schedule.par != Parallel::Batch
        && [&view.a, &view.b, &view.out].into_iter().all(|map| view.linear(map, &view.batch) == Some(1));
    let rows = image.height.pixels;
    let block = schedule.mt.min(rows);
    let mut coords = vec![Index::ZERO; view.workload.axes.len()];
    set(&mut coords, &image.outer, &open("outer", image.outer.extent(), Parallel::Cols));
    let group = if together { Index::Coord(2) } else { open("group", groups, Parallel::Batch) };
    set(&mut coords, &view.batch, &group);
    let start = open("rows", rows.div_ceil(block), Parallel::Rows) * Index::of(block);
    let row = start.clone() + Index::Coord(0);
    for (window, value) in [(&image.height, &row), (&image.width, &Index::Coord(1))] {
        window.pixel.into_iter().for_each(|axis| coords[axis] = value.clone());
    }
    let height =
        if rows.is_multiple_of(block) { Index::of(block) } else { Index::of(block).min(Index::of(rows) - start) };
    let mut shape = vec![height, Index::of(image.width.pixels)];
    shape.extend(together.then(|| Index::of(groups)));
    let walk = window_sum(view, image, &coords, shape);
    let nest = |body, (var, extent, kind): (_, u64, _)| vec![Stmt::For { var, extent: Index::of(extent), kind, body }];
    let body = loops.into_iter().rev().fold(vec![walk], nest);
    let kernel = Kernel {
        name: "contraction".into(),
        phase: Phase::Run,
        buffers: buffers(view),
        workgroup: [1; 3],
        vars: names.0,
        tiles: Vec::new(),
        pipes: Vec::new(),
        body,
    };
    Ok(Program { kernels: vec![kernel], workspace_bytes: Vec::new() })
}

/// `out = epilogue(Σ image · weights)` at the pixels `coords`.
fn window_sum(view: &ContractionView, image: &ImageView, coords: &[Index], shape: Vec<Index>) -> Stmt {
    let read = |map: &OperandMap, coords: &[Index]| {
        let (index, guards): (Index, Vec<Guard>) = place(map, coords);
        View { place: Place::Buffer(map.operand), index: vec![index], guards }
    };
    let mut args = Vec::new();
    let mut sum: Option<Scalar> = None;
    for step in 0..view.k.extent() {
        let mut at = coords.to_vec();
        set(&mut at, &view.k, &Index::of(step));
        let factors = [view.image_side(image).0, view.weights_side(image).0].map(|map| {
            args.push(read(map, &at));
            Box::new(Scalar::Arg(args.len() - 1))
        });
        let [pixel, weight] = factors;
        let product = Scalar::Binary(BinaryOp::Mul, pixel, weight);
        sum = Some(match sum {
            None => product,
            Some(sum) => Scalar::Binary(BinaryOp::Add, Box::new(product), Box::new(sum)),
        });
    }
    let mut lets = Vec::new();
    let sum = sum.expect("invariant: reductions have a step");
    let (expr, side) = epilogue(view, sum, args.len(), &|map| place(map, coords), &mut lets);
    args.extend(side);
    store(shape, read(&view.out, coords), args, lets, expr)
}
