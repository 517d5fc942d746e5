//! Schedules of contractions on workgroup targets: how many lanes share a tile, what each lane keeps in registers, what
//! goes through shared memory. The kernel is `codegen`'s `families::contraction::simt`.
//!
//! | parameter | meaning |
//! | --- | --- |
//! | `lanes_m`, `lanes_n` | lanes of a workgroup along m and n |
//! | `tile_m`, `tile_n` | output elements of one lane along m and n; a workgroup covers `lanes · tile` |
//! | `run_m`, `run_n` | how many of them are neighbours before the next lane's begin |
//! | `lane_order`, `grid_order` | which dimension neighbouring lanes, and neighbouring workgroups, run along (first letter) |
//! | `reduce` | all reduced axes fused to one k, or `split`: the longest is k, the others are loops around it |
//! | `stage_a`, `stage_b` | whether a factor goes through shared memory or is read directly |
//! | `depth` | k of one staged tile; `-` when nothing is staged |
//! | `vector_a`, `vector_b` | elements of one load while staging |
//! | `layout_a` | staged `a` with k (`mk`) or m (`km`) contiguous |
//! | `pad_a`, `pad_b` | elements added to each row of a staged tile |
//! | `unroll` | steps of k written out in a row |
//!
//! Parameters of staging are `-` for a factor that is not staged.

use super::{ContractionView, Group, OperandMap};
use crate::families::{SchedulePlan, Unsupported};
use crate::schedule::{Schedule, Value};
use crate::space::{ParameterSpace, SpaceBuilder};
use crate::target::Target;

/// Lanes along one dimension.
const LANES: [i64; 12] = [1, 2, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256];
/// Output elements of a lane along one dimension.
const TILES: [i64; 11] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16];
/// Neighbouring output elements of a lane.
const RUNS: [i64; 5] = [1, 2, 4, 8, 16];
/// k of a staged tile.
const DEPTHS: [i64; 9] = [1, 4, 8, 12, 16, 24, 32, 64, 128];
/// Steps of k written out in a row.
const UNROLLS: [i64; 8] = [1, 2, 3, 4, 8, 16, 32, 64];
/// Padding of staged rows: none, one bank, one vector.
const PADS: [i64; 3] = [0, 1, 4];
/// Multiply-adds in one iteration of the innermost loop. More makes drivers compile for seconds.
const BODY_LIMIT: u64 = 512;
/// Rounds in which the lanes of a workgroup copy one staged tile.
const ROUNDS_LIMIT: u64 = 16;
/// A staged copy of up to this many rounds is written out and costs no loop iterations.
const ROUNDS_WRITTEN_OUT: u64 = 4;
/// Multiply-adds on padding, as a share of the useful ones along one dimension: at most a half.
const WASTE: (u64, u64) = (3, 2);

/// The schedules of a contraction on a workgroup target.
///
/// # Errors
/// [`Unsupported::Limit`] when an operand is larger than a buffer may be, or k is longer than the loops of one invocation
/// may run; [`Unsupported::Space`] when no schedule is left or the space cannot be built.
pub fn plan(view: &ContractionView, target: &Target) -> Result<SchedulePlan, Unsupported> {
    let space = space(view, target)?;
    let default = super::closest(&space, &wish([16, 16], [8, 8], 4, 4, Some(16)));
    Ok(SchedulePlan { space, default })
}

/// The plainest schedule: one output element per lane, 16×16 lanes (fewer where the output is smaller), nothing staged,
/// no unrolling. Speed-ups are quoted against it.
///
/// # Errors
/// As [`plan`].
pub fn untiled(view: &ContractionView, target: &Target) -> Result<Schedule, Unsupported> {
    Ok(super::closest(&space(view, target)?, &wish([16, 16], [1, 1], 1, 1, None)))
}

