//! Descriptions of the usual problems in their own terms, and the workloads they stand for.
//!
//! The operands are dense and lie in memory in the order of their subscripts, outermost first: a transposed matrix is
//! `in.a=f32[k,m]`, not `[m,k]` with swapped strides.

mod attention;
mod conv;
mod map;
mod matmul;
mod reduce;
mod rows;

use thiserror::Error;

use super::validate::{InvalidWorkload, MAX_EXTENT};
use super::{
    Axis, DType, Determinism, EpilogueStep, MathMode, Op, Operand, Role, Storage, Subscript, Workload, row_major,
};
pub use attention::AttentionSpec;
pub use conv::{Conv2dSpec, ImageLayout};
pub use map::{MapSpec, TransposeSpec};
pub use matmul::MatmulSpec;
pub use reduce::{PoolSpec, ReduceSpec, Reduction};
pub use rows::{RowPass, RowsSpec};

/// Alignment of every operand that a description makes, in bytes: one cache line, one AVX-512 register.
pub const DEFAULT_ALIGN: u64 = 64;

/// Workspace a kernel may ask for when the description says nothing: 256 MiB, WebGPU's default largest buffer.
pub const DEFAULT_WORKSPACE_BYTES: u64 = 1 << 28;

/// Why a description stands for no workload.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum SpecError {
    /// A size that must be at least one is zero.
    #[error("{name}=0 is too small: {name} must be at least 1")]
    Zero {
        /// Parameter.
        name: &'static str,
    },
    /// A size is not below 2^31.
    #[error("{name}={value} is too large: {name} must be below {MAX_EXTENT}")]
    TooLarge {
        /// Parameter.
        name: &'static str,
        /// Its value.
        value: u64,
    },
    /// The dilated kernel is larger than the padded input, so there is no output.
    #[error(
        "{kernel_name}={kernel} is too large: the kernel spans {span} rows or columns with dilation, the input with \
         padding has {padded}"
    )]
    KernelTooLarge {
        /// Kernel parameter: `r` or `s`.
        kernel_name: &'static str,
        /// Kernel size.
        kernel: u64,
        /// Rows or columns it spans with dilation.
        span: u64,
        /// Rows or columns of the padded input.
        padded: u64,
    },
    /// The groups do not divide the channels.
    #[error("groups={groups} does not divide {name}={value}: choose a divisor of both c and k")]
    Groups {
        /// `c` or `k`.
        name: &'static str,
        /// Channels.
        value: u64,
        /// Groups.
        groups: u64,
    },
    /// The heads of keys and values do not divide the query heads.
    #[error("kv_heads={kv_heads} does not divide heads={heads}: each head of keys serves as many query heads")]
    Heads {
        /// Query heads.
        heads: u64,
        /// Heads of keys and values.
        kv_heads: u64,
    },
    /// A mean of integers, which are not divided.
    #[error("a mean over dtype={} is no integer: choose a sum, or a floating-point type", .dtype.as_str())]
    IntegerMean {
        /// Element type.
        dtype: DType,
    },
    /// Every size is legal, the whole problem is not (too many elements, bytes or operations).
    #[error(transparent)]
    Invalid(#[from] InvalidWorkload),
}

/// The last step after a matmul or a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `max(x, 0)`.
    Relu,
    /// GELU through the error function.
    GeluErf,
    /// GELU through tanh.
    GeluTanh,
    /// `x · sigmoid(x)`.
    Silu,
}

impl Activation {
    /// Every activation.
    pub const ALL: [Activation; 4] = [Activation::Relu, Activation::GeluErf, Activation::GeluTanh, Activation::Silu];

    /// The epilogue step it is.
    pub fn step(self) -> EpilogueStep {
        match self {
            Activation::Relu => EpilogueStep::Relu,
            Activation::GeluErf => EpilogueStep::GeluErf,
            Activation::GeluTanh => EpilogueStep::GeluTanh,
            Activation::Silu => EpilogueStep::Silu,
        }
    }
}

/// The steps after a sum of products.
fn after_sum(bias: bool, residual: bool, activation: Option<Activation>) -> impl Iterator<Item = EpilogueStep> {
    let bias = bias.then(|| EpilogueStep::Bias("bias".into()));
    let residual = residual.then(|| EpilogueStep::Add("residual".into()));
    bias.into_iter().chain(residual).chain(activation.map(Activation::step))
}

/// A valid workload with everything a description leaves open: deterministic, the usual workspace.
fn workload(
    op: Op,
    axes: Vec<Axis>,
    operands: Vec<Operand>,
    dtype: DType,
    epilogue: Vec<EpilogueStep>,
    math: MathMode,
) -> Result<Workload, SpecError> {
    let workload = Workload {
        op,
        axes,
        operands,
        acc: accumulator(dtype),
        epilogue,
        math,
        det: Determinism::Fixed,
        workspace_bytes: DEFAULT_WORKSPACE_BYTES,
    };
    workload.validate()?;
    Ok(workload)
}

/// A dense operand whose dimensions are `dims`, one axis each.
fn plain(role: Role, name: &str, dtype: DType, axes: &[Axis], dims: &[usize]) -> Operand {
    let shape: Vec<u64> = dims.iter().map(|axis| axes[*axis].extent.max()).collect();
    dense(role, name, dtype, dims.iter().copied().map(Subscript::axis).collect(), &shape)
}

fn dense(role: Role, name: &str, dtype: DType, index: Vec<Subscript>, shape: &[u64]) -> Operand {
    let storage = Storage::Strides(row_major(shape));
    Operand { role, name: name.into(), dtype, index, storage, align: DEFAULT_ALIGN, alias: None, prologue: None }
}

