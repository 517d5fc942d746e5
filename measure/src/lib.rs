//! Devices, worker processes, verification and the timing protocol.
//!
//! The tuner opens a [`DeviceHandle`]; behind it a persistent worker process compiles, verifies ([`verify`]) and times
//! ([`protocol`]) one candidate at a time, and is killed and replaced when a candidate hangs or crashes it. Nothing
//! that could crash runs in the tuner itself, only a kernel whose output matched carries a time, and no clock runs
//! while another process holds the same [`resource`].
//!
//! ```no_run
//! use tilewright_measure::{DeviceHandle, ScreenOptions, WorkerOptions};
//! # fn try_it(workload: &search_space::Workload, schedule: &search_space::Schedule) -> Result<(), Box<dyn std::error::Error>> {
//! let mut device = DeviceHandle::open(&"cpu".parse()?, WorkerOptions::default())?;
//! let measured = device.measure(workload, schedule, &ScreenOptions::default())?;
//! # Ok(()) }
//! ```

pub mod device;
mod error;
mod handle;
pub mod peak;
pub mod protocol;
pub mod resource;
pub mod verify;
pub mod worker;

pub use device::{After, Device, DeviceSpec, Failure, Features, FoundDevice, Identity, KernelInfo, list_devices};
pub use error::Error;
pub use handle::DeviceHandle;
pub use peak::{Demand, Peak, Roof};
pub use protocol::{Comparison, Finalist, FinalistRole, Finals, FinalsOptions, Measured, ScreenOptions, Verdict};
pub use worker::{WorkerOptions, serve};
