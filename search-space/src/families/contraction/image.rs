//! Convolutions among the contractions: one factor is an image that a window of taps is moved over.

use super::{ContractionView, Group, OperandMap};
use crate::workload::{MathMode, Subscript};

/// Steps of a sum that is written out at each pixel.
const LONGEST_STENCIL: u64 = 64;

/// One dimension of an image: element `stride · pixel + dilation · tap + offset`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Output axis; `None` for the height of an image of one row.
    pub pixel: Option<usize>,
    /// Reduced axis; `None` together with `pixel`.
    pub tap: Option<usize>,
    /// Extent of the output axis.
    pub pixels: u64,
    /// Extent of the reduced axis.
    pub taps: u64,
    /// Image elements from one pixel to the next.
    pub stride: u64,
    /// Image elements from one tap to the next.
    pub dilation: u64,
    /// Image element of the first tap at the first pixel; negative with padding.
    pub offset: i64,
    /// Size of the image when some pixel reads outside; what lies outside is zero.
    pub bound: Option<u64>,
    /// Elements of memory from one image element to the next.
    pub step: i64,
}

/// A contraction that is a convolution over one or two spatial dimensions.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageView {
    /// Whether the image is the factor `a` (and the weights `b`) of the [`ContractionView`], or the other way round.
    pub image_is_a: bool,
    /// Rows of the image.
    pub height: Window,
    /// The spatial dimension that is closest together in the image's memory.
    pub width: Window,
    /// Reduced axes without the taps.
    pub channels: Group,
    /// Elements of the image's memory per step of the fused channel.
    pub channel_step: i64,
    /// Output axes of the image that are no pixels: its number.
    pub outer: Group,
}

impl Window {
    /// The height of an image of one row.
    fn single() -> Window {
        Window { pixel: None, tap: None, pixels: 1, taps: 1, stride: 1, dilation: 1, offset: 0, bound: None, step: 0 }
    }

    /// Image elements that `pixels` neighbouring pixels read, those between them included.
    pub fn span(&self, pixels: u64) -> u64 {
        (pixels - 1) * self.stride + (self.taps - 1) * self.dilation + 1
    }
}

impl ContractionView {
    /// This contraction as a convolution: one factor has one or two subscripts that each add an output axis and a
    /// reduced axis, and all its other subscripts are linear. `None` when it has not.
    pub fn image(&self) -> Option<ImageView> {
        [true, false].into_iter().find_map(|image_is_a| self.image_in(image_is_a))
    }

    /// Whether the image's offset is linear in the pixels and in the reduced axes, so that it can be read in place as the
    /// matrix of a product.
    pub fn is_plain(&self, image: &ImageView) -> bool {
        let (map, pixels) = self.image_side(image);
        self.linear(map, pixels).is_some() && self.linear(map, &self.k).is_some()
    }

    /// The image, and the group of the output axes it owns.
    pub fn image_side(&self, image: &ImageView) -> (&OperandMap, &Group) {
        if image.image_is_a { (&self.a, &self.m) } else { (&self.b, &self.n) }
    }

    /// The weights, and the group of the output axes they own.
    pub fn weights_side(&self, image: &ImageView) -> (&OperandMap, &Group) {
        if image.image_is_a { (&self.b, &self.n) } else { (&self.a, &self.m) }
    }

    /// Whether each group has one output channel and few steps to sum, as in a depthwise convolution.
    pub fn is_stencil(&self, image: &ImageView) -> bool {
        self.weights_side(image).1.extent() == 1 && self.k.extent() <= LONGEST_STENCIL
    }

    /// Whether Winograd's minimal filtering applies: windows of three neighbouring taps, moved by one, in arithmetic
    /// that may be rearranged.
    pub fn has_winograd(&self, image: &ImageView) -> bool {
        let of_three =
            |window: &Window| (window.pixel.is_some(), window.taps, window.stride, window.dilation) == (true, 3, 1, 1);
        self.workload.math == MathMode::Fast && of_three(&image.height) && of_three(&image.width)
    }

