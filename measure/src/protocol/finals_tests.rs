//! Nights of synthetic noise.

use std::convert::Infallible;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

/// A machine with two states of some seconds each (1 and 1.6 times), slow drift, short-term noise, outliers, and a
/// small favour that each worker does each kernel for as long as it lives.
struct Night {
    rng: ChaCha8Rng,
    /// True time of each entry.
    times: Vec<f64>,
    favour: Vec<f64>,
    favour_sd: f64,
    contended: bool,
    drift: f64,
    hostile_fails: Vec<usize>,
    takes_worker_down: Option<usize>,
    hostile_calls: usize,
    /// Entries that stream, and how many times as long each entry takes with a reader.
    streams: Vec<(usize, f64)>,
    /// The reader is slowed down from this worker on.
    slow_from: usize,
    workers: usize,
}

impl Night {
    fn new(seed: u64, times: Vec<f64>) -> Night {
        let favour = vec![0.0; times.len()];
        Night {
            rng: ChaCha8Rng::seed_from_u64(seed),
            times,
            favour,
            favour_sd: 0.005,
            contended: false,
            drift: 0.0,
            hostile_fails: Vec::new(),
            takes_worker_down: None,
            hostile_calls: 0,
            streams: Vec::new(),
            slow_from: 0,
            workers: 0,
        }
    }

    fn bell(&mut self) -> f64 {
        (0..12).map(|_| self.rng.random::<f64>()).sum::<f64>() - 6.0
    }

    fn sample(&mut self, entry: usize) -> f64 {
        if self.rng.random::<f64>() < 0.01 {
            self.contended = !self.contended;
        }
        self.drift += 0.0005 * self.bell() + 0.0001;
        let outlier = if self.rng.random::<f64>() < 0.05 { 1.0 + self.rng.random::<f64>() } else { 1.0 };
        let state = if self.contended { 1.6 } else { 1.0 };
        self.times[entry] * state * outlier * (self.drift + self.favour[entry] + 0.015 * self.bell()).exp()
    }
}

impl Stage for Night {
    type Error = Infallible;

    fn fresh(&mut self) {
        self.workers += 1;
        for entry in 0..self.times.len() {
            self.favour[entry] = self.favour_sd * self.bell();
        }
    }

