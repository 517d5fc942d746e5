//! Which parameters belong together, and in which order a diagram asks for them.
//!
//! A diagram is as wide as the number of different residuals after a prefix. That number is bounded by the values of the
//! *frontier*: assigned parameters that still share a constraint with an unassigned one; and by what the constraints that
//! cross the cut can still say about the unassigned side. The order is grown greedily from each possible first
//! parameter, always taking the parameter after which the bound is smallest, and the start with the smallest sum of
//! bounds wins. (Min-fill bounds tree width; the diagram is a path, so the vertex separation is what counts.)

/// Groups of parameters connected by constraints, each in the order of its diagram. `supports` has one bit per
/// parameter for each constraint; `sizes` are the domain sizes.
pub(super) fn components(supports: &[u128], sizes: &[usize]) -> Vec<Vec<u16>> {
    let mut left: u128 = if sizes.len() < 128 { (1 << sizes.len()) - 1 } else { u128::MAX };
    let mut groups = Vec::new();
    while left != 0 {
        let mut group = 1u128 << left.trailing_zeros();
        loop {
            let grown =
                supports.iter().filter(|&&support| support & group != 0).fold(group, |group, support| group | support);
            if grown == group {
                break;
            }
            group = grown;
        }
        left &= !group;
        let inside: Vec<u128> = supports.iter().copied().filter(|support| support & group != 0).collect();
        groups.push(order(group, &inside, sizes));
    }
    groups
}

/// Starts tried for one component; more would cost more than the better order saves.
const MAX_STARTS: usize = 24;

/// Bounds evaluated for one component, times its constraints: a second of work. With more constraints than allow a single
/// start, the order is that of declaration.
const MAX_BOUNDS: usize = 20_000_000;

fn order(group: u128, supports: &[u128], sizes: &[usize]) -> Vec<u16> {
    let members = || (0u16..128).filter(move |p| group >> p & 1 == 1);
    let logs: Vec<f64> = sizes.iter().map(|&size| (size as f64).ln()).collect();
    let levels = members().count();
    let bounds = (levels * levels / 2 * supports.len()).max(1);
    if bounds > MAX_BOUNDS {
        return members().collect();
    }
    members()
        .take(MAX_STARTS.min(MAX_BOUNDS / bounds))
        .map(|first| {
            let (mut done, mut order) = (1u128 << first, vec![first]);
            let mut total = width(done, supports, &logs).exp();
            while done != group {
                let next = members()
                    .filter(|p| done >> p & 1 == 0)
                    .map(|p| (width(done | 1 << p, supports, &logs), p))
                    .min_by(|a, b| a.0.total_cmp(&b.0))
                    .expect("invariant: the group is not complete");
                total += next.0.exp();
                done |= 1 << next.1;
                order.push(next.1);
            }
            (total, order)
        })
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, order)| order)
        .expect("invariant: a group has a member")
}

/// The parameters of `mask` in rising order.
fn bits(mask: u128) -> impl Iterator<Item = u16> {
    let mut left = mask;
    std::iter::from_fn(move || {
        let next = u16::try_from(left.trailing_zeros()).expect("invariant: at most 128");
        (left != 0).then(|| {
            left &= left - 1;
            next
        })
    })
}

/// Logarithm of a bound on the number of residuals after the parameters of `done`.
fn width(done: u128, supports: &[u128], logs: &[f64]) -> f64 {
    let sum = |mask: u128| bits(mask).map(|p| logs[usize::from(p)]).sum::<f64>();
    let crossing = supports.iter().filter(|&&support| support & done != 0 && support & !done != 0);
    let frontier = crossing.clone().fold(0, |frontier, support| frontier | (support & done));
    // A threshold over what is left can fall between any two of its values.
    let said: f64 = crossing.map(|&support| sum(support & done).min(sum(support & !done).exp().ln_1p())).sum();
    sum(frontier).min(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_are_walked_along_and_strangers_kept_apart() {
        // 0-2, 2-1, 1-4 form a chain; 3 stands alone.
        let groups = components(&[0b101, 0b110, 0b10010], &[10; 5]);
        assert_eq!(groups.len(), 2);
        assert!(groups[0] == [0, 2, 1, 4] || groups[0] == [4, 1, 2, 0], "{groups:?}");
        assert_eq!(groups[1], [3]);
    }
}
