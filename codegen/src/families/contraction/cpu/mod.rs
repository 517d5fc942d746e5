//! Contractions on the CPU: as a matrix product (`gemm`), or as a convolution that needs no matrix of its image
//! (`direct`, `winograd`, `stencil`); a matrix product on a matrix unit or by sums of
//! bytes is `tiled`. What they share is how an
//! operand is laid out in panels before it is used (`packed`).

mod direct;
mod dots;
mod filtering;
mod gemm;
mod packed;
mod parts;
mod stencil;
mod tiled;
mod window;
mod winograd;

use search_space::families::contraction::cpu::{CpuSchedule, Form, Parallel};
use search_space::families::contraction::{self, ContractionView};
use search_space::workload::DType;
use search_space::{Schedule, Target};

use crate::atoms::{self, Scope};
use crate::lower::LowerError;
use crate::tile::Program;

/// Builds the program.
///
/// # Errors
/// [`LowerError::Schedule`] when a parameter is missing or contradicts another or the workload.
pub fn build(view: &ContractionView, target: &Target, schedule: &Schedule) -> Result<Program, LowerError> {
    contraction::check_conversions(&view.workload, target)?;
    let schedule = CpuSchedule::read(schedule).map_err(|why| LowerError::Schedule { why })?;
    let acc = view.workload.acc;
    let atom = match schedule.form {
        Form::Tile => atoms::matrix_of(view.factors(), acc),
        Form::Bytes => atoms::dot_of(view.factors(), acc),
        _ => atoms::multiply_add(acc, schedule.vw),
    };
    let why = || format!("vw={} has no instruction for sums in {}", schedule.vw, acc.as_str());
    let atom = atom.ok_or_else(|| LowerError::Schedule { why: why() })?;
    // Plain vectors that are too long are taken apart; other instructions that are not there cannot be made up for.
    if (atom.scope == Scope::Matrix || atom.shape.2 > 1) && !target.key.features.contains(atom.feature) {
        let why = format!("{} needs the feature {}, which the target lacks", atom.name, atom.feature);
        return Err(LowerError::Schedule { why });
    }
    if acc != DType::F32 && !matches!(schedule.form, Form::Gemm | Form::Tile | Form::Bytes) {
        let why = format!("this form has no sums in {}; gemm has", acc.as_str());
        return Err(LowerError::Schedule { why });
    }
    // Those of split-K lie in a workspace of their own.
    if schedule.kc < view.k.extent() && !view.holds_sums() && schedule.par != Parallel::K {
        let why = format!("kc={} would round partial sums to the output's type", schedule.kc);
        return Err(LowerError::Schedule { why });
    }
    let image = || {
        let why = "this contraction has no window over an image, so it has no form but gemm";
        view.image().ok_or_else(|| LowerError::Schedule { why: why.into() })
    };
    match schedule.form {
        Form::Gemm => gemm::build(view, schedule, atom),
        Form::Dots => dots::build(view, &schedule),
        Form::Direct => direct::build(view, &image()?, schedule, atom),
        Form::Stencil => stencil::build(view, &image()?, &schedule),
        Form::Tile | Form::Bytes => Ok(tiled::build(view, schedule, atom)),
        Form::Winograd(outputs) => winograd::build(view, &image()?, outputs, schedule, atom),
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).expect("invariant: extents are below 2^62")
}
