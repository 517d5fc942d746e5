//! Contractions on the CPU: as a matrix product ([`gemm`]), or as a convolution that needs no matrix of its image
//! ([`direct`], [`winograd`], [`stencil`]). What both share is how an operand is laid out in panels before it is used ([`packed`]).

mod direct;
mod dots;
mod filtering;
mod gemm;
mod packed;
mod stencil;
mod window;
mod winograd;

use search_space::Schedule;
use search_space::families::contraction::ContractionView;
use search_space::families::contraction::cpu::{CpuSchedule, Form};

use crate::atoms;
use crate::index::Index;
use crate::lower::LowerError;
use crate::tile::{Program, Scalar, Stmt, View};

/// Builds the program.
///
/// # Errors
/// [`LowerError::Schedule`] when a parameter is missing or contradicts another or the workload.
pub fn build(view: &ContractionView, schedule: &Schedule) -> Result<Program, LowerError> {
    let schedule = CpuSchedule::read(schedule).map_err(|why| LowerError::Schedule { why })?;
    let atom = atoms::fma_f32(schedule.vw)
        .ok_or_else(|| LowerError::Schedule { why: format!("vw={} has no fma atom", schedule.vw) })?;
    let image = || {
        let why = "this contraction has no window over an image, so it has no form but gemm";
        view.image().ok_or_else(|| LowerError::Schedule { why: why.into() })
    };
    match schedule.form {
        Form::Gemm => Ok(gemm::build(view, schedule, atom)),
        Form::Dots => dots::build(view, &schedule),
        Form::Direct => direct::build(view, &image()?, schedule, atom),
        Form::Stencil => stencil::build(view, &image()?, &schedule),
        Form::Winograd(outputs) => winograd::build(view, &image()?, outputs, schedule, atom),
    }
}

/// `dst = expr(args)`, where `expr` may refer to `lets`.
fn map(shape: Vec<Index>, dst: View, args: Vec<View>, mut lets: Vec<Scalar>, expr: Scalar) -> Stmt {
    if lets.is_empty() {
        return Stmt::Map { shape, dst, args, expr };
    }
    lets.push(expr);
    let stores = vec![(dst, lets.len() - 1)];
    Stmt::Sweep { shape, args, lets, stores, folds: Vec::new(), accumulators: 1, ahead: 0 }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).expect("invariant: extents are below 2^62")
}