/// The contraction with only its longest reduced axis as k; the other reduced axes are the innermost ones of the batch.
/// `None` when there are no others. The output has the stride 0 along them: it is summed over that part of the batch.
pub fn split_reduction(view: &ContractionView) -> Option<ContractionView> {
    let k = &view.k;
    let longest = (0..k.axes.len()).max_by_key(|&position| k.extents[position])?;
    let others: u64 = k.extents.iter().product::<u64>() / k.extents[longest];
    let mut split = view.clone();
    for position in (0..k.axes.len()).filter(|&position| position != longest) {
        split.batch.axes.push(k.axes[position]);
        split.batch.extents.push(k.extents[position]);
    }
    split.k = Group { axes: vec![k.axes[longest]], extents: vec![k.extents[longest]] };
    (others > 1).then_some(split)
}

/// A schedule to be brought into a space; `depth` is `None` when nothing is staged.
fn wish(lanes: [i64; 2], tile: [i64; 2], run: i64, unroll: i64, depth: Option<i64>) -> Vec<(&'static str, Value)> {
    let stage = if depth.is_some() { "shared" } else { "direct" };
    let staged = |value: Value| if depth.is_some() { value } else { Value::none() };
    vec![
        ("lanes_m", lanes[0].into()),
        ("lanes_n", lanes[1].into()),
        ("tile_m", tile[0].into()),
        ("tile_n", tile[1].into()),
        ("run_m", run.into()),
        ("run_n", run.into()),
        ("lane_order", "nm".into()),
        ("grid_order", "nm".into()),
        ("unroll", unroll.into()),
        ("reduce", "fused".into()),
        ("stage_a", stage.into()),
        ("stage_b", stage.into()),
        ("depth", depth.map_or(Value::none(), Value::from)),
        ("layout_a", staged("km".into())),
        ("vector_a", staged(4.into())),
        ("vector_b", staged(4.into())),
        ("pad_a", staged(0.into())),
        ("pad_b", staged(0.into())),
    ]
}

