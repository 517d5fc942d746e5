//! What a model has understood of a search: how well it predicts what it has not seen, which parameters that rests on,
//! and what it expects of single changes.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use search_space::space::{Config, ParameterSpace};
use search_space::strategy::{Model, Row, Told};

/// Shuffles of a parameter that its importance is the mean of.
const SHUFFLES: usize = 3;
/// Half the width of a 95 % interval, in standard deviations.
const SPREAD: f64 = 1.96;

/// What cross-validation says of a kind of model on some rows.
#[derive(Clone, Debug, PartialEq)]
pub struct CrossValidation {
    /// Rows with a time or a bound on it: those that were predicted.
    pub rows: usize,
    /// Spearman's rank correlation of predicted and measured times, each predicted by a model that had not seen it. A
    /// time that was cut off counts as its bound.
    pub spearman: f64,
    /// Share of times measured to the end inside the 95 % interval of their prediction, of which the noise of a
    /// measurement is a part; `None` for a model without deviations.
    pub covered: Option<f64>,
    /// For each parameter, how much `spearman` falls when its values are shuffled among the rows to be predicted: 0 for
    /// one that predictions do not rest on (Breiman, "Random forests", Machine Learning 45, 2001, section 10).
    pub importance: Vec<f64>,
}

/// Predicts each row from the others, in `folds` parts; the split and the shuffles are drawn from `seed`. Rows that
/// failed are learned from and not predicted.
///
/// `None` when fewer than two rows have a time or a bound, or a model has learned too little to predict.
pub fn cross_validate(
    space: &ParameterSpace,
    rows: &[Row],
    folds: usize,
    seed: u64,
    model: &mut dyn FnMut() -> Box<dyn Model>,
) -> Option<CrossValidation> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.shuffle(rng);
    let (mut measured, mut predicted, mut intervals) = (Vec::new(), Vec::new(), Some((0, 0)));
    let params = space.params().len();
    let mut shuffled = vec![Vec::new(); params * SHUFFLES];
    for fold in 0..folds.max(2) {
        let held = |at: &usize| at % folds.max(2) == fold;
        let known: Vec<Row> = (0..order.len()).filter(|at| !held(at)).map(|at| rows[order[at]].clone()).collect();
        let asked: Vec<(&Row, f64)> =
            (0..order.len()).filter(held).filter_map(|at| Some((&rows[order[at]], time(&rows[order[at]])?))).collect();
        if asked.is_empty() {
            continue;
        }
        let mut model = model();
        model.learn(space, &known);
        let configs: Vec<Config> = asked.iter().map(|(row, _)| row.config.clone()).collect();
        let predictions = model.predict(space, &configs)?;
        for (&(row, seconds), prediction) in asked.iter().zip(&predictions) {
            measured.push(seconds);
            predicted.push(model.seconds(prediction.mean)?);
            if matches!(row.told, Some(Told::Time { .. })) {
                // Of a measurement, which lies around the value that is expected.
                let reach = SPREAD * prediction.deviation.hypot(prediction.noise);
                let end = |sign: f64| model.seconds(prediction.mean + sign * reach);
                let within = end(-1.0)? <= seconds && seconds <= end(1.0)?;
                intervals = intervals
                    .filter(|_| prediction.deviation > 0.0)
                    .map(|(inside, of): (usize, usize)| (inside + usize::from(within), of + 1));
            }
        }
        for (param, draws) in shuffled.chunks_mut(SHUFFLES).enumerate() {
            for draw in draws {
                let mut values: Vec<u16> = configs.iter().map(|config| config[param]).collect();
                values.shuffle(rng);
                let changed: Vec<Config> = configs
                    .iter()
                    .zip(&values)
                    .map(|(config, &value)| {
                        let mut changed = config.to_vec();
                        changed[param] = value;
                        changed.into()
                    })
                    .collect();
                for prediction in model.predict(space, &changed)? {
                    draw.push(model.seconds(prediction.mean)?);
                }
            }
        }
    }
    if measured.len() < 2 {
        return None;
    }
    let whole = spearman(&predicted, &measured);
    let fall =
        |draws: &[Vec<f64>]| whole - draws.iter().map(|draw| spearman(draw, &measured)).sum::<f64>() / SHUFFLES as f64;
    Some(CrossValidation {
        rows: measured.len(),
        spearman: whole,
        covered: intervals.filter(|(_, of)| *of > 0).map(|(inside, of)| inside as f64 / of as f64),
        importance: shuffled.chunks(SHUFFLES).map(fall).collect(),
    })
}

