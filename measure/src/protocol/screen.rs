//! Screening: a few short samples per candidate, enough to steer a search and never enough to crown a winner.
//!
//! A batch holds enough launches to dwarf the clock. Warm-up ends when two batches agree. Samples are spread over
//! blocks with a run of the control kernel beside each, so that drift between candidates can be divided out. A
//! candidate is dropped early only after three samples in two blocks that are all clearly slower than the cutoff, and
//! then counts as *censored*: it takes at least that long. Disturbed samples are repeated, not averaged.

use super::ScreenOptions;
use crate::device::Batch;

/// Two batches agree when they differ by less than this ratio.
const AGREE: f64 = 0.05;
/// A first launch this much beyond the limit is not explained by cold caches.
const FAR_SLOWER: f64 = 4.0;
/// Fewest samples before a candidate is dropped.
const LEAST_SAMPLES: u32 = 3;
/// A batch longer than this, in nanoseconds, is taken as it is.
const LONG_BATCH_NS: f64 = 5e7;

/// Where samples come from: a device, or synthetic noise in tests.
pub trait Source {
    /// What makes sampling impossible.
    type Error;

    /// Times a batch of launches.
    ///
    /// # Errors
    ///
    /// When the device failed.
    fn batch(&mut self, launches: u32) -> Result<Batch, Self::Error>;

    /// Times the control kernel; `None` when there is none.
    fn control(&mut self) -> Option<f64>;
}

/// What screening found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Screened {
    /// Nanoseconds per launch.
    pub samples_ns: Vec<f64>,
    /// Nanoseconds of the control kernel beside each sample; empty without one.
    pub control_ns: Vec<f64>,
    /// Set when dropped early: a lower bound in nanoseconds per launch.
    pub censored_at_least_ns: Option<f64>,
    /// Samples that stayed disturbed after all repeats.
    pub disturbed: u32,
}

/// Launches for a batch of at least `min_batch_ns`, when one launch takes about `launch_ns`.
pub fn launches_for(min_batch_ns: f64, launch_ns: f64) -> u32 {
    let wanted = (min_batch_ns / launch_ns.max(1.0)).ceil().clamp(1.0, 1e6);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 1..=1e6")]
    let launches = wanted as u32;
    launches
}

/// Screens one candidate whose first launch took `first_ns`.
///
/// # Errors
///
/// Whatever the source fails with.
pub fn screen<S: Source>(
    source: &mut S,
    first_ns: f64,
    min_batch_ns: f64,
    options: &ScreenOptions,
) -> Result<Screened, S::Error> {
    let limit_ns = options.cutoff_ns.map(|cutoff| cutoff * options.cutoff_factor);
    let clearly_slow = |ns: f64| limit_ns.is_some_and(|limit| ns > limit);
    let mut spent_ns = 0.0;
    let (launches, mut launch_ns) = warm_up(source, first_ns, min_batch_ns, options, &clearly_slow, &mut spent_ns)?;

    let wanted = options.samples.max(LEAST_SAMPLES);
    let blocks = options.blocks.clamp(2, wanted);
    let mut screened = Screened::default();
    for block in 0..blocks {
        let share = wanted / blocks + u32::from(block < wanted % blocks);
        for taken_in_block in 0..share {
            let taken = u32::try_from(screened.samples_ns.len()).unwrap_or(u32::MAX);
            let slow = taken > 0 && screened.samples_ns.iter().all(|ns| clearly_slow(*ns));
            let hurried = spent_ns + f64::from(launches) * launch_ns > options.budget_ns;
            if slow || hurried {
                // Two samples in the first block, one in the second: the least before a candidate may be dropped.
                if block == 0 && taken_in_block >= LEAST_SAMPLES - 1 {
                    break;
                }
                if block > 0 && taken >= LEAST_SAMPLES {
                    if slow {
                        screened.censored_at_least_ns = screened.samples_ns.iter().copied().min_by(f64::total_cmp);
                    }
                    return Ok(screened);
                }
            }
            let before = source.control();
            let batch = undisturbed(source, launches, options.repeats, &mut spent_ns)?;
            let after = source.control();
            launch_ns = batch.ns / f64::from(launches);
            screened.samples_ns.push(launch_ns);
            screened.disturbed += u32::from(batch.disturbed);
            screened.control_ns.extend(before.zip(after).map(|(before, after)| f64::midpoint(before, after)));
        }
    }
    if screened.samples_ns.iter().all(|ns| clearly_slow(*ns)) {
        screened.censored_at_least_ns = screened.samples_ns.iter().copied().min_by(f64::total_cmp);
    }
    Ok(screened)
}

