//! The member nearest to any assignment: the shortest path through a diagram.
//!
//! A* over the nodes. The bound at a node is the sum, over the parameters still to come, of the distance to the nearest
//! value that occurs anywhere below the node; these *supports* are shared by many nodes and evaluated once a query.
//! The bound never overestimates and never falls by more than an edge costs, so each node is settled once.
//!
//! Source: Hart, Nilsson, Raphael, "A Formal Basis for the Heuristic Determination of Minimum Cost Paths", 1968.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::Parameter;
use super::diagram::Diagram;
use super::hash::FastMap;
use super::set::{self, SetTable};

/// Distances are integers of this unit, so that sums are exact and equal in any order.
const UNIT: f64 = 4_294_967_296.0;

/// Not reachable.
const NEVER: u64 = u64::MAX;

/// A diagram with what its nearest-member queries need. The supports are computed by the first query.
pub(super) struct Searcher {
    pub(super) diagram: Diagram,
    /// For each level the coordinate of each value, see [`Parameter::distance`].
    coordinates: Vec<Vec<Option<f64>>>,
    /// For each level whether its values are integers in rising order.
    rising: Vec<bool>,
    supports: OnceLock<Supports>,
    /// Buffers of finished queries.
    idle: Mutex<Vec<Query>>,
}

/// For each node the values that occur below it, one set per level; equal tuples are stored once.
struct Supports {
    /// The diagram's sets, then further ones.
    sets: Vec<SetTable>,
    /// `(set of the first level, the tuple of the other levels)`.
    tuples: Vec<(u32, u32)>,
    level: Vec<u16>,
    of_node: Vec<u32>,
}

/// A value remembered for the current query only.
struct Memo<T> {
    stamp: Vec<u32>,
    values: Vec<T>,
}

impl<T: Copy> Memo<T> {
    fn new(len: usize, value: T) -> Memo<T> {
        Memo { stamp: vec![0; len], values: vec![value; len] }
    }

    fn get(&self, position: usize, now: u32) -> Option<T> {
        (self.stamp[position] == now).then(|| self.values[position])
    }

    fn set(&mut self, position: usize, now: u32, value: T) {
        self.stamp[position] = now;
        self.values[position] = value;
    }
}

/// How a node was reached: cost so far, the node before, the value taken.
#[derive(Clone, Copy)]
struct Reached {
    cost: u64,
    from: u32,
    value: u16,
    settled: bool,
}

struct Query {
    now: u32,
    nodes: Memo<Reached>,
    /// Per level and value.
    costs: Vec<Vec<u64>>,
    /// Per level: the cheapest of all values, and whether costs rise to both sides of it.
    wanted: Vec<(u16, bool)>,
    /// Per level and set: the cheapest value.
    cheapest: Vec<Memo<(u64, u16)>>,
    bounds: Memo<u64>,
    /// `(bound on the whole, levels left, node)` in one number.
    open: BinaryHeap<Reverse<u128>>,
}

/// Nodes with a smaller bound come first, among equals those nearer to the end.
fn entry(bound: u64, levels_left: u16, node: u32) -> Reverse<u128> {
    Reverse(u128::from(bound) << 64 | u128::from(levels_left) << 32 | u128::from(node))
}

/// What a query asks of one level.
struct Wish {
    value: u16,
    weight: f64,
    fixed: Option<u16>,
}

impl Searcher {
    pub(super) fn new(diagram: Diagram, params: &[Parameter]) -> Searcher {
        let coordinates: Vec<Vec<Option<f64>>> =
            diagram.params.iter().map(|&param| params[usize::from(param)].coordinates.clone()).collect();
        let rising = |list: &Vec<Option<f64>>| list.windows(2).all(|pair| pair[0].is_some() && pair[0] < pair[1]);
        let rising = coordinates.iter().map(rising).collect();
        Searcher { diagram, coordinates, rising, supports: OnceLock::new(), idle: Mutex::new(Vec::new()) }
    }

