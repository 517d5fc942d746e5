//! Why a device or a run cannot go on. What becomes of a single candidate is an [`Outcome`](search_space::Outcome).

use std::path::PathBuf;

/// An error that ends the use of a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No such device is known.
    #[error("no device \"{spec}\": {reason}; \"tilewright devices\" lists what there is")]
    UnknownDevice {
        /// What was asked for.
        spec: String,
        /// Which part was not understood, or what was looked for and not found.
        reason: String,
    },
    /// The worker process could not be started.
    #[error("cannot start the worker {} for device {device}", executable.display())]
    Spawn {
        /// Device.
        device: String,
        /// Program that was started.
        executable: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// The worker started, but the device did not open.
    #[error("device {device} does not open: {message}")]
    Open {
        /// Device.
        device: String,
        /// What the worker said.
        message: String,
    },
    /// The caller withheld its leave to run the candidate.
    #[error("the candidate was not run")]
    Withheld,
    /// Each of the last requests cost a worker.
    #[error(
        "device {device} failed {failures} times in a row and is given up; the last failure was: {last}; \
         check the device with \"tilewright devices\", then run the same command again to resume"
    )]
    GivenUp {
        /// Device.
        device: String,
        /// Failures since the last success.
        failures: u32,
        /// The last failure in full.
        last: String,
    },
    /// Another process holds the physical resource.
    #[error(
        "waited {waited_s} s for {resource}, which {holder} is using; stop that process, or start again when it is done"
    )]
    ResourceBusy {
        /// Resource.
        resource: String,
        /// Who holds it, as far as known.
        holder: String,
        /// How long was waited.
        waited_s: u64,
    },
    /// The lock file of a resource cannot be used.
    #[error("cannot use the lock file {}; set XDG_RUNTIME_DIR to a folder of yours", path.display())]
    ResourceFile {
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// What a workload means cannot be computed, so nothing about it can be checked.
    #[error("cannot check results of {workload}: {message}")]
    Unverifiable {
        /// Key of the workload.
        workload: String,
        /// Cause.
        message: String,
    },
}
