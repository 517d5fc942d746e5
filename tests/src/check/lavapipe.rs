//! The tuned kernel on lavapipe (Mesa's software Vulkan) against the plainest one: 16×16 invocations to a workgroup, one
//! output each, no tiles and no shared memory. The plain kernel is written and run here, by none of our code generator.

use super::lockstep::{TimedProgram, Timer, speed_ratio};
use super::{Bar, Finding, Lab};
use anyhow::{Context, bail};
use std::time::{Duration, Instant};
use wgpu::util::DeviceExt;

/// Rows, columns and depth of the square product.
const N: u32 = 256;

const WANTED: f64 = 6.0;

pub(super) fn bars() -> Vec<Bar> {
    vec![Bar::new("lavapipe 256^3", format!("tuned >= {WANTED} x untiled 16x16"), compare)]
}

fn compare(lab: &Lab) -> anyhow::Result<Finding> {
    let Some(adapter) = lavapipe() else {
        return Ok(Finding::Skipped("no Vulkan adapter is llvmpipe; install mesa-vulkan-drivers".into()));
    };
    let database = lab.folder("lavapipe")?.join("tuned.tune");
    let database = database.to_string_lossy();
    let workload = format!("matmul m={N} n={N} k={N} dtype=f32");
    let tune = ["tune", &workload, "--device", "vulkan", "--time", "60s", "--db", &database];
    lab.run(tune, Duration::from_secs(180))?.ok().context("tuning")?;
    let time = lab.command(["time", &workload, "--device", "vulkan", "--db", &database]);
    let mut ours = TimedProgram::start("tilewright time", time, None)?;
    let mut plain = Untiled::new(&adapter)?;
    let (ratio, our_ms, plain_ms) = speed_ratio(&mut ours, &mut plain, 9, 0.5)?;
    Ok(Finding::of(ratio.median >= WANTED, format!("{ratio}; tuned {our_ms:.2} ms, untiled {plain_ms:.2} ms")))
}

fn lavapipe() -> Option<wgpu::Adapter> {
    adapters().into_iter().find(|adapter| adapter.get_info().name.contains("llvmpipe"))
}

/// The Vulkan adapters of this machine, seen without our own device code.
pub(super) fn adapters() -> Vec<wgpu::Adapter> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends: wgpu::Backends::VULKAN,
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    pollster::block_on(instance.enumerate_adapters(wgpu::Backends::VULKAN))
}

const UNTILED: &str = "
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;

@compute @workgroup_size(16, 16)
fn main(@builtin(global_invocation_id) id: vec3u) {
    var sum = 0.0;
    for (var k = 0u; k < N; k++) {
        sum += a[id.y * N + k] * b[k * N + id.x];
    }
    c[id.y * N + id.x] = sum;
}
";

/// The plain kernel, ready to run.
struct Untiled {
    device: wgpu::Device,
    queue: wgpu::Queue,
    pipeline: wgpu::ComputePipeline,
    group: wgpu::BindGroup,
    output: wgpu::Buffer,
}

impl Untiled {
    fn new(adapter: &wgpu::Adapter) -> anyhow::Result<Untiled> {
        let (device, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor::default()))
            .context("opening lavapipe")?;
        let source = format!("const N = {N}u;\n{UNTILED}");
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: None,
            source: wgpu::ShaderSource::Wgsl(source.into()),
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        });
        let input = |value: fn(u32, u32) -> f32| {
            let bytes: Vec<u8> = (0..N * N).flat_map(|i| value(i / N, i % N).to_le_bytes()).collect();
            device.create_buffer_init(&wgpu::util::BufferInitDescriptor {
                label: None,
                contents: &bytes,
                usage: wgpu::BufferUsages::STORAGE,
            })
        };
        let (a, b) = (input(left), input(right));
        let output = device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: u64::from(N) * u64::from(N) * 4,
            usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        let entries = [(0, &a), (1, &b), (2, &output)]
            .map(|(binding, buffer)| wgpu::BindGroupEntry { binding, resource: buffer.as_entire_binding() });
        let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        let mut untiled = Untiled { device, queue, pipeline, group, output };
        untiled.call()?;
        untiled.verify()?;
        Ok(untiled)
    }

    fn call(&mut self) -> anyhow::Result<()> {
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.group, &[]);
        pass.dispatch_workgroups(N / 16, N / 16, 1);
        drop(pass);
        self.queue.submit([encoder.finish()]);
        self.device.poll(wgpu::PollType::wait_indefinitely()).context("waiting for lavapipe")?;
        Ok(())
    }

    /// A baseline that computes nothing would be fast: the corners and a middle element are compared.
    fn verify(&self) -> anyhow::Result<()> {
        let bytes = self.output.size();
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let host = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes,
            usage,
            mapped_at_creation: false,
        });
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.copy_buffer_to_buffer(&self.output, 0, &host, 0, bytes);
        self.queue.submit([encoder.finish()]);
        host.map_async(wgpu::MapMode::Read, .., |_| {});
        self.device.poll(wgpu::PollType::wait_indefinitely()).context("reading the output")?;
        let view = host.get_mapped_range(..)?;
        for (m, n) in [(0, 0), (0, N - 1), (N - 1, 0), (N - 1, N - 1), (N / 2, N / 3)] {
            let want: f32 = (0..N).map(|k| left(m, k) * right(k, n)).sum();
            let at = usize::try_from(m * N + n)? * 4;
            let got = f32::from_le_bytes(view[at..at + 4].try_into()?);
            // Both are sums of small integers, so exact.
            if got.to_bits() != want.to_bits() {
                bail!("the untiled kernel computed {got} at [{m}, {n}], not {want}");
            }
        }
        Ok(())
    }
}

/// Small integers without a short period, so that sums are exact and a wrong index shows.
fn left(m: u32, k: u32) -> f32 {
    small(m * 7 + k * 3)
}

fn right(k: u32, n: u32) -> f32 {
    small(k * 5 + n * 11 + 1)
}

fn small(i: u32) -> f32 {
    f32::from(u8::try_from(i % 13).unwrap_or(0)) - 6.0
}

impl Timer for Untiled {
    fn median_ns(&mut self, seconds: f64) -> anyhow::Result<f64> {
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        let mut samples = Vec::new();
        while samples.is_empty() || Instant::now() < end {
            let start = Instant::now();
            self.call()?;
            samples.push(start.elapsed().as_secs_f64() * 1e9);
        }
        super::ratio::median(&samples).context("no samples")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_untiled_kernel_multiplies() {
        let Some(adapter) = lavapipe() else {
            println!("skipped: no Vulkan adapter is llvmpipe");
            return;
        };
        // `new` compares the output; a wrong one is an error.
        let mut untiled = Untiled::new(&adapter).unwrap();
        assert!(untiled.median_ns(0.05).unwrap() > 1e4, "16 million multiplications take longer than 10 µs");
    }
}
