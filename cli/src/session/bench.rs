//! A device as a session sees it.

use measure::{DeviceHandle, Error, Failure, Finals, FinalsOptions, Identity, Measured, Peak, ScreenOptions};
use search_space::{Schedule, Workload};

/// Where candidates are measured. The device itself is behind a [`DeviceHandle`]; tests have their own.
pub trait Bench: Send {
    /// How users name it.
    fn name(&self) -> String;

    /// Which device it is.
    fn identity(&self) -> &Identity;

    /// As [`DeviceHandle::measure_when`].
    ///
    /// # Errors
    /// When the device cannot go on, or `go` gave false.
    fn measure(
        &mut self,
        workload: &Workload,
        schedule: &Schedule,
        options: &ScreenOptions,
        go: &mut dyn FnMut() -> bool,
    ) -> Result<Measured, Error>;

    /// As [`DeviceHandle::finals`].
    ///
    /// # Errors
    /// When the device cannot go on.
    fn finals(
        &mut self,
        workload: &Workload,
        candidates: &[Schedule],
        default: &Schedule,
        incumbent: Option<&Schedule>,
        options: &FinalsOptions,
    ) -> Result<Finals, Error>;

    /// As [`DeviceHandle::peak`].
    ///
    /// # Errors
    /// When the device cannot go on.
    fn peak(&mut self) -> Result<Result<Peak, Failure>, Error>;
}

impl Bench for DeviceHandle {
    fn name(&self) -> String {
        self.spec().to_string()
    }

    fn identity(&self) -> &Identity {
        DeviceHandle::identity(self)
    }

    fn measure(
        &mut self,
        workload: &Workload,
        schedule: &Schedule,
        options: &ScreenOptions,
        go: &mut dyn FnMut() -> bool,
    ) -> Result<Measured, Error> {
        self.measure_when(workload, schedule, options, go)
    }

    fn finals(
        &mut self,
        workload: &Workload,
        candidates: &[Schedule],
        default: &Schedule,
        incumbent: Option<&Schedule>,
        options: &FinalsOptions,
    ) -> Result<Finals, Error> {
        DeviceHandle::finals(self, workload, candidates, default, incumbent, options)
    }

    fn peak(&mut self) -> Result<Result<Peak, Failure>, Error> {
        DeviceHandle::peak(self)
    }
}