fn accumulator(dtype: DType) -> DType {
    match dtype {
        DType::F32 | DType::F16 | DType::Bf16 => DType::F32,
        DType::F64 => DType::F64,
        DType::I8 | DType::U8 | DType::I32 => DType::I32,
    }
}

fn output_type(dtype: DType) -> DType {
    match dtype {
        DType::I8 | DType::U8 => DType::I32,
        other => other,
    }
}

fn check_sizes(sizes: &[(&'static str, u64)]) -> Result<(), SpecError> {
    for &(name, value) in sizes {
        if value == 0 {
            return Err(SpecError::Zero { name });
        }
        check_size(name, value)?;
    }
    Ok(())
}

fn check_size(name: &'static str, value: u64) -> Result<(), SpecError> {
    if value >= MAX_EXTENT { Err(SpecError::TooLarge { name, value }) } else { Ok(()) }
}

/// Positions of a window of `kernel` elements, `dilation` apart, that moves by `stride` over `padded` elements.
fn window_count(
    kernel_name: &'static str,
    padded: u64,
    kernel: u64,
    dilation: u64,
    stride: u64,
) -> Result<u64, SpecError> {
    let span = dilation * (kernel - 1) + 1;
    let room = padded.checked_sub(span).ok_or(SpecError::KernelTooLarge { kernel_name, kernel, span, padded })?;
    Ok(room / stride + 1)
}

/// The input row or column that output `(axis, extent, stride)` reads through kernel element `(axis, extent,
/// dilation)`. The bound is written only when some value of the axes leaves the input.
fn window(out: (usize, u64, u64), kernel: (usize, u64, u64), pad: u64, size: u64) -> Subscript {
    let reach = (out.1 - 1) * out.2 + (kernel.1 - 1) * kernel.2;
    let bound = (pad > 0 || reach >= size).then_some(size);
    Subscript { terms: vec![(out.0, signed(out.2)), (kernel.0, signed(kernel.2))], offset: -signed(pad), bound }
}

fn signed(size: u64) -> i64 {
    i64::try_from(size).expect("invariant: sizes were checked to be below 2^31")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_sizes_are_named() {
        let m0 = MatmulSpec::new(0, 1, 1).workload().unwrap_err();
        assert_eq!(m0.to_string(), "m=0 is too small: m must be at least 1");
        let big = MatmulSpec::new(1, 1 << 31, 1).workload().unwrap_err();
        assert_eq!(big, SpecError::TooLarge { name: "n", value: 1 << 31 });
        let whole = MatmulSpec::new((1 << 31) - 1, (1 << 31) - 1, 1).workload().unwrap_err();
        assert!(matches!(whole, SpecError::Invalid(_)), "{whole}");
        let flops = MatmulSpec::new(1 << 21, 1 << 20, 1 << 20).workload().unwrap_err();
        assert!(matches!(flops, SpecError::Invalid(_)), "{flops}");
        assert!(MatmulSpec::new(1 << 20, 1 << 20, 1 << 20).workload().is_ok(), "2^61 operations are below the limit");
    }

    #[test]
    fn impossible_convolutions_are_named() {
        let kernel = Conv2dSpec::new(1, 1, 4, 9, 1, 5, 3);
        assert!(matches!(
            kernel.workload(),
            Err(SpecError::KernelTooLarge { kernel_name: "r", span: 5, padded: 4, .. })
        ));
        let dilated = Conv2dSpec { dilation_w: 5, ..Conv2dSpec::new(1, 1, 9, 9, 1, 3, 3) };
        assert!(matches!(dilated.workload(), Err(SpecError::KernelTooLarge { kernel_name: "s", span: 11, .. })));
        let groups = Conv2dSpec { groups: 4, ..Conv2dSpec::new(1, 8, 9, 9, 6, 3, 3) };
        assert_eq!(groups.workload().unwrap_err(), SpecError::Groups { name: "k", value: 6, groups: 4 });
        let stride = Conv2dSpec { stride_w: 0, ..Conv2dSpec::new(1, 1, 9, 9, 1, 3, 3) };
        assert_eq!(stride.workload().unwrap_err(), SpecError::Zero { name: "stride_w" });
        let pad = Conv2dSpec { pad_right: u64::MAX, ..Conv2dSpec::new(1, 1, 9, 9, 1, 3, 3) };
        assert_eq!(pad.workload().unwrap_err(), SpecError::TooLarge { name: "pad_r", value: u64::MAX });
    }

    #[test]
    fn a_bound_is_there_exactly_when_the_window_leaves_the_input() {
        let bounds = |spec: Conv2dSpec| {
            let workload = spec.workload().unwrap();
            [workload.operands[0].index[2].bound, workload.operands[0].index[3].bound]
        };
        let plain = Conv2dSpec::new(1, 3, 8, 8, 4, 3, 3);
        assert_eq!(bounds(plain.clone()), [None, None]);
        assert_eq!(bounds(Conv2dSpec { pad_top: 1, ..plain.clone() }), [Some(8), None]);
        assert_eq!(bounds(Conv2dSpec { pad_right: 1, ..plain.clone() }), [None, Some(8)]);
        // With stride 2 the padded eighth column is never reached: 2·2 + 2 = 6.
        let unreached = Conv2dSpec { pad_right: 1, stride_w: 2, w: 7, ..plain };
        assert_eq!(bounds(unreached), [None, None]);
    }
}
