//! Explanations of made-up measurements, in which it is known what matters.

use rand::RngExt;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use search_space::workload::MatmulSpec;
use search_space::{families, samples};
use tuning_db::{Observation, Phase, Writer, WriterOptions};

use super::*;

struct Made {
    workload: Workload,
    target: Target,
    plan: SchedulePlan,
}

impl Made {
    fn new() -> Made {
        let workload = MatmulSpec::new(64, 64, 64).workload().unwrap();
        let target = samples::cpu_target("x86-64", &[], 32, 1);
        let plan = families::plan(&workload, &target).unwrap();
        Made { workload, target, plan }
    }

    /// Small register tiles are slow, and so is a narrow vector; nothing else matters.
    fn ns(schedule: &Schedule) -> f64 {
        let log = |name: &str| (schedule.int(name).unwrap() as f64).log2();
        1e5 * (1.0 + (log("mr") - 2.0).powi(2) + 0.2 * (3.0 - log("vw")))
    }

    fn observation(&self, schedule: Schedule, outcome: Outcome, samples_ns: Vec<f64>) -> Observation {
        Observation {
            workload: self.workload.key(),
            target: self.target.key.to_string(),
            generator: crate::GENERATOR.into(),
            schedule,
            outcome,
            phase: Phase::Screen,
            samples_ns,
            at_least_ns: None,
            environment: BTreeMap::new(),
            program_hash: None,
            code_hash: None,
            input: "normal(0,1)".into(),
            run: "run".into(),
            sequence: 0,
            measured_at: 1,
        }
    }

    /// Random schedules with their times, every tenth failed.
    fn observations(&self, n: usize, ns: impl Fn(&Schedule) -> f64) -> Vec<Observation> {
        let rng = &mut ChaCha8Rng::seed_from_u64(5);
        let schedules = (0..n).map(|_| self.plan.space.schedule(&self.plan.space.sample(rng, 1.0)));
        let observation = |(at, schedule): (usize, Schedule)| match at % 10 {
            9 => self.observation(schedule, Outcome::Wrong, Vec::new()),
            _ => {
                let ns = ns(&schedule);
                self.observation(schedule, Outcome::Ok, vec![ns, ns * 1.01, ns * 0.99])
            }
        };
        schedules.enumerate().map(observation).collect()
    }

    fn explain(&self, observations: Vec<Observation>) -> Result<Explanation, ExplainError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("night.tune");
        let writer = Writer::open(&path, WriterOptions::default()).unwrap();
        for (sequence, observation) in (0..).zip(observations) {
            drop(writer.record(Observation { sequence, ..observation }).unwrap());
        }
        writer.close().unwrap();
        let question = Question { workload: &self.workload, target: &self.target, plan: &self.plan, device: "cpu" };
        explain(&Database::open(&path).unwrap(), &question)
    }
}

