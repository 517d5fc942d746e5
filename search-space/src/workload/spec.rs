//! Descriptions of the usual problems in their own terms, and the workloads they stand for.
//!
//! The operands are dense and lie in memory in the order of their subscripts, outermost first: a transposed matrix is
//! `in.a=f32[k,m]`, not `[m,k]` with swapped strides.

use thiserror::Error;

use super::validate::{InvalidWorkload, MAX_EXTENT};
use super::{
    Axis, AxisKind, DType, Determinism, EpilogueStep, MathMode, Op, Operand, Role, Storage, Subscript, Workload,
    row_major,
};

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
    /// Every size is legal, the whole problem is not (too many elements, bytes or operations).
    #[error(transparent)]
    Invalid(#[from] InvalidWorkload),
}

/// `c[m,n] = Σ_k a[m,k] · b[k,n]`, optionally batched, transposed, with a bias over `n` and ReLU.
///
/// Axes `[b:b] m:p n:p k:r` (`b` only when `batch > 1`), operands `in.a`, `in.b`, `[in.bias]`, `out.c`. Sums are kept
/// in f32 for 16- and 32-bit floats, in f64 for f64, in i32 for integers, whose output is i32 too.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MatmulSpec {
    /// Independent problems.
    pub batch: u64,
    /// Rows of the output.
    pub m: u64,
    /// Columns of the output.
    pub n: u64,
    /// Terms of each sum.
    pub k: u64,
    /// `a` is stored as `[k,m]`.
    pub transpose_a: bool,
    /// `b` is stored as `[n,k]`.
    pub transpose_b: bool,
    /// Element type of `a` and `b`.
    pub dtype: DType,
    /// Add a vector over `n`.
    pub bias: bool,
    /// Then `max(x, 0)`.
    pub relu: bool,
}

impl MatmulSpec {
    /// A plain f32 matmul.
    pub fn new(m: u64, n: u64, k: u64) -> MatmulSpec {
        let (batch, dtype) = (1, DType::F32);
        MatmulSpec { batch, m, n, k, transpose_a: false, transpose_b: false, dtype, bias: false, relu: false }
    }

    /// The workload this describes.
    ///
    /// # Errors
    ///
    /// [`SpecError::Zero`] and [`SpecError::TooLarge`] for one size, [`SpecError::Invalid`] when the whole is too large.
    pub fn workload(&self) -> Result<Workload, SpecError> {
        check_sizes(&[("batch", self.batch), ("m", self.m), ("n", self.n), ("k", self.k)])?;
        let mut axes = Vec::new();
        if self.batch > 1 {
            axes.push(Axis::fixed("b", AxisKind::Batch, self.batch));
        }
        let first = axes.len();
        let [m, n, k] = [first, first + 1, first + 2];
        axes.push(Axis::fixed("m", AxisKind::Parallel, self.m));
        axes.push(Axis::fixed("n", AxisKind::Parallel, self.n));
        axes.push(Axis::fixed("k", AxisKind::Reduction, self.k));

        let operand = |role, name, dtype, dims: [usize; 2]| {
            let axes_of = (0..first).chain(dims);
            let shape: Vec<u64> = axes_of.clone().map(|axis| axes[axis].extent.max()).collect();
            dense(role, name, dtype, axes_of.map(Subscript::axis).collect(), &shape)
        };
        let output = output_type(self.dtype);
        let mut operands = vec![
            operand(Role::In, "a", self.dtype, if self.transpose_a { [k, m] } else { [m, k] }),
            operand(Role::In, "b", self.dtype, if self.transpose_b { [n, k] } else { [k, n] }),
        ];
        if self.bias {
            operands.push(dense(Role::In, "bias", output, vec![Subscript::axis(n)], &[self.n]));
        }
        operands.push(operand(Role::Out, "c", output, [m, n]));
        contraction(axes, operands, self.dtype, self.bias, self.relu)
    }
}

