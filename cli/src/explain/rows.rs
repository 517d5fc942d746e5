//! The rows that the models learn from.

use std::cmp::Ordering;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use search_space::space::Config;
use search_space::strategy::{Row, Told};

/// Most rows that the models learn from; beyond it a fit takes seconds.
const MOST_ROWS: usize = 600;

/// The time of a row that has one.
pub(super) fn seconds(row: &Row) -> Option<f64> {
    if let Some(Told::Time { seconds }) = row.told { Some(seconds) } else { None }
}

/// The fastest configuration.
pub(super) fn fastest(rows: &[Row]) -> Option<&Config> {
    rows.iter().min_by(|a, b| by_time(a, b)).filter(|row| seconds(row).is_some()).map(|row| &row.config)
}

/// Of too many rows the winner, the fastest quarter and others at random.
pub(super) fn choose(all: &[Row], winner: &Config, seed: u64) -> Vec<Row> {
    if all.len() <= MOST_ROWS {
        return all.to_vec();
    }
    let mut rows: Vec<&Row> = all.iter().collect();
    rows.sort_by(|a, b| (a.config != *winner).cmp(&(b.config != *winner)).then_with(|| by_time(a, b)));
    rows[MOST_ROWS / 4..].shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    rows.into_iter().take(MOST_ROWS).cloned().collect()
}

/// Rows without a time come last.
fn by_time(a: &Row, b: &Row) -> Ordering {
    let time = |row: &Row| seconds(row).unwrap_or(f64::INFINITY);
    time(a).total_cmp(&time(b))
}

#[cfg(test)]
mod tests {
    use search_space::Outcome;

    use super::*;

    #[test]
    fn of_too_many_rows_the_winner_and_the_fastest_stay() {
        let row = |at: u16| Row {
            config: vec![at].into(),
            told: Some(if at.is_multiple_of(2) {
                Told::Time { seconds: f64::from(at) + 1.0 }
            } else {
                Told::Failed(Outcome::Crash)
            }),
        };
        let all: Vec<Row> = (0..2000).map(row).collect();
        assert_eq!(fastest(&all).unwrap()[0], 0);
        let winner: Config = vec![1998].into();
        let chosen = choose(&all, &winner, 0);
        assert_eq!((chosen.len(), &chosen[0].config), (MOST_ROWS, &winner));
        let quarter: Vec<u16> = chosen[1..150].iter().map(|row| row.config[0]).collect();
        assert_eq!(quarter, (0..149).map(|at| 2 * at).collect::<Vec<u16>>());
        assert!(chosen.iter().any(|row| row.config[0] % 2 == 1), "failures are drawn too");
        assert_eq!(chosen, choose(&all, &winner, 0));
        assert_eq!(choose(&all[..100], &winner, 0).len(), 100);
    }
}
