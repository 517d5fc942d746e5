//! Buffers of operands and workspace, with a pattern before and after them that no kernel may touch.

use search_space::{Outcome, Workload};

use super::gpu::Gpu;
use crate::device::{Failure, Placement};

/// Bytes of pattern before and after the data; also the coarsest alignment that Vulkan may ask of a binding.
const FENCE: u64 = FENCE_BYTES.len() as u64;
/// The pattern.
const FENCE_BYTES: [u8; 256] = [0xa5; 256];
/// Positions a timed operand may have, in steps of [`FENCE`]: a page.
const POSITIONS: u64 = 16;

/// Data of `bytes` bytes inside a larger buffer.
pub(super) struct Region {
    buffer: wgpu::Buffer,
    start: u64,
    bytes: u64,
}

/// All operands of a workload.
pub struct VulkanMemory {
    pub(super) operands: Vec<Region>,
}

impl std::fmt::Debug for VulkanMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VulkanMemory").field("operands", &self.operands.len()).finish()
    }
}

impl VulkanMemory {
    pub(super) fn new(gpu: &Gpu, workload: &Workload, placement: Placement) -> Result<VulkanMemory, Failure> {
        let operands = workload.operands.iter().enumerate().map(|(i, operand)| {
            let bytes = workload.operand_len(i).saturating_mul(operand.dtype.bytes());
            let position = match placement {
                Placement::Guarded => 0,
                Placement::Plain { round } => round.wrapping_mul(7).wrapping_add(3 * i as u64) % POSITIONS,
            };
            Region::new(gpu, bytes, position)
        });
        Ok(VulkanMemory { operands: operands.collect::<Result<_, _>>()? })
    }
}

impl Region {
    /// Allocates and touches the data.
    pub(super) fn new(gpu: &Gpu, bytes: u64, position: u64) -> Result<Region, Failure> {
        let largest = gpu.device().limits().max_buffer_size;
        let start = FENCE * (1 + position);
        let size = start.saturating_add(bytes.next_multiple_of(4)).saturating_add(FENCE);
        if size > largest {
            let message = format!("an operand of {bytes} bytes does not fit a buffer of at most {largest} bytes");
            return Err(Failure::new(Outcome::ResourceLimit, message));
        }
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        gpu.checked(|| {
            let descriptor = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
            let region = Region { buffer: gpu.device().create_buffer(&descriptor), start, bytes };
            gpu.queue().write_buffer(&region.buffer, start - FENCE, &FENCE_BYTES);
            gpu.queue().write_buffer(&region.buffer, size - FENCE, &FENCE_BYTES);
            gpu.queue().submit([]);
            gpu.wait()?;
            Ok(region)
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What a kernel sees: the data alone.
    pub(super) fn binding(&self) -> wgpu::BindingResource<'_> {
        let size = std::num::NonZero::new(self.bytes);
        wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer: &self.buffer, offset: self.start, size })
    }

    pub(super) fn write(&self, gpu: &Gpu, bytes: &[u8]) -> Result<(), Failure> {
        self.write_at(gpu, 0, bytes)
    }

    /// Writes `bytes`, `offset` bytes after the start of the data.
    pub(super) fn write_at(&self, gpu: &Gpu, offset: u64, bytes: &[u8]) -> Result<(), Failure> {
        gpu.checked(|| {
            gpu.queue().write_buffer(&self.buffer, self.start + offset, bytes);
            gpu.queue().submit([]);
            gpu.wait()
        })
    }

    pub(super) fn read(&self, gpu: &Gpu) -> Result<Vec<u8>, Failure> {
        read(gpu, &[(&self.buffer, self.start, self.bytes)])
    }
}

/// Which of the regions has a pattern that was written over: position and side.
pub(super) fn trespass(gpu: &Gpu, regions: &[&Region]) -> Result<Option<(usize, &'static str)>, Failure> {
    let fences: Vec<_> = regions
        .iter()
        .flat_map(|region| {
            let (before, after) = (region.start - FENCE, region.start + region.bytes.next_multiple_of(4));
            [(&region.buffer, before, FENCE), (&region.buffer, after, FENCE)]
        })
        .collect();
    let bytes = read(gpu, &fences)?;
    let broken = bytes.chunks(FENCE_BYTES.len()).position(|fence| fence != FENCE_BYTES);
    Ok(broken.map(|position| (position / 2, if position % 2 == 0 { "before" } else { "after" })))
}

/// Copies parts of buffers to the host, one after the other.
fn read(gpu: &Gpu, parts: &[(&wgpu::Buffer, u64, u64)]) -> Result<Vec<u8>, Failure> {
    let size: u64 = parts.iter().map(|(_, _, bytes)| bytes.next_multiple_of(4)).sum();
    gpu.checked(|| {
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let host =
            gpu.device().create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false });
        let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut at = 0;
        for (buffer, start, bytes) in parts {
            let bytes = bytes.next_multiple_of(4);
            encoder.copy_buffer_to_buffer(buffer, *start, &host, at, bytes);
            at += bytes;
        }
        gpu.queue().submit([encoder.finish()]);
        host.map_async(wgpu::MapMode::Read, .., |_| {});
        gpu.wait()?;
        let lost = |error: &dyn std::fmt::Display| Failure::new(Outcome::LostDevice, error.to_string());
        let view = host.get_mapped_range(..).map_err(|error| lost(&error))?;
        let mut bytes = Vec::with_capacity(view.len());
        let mut at = 0;
        for (_, _, part) in parts {
            let part = usize::try_from(*part).map_err(|error| lost(&error))?;
            bytes.extend_from_slice(&view[at..at + part]);
            at += part.next_multiple_of(4);
        }
        Ok(bytes)
    })
}