/// What a model expects of one change.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The parameter that was given another value, by position in the space.
    pub parameter: usize,
    /// The value, by position in its domain.
    pub value: u16,
    /// The nearest configuration with that value. Constraints may ask for other values to change as well.
    pub config: Config,
    /// Predicted time of it / predicted time of where the change begins: below 1 is faster.
    pub ratio: f64,
    /// Lower end of the 95 % interval of the ratio: of the time that is expected, which measurements lie around with
    /// some noise. The time where the change begins is taken as known.
    pub lo: f64,
    /// Upper end; never above what the slowest row learned from would give, because a model knows nothing beyond it.
    pub hi: f64,
    /// Probability that it works at all.
    pub success: f64,
}

/// What a model that has learned `rows` expects of each other value of each parameter of `from`, in order of parameters
/// and values. `None` when it has learned too little.
pub fn changes(space: &ParameterSpace, model: &mut dyn Model, rows: &[Row], from: &Config) -> Option<Vec<Change>> {
    let base = model.predict(space, std::slice::from_ref(from))?.first().and_then(|found| model.seconds(found.mean))?;
    let slowest = rows.iter().filter_map(time).fold(base, f64::max);
    let mut fixed = vec![None; space.params().len()];
    let mut found = Vec::new();
    for (parameter, param) in space.params().iter().enumerate() {
        for value in (0u16..).take(param.values.len()).filter(|&value| value != from[parameter]) {
            fixed[parameter] = Some(value);
            found.extend(space.nearest(from, &[], &fixed).map(|config| (parameter, value, config)));
        }
        fixed[parameter] = None;
    }
    let configs: Vec<Config> = found.iter().map(|(_, _, config)| config.clone()).collect();
    let predictions = model.predict(space, &configs)?;
    found
        .into_iter()
        .zip(predictions)
        .map(|((parameter, value, config), prediction)| {
            let ratio = |value: f64| Some(model.seconds(value)?.min(slowest) / base);
            let reach = SPREAD * prediction.deviation;
            Some(Change {
                parameter,
                value,
                config,
                ratio: ratio(prediction.mean)?,
                lo: ratio(prediction.mean - reach)?,
                hi: ratio(prediction.mean + reach)?,
                success: prediction.success,
            })
        })
        .collect()
}

/// Spearman's rank correlation; equal values share the mean of their ranks. 0 when one side does not vary.
#[must_use]
pub fn spearman(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (ranks(a), ranks(b));
    let n = a.len().min(b.len()) as f64;
    let mean = (n - 1.0) / 2.0;
    let covariance: f64 = a.iter().zip(&b).map(|(x, y)| (x - mean) * (y - mean)).sum();
    let variance = |ranks: &[f64]| ranks.iter().map(|rank| (rank - mean).powi(2)).sum::<f64>();
    let scale = (variance(&a) * variance(&b)).sqrt();
    if scale > 0.0 { covariance / scale } else { 0.0 }
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    for tie in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let rank = first as f64 + (tie.len() - 1) as f64 / 2.0;
        tie.iter().for_each(|&at| ranks[at] = rank);
        first += tie.len();
    }
    ranks
}

