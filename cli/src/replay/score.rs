//! How good a search was, judged by all that is known of the space.
//!
//! One rule for everything that did not work: it counts as the worst time of the space. So a search that has measured
//! nothing but failures so far, and random draws that were all failures, stand equally badly, and a failure is never free.
//! Of what was cut off as clearly slower the bound stands for the time, for searches and draws alike; but it is never within
//! some per cent of the optimum, whatever the bound is.
//!
//! The score P is that of Willemsen et al., "A Methodology for Comparing Optimization Algorithms for Auto-Tuning", 2024:
//! the mean over evaluations `t` of
//!
//! ```text
//! (baseline(t) − search(t)) / (baseline(t) − optimum)
//! ```
//!
//! where `search(t)` is the mean over seeds of the best time so far and `baseline(t)` the exact expectation of the best
//! of `t` distinct uniform draws. 0 is as good as random, 1 is the optimum at once. Where the draws are certain to have
//! found the optimum the quotient means nothing, and the mean ends before.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Evaluations at which the best so far is reported.
pub const MARKS: [usize; 7] = [1, 5, 10, 25, 50, 100, 200];
/// Draws of the bootstrap.
const RESAMPLES: usize = 10_000;
/// Part of the optimum by which the baseline must exceed it for a quotient to mean something.
const LEAST_GAP: f64 = 1e-9;

/// What a space's searches are measured against.
#[derive(Clone, Debug, PartialEq)]
pub struct Yardstick {
    /// The fastest time of the space.
    pub optimum_s: f64,
    /// The slowest time of the space, which stands for everything that failed.
    pub worst_s: f64,
    /// The expected best after 1, 2, ... random draws.
    pub baseline_s: Vec<f64>,
}

impl Yardstick {
    /// The yardstick of a space with these times or bounds (`None`: failed), in any order, for as many as `draws`
    /// evaluations. `None` when nothing works.
    #[must_use]
    pub fn of(times_s: impl IntoIterator<Item = Option<f64>>, draws: usize) -> Option<Yardstick> {
        let (mut sorted, mut failed) = (Vec::new(), 0usize);
        for time in times_s {
            match time {
                Some(time) => sorted.push(time),
                None => failed += 1,
            }
        }
        sorted.sort_by(f64::total_cmp);
        let (&optimum_s, &worst_s) = (sorted.first()?, sorted.last()?);
        sorted.resize(sorted.len() + failed, worst_s);
        let draws = draws.min(sorted.len());
        let baseline_s = (1..=draws).map(|t| expected_best(&sorted, t)).collect();
        Some(Yardstick { optimum_s, worst_s, baseline_s })
    }
}

/// The expected smallest of `draws` distinct uniform draws from `sorted` (rising), exactly: the smallest is number `i`
/// with probability `C(n-i, draws-1) / C(n, draws)`, which falls from `draws / n` by the factor
/// `(n-i-draws+1) / (n-i)` from each `i` to the next.
///
/// # Panics
/// When `draws` is 0 or exceeds the number of values.
#[must_use]
pub fn expected_best(sorted: &[f64], draws: usize) -> f64 {
    let n = sorted.len();
    assert!((1..=n).contains(&draws), "{draws} distinct draws of {n}");
    let mut probability = draws as f64 / n as f64;
    let mut sum = 0.0;
    // From n - draws + 2 on, too few values are left for the other draws.
    for (at, value) in sorted[..=n - draws].iter().enumerate() {
        sum += probability * value;
        let left = (n - at - 1) as f64;
        if left > 0.0 {
            probability *= (left - draws as f64 + 1.0) / left;
        }
    }
    sum
}

/// One search, from its seed to its last evaluation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// After each evaluation the fastest time so far; `None` while nothing has been timed to the end.
    pub best_s: Vec<Option<f64>>,
    /// After each evaluation the least bound so far of what was cut off; `None` while nothing was.
    pub at_least_s: Vec<Option<f64>>,
    /// Processor time of the thread within the strategy, its construction included.
    pub cpu: Duration,
    /// What compiling and measuring would have taken.
    pub clock: Duration,
}

impl Run {
    /// The best that is known after the evaluation at position `at`, bounds included; none of them is below the optimum.
    fn so_far_s(&self, at: usize, optimum_s: f64) -> Option<f64> {
        let of = |all: &[Option<f64>]| all.get(at).copied().flatten();
        let bound = of(&self.at_least_s).map(|bound| bound.max(optimum_s));
        of(&self.best_s).into_iter().chain(bound).reduce(f64::min)
    }
}