/// Runs batches until two agree, or the candidate is clearly too slow to matter. Gives launches per batch and the time
/// of one launch. The checked runs came before, so a candidate that was far too slow there needs no further warmth.
fn warm_up<S: Source>(
    source: &mut S,
    first_ns: f64,
    min_batch_ns: f64,
    options: &ScreenOptions,
    clearly_slow: &impl Fn(f64) -> bool,
    spent_ns: &mut f64,
) -> Result<(u32, f64), S::Error> {
    let mut launch_ns = first_ns.max(1.0);
    let mut launches = launches_for(min_batch_ns, launch_ns);
    if clearly_slow(launch_ns / FAR_SLOWER) {
        return Ok((launches, launch_ns));
    }
    for _ in 0..options.warmup.max(1) {
        let batch = source.batch(launches)?;
        *spent_ns += batch.ns;
        let previous = launch_ns;
        launch_ns = (batch.ns / f64::from(launches)).max(1.0);
        let agreed = (launch_ns / previous - 1.0).abs() < AGREE;
        // The first launch was slow (cold code, page faults), so the first batch is often too short.
        launches = launches_for(min_batch_ns, launch_ns);
        if agreed || clearly_slow(launch_ns) || *spent_ns > options.budget_ns / 2.0 {
            break;
        }
    }
    Ok((launches, launch_ns))
}

