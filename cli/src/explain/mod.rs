//! What a search has learned about a workload on a device: which parameters matter, what each single change of the
//! winner is expected to cost, and how far the model behind these numbers can be trusted.
//!
//! The rows are the stored measurements of one workload on one target. Predictions are those of a Gaussian process as it
//! also guides the search, here over plain log time; how good it is, is measured on rows that it has not seen.

mod report;
mod rows;

use std::collections::{BTreeMap, BTreeSet};

use codegen::analysis::{ProgramFeatures, features};
use cost_model::explain::{self, Change, CrossValidation};
use cost_model::{GaussianProcess, Trees};
use search_space::families::SchedulePlan;
use search_space::space::{Config, Parameter};
use search_space::strategy::{Model, Row, Told};
use search_space::{Outcome, Schedule, Target, Value, Workload};
use tuning_db::{Database, DbError, Miss};

pub use report::{json, lines};

use crate::session::known;

/// Fewest schedules with a time, or a bound on it, that something is said of.
pub const LEAST_KNOWN: usize = 16;
/// Parts of the cross-validation.
const FOLDS: usize = 5;
/// Seed of everything random.
const SEED: u64 = 0;
/// Schedules for each parameter below which predictions are called weak.
const ROWS_PER_PARAMETER: usize = 5;
/// Rank correlation below which they are.
const WEAK_SPEARMAN: f64 = 0.5;
/// Share of times inside 95 % intervals below which intervals are.
const WEAK_COVERED: f64 = 0.8;

/// What is to be explained.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The workload.
    pub workload: &'a Workload,
    /// What its kernels are generated for.
    pub target: &'a Target,
    /// Its schedules on the target.
    pub plan: &'a SchedulePlan,
    /// The device as users name it.
    pub device: &'a str,
}

/// Why nothing can be explained.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExplainError {
    /// The database cannot be read.
    #[error(transparent)]
    Database(#[from] DbError),
    /// Nothing is stored of this workload on this target.
    #[error("nothing is stored of {workload} on {device}: {miss}")]
    Nothing {
        /// The workload, in short.
        workload: String,
        /// The device.
        device: String,
        /// What is stored instead.
        miss: Box<Miss>,
    },
    /// Not enough was measured.
    #[error(
        "{known} schedules of {workload} on {device} have a time or a bound on it, an explanation needs {needed}; {}{}",
        left_out(.failed, *.foreign),
        advice(*.known, *.trials, .failed)
    )]
    TooFew {
        /// The workload, in short.
        workload: String,
        /// The device.
        device: String,
        /// Schedules with a time, or a bound on it.
        known: usize,
        /// Fewest that are needed.
        needed: usize,
        /// How many failed, and how.
        failed: BTreeMap<Outcome, usize>,
        /// Schedules stored that are not in the space of this build.
        foreign: usize,
        /// Trials after which there are likely enough, if as many work as before.
        trials: usize,
    },
    /// The models could not learn from what is stored.
    #[error("{timed} schedules of {workload} on {device} were timed to the end, too few for a model to learn from")]
    NotLearned {
        /// The workload, in short.
        workload: String,
        /// The device.
        device: String,
        /// Schedules with a time.
        timed: usize,
    },
}