/// The score of all seeds of a strategy in a space.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// For each of [`MARKS`] within the budget and for the budget: the mean over seeds of optimum / best so far, 0 before
    /// anything worked. A search of all of a small space stands still after it.
    pub frac: Vec<(usize, f64)>,
    /// Share of seeds that came within 5 % of the optimum.
    pub hit5: f64,
    /// Share of seeds that came within 1 % of the optimum.
    pub hit1: f64,
    /// Median over seeds of the evaluations until within 5 % of the optimum; `None` when half of the seeds or more never
    /// came there.
    pub need5: Option<f64>,
    /// The score against random draws; `None` where these cannot miss the optimum.
    pub p: Option<f64>,
    /// Lower end of a one-sided 95 % interval of the score: the fifth percentile of the means of resampled seeds.
    pub p_low: Option<f64>,
    /// Mean over seeds of the evaluations made: fewer than the budget where the space is smaller or the search settled.
    pub evaluations: f64,
    /// Processor time of one evaluation within the strategy, in milliseconds.
    pub cpu_ms_per_eval: f64,
    /// Mean over seeds of what compiling and measuring would have taken.
    pub clock_s: f64,
}

/// Scores searches of `budget` evaluations; `None` without one.
#[must_use]
pub fn score(runs: &[Run], yardstick: &Yardstick, budget: usize) -> Option<Score> {
    if runs.is_empty() {
        return None;
    }
    let seeds = runs.len() as f64;
    let mean = |of: &dyn Fn(&Run) -> f64| runs.iter().map(of).sum::<f64>() / seeds;
    let after = |run: &Run, t: usize| run.so_far_s(t.min(run.best_s.len()).wrapping_sub(1), yardstick.optimum_s);
    let frac = |run: &Run, t: usize| after(run, t).map_or(0.0, |best| yardstick.optimum_s / best);
    let within = |run: &Run, part: f64| {
        run.best_s.iter().take(budget).position(|best| best.is_some_and(|s| s <= yardstick.optimum_s * (1.0 + part)))
    };
    let hit = |part: f64| mean(&|run| if within(run, part).is_some() { 1.0 } else { 0.0 });
    let mut needed: Vec<f64> =
        runs.iter().map(|run| within(run, 0.05).map_or(f64::INFINITY, |at| (at + 1) as f64)).collect();
    needed.sort_by(f64::total_cmp);
    let middle = needed.len() / 2;
    let need5 = if needed.len() % 2 == 1 { needed[middle] } else { (needed[middle - 1] + needed[middle]) / 2.0 };
    // The score is linear in the mean over seeds, so it is the mean of the seeds' own scores.
    let each: Option<Vec<f64>> = runs.iter().map(|run| score_of(run, yardstick, budget)).collect();
    let evaluations: usize = runs.iter().map(|run| run.best_s.len()).sum();
    let cpu: Duration = runs.iter().map(|run| run.cpu).sum();
    Some(Score {
        frac: MARKS
            .into_iter()
            .filter(|&mark| mark < budget)
            .chain([budget])
            .map(|mark| (mark, mean(&|run| frac(run, mark))))
            .collect(),
        hit5: hit(0.05),
        hit1: hit(0.01),
        need5: need5.is_finite().then_some(need5),
        p: each.as_ref().map(|each| each.iter().sum::<f64>() / seeds),
        p_low: each.as_ref().map(|each| lower_bound(each)),
        evaluations: evaluations as f64 / seeds,
        cpu_ms_per_eval: if evaluations == 0 { 0.0 } else { cpu.as_secs_f64() * 1e3 / evaluations as f64 },
        clock_s: mean(&|run| run.clock.as_secs_f64()),
    })
}

/// The score of one search.
fn score_of(run: &Run, yardstick: &Yardstick, budget: usize) -> Option<f64> {
    let mut best_s = yardstick.worst_s;
    let (mut sum, mut counted) = (0.0, 0usize);
    for (at, baseline_s) in yardstick.baseline_s.iter().take(budget).enumerate() {
        best_s = run.so_far_s(at, yardstick.optimum_s).unwrap_or(best_s);
        let gap = baseline_s - yardstick.optimum_s;
        // The baseline falls, so no later gap is larger.
        if gap <= LEAST_GAP * yardstick.optimum_s {
            break;
        }
        sum += (baseline_s - best_s) / gap;
        counted += 1;
    }
    (counted > 0).then(|| sum / counted as f64)
}

