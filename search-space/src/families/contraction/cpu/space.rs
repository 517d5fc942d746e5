//! The schedule space of a contraction on the CPU.
//!
//! Constraints are named after what they hold for: those of the matrix product end in the axis of the vectors, those of
//! the direct form begin with `direct`.

use std::collections::BTreeSet;

use super::{ORDERS, blocking, matrix};
use crate::families::contraction::image::ImageView;
use crate::families::contraction::{ContractionView, closest};
use crate::families::{SchedulePlan, Unsupported};
use crate::schedule::{Schedule, Value};
use crate::space::{ParameterSpace, SpaceBuilder};
use crate::target::Target;
use crate::workload::DType;

/// Largest block of packed rows, of packed columns and of a packed image, as multiples of the second-level cache.
const PACK_ROWS_PER_L2: u64 = 4;
const PACK_COLS_PER_L2: u64 = 32;
const PACK_IMAGE_PER_L2: u64 = 8;
/// Largest block of transformed tiles, in the same unit.
const PACK_TILES_PER_L2: u64 = 4;
/// Largest workspace of partial sums, in the same unit, and most parts.
const PARTS_PER_L2: u64 = 8;
const MOST_PARTS: u64 = 16;
/// Steps of k that weights beyond the second-level cache are asked for ahead.
const STREAMED_AHEAD: i64 = 32;
/// Rows of a block of a stencil.
const STENCIL_ROWS: u64 = 16;
/// Steps of k whose copies fill a loop body: a reduction that is no longer can be unrolled whole.
const SHORT: u64 = 16;