/// What a search has learned.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The workload, in short.
    pub workload: String,
    /// Its key.
    pub key: String,
    /// The device as users name it.
    pub device: String,
    /// The target's key.
    pub target: String,
    /// The schedule that a look-up answers, or the fastest known.
    pub winner: Schedule,
    /// What makes it the winner: a provenance of a look-up, or `fastest`.
    pub winner_is: &'static str,
    /// Time of the winner as the search measured it, in seconds.
    pub winner_s: Option<f64>,
    /// The schedule a search begins with.
    pub default: Schedule,
    /// Its time as the search measured it, in seconds.
    pub default_s: Option<f64>,
    /// Distinct schedules stored that are in the space.
    pub schedules: usize,
    /// Those with a time.
    pub timed: usize,
    /// Those whose timing was cut off because they were clearly slower.
    pub bounded: usize,
    /// Those that failed.
    pub failed: usize,
    /// Schedules stored that are not in the space of this build.
    pub foreign: usize,
    /// Schedules that the models learned from.
    pub learned: usize,
    /// The Gaussian process on rows it had not seen: predictions here are its.
    pub process: CrossValidation,
    /// Boosted trees on the same rows, to compare with.
    pub trees: Option<CrossValidation>,
    /// Every parameter with more than one value, the most important first.
    pub parameters: Vec<Effect>,
    /// Every single change from the winner, predicted fastest first.
    pub changes: Vec<Expected>,
    /// The winner's program and the default's.
    pub programs: Option<(ProgramFeatures, ProgramFeatures)>,
    /// What a reader should know before believing it.
    pub warnings: Vec<String>,
}

/// What depends on one parameter.
#[derive(Clone, Debug)]
pub struct Effect {
    /// Its name.
    pub name: String,
    /// Its value in the winner.
    pub value: Value,
    /// How much worse unseen schedules are ranked when its values are shuffled: [`CrossValidation::importance`].
    pub importance: f64,
    /// Predicted time with the slowest of its values / with the fastest, of those that are legal with all else as in
    /// the winner.
    pub spread: f64,
    /// Of these values, the other one predicted to be fastest, and its time / that of the winner.
    pub best: Option<(Value, f64)>,
    /// The one predicted to be slowest, and its time / that of the winner.
    pub worst: Option<(Value, f64)>,
}

/// One single change from the winner.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Parameter, value in the winner, value after the change. The first is the change, the others are what constraints
    /// ask for beside it.
    pub changed: Vec<(String, Value, Value)>,
    /// Predicted time / predicted time of the winner.
    pub ratio: f64,
    /// Its 95 % interval: of the time that is expected, without the noise of a measurement.
    pub interval: [f64; 2],
    /// Probability that it works.
    pub success: f64,
    /// What was measured of it.
    pub measured: Option<Measured>,
}

/// What was measured of a schedule, beside the winner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measured {
    /// Measured time / measured time of the winner.
    Ratio(f64),
    /// As [`Measured::Ratio`], of a lower bound on the time.
    AtLeast(f64),
    /// It failed.
    Failed(Outcome),
}