    /// Overwrites the component's part of `values` (indexed by parameter) with the nearest member that has the fixed
    /// values; false when there is none.
    pub(super) fn nearest(&self, values: &mut [u16], weights: &[f64], fixed: &[Option<u16>]) -> bool {
        let wishes: Vec<Wish> = self
            .diagram
            .params
            .iter()
            .map(|&param| {
                let param = usize::from(param);
                let weight = weights.get(param).copied().unwrap_or(1.0).clamp(0.0, 1.0e6);
                Wish { value: values[param], weight, fixed: fixed.get(param).copied().flatten() }
            })
            .collect();
        let supports = self.supports.get_or_init(|| Supports::of(&self.diagram));
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut query = idle.unwrap_or_else(|| Query::new(&self.diagram, supports));
        let found = query.run(self, supports, &wishes);
        if found {
            let mut node = 0;
            for &param in self.diagram.params.iter().rev() {
                let reached = query.nodes.values[node as usize];
                values[usize::from(param)] = reached.value;
                node = reached.from;
            }
        }
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(query);
        found
    }
}

impl Wish {
    /// The cost of every value of a level.
    fn costs(&self, coordinates: &[Option<f64>], costs: &mut Vec<u64>) {
        costs.clear();
        match self.fixed {
            Some(fixed) => {
                costs.resize(coordinates.len(), NEVER);
                if let Some(cost) = costs.get_mut(usize::from(fixed)) {
                    *cost = units(self.weight * super::distance(coordinates, self.value, fixed));
                }
            }
            None => {
                let cost = |value| units(self.weight * super::distance(coordinates, self.value, value));
                costs.extend((0u16..).take(coordinates.len()).map(cost));
            }
        }
    }
}

fn units(distance: f64) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "weights are clamped to 0..=1e6")]
    let units = (distance * UNIT) as u64;
    units
}

impl Query {
    fn new(diagram: &Diagram, supports: &Supports) -> Query {
        let unreached = Reached { cost: 0, from: 0, value: 0, settled: false };
        Query {
            now: 0,
            nodes: Memo::new(diagram.len(), unreached),
            costs: vec![Vec::new(); diagram.params.len()],
            wanted: Vec::new(),
            cheapest: supports.sets.iter().map(|sets| Memo::new(sets.len(), (0, 0))).collect(),
            bounds: Memo::new(supports.tuples.len(), 0),
            open: BinaryHeap::new(),
        }
    }

    fn run(&mut self, searcher: &Searcher, supports: &Supports, wishes: &[Wish]) -> bool {
        let diagram = &searcher.diagram;
        if self.now == u32::MAX {
            *self = Query::new(diagram, supports);
        }
        self.now += 1;
        self.open.clear();
        self.wanted.clear();
        for (level, wish) in wishes.iter().enumerate() {
            wish.costs(&searcher.coordinates[level], &mut self.costs[level]);
            self.wanted.push((wish.fixed.unwrap_or(wish.value), searcher.rising[level]));
        }
        let levels = wishes.len();
        let bound = self.bound(supports, supports.of_node[diagram.root as usize]);
        if bound == NEVER {
            return false;
        }
        let left = |level: usize| u16::try_from(levels - level).expect("invariant: at most 128 parameters");
        let most = self.dive(diagram, supports);
        self.nodes.set(diagram.root as usize, self.now, Reached { cost: 0, from: 0, value: 0, settled: false });
        self.open.push(entry(bound, left(0), diagram.root));
        while let Some(Reverse(first)) = self.open.pop() {
            let node = u32::try_from(first & u128::from(u32::MAX)).expect("invariant: masked to 32 bits");
            if node == 0 {
                return true;
            }
            let reached = &mut self.nodes.values[node as usize];
            if std::mem::replace(&mut reached.settled, true) {
                continue;
            }
            let cost = reached.cost;
            let level = diagram.level(node);
            for edge in diagram.edges(node) {
                let (step, value) = self.cheapest(supports, level, edge.values);
                let cost = cost.saturating_add(step);
                if cost > most || self.nodes.get(edge.child as usize, self.now).is_some_and(|known| known.cost <= cost)
                {
                    continue;
                }
                let bound = cost.saturating_add(self.bound(supports, supports.of_node[edge.child as usize]));
                if bound > most || bound == NEVER {
                    continue;
                }
                self.nodes.set(edge.child as usize, self.now, Reached { cost, from: node, value, settled: false });
                self.open.push(entry(bound, left(level + 1), edge.child));
            }
        }
        false
    }

    /// The cost of one member, found by following the smallest bound: nothing dearer need be looked at.
    fn dive(&mut self, diagram: &Diagram, supports: &Supports) -> u64 {
        let (mut node, mut cost) = (diagram.root, 0u64);
        while node != 0 {
            let level = diagram.level(node);
            let mut best = (NEVER, NEVER, 0);
            for edge in diagram.edges(node) {
                let (step, _) = self.cheapest(supports, level, edge.values);
                if step >= best.0 {
                    continue;
                }
                let bound = step.saturating_add(self.bound(supports, supports.of_node[edge.child as usize]));
                best = best.min((bound, step, edge.child));
            }
            if best.0 == NEVER {
                return NEVER;
            }
            cost = cost.saturating_add(best.1);
            node = best.2;
        }
        cost
    }