    fn blocks(&mut self, entries: &[Entry<'_>], blocks: u32, seed: u64, _: f64) -> Result<BlocksResult, Infallible> {
        if let Some(guilty) = self.takes_worker_down
            && entries.iter().any(|entry| entry.position == guilty)
        {
            return Ok(Err((Some(guilty), Failure::new(Outcome::Timeout, "hung"))));
        }
        let orders = crate::protocol::block_orders(entries.len(), blocks, seed);
        let mut timed: Vec<EntryBlocks> = entries
            .iter()
            .map(|entry| EntryBlocks {
                entry: entry.position,
                kernel: Ok(KernelInfo {
                    program_hash: format!("{:?}", entry.schedule),
                    streams: self.streams.iter().any(|(streaming, _)| *streaming == entry.position),
                    ..Default::default()
                }),
                samples_ns: vec![0.0; orders.len()],
                read_ns: vec![0.0; orders.len()],
            })
            .collect();
        for (block, order) in orders.iter().enumerate() {
            for slot in order {
                let entry = timed[*slot].entry;
                timed[*slot].samples_ns[block] = self.sample(entry);
                let slower = self.streams.iter().find(|(streaming, _)| *streaming == entry).map_or(1.0, |(_, f)| *f);
                let slower = if self.workers < self.slow_from { 1.0 } else { slower };
                timed[*slot].read_ns[block] = self.sample(entry) * slower;
            }
        }
        Ok(Ok(timed))
    }

    fn hostile(&mut self, schedule: &Schedule) -> Result<Result<(), Failure>, Infallible> {
        self.hostile_calls += 1;
        let position = usize::try_from(schedule.int("i").unwrap()).unwrap();
        let fails = self.hostile_fails.contains(&position);
        Ok(if fails { Err(Failure::new(Outcome::Wrong, "drops a NaN")) } else { Ok(()) })
    }
}

/// Eight candidates, the default at position 8, and perhaps an incumbent at 9.
fn entries(incumbent: bool) -> Vec<Finalist> {
    (0..8 + 1 + i64::from(incumbent))
        .map(|i| {
            let role = match i {
                0..8 => FinalistRole::Candidate,
                8 => FinalistRole::Default,
                _ => FinalistRole::Incumbent,
            };
            Finalist::new(role, [("i", i.into())].into_iter().collect())
        })
        .collect()
}

fn options(seed: u64) -> FinalsOptions {
    FinalsOptions { resamples: 400, seed, ..Default::default() }
}

#[test]
fn identical_candidates_win_in_at_most_five_percent_of_nights() {
    let mut winners = 0;
    for seed in 0..1000 {
        let mut night = Night::new(seed, vec![1e6; 10]);
        let finals = decide(entries(true), &mut night, &options(seed)).unwrap();
        winners += u32::from(matches!(finals.verdict, Verdict::Winner { .. }));
    }
    assert!(winners <= 50, "{winners} winners in 1000 nights of identical candidates");
}

#[test]
fn a_real_gain_is_found_and_not_flattered() {
    let (mut winners, mut sum) = (0, 0.0);
    for seed in 0..100 {
        let mut times = vec![1e6; 9];
        times[3] = 1e6 / 1.06;
        let finals = decide(entries(false), &mut Night::new(seed, times), &options(seed)).unwrap();
        if let Verdict::Winner { entry, over_default } = finals.verdict {
            winners += u32::from(entry == 3);
            sum += over_default.speedup;
        }
    }
    assert!(winners >= 90, "{winners} of 100 nights found the gain of 6 %");
    let mean = sum / f64::from(winners);
    assert!((mean - 1.06).abs() < 0.006, "mean speed-up {mean}");
}

#[test]
fn a_winner_must_pass_the_hostile_check_or_the_next_is_taken() {
    let mut times = vec![1e6; 9];
    (times[2], times[5]) = (0.5e6, 0.7e6);
    let mut night = Night { hostile_fails: vec![2], ..Night::new(1, times) };
    let finals = decide(entries(false), &mut night, &options(1)).unwrap();
    assert!(matches!(finals.verdict, Verdict::Winner { entry: 5, .. }), "{:?}", finals.verdict);
    assert_eq!(finals.entries[2].outcome, Outcome::Wrong);
    assert_eq!(finals.chosen().unwrap().role, FinalistRole::Candidate);
}

#[test]
fn an_entry_that_takes_its_worker_down_leaves_alone() {
    let mut times = vec![1e6; 9];
    (times[2], times[5]) = (0.5e6, 0.7e6);
    let mut night = Night { takes_worker_down: Some(2), ..Night::new(1, times) };
    let finals = decide(entries(false), &mut night, &options(1)).unwrap();
    assert!(matches!(finals.verdict, Verdict::Winner { entry: 5, .. }), "{:?}", finals.verdict);
    assert_eq!(finals.entries[2].outcome, Outcome::Timeout);
    assert_eq!(finals.workers, 4, "one lost, one to choose, two to test");
}

#[test]
fn without_a_default_nothing_wins() {
    let mut night = Night { hostile_fails: vec![8], ..Night::new(1, vec![1e6; 9]) };
    let finals = decide(entries(false), &mut night, &options(1)).unwrap();
    assert!(matches!(finals.verdict, Verdict::NoDefault { .. }));
    assert!(finals.chosen().is_none());
}

#[test]
fn equal_entries_go_to_the_one_with_less_memory() {
    let mut run =
        Run { entries: entries(false), stage: &mut Night::new(0, vec![1.0; 9]), options: &options(0), workers: 0 };
    for (position, entry) in run.entries.iter_mut().enumerate() {
        entry.kernel.memory_bytes = if position == 4 { 10 } else { 20 };
    }
    let timed = |ns: [f64; 9]| -> Vec<EntryBlocks> {
        let entry = |(entry, ns)| EntryBlocks {
            entry,
            kernel: Ok(KernelInfo::default()),
            samples_ns: vec![ns; 4],
            read_ns: vec![],
        };
        ns.into_iter().enumerate().map(entry).collect()
    };
    let close = timed([100.0, 99.5, 101.0, 120.0, 100.2, 120.0, 120.0, 120.0, 150.0]);
    assert_eq!(run.choose(&close, 8, &[]), Some(4));
    let apart = timed([100.0, 90.0, 101.0, 120.0, 100.2, 120.0, 120.0, 120.0, 150.0]);
    assert_eq!(run.choose(&apart, 8, &[]), Some(1));
}

/// Entry 5 is the fastest while nobody reads what it wrote; entry 2 is faster than the default either way.
#[test]
fn what_wins_only_without_a_reader_does_not_win() {
    let mut times = vec![1e6; 9];
    (times[5], times[2]) = (0.5e6, 0.8e6);
    let winner = |streams: Vec<(usize, f64)>, seed: u64| {
        let mut night = Night { streams, ..Night::new(seed, times.clone()) };
        match decide(entries(false), &mut night, &options(seed)).unwrap().verdict {
            Verdict::Winner { entry, .. } => entry,
            other => panic!("{other:?}"),
        }
    };
    for seed in 0..20 {
        assert_eq!(winner(vec![(5, 2.5)], seed), 2, "it loses with a reader");
        assert_eq!(winner(vec![(5, 1.9)], seed), 2, "it gains less with a reader than another one");
        assert_eq!(winner(vec![(5, 1.1)], seed), 5, "it wins with a reader, too");
        assert_eq!(winner(vec![], seed), 5);
    }
    // The workers that test may see what the one that chose did not: then the next one is taken.
    let mut night = Night { streams: vec![(5, 2.5)], slow_from: 2, ..Night::new(1, times.clone()) };
    let verdict = decide(entries(false), &mut night, &options(1)).unwrap().verdict;
    assert!(matches!(verdict, Verdict::Winner { entry: 2, .. }), "{verdict:?}");
}

#[test]
fn the_incumbent_is_compared_with_the_winner() {
    let mut times = vec![1e6; 10];
    (times[2], times[9]) = (0.5e6, 0.8e6);
    let finals = decide(entries(true), &mut Night::new(3, times), &options(3)).unwrap();
    let over = finals.over_incumbent.unwrap();
    assert!((over.speedup - 1.6).abs() < 0.05 && over.low > 1.0, "{over:?}");
}

#[test]
fn a_default_without_rivals_is_timed_and_checked_in_the_worker_that_there_is() {
    let lone = || vec![Finalist::new(FinalistRole::Default, [("i", 0.into())].into_iter().collect())];
    let mut night = Night::new(1, vec![1e6]);
    let finals = decide(lone(), &mut night, &options(1)).unwrap();
    assert_eq!(finals.verdict, Verdict::NoGain { entry: 0, best: None });
    assert_eq!((finals.workers, night.hostile_calls), (0, 1));
    assert_eq!(u32::try_from(finals.entries[0].samples_ns.len()).unwrap(), LONE_BLOCKS);
    // The hostile check still counts, and a worker that dies is replaced.
    let mut night = Night { hostile_fails: vec![0], ..Night::new(1, vec![1e6]) };
    let finals = decide(lone(), &mut night, &options(1)).unwrap();
    assert!(matches!(finals.verdict, Verdict::NoDefault { .. }));
    let mut night = Night { takes_worker_down: Some(0), ..Night::new(1, vec![1e6]) };
    let finals = decide(lone(), &mut night, &options(1)).unwrap();
    assert_eq!(finals.entries[0].outcome, Outcome::Timeout);
}
