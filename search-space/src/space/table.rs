//! A space given by its configurations, one by one: the diagram of a table.
//!
//! The sorted rows are the paths of a prefix tree, whose nodes are the layers of a diagram before reduction
//! ([`super::diagram`]); reduction then merges equal tails. Nothing is compiled, so the rows may be any set.

use super::Parameter;
use super::budget::Budget;
use super::builder::SpaceError;
use super::diagram::{Diagram, Failure, Layer, reduce};
use super::set;

/// What [`super::ParameterSpace::why`] answers for a configuration that satisfies every constraint but is not listed.
pub(super) const TABLE: &str = "table";

/// The diagram whose members are exactly `rows`, its levels in order of declaration.
pub(super) fn diagram(
    params: &[Parameter],
    rows: &[Vec<u16>],
    limit: usize,
    budget: &Budget,
) -> Result<Diagram, SpaceError> {
    check(params, rows, limit)?;
    let mut rows: Vec<&[u16]> = rows.iter().map(Vec::as_slice).collect();
    rows.sort_unstable();
    // How many positions each row shares with the one before; `None` for the first.
    let mut shared: Vec<Option<usize>> = vec![None];
    for pair in rows.windows(2) {
        match pair[0].iter().zip(pair[1]).position(|(a, b)| a != b) {
            Some(first) => shared.push(Some(first)),
            None => return Err(SpaceError::DuplicateRow { row: text(params, pair[1]) }),
        }
    }
    // From the last level up, one at a time: all of them take more than the rows.
    let levels = params.iter().enumerate().rev();
    let layers = levels.map(|(level, param)| layer(param, level, params.len(), &rows, &shared, budget));
    let order = (0u16..).take(params.len()).collect();
    match reduce(order, layers, budget) {
        Ok(diagram) => Ok(diagram),
        Err(Failure::TooWide(_)) => Err(SpaceError::TableTooWide { rows: rows.len(), limit: budget.passed(limit) }),
        Err(Failure::CountOverflow | Failure::Empty) => {
            unreachable!("invariant: every row reaches the end, and a table in memory has fewer than 2^128 rows")
        }
    }
}

/// The edges from the distinct prefixes of length `level` to those one longer, both numbered in sorted order.
fn layer(
    param: &Parameter,
    level: usize,
    levels: usize,
    rows: &[&[u16]],
    shared: &[Option<usize>],
    budget: &Budget,
) -> Layer {
    let mut layer = Layer::new(param.values.len());
    let mut words = vec![0; layer.sets.stride()];
    let mut next = 0u32;
    for (row, shared) in rows.iter().zip(shared) {
        if shared.is_none_or(|shared| shared < level) {
            layer.begin();
        }
        if shared.is_none_or(|shared| shared <= level) {
            words.fill(0);
            set::insert(&mut words, row[level]);
            // All rows end at the one state of the end.
            layer.lead(if level + 1 == levels { 0 } else { next }, &words, budget);
            next += 1;
        }
    }
    layer
}

fn check(params: &[Parameter], rows: &[Vec<u16>], limit: usize) -> Result<(), SpaceError> {
    if rows.is_empty() {
        return Err(SpaceError::EmptyTable);
    }
    if rows.len() > limit {
        return Err(SpaceError::TableTooLarge { rows: rows.len(), limit });
    }
    for (row, positions) in rows.iter().enumerate() {
        if positions.len() != params.len() {
            return Err(SpaceError::RowLength { row, found: positions.len(), wanted: params.len() });
        }
        let outside = params.iter().zip(positions).find(|(param, at)| usize::from(**at) >= param.values.len());
        if let Some((param, &position)) = outside {
            let (parameter, count) = (param.name.clone(), param.values.len());
            return Err(SpaceError::RowOutsideDomain { row, parameter, position, count });
        }
    }
    Ok(())
}

fn text(params: &[Parameter], row: &[u16]) -> String {
    let value = |(param, &at): (&Parameter, &u16)| format!("{}={}", param.name, param.values[usize::from(at)]);
    params.iter().zip(row).map(value).collect::<Vec<_>>().join(" ")
}
