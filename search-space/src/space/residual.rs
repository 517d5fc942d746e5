//! Residual constraints: a constraint of which some parameters are already known, in normal form.
//!
//! Terms and conditions live in an arena in which equal nodes are stored once, so equality is equality of ids. The
//! normal form makes many prefixes meet in one residual long before they are enumerated:
//!
//! - sums are flat and sorted, constants collected, equal terms merged; products are flat and sorted, their constants
//!   moved into the sum;
//! - comparisons are `sum >= 0`, `sum == 0` or `sum != 0`, divided by the gcd of the coefficients;
//! - interval arithmetic decides what it can;
//! - a condition on **one** parameter is the set of values that satisfy it, however it was written.
//!
//! Undefined terms (see [`super::expr`]) restrict the algebra: a term may be cancelled only when it is surely an integer.
//! Integers here never overflow: the builder refuses constraints whose terms could exceed 2^100 in any order of
//! evaluation.

use std::rc::Rc;

use super::budget::Budget;
use super::expr::{Arith, Compare, Expr};
use super::facts::Facts;
use super::hash::FastMap;
use super::set::{self, SetTable};

/// Position of a node in the arena.
pub(super) type Id = u32;

/// The condition that never holds.
pub(super) const FALSE: Id = 0;
/// The condition that always holds.
pub(super) const TRUE: Id = 1;

/// A defined value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Atom {
    Int(i128),
    /// A name, numbered per space.
    Name(u32),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Node {
    False,
    True,
    /// The parameter's position is in the set.
    Member(u16, u32),
    AtLeastZero(Id),
    Zero(Id),
    NonZero(Id),
    /// Equality of terms of which at least one may be a name.
    Same(Id, Id),
    Differ(Id, Id),
    Not(Id),
    All(Rc<[Id]>),
    Any(Rc<[Id]>),
    Undefined,
    Atom(Atom),
    Param(u16),
    /// `constant + Σ coefficient × term`; every term undefined-able stays, even with coefficient 0.
    Sum(i128, Rc<[(i128, Id)]>),
    Product(Rc<[Id]>),
    Op(Arith, Id, Id),
}

/// Bytes that a node takes besides its list: in the arena, among the facts, and as a key; half of each is spare.
const NODE_BYTES: usize = 3 * size_of::<Node>() + 2 * size_of::<Facts>();

/// Steps that looking a node up takes: in a large arena it waits for memory several times.
const INTERN_STEPS: usize = 32;

impl Node {
    /// Bytes of its list.
    fn list_bytes(&self) -> usize {
        match self {
            Node::All(parts) | Node::Any(parts) | Node::Product(parts) => size_of_val::<[Id]>(parts),
            Node::Sum(_, terms) => size_of_val::<[(i128, Id)]>(terms),
            _ => 0,
        }
    }
}

/// All residuals of one space.
pub(super) struct Arena {
    nodes: Vec<Node>,
    pub(super) facts: Vec<Facts>,
    index: FastMap<Node, Id>,
    /// Values of each parameter.
    pub(super) domains: Vec<Vec<Atom>>,
    /// Sets of positions of each parameter.
    pub(super) sets: Vec<SetTable>,
    /// What it may cost. Once it is spent, conditions are no longer evaluated and results mean nothing, so whoever asks for
    /// one looks here before using it.
    pub(super) budget: Budget,
}

impl Arena {
    /// An arena over parameters with these domains.
    pub(super) fn new(domains: Vec<Vec<Atom>>, budget: Budget) -> Arena {
        let sets = domains.iter().map(|domain| SetTable::new(domain.len())).collect();
        let (nodes, facts, index) = (Vec::new(), Vec::new(), FastMap::default());
        let mut arena = Arena { nodes, facts, index, domains, sets, budget };
        arena.intern(Node::False);
        arena.intern(Node::True);
        arena
    }

    /// How many nodes there are.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The node `id`.
    pub(super) fn node(&self, id: Id) -> &Node {
        &self.nodes[id as usize]
    }

