//! An open device: errors become [`Failure`]s, waits end, and nothing is ever dropped while the device may hang.

use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use search_space::Outcome;

use crate::device::Failure;

/// Longest wait for submitted work. The tuner kills the worker much earlier; this ends a wait that nobody watches.
const PATIENCE: Duration = Duration::from_secs(60);

/// Device and queue. Dropping a device that hangs never returns, so this is never dropped: the worker process ends
/// instead.
pub(super) struct Gpu {
    device: ManuallyDrop<wgpu::Device>,
    queue: ManuallyDrop<wgpu::Queue>,
    /// Why the device cannot be used any more.
    lost: Arc<Mutex<Option<Failure>>>,
}

impl Gpu {
    /// Opens an adapter with all the limits it has.
    pub(super) fn open(adapter: &wgpu::Adapter, features: wgpu::Features) -> Result<Gpu, Failure> {
        let request = adapter.request_device(&wgpu::DeviceDescriptor {
            label: None,
            required_features: features,
            required_limits: adapter.limits(),
            ..wgpu::DeviceDescriptor::default()
        });
        let (device, queue) =
            pollster::block_on(request).map_err(|error| Failure::new(Outcome::LostDevice, error.to_string()))?;
        let lost: Arc<Mutex<Option<Failure>>> = Arc::default();
        let note = |lost: &Mutex<Option<Failure>>, failure: Failure| {
            lost.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert(failure);
        };
        let heard = Arc::clone(&lost);
        device.set_device_lost_callback(move |reason, message| {
            note(&heard, Failure::new(Outcome::LostDevice, format!("device lost ({reason:?}): {message}")));
        });
        // Without a handler an error outside of a scope would end the process.
        let heard = Arc::clone(&lost);
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| note(&heard, failure(&error))));
        Ok(Gpu { device: ManuallyDrop::new(device), queue: ManuallyDrop::new(queue), lost })
    }

    pub(super) fn device(&self) -> &wgpu::Device {
        &self.device
    }

    pub(super) fn queue(&self) -> &wgpu::Queue {
        &self.queue
    }

    /// Runs `work` and gives its first error of any kind. A call that wgpu refuses does nothing and takes no time: without
    /// this an invalid kernel would be the fastest of all.
    ///
    /// # Errors
    ///
    /// [`Outcome::ResourceLimit`] when memory ran out, [`Outcome::CompileError`] when something was refused,
    /// [`Outcome::LostDevice`] when the device is gone.
    pub(super) fn checked<T>(&self, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        self.alive()?;
        let filters = [wgpu::ErrorFilter::Internal, wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Validation];
        let mut scopes: Vec<_> = filters.map(|filter| self.device.push_error_scope(filter)).into();
        let result = work();
        let mut first = None;
        while let Some(scope) = scopes.pop() {
            if let Some(error) = pollster::block_on(scope.pop()) {
                first.get_or_insert(failure(&error));
            }
        }
        match first {
            Some(failure) => Err(failure),
            None => self.alive().and(result),
        }
    }

    /// Waits until all submitted work is done.
    ///
    /// # Errors
    ///
    /// [`Outcome::Timeout`] when it is not done in time; the device is not used after that. [`Outcome::LostDevice`].
    pub(super) fn wait(&self) -> Result<(), Failure> {
        match self.device.poll(wgpu::PollType::Wait { submission_index: None, timeout: Some(PATIENCE) }) {
            Ok(_) => self.alive(),
            Err(wgpu::PollError::Timeout) => {
                let message = format!("the kernel did not end within {} s", PATIENCE.as_secs());
                self.give_up(Failure::new(Outcome::LostDevice, format!("an earlier kernel hangs: {message}")));
                Err(Failure::new(Outcome::Timeout, message))
            }
            Err(error) => Err(Failure::new(Outcome::LostDevice, error.to_string())),
        }
    }

    fn give_up(&self, failure: Failure) {
        self.lost.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert(failure);
    }

    fn alive(&self) -> Result<(), Failure> {
        match &*self.lost.lock().unwrap_or_else(std::sync::PoisonError::into_inner) {
            Some(failure) => Err(failure.clone()),
            None => Ok(()),
        }
    }
}

fn failure(error: &wgpu::Error) -> Failure {
    let outcome = match error {
        wgpu::Error::OutOfMemory { .. } => Outcome::ResourceLimit,
        wgpu::Error::Validation { .. } | wgpu::Error::Internal { .. } => Outcome::CompileError,
    };
    let mut message = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        message = format!("{message}: {cause}");
        source = cause.source();
    }
    Failure::new(outcome, message.split_whitespace().collect::<Vec<_>>().join(" "))
}