/// Explains what `database` holds of a workload on a target.
///
/// # Errors
/// [`ExplainError`] says what is missing.
pub fn explain(database: &Database, question: &Question<'_>) -> Result<Explanation, ExplainError> {
    let space = &question.plan.space;
    let (key, target) = (question.workload.key(), question.target.key.to_string());
    let (workload, device) = (question.workload.summary(), question.device.to_owned());
    let mut observations = database.observations(&key, &target)?.rows;
    observations.retain(|observation| observation.generator == crate::GENERATOR);
    if observations.is_empty() {
        let miss = Box::new(database.nearest_fields(&key, &target, crate::GENERATOR)?);
        return Err(ExplainError::Nothing { workload, device, miss });
    }
    let stored = known::all(&observations, |observation| Some(&observation.schedule));
    let row =
        |(schedule, told): (&&Schedule, &Told)| Some(Row { config: space.config(schedule).ok()?, told: Some(*told) });
    let all: Vec<Row> = stored.iter().filter_map(row).collect();
    let timed = all.iter().filter(|row| rows::seconds(row).is_some()).count();
    let bounded = all.iter().filter(|row| matches!(row.told, Some(Told::Censored { .. }))).count();
    let known = timed + bounded;
    if known < LEAST_KNOWN {
        let mut failed = BTreeMap::new();
        for row in &all {
            if let Some(Told::Failed(outcome)) = row.told {
                *failed.entry(outcome).or_insert(0) += 1;
            }
        }
        // Schedules that become the same program are measured once, and as large a share fails as before.
        let each = if known == 0 { 2 } else { all.len().div_ceil(known).max(2) };
        let trials = (stored.len() + each * (LEAST_KNOWN - known)).next_multiple_of(LEAST_KNOWN);
        let foreign = stored.len() - all.len();
        return Err(ExplainError::TooFew { workload, device, known, needed: LEAST_KNOWN, failed, foreign, trials });
    }
    let not_learned = || ExplainError::NotLearned { workload: workload.clone(), device: device.clone(), timed };

    let answer = database.lookup(&key, &target, crate::GENERATOR)?;
    let answer = answer.and_then(|a| Some((space.config(&a.schedule).ok()?, a.provenance.as_str())));
    let fastest = || rows::fastest(&all).map(|config| (config.clone(), "fastest"));
    let (winner, winner_is) = answer.or_else(fastest).ok_or_else(not_learned)?;
    let rows = rows::choose(&all, &winner, SEED);
    let process = explain::cross_validate(space, &rows, FOLDS, SEED, &mut || Box::new(GaussianProcess::of_log_time()));
    let process = process.ok_or_else(not_learned)?;
    let trees = explain::cross_validate(space, &rows, FOLDS, SEED, &mut || Box::new(Trees::new()));
    let mut model = GaussianProcess::of_log_time();
    model.learn(space, &rows);
    let changes = explain::changes(space, &mut model, &rows, &winner).ok_or_else(not_learned)?;

    let told: BTreeMap<&Config, Told> = all.iter().filter_map(|row| Some((&row.config, row.told?))).collect();
    let time_of = |config: &Config| match told.get(config) {
        Some(Told::Time { seconds }) => Some(*seconds),
        _ => None,
    };
    let (schedule, default) = (space.schedule(&winner), &question.plan.default);
    let program = |schedule: &Schedule| features(question.workload, question.target, schedule).ok();
    let mut explanation = Explanation {
        programs: program(&schedule).zip(program(default)),
        winner: schedule,
        winner_is,
        winner_s: time_of(&winner),
        default: default.clone(),
        default_s: space.config(default).ok().and_then(|config| time_of(&config)),
        schedules: all.len(),
        timed,
        bounded,
        failed: all.iter().filter(|row| matches!(row.told, Some(Told::Failed(_)))).count(),
        foreign: stored.len() - all.len(),
        learned: rows.len(),
        parameters: effects(question, &process, &changes, &winner),
        changes: expected(question, changes, &winner, time_of(&winner), &told),
        process,
        trees,
        workload,
        key,
        device,
        target,
        warnings: Vec::new(),
    };
    explanation.warnings = warnings(&explanation);
    Ok(explanation)
}

/// What is stored and of no use to an explanation, ending in `; `; nothing where there is none.
fn left_out(failed: &BTreeMap<Outcome, usize>, foreign: usize) -> String {
    let mut text = String::new();
    if !failed.is_empty() {
        let counts: Vec<String> = failed.iter().map(|(outcome, n)| format!("{n} {outcome}")).collect();
        text = format!("{} failed ({}); ", failed.values().sum::<usize>(), counts.join(", "));
    }
    if foreign > 0 {
        text.push_str(&format!("{foreign} are not in this build's space; "));
    }
    text
}

/// What to do when too little is known.
fn advice(known: usize, trials: usize, failed: &BTreeMap<Outcome, usize>) -> String {
    if failed.is_empty() || known > 0 {
        return format!("run the same `tune` with --trials {trials} or more");
    }
    // More of the same would fail as well, until the cause is known.
    let lost =
        [Outcome::Timeout, Outcome::Crash, Outcome::LostDevice].iter().any(|outcome| failed.contains_key(outcome));
    let retry = if lost { "; if the machine was at fault, tune with --retry-quarantined" } else { "" };
    format!(
        "nothing worked, so find out why first: the same `tune` with --trials {trials} ends with the first failure of \
         each kind in full{retry}"
    )
}

