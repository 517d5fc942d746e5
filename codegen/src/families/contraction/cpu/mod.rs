//! Contractions on the CPU: as a matrix product ([`gemm`]), or as a convolution that needs no matrix of its image
//! ([`direct`]). What both share is how an operand is laid out in panels before it is used ([`packed`]).

mod direct;
mod gemm;
mod packed;
mod window;

use search_space::Schedule;
use search_space::families::contraction::ContractionView;
use search_space::families::contraction::cpu::{CpuSchedule, Form};

use crate::atoms;
use crate::lower::LowerError;
use crate::tile::Program;

/// Builds the program.
///
/// # Errors
/// [`LowerError::Schedule`] when a parameter is missing or contradicts another or the workload.
pub fn build(view: &ContractionView, schedule: &Schedule) -> Result<Program, LowerError> {
    let schedule = CpuSchedule::read(schedule).map_err(|why| LowerError::Schedule { why })?;
    let atom = atoms::fma_f32(schedule.vw)
        .ok_or_else(|| LowerError::Schedule { why: format!("vw={} has no fma atom", schedule.vw) })?;
    match schedule.form {
        Form::Gemm => Ok(gemm::build(view, schedule, atom)),
        Form::Direct => {
            let image = view.image().ok_or_else(|| LowerError::Schedule {
                why: "form=direct needs a convolution, and this contraction has no window over an image".into(),
            })?;
            direct::build(view, &image, schedule, atom)
        }
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).expect("invariant: extents are below 2^62")
}