    /// Bit `p` is set when `id` mentions parameter `p`.
    pub(super) fn support(&self, id: Id) -> u128 {
        self.facts[id as usize].support
    }

    /// Domain size of a parameter.
    pub(super) fn domain(&self, param: u16) -> u16 {
        u16::try_from(self.domains[usize::from(param)].len()).expect("invariant: the builder limits domains to u16")
    }

    /// Reads an expression whose parameters `param_of` numbers and whose names `name_of` numbers.
    pub(super) fn read(
        &mut self,
        expr: &Expr,
        param_of: &impl Fn(&str) -> u16,
        name_of: &mut impl FnMut(&str) -> u32,
    ) -> Id {
        match expr {
            Expr::Int(value) => self.intern(Node::Atom(Atom::Int(i128::from(*value)))),
            Expr::Name(name) => {
                let name = name_of(name);
                self.intern(Node::Atom(Atom::Name(name)))
            }
            Expr::Param(name) => self.intern(Node::Param(param_of(name))),
            Expr::Arith(op, a, b) => {
                let (a, b) = (self.read(a, param_of, name_of), self.read(b, param_of, name_of));
                self.arith(*op, a, b)
            }
            Expr::Compare(compare, a, b) => {
                let (a, b) = (self.read(a, param_of, name_of), self.read(b, param_of, name_of));
                self.compare(*compare, a, b)
            }
            Expr::In(a, list) => {
                let a = self.read(a, param_of, name_of);
                let mut any = Vec::with_capacity(list.len());
                for item in list {
                    let item = self.read(item, param_of, name_of);
                    any.push(self.compare(Compare::Eq, a, item));
                }
                self.join(any, false)
            }
            Expr::Not(a) => {
                let a = self.read(a, param_of, name_of);
                self.not(a)
            }
            Expr::And(a, b) => {
                let parts = vec![self.read(a, param_of, name_of), self.read(b, param_of, name_of)];
                self.join(parts, true)
            }
            Expr::Or(a, b) => {
                let parts = vec![self.read(a, param_of, name_of), self.read(b, param_of, name_of)];
                self.join(parts, false)
            }
            Expr::Implies(a, b) => {
                let a = self.read(a, param_of, name_of);
                let parts = vec![self.not(a), self.read(b, param_of, name_of)];
                self.join(parts, false)
            }
        }
    }

    /// `id` with parameter `param` set to its value at `position`.
    pub(super) fn substitute(&mut self, id: Id, param: u16, position: u16) -> Id {
        self.budget.step(1);
        if self.support(id) >> param & 1 == 0 {
            return id;
        }
        match self.nodes[id as usize].clone() {
            Node::False | Node::True | Node::Undefined | Node::Atom(_) => id,
            Node::Param(_) => self.intern(Node::Atom(self.domains[usize::from(param)][usize::from(position)])),
            Node::Member(_, set) => {
                if self.sets[usize::from(param)].contains(set, position) {
                    TRUE
                } else {
                    FALSE
                }
            }
            Node::Sum(constant, terms) => {
                let terms = terms.iter().map(|&(c, t)| (c, self.substitute(t, param, position))).collect();
                self.sum(constant, terms)
            }
            Node::Product(factors) => {
                let mut product = self.intern(Node::Atom(Atom::Int(1)));
                for &factor in factors.iter() {
                    let factor = self.substitute(factor, param, position);
                    product = self.arith(Arith::Mul, product, factor);
                }
                product
            }
            Node::Op(op, a, b) => {
                let (a, b) = (self.substitute(a, param, position), self.substitute(b, param, position));
                self.arith(op, a, b)
            }
            Node::AtLeastZero(a) => {
                let a = self.substitute(a, param, position);
                self.against_zero(Node::AtLeastZero, a)
            }
            Node::Zero(a) => {
                let a = self.substitute(a, param, position);
                self.against_zero(Node::Zero, a)
            }
            Node::NonZero(a) => {
                let a = self.substitute(a, param, position);
                self.against_zero(Node::NonZero, a)
            }
            Node::Same(a, b) => {
                let (a, b) = (self.substitute(a, param, position), self.substitute(b, param, position));
                self.compare(Compare::Eq, a, b)
            }
            Node::Differ(a, b) => {
                let (a, b) = (self.substitute(a, param, position), self.substitute(b, param, position));
                self.compare(Compare::Ne, a, b)
            }
            Node::Not(a) => {
                let a = self.substitute(a, param, position);
                self.not(a)
            }
            Node::All(parts) => {
                let parts = parts.iter().map(|&part| self.substitute(part, param, position)).collect();
                self.join(parts, true)
            }
            Node::Any(parts) => {
                let parts = parts.iter().map(|&part| self.substitute(part, param, position)).collect();
                self.join(parts, false)
            }
        }
    }