fn effects(question: &Question<'_>, model: &CrossValidation, changes: &[Change], winner: &Config) -> Vec<Effect> {
    let params = question.plan.space.params();
    let effect = |(at, param): (usize, &Parameter)| {
        // What constraints make another parameter do is not the effect of this one.
        let alone =
            |change: &Change| (0..winner.len()).all(|other| other == at || change.config[other] == winner[other]);
        let own = || changes.iter().filter(|change| change.parameter == at && alone(change));
        let by_ratio = |a: &&Change, b: &&Change| a.ratio.total_cmp(&b.ratio);
        let (best, worst) = (own().min_by(by_ratio), own().max_by(by_ratio));
        let ratio = |change: Option<&Change>| change.map_or(1.0, |change| change.ratio);
        let value = |change: &Change| (param.values[usize::from(change.value)].clone(), change.ratio);
        Effect {
            name: param.name.clone(),
            value: param.values[usize::from(winner[at])].clone(),
            importance: model.importance[at],
            spread: ratio(worst).max(1.0) / ratio(best).min(1.0),
            best: best.map(value),
            worst: worst.map(value),
        }
    };
    let several = |(_, param): &(usize, &Parameter)| param.values.len() > 1;
    let mut effects: Vec<Effect> = params.iter().enumerate().filter(several).map(effect).collect();
    effects.sort_by(|a, b| b.importance.total_cmp(&a.importance));
    effects
}

fn expected(
    question: &Question<'_>,
    changes: Vec<Change>,
    winner: &Config,
    winner_s: Option<f64>,
    told: &BTreeMap<&Config, Told>,
) -> Vec<Expected> {
    let params = question.plan.space.params();
    let step = |at: usize, config: &Config| {
        let value = |config: &Config| params[at].values[usize::from(config[at])].clone();
        (params[at].name.clone(), value(winner), value(config))
    };
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for Change { parameter, config, ratio, lo, hi, success, .. } in changes {
        if !seen.insert(config.clone()) {
            continue;
        }
        let others = (0..winner.len()).filter(|&at| at != parameter && config[at] != winner[at]);
        let measured = match (told.get(&config), winner_s) {
            (Some(Told::Time { seconds }), Some(winner_s)) => Some(Measured::Ratio(seconds / winner_s)),
            (Some(Told::Censored { at_least_seconds }), Some(winner_s)) => {
                Some(Measured::AtLeast(at_least_seconds / winner_s))
            }
            (Some(Told::Failed(outcome)), _) => Some(Measured::Failed(*outcome)),
            _ => None,
        };
        let changed = std::iter::once(parameter).chain(others).map(|at| step(at, &config)).collect();
        found.push(Expected { changed, ratio, interval: [lo, hi], success, measured });
    }
    found.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
    found
}

fn warnings(explanation: &Explanation) -> Vec<String> {
    let mut warnings = Vec::new();
    let (schedules, learned) = (explanation.schedules, explanation.learned);
    let known = explanation.timed + explanation.bounded;
    let wanted = ROWS_PER_PARAMETER * explanation.parameters.len();
    if known < wanted {
        warnings.push(format!(
            "{known} measured schedules are few for {} parameters; `tune` with --trials {} or more tells more",
            explanation.parameters.len(),
            (schedules + wanted - known).next_multiple_of(8)
        ));
    }
    let spearman = explanation.process.spearman;
    if spearman < WEAK_SPEARMAN {
        warnings.push(format!(
            "the model ranks unseen schedules poorly (Spearman {spearman:.2}): its predictions are guesses"
        ));
    }
    if let Some(covered) = explanation.process.covered.filter(|covered| *covered < WEAK_COVERED) {
        warnings.push(format!(
            "{:.0} % of unseen times lie inside their 95 % interval: intervals are too narrow",
            100.0 * covered
        ));
    }
    if explanation.foreign > 0 {
        warnings.push(format!("{} stored schedules are not in this build's space: left out", explanation.foreign));
    }
    if learned < schedules {
        warnings
            .push(format!("the model learned from {learned} of {schedules} schedules: the fastest, others at random"));
    }
    warnings
}

#[cfg(test)]
mod explain_tests;
