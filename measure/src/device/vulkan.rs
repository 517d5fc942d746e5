//! Vulkan devices through WGSL.

use search_space::{Outcome, Schedule, Workload};

use super::{Batch, Device, Failure, Identity, KernelInfo, Peak, Placement};

/// A Vulkan device.
#[derive(Debug)]
pub struct VulkanDevice(std::convert::Infallible);

impl VulkanDevice {
    /// Opens the device at position `index`.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn open(index: usize) -> Result<VulkanDevice, Failure> {
        Err(Failure::new(Outcome::LostDevice, format!("no Vulkan device {index}: this build has none")))
    }
}

impl Device for VulkanDevice {
    type Kernel = ();
    type Memory = ();

    fn identity(&self) -> &Identity {
        match self.0 {}
    }
    fn compile(&mut self, _: &Workload, _: &Schedule) -> Result<(), Failure> {
        match self.0 {}
    }
    fn describe(&self, (): &()) -> KernelInfo {
        match self.0 {}
    }
    fn allocate(&mut self, _: &Workload, _: Placement) -> Result<(), Failure> {
        match self.0 {}
    }
    fn write(&mut self, (): &mut (), _: usize, _: &[u8]) -> Result<(), Failure> {
        match self.0 {}
    }
    fn read(&mut self, (): &mut (), _: usize) -> Result<Vec<u8>, Failure> {
        match self.0 {}
    }
    fn run(&mut self, (): &mut (), (): &mut ()) -> Result<f64, Failure> {
        match self.0 {}
    }
    fn prepack(&mut self, (): &mut (), (): &mut ()) -> Result<f64, Failure> {
        match self.0 {}
    }
    fn time_batch(&mut self, (): &mut (), (): &mut (), _: u32) -> Result<Batch, Failure> {
        match self.0 {}
    }
    fn min_batch_ns(&self) -> f64 {
        match self.0 {}
    }
    fn control(&mut self) -> Option<f64> {
        match self.0 {}
    }
    fn peak(&mut self) -> Result<Peak, Failure> {
        match self.0 {}
    }
}
