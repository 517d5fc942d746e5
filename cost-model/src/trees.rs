//! Boosted regression trees (smartcore) on winsorised log time ([`Winsor`]).
//!
//! Few and shallow trees keep a refit at some tens of milliseconds for a few hundred rows; it happens many times a search.

use search_space::space::{Config, ParameterSpace};
use search_space::strategy::{Model, Prediction, Row, Told, Winsor};
use smartcore::linalg::basic::matrix::DenseMatrix;
use smartcore::xgboost::{XGRegressor, XGRegressorParameters};

use crate::Features;

const TREES: usize = 24;
const DEPTH: u16 = 4;
const LEARNING_RATE: f64 = 0.3;
/// Most rows one fit uses: the fastest half, the rest the latest.
const MAX_ROWS: usize = 160;

type Booster = XGRegressor<f64, f64, DenseMatrix<f64>, Vec<f64>>;

/// A model of one search. It has no randomness: all rows and features take part in every tree. Failures count as the
/// slowest time known, censored times as their bound.
#[derive(Default)]
pub struct Trees {
    features: Option<Features>,
    fitted: Option<(Booster, Winsor)>,
}

impl Trees {
    /// A model that has learned nothing.
    #[must_use]
    pub fn new() -> Trees {
        Trees::default()
    }
}

impl std::fmt::Debug for Trees {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let features = self.features.as_ref().map_or(0, |features| features.names().len());
        f.debug_struct("Trees").field("features", &features).field("fitted", &self.fitted.is_some()).finish()
    }
}

impl Model for Trees {
    fn learn(&mut self, space: &ParameterSpace, rows: &[Row]) {
        let features = self.features.get_or_insert_with(|| Features::of(space));
        let rows = keep(logs(rows));
        self.fitted = None;
        let Some(winsor) = Winsor::of(&rows.iter().map(|row| row.1).collect::<Vec<_>>()) else { return };
        let target: Vec<f64> = rows.iter().map(|row| winsor.value(row.1)).collect();
        let data: Vec<Vec<f64>> = rows.iter().map(|row| features.row(row.0)).collect();
        self.fitted = boost(&data, &target, TREES, DEPTH, LEARNING_RATE).map(|booster| (booster, winsor));
    }

    fn predict(&mut self, space: &ParameterSpace, configs: &[Config]) -> Option<Vec<Prediction>> {
        debug_assert!(configs.iter().all(|config| config.len() == space.params().len()));
        let (features, (booster, _)) = (self.features.as_ref()?, self.fitted.as_ref()?);
        let data: Vec<Vec<f64>> = configs.iter().map(|config| features.row(config)).collect();
        let means = booster.predict(&DenseMatrix::from_2d_vec(&data).ok()?).ok()?;
        Some(means.into_iter().map(|mean| Prediction { mean, deviation: 0.0, noise: 0.0, success: 1.0 }).collect())
    }

    fn best(&self) -> Option<f64> {
        // The scale begins at the best.
        self.fitted.as_ref().map(|_| 0.0)
    }

    fn seconds(&self, value: f64) -> Option<f64> {
        self.fitted.as_ref().map(|(_, winsor)| winsor.log(value).exp())
    }
}

/// Boosted trees under squared loss; `None` without rows or features, when there is nothing to learn.
fn boost(data: &[Vec<f64>], target: &[f64], trees: usize, depth: u16, rate: f64) -> Option<Booster> {
    let mean = target.iter().sum::<f64>() / target.len().max(1) as f64;
    let parameters = XGRegressorParameters::default()
        .with_n_estimators(trees)
        .with_max_depth(depth)
        .with_learning_rate(rate)
        .with_lambda(1.0)
        .with_min_child_weight(1)
        .with_subsample(1.0)
        .with_base_score(mean);
    let data = DenseMatrix::from_2d_vec(&data.to_vec()).ok()?;
    Booster::fit(&data, &target.to_vec(), parameters).ok()
}

/// Log seconds of what was told: a censored result counts as its bound, a failure as the slowest time known.
pub(crate) fn logs(rows: &[Row]) -> Vec<(&Config, f64)> {
    let known = |told: &Told| match told {
        Told::Time { seconds } | Told::Censored { at_least_seconds: seconds } => Some(seconds.ln()),
        Told::Failed(_) => None,
    };
    let slowest = rows.iter().filter_map(|row| known(row.told.as_ref()?)).reduce(f64::max);
    let log = |row: &'_ Row| known(row.told.as_ref()?).or(slowest);
    rows.iter().filter_map(|row| Some((&row.config, log(row)?))).collect()
}

/// Of too many rows, the fastest half and the latest others.
fn keep(rows: Vec<(&Config, f64)>) -> Vec<(&Config, f64)> {
    if rows.len() <= MAX_ROWS {
        return rows;
    }
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by(|&a, &b| rows[a].1.total_cmp(&rows[b].1));
    order[MAX_ROWS / 2..].sort_unstable_by_key(|&at| std::cmp::Reverse(at));
    order.truncate(MAX_ROWS);
    order.sort_unstable();
    order.into_iter().map(|at| rows[at]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use search_space::Outcome;

    #[test]
    fn of_many_rows_the_fastest_and_the_latest_stay() {
        let configs: Vec<Config> = (0..MAX_ROWS * 2).map(|n| vec![u16::try_from(n).unwrap()].into()).collect();
        let rows: Vec<(&Config, f64)> = configs.iter().enumerate().map(|(n, c)| (c, 1000.0 - n as f64)).rev().collect();
        let kept = keep(rows);
        assert_eq!(kept.len(), MAX_ROWS);
        assert_eq!(kept[0].0[0] as usize, MAX_ROWS * 2 - 1, "the fastest");
        assert_eq!(kept[MAX_ROWS - 1].0[0], 0, "the latest");
    }

    #[test]
    fn failures_are_slow_and_censored_times_their_bound() {
        let row = |at: u16, told| Row { config: vec![at].into(), told };
        let rows = [
            row(0, Some(Told::Time { seconds: 1.0 })),
            row(1, Some(Told::Failed(Outcome::Timeout))),
            row(2, None),
            row(3, Some(Told::Censored { at_least_seconds: 0.25 })),
        ];
        let seen: Vec<(u16, f64)> = logs(&rows).into_iter().map(|(config, log)| (config[0], log)).collect();
        assert_eq!(seen, [(0, 0.0), (1, 0.0), (3, 0.25f64.ln())]);
        assert!(logs(&rows[1..3]).is_empty());
    }
}
