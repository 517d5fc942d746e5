//! Readers of what comes from outside (ONNX, workload lists, foreign parameter spaces, recorded measurements) and the
//! generator of the demo graphs.
//!
//! [`onnx`] finds the workloads of a model, [`lists`] reads them from a text file, [`suite`] from JSON that other systems
//! are measured by, [`demo`] writes the graphs that the
//! demo tunes. [`spaces`] reads parameter spaces that others declared, [`recorded`] what was measured of all of one;
//! [`devices`] knows what makers publish about devices. All input is taken as hostile: it is read in bounded time and
//! memory or refused with a [`DatasetError`].
//! Deliberately absent: weights, and running anything.

mod error;
mod file;
mod task;

pub mod demo;
pub mod devices;
pub mod lists;
pub mod onnx;
pub mod recorded;
pub mod spaces;
pub mod suite;

pub use error::{DatasetError, OnnxProblem};
pub use task::Task;