/// The space of a contraction on a CPU target and its default schedule.
///
/// # Errors
/// [`Unsupported::Space`] when the space is empty or too large to compile.
pub fn plan(view: &ContractionView, target: &Target) -> Result<SchedulePlan, Unsupported> {
    let (m, n, k) = view.extents();
    let limits = &target.limits;
    let float_bytes = 4;
    let widths: Vec<i64> =
        [1, 4, 8, 16].into_iter().filter(|w| w * float_bytes <= signed(limits.vector_bytes)).collect();
    let longest = m.max(n);
    // A plain product of an image needs no form of its own.
    let image = view.image().filter(|image| !view.is_plain(image) && view.workload.acc == DType::F32);
    let (tile, bytes) = (view.has_matrix(target), view.has_byte_sums(target));
    // Forms that pack both factors and sum all of k at once.
    let whole = tile || bytes;
    let mut space = SpaceBuilder::new();
    let mut forms = vec!["gemm"];
    if let Some(image) = &image {
        forms.push("direct");
        if view.has_winograd(image) {
            forms.extend(["winograd2", "winograd4"]);
        }
        forms.extend(view.is_stencil(image).then_some("stencil"));
    }
    let dots = view.has_dots() && view.workload.acc == DType::F32;
    forms.extend(dots.then_some("dots"));
    forms.extend(tile.then_some("tile"));
    forms.extend(bytes.then_some("bytes"));
    let formed = forms.len() > 1;
    if formed {
        space.names("form", &forms).structural("form");
    }
    space.names("vec", &["n", "m"]).structural("vec");
    space.param("vw", widths).structural("vw");
    space.param("mr", (1..=16).chain([20, 24, 30]).chain(tile.then_some([32, 48]).into_iter().flatten()));
    if image.is_some() {
        space.param("th", 1..=4);
    }
    space.param("nv", [1, 2, 3, 4, 5, 6, 8]);
    space.param("mt", ladder(longest)).grain("mt");
    space.param("nt", ladder(longest)).grain("nt");
    space.param("kc", steps(k));
    space.names("order", &ORDERS);
    for (name, map) in [("pack_a", &view.a), ("pack_b", &view.b)] {
        let fused = (name == "pack_b").then_some("fused");
        let ahead = view.is_free(map).then_some("ahead");
        let values: Vec<&str> = ["none", "panel"].into_iter().chain(fused).chain(ahead).collect();
        space.names(name, &values).structural(name);
    }
    let channels = image.as_ref().map(|image| image.channels.extent()).filter(|&channels| channels <= SHORT);
    let mut unroll = vec![1, 2, 4, 8];
    unroll.extend(channels.map(signed).filter(|channels| !unroll.contains(channels)));
    space.param("ku", unroll);
    let ahead: [(bool, &[i64]); 3] =
        [(true, &[0, 4, 8, 16]), (whole, &[0, 1, 2, 4]), (image.is_some(), &[0, 4, 8, 16, 32, 64])];
    let ahead: BTreeSet<i64> = ahead.iter().filter(|(here, _)| *here).flat_map(|(_, steps)| *steps).copied().collect();
    space.param("pf", ahead);
    if tile {
        space.param("wake", matrix::WAKES);
    }
    space.names("tail", &["-", "masked", "separate", "overlap"]).structural("tail");
    space.names("par", if target.key.threads > 1 { &["-", "rows", "cols", "batch", "k"] } else { &["-"] });

    let plain = if whole { "form != 'tile' && form != 'bytes' => " } else { "" };
    space.require("registers", &format!("{plain}mr*nv + nv + 1 <= {}", limits.vector_registers));
    gemm(&mut space, view, formed, image.is_some());
    if dots {
        self::dots(&mut space, view, image.is_some());
    }
    if tile {
        matrix::tile(&mut space, view, limits.l2_bytes);
    }
    if bytes {
        matrix::bytes(&mut space, view, limits);
    }
    if formed {
        space.require("fused_product", "pack_b == 'fused' => form == 'gemm'");
    }
    if image.is_some() {
        space.require("one_row", "form in ['tile', 'bytes'] => th == 1");
    }
    if !view.holds_sums() {
        // Partial sums of split-K lie in a workspace, others in the output.
        let parts = if target.key.threads > 1 { " || par == 'k'" } else { "" };
        space.require("whole_sums", &format!("kc >= {k}{parts}"));
    }
    if let Some(image) = &image {
        direct(&mut space, view, image, limits.vector_registers);
        if view.has_winograd(image) {
            winograd(&mut space, view, image, limits.l2_bytes);
        }
        if view.is_stencil(image) {
            stencil(&mut space, view, image);
        }
    }
    let cache = |factor: u64| limits.l2_bytes * factor / 4;
    let product = if formed { "form == 'gemm' && " } else { "" };
    space.require("rows_fit", &format!("{product}pack_a == 'panel' => mt*mr*kc <= {}", cache(PACK_ROWS_PER_L2)));
    space.require(
        "cols_fit",
        &format!("{product}pack_b in ['panel', 'fused'] => nt*(nv*vw)*kc <= {}", cache(PACK_COLS_PER_L2)),
    );
    if let Some(image) = &image {
        let (height, width) = (&image.height, &image.width);
        let rows = format!("((th*mt - 1)*{} + {})", height.stride, (height.taps - 1) * height.dilation + 1);
        let row = (width.span(width.pixels) + width.stride) * image.channels.extent();
        let packed = if image.image_is_a { "pack_a" } else { "pack_b" };
        space.require(
            "direct_image_fits",
            &format!("form == 'direct' && {packed} != 'none' => {rows}*{row} <= {}", cache(PACK_IMAGE_PER_L2)),
        );
    }
    if view.batch.extent() == 1 && target.key.threads > 1 {
        space.require("par_batch", "par != 'batch'");
    }
    if target.key.threads > 1 {
        let form = if formed { "form == 'gemm' && " } else { "" };
        let order = "order in ['pij.ji', 'pij.ij', 'pji.ji', 'pji.ij']";
        space.require("parts", &format!("par == 'k' => {form}{order} && kc < {k} && ceildiv({k}, kc) <= {MOST_PARTS}"));
        let sums = m.saturating_mul(n).saturating_mul(view.batch.extent());
        let room = limits.l2_bytes * PARTS_PER_L2 / 4;
        space.require("parts_fit", &format!("par == 'k' => ceildiv({k}, kc)*{} <= {room}", sums.min(1 << 40)));
    }
    let mut space = space.build().map_err(|error| Unsupported::Space { why: error.to_string() })?;
    if let Some(image) = image.as_ref().filter(|image| view.has_winograd(image)) {
        let starts = [2, 4].map(|outputs| start_winograd(view, image, target, &space, outputs));
        space.start_from(starts);
    }
    if view.has_dots() {
        let start = blocking::default_dots(view, target, &space);
        space.start_from([start]);
    }
    if image.is_none() && !whole {
        let starts = blocking::starts(view, target, &space);
        space.start_from(starts);
    }
    let default = match &image {
        Some(image) if view.is_stencil(image) => {
            let block = image.height.pixels.min(STENCIL_ROWS);
            closest(&space, &[("form", "stencil".into()), ("mt", signed(block).into()), ("kc", signed(k).into())])
        }
        Some(image) => default_direct(view, image, target, &space),
        None if whole => matrix::default(view, target, tile, &space),
        None => blocking::default(view, target, &space),
    };
    Ok(SchedulePlan { space, default })
}