/// A batch in which nothing else ran, if one of `1 + repeats` is; otherwise the fastest of them. Adds what it took to
/// `spent_ns`.
///
/// # Errors
///
/// Whatever the source fails with.
pub fn undisturbed<S: Source>(
    source: &mut S,
    launches: u32,
    repeats: u32,
    spent_ns: &mut f64,
) -> Result<Batch, S::Error> {
    let mut best: Option<Batch> = None;
    for _ in 0..=repeats {
        let batch = source.batch(launches)?;
        *spent_ns += batch.ns;
        // A batch of such a length is disturbed again on a busy machine.
        if !batch.disturbed || batch.ns > LONG_BATCH_NS {
            return Ok(batch);
        }
        best = Some(best.filter(|best| best.ns <= batch.ns).unwrap_or(batch));
    }
    Ok(best.expect("invariant: at least one batch was timed"))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// Launch times by rule; counts what was asked.
    struct Synthetic {
        launch_ns: f64,
        control_ns: f64,
        /// Every how many batches something else runs; it doubles the time.
        disturb_every: u32,
        batches: u32,
        blocks_of_control: u32,
    }

    impl Source for Synthetic {
        type Error = Infallible;
        fn batch(&mut self, launches: u32) -> Result<Batch, Infallible> {
            self.batches += 1;
            let disturbed = self.disturb_every > 0 && self.batches.is_multiple_of(self.disturb_every);
            let ns = f64::from(launches) * self.launch_ns * if disturbed { 2.0 } else { 1.0 };
            Ok(Batch { ns, disturbed })
        }
        fn control(&mut self) -> Option<f64> {
            self.blocks_of_control += 1;
            Some(self.control_ns)
        }
    }

    fn synthetic(launch_ns: f64) -> Synthetic {
        Synthetic { launch_ns, control_ns: 100.0, disturb_every: 0, batches: 0, blocks_of_control: 0 }
    }

    fn run(source: &mut Synthetic, options: &ScreenOptions) -> Screened {
        let first_ns = source.launch_ns * 3.0;
        screen(source, first_ns, 200e3, options).unwrap()
    }

    #[test]
    fn a_usual_candidate_gets_all_samples_each_with_its_control() {
        let screened = run(&mut synthetic(1000.0), &ScreenOptions { cutoff_ns: Some(900.0), ..Default::default() });
        assert_eq!(screened.samples_ns, [1000.0; 10]);
        assert_eq!(screened.control_ns, [100.0; 10]);
        assert_eq!(screened.censored_at_least_ns, None);
    }

    #[test]
    fn a_clearly_slow_candidate_is_dropped_after_exactly_three_samples() {
        let screened = run(&mut synthetic(5000.0), &ScreenOptions { cutoff_ns: Some(1000.0), ..Default::default() });
        assert_eq!(screened.samples_ns.len(), 3);
        assert_eq!(screened.censored_at_least_ns, Some(5000.0));
        // 1.5 times the best is slower, but not clearly: it gets all its samples.
        let screened = run(&mut synthetic(1500.0), &ScreenOptions { cutoff_ns: Some(1000.0), ..Default::default() });
        assert_eq!((screened.samples_ns.len(), screened.censored_at_least_ns), (10, None));
    }

    #[test]
    fn a_hopeless_candidate_runs_only_for_its_three_samples() {
        let mut source = synthetic(5e6);
        let screened = run(&mut source, &ScreenOptions { cutoff_ns: Some(1e5), ..Default::default() });
        assert_eq!((source.batches, screened.censored_at_least_ns), (3, Some(5e6)));
        // A cold first launch alone condemns nobody.
        let mut source = synthetic(1e5);
        let options = ScreenOptions { cutoff_ns: Some(1e5), ..Default::default() };
        let screened = screen(&mut source, 5e6, 200e3, &options).unwrap();
        assert_eq!((screened.samples_ns.len(), screened.censored_at_least_ns), (10, None));
    }

    #[test]
    fn one_unlucky_block_drops_nobody() {
        struct Unlucky(Synthetic);
        impl Source for Unlucky {
            type Error = Infallible;
            fn batch(&mut self, launches: u32) -> Result<Batch, Infallible> {
                let mut batch = self.0.batch(launches)?;
                if self.0.batches <= 3 {
                    batch.ns *= 5.0;
                }
                Ok(batch)
            }
            fn control(&mut self) -> Option<f64> {
                None
            }
        }
        let mut source = Unlucky(synthetic(1000.0));
        let options = ScreenOptions { cutoff_ns: Some(1000.0), ..Default::default() };
        let screened = screen(&mut source, 1000.0, 200e3, &options).unwrap();
        assert_eq!(screened.censored_at_least_ns, None);
        assert!(screened.samples_ns.contains(&1000.0), "{screened:?}");
        assert!(screened.control_ns.is_empty());
    }

    #[test]
    fn disturbed_samples_are_repeated_and_counted_when_that_does_not_help() {
        let mut sometimes = Synthetic { disturb_every: 3, ..synthetic(1000.0) };
        let screened = run(&mut sometimes, &ScreenOptions::default());
        assert_eq!((screened.samples_ns, screened.disturbed), (vec![1000.0; 10], 0));
        let mut always = Synthetic { disturb_every: 1, ..synthetic(1000.0) };
        let screened = run(&mut always, &ScreenOptions::default());
        assert_eq!((screened.samples_ns.len(), screened.disturbed), (10, 10));
    }

    #[test]
    fn the_budget_bounds_a_slow_kernel_but_never_below_three_samples() {
        let mut source = synthetic(40e6);
        let screened = run(&mut source, &ScreenOptions::default());
        assert_eq!((screened.samples_ns.len(), screened.censored_at_least_ns), (3, None));
        assert!(source.batches <= 5, "{} batches", source.batches);
    }

    #[test]
    fn batches_dwarf_the_clock() {
        assert_eq!(launches_for(200e3, 1000.0), 200);
        assert_eq!(launches_for(200e3, 1e9), 1);
        assert_eq!(launches_for(200e3, 0.0), 200_000);
    }
}