/// A two-dimensional convolution: `y[n,k,oh,ow] = Σ_{c,r,s} x[n,c,ih,iw] · w[k,c,r,s]` with
/// `ih = oh · stride_h + r · dilation_h - pad_top` and `iw` alike; elements outside the input read as zero.
///
/// Axes `n:p [g:b] k:p oh:p ow:p c:r r:r s:r`. The batch `n` is *parallel*, as the weights do not depend on it; the
/// groups are the batch axis `g`, there only when `groups > 1`, and `k` and `c` are then the channels of one group.
/// Operands `in.x` (NCHW), `in.w` (KCRS), `[in.bias]` over all output channels, `out.y` (NCHW).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conv2dSpec {
    /// Images.
    pub n: u64,
    /// Input channels, all groups together.
    pub c: u64,
    /// Input rows.
    pub h: u64,
    /// Input columns.
    pub w: u64,
    /// Output channels, all groups together.
    pub k: u64,
    /// Kernel rows.
    pub r: u64,
    /// Kernel columns.
    pub s: u64,
    /// Distance of neighbouring outputs, in input rows.
    pub stride_h: u64,
    /// Distance of neighbouring outputs, in input columns.
    pub stride_w: u64,
    /// Zero rows before the input.
    pub pad_top: u64,
    /// Zero columns before the input.
    pub pad_left: u64,
    /// Zero rows after the input.
    pub pad_bottom: u64,
    /// Zero columns after the input.
    pub pad_right: u64,
    /// Distance of neighbouring kernel elements, in input rows.
    pub dilation_h: u64,
    /// Distance of neighbouring kernel elements, in input columns.
    pub dilation_w: u64,
    /// Independent groups of channels.
    pub groups: u64,
    /// Element type of `x` and `w`.
    pub dtype: DType,
    /// Add a vector over the output channels.
    pub bias: bool,
    /// Then `max(x, 0)`.
    pub relu: bool,
}

impl Conv2dSpec {
    /// A plain f32 convolution: stride and dilation 1, no padding, one group.
    pub fn new(n: u64, c: u64, h: u64, w: u64, k: u64, r: u64, s: u64) -> Conv2dSpec {
        Conv2dSpec {
            n,
            c,
            h,
            w,
            k,
            r,
            s,
            stride_h: 1,
            stride_w: 1,
            pad_top: 0,
            pad_left: 0,
            pad_bottom: 0,
            pad_right: 0,
            dilation_h: 1,
            dilation_w: 1,
            groups: 1,
            dtype: DType::F32,
            bias: false,
            relu: false,
        }
    }

    /// Rows and columns of the output.
    ///
    /// # Errors
    ///
    /// As [`Conv2dSpec::workload`], for the sizes that matter here.
    pub fn output_size(&self) -> Result<(u64, u64), SpecError> {
        let Conv2dSpec { h, w, r, s, stride_h, stride_w, dilation_h, dilation_w, .. } = *self;
        check_sizes(&[("h", h), ("w", w), ("r", r), ("s", s)])?;
        check_sizes(&[("stride_h", stride_h), ("stride_w", stride_w)])?;
        check_sizes(&[("dilation_h", dilation_h), ("dilation_w", dilation_w)])?;
        let pads = [("pad_t", self.pad_top), ("pad_l", self.pad_left)];
        for (name, pad) in pads.into_iter().chain([("pad_b", self.pad_bottom), ("pad_r", self.pad_right)]) {
            check_size(name, pad)?;
        }
        let output = |padded: u64, kernel_name, kernel: u64, dilation: u64, stride: u64| {
            let span = dilation * (kernel - 1) + 1;
            let room = padded.checked_sub(span);
            let room = room.ok_or(SpecError::KernelTooLarge { kernel_name, kernel, span, padded })?;
            Ok::<u64, SpecError>(room / stride + 1)
        };
        let oh = output(h + self.pad_top + self.pad_bottom, "r", r, dilation_h, stride_h)?;
        let ow = output(w + self.pad_left + self.pad_right, "s", s, dilation_w, stride_w)?;
        Ok((oh, ow))
    }

