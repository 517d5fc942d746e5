//! Which Vulkan devices there are, and what they are to the rest of the house.

use std::collections::BTreeMap;

use search_space::target::{Limits, TargetKey, TargetKind};
use search_space::{Outcome, Target};

use crate::device::{Failure, HOST_CPU, Identity};

/// Loop iterations that one invocation may run in total, for drivers that stop loops without an error. Mesa's lavapipe
/// (driver `llvmpipe`) leaves a loop nest after 65,535 iterations and reports success.
const LOOP_LIMITS: [(&str, u64); 1] = [("llvmpipe", 65_000)];

/// Vectors one invocation may keep in registers: 256 floats. GPUs have about as many; software devices keep what does
/// not fit in the first-level cache, and time tells.
const VECTOR_REGISTERS: u64 = 64;

/// What the drivers are told unless the user says otherwise. Mesa's disk cache would make compile times of a second run
/// mean nothing; its device-selection layer asks the window system which device to put first, and complains where there
/// is none.
const SETTINGS: [(&str, &str); 2] = [("MESA_SHADER_CACHE_DISABLE", "true"), ("NODEVICE_SELECT", "1")];

/// Opens the Vulkan loader; no window system is involved.
pub(super) fn instance() -> wgpu::Instance {
    static SET: std::sync::Once = std::sync::Once::new();
    SET.call_once(|| {
        for (name, value) in SETTINGS.into_iter().filter(|(name, _)| std::env::var_os(name).is_none()) {
            // SAFETY: the other threads of a worker (its reader of requests) never read the environment.
            unsafe { std::env::set_var(name, value) };
        }
    });
    wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends: wgpu::Backends::VULKAN,
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    })
}

/// The adapter at position `index`: real GPUs first, software devices after them.
///
/// # Errors
///
/// [`Outcome::LostDevice`] when there are not so many.
pub(super) fn find(instance: &wgpu::Instance, index: usize) -> Result<wgpu::Adapter, Failure> {
    let mut adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::VULKAN));
    adapters.sort_by_key(|adapter| adapter.get_info().device_type == wgpu::DeviceType::Cpu);
    let found = adapters.len();
    adapters.into_iter().nth(index).ok_or_else(|| {
        let hint = "install a Vulkan driver (Debian: mesa-vulkan-drivers has a software one)";
        let message = match found {
            0 => format!("the Vulkan loader found no device; {hint}"),
            _ => format!("there is no Vulkan device {index}; the last one is vulkan:{}", found - 1),
        };
        Failure::new(Outcome::LostDevice, message)
    })
}

/// Whether the device is this machine's processor.
pub(super) fn is_software(info: &wgpu::AdapterInfo) -> bool {
    info.device_type == wgpu::DeviceType::Cpu
}

/// Identity of an adapter.
///
/// # Errors
///
/// [`Outcome::LostDevice`] when its name makes no key.
pub(super) fn identity(info: &wgpu::AdapterInfo, limits: &wgpu::Limits) -> Result<Identity, Failure> {
    let arch = format!("{:x}.{:x}", info.vendor, info.device);
    let unit = TargetKey::word(&info.driver);
    let key = TargetKey::new(TargetKind::Vulkan, &arch, &unit, [""; 0], 1)
        .map_err(|error| Failure::new(Outcome::LostDevice, error.to_string()))?;
    let mut environment = BTreeMap::new();
    environment.insert("driver_info".into(), info.driver_info.clone());
    environment.insert("shader_cache".into(), "off".into());
    let resource =
        if is_software(info) { HOST_CPU.into() } else { format!("vulkan-{arch}-{}", info.device_pci_bus_id) };
    Ok(Identity {
        target: Target { key, limits: limits_of(&unit, limits) },
        name: info.name.clone(),
        driver: format!("{} {}", info.driver, info.driver_info),
        environment,
        resource,
    })
}

fn limits_of(driver: &str, limits: &wgpu::Limits) -> Limits {
    let loop_iterations = LOOP_LIMITS.iter().find(|(name, _)| *name == driver).map_or(u64::MAX, |(_, limit)| *limit);
    Limits {
        vector_bytes: 16,
        vector_registers: VECTOR_REGISTERS,
        l1_bytes: 0,
        l2_bytes: 0,
        shared_bytes: limits.max_compute_workgroup_storage_size.into(),
        // Workgroups are one-dimensional.
        workgroup_invocations: limits
            .max_compute_invocations_per_workgroup
            .min(limits.max_compute_workgroup_size_x)
            .into(),
        grid_per_dim: limits.max_compute_workgroups_per_dimension.into(),
        loop_iterations,
        buffer_bytes: limits.max_storage_buffer_binding_size.min(limits.max_buffer_size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_drivers_of_the_table_have_a_loop_limit() {
        let limits = wgpu::Limits::default();
        assert_eq!(limits_of("llvmpipe", &limits).loop_iterations, 65_000);
        assert_eq!(limits_of("radv", &limits).loop_iterations, u64::MAX);
        assert_eq!(limits_of("radv", &limits).shared_bytes, 16384);
    }
}