fn space(view: &ContractionView, target: &Target) -> Result<ParameterSpace, Unsupported> {
    let limits = &target.limits;
    for (position, operand) in view.workload.operands.iter().enumerate() {
        let needed = view.workload.operand_len(position).saturating_mul(operand.dtype.bytes());
        if needed > limits.buffer_bytes {
            let what = format!("operand {} in bytes", operand.name);
            return Err(Unsupported::Limit { what, needed, limit: limits.buffer_bytes });
        }
    }
    let (m, n, _) = view.extents();
    // One workgroup takes this many problems of the batch in turn.
    let turns = view.batch.extent().div_ceil(limits.grid_per_dim.max(1)).max(1);
    let iterations = (limits.loop_iterations / turns).saturating_sub(1);
    let split = split_reduction(view);
    let reductions: Vec<Reduction> = [("fused", Some(view)), ("split", split.as_ref())]
        .into_iter()
        .filter_map(|(name, inner)| inner.map(|inner| Reduction::new(name, view, inner, iterations)))
        .collect();
    let longest_unroll = UNROLLS.iter().max().copied().unwrap_or(1).unsigned_abs();
    let needed = reductions.iter().map(|reduction| reduction.k * reduction.taps / longest_unroll).min().unwrap_or(0);
    if needed > iterations {
        let what = "k in loop iterations of one invocation".into();
        return Err(Unsupported::Limit { what, needed, limit: iterations });
    }

    let mut space = SpaceBuilder::new();
    space.names("reduce", if split.is_some() { &["fused", "split"] } else { &["fused"] }).structural("reduce");
    for name in ["lanes_m", "lanes_n"] {
        space.param(name, LANES);
    }
    for name in ["tile_m", "tile_n"] {
        space.param(name, TILES);
    }
    for name in ["run_m", "run_n"] {
        space.param(name, RUNS);
    }
    space.names("lane_order", &["nm", "mn"]).names("grid_order", &["nm", "mn"]);
    space.param("unroll", UNROLLS);
    for name in ["stage_a", "stage_b"] {
        space.names(name, &["direct", "shared"]).structural(name);
    }
    // One step of k at a time only where there are few.
    let few = reductions.iter().any(|reduction| reduction.k < 8);
    let depths: Vec<i64> = DEPTHS.into_iter().filter(|&depth| depth > 1 || few).collect();
    space.values("depth", or_none(&depths));
    space.values("layout_a", vec![Value::none(), "km".into(), "mk".into()]);
    for (side, letter) in ["a", "b"].into_iter().enumerate() {
        let widest = reductions.iter().map(|reduction| &reduction.vectors[side]).max_by_key(|widths| widths.len());
        space.values(format!("vector_{letter}"), or_none(widest.map_or(&[], Vec::as_slice)));
        space.values(format!("pad_{letter}"), or_none(&PADS));
    }

    space.require("invocations", &format!("lanes_m*lanes_n <= {}", limits.workgroup_invocations));
    let accumulators = limits.vector_registers * limits.vector_bytes / 4 / 2;
    space.require("registers", &format!("tile_m*tile_n <= {accumulators}"));
    space.require("body", &format!("tile_m*tile_n*unroll <= {BODY_LIMIT}"));
    for (side, extent) in [("m", m), ("n", n)] {
        let block = format!("lanes_{side}*tile_{side}");
        space.require(format!("run_{side}"), &format!("tile_{side} % run_{side} == 0"));
        space.require(
            format!("waste_{side}"),
            &format!("ceildiv({extent}, {block})*{block}*{} <= {}", WASTE.1, extent * WASTE.0),
        );
        space.require(format!("grid_{side}"), &format!("ceildiv({extent}, {block}) <= {}", limits.grid_per_dim));
    }
    // What applies only to staged factors.
    applies(&mut space, "depth", "stage_a == 'shared' || stage_b == 'shared'");
    applies(&mut space, "layout_a", "stage_a == 'shared'");
    for (letter, side, other) in [("a", "m", "n"), ("b", "n", "m")] {
        let staged = format!("stage_{letter} == 'shared'");
        let rounds = format!("ceildiv(tile_{side}*depth, lanes_{other}*vector_{letter})");
        space.require(format!("rounds_{letter}"), &format!("{staged} => {rounds} <= {ROUNDS_LIMIT}"));
        for name in ["vector", "pad"] {
            applies(&mut space, &format!("{name}_{letter}"), &staged);
        }
    }
    for reduction in &reductions {
        reduction.require(&mut space, iterations);
    }
    // Padding of one element would split the vectors that lanes read.
    space.require("aligned_b", "stage_b == 'shared' && pad_b == 1 => run_n == 1");
    let floats = limits.shared_bytes / 4;
    let a = |layout: &str| match layout {
        "km" => "(lanes_m*tile_m + pad_a)*depth",
        _ => "lanes_m*tile_m*(depth + pad_a)",
    };
    let b = "(lanes_n*tile_n + pad_b)*depth";
    for layout in ["km", "mk"] {
        let a = a(layout);
        space.require(
            format!("shared_a_{layout}"),
            &format!("layout_a == '{layout}' && stage_b == 'direct' => {a} <= {floats}"),
        );
        space.require(
            format!("shared_ab_{layout}"),
            &format!("layout_a == '{layout}' && stage_b == 'shared' => {a} + {b} <= {floats}"),
        );
    }
    space.require("shared_b", &format!("stage_a == 'direct' && stage_b == 'shared' => {b} <= {floats}"));
    space.build().map_err(|error| Unsupported::Space { why: error.to_string() })
}

/// One way to run the sum, and what it asks of the parameters.
struct Reduction {
    /// Value of `reduce`.
    name: &'static str,
    k: u64,
    /// Iterations of the loop around k.
    taps: u64,
    /// Per factor: widths of its loads, and whether it is staged along k.
    vectors: [Vec<i64>; 2],
    along_k: [bool; 2],
    /// Whether some schedule comes near the limit of loop iterations. Most problems are far from it, and their space
    /// needs no rule about it.
    near_limit: bool,
}

