//! Configurations as numbers.
//!
//! What the trees split on matters more than how they are boosted: on recorded kernels, logarithms, powers of two and
//! products of parameters were worth more than the choice of loss. Products are formed for pairs that share a
//! constraint: those are the footprints (registers, cache blocks) that the author of the space found worth bounding.

use std::collections::BTreeSet;

use search_space::Value;
use search_space::space::{Config, Expr, ParameterSpace};

/// Most pairs whose product and ratio are features; each costs time in every fit.
const MAX_PAIRS: usize = 16;

/// The features of one space, fixed when it is first seen.
#[derive(Clone, Debug)]
pub struct Features {
    /// For each parameter, for each position, the numbers it contributes.
    tables: Vec<Vec<Vec<f64>>>,
    /// For each parameter, for each position, log2 of a positive value (0 for anything else).
    logs: Vec<Vec<f64>>,
    /// Pairs of parameters of which sum and difference of the logs are features.
    pairs: Vec<(usize, usize)>,
    names: Vec<String>,
}

impl Features {
    /// The features of `space`.
    pub fn of(space: &ParameterSpace) -> Features {
        let mut names = Vec::new();
        let tables = space.params().iter().map(|param| table(&param.name, &param.values, &mut names)).collect();
        let logs = space.params().iter().map(|param| param.values.iter().map(log2).collect()).collect();
        let numeric = |at: &usize| {
            let ints = |value: &&Value| matches!(value, Value::Int(value) if *value > 0);
            space.params()[*at].values.iter().filter(ints).count() > 2
        };
        let mut pairs = BTreeSet::new();
        for constraint in space.constraints() {
            let Ok(expr) = Expr::parse(&constraint.text) else { continue };
            let used: BTreeSet<usize> =
                expr.params().into_iter().filter_map(|name| space.position(name)).filter(numeric).collect();
            pairs.extend(used.iter().flat_map(|&a| used.range(a + 1..).map(move |&b| (a, b))));
        }
        let pairs: Vec<(usize, usize)> = pairs.into_iter().take(MAX_PAIRS).collect();
        for &(a, b) in &pairs {
            let (a, b) = (&space.params()[a].name, &space.params()[b].name);
            names.extend([format!("log2({a} * {b})"), format!("log2({a} / {b})")]);
        }
        Features { tables, logs, pairs, names }
    }

    /// What each feature is, in order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The features of `config`, all finite.
    ///
    /// # Panics
    /// When `config` does not fit the space.
    pub fn row(&self, config: &Config) -> Vec<f64> {
        let mut row = Vec::with_capacity(self.names.len());
        for (table, &position) in self.tables.iter().zip(config.iter()) {
            row.extend_from_slice(&table[usize::from(position)]);
        }
        for &(a, b) in &self.pairs {
            let (x, y) = (self.logs[a][usize::from(config[a])], self.logs[b][usize::from(config[b])]);
            row.extend([x + y, x - y]);
        }
        row
    }
}

fn log2(value: &Value) -> f64 {
    match value {
        Value::Int(value) if *value > 0 => (*value as f64).log2(),
        _ => 0.0,
    }
}

/// The numbers each value of a parameter contributes; their names are appended to `names`.
fn table(name: &str, values: &[Value], names: &mut Vec<String>) -> Vec<Vec<f64>> {
    let mut table = vec![Vec::new(); values.len()];
    let mut column = |name: String, of: &dyn Fn(&Value) -> f64| {
        names.push(name);
        table.iter_mut().zip(values).for_each(|(row, value)| row.push(of(value)));
    };
    let ints: BTreeSet<i64> =
        values.iter().filter_map(|value| if let Value::Int(value) = value { Some(*value) } else { None }).collect();
    // One value says nothing, two are told apart by one column.
    if ints.len() > 1 || (ints.len() == 1 && values.len() > 1) {
        let positive = ints.first().is_some_and(|&least| least > 0);
        column(if positive { format!("log2({name})") } else { name.into() }, &|value| match value {
            Value::Int(value) if positive => (*value as f64).log2(),
            Value::Int(value) => *value as f64,
            // Below every number.
            Value::Name(_) => ints.first().map_or(0.0, |&least| if positive { -1.0 } else { least as f64 - 1.0 }),
        });
        let power = |value: i64| f64::from(value.trailing_zeros().min(63));
        let powers: Vec<f64> = ints.iter().filter(|&&value| value != 0).map(|&value| power(value)).collect();
        if powers.windows(2).any(|pair| pair[0] > pair[1]) {
            column(format!("power of two in {name}"), &|value| match value {
                Value::Int(value) if *value != 0 => power(*value),
                _ => 0.0,
            });
        }
    }
    let words: Vec<&Value> = values.iter().filter(|value| matches!(value, Value::Name(_))).collect();
    // The first of several names needs no column: it is where all others are 0.
    for word in words.iter().skip(usize::from(ints.is_empty())) {
        column(format!("{name} is {word}"), &|value| f64::from(u8::from(value == *word)));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use search_space::space::SpaceBuilder;

    #[test]
    fn names_say_what_the_numbers_are() {
        let space = SpaceBuilder::new()
            .param("mc", [8, 12, 16])
            .param("kc", [1, 2, 4])
            .param("one", [7])
            .names("order", &["x", "y", "z"])
            .values("grain", vec!["-".into(), 1.into(), 4.into()])
            .require("cache", "mc * kc <= 1000")
            .build()
            .unwrap();
        let features = Features::of(&space);
        assert_eq!(
            features.names(),
            [
                "log2(mc)",
                "power of two in mc",
                "log2(kc)",
                "order is y",
                "order is z",
                "log2(grain)",
                "grain is -",
                "log2(mc * kc)",
                "log2(mc / kc)"
            ]
        );
        assert_eq!(features.row(&vec![0, 2, 0, 2, 0].into()), [3.0, 3.0, 2.0, 0.0, 1.0, -1.0, 1.0, 5.0, 1.0]);
        assert_eq!(features.row(&vec![2, 0, 0, 0, 2].into()), [4.0, 4.0, 0.0, 0.0, 0.0, 2.0, 0.0, 4.0, 4.0]);
    }

    #[test]
    fn any_domain_gives_finite_numbers() {
        let space = SpaceBuilder::new()
            .param("negative", [i64::MIN, -1, 0, 3])
            .param("large", [1, i64::MAX])
            .names("only", &["-"])
            .build()
            .unwrap();
        let features = Features::of(&space);
        for rank in 0..space.count() {
            let row = features.row(&space.unrank(rank).unwrap());
            assert_eq!(row.len(), features.names().len());
            assert!(row.iter().all(|number| number.is_finite()), "{row:?}");
        }
    }
}
