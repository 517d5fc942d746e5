//! Boosted regression trees (smartcore) on winsorised log time.
//!
//! The target of a row is `z = (ln t − ln best) / (ln median − ln best)`, and above 1 slower growth, `1 + 0.2 ln z`: what
//! is worse than the median only needs to be known as bad, and the trees spend their splits on the fast half.
//!
//! Few and shallow trees keep a refit at some tens of milliseconds for a few hundred rows; it happens many times a search.

use search_space::space::{Config, ParameterSpace};
use search_space::strategy::Scorer;
use smartcore::linalg::basic::matrix::DenseMatrix;
use smartcore::xgboost::{XGRegressor, XGRegressorParameters};

use crate::Features;

const TREES: usize = 24;
const DEPTH: u16 = 4;
const LEARNING_RATE: f64 = 0.3;
/// Most rows one fit uses: the fastest half, the rest the latest.
const MAX_ROWS: usize = 160;

type Model = XGRegressor<f64, f64, DenseMatrix<f64>, Vec<f64>>;

/// A model of one search. It has no randomness: all rows and features take part in every tree.
#[derive(Default)]
pub struct TreeScorer {
    features: Option<Features>,
    model: Option<Model>,
}

impl TreeScorer {
    /// A model that has learned nothing.
    pub fn new() -> TreeScorer {
        TreeScorer::default()
    }
}

impl std::fmt::Debug for TreeScorer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let features = self.features.as_ref().map_or(0, |features| features.names().len());
        f.debug_struct("TreeScorer").field("features", &features).field("fitted", &self.model.is_some()).finish()
    }
}

impl Scorer for TreeScorer {
    fn fit(&mut self, space: &ParameterSpace, rows: &[(Config, f64)]) {
        let features = self.features.get_or_insert_with(|| Features::of(space));
        let kept = keep(rows);
        let target = winsorise(&kept.iter().map(|row| row.1).collect::<Vec<_>>());
        let mean = target.iter().sum::<f64>() / target.len().max(1) as f64;
        let parameters = XGRegressorParameters::default()
            .with_n_estimators(TREES)
            .with_max_depth(DEPTH)
            .with_learning_rate(LEARNING_RATE)
            .with_lambda(1.0)
            .with_min_child_weight(1)
            .with_subsample(1.0)
            .with_base_score(mean);
        let data: Vec<Vec<f64>> = kept.iter().map(|row| features.row(&row.0)).collect();
        // Refused only without rows or features; then there is nothing to learn.
        self.model = DenseMatrix::from_2d_vec(&data).and_then(|data| Model::fit(&data, &target, parameters)).ok();
    }

    fn predict(&self, space: &ParameterSpace, configs: &[Config]) -> Option<Vec<f64>> {
        debug_assert!(configs.iter().all(|config| config.len() == space.params().len()));
        let (features, model) = (self.features.as_ref()?, self.model.as_ref()?);
        let data: Vec<Vec<f64>> = configs.iter().map(|config| features.row(config)).collect();
        model.predict(&DenseMatrix::from_2d_vec(&data).ok()?).ok()
    }
}

/// Rows with a finite time; of too many, the fastest half and the latest others.
fn keep(rows: &[(Config, f64)]) -> Vec<&(Config, f64)> {
    let mut sound: Vec<&(Config, f64)> = rows.iter().filter(|row| row.1.is_finite()).collect();
    if sound.len() > MAX_ROWS {
        let mut order: Vec<usize> = (0..sound.len()).collect();
        order.sort_by(|&a, &b| sound[a].1.total_cmp(&sound[b].1));
        order[MAX_ROWS / 2..].sort_unstable_by_key(|&at| std::cmp::Reverse(at));
        order.truncate(MAX_ROWS);
        order.sort_unstable();
        sound = order.into_iter().map(|at| sound[at]).collect();
    }
    sound
}

/// Log times as distance from the best in units of the median's, compressed above the median.
fn winsorise(logs: &[f64]) -> Vec<f64> {
    let mut sorted = logs.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (Some(&best), Some(&median)) = (sorted.first(), sorted.get(sorted.len() / 2)) else { return Vec::new() };
    let scale = median - best;
    logs.iter()
        .map(|&log| {
            // When half the rows tie with the best, the rest are just worse.
            let z = if scale > 0.0 { (log - best) / scale } else { f64::from(u8::from(log > best)) };
            if z > 1.0 { 1.0 + 0.2 * z.ln() } else { z }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn winsorising_keeps_order_and_compresses_the_slow_half() {
        assert_eq!(winsorise(&[2.0, 1.0, 3.0]), [1.0, 0.0, 1.0 + 0.2 * 2f64.ln()]);
        assert_eq!(winsorise(&[1.0, 1.0, 1.0, 9.0]), [0.0, 0.0, 0.0, 1.0]);
        assert_eq!(winsorise(&[]), [0.0; 0]);
        let slow = winsorise(&[0.0, 1.0, 1.0, 2.0, 1000.0]);
        assert!(slow[3] < slow[4] && slow[4] < 2.5);
    }

    #[test]
    fn of_many_rows_the_fastest_and_the_latest_stay() {
        let row = |number: usize| (Config::from(vec![u16::try_from(number).unwrap()]), 1000.0 - number as f64);
        let mut rows: Vec<(Config, f64)> = (0..MAX_ROWS * 2).rev().map(row).collect();
        rows.push((Config::from(vec![0]), f64::NAN));
        let kept = keep(&rows);
        assert_eq!(kept.len(), MAX_ROWS);
        assert_eq!(kept[0].0[0] as usize, MAX_ROWS * 2 - 1, "the fastest");
        assert_eq!(kept[MAX_ROWS - 1].0[0], 0, "the latest");
        assert!(kept.iter().all(|row| row.1.is_finite()));
    }
}