/// The fifth percentile of the means of `values` resampled with replacement: the percentile bootstrap of Efron.
fn lower_bound(values: &[f64]) -> f64 {
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let mut draw = || values[rng.random_range(0..values.len())];
    let mut means: Vec<f64> =
        (0..RESAMPLES).map(|_| (0..values.len()).map(|_| draw()).sum::<f64>() / values.len() as f64).collect();
    means.sort_by(f64::total_cmp);
    means[RESAMPLES / 20]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    fn run(best_s: &[f64]) -> Run {
        let best_s = best_s.iter().map(|&best| (best > 0.0).then_some(best)).collect();
        Run { best_s, cpu: Duration::from_millis(3), clock: Duration::from_secs(2), ..Run::default() }
    }

    #[test]
    fn the_expected_best_is_that_of_all_draws_counted() {
        let sorted = [1.0, 2.0, 4.0, 8.0];
        assert!(close(expected_best(&sorted, 1), 15.0 / 4.0));
        // Pairs: 1 wins three, 2 wins two, 4 wins one.
        assert!(close(expected_best(&sorted, 2), (3.0 + 2.0 * 2.0 + 4.0) / 6.0));
        assert!(close(expected_best(&sorted, 3), (3.0 * 1.0 + 2.0) / 4.0));
        assert!(close(expected_best(&sorted, 4), 1.0));
        assert!(close(expected_best(&[3.0], 1), 3.0));
    }

    #[test]
    fn the_expected_best_agrees_with_draws() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let mut times: Vec<f64> = (0..300).map(|_| 1.0 + 10.0 * rng.random::<f64>().powi(3)).collect();
        times.sort_by(f64::total_cmp);
        for draws in [1, 5, 40] {
            let best = |rng: &mut ChaCha8Rng| {
                rand::seq::index::sample(rng, times.len(), draws)
                    .iter()
                    .map(|at| times[at])
                    .fold(f64::INFINITY, f64::min)
            };
            let mean = (0..20_000).map(|_| best(&mut rng)).sum::<f64>() / 20_000.0;
            let exact = expected_best(&times, draws);
            assert!((mean / exact - 1.0).abs() < 0.02, "{draws}: {mean} of draws, {exact} exactly");
        }
    }

    #[test]
    fn failures_count_as_the_worst_time() {
        let yardstick = Yardstick::of([Some(2.0), None, Some(1.0), None, Some(4.0)], 200).unwrap();
        assert_eq!((yardstick.optimum_s, yardstick.worst_s, yardstick.baseline_s.len()), (1.0, 4.0, 5));
        assert!(close(yardstick.baseline_s[0], (1.0 + 2.0 + 3.0 * 4.0) / 5.0));
        // Without the failures the draws would be better than they are.
        assert!(yardstick.baseline_s[0] > Yardstick::of([Some(2.0), Some(1.0), Some(4.0)], 1).unwrap().baseline_s[0]);
        assert_eq!(Yardstick::of([None, None], 5), None);
    }

    #[test]
    fn a_bound_stands_for_the_time_but_is_never_a_hit() {
        let yardstick = Yardstick { optimum_s: 1.0, worst_s: 8.0, baseline_s: vec![5.0, 3.0] };
        let bounded = |best_s: &[Option<f64>], at_least_s: &[Option<f64>]| {
            let run = Run { best_s: best_s.to_vec(), at_least_s: at_least_s.to_vec(), ..Run::default() };
            score(&[run], &yardstick, 2).unwrap()
        };
        let cut = bounded(&[None, None], &[Some(4.0), Some(2.0)]);
        assert_eq!(cut.frac, [(1, 0.25), (2, 0.5)]);
        assert!(close(cut.p.unwrap(), (1.0 / 4.0 + 1.0 / 2.0) / 2.0));
        // A bound at the optimum or below it, as between two noisy nights.
        let low = bounded(&[None, Some(1.2)], &[Some(0.5), Some(0.5)]);
        assert_eq!((low.frac, low.hit5, low.need5), (vec![(1, 1.0), (2, 1.0)], 0.0, None));
        assert!(close(low.p.unwrap(), 1.0));
        let timed = bounded(&[None, Some(1.04)], &[Some(3.0), Some(3.0)]);
        assert_eq!((timed.hit5, timed.need5), (1.0, Some(2.0)));
    }

    #[test]
    fn scores_are_those_computed_by_hand() {
        let yardstick = Yardstick { optimum_s: 1.0, worst_s: 8.0, baseline_s: vec![5.0, 3.0, 2.0] };
        // 0 stands for nothing yet.
        let runs = [run(&[0.0, 2.0, 1.0]), run(&[4.0, 4.0, 1.04])];
        let score = score(&runs, &yardstick, 3).unwrap();
        let at_the_budget = (1.0 + 1.0 / 1.04) / 2.0;
        assert_eq!(score.frac, [(1, (0.0 + 0.25) / 2.0), (3, at_the_budget)]);
        assert_eq!((score.hit5, score.hit1, score.need5), (1.0, 0.5, Some(3.0)));
        // Means over seeds of the best so far: 6, 3, 1.02.
        assert!(close(score.p.unwrap(), (-1.0 / 4.0 + 0.0 / 2.0 + 0.98 / 1.0) / 3.0));
        assert!(score.p_low < score.p);
        assert!(close(score.cpu_ms_per_eval, 1.0) && close(score.clock_s, 2.0));
        assert_eq!(super::score(&[], &yardstick, 3), None);
    }

    #[test]
    fn marks_beyond_a_small_space_show_its_end_and_beyond_the_budget_nothing() {
        let yardstick = Yardstick::of([Some(1.0), Some(2.0), Some(4.0)], 200).unwrap();
        let done = score(&[run(&[4.0, 2.0, 1.0])], &yardstick, 10).unwrap();
        assert_eq!(done.frac, [(1, 0.25), (5, 1.0), (10, 1.0)]);
        // What came after the budget does not count.
        let short = score(&[run(&[4.0, 2.0, 1.0])], &yardstick, 2).unwrap();
        assert_eq!((short.hit5, short.need5), (0.0, None));
        // A search that measured nothing.
        let none = score(&[run(&[])], &yardstick, 10).unwrap();
        assert_eq!((none.frac[0].1, none.hit5, none.cpu_ms_per_eval), (0.0, 0.0, 0.0));
        assert!(none.p.unwrap() < 0.0);
    }

    #[test]
    fn random_draws_score_about_nothing_the_optimum_at_once_one_and_failures_less_than_nothing() {
        let times: Vec<Option<f64>> = (0..60).map(|i| (i % 3 > 0).then(|| 1.0 + f64::from(i * i % 59))).collect();
        let yardstick = Yardstick::of(times.iter().copied(), 40).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let drawn: Vec<Run> = (0..4000)
            .map(|_| {
                let mut best: Option<f64> = None;
                let mut after = |at: usize| {
                    best = times[at].map_or(best, |time| Some(best.map_or(time, |best| best.min(time))));
                    best
                };
                let best_s = rand::seq::index::sample(&mut rng, 60, 40).iter().map(&mut after).collect();
                Run { best_s, ..Run::default() }
            })
            .collect();
        let random = score(&drawn, &yardstick, 40).unwrap();
        assert!(random.p.unwrap().abs() < 0.05, "{random:?}");
        assert!(random.p_low.unwrap() > random.p.unwrap() - 0.1);
        let at_once = Run { best_s: vec![Some(yardstick.optimum_s); 40], ..Run::default() };
        assert!(close(score(&[at_once], &yardstick, 40).unwrap().p.unwrap(), 1.0));
        let failing = Run { best_s: vec![None; 40], ..Run::default() };
        assert!(score(&[failing], &yardstick, 40).unwrap().p.unwrap() < -1.0);
    }

    #[test]
    fn a_score_ends_where_draws_cannot_miss() {
        // Two draws of these three find the optimum for certain.
        let yardstick = Yardstick::of([Some(1.0), Some(1.0), Some(3.0)], 3).unwrap();
        let score = |best: &[f64]| score(&[run(best)], &yardstick, 3).unwrap().p;
        assert!(close(score(&[3.0, 1.0, 1.0]).unwrap(), (5.0 / 3.0 - 3.0) / (2.0 / 3.0)));
        let flat = Yardstick::of([Some(1.0), Some(1.0)], 2).unwrap();
        assert_eq!(super::score(&[run(&[1.0])], &flat, 2).unwrap().p, None);
    }
}
