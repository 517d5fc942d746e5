//! From a finished search on one thread to a short one on several: the fastest schedules, with the parameters varied that
//! more threads give more values.

use std::collections::BTreeSet;

use search_space::families::SchedulePlan;
use search_space::space::{ParameterSpace, SpaceBuilder, SpaceError};
use search_space::strategy::Told;
use search_space::{Schedule, Value};
use tuning_db::Observation;

use crate::GENERATOR;
use crate::session::known;

/// The `most` fastest schedules that `observations` (of one workload on one target) have a time of, the fastest first.
#[must_use]
pub fn fastest(observations: &[Observation], most: usize) -> Vec<Schedule> {
    let own = observations.iter().filter(|observation| observation.generator == GENERATOR);
    let timed = known::all(own, |observation| Some(&observation.schedule)).into_iter();
    let mut timed: Vec<(f64, &Schedule)> = timed
        .filter_map(|(schedule, told)| if let Told::Time { seconds } = told { Some((seconds, schedule)) } else { None })
        .collect();
    timed.sort_by(|a, b| a.0.total_cmp(&b.0));
    timed.into_iter().take(most).map(|(_, schedule)| schedule.clone()).collect()
}

/// Positions in `many` of the parameters that have other values there than in `one`: those of the threads, when the
/// spaces are of one workload on one thread and on several.
#[must_use]
pub fn opened(one: &ParameterSpace, many: &ParameterSpace) -> Vec<usize> {
    let same = |at: &usize| {
        let parameter = &many.params()[*at];
        one.position(&parameter.name).is_some_and(|old| one.params()[old].values == parameter.values)
    };
    (0..many.params().len()).filter(|at| !same(at)).collect()
}

/// Parts that the pieces which workers share are cut into, when there are more workers.
const FINER: [i64; 2] = [2, 4];

/// `schedule` and what it becomes with one of its grains finer.
fn finer(schedule: &Schedule, space: &ParameterSpace) -> Vec<Schedule> {
    let mut found = vec![schedule.clone()];
    for parameter in space.params().iter().filter(|parameter| parameter.grain) {
        let Some(own) = schedule.int(&parameter.name) else { continue };
        for parts in FINER {
            let finer = |value: &&Value| matches!(value, Value::Int(value) if *value <= own / parts);
            if let Some(value) = parameter.values.iter().filter(finer).max() {
                let mut variant = schedule.clone();
                variant.set(parameter.name.clone(), value.clone());
                found.push(variant);
            }
        }
    }
    found
}

/// `schedules`, each also with a finer grain, with every combination of values of the parameters at `positions` that
/// `space` has; those of the first schedule come first.
#[must_use]
pub fn varied(schedules: &[Schedule], positions: &[usize], space: &ParameterSpace) -> Vec<Schedule> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for schedule in schedules {
        let mut variants = finer(schedule, space);
        for parameter in positions.iter().map(|at| &space.params()[*at]) {
            let with = |variant: &Schedule| -> Vec<Schedule> {
                let each = parameter.values.iter().map(|value| {
                    let mut variant = variant.clone();
                    variant.set(parameter.name.clone(), value.clone());
                    variant
                });
                each.collect()
            };
            variants = variants.iter().flat_map(with).collect();
        }
        let valid = variants.into_iter().filter(|variant| space.config(variant).is_ok());
        found.extend(valid.filter(|variant| seen.insert(variant.clone())));
    }
    found
}