/// The constraints of the matrix product; with other `forms` beside it, they hold where the form is `gemm`.
fn gemm(space: &mut SpaceBuilder, view: &ContractionView, forms: bool, image: bool) {
    let (m, n, k) = view.extents();
    let (a, b) = (&view.a, &view.b);
    for (vec, rows, cols, row_map, row_group, col_map, col_group) in
        [("n", m, n, a, &view.m, b, &view.n), ("m", n, m, b, &view.n, a, &view.m)]
    {
        let form = if forms { "form == 'gemm' && " } else { "" };
        let mut on = |name: &str, rule: String| {
            space.require(format!("{name}_{vec}"), &format!("{form}vec == '{vec}' => ({rule})"));
        };
        if image {
            on("plain", "th == 1".into());
        }
        // Panels that were just packed are near.
        on("columns_ahead", "pf == 0 || pf >= 4 && pf < kc && pack_b != 'panel'".into());
        // The first row of tiles comes first, and its core is the one that reads its panels.
        on("fused", "pack_b == 'fused' => order in ['jpi.ji', 'pji.ji'] && par != 'rows'".into());
        // No register tile or cache block begins beyond the end.
        on("rows_used", format!("mr <= {rows} && (mt - 1)*mr < {rows}"));
        on("cols_used", format!("(nv - 1)*vw < {cols} && (nt - 1)*(nv*vw) < {cols}"));
        // Full tiles over the end waste work: at most a quarter, except where one tile covers all.
        on("waste_rows", format!("tail == 'masked' => ceildiv({rows}, mr)*mr*4 <= {rows}*5"));
        on("exact", format!("tail == '-' => {rows} % mr == 0 && {cols} % (nv*vw) == 0"));
        on("inexact", format!("{rows} % mr == 0 && {cols} % (nv*vw) == 0 => tail == '-'"));
        on(
            "overlap",
            format!(
                "tail == 'overlap' => mr <= {rows} && nv*vw <= {cols} && kc >= {k} && pack_a == 'none' && pack_b == 'none'"
            ),
        );
        // Rows over the end are not loaded one by one: guarded tiles need rows that were packed with zeros.
        on("masked_rows", format!("tail == 'masked' && pack_a == 'none' => {rows} % mr == 0"));
        let direct_rows = view.linear(row_map, row_group).is_some() && view.linear(row_map, &view.k).is_some();
        if !direct_rows {
            on("rows_packed", "pack_a != 'none'".into());
        }
        let contiguous = view.linear(col_map, col_group) == Some(1) || cols == 1;
        if !(contiguous && view.linear(col_map, &view.k).is_some()) {
            on("cols_packed", "pack_b in ['panel', 'ahead']".into());
        }
    }
}

