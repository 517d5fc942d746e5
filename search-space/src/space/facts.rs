//! What is known of a residual whatever the values of its parameters: which it mentions, and the interval of its integer
//! values.

use super::expr::Arith;
use super::residual::{Arena, Atom, Id, Node};

/// What is known of a node whatever the values of its parameters.
#[derive(Clone, Copy)]
pub(super) struct Facts {
    /// Bit `p`: mentions parameter `p`.
    pub(super) support: u128,
    /// Range of the integer values.
    pub(super) lo: i128,
    pub(super) hi: i128,
    /// Surely an integer.
    pub(super) integer: bool,
    /// May be a name.
    pub(super) name: bool,
}

impl Facts {
    fn int(lo: i128, hi: i128, integer: bool, support: u128) -> Facts {
        Facts { support, lo, hi, integer, name: false }
    }
}

impl Arena {
    /// The facts of `node`, whose parts are in the arena.
    pub(super) fn facts_of(&self, node: &Node) -> Facts {
        let of = |id: &Id| self.facts[*id as usize];
        let condition = |support: u128| Facts::int(0, 0, false, support);
        match node {
            Node::False | Node::True => condition(0),
            Node::Member(param, _) => condition(1 << param),
            Node::AtLeastZero(a) | Node::Zero(a) | Node::NonZero(a) | Node::Not(a) => condition(of(a).support),
            Node::Same(a, b) | Node::Differ(a, b) => condition(of(a).support | of(b).support),
            Node::All(parts) | Node::Any(parts) => {
                condition(parts.iter().fold(0, |support, part| support | of(part).support))
            }
            Node::Undefined => Facts::int(0, 0, false, 0),
            Node::Atom(Atom::Int(value)) => Facts::int(*value, *value, true, 0),
            Node::Atom(Atom::Name(_)) => Facts { name: true, ..Facts::int(0, 0, false, 0) },
            Node::Param(param) => {
                let domain = &self.domains[usize::from(*param)];
                let ints = || domain.iter().filter_map(|atom| if let Atom::Int(v) = atom { Some(*v) } else { None });
                let name = domain.iter().any(|atom| matches!(atom, Atom::Name(_)));
                let (lo, hi) = (ints().min().unwrap_or(0), ints().max().unwrap_or(0));
                Facts { name, ..Facts::int(lo, hi, !name, 1 << param) }
            }
            Node::Sum(constant, terms) => {
                terms.iter().fold(Facts::int(*constant, *constant, true, 0), |sum, (coefficient, term)| {
                    let Facts { lo, hi, integer, support, .. } = of(term);
                    let (lo, hi) = if *coefficient < 0 { (hi, lo) } else { (lo, hi) };
                    Facts::int(
                        sum.lo + coefficient * lo,
                        sum.hi + coefficient * hi,
                        sum.integer && integer,
                        sum.support | support,
                    )
                })
            }
            Node::Product(factors) => factors.iter().fold(Facts::int(1, 1, true, 0), |product, factor| {
                let Facts { lo, hi, integer, support, .. } = of(factor);
                let corners = [product.lo * lo, product.lo * hi, product.hi * lo, product.hi * hi];
                let (lo, hi) = range(corners);
                Facts::int(lo, hi, product.integer && integer, product.support | support)
            }),
            Node::Op(op, a, b) => {
                let (a, b) = (of(a), of(b));
                let support = a.support | b.support;
                let integer = a.integer && b.integer;
                let no_zero = b.lo > 0 || b.hi < 0;
                match op {
                    Arith::Min => Facts::int(a.lo.min(b.lo), a.hi.min(b.hi), integer, support),
                    Arith::Max => Facts::int(a.lo.max(b.lo), a.hi.max(b.hi), integer, support),
                    Arith::Mod => Facts::int((b.lo + 1).min(0), (b.hi - 1).max(0), integer && no_zero, support),
                    // With a divisor of one sign the quotient is monotone in both, so the corners bound it.
                    _ if no_zero => {
                        let at = |x, y| op.apply(x, y).expect("invariant: the divisor is not zero");
                        let (lo, hi) = range([at(a.lo, b.lo), at(a.lo, b.hi), at(a.hi, b.lo), at(a.hi, b.hi)]);
                        Facts::int(lo, hi, integer, support)
                    }
                    _ => {
                        let most = a.lo.abs().max(a.hi.abs());
                        Facts::int(-most, most, false, support)
                    }
                }
            }
        }
    }
}

fn range(corners: [i128; 4]) -> (i128, i128) {
    corners[1..].iter().fold((corners[0], corners[0]), |(lo, hi), &corner| (lo.min(corner), hi.max(corner)))
}