#[test]
fn what_matters_comes_first_and_changes_have_their_price() {
    let made = Made::new();
    let found = made.explain(made.observations(150, Made::ns)).unwrap();
    assert_eq!((found.schedules, found.timed, found.failed, found.learned), (150, 135, 15, 150));
    assert!(found.process.spearman > 0.85, "{:?}", found.process);
    assert_eq!((found.winner_is, found.parameters[0].name.as_str()), ("fastest", "mr"));
    assert!(found.parameters[0].spread > 2.0, "{:?}", found.parameters[0]);
    let idle = found.parameters.iter().find(|effect| effect.name == "ku").unwrap();
    assert!(idle.importance < 0.1 && idle.spread < 1.5, "{idle:?}");
    // A change that drags a decisive parameter along says nothing of its own.
    for effect in &found.parameters {
        let alone = |change: &&Expected| change.changed.len() == 1 && change.changed[0].0 == effect.name;
        let ratios = || found.changes.iter().filter(alone).map(|change| change.ratio);
        assert_eq!(effect.best.as_ref().map(|best| best.1), ratios().reduce(f64::min), "{effect:?}");
        assert_eq!(effect.worst.as_ref().map(|worst| worst.1), ratios().reduce(f64::max), "{effect:?}");
    }
    assert!(found.changes.iter().any(|change| change.changed.len() > 1), "some constraint binds here");
    // One value of the decisive parameter: the whole tile of one row.
    let change = found
        .changes
        .iter()
        .find(|change| change.changed[0].0 == "mr" && change.changed[0].2 == Value::Int(1))
        .expect("a tile of one row is legal");
    let wanted = (1.0 + 4.0) / (1.0 + 0.0);
    assert!(change.ratio > 0.5 * wanted && change.ratio < 2.0 * wanted, "{change:?}");
    assert!(found.changes.windows(2).all(|pair| pair[0].ratio <= pair[1].ratio));
    for change in &found.changes {
        let [lo, hi] = change.interval;
        assert!(lo <= change.ratio && change.ratio <= hi && !change.changed.is_empty(), "{change:?}");
        assert!(change.changed.iter().all(|(_, from, to)| from != to), "{change:?}");
    }
    let (winner, default) = found.programs.as_ref().unwrap();
    assert!(winner.operations >= 2.0 * 64f64.powi(3) && default.operations >= 2.0 * 64f64.powi(3));
    assert!(found.warnings.is_empty(), "{:?}", found.warnings);

    let text = lines(&found, 3);
    let at = |start: &str| text.iter().position(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{text:?}"));
    assert!(text[at("parameter") + 1].starts_with("mr "), "{text:#?}");
    assert!(text[at("change") + 4].starts_with("and "), "three changes and how many there are more: {text:#?}");
    assert!(text[at("bytes, global")].contains("op/B"), "{text:#?}");
    assert_eq!(lines(&made.explain(made.observations(150, Made::ns)).unwrap(), 3), text, "the same each time");
}

#[test]
fn measured_changes_stand_beside_predicted_ones() {
    let made = Made::new();
    let mut observations = made.observations(60, Made::ns);
    let first = made.explain(observations.clone()).unwrap();
    let space = &made.plan.space;
    let winner = space.config(&first.winner).unwrap();
    let neighbours = space.neighbours(&winner);
    let schedule = |at: usize| space.schedule(&neighbours[at]);
    let winner_s = first.winner_s.unwrap();
    observations.push(made.observation(schedule(0), Outcome::Ok, vec![winner_s * 1.5e9]));
    observations.push(Observation {
        at_least_ns: Some(winner_s * 4e9),
        ..made.observation(schedule(1), Outcome::Ok, Vec::new())
    });
    observations.push(made.observation(schedule(2), Outcome::Crash, Vec::new()));
    // A final of the winner does not replace its screening.
    let last = made.observation(first.winner.clone(), Outcome::Ok, vec![1.0]);
    observations.push(Observation { phase: Phase::Final, ..last });
    let found = made.explain(observations).unwrap();
    let of = |schedule: Schedule| {
        let changed = |change: &&Expected| {
            let mut made = found.winner.clone();
            change.changed.iter().for_each(|(name, _, to)| made.set(name.clone(), to.clone()));
            made == schedule
        };
        found.changes.iter().find(changed).unwrap().measured
    };
    assert_eq!((&found.winner, found.winner_s), (&first.winner, Some(winner_s)));
    assert!(matches!(of(schedule(0)), Some(Measured::Ratio(ratio)) if (ratio - 1.5).abs() < 1e-9));
    assert!(matches!(of(schedule(1)), Some(Measured::AtLeast(ratio)) if (ratio - 4.0).abs() < 1e-9));
    assert_eq!(of(schedule(2)), Some(Measured::Failed(Outcome::Crash)));
    let text = lines(&found, usize::MAX).join("\n");
    assert!(text.contains("1.50x") && text.contains("> 4.00x") && text.contains("crash"), "{text}");
}

#[test]
fn weak_models_and_left_out_rows_are_said() {
    let made = Made::new();
    // Times that have nothing to do with the schedule.
    let noise = std::cell::RefCell::new(ChaCha8Rng::seed_from_u64(9));
    let mut observations = made.observations(40, |_| 1e5 * noise.borrow_mut().random_range(1.0..3.0));
    let unknown: Schedule = [("tile", 4.into())].into_iter().collect();
    observations.push(made.observation(unknown, Outcome::Ok, vec![1.0]));
    observations.push(Observation {
        generator: "other/1".into(),
        ..made.observation(made.plan.default.clone(), Outcome::Ok, vec![1.0])
    });
    let found = made.explain(observations).unwrap();
    assert_eq!((found.schedules, found.foreign), (40, 1));
    let text = found.warnings.join("\n");
    assert!(text.contains("are few for 13 parameters"), "{text}");
    assert!(text.contains("predictions are guesses"), "{text}");
    assert!(text.contains("1 stored schedules are not in this build's space"), "{text}");
    assert!(lines(&found, 1).iter().any(|line| line.starts_with("  warning   ")));
}

#[test]
fn too_little_is_said_with_what_to_do() {
    let made = Made::new();
    let nothing = made.explain(Vec::new()).unwrap_err();
    assert!(matches!(nothing, ExplainError::Nothing { .. }));
    assert!(nothing.to_string().contains("matmul 64x64x64 f32 on cpu: nothing verified is stored"), "{nothing}");
    let few = made.explain(made.observations(12, Made::ns)).unwrap_err();
    assert_eq!(
        few.to_string(),
        "11 schedules of matmul 64x64x64 f32 on cpu have a time or a bound on it, an explanation needs 16; \
         1 failed (1 wrong); run the same `tune` with --trials 32 or more"
    );
    // What failed is said, and that more of it would not help.
    let schedules = made.observations(21, Made::ns).into_iter();
    let mut failed: Vec<Observation> =
        schedules.map(|o| Observation { outcome: Outcome::Wrong, samples_ns: Vec::new(), ..o }).collect();
    failed[20].schedule = [("tile", 4.into())].into_iter().collect();
    let wrong = made.explain(failed.clone()).unwrap_err().to_string();
    assert!(wrong.contains("0 schedules of") && wrong.contains("; 20 failed (20 wrong); "), "{wrong}");
    assert!(wrong.contains("1 are not in this build's space; nothing worked, so find out why first"), "{wrong}");
    assert!(wrong.contains("--trials 64 ends with") && !wrong.contains("--retry-quarantined"), "{wrong}");
    failed.iter_mut().take(3).for_each(|o| o.outcome = Outcome::Crash);
    let crash = made.explain(failed.clone()).unwrap_err().to_string();
    assert!(crash.contains("20 failed (17 wrong, 3 crash); ") && crash.ends_with("--retry-quarantined"), "{crash}");
    // When one of ten works, ten times as many are needed.
    failed.truncate(20);
    for observation in failed.iter_mut().take(2) {
        (observation.outcome, observation.samples_ns) = (Outcome::Ok, vec![1e5]);
    }
    let rare = made.explain(failed).unwrap_err().to_string();
    assert!(rare.ends_with("18 failed (17 wrong, 1 crash); run the same `tune` with --trials 160 or more"), "{rare}");
    // Bounds alone have no winner.
    let cut = made.observations(30, Made::ns).into_iter().filter(|o| o.outcome == Outcome::Ok);
    let cut = cut.map(|o| Observation { at_least_ns: Some(o.samples_ns[0]), samples_ns: Vec::new(), ..o }).collect();
    assert!(matches!(made.explain(cut), Err(ExplainError::NotLearned { timed: 0, .. })));
    // A single time in all rows: nothing to tell apart, and no crash.
    let equal = made.explain(made.observations(30, |_| 1e5));
    assert!(equal.is_ok_and(|found| found.process.spearman.abs() < WEAK_SPEARMAN));
}