    fn intern(&mut self, node: Node) -> Id {
        self.budget.step(INTERN_STEPS + node.list_bytes() / 8);
        if let Some(&id) = self.index.get(&node) {
            return id;
        }
        let id = Id::try_from(self.nodes.len()).expect("invariant: the node limit keeps the arena below 2^32");
        self.budget.keep(NODE_BYTES + node.list_bytes());
        self.facts.push(self.facts_of(&node));
        self.nodes.push(node.clone());
        self.index.insert(node, id);
        id
    }

    /// A condition: decided when it has no parameter, a set when it has one.
    fn condition(&mut self, node: Node) -> Id {
        let support = self.facts_of(&node).support;
        match support.count_ones() {
            0 => {
                if self.holds(&node, 0) {
                    TRUE
                } else {
                    FALSE
                }
            }
            1 => {
                let param = u16::try_from(support.trailing_zeros()).expect("invariant: at most 127");
                let mut words = vec![0; self.sets[usize::from(param)].stride()];
                for position in 0..self.domain(param) {
                    if self.budget.spent() {
                        return FALSE;
                    }
                    if self.holds(&node, position) {
                        set::insert(&mut words, position);
                    }
                }
                self.member(param, &words)
            }
            _ => self.intern(node),
        }
    }

    fn member(&mut self, param: u16, words: &[u64]) -> Id {
        let table = &mut self.sets[usize::from(param)];
        let set = table.intern_within(words, &self.budget);
        match table.size(set) {
            0 => FALSE,
            size if size == u32::from(self.domain(param)) => TRUE,
            _ => self.intern(Node::Member(param, set)),
        }
    }

    fn not(&mut self, a: Id) -> Id {
        match self.nodes[a as usize] {
            Node::False => TRUE,
            Node::True => FALSE,
            Node::Not(inner) => inner,
            _ => self.condition(Node::Not(a)),
        }
    }

    /// Conjunction (`all`) or disjunction of `parts`. Sets of one parameter become one set.
    fn join(&mut self, parts: Vec<Id>, all: bool) -> Id {
        let (neutral, absorbing) = if all { (TRUE, FALSE) } else { (FALSE, TRUE) };
        let mut flat = Vec::with_capacity(parts.len());
        for part in parts {
            match &self.nodes[part as usize] {
                Node::All(inner) if all => flat.extend_from_slice(inner),
                Node::Any(inner) if !all => flat.extend_from_slice(inner),
                _ => flat.push(part),
            }
        }
        self.budget.step(flat.len());
        let mut sets: Vec<(u16, Vec<u64>)> = Vec::new();
        flat.retain(|&part| match self.nodes[part as usize] {
            Node::Member(param, set) => {
                let words = self.sets[usize::from(param)].words(set);
                self.budget.step(words.len());
                match sets.iter_mut().find(|(other, _)| *other == param) {
                    Some((_, known)) => known
                        .iter_mut()
                        .zip(words)
                        .for_each(|(known, &word)| if all { *known &= word } else { *known |= word }),
                    None => sets.push((param, words.to_vec())),
                }
                false
            }
            _ => true,
        });
        for (param, words) in sets {
            let member = self.member(param, &words);
            flat.push(member);
        }
        if flat.contains(&absorbing) {
            return absorbing;
        }
        flat.retain(|&part| part != neutral);
        flat.sort_unstable();
        flat.dedup();
        match flat[..] {
            [] => neutral,
            [only] => only,
            _ => self.intern(if all { Node::All(flat.into()) } else { Node::Any(flat.into()) }),
        }
    }