/// The seconds of a row that was timed, or the bound where timing was cut off.
fn time(row: &Row) -> Option<f64> {
    match row.told? {
        Told::Time { seconds } | Told::Censored { at_least_seconds: seconds } => Some(seconds),
        Told::Failed(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GaussianProcess, Trees};
    use rand::RngExt;
    use search_space::Outcome;
    use search_space::space::SpaceBuilder;
    use search_space::strategy::Prediction;

    /// `fast` decides, `mild` helps, `idle` does nothing; `wide` and `pad` exclude each other.
    fn space() -> ParameterSpace {
        SpaceBuilder::new()
            .param("fast", [1, 2, 4, 8, 16])
            .param("mild", [1, 2, 3, 4])
            .param("idle", [1, 2, 3, 4])
            .param("wide", [0, 1])
            .param("pad", [0, 1])
            .require("one", "wide + pad <= 1")
            .build()
            .unwrap()
    }

    fn seconds(config: &Config) -> f64 {
        1e-3 * (1.0 + (f64::from(config[0]) - 3.0).powi(2) + 0.2 * f64::from(config[1]) + 0.1 * f64::from(config[3]))
    }

    fn rows(space: &ParameterSpace, n: usize, noise: bool) -> Vec<Row> {
        let rng = &mut ChaCha8Rng::seed_from_u64(3);
        let row = |at: usize| {
            let config = space.sample(rng, 1.0);
            let told = match at % 10 {
                9 => Told::Failed(Outcome::ResourceLimit),
                _ if noise => Told::Time { seconds: rng.random_range(1.0..2.0) },
                _ => Told::Time { seconds: seconds(&config) },
            };
            Row { config, told: Some(told) }
        };
        (0..n).map(row).collect()
    }

    #[test]
    fn what_matters_is_found_and_what_does_not_is_not() {
        let space = space();
        let rows = rows(&space, 80, false);
        let models: [&mut dyn FnMut() -> Box<dyn Model>; 2] =
            [&mut || Box::new(GaussianProcess::of_log_time()), &mut || Box::new(Trees::new())];
        for (which, model) in models.into_iter().enumerate() {
            let found = cross_validate(&space, &rows, 5, 1, model).unwrap();
            assert_eq!(found.rows, 72);
            assert!(found.spearman > 0.9, "{found:?}");
            let importance = &found.importance;
            assert!(importance[0] > 0.5 && importance[0] > 3.0 * importance[1], "{found:?}");
            assert!(importance[1] > 2.0 * importance[2].abs(), "{found:?}");
            assert_eq!(found.covered.is_some(), which == 0, "only the process knows how sure it is");
            assert_eq!(found, cross_validate(&space, &rows, 5, 1, model).unwrap());
        }
    }

    #[test]
    fn noise_is_not_understood() {
        let space = space();
        let found =
            cross_validate(&space, &rows(&space, 80, true), 5, 1, &mut || Box::new(GaussianProcess::of_log_time()))
                .unwrap();
        // A model judged on the rows it has learned would be near 1 here.
        assert!(found.spearman < 0.4, "{found:?}");
    }

    #[test]
    fn times_lie_inside_their_intervals_as_often_as_these_say() {
        let space = space();
        let rng = &mut ChaCha8Rng::seed_from_u64(5);
        // Measurements with a noise of a tenth, over a hundredfold range of times of which most are slow.
        let mut measure = |config: &Config| {
            let noise = (0..12).map(|_| rng.random_range(0.0..1.0)).sum::<f64>() - 6.0;
            seconds(config).powi(3) * (0.1 * noise).exp()
        };
        let mut rows = rows(&space, 220, false);
        rows.retain(|row| time(row).is_some());
        rows.iter_mut().for_each(|row| row.told = Some(Told::Time { seconds: measure(&row.config) }));
        let covered = |model: &mut dyn FnMut() -> Box<dyn Model>| {
            cross_validate(&space, &rows, 5, 1, model).unwrap().covered.unwrap()
        };
        let share = covered(&mut || Box::new(GaussianProcess::of_log_time()));
        assert!((0.9..=0.99).contains(&share), "{share}");
        // Without the noise, the interval is that of the expected time.
        let silent = covered(&mut || Box::new(Silent(GaussianProcess::of_log_time())));
        assert!(silent < 0.8, "{silent}");
        // And a search's compressed times stretch the intervals of slow ones at the expense of the fast.
        let compressed = covered(&mut || Box::new(GaussianProcess::new()));
        assert!(compressed < 0.9, "{compressed}");
    }

    /// A process that says nothing of noise.
    struct Silent(GaussianProcess);

    impl Model for Silent {
        fn learn(&mut self, space: &ParameterSpace, rows: &[Row]) {
            self.0.learn(space, rows);
        }

        fn predict(&mut self, space: &ParameterSpace, configs: &[Config]) -> Option<Vec<Prediction>> {
            let found = self.0.predict(space, configs)?;
            Some(found.into_iter().map(|prediction| Prediction { noise: 0.0, ..prediction }).collect())
        }

        fn best(&self) -> Option<f64> {
            self.0.best()
        }

        fn seconds(&self, value: f64) -> Option<f64> {
            self.0.seconds(value)
        }
    }

    #[test]
    fn too_few_rows_say_nothing() {
        let space = space();
        for n in 0..3 {
            let model: &mut dyn FnMut() -> Box<dyn Model> = &mut || Box::new(GaussianProcess::of_log_time());
            assert_eq!(cross_validate(&space, &rows(&space, n, false), 5, 1, model), None);
        }
        assert_eq!(changes(&space, &mut GaussianProcess::of_log_time(), &[], &vec![0; 5].into()), None);
    }

    #[test]
    fn changes_are_legal_and_predicted() {
        let space = space();
        let rows = rows(&space, 80, false);
        let mut model = GaussianProcess::of_log_time();
        model.learn(&space, &rows);
        let best: Config = vec![3, 0, 1, 0, 0].into();
        let found = changes(&space, &mut model, &rows, &best).unwrap();
        // Every other value of every parameter.
        assert_eq!(found.len(), 4 + 3 + 3 + 1 + 1);
        for change in &found {
            assert!(space.contains(&change.config) && change.config[change.parameter] == change.value);
            assert!(change.lo <= change.ratio && change.ratio <= change.hi, "{change:?}");
        }
        let at = |parameter, value| found.iter().find(|c| (c.parameter, c.value) == (parameter, value)).unwrap();
        assert!(at(0, 0).ratio > 4.0 && at(0, 2).ratio > 1.4, "{:?}", at(0, 0));
        assert!((at(2, 3).ratio - 1.0).abs() < 0.2, "{:?}", at(2, 3));
        // From a padded configuration, a wide one must give up the padding.
        let padded = changes(&space, &mut model, &rows, &vec![3, 0, 1, 0, 1].into()).unwrap();
        let wide = padded.iter().find(|change| (change.parameter, change.value) == (3, 1)).unwrap();
        assert_eq!(wide.config.to_vec(), [3, 0, 1, 1, 0]);
    }

    #[test]
    fn rank_correlation_of_known_values() {
        assert_eq!(spearman(&[1.0, 2.0, 3.0], &[10.0, 20.0, 90.0]), 1.0);
        assert_eq!(spearman(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]), -1.0);
        assert_eq!(spearman(&[1.0, 1.0], &[1.0, 2.0]), 0.0);
        // Ranks 0.5 0.5 2 3 against 0 1 2 3: covariance 4.5, variances 4.5 and 5.
        assert!((spearman(&[1.0, 1.0, 2.0, 3.0], &[1.0, 2.0, 3.0, 4.0]) - 4.5 / 22.5f64.sqrt()).abs() < 1e-12);
    }
}