impl Reduction {
    fn new(name: &'static str, view: &ContractionView, inner: &ContractionView, iterations: u64) -> Reduction {
        let (k, taps) = (inner.k.extent(), inner.batch.extent() / view.batch.extent());
        let factors = [(&inner.a, &inner.m), (&inner.b, &inner.n)];
        let most = |depth: i64| k.div_ceil(depth.unsigned_abs()) * (1 + depth.unsigned_abs() + 2 * ROUNDS_LIMIT);
        Reduction {
            name,
            k,
            taps,
            vectors: factors.map(|(map, group)| vectors(inner, map, group)),
            along_k: factors.map(|(map, group)| k_fastest(inner, map, group)),
            near_limit: DEPTHS.into_iter().filter(|&depth| depth > 1 || k < 8).any(|d| most(d) * taps > iterations),
        }
    }

    fn require(&self, space: &mut SpaceBuilder, iterations: u64) {
        let Reduction { name, k, taps, .. } = self;
        let mut on = |rule_name: &str, rule: &str| {
            space.require(format!("{rule_name}_{name}"), &format!("reduce == '{name}' => ({rule})"));
        };
        on("unroll", &format!("unroll <= {}", k.max(&1)));
        on("iterations", &format!("depth != '-' || {k}/unroll*{taps} + {taps} <= {iterations}"));
        let deepest = (k.saturating_mul(WASTE.0) / WASTE.1).max(1);
        on("depth", &format!("depth == '-' || unroll <= depth && depth <= {deepest}"));
        for (at, (letter, side, other)) in [("a", "m", "n"), ("b", "n", "m")].into_iter().enumerate() {
            let vector = format!("vector_{letter}");
            let staged = format!("stage_{letter} == 'shared'");
            let fast = if self.along_k[at] { "depth".into() } else { format!("lanes_{side}*tile_{side}") };
            on(
                &vector,
                &format!(
                    "{staged} => {vector} <= {} && {fast} % {vector} == 0",
                    self.vectors[at].last().copied().unwrap_or(1)
                ),
            );
            if self.near_limit {
                // Half of what one step of k may cost, less the contraction's own loop, is left for each copy.
                let tiles = format!("ceildiv({k}, depth)*{taps}");
                let steps = "1 + depth/unroll";
                let rounds = format!("ceildiv(tile_{side}*depth, lanes_{other}*{vector})");
                let rule = format!(
                    "{staged} => {rounds} <= {ROUNDS_WRITTEN_OUT} && ({steps})*{tiles} + {taps} <= {iterations} \
                     || ({steps} + 2*{rounds})*{tiles} + {taps} <= {iterations}"
                );
                on(&format!("iterations_{letter}"), &rule);
            }
        }
    }
}

/// A parameter is `-` exactly where it does not apply.
fn applies(space: &mut SpaceBuilder, name: &str, cond: &str) {
    space.require(format!("{name}_applies"), &format!("({cond}) => {name} != '-'"));
    space.require(format!("{name}_none"), &format!("!({cond}) => {name} == '-'"));
}

fn or_none(values: &[i64]) -> Vec<Value> {
    std::iter::once(Value::none()).chain(values.iter().map(|&value| value.into())).collect()
}

/// Whether a factor is staged along k: k is contiguous in memory and its own dimension is not.
fn k_fastest(view: &ContractionView, map: &OperandMap, group: &Group) -> bool {
    view.linear(map, &view.k) == Some(1) && view.linear(map, group) != Some(1)
}