    fn compare(&mut self, compare: Compare, a: Id, b: Id) -> Id {
        let facts = [self.facts[a as usize], self.facts[b as usize]];
        match compare {
            Compare::Eq if facts.iter().all(|facts| facts.name) => self.condition(Node::Same(a.min(b), a.max(b))),
            Compare::Ne if facts.iter().any(|facts| facts.name) => self.condition(Node::Differ(a.min(b), a.max(b))),
            Compare::Eq | Compare::Ne => {
                let difference = self.sum(0, vec![(1, a), (-1, b)]);
                self.against_zero(if compare == Compare::Eq { Node::Zero } else { Node::NonZero }, difference)
            }
            Compare::Lt | Compare::Le | Compare::Gt | Compare::Ge => {
                let sign = if matches!(compare, Compare::Gt | Compare::Ge) { 1 } else { -1 };
                let strict = i128::from(matches!(compare, Compare::Lt | Compare::Gt));
                let difference = self.sum(-strict, vec![(sign, a), (-sign, b)]);
                self.against_zero(Node::AtLeastZero, difference)
            }
        }
    }

    /// Compares a term with zero after dividing by the gcd of its coefficients.
    fn against_zero(&mut self, kind: fn(Id) -> Node, term: Id) -> Id {
        let at_least = kind(0) == Node::AtLeastZero(0);
        let mut term = term;
        if let Node::Sum(constant, terms) = &self.nodes[term as usize] {
            let divisor = terms.iter().fold(0, |gcd, &(coefficient, _)| gcd_of(gcd, coefficient));
            let flip = !at_least && terms.iter().find(|(c, _)| *c != 0).is_some_and(|(c, _)| *c < 0);
            if divisor > 1 || flip {
                let divisor = divisor.max(1);
                if !at_least && constant % divisor != 0 {
                    // Never zero where it is defined; undefined makes the comparison false.
                    let integer = self.facts[term as usize].integer;
                    match kind(0) {
                        Node::Zero(_) => return FALSE,
                        _ if integer => return TRUE,
                        _ => return self.condition(kind(term)),
                    }
                }
                let sign = if flip { -1 } else { 1 };
                // For integers, `c + g·s >= 0` and `floor(c / g) + s >= 0` are the same.
                let constant = sign * constant.div_euclid(divisor);
                let terms = terms.iter().map(|&(c, t)| (sign * c / divisor, t)).collect();
                term = self.sum(constant, terms);
            }
        }
        let Facts { lo, hi, integer, .. } = self.facts[term as usize];
        let node = kind(term);
        let (never, always) = match node {
            Node::AtLeastZero(_) => (hi < 0, lo >= 0),
            Node::Zero(_) => (lo > 0 || hi < 0, lo == 0 && hi == 0),
            _ => (lo == 0 && hi == 0, lo > 0 || hi < 0),
        };
        if never {
            FALSE
        } else if always && integer {
            TRUE
        } else {
            self.condition(node)
        }
    }

    fn arith(&mut self, op: Arith, a: Id, b: Id) -> Id {
        let undefined = |node: &Node| matches!(node, Node::Undefined | Node::Atom(Atom::Name(_)));
        if undefined(self.node(a)) || undefined(self.node(b)) {
            return self.intern(Node::Undefined);
        }
        if let (&Node::Atom(Atom::Int(a)), &Node::Atom(Atom::Int(b))) = (self.node(a), self.node(b)) {
            let value = op.apply(a, b).map_or(Node::Undefined, |value| Node::Atom(Atom::Int(value)));
            return self.intern(value);
        }
        let (x, y) = (self.facts[a as usize], self.facts[b as usize]);
        let integers = x.integer && y.integer;
        match op {
            Arith::Add => self.sum(0, vec![(1, a), (1, b)]),
            Arith::Sub => self.sum(0, vec![(1, a), (-1, b)]),
            Arith::Mul => self.product(a, b),
            Arith::Min | Arith::Max if integers && (x.hi <= y.lo || x.lo >= y.hi) => {
                if (x.hi <= y.lo) == (op == Arith::Min) { a } else { b }
            }
            Arith::Mod if integers && x.lo >= 0 && x.hi < y.lo => a,
            Arith::Div if integers && x.lo >= 0 && x.hi < y.lo => self.intern(Node::Atom(Atom::Int(0))),
            // As a sum, because `a` itself may be a name and the quotient is not.
            Arith::Div | Arith::CeilDiv if y.integer && y.lo == 1 && y.hi == 1 => self.sum(0, vec![(1, a)]),
            Arith::Min | Arith::Max => self.intern(Node::Op(op, a.min(b), a.max(b))),
            Arith::Div | Arith::Mod | Arith::CeilDiv => self.intern(Node::Op(op, a, b)),
        }
    }

