//! Two-dimensional convolutions.

use super::{
    Activation, SpecError, after_sum, check_size, check_sizes, dense, output_type, signed, window, window_count,
    workload,
};
use crate::workload::{Axis, AxisKind, DType, MathMode, Op, Role, Storage, Subscript, Workload};

/// Order of the dimensions of images and weights, outermost first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ImageLayout {
    /// Images NCHW, weights KCRS.
    #[default]
    Nchw,
    /// Images NHWC, weights RSCK (HWIO).
    Nhwc,
}

impl ImageLayout {
    /// Reorders the dimensions `[n, c, h, w]` of an image.
    fn image<T>(self, dims: [T; 4]) -> [T; 4] {
        let [n, c, h, w] = dims;
        match self {
            ImageLayout::Nchw => [n, c, h, w],
            ImageLayout::Nhwc => [n, h, w, c],
        }
    }

    /// Reorders the dimensions `[k, c, r, s]` of weights.
    fn weights<T>(self, dims: [T; 4]) -> [T; 4] {
        let [k, c, r, s] = dims;
        match self {
            ImageLayout::Nchw => [k, c, r, s],
            ImageLayout::Nhwc => [r, s, c, k],
        }
    }
}

/// A two-dimensional convolution: `y[n,k,oh,ow] = Σ_{c,r,s} x[n,c,ih,iw] · w[k,c,r,s]` with
/// `ih = oh · stride_h + r · dilation_h - pad_top` and `iw` alike; elements outside the input read as zero.
///
/// Axes `n:p [g:b] k:p oh:p ow:p c:r r:r s:r`. The batch `n` is *parallel*, as the weights do not depend on it; the
/// groups are the batch axis `g`, there only when `groups > 1`, and `k` and `c` are then the channels of one group.
/// Operands `in.x`, `in.w`, `[in.bias]` over all output channels, `[in.residual]` like `y`, `out.y`; their layout is
/// an [`ImageLayout`].
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
    /// Order of the dimensions of `x`, `w` and `y`.
    pub layout: ImageLayout,
    /// The schedule may choose how the weights lie in memory (prepacked once, timed apart).
    pub free_weights: bool,
    /// Add a vector over the output channels.
    pub bias: bool,
    /// Add a tensor of the output's shape and type.
    pub residual: bool,
    /// The last step.
    pub activation: Option<Activation>,
    /// Allowed rewriting.
    pub math: MathMode,
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
            layout: ImageLayout::Nchw,
            free_weights: false,
            bias: false,
            residual: false,
            activation: None,
            math: MathMode::Ieee,
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
        let oh = window_count("r", h + self.pad_top + self.pad_bottom, r, dilation_h, stride_h)?;
        let ow = window_count("s", w + self.pad_left + self.pad_right, s, dilation_w, stride_w)?;
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
        let ih = window((oh, output_h, self.stride_h), (r, self.r, self.dilation_h), self.pad_top, self.h);
        let iw = window((ow, output_w, self.stride_w), (s, self.s, self.dilation_w), self.pad_left, self.w);
        let image = |role, name, dtype, dims: [Subscript; 4], shape: [u64; 4]| {
            dense(role, name, dtype, self.layout.image(dims).into(), &self.layout.image(shape))
        };
        let y = [Subscript::axis(0), channel(k, group_k), Subscript::axis(oh), Subscript::axis(ow)];
        let y_shape = [self.n, self.k, output_h, output_w];
        let w = [channel(k, group_k), Subscript::axis(c), Subscript::axis(r), Subscript::axis(s)];
        let w_shape = self.layout.weights([self.k, group_c, self.r, self.s]);
        let mut weights = dense(Role::In, "w", self.dtype, self.layout.weights(w).into(), &w_shape);
        if self.free_weights {
            weights.storage = Storage::Free;
        }
        let x = [Subscript::axis(0), channel(c, group_c), ih, iw];
        let output = output_type(self.dtype);
        let mut operands = vec![image(Role::In, "x", self.dtype, x, [self.n, self.c, self.h, self.w]), weights];
        if self.bias {
            operands.push(dense(Role::In, "bias", output, vec![channel(k, group_k)], &[self.k]));
        }
        if self.residual {
            operands.push(image(Role::In, "residual", output, y.clone(), y_shape));
        }
        operands.push(image(Role::Out, "y", output, y, y_shape));
        let epilogue = after_sum(self.bias, self.residual, self.activation).collect();
        workload(Op::ContractMadd, axes, operands, self.dtype, epilogue, self.math)
    }
}