/// Widths of loads for which every run along the contiguous dimension is aligned and lies inside the operand as a whole.
fn vectors(view: &ContractionView, map: &OperandMap, group: &Group) -> Vec<i64> {
    let fast = if k_fastest(view, map, group) { &view.k } else { group };
    let linear = view.linear(map, fast) == Some(1) && fast.extent() > 1;
    let align = view.workload.operands[map.operand].align;
    let aligned = |width: i64| {
        let strides = map.strides.iter().enumerate().filter(|(axis, _)| !fast.axes.contains(axis));
        map.offset % width == 0
            && strides.into_iter().all(|(_, stride)| stride % width == 0)
            && fast.extent().is_multiple_of(width.unsigned_abs())
            && align.is_multiple_of(4 * width.unsigned_abs())
    };
    [1, 2, 4].into_iter().filter(|&width| width == 1 || linear && aligned(width)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Conv2dSpec, MatmulSpec};

    fn target() -> Target {
        crate::samples::workgroup_target()
    }

    fn view(m: u64, n: u64, k: u64) -> ContractionView {
        ContractionView::new(&MatmulSpec::new(m, n, k).workload().unwrap()).unwrap()
    }

    fn convolution() -> ContractionView {
        let pads = Conv2dSpec {
            pad_top: 1,
            pad_left: 1,
            pad_bottom: 1,
            pad_right: 1,
            ..Conv2dSpec::new(1, 128, 28, 28, 128, 3, 3)
        };
        ContractionView::new(&pads.workload().unwrap()).unwrap()
    }

    #[test]
    fn spaces_are_large_and_small_enough() {
        for (name, view, least) in [
            ("4096", view(4096, 4096, 4096), 100_000_000),
            ("odd", view(1000, 999, 1001), 1_000_000),
            ("conv", convolution(), 1_000_000),
        ] {
            let plan = plan(&view, &target()).unwrap();
            println!("{name}: {} schedules in {} nodes", plan.space.count(), plan.space.nodes());
            assert!(plan.space.count() >= least, "{name}: {}", plan.space.count());
            assert!(plan.space.nodes() < 100_000, "{name}: {}", plan.space.nodes());
            assert!(plan.space.config(&plan.default).is_ok(), "{name}");
        }
    }

    #[test]
    fn the_plainest_schedule_is_a_member_and_16_by_16() {
        let view = view(256, 256, 256);
        let untiled = untiled(&view, &target()).unwrap();
        assert!(plan(&view, &target()).unwrap().space.config(&untiled).is_ok());
        for (name, value) in [("lanes_m", 16), ("lanes_n", 16), ("tile_m", 1), ("tile_n", 1), ("unroll", 1)] {
            assert_eq!(untiled.int(name), Some(value), "{name}");
        }
        assert_eq!((untiled.name("stage_a"), untiled.name("stage_b")), (Some("direct"), Some("direct")));
    }

    #[test]
    fn each_limit_rejects_what_exceeds_it() {
        let view = view(4096, 4096, 4096);
        let plan = plan(&view, &target()).unwrap();
        let broken = |changes: &[(&str, Value)]| {
            let mut schedule = plan.default.clone();
            changes.iter().for_each(|(name, value)| schedule.set(*name, value.clone()));
            plan.space.config(&schedule).map(|_| ()).unwrap_err().to_string()
        };
        for (changes, rule) in [
            (&[("lanes_m", 256.into())][..], "invocations"),
            (&[("tile_m", 16.into()), ("tile_n", 16.into()), ("unroll", 1.into())], "registers"),
            (&[("unroll", 16.into())], "body"),
            (&[("run_n", 16.into())], "run_n"),
            (&[("depth", 128.into())], "shared_ab_km"),
            (&[("depth", Value::none())], "depth_applies"),
            (&[("stage_a", "direct".into())], "none"),
            (&[("pad_b", 1.into())], "aligned_b"),
        ] {
            let why = broken(changes);
            assert!(why.contains(rule), "{rule}: {why}");
        }
    }

    #[test]
    fn vectors_need_aligned_rows() {
        let widths = |n: u64| {
            let view = view(8, n, 8);
            vectors(&view, &view.b, &view.n)
        };
        assert_eq!((widths(12), widths(6), widths(7)), (vec![1, 2, 4], vec![1, 2], vec![1]));
    }

    #[test]
    fn what_no_schedule_can_do_is_a_limit() {
        let long = plan(&view(1, 1, 8_000_000), &target()).unwrap_err();
        assert!(matches!(long, Unsupported::Limit { needed: 125_000, .. }), "{long}");
        let large = plan(&view(8192, 8192, 1), &target()).unwrap_err();
        assert!(large.to_string().contains("operand c in bytes needs 268435456"), "{large}");
    }
}