    fn product(&mut self, a: Id, b: Id) -> Id {
        for (constant, other) in [(a, b), (b, a)] {
            if let Node::Atom(Atom::Int(constant)) = *self.node(constant) {
                return self.sum(0, vec![(constant, other)]);
            }
        }
        // A single scaled term gives its coefficient to the sum around the product.
        let mut coefficient = 1;
        let mut factors = Vec::new();
        for side in [a, b] {
            let bare = match self.node(side) {
                Node::Sum(0, terms) if terms.len() == 1 => {
                    coefficient *= terms[0].0;
                    terms[0].1
                }
                _ => side,
            };
            match self.node(bare) {
                Node::Product(inner) => factors.extend_from_slice(inner),
                _ => factors.push(bare),
            }
        }
        self.budget.step(factors.len());
        factors.sort_unstable();
        let product = self.intern(Node::Product(factors.into()));
        self.sum(0, vec![(coefficient, product)])
    }

    fn sum(&mut self, constant: i128, terms: Vec<(i128, Id)>) -> Id {
        let mut total = constant;
        let mut flat: Vec<(i128, Id)> = Vec::with_capacity(terms.len());
        for (coefficient, term) in terms {
            match self.node(term) {
                Node::Undefined | Node::Atom(Atom::Name(_)) => return self.intern(Node::Undefined),
                Node::Atom(Atom::Int(value)) => total += coefficient * value,
                Node::Sum(inner, inner_terms) => {
                    total += coefficient * inner;
                    flat.extend(inner_terms.iter().map(|&(c, t)| (coefficient * c, t)));
                }
                _ => flat.push((coefficient, term)),
            }
        }
        self.budget.step(4 * flat.len());
        flat.sort_unstable_by_key(|&(_, term)| term);
        flat.dedup_by(|(c, term), (kept, kept_term)| {
            let same = term == kept_term;
            if same {
                *kept += *c;
            }
            same
        });
        flat.retain(|&(coefficient, term)| coefficient != 0 || !self.facts[term as usize].integer);
        match flat[..] {
            [] => self.intern(Node::Atom(Atom::Int(total))),
            // A parameter that may be a name is not the same as a sum of it, which is undefined then.
            [(1, term)] if total == 0 && !self.facts[term as usize].name => term,
            _ => self.intern(Node::Sum(total, flat.into())),
        }
    }

    /// Whether a condition of at most one parameter holds when that parameter is at `position`.
    fn holds(&self, node: &Node, position: u16) -> bool {
        self.budget.step(1);
        let part = |id: &Id| self.holds(self.node(*id), position);
        let term = |id: &Id| self.term(self.node(*id), position);
        let int = |id: &Id| term(id).and_then(|atom| if let Atom::Int(value) = atom { Some(value) } else { None });
        match node {
            Node::True => true,
            Node::Member(param, set) => self.sets[usize::from(*param)].contains(*set, position),
            Node::AtLeastZero(a) => int(a).is_some_and(|value| value >= 0),
            Node::Zero(a) => int(a) == Some(0),
            Node::NonZero(a) => int(a).is_some_and(|value| value != 0),
            Node::Same(a, b) => term(a).is_some_and(|a| Some(a) == term(b)),
            Node::Differ(a, b) => term(a).is_some_and(|a| term(b).is_some_and(|b| a != b)),
            Node::Not(a) => !part(a),
            Node::All(parts) => parts.iter().all(part),
            Node::Any(parts) => parts.iter().any(part),
            _ => false,
        }
    }