/// `plan` with a space of its default, its starts and `schedules` alone; those that are not in its space are left out.
///
/// # Errors
/// When there are more than a space can hold.
pub fn narrowed(plan: &SchedulePlan, schedules: &[Schedule]) -> Result<SchedulePlan, SpaceError> {
    let mut builder = SpaceBuilder::new();
    for parameter in plan.space.params() {
        builder.values(parameter.name.clone(), parameter.values.clone());
        if parameter.structural {
            builder.structural(parameter.name.clone());
        }
        if parameter.grain {
            builder.grain(parameter.name.clone());
        }
    }
    let all = schedules.iter().chain([&plan.default]);
    let given = all.filter_map(|schedule| plan.space.config(schedule).ok());
    let rows: BTreeSet<Vec<u16>> =
        given.chain(plan.space.starts().iter().cloned()).map(|config| config.to_vec()).collect();
    builder.table(rows.into_iter().collect());
    Ok(SchedulePlan { space: builder.build()?, default: plan.default.clone() })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use search_space::families::plan;
    use search_space::{Outcome, Workload, samples};
    use tuning_db::Phase;

    use super::*;

    fn plans() -> (SchedulePlan, SchedulePlan) {
        let workload: Workload = "matmul m=64 n=96 k=128 dtype=f32".parse().unwrap();
        let on = |threads: u64| {
            let mut target = samples::cpu_target("sapphirerapids", &["avx512f", "fma"], 64, threads);
            target.limits.l2_bytes = 2 << 20;
            plan(&workload, &target).unwrap()
        };
        (on(1), on(2))
    }

    fn observation(x: i64, outcome: Outcome, ns: f64) -> Observation {
        Observation {
            workload: String::new(),
            target: String::new(),
            generator: GENERATOR.into(),
            schedule: [("x", x.into())].into_iter().collect(),
            outcome,
            phase: Phase::Screen,
            samples_ns: vec![ns],
            at_least_ns: None,
            environment: BTreeMap::new(),
            program_hash: None,
            code_hash: None,
            input: String::new(),
            run: String::new(),
            sequence: 0,
            measured_at: 1,
        }
    }

    #[test]
    fn the_fastest_come_first_and_what_failed_or_is_anothers_does_not_count() {
        let mut cut_off = observation(5, Outcome::Ok, 1.0);
        cut_off.at_least_ns = Some(1.0);
        let mut others = observation(6, Outcome::Ok, 1.0);
        others.generator = "another/1".into();
        let rows = [
            observation(1, Outcome::Ok, 30.0),
            observation(2, Outcome::Ok, 10.0),
            observation(3, Outcome::Wrong, 5.0),
            observation(4, Outcome::Ok, 20.0),
            cut_off,
            others,
        ];
        let order = |most| fastest(&rows, most).iter().map(|s| s.int("x").unwrap()).collect::<Vec<_>>();
        assert_eq!(order(9), [2, 4, 1]);
        assert_eq!(order(2), [2, 4]);
    }

    #[test]
    fn only_the_parameters_of_threads_vary() {
        let (one, many) = plans();
        let positions = opened(&one.space, &many.space);
        let names: Vec<&str> = positions.iter().map(|at| many.space.params()[*at].name.as_str()).collect();
        assert_eq!(names, ["par"]);
        assert!(opened(&one.space, &one.space).is_empty());
        let found = varied(std::slice::from_ref(&one.default), &positions, &many.space);
        assert!(found.len() > 1 && found.iter().all(|schedule| many.space.config(schedule).is_ok()));
        let but_par = |schedule: &Schedule| {
            let values = schedule.iter().filter(|(name, _)| !["par", "mt", "nt"].contains(name));
            values.map(|(name, value)| (name.to_owned(), value.clone())).collect::<BTreeMap<_, _>>()
        };
        assert!(found.iter().all(|schedule| but_par(schedule) == but_par(&one.default)));
        // Grains become finer one at a time, and only finer.
        let grain = |schedule: &Schedule| ["mt", "nt"].map(|name| schedule.int(name).unwrap());
        let own = grain(&one.default);
        let grains: BTreeSet<[i64; 2]> = found.iter().map(grain).collect();
        assert!(grains.len() > 1, "{grains:?}");
        assert!(grains.iter().all(|[mt, nt]| (*mt == own[0] && *nt <= own[1]) || (*mt <= own[0] && *nt == own[1])));
        // A schedule of another space is left out; one given twice counts once.
        let strange: Schedule = [("x", 1.into())].into_iter().collect();
        assert_eq!(varied(&[one.default.clone(), strange, one.default.clone()], &positions, &many.space), found);
    }

    #[test]
    fn a_narrow_space_holds_what_was_given_and_the_default() {
        let (one, many) = plans();
        let positions = opened(&one.space, &many.space);
        let found = varied(std::slice::from_ref(&one.default), &positions, &many.space);
        let narrow = narrowed(&many, &found).unwrap();
        let starts: Vec<Schedule> = many.space.starts().iter().map(|config| many.space.schedule(config)).collect();
        let with_default: BTreeSet<&Schedule> = found.iter().chain([&many.default]).chain(&starts).collect();
        assert_eq!(narrow.space.count(), with_default.len() as u128);
        assert!(with_default.iter().all(|schedule| narrow.space.config(schedule).is_ok()));
        assert_eq!(narrow.default, many.default);
        let begun: BTreeSet<&Schedule> = starts.iter().chain([&many.default]).collect();
        assert_eq!(narrowed(&many, &[]).unwrap().space.count(), begun.len() as u128);
    }
}