    /// The cheapest value of a set, the first of equals.
    fn cheapest(&mut self, supports: &Supports, level: usize, values: u32) -> (u64, u16) {
        if let Some(known) = self.cheapest[level].get(values as usize, self.now) {
            return known;
        }
        let costs = &self.costs[level];
        let words = supports.sets[level].words(values);
        let (wanted, alike) = self.wanted[level];
        let cost = |value: u16| (costs[usize::from(value)], value);
        let found = if set::has(words, wanted) {
            cost(wanted)
        } else if alike {
            let (below, above) = set::around(words, wanted);
            below.into_iter().chain(above).map(cost).min().unwrap_or((NEVER, 0))
        } else {
            set::positions(words).map(cost).min().unwrap_or((NEVER, 0))
        };
        self.cheapest[level].set(values as usize, self.now, found);
        found
    }

    /// A lower bound on the cost of the levels of a tuple.
    fn bound(&mut self, supports: &Supports, tuple: u32) -> u64 {
        // Tuple 0 is that of the end.
        if tuple == 0 {
            return 0;
        }
        if let Some(known) = self.bounds.get(tuple as usize, self.now) {
            return known;
        }
        let (values, rest) = supports.tuples[tuple as usize];
        let (first, _) = self.cheapest(supports, usize::from(supports.level[tuple as usize]), values);
        let bound = first.saturating_add(self.bound(supports, rest));
        self.bounds.set(tuple as usize, self.now, bound);
        bound
    }
}

impl Supports {
    fn of(diagram: &Diagram) -> Supports {
        let mut supports = Supports {
            sets: diagram.sets.clone(),
            tuples: vec![(0, 0)],
            level: vec![u16::MAX],
            of_node: vec![0; diagram.len()],
        };
        let mut index: FastMap<(u16, u32, u32), u32> = FastMap::default();
        let mut unions: FastMap<(u32, u32), u32> = FastMap::default();
        let nodes = u32::try_from(diagram.len()).expect("invariant: the node limit is below 2^32");
        // Children have smaller numbers than their parents.
        for node in 1..nodes {
            let level = diagram.level(node);
            let edges = diagram.edges(node);
            let mut values = edges[0].values;
            let mut rest = supports.of_node[edges[0].child as usize];
            for edge in &edges[1..] {
                values = supports.union_sets(level, values, edge.values);
                let child = supports.of_node[edge.child as usize];
                rest = supports.union(rest, child, &mut index, &mut unions);
            }
            let level = u16::try_from(level).expect("invariant: at most 128 parameters");
            supports.of_node[node as usize] = supports.tuple(level, values, rest, &mut index);
        }
        supports
    }

    fn tuple(&mut self, level: u16, values: u32, rest: u32, index: &mut FastMap<(u16, u32, u32), u32>) -> u32 {
        let next = u32::try_from(self.tuples.len()).expect("invariant: the node limit is below 2^32");
        *index.entry((level, values, rest)).or_insert_with(|| {
            self.tuples.push((values, rest));
            self.level.push(level);
            next
        })
    }

    fn union_sets(&mut self, level: usize, a: u32, b: u32) -> u32 {
        if a == b {
            return a;
        }
        let sets = &mut self.sets[level];
        let words: Vec<u64> = sets.words(a).iter().zip(sets.words(b)).map(|(a, b)| a | b).collect();
        sets.intern(&words)
    }

    fn union(
        &mut self,
        a: u32,
        b: u32,
        index: &mut FastMap<(u16, u32, u32), u32>,
        unions: &mut FastMap<(u32, u32), u32>,
    ) -> u32 {
        if a == b {
            return a;
        }
        let key = (a.min(b), a.max(b));
        if let Some(&known) = unions.get(&key) {
            return known;
        }
        let ((values_a, rest_a), (values_b, rest_b)) = (self.tuples[a as usize], self.tuples[b as usize]);
        let level = self.level[a as usize];
        let values = self.union_sets(usize::from(level), values_a, values_b);
        let rest = self.union(rest_a, rest_b, index, unions);
        let tuple = self.tuple(level, values, rest, index);
        unions.insert(key, tuple);
        tuple
    }
}