    /// The workload this describes.
    ///
    /// # Errors
    ///
    /// [`SpecError::Zero`] and [`SpecError::TooLarge`] for one size, [`SpecError::KernelTooLarge`],
    /// [`SpecError::Groups`], and [`SpecError::Invalid`] when the whole is too large.
    pub fn workload(&self) -> Result<Workload, SpecError> {
        check_sizes(&[("n", self.n), ("c", self.c), ("k", self.k), ("groups", self.groups)])?;
        let (output_h, output_w) = self.output_size()?;
        for (name, value) in [("c", self.c), ("k", self.k)] {
            if value % self.groups != 0 {
                return Err(SpecError::Groups { name, value, groups: self.groups });
            }
        }
        let (group_c, group_k) = (self.c / self.groups, self.k / self.groups);
        let mut axes = vec![Axis::fixed("n", AxisKind::Parallel, self.n)];
        let group = (self.groups > 1).then(|| {
            axes.push(Axis::fixed("g", AxisKind::Batch, self.groups));
            axes.len() - 1
        });
        let first = axes.len();
        let [k, oh, ow, c, r, s] = [first, first + 1, first + 2, first + 3, first + 4, first + 5];
        for (name, extent) in [("k", group_k), ("oh", output_h), ("ow", output_w)] {
            axes.push(Axis::fixed(name, AxisKind::Parallel, extent));
        }
        for (name, extent) in [("c", group_c), ("r", self.r), ("s", self.s)] {
            axes.push(Axis::fixed(name, AxisKind::Reduction, extent));
        }

        // A channel among those of all groups: `per_group * g + axis`.
        let channel = |axis: usize, per_group: u64| {
            let terms = group.map(|g| (g, signed(per_group))).into_iter().chain([(axis, 1)]).collect();
            Subscript { terms, offset: 0, bound: None }
        };
        // An input row or column; the bound is written only when some value of the axes leaves the input.
        let window = |out: (usize, u64, u64), kernel: (usize, u64, u64), pad: u64, size: u64| {
            let reach = (out.1 - 1) * out.2 + (kernel.1 - 1) * kernel.2;
            let bound = (pad > 0 || reach >= size).then_some(size);
            let terms = vec![(out.0, signed(out.2)), (kernel.0, signed(kernel.2))];
            Subscript { terms, offset: -signed(pad), bound }
        };
        let ih = window((oh, output_h, self.stride_h), (r, self.r, self.dilation_h), self.pad_top, self.h);
        let iw = window((ow, output_w, self.stride_w), (s, self.s, self.dilation_w), self.pad_left, self.w);
        let x = vec![Subscript::axis(0), channel(c, group_c), ih, iw];
        let w = vec![channel(k, group_k), Subscript::axis(c), Subscript::axis(r), Subscript::axis(s)];
        let y = vec![Subscript::axis(0), channel(k, group_k), Subscript::axis(oh), Subscript::axis(ow)];
        let output = output_type(self.dtype);
        let mut operands = vec![
            dense(Role::In, "x", self.dtype, x, &[self.n, self.c, self.h, self.w]),
            dense(Role::In, "w", self.dtype, w, &[self.k, group_c, self.r, self.s]),
        ];
        if self.bias {
            operands.push(dense(Role::In, "bias", output, vec![channel(k, group_k)], &[self.k]));
        }
        operands.push(dense(Role::Out, "y", output, y, &[self.n, self.k, output_h, output_w]));
        contraction(axes, operands, self.dtype, self.bias, self.relu)
    }
}

fn contraction(
    axes: Vec<Axis>,
    operands: Vec<Operand>,
    dtype: DType,
    bias: bool,
    relu: bool,
) -> Result<Workload, SpecError> {
    let bias = bias.then(|| EpilogueStep::Bias("bias".into()));
    let workload = Workload {
        op: Op::ContractMadd,
        axes,
        operands,
        acc: accumulator(dtype),
        epilogue: bias.into_iter().chain(relu.then_some(EpilogueStep::Relu)).collect(),
        math: MathMode::Ieee,
        det: Determinism::Fixed,
        workspace_bytes: DEFAULT_WORKSPACE_BYTES,
    };
    workload.validate()?;
    Ok(workload)
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