    fn image_in(&self, image_is_a: bool) -> Option<ImageView> {
        let (map, group, weights) = if image_is_a { (&self.a, &self.m, &self.b) } else { (&self.b, &self.n, &self.a) };
        if !weights.guards.is_empty() {
            return None;
        }
        let operand = &self.workload.operands[map.operand];
        let mut windows: Vec<Window> = Vec::new();
        for (subscript, stride) in operand.index.iter().zip(self.workload.operand_strides(map.operand)) {
            match self.window(subscript, group, i64::try_from(stride).ok()?) {
                Some(window) => windows.push(window),
                None if subscript.bound.is_some() => return None,
                None => {}
            }
        }
        // The later of two equal ones is the width.
        windows.sort_by_key(|window| std::cmp::Reverse(window.step));
        let width = windows.pop()?;
        let height = windows.pop().unwrap_or_else(Window::single);
        if !windows.is_empty() {
            return None;
        }
        let taken = [height.pixel, height.tap, width.pixel, width.tap];
        let once = |axis: usize| operand.index.iter().filter(|subscript| subscript.coefficient(axis) != 0).count() == 1;
        if !taken.iter().flatten().all(|&axis| once(axis)) {
            return None;
        }
        let rest = |group: &Group| {
            let mut rest = Group::default();
            for (&axis, &extent) in
                group.axes.iter().zip(&group.extents).filter(|(axis, _)| !taken.contains(&Some(**axis)))
            {
                rest.axes.push(axis);
                rest.extents.push(extent);
            }
            rest
        };
        let channels = rest(&self.k);
        let channel_step = self.linear(map, &channels)?;
        Some(ImageView { image_is_a, height, width, channels, channel_step, outer: rest(group) })
    }

    /// A subscript that adds an output axis of the image and a reduced axis.
    fn window(&self, subscript: &Subscript, group: &Group, step: i64) -> Option<Window> {
        let &[first, second] = subscript.terms.as_slice() else { return None };
        let (pixel, tap) = if group.axes.contains(&first.0) { (first, second) } else { (second, first) };
        let pixels = group.axes.iter().position(|&axis| axis == pixel.0)?;
        let taps = self.k.axes.iter().position(|&axis| axis == tap.0)?;
        let positive = |value: i64| u64::try_from(value).ok().filter(|&value| value > 0);
        Some(Window {
            pixel: Some(pixel.0),
            tap: Some(tap.0),
            pixels: group.extents[pixels],
            taps: self.k.extents[taps],
            stride: positive(pixel.1)?,
            dilation: positive(tap.1)?,
            offset: subscript.offset,
            bound: subscript.bound,
            step,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::workload::{Conv2dSpec, MatmulSpec, Workload};

    use super::*;

    fn image(workload: &Workload) -> Option<(ContractionView, ImageView)> {
        let view = ContractionView::new(workload).unwrap();
        view.image().map(|image| (view, image))
    }

    #[test]
    fn a_convolution_has_an_image_and_a_product_has_none() {
        assert_eq!(image(&MatmulSpec::new(4, 5, 6).workload().unwrap()), None);
        let spec =
            Conv2dSpec { groups: 2, stride_h: 2, pad_top: 1, dilation_w: 3, ..Conv2dSpec::new(2, 4, 9, 11, 6, 3, 2) };
        let workload = spec.workload().unwrap();
        let (view, found) = image(&workload).unwrap();
        let axis = |name: &str| workload.axis(name);
        assert!(!found.image_is_a, "pixels are contiguous in the output, so the image is the factor of the columns");
        let height = Window {
            pixel: axis("oh"),
            tap: axis("r"),
            pixels: 4,
            taps: 3,
            stride: 2,
            dilation: 1,
            offset: -1,
            bound: Some(9),
            step: 11,
        };
        assert_eq!(found.height, height);
        let width = Window {
            pixel: axis("ow"),
            tap: axis("s"),
            pixels: 8,
            taps: 2,
            stride: 1,
            dilation: 3,
            offset: 0,
            bound: None,
            step: 1,
        };
        assert_eq!(found.width, width);
        assert_eq!((found.height.span(4), found.width.span(2)), (9, 5));
        assert_eq!((found.channels.axes.clone(), found.channel_step), (vec![axis("c").unwrap()], 99));
        assert_eq!(found.outer.axes, [axis("n").unwrap()]);
        assert!(!view.is_plain(&found));
    }

    #[test]
    fn a_single_tap_without_padding_is_a_plain_product() {
        let (view, found) = image(&Conv2dSpec::new(1, 4, 9, 11, 6, 1, 1).workload().unwrap()).unwrap();
        assert!(view.is_plain(&found));
        let strided = Conv2dSpec { stride_h: 2, ..Conv2dSpec::new(1, 4, 9, 11, 6, 1, 1) };
        let (view, found) = image(&strided.workload().unwrap()).unwrap();
        assert!(!view.is_plain(&found));
    }
}