/// The constraints of dot products: `mr` rows share a tree, `ku` is the number of partial results of each.
fn dots(space: &mut SpaceBuilder, view: &ContractionView, image: bool) {
    let (m, n, k) = view.extents();
    let mut on = |name: &str, rule: String| {
        space.require(format!("dots_{name}"), &format!("form == 'dots' => ({rule})"));
    };
    on("rows_used", format!("vec == 'n' && mr <= {m} || vec == 'm' && mr <= {n}"));
    on("unblocked", format!("nv == 1 && mt == 1 && nt == 1 && kc == {k} && order == 'jpi.ji' && tail == '-'"));
    on("in_place", "pack_a == 'none' && pack_b == 'none'".into());
    on("one_row", if image { "th == 1 && pf == 0" } else { "pf == 0" }.into());
}

/// The constraints of the direct form: rows are pixels, columns are output channels.
fn direct(space: &mut SpaceBuilder, view: &ContractionView, image: &ImageView, registers: u64) {
    let mut on = |name: &str, rule: String| {
        space.require(format!("direct_{name}"), &format!("form == 'direct' => ({rule})"));
    };
    let (vec, packed, weights) = if image.image_is_a { ("n", "pack_a", "pack_b") } else { ("m", "pack_b", "pack_a") };
    let (height, width) = (image.height.pixels, image.width.pixels);
    let channels = view.weights_side(image).1.extent();
    on("vec", format!("vec == '{vec}'"));
    on("registers", format!("th*mr*nv + nv + 1 <= {registers}"));
    // No register tile or block begins beyond the end; tiles of several rows hold whole rows.
    on("pixels_used", format!("mr <= {width} && th <= {height} && (mt - 1)*th < {height}"));
    on("whole_rows", format!("th > 1 => mr == {width}"));
    on("channels_used", format!("(nv - 1)*vw < {channels}"));
    on("unblocked", format!("nt == 1 && kc == {}", view.k.extent()));
    on("order", "order in ['jpi.ji', 'jpi.ij']".into());
    on("weights_packed", format!("{weights} != 'none'"));
    on("image_packed", format!("{packed} != 'ahead'"));
    if image.height.bound.or(image.width.bound).is_some() {
        on("padded", format!("{packed} != 'none'"));
    }
    on("exact", format!("tail == '-' => {width} % mr == 0 && {height} % th == 0"));
    on("inexact", format!("{width} % mr == 0 && {height} % th == 0 => tail == '-'"));
    on("no_overlap", "tail != 'overlap'".into());
    on(
        "waste",
        format!("tail == 'masked' => ceildiv({width}, mr)*mr*(ceildiv({height}, th)*th)*4 <= {}", width * height * 5),
    );
    // Pixels over the end are not loaded one by one: they must be there, in a packed image.
    on("masked_pixels", format!("tail == 'masked' => {packed} != 'none'"));
}

/// The constraints of Winograd's forms: rows are tiles of pixels, columns are output channels.
fn winograd(space: &mut SpaceBuilder, view: &ContractionView, image: &ImageView, l2_bytes: u64) {
    let (vec, packed, weights) = if image.image_is_a { ("n", "pack_a", "pack_b") } else { ("m", "pack_b", "pack_a") };
    let outputs = view.weights_side(image).1.extent();
    let channels = image.channels.extent();
    for outputs_of_tile in [2, 4] {
        let mut on = |name: &str, rule: String| {
            let form = format!("winograd{outputs_of_tile}");
            space.require(format!("{form}_{name}"), &format!("form == '{form}' => ({rule})"));
        };
        let [rows, columns] = [&image.height, &image.width].map(|window| window.pixels.div_ceil(outputs_of_tile));
        let inputs = outputs_of_tile + 2;
        on("vec", format!("vec == '{vec}'"));
        on("tiles_used", format!("th <= {rows} && mr <= th*{columns} && (mt - 1)*th < {rows}"));
        on("channels_used", format!("(nv - 1)*vw < {outputs}"));
        on("unblocked", format!("nt == 1 && kc == {} && order == 'jpi.ji'", view.k.extent()));
        on("packed", format!("{weights} != 'none' && {packed} == 'panel'"));
        on("exact", format!("tail == '-' => th*{columns} % mr == 0"));
        on("inexact", format!("th*{columns} % mr == 0 => tail == '-'"));
        on("tail", "tail in ['-', 'separate']".into());
        on("waste", format!("ceildiv({rows}, th)*th*4 <= {rows}*5"));
        let row = (columns * outputs_of_tile + 2) * channels;
        on("image_fits", format!("(mt*th*{outputs_of_tile} + 2)*{row} <= {}", l2_bytes * PACK_IMAGE_PER_L2 / 4));
        let tiles = columns * inputs * inputs * channels;
        on("tiles_fit", format!("th*{tiles} <= {}", l2_bytes * PACK_TILES_PER_L2 / 4));
    }
}

