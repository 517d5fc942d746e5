//! What stored observations come to: one result for each schedule, or each program, that they are observations of.
//!
//! The rule, for all that read a database for what was measured:
//!
//! 1. One observation says what the search was told when it was made ([`told`]): the median of its samples; the bound,
//!    when timing was cut off; else how it failed. Verified but without a usable time is a failure.
//! 2. Of several the one that tells most of the candidate counts ([`Basis`]): screenings and the candidate's own
//!    failures before times of a final, which were taken under other circumstances, and these before lost workers,
//!    which may have been the machine's fault.
//! 3. Of equals the latest counts.

use std::collections::BTreeMap;

use measure::protocol::stats::median;
use search_space::Outcome;
use search_space::strategy::Told;
use tuning_db::{Observation, Phase};

/// What a result rests on, the least telling first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Basis {
    /// The worker hung or died, or its device was lost: perhaps not because of the candidate.
    LostWorker,
    /// A final, in which times differ from those of a search.
    Final,
    /// A screening, or a failure that is the candidate's own, whenever it showed.
    Screening,
}

fn basis(observation: &Observation) -> Basis {
    match (observation.outcome, observation.phase) {
        (Outcome::Timeout | Outcome::Crash | Outcome::LostDevice, _) => Basis::LostWorker,
        (Outcome::Ok, Phase::Final) => Basis::Final,
        _ => Basis::Screening,
    }
}

/// What is known of each thing that `key` names; observations come oldest first, as a database gives them.
pub(crate) fn all<'a, K: Ord>(
    observations: impl IntoIterator<Item = &'a Observation>,
    key: impl Fn(&'a Observation) -> Option<K>,
) -> BTreeMap<K, Told> {
    known(observations, key).into_iter().map(|(key, (_, told))| (key, told)).collect()
}

/// As [`all`], only what holds without measuring for another schedule of the same program, or on another device: what
/// rests on a screening. A final's time is no screening's, and after a lost worker they are another chance.
pub(crate) fn transferable<'a, K: Ord>(
    observations: impl IntoIterator<Item = &'a Observation>,
    key: impl Fn(&'a Observation) -> Option<K>,
) -> BTreeMap<K, Told> {
    let screened = |(key, (basis, told))| (basis == Basis::Screening).then_some((key, told));
    known(observations, key).into_iter().filter_map(screened).collect()
}

fn known<'a, K: Ord>(
    observations: impl IntoIterator<Item = &'a Observation>,
    key: impl Fn(&'a Observation) -> Option<K>,
) -> BTreeMap<K, (Basis, Told)> {
    let mut known: BTreeMap<K, (Basis, Told)> = BTreeMap::new();
    for observation in observations {
        let Some(key) = key(observation) else { continue };
        let new = (basis(observation), told(observation.outcome, observation.at_least_ns, &observation.samples_ns));
        let old = known.entry(key).or_insert(new);
        if new.0 >= old.0 {
            *old = new;
        }
    }
    known
}

/// What a search is told of a measurement, fresh or stored.
pub(crate) fn told(outcome: Outcome, at_least_ns: Option<f64>, samples_ns: &[f64]) -> Told {
    if outcome != Outcome::Ok {
        return Told::Failed(outcome);
    }
    match (at_least_ns, median(samples_ns)) {
        (Some(ns), _) if ns > 0.0 => Told::Censored { at_least_seconds: ns / 1e9 },
        (None, Some(ns)) if ns > 0.0 => Told::Time { seconds: ns / 1e9 },
        // Verified but without a usable time: nothing to steer by.
        _ => Told::Failed(Outcome::ResourceLimit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observation(outcome: Outcome, phase: Phase, at_least_ns: Option<f64>, samples_ns: &[f64]) -> Observation {
        Observation {
            workload: String::new(),
            target: String::new(),
            generator: crate::GENERATOR.into(),
            schedule: [("x", 1.into())].into_iter().collect(),
            outcome,
            phase,
            samples_ns: samples_ns.to_vec(),
            at_least_ns,
            environment: BTreeMap::new(),
            program_hash: Some("p".into()),
            code_hash: None,
            input: String::new(),
            run: String::new(),
            sequence: 0,
            measured_at: 1,
        }
    }

    #[test]
    fn a_measurement_is_its_median_its_bound_or_its_failure() {
        let seconds = |told| match told {
            Told::Time { seconds } => Ok(seconds),
            Told::Censored { at_least_seconds } => Err(Ok(at_least_seconds)),
            Told::Failed(outcome) => Err(Err(outcome)),
        };
        assert_eq!(seconds(told(Outcome::Ok, None, &[3e9, 9e9, 1e9])), Ok(3.0));
        // Samples of a timing that was cut off are no time.
        assert_eq!(seconds(told(Outcome::Ok, Some(2e9), &[1e9])), Err(Ok(2.0)));
        // A failure may have a bound, of how long it was waited for.
        assert_eq!(seconds(told(Outcome::Timeout, Some(2e9), &[])), Err(Err(Outcome::Timeout)));
        // Neither nothing nor zero is a time; a logarithm is taken of it.
        for (at_least_ns, samples) in
            [(None, &[][..]), (None, &[0.0][..]), (Some(0.0), &[][..]), (None, &[f64::NAN][..])]
        {
            assert_eq!(seconds(told(Outcome::Ok, at_least_ns, samples)), Err(Err(Outcome::ResourceLimit)));
        }
    }

    #[test]
    fn the_latest_of_the_most_telling_counts() {
        let (time, last) = (Told::Time { seconds: 1.0 }, Told::Time { seconds: 2.0 });
        let first = observation(Outcome::Ok, Phase::Screen, None, &[1e9]);
        let second = observation(Outcome::Ok, Phase::Screen, None, &[2e9]);
        let bound = observation(Outcome::Ok, Phase::Screen, Some(5e9), &[]);
        let compared = observation(Outcome::Ok, Phase::Final, None, &[3e9]);
        let wrong = observation(Outcome::Wrong, Phase::Final, None, &[]);
        let crash = observation(Outcome::Crash, Phase::Screen, None, &[]);
        let result = |observations: &[&Observation]| {
            let hash = |observation: &Observation| observation.program_hash.clone();
            let known = transferable(observations.iter().copied(), hash);
            (all(observations.iter().copied(), hash)["p"], known.get("p").copied())
        };
        let shared = |told| (told, Some(told));
        let kept = |told| (told, None);
        assert_eq!(result(&[&first, &second]), shared(last));
        assert_eq!(result(&[&second, &first]), shared(time));
        assert_eq!(result(&[&first, &bound]), shared(Told::Censored { at_least_seconds: 5.0 }));
        assert_eq!(result(&[&first, &compared, &crash]), shared(time));
        assert_eq!(result(&[&crash, &compared]), kept(Told::Time { seconds: 3.0 }));
        assert_eq!(result(&[&compared, &crash]), kept(Told::Time { seconds: 3.0 }));
        assert_eq!(result(&[&crash]), kept(Told::Failed(Outcome::Crash)));
        // A kernel that is wrong in the final is wrong.
        assert_eq!(result(&[&first, &wrong]), shared(Told::Failed(Outcome::Wrong)));
        for outcome in [Outcome::Timeout, Outcome::LostDevice] {
            assert_eq!(result(&[&observation(outcome, Phase::Screen, Some(9e9), &[])]), kept(Told::Failed(outcome)));
        }
        assert!(all([&first], |_| None::<u8>).is_empty());
    }
}
