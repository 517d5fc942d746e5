//! What the forms of a convolution share: where the elements of an image are, and how a part of it is copied.

use search_space::families::contraction::image::ImageView;
use search_space::families::contraction::{ContractionView, Group, OperandMap};

use super::packed::{At, Packed};
use super::signed;
use crate::families::contraction::split;
use crate::index::Index;
use crate::tile::{Guard, Place, Stmt, View};

/// Sets the coordinates of a group's axes from its fused coordinate.
pub(super) fn set(coords: &mut [Index], group: &Group, fused: &Index) {
    for (axis, digit) in split(group, fused) {
        coords[axis] = digit;
    }
}

/// The element of an operand at a coordinate per axis, and the guards of its padding.
pub(super) fn place(map: &OperandMap, coords: &[Index]) -> (Index, Vec<Guard>) {
    let along = |index, (coord, stride): (&Index, &i64)| index + coord.clone() * Index::Const(*stride);
    let index = coords.iter().zip(&map.strides).fold(Index::Const(map.offset), along);
    let guards = map.guards.iter().map(|guard| {
        let along =
            |position, &(axis, coefficient): &(usize, i64)| position + coords[axis].clone() * Index::Const(coefficient);
        let position = guard.terms.iter().fold(Index::Const(guard.offset), along);
        Guard { index: position, bound: Index::of(guard.bound.unwrap_or(u64::MAX >> 2)) }
    });
    (index, guards.collect())
}

/// The element of the weights for a coordinate of their panels, whose outer steps `tap` turns into taps of height and
/// width.
pub(super) fn weight(view: &ContractionView, image: &ImageView, at: &At, taps: [&Index; 2]) -> Index {
    let (map, group) = view.weights_side(image);
    let mut coords = vec![Index::ZERO; view.workload.axes.len()];
    let groups = [(&view.batch, &at.batch), (group, &at.position), (&image.channels, &at.step)];
    groups.into_iter().for_each(|(group, fused)| set(&mut coords, group, fused));
    for (window, tap) in [&image.height, &image.width].into_iter().zip(taps) {
        window.tap.into_iter().for_each(|axis| coords[axis] = tap.clone());
    }
    place(map, &coords).0
}

/// The panels of the weights, with these outer steps of the reduction.
pub(super) fn panels(view: &ContractionView, image: &ImageView, width: u64, taps: Vec<u64>) -> Packed {
    Packed {
        workspace: 0,
        batch: view.batch.extent(),
        extent: view.weights_side(image).1.extent(),
        width,
        taps,
        steps: image.channels.extent(),
        dtype: view.workload.acc,
    }
}

/// The image element that the first tap of pixel row `row` and column 0 reads.
pub(super) fn first_read(view: &ContractionView, image: &ImageView, coords: &[Index], row: Index) -> Index {
    let (index, _) = place(view.image_side(image).0, coords);
    index + row * Index::Const(signed(image.height.stride) * image.height.step)
}

/// `dst[row, c, column]` = what pixels from row `start` on read, for a window of this shape. What lies outside of the
/// image is zero. `last` is the largest `start`.
pub(super) fn copy_image(
    view: &ContractionView,
    image: &ImageView,
    coords: &[Index],
    (dst, shape): (View, [u64; 3]),
    (start, last): (&Index, u64),
) -> Stmt {
    let (height, width) = (&image.height, &image.width);
    let index = first_read(view, image, coords, start.clone())
        + Index::Coord(0) * Index::Const(height.step)
        + Index::Coord(1) * Index::Const(image.channel_step)
        + Index::Coord(2) * Index::Const(width.step);
    let mut guards = Vec::new();
    let row = start.clone() * Index::of(height.stride) + Index::Coord(0) + Index::Const(height.offset);
    let column = Index::Coord(2) + Index::Const(width.offset);
    for (window, position, end) in [(height, row, last * height.stride + shape[0]), (width, column, shape[2])] {
        // Without a bound no pixel reads outside, but what pixels over the end would read may not exist.
        let bound = window.bound.map_or(window.offset + signed(window.span(window.pixels)), signed);
        if window.offset < 0 || signed(end) + window.offset > bound {
            guards.push(Guard { index: position, bound: Index::Const(bound) });
        }
    }
    Stmt::Copy {
        shape: shape.map(Index::of).to_vec(),
        dst,
        src: View { place: Place::Buffer(view.image_side(image).0.operand), index: vec![index], guards },
    }
}