/// The constraints of the stencil form, which has one block size.
fn stencil(space: &mut SpaceBuilder, view: &ContractionView, image: &ImageView) {
    let mut on = |name: &str, rule: String| {
        space.require(format!("stencil_{name}"), &format!("form == 'stencil' => ({rule})"));
    };
    on("rows_used", format!("mt == 1 || mt < {}", image.height.pixels));
    let k = view.k.extent();
    on("unblocked", format!("vw == 1 && mr == 1 && th == 1 && nv == 1 && nt == 1 && kc == {k} && ku == 1 && pf == 0"));
    on("plain", "vec == 'n' && order == 'jpi.ji' && pack_a == 'none' && pack_b == 'none' && tail == '-'".into());
}

/// Where a search of a Winograd form begins: two vectors of channels and as many tiles as registers are left, over as
/// few rows of tiles as give those.
fn start_winograd(
    view: &ContractionView,
    image: &ImageView,
    target: &Target,
    space: &ParameterSpace,
    outputs: u64,
) -> Schedule {
    let limits = &target.limits;
    let most = (limits.vector_registers.saturating_sub(3) / 2).max(1);
    let [rows, columns] = [&image.height, &image.width].map(|window| window.pixels.div_ceil(outputs));
    let together = most.div_ceil(columns).clamp(1, rows.min(4));
    let tiles = together * columns;
    // Equal tiles rather than full ones and a rest.
    let tile = tiles.div_ceil(tiles.div_ceil(most));
    let (image_pack, weights_pack) = if image.image_is_a { ("pack_a", "pack_b") } else { ("pack_b", "pack_a") };
    let free = view.is_free(view.weights_side(image).0);
    let points = (outputs + 2) * (outputs + 2);
    let weights = 4 * view.weights_side(image).1.extent() * image.channels.extent() * points;
    let wish: [(&str, Value); 16] = [
        ("pf", if weights > limits.l2_bytes { STREAMED_AHEAD } else { 0 }.into()),
        ("form", format!("winograd{outputs}").as_str().into()),
        ("vec", if image.image_is_a { "n" } else { "m" }.into()),
        ("vw", signed(limits.vector_bytes / 4).into()),
        ("mr", signed(tile).into()),
        ("th", signed(together).into()),
        ("nv", 2.into()),
        ("mt", 1.into()),
        ("nt", 1.into()),
        ("kc", signed(view.k.extent()).into()),
        ("order", "jpi.ji".into()),
        (image_pack, "panel".into()),
        (weights_pack, if free { "ahead" } else { "panel" }.into()),
        ("ku", 4.into()),
        ("tail", if tiles.is_multiple_of(tile) { "-" } else { "separate" }.into()),
        ("par", if target.key.threads > 1 { "rows" } else { "-" }.into()),
    ];
    closest(space, &wish)
}

