//! Compiled candidates: pipelines, their bindings, and launches.

use codegen::emit::wgsl;
use codegen::lane;
use codegen::tile::{Access, Phase, Source};
use search_space::Outcome;

use super::gpu::Gpu;
use super::memory::{Region, VulkanMemory};
use crate::device::{Failure, KernelInfo};

/// A compiled program and its workspace.
pub struct VulkanKernel {
    parts: Vec<Part>,
    pub(super) workspace: Vec<Region>,
    pub(super) info: KernelInfo,
}

/// One kernel of a program.
struct Part {
    phase: Phase,
    grid: [u32; 3],
    sources: Vec<Source>,
    /// Bytes of each buffer.
    bytes: Vec<u64>,
    pipeline: wgpu::ComputePipeline,
    layout: wgpu::BindGroupLayout,
}

impl std::fmt::Debug for VulkanKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VulkanKernel").field("info", &self.info).finish_non_exhaustive()
    }
}

/// The two time stamps of a batch.
pub(super) struct Stamps {
    pub(super) queries: wgpu::QuerySet,
}

impl VulkanKernel {
    /// Compiles every kernel of a program. Limits are checked by the lowering; what gets past it the driver refuses.
    pub(super) fn new(gpu: &Gpu, program: &lane::Program, program_hash: String) -> Result<VulkanKernel, Failure> {
        let mut text = String::new();
        let mut parts = Vec::new();
        for kernel in &program.kernels {
            let source = wgsl::emit(kernel).map_err(|error| Failure::new(Outcome::CompileError, error.to_string()))?;
            parts.push(Part::new(gpu, kernel, &source)?);
            text.push_str(&source);
        }
        let workspace: Vec<Region> =
            program.workspace_bytes.iter().map(|&bytes| Region::new(gpu, bytes, 0)).collect::<Result<_, _>>()?;
        let info = KernelInfo {
            program_hash,
            code_hash: wgsl::code_hash(&text),
            compile_ns: 0,
            memory_bytes: program.workspace_bytes.iter().sum(),
            streams: false,
        };
        Ok(VulkanKernel { parts, workspace, info })
    }

    pub(super) fn has(&self, phase: Phase) -> bool {
        self.parts.iter().any(|part| part.phase == phase)
    }

    /// Submits `launches` launches of all kernels of a phase, in order, and waits for the end.
    pub(super) fn launch(
        &self,
        gpu: &Gpu,
        memory: &VulkanMemory,
        phase: Phase,
        launches: u32,
        stamps: Option<&Stamps>,
    ) -> Result<(), Failure> {
        self.submit(gpu, memory, |part| (part.phase == phase).then_some(part.grid), launches, stamps)
    }

    /// One workgroup of every kernel. Drivers that compile at the first dispatch do it now.
    pub(super) fn touch(&self, gpu: &Gpu, memory: &VulkanMemory) -> Result<(), Failure> {
        self.submit(gpu, memory, |_| Some([1; 3]), 1, None)
    }

    fn submit(
        &self,
        gpu: &Gpu,
        memory: &VulkanMemory,
        grid: impl Fn(&Part) -> Option<[u32; 3]>,
        launches: u32,
        stamps: Option<&Stamps>,
    ) -> Result<(), Failure> {
        gpu.checked(|| {
            let groups = self.parts.iter().map(|part| part.bind(gpu, self, memory)).collect::<Result<Vec<_>, _>>()?;
            let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            let timestamp_writes = stamps.map(|stamps| wgpu::ComputePassTimestampWrites {
                query_set: &stamps.queries,
                beginning_of_pass_write_index: Some(0),
                end_of_pass_write_index: Some(1),
            });
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes });
            for _ in 0..launches {
                for (part, group) in self.parts.iter().zip(&groups) {
                    let Some([x, y, z]) = grid(part) else { continue };
                    pass.set_pipeline(&part.pipeline);
                    pass.set_bind_group(0, group, &[]);
                    pass.dispatch_workgroups(x, y, z);
                }
            }
            drop(pass);
            gpu.queue().submit([encoder.finish()]);
            gpu.wait()
        })
    }
}

impl Part {
    fn new(gpu: &Gpu, kernel: &lane::Kernel, source: &str) -> Result<Part, Failure> {
        let device = gpu.device();
        let grid = kernel.grid.map(|groups| u32::try_from(groups).unwrap_or(u32::MAX));
        gpu.checked(|| {
            let descriptor =
                wgpu::ShaderModuleDescriptor { label: None, source: wgpu::ShaderSource::Wgsl(source.into()) };
            // SAFETY: the verifier bounds every index of the tile program by its guards, and every loop is finite, so
            // neither bounds checks nor loop bounding are needed.
            let module =
                unsafe { device.create_shader_module_trusted(descriptor, wgpu::ShaderRuntimeChecks::unchecked()) };
            let entries: Vec<wgpu::BindGroupLayoutEntry> = (0u32..)
                .zip(&kernel.buffers)
                .map(|(binding, buffer)| wgpu::BindGroupLayoutEntry {
                    binding,
                    visibility: wgpu::ShaderStages::COMPUTE,
                    ty: wgpu::BindingType::Buffer {
                        ty: wgpu::BufferBindingType::Storage { read_only: buffer.access == Access::Read },
                        has_dynamic_offset: false,
                        min_binding_size: None,
                    },
                    count: None,
                })
                .collect();
            let layout =
                device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries });
            let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: None,
                bind_group_layouts: &[Some(&layout)],
                immediate_size: 0,
            });
            let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: None,
                layout: Some(&pipeline_layout),
                module: &module,
                entry_point: Some(wgsl::ENTRY),
                // Kernels write shared memory before they read it; clearing it costs some drivers seconds of compiling.
                compilation_options: wgpu::PipelineCompilationOptions {
                    zero_initialize_workgroup_memory: false,
                    ..wgpu::PipelineCompilationOptions::default()
                },
                cache: None,
            });
            Ok(Part {
                phase: kernel.phase,
                grid,
                sources: kernel.buffers.iter().map(|buffer| buffer.source).collect(),
                bytes: kernel.buffers.iter().map(|buffer| buffer.len * buffer.dtype.bytes()).collect(),
                pipeline,
                layout,
            })
        })
    }

    fn bind(&self, gpu: &Gpu, kernel: &VulkanKernel, memory: &VulkanMemory) -> Result<wgpu::BindGroup, Failure> {
        let mut entries = Vec::new();
        for ((binding, source), &bytes) in (0u32..).zip(&self.sources).zip(&self.bytes) {
            let region = match source {
                Source::Operand(position) => memory.operands.get(*position),
                Source::Workspace(position) => kernel.workspace.get(*position),
            };
            let Some(region) = region.filter(|region| region.bytes() >= bytes) else {
                let message = format!("buffer {binding} needs {bytes} bytes that the memory does not have");
                return Err(Failure::new(Outcome::CompileError, message));
            };
            entries.push(wgpu::BindGroupEntry { binding, resource: region.binding() });
        }
        let descriptor = wgpu::BindGroupDescriptor { label: None, layout: &self.layout, entries: &entries };
        Ok(gpu.device().create_bind_group(&descriptor))
    }
}