    fn term(&self, node: &Node, position: u16) -> Option<Atom> {
        self.budget.step(1);
        let int = |id: &Id| match self.term(self.node(*id), position) {
            Some(Atom::Int(value)) => Some(value),
            _ => None,
        };
        match node {
            Node::Atom(atom) => Some(*atom),
            Node::Param(param) => Some(self.domains[usize::from(*param)][usize::from(position)]),
            Node::Sum(constant, terms) => terms
                .iter()
                .try_fold(*constant, |sum, (coefficient, term)| Some(sum + coefficient * int(term)?))
                .map(Atom::Int),
            Node::Product(factors) => {
                factors.iter().try_fold(1, |product, factor| Some(product * int(factor)?)).map(Atom::Int)
            }
            Node::Op(op, a, b) => op.apply(int(a)?, int(b)?).map(Atom::Int),
            _ => None,
        }
    }
}

fn gcd_of(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a.abs(), b.abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parameters `a`, `b`, `c` over 1..=8, and `d` over `-`, 1, 2.
    fn arena() -> Arena {
        let ints = || (1..=8).map(Atom::Int).collect::<Vec<_>>();
        Arena::new(vec![ints(), ints(), ints(), vec![Atom::Name(0), Atom::Int(1), Atom::Int(2)]], Budget::new(None))
    }

    fn read(arena: &mut Arena, text: &str) -> Id {
        let param = |name: &str| u16::from(name.as_bytes()[0] - b'a');
        arena.read(&Expr::parse(text).unwrap(), &param, &mut |name| u32::from(name != "-"))
    }

    #[test]
    fn equal_meanings_meet() {
        let mut arena = arena();
        for (left, right) in [
            ("2 * a + 4 * b <= 13", "b * 2 + a <= 6"),
            ("a + b - a == 3", "b == 3"),
            ("a * b * 3 <= 3 * c", "b * a <= c"),
            ("a - b == 0", "b == a"),
            ("a * 2 == 3", "1 == 2"),
            ("a < 100 + b", "1 == 1"),
            ("a * b >= 1", "1 == 1"),
            ("a in [1, 2] || a == 3", "a <= 3"),
            ("a % 16 + b <= 9", "a + b <= 9"),
            ("!(a < 4)", "a >= 4"),
            ("min(a, 9) == b", "a == b"),
            ("a == 1 && b == 2 && a != 1", "1 == 2"),
            ("d + 1 == 'x'", "1 == 2"),
            ("d * 0 == 0", "d != '-'"),
            ("d * 1 == '-'", "1 == 2"),
            ("d / 1 == '-'", "1 == 2"),
            ("d + 0 != 7", "d != '-'"),
            ("d != 7", "1 == 1"),
            ("d * 2 != 3", "d != '-'"),
            ("d % 16 == '-'", "1 == 2"),
            ("d < 9", "d != '-'"),
        ] {
            assert_eq!(read(&mut arena, left), read(&mut arena, right), "{left} and {right}");
        }
    }

    #[test]
    fn prefixes_with_equal_products_meet() {
        let mut arena = arena();
        let whole = read(&mut arena, "a * b * c <= 20");
        let fix = |arena: &mut Arena, a: u16, b: u16| {
            let first = arena.substitute(whole, 0, a - 1);
            arena.substitute(first, 1, b - 1)
        };
        let two_by_three = fix(&mut arena, 2, 3);
        assert_eq!(two_by_three, fix(&mut arena, 6, 1));
        assert_eq!(two_by_three, read(&mut arena, "c <= 3"));
        // Both leave c <= 2, by different bounds.
        assert_eq!(fix(&mut arena, 7, 1), fix(&mut arena, 2, 4));
        assert_eq!(fix(&mut arena, 8, 8), FALSE);
    }
}