/// A register tile of two vectors of channels and as many neighbouring pixels as registers are left, over blocks of
/// rows of the image that fit the second-level cache.
fn default_direct(view: &ContractionView, image: &ImageView, target: &Target, space: &ParameterSpace) -> Schedule {
    let limits = &target.limits;
    let (height, width) = (&image.height, &image.width);
    let most = (limits.vector_registers.saturating_sub(3) / 2).max(1);
    // Equal tiles rather than full ones and a rest.
    let pixels = width.pixels.div_ceil(width.pixels.div_ceil(most));
    let rows = if pixels == width.pixels { (most / pixels).clamp(1, height.pixels) } else { 1 };
    let row_bytes = 4 * width.span(width.pixels) * image.channels.extent();
    let lines = (limits.l2_bytes / 2 / row_bytes.max(1)).saturating_sub((height.taps - 1) * height.dilation);
    // Equal blocks, too.
    let tiles = height.pixels.div_ceil(rows);
    let tiles = tiles.div_ceil(tiles.div_ceil((lines / height.stride / rows).max(1)));
    let (image_pack, weights_pack) = if image.image_is_a { ("pack_a", "pack_b") } else { ("pack_b", "pack_a") };
    let free = view.is_free(view.weights_side(image).0);
    // Panels that do not stay in the second-level cache are read from beyond it for each block.
    let streamed = 4 * view.weights_side(image).1.extent() * view.k.extent() > limits.l2_bytes;
    let exact = width.pixels.is_multiple_of(pixels) && height.pixels.is_multiple_of(rows);
    let wish: [(&str, Value); 16] = [
        ("pf", if streamed { STREAMED_AHEAD } else { 0 }.into()),
        ("form", "direct".into()),
        ("vec", if image.image_is_a { "n" } else { "m" }.into()),
        ("vw", signed(limits.vector_bytes / 4).into()),
        ("mr", signed(pixels).into()),
        ("th", signed(rows).into()),
        ("nv", 2.into()),
        ("mt", signed(tiles).into()),
        ("nt", 1.into()),
        ("kc", signed(view.k.extent()).into()),
        ("order", "jpi.ji".into()),
        (image_pack, "panel".into()),
        (weights_pack, if free { "ahead" } else { "panel" }.into()),
        ("ku", signed(image.channels.extent().min(4)).into()),
        ("tail", if exact { "-" } else { "separate" }.into()),
        ("par", if target.key.threads > 1 { "rows" } else { "-" }.into()),
    ];
    closest(space, &wish)
}

/// Numbers of register tiles in a block: small integers, then steps of about a third.
fn ladder(longest: u64) -> Vec<i64> {
    let fine =
        [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 42, 48, 64, 86, 96, 128, 171, 192, 256, 342, 512];
    let longest = signed(longest);
    fine.into_iter().filter(|&step| step == 1 || step < longest).collect()
}

/// Block sizes of k: k in 1 to 8 equal parts, and a ladder below it.
fn steps(k: u64) -> Vec<i64> {
    let mut steps: Vec<i64> = (1..=8).map(|parts| signed(k.div_ceil(parts))).collect();
    let ladder = [16, 24, 32, 48, 64, 96, 128, 192, 256, 320, 384, 512, 768, 1024, 2048, 4096];
    steps.extend(ladder.into_iter().filter(|&step| step < signed(k)));
    steps.sort_unstable();
    steps.dedup();
    steps
}

pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).expect("invariant: extents are below 2^62")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::contraction::cpu::CpuSchedule;
    use crate::samples;
    use crate::workload::{Conv2dSpec, MathMode, MatmulSpec, Storage, Workload};

    fn planned(workload: &Workload) -> SchedulePlan {
        let target = samples::cpu_target("x86-64", &[], 64, 1);
        plan(&ContractionView::new(workload).unwrap(), &target).unwrap()
    }

    /// 14 columns and 9 rows of pixels, 32 output channels, weights and image in free layouts.
    fn filtered() -> Workload {
        let pads = Conv2dSpec {
            pad_top: 1,
            pad_left: 1,
            pad_bottom: 1,
            pad_right: 1,
            ..Conv2dSpec::new(1, 8, 9, 14, 32, 3, 3)
        };
        let mut workload = Conv2dSpec { math: MathMode::Fast, ..pads }.workload().unwrap();
        workload.operands[0].storage = Storage::Free;
        workload.operands[1].storage = Storage::Free;
        workload
    }

    /// Each change of a legal schedule breaks the constraint of this name, and no other before it.
    fn breaks(plan: &SchedulePlan, legal: &Schedule, changes: &[(&str, &str)]) {
        assert_eq!(plan.space.why_schedule(legal).map(|why| why.to_string()), None, "{legal}");
        for (change, constraint) in changes {
            let mut schedule = legal.clone();
            for pair in change.split(' ') {
                let (name, value) = pair.split_once('=').unwrap();
                schedule.set(name, value.parse().map_or_else(|_| Value::from(value), Value::Int));
            }
            let why = plan.space.why_schedule(&schedule).map(|why| why.to_string()).unwrap_or_default();
            assert!(why.contains(&format!("`{constraint}`")), "{change}: {why:?}, not {constraint}");
        }
    }

    #[test]
    fn each_rule_of_the_matrix_unit_forbids_by_its_name() {
        // Ten steps of 32 along k.
        let workload = MatmulSpec { dtype: DType::Bf16, ..MatmulSpec::new(64, 64, 320) }.workload().unwrap();
        let target = samples::cpu_target("x86-64", &["amx-bf16", "amx-tile"], 64, 1);
        let plan = plan(&ContractionView::new(&workload).unwrap(), &target).unwrap();
        let found = |name: &str| plan.default.get(name).unwrap().to_string();
        assert_eq!(["form", "mr", "nv", "wake"].map(found), ["tile", "32", "2", "8"]);
        let changes = [
            ("mr=24", "tile_registers"),
            ("mr=48", "tile_registers"),
            ("wake=16", "wakes_used"),
            ("kc=160", "tile_whole_k"),
            ("form=gemm mr=6 nv=4 mt=1 nt=1 pf=0", "asleep"),
        ];
        breaks(&plan, &plan.default, &changes);
        // A schedule from before there was the parameter says nothing of it, and means never.
        let mut old = plan.default.clone();
        old.set("wake", 0);
        assert_eq!(CpuSchedule::read(&old).unwrap().wake, 0);
        let old: Schedule = old.iter().filter(|(name, _)| *name != "wake").map(|(n, v)| (n, v.clone())).collect();
        assert_eq!(CpuSchedule::read(&old).unwrap().wake, 0);
        assert_eq!(CpuSchedule::read(&plan.default).unwrap().wake, 8);
    }

    #[test]
    fn the_default_of_the_matrix_unit_packs_few_rows_once_and_many_rows_seldom() {
        let target = samples::cpu_target("x86-64", &["amx-bf16", "amx-tile"], 64, 1);
        let l2_bytes = signed(target.limits.l2_bytes);
        let block = |m, n, k| {
            let workload = MatmulSpec { dtype: DType::Bf16, ..MatmulSpec::new(m, n, k) }.workload().unwrap();
            let default = plan(&ContractionView::new(&workload).unwrap(), &target).unwrap().default;
            let int = |name: &str| default.int(name).unwrap();
            [int("mt") * int("mr") * signed(k) * 2, int("nt") * int("nv") * int("vw") * signed(k) * 2]
        };
        let few = block(64, 8192, 512);
        assert!(few[1] <= l2_bytes / 4, "{few:?}");
        let many = block(4096, 4096, 512);
        assert!(many[0] <= l2_bytes / 2 && many[1] > l2_bytes, "{many:?}");
    }

    #[test]
    fn products_have_no_forms() {
        let mut strided = Conv2dSpec::new(1, 8, 9, 14, 32, 1, 1);
        for (workload, forms) in [
            (MatmulSpec::new(8, 8, 8).workload(), false),
            (strided.workload(), false),
            (
                {
                    strided.stride_h = 2;
                    strided.workload()
                },
                true,
            ),
        ] {
            let plan = planned(&workload.unwrap());
            for name in ["form", "th"] {
                assert_eq!(plan.space.position(name).is_some(), forms, "{name}");
            }
        }
    }

    #[test]
    fn the_default_of_a_convolution_is_direct_with_whole_tiles() {
        let plan = planned(&filtered());
        let found = |name: &str| plan.default.get(name).unwrap().to_string();
        let tile = ["form", "mr", "th", "nv", "tail", "pack_a", "pack_b"].map(found);
        assert_eq!(tile, ["direct", "14", "1", "2", "-", "ahead", "panel"]);
    }

    #[test]
    fn each_rule_of_the_direct_form_forbids_by_its_name() {
        let plan = planned(&filtered());
        let changes = [
            ("vec=n", "direct_vec"),
            ("th=3", "direct_registers"),
            ("mr=15 nv=1", "direct_pixels_used"),
            ("mr=2 th=3 mt=1", "direct_whole_rows"),
            ("nv=3 mr=7", "direct_channels_used"),
            ("nt=2", "direct_unblocked"),
            ("kc=36", "direct_unblocked"),
            ("order=pij.ji", "direct_order"),
            ("pack_a=none", "direct_weights_packed"),
            ("pack_b=ahead", "direct_image_packed"),
            ("pack_b=none", "direct_padded"),
            ("mr=5", "direct_exact"),
            ("tail=separate", "direct_inexact"),
            ("mr=5 tail=overlap", "direct_no_overlap"),
            ("mr=10 tail=masked", "direct_waste"),
        ];
        breaks(&plan, &plan.default, &changes);
        let wide = Conv2dSpec::new(1, 8, 9, 15, 32, 3, 3).workload().unwrap();
        let plan = planned(&wide);
        let mut legal = plan.default.clone();
        legal.set("mr", 12);
        legal.set("tail", "separate");
        breaks(&plan, &legal, &[("mr=7 tail=masked pack_b=none", "direct_masked_pixels")]);
    }

    #[test]
    fn each_rule_of_winograds_forms_forbids_by_its_name() {
        let plan = planned(&filtered());
        let mut legal = plan.default.clone();
        // 5 rows of 7 tiles, of which 2 are taken together.
        for (name, value) in [("mr", 7), ("th", 1), ("mt", 2)] {
            legal.set(name, value);
        }
        legal.set("form", "winograd2");
        let changes = [
            ("vec=n", "winograd2_vec"),
            ("mr=14", "winograd2_tiles_used"),
            ("mt=6", "winograd2_tiles_used"),
            ("nv=3", "winograd2_channels_used"),
            ("nt=2", "winograd2_unblocked"),
            ("order=jpi.ij", "winograd2_unblocked"),
            ("pack_a=none", "winograd2_packed"),
            ("pack_b=none", "winograd2_packed"),
            ("mr=4", "winograd2_exact"),
            ("tail=separate", "winograd2_inexact"),
            ("mr=4 tail=masked", "winograd2_tail"),
            ("th=4 mt=1", "winograd2_waste"),
        ];
        breaks(&plan, &legal, &changes);
        let ieee = Workload { math: MathMode::Ieee, ..filtered() };
        let forms = |plan: &SchedulePlan| plan.space.params()[plan.space.position("form").unwrap()].values.len();
        assert_eq!((forms(&plan), forms(&planned(&ieee))), (4, 2));
    }

    #[test]
    fn a_depthwise_convolution_is_a_stencil_with_one_choice() {
        let spec = Conv2dSpec { groups: 12, ..Conv2dSpec::new(1, 12, 30, 14, 12, 3, 3) };
        let plan = planned(&spec.workload().unwrap());
        let changes = [
            ("mt=32", "stencil_rows_used"),
            ("pf=8", "stencil_unblocked"),
            ("nv=2", "stencil_unblocked"),
            ("pack_b=panel", "stencil_plain"),
            ("tail=masked", "stencil_plain"),
        ];
        breaks(&plan, &plan.default, &changes);
        assert_eq!(plan.default.name("form"), Some("stencil"));
        // Two output channels per group share the pixels they read.
        let shared = planned(&Conv2dSpec { k: 24, ..spec }.workload().unwrap());
        assert_eq!(shared.default.name("form"), Some("direct"));
    }
}
