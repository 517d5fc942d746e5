//! The reduced decision diagram of one component: parameters joined by constraints.
//!
//! Built level by level from the top. The state of a prefix is the set of restrictions it leaves
//! ([`super::constraint`]); restrictions on one parameter alone are intersected into one, and prefixes with the same
//! set share a node. Then, from the bottom, nodes that reach no member are dropped and nodes with equal children are
//! merged. Every path visits every level, so a member is a path and the count is a sum of products.

use std::rc::Rc;

use super::budget::Budget;
use super::constraint::{ALWAYS, NEVER, Restrictions};
use super::hash::FastMap;
use super::set::{self, SetTable};

/// The values of one level that lead to the same node of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Edge {
    pub(super) child: u32,
    /// In the set table of the level.
    pub(super) values: u32,
}

/// A node: a level and a run of edges.
#[derive(Clone, Copy, Debug)]
struct Span {
    level: u16,
    edges: u16,
    first: u32,
}

/// A reduced diagram. Node 0 is the end; it lies below the last level.
#[derive(Clone, Debug)]
pub(super) struct Diagram {
    /// The parameter asked for at each level.
    pub(super) params: Vec<u16>,
    pub(super) sets: Vec<SetTable>,
    nodes: Vec<Span>,
    edges: Vec<Edge>,
    counts: Vec<u128>,
    pub(super) root: u32,
}

/// Why a component has no diagram.
pub(super) enum Failure {
    /// More nodes than the limit, or more work than the budget, after the parameter at this level.
    TooWide(u16),
    /// No assignment satisfies all constraints.
    Empty,
    /// The count does not fit 128 bits.
    CountOverflow,
}

/// A level under construction.
pub(super) struct Layer {
    /// `state → (first, edges)` in `edges`.
    spans: Vec<(u32, u32)>,
    /// `(next state, values)`.
    edges: Vec<(u32, u32)>,
    pub(super) sets: SetTable,
}

impl Layer {
    /// A level without states, of a parameter with `domain` values.
    pub(super) fn new(domain: usize) -> Layer {
        Layer { spans: Vec::new(), edges: Vec::new(), sets: SetTable::new(domain) }
    }

    /// Adds the next state, without edges.
    pub(super) fn begin(&mut self) {
        let first = u32::try_from(self.edges.len()).expect("invariant: the node limit keeps edges below 2^32");
        self.spans.push((first, 0));
    }

    /// Adds an edge of the state begun last.
    pub(super) fn lead(&mut self, child: u32, values: &[u64], budget: &Budget) {
        self.edges.push((child, self.sets.intern_within(values, budget)));
        self.spans.last_mut().expect("invariant: a state was begun").1 += 1;
    }
}

impl Diagram {
    /// The diagram of all assignments to `params` (in this order, which begins at level `base` of the space's order) that
    /// satisfy every restriction of `roots`. `limit` bounds the number of restrictions and states, the budget of
    /// `restrictions` the rest.
    pub(super) fn build(
        params: Vec<u16>,
        base: u16,
        roots: &[u32],
        restrictions: &mut Restrictions<'_>,
        limit: usize,
    ) -> Result<Diagram, Failure> {
        let mut state = Vec::new();
        for &root in roots {
            if !add(&mut state, root, restrictions) {
                return Err(Failure::Empty);
            }
            if restrictions.budget().spent() {
                return Err(Failure::TooWide(base));
            }
        }
        state.sort_unstable();
        let mut states: Vec<Rc<[u32]>> = vec![state.into()];
        let mut layers: Vec<Layer> = Vec::with_capacity(params.len());
        let mut total = restrictions.len();
        for level in (base..).take(params.len()) {
            let mut next = NextStates::default();
            let mut layer = Layer {
                spans: Vec::with_capacity(states.len()),
                edges: Vec::new(),
                sets: SetTable::new(usize::from(restrictions.domain(level))),
            };
            for state in &states {
                expand(state, level, restrictions, &mut next, &mut layer);
                let wide = total + next.states.len() > limit || restrictions.len() > limit;
                if wide || restrictions.budget().spent() {
                    return Err(Failure::TooWide(level));
                }
            }
            total += next.states.len();
            layers.push(layer);
            states = next.states;
            if states.is_empty() {
                return Err(Failure::Empty);
            }
        }
        reduce(params, layers.into_iter().rev(), restrictions.budget()).map_err(|failure| match failure {
            Failure::TooWide(level) => Failure::TooWide(base + level),
            other => other,
        })
    }

    /// The edges of a node.
    pub(super) fn edges(&self, node: u32) -> &[Edge] {
        let span = self.nodes[node as usize];
        &self.edges[span.first as usize..span.first as usize + usize::from(span.edges)]
    }

    /// The level of a node; the end has the number of levels.
    pub(super) fn level(&self, node: u32) -> usize {
        usize::from(self.nodes[node as usize].level)
    }

    /// How many nodes there are.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Members below a node.
    fn below(&self, node: u32) -> u128 {
        self.counts[node as usize]
    }

    /// Number of members.
    pub(super) fn count(&self) -> u128 {
        self.below(self.root)
    }

    /// The edge a value takes.
    pub(super) fn step(&self, node: u32, level: usize, value: u16) -> Option<Edge> {
        self.edges(node).iter().copied().find(|edge| self.sets[level].contains(edge.values, value))
    }

    /// The number of the member with these values (indexed by parameter); `None` when it is none.
    pub(super) fn rank(&self, values: &[u16]) -> Option<u128> {
        let (mut node, mut rank) = (self.root, 0u128);
        for (level, &param) in self.params.iter().enumerate() {
            let value = values[usize::from(param)];
            let sets = &self.sets[level];
            let taken = self.step(node, level, value)?;
            for edge in self.edges(node) {
                if *edge == taken {
                    rank += u128::from(sets.below(edge.values, value)) * self.below(edge.child);
                    break;
                }
                rank += u128::from(sets.size(edge.values)) * self.below(edge.child);
            }
            node = taken.child;
        }
        Some(rank)
    }

    /// Writes the member with this number into `values`. `rank` must be below the count.
    pub(super) fn unrank(&self, mut rank: u128, values: &mut [u16]) {
        let mut node = self.root;
        for (level, &param) in self.params.iter().enumerate() {
            let sets = &self.sets[level];
            for edge in self.edges(node) {
                let each = self.below(edge.child);
                let here = u128::from(sets.size(edge.values)) * each;
                if rank >= here {
                    rank -= here;
                    continue;
                }
                let position = u32::try_from(rank / each).expect("invariant: below the size of the set");
                rank %= each;
                values[usize::from(param)] = sets.member(edge.values, position).expect("invariant: below the size");
                node = edge.child;
                break;
            }
        }
    }

    /// Writes a random member: each value with a probability proportional to the `exponent`-th power of the members
    /// below it. `uniform` gives numbers in `0..1`.
    pub(super) fn sample(&self, exponent: f64, uniform: &mut impl FnMut() -> f64, values: &mut [u16]) {
        let mut node = self.root;
        for (level, &param) in self.params.iter().enumerate() {
            let sets = &self.sets[level];
            // As logarithms relative to the node's own count, so that no power overflows.
            let whole = self.below(node) as f64;
            let weight = |edge: &Edge| {
                f64::from(sets.size(edge.values)) * (self.below(edge.child) as f64 / whole).powf(exponent)
            };
            let edges = self.edges(node);
            let mut left = uniform() * edges.iter().map(weight).sum::<f64>();
            let mut chosen = edges[edges.len() - 1];
            for edge in edges {
                let weight = weight(edge);
                if left < weight {
                    chosen = *edge;
                    break;
                }
                left -= weight;
            }
            let size = sets.size(chosen.values);
            let rank = positive_floor(uniform() * f64::from(size)).min(size - 1);
            values[usize::from(param)] = sets.member(chosen.values, rank).expect("invariant: below the size");
            node = chosen.child;
        }
    }
}

fn positive_floor(value: f64) -> u32 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the caller's value is in 0..2^32")]
    let floor = value as u32;
    floor
}

/// Adds a restriction to a state; false when the state becomes impossible.
fn add(state: &mut Vec<u32>, restriction: u32, restrictions: &mut Restrictions<'_>) -> bool {
    let mut restriction = restriction;
    restrictions.budget().step(state.len());
    if restrictions.node(restriction).unary {
        let level = restrictions.node(restriction).level;
        let same = state.iter().position(|&other| {
            let other = restrictions.node(other);
            other.unary && other.level == level
        });
        if let Some(position) = same {
            restriction = restrictions.intersect(state.swap_remove(position), restriction);
        }
    }
    if restriction != ALWAYS && !state.contains(&restriction) {
        state.push(restriction);
    }
    restriction != NEVER
}

#[derive(Default)]
struct NextStates {
    states: Vec<Rc<[u32]>>,
    index: FastMap<Rc<[u32]>, u32>,
    // Buffers kept between calls.
    active: Vec<u32>,
    rest: Vec<u32>,
    class: Vec<u32>,
    first_of_class: Vec<u16>,
    renumber: FastMap<(u32, u16), u32>,
    state: Vec<u32>,
    edges: Merged,
}

/// The edges of one node while they are found: each child once, with the set of all values that lead to it.
#[derive(Default)]
struct Merged {
    children: Vec<u32>,
    /// One set per child.
    words: Vec<u64>,
    stride: usize,
    /// Per child the node it was last found for and its place among that node's edges.
    place: Vec<(u32, u32)>,
    node: u32,
}

impl Merged {
    /// Begins the next node, whose sets have `stride` words.
    fn begin(&mut self, stride: usize) {
        self.children.clear();
        self.words.clear();
        self.stride = stride;
        self.node += 1;
    }

    /// The place of the edge to `child`, a new one when there is none yet.
    fn place(&mut self, child: u32) -> usize {
        if self.place.len() <= child as usize {
            self.place.resize(child as usize + 1, (0, 0));
        }
        let (node, place) = &mut self.place[child as usize];
        if *node != self.node {
            *node = self.node;
            *place = u32::try_from(self.children.len()).expect("invariant: at most one edge per value");
            self.children.push(child);
            self.words.resize(self.children.len() * self.stride, 0);
        }
        *place as usize
    }

    /// The set of the edge at `place`.
    fn words(&mut self, place: usize) -> &mut [u64] {
        &mut self.words[place * self.stride..(place + 1) * self.stride]
    }

    /// The edges in the order in which they were found.
    fn edges(&self) -> impl Iterator<Item = (u32, &[u64])> {
        self.children.iter().copied().zip(self.words.chunks_exact(self.stride))
    }
}

/// Adds the edges of one state to `layer` and its children to `next`.
fn expand(state: &[u32], level: u16, restrictions: &mut Restrictions<'_>, next: &mut NextStates, layer: &mut Layer) {
    let domain = restrictions.domain(level);
    next.active.clear();
    next.rest.clear();
    for &restriction in state {
        let list = if restrictions.node(restriction).level == level { &mut next.active } else { &mut next.rest };
        list.push(restriction);
    }
    // Values are alike when every active restriction puts them in the same class.
    next.class.clear();
    next.class.resize(usize::from(domain), 0);
    for &restriction in &next.active {
        next.renumber.clear();
        for (class, &own) in next.class.iter_mut().zip(restrictions.node(restriction).class.iter()) {
            let fresh = u32::try_from(next.renumber.len()).expect("invariant: at most one class per value");
            *class = *next.renumber.entry((*class, own)).or_insert(fresh);
        }
    }
    next.first_of_class.clear();
    for (value, &class) in (0u16..).zip(&next.class) {
        if class as usize == next.first_of_class.len() {
            next.first_of_class.push(value);
        }
    }
    next.edges.begin(layer.sets.stride());
    // Classes that differ only in restrictions already implied lead to one child. Impossible ones have no place.
    let mut places = Vec::with_capacity(next.first_of_class.len());
    for position in 0..next.first_of_class.len() {
        let value = usize::from(next.first_of_class[position]);
        next.state.clear();
        next.state.extend_from_slice(&next.rest);
        let mut possible = true;
        for &restriction in &next.active {
            let node = restrictions.node(restriction);
            let child = node.children[usize::from(node.class[value])];
            possible = possible && add(&mut next.state, child, restrictions);
        }
        if restrictions.budget().spent() {
            return;
        }
        if !possible {
            places.push(None);
            continue;
        }
        next.state.sort_unstable();
        let child = match next.index.get(next.state.as_slice()) {
            Some(&child) => child,
            None => {
                let child = u32::try_from(next.states.len()).expect("invariant: the node limit is below 2^32");
                let state: Rc<[u32]> = next.state.as_slice().into();
                restrictions.budget().keep(size_of_val::<[u32]>(&state) + 96);
                next.states.push(state.clone());
                next.index.insert(state, child);
                child
            }
        };
        places.push(Some(next.edges.place(child)));
    }
    for (value, &class) in (0u16..).zip(&next.class) {
        if let Some(place) = places[class as usize] {
            set::insert(next.edges.words(place), value);
        }
    }
    layer.begin();
    let budget = restrictions.budget();
    budget.step(usize::from(domain) * (1 + next.active.len()) + places.len() * (1 + state.len()));
    budget.keep(16 + 16 * next.edges.children.len());
    for (child, words) in next.edges.edges() {
        layer.lead(child, words, budget);
    }
}

/// Merges nodes with equal children, drops those that reach no member, and counts. `layers` come from the last level up.
pub(super) fn reduce(
    params: Vec<u16>,
    layers: impl Iterator<Item = Layer>,
    budget: &Budget,
) -> Result<Diagram, Failure> {
    let levels = u16::try_from(params.len()).expect("invariant: at most 128 parameters");
    let mut diagram = Diagram {
        sets: Vec::with_capacity(params.len()),
        params,
        nodes: vec![Span { level: levels, edges: 0, first: 0 }],
        edges: Vec::new(),
        counts: vec![1],
        root: 0,
    };
    // The last layer leads to one state without restrictions: the end.
    let mut below: Vec<Option<u32>> = vec![Some(0)];
    let (mut edges, mut merged) = (Vec::<Edge>::new(), Merged::default());
    for (level, layer) in (0..levels).rev().zip(layers) {
        let mut sets = SetTable::new(layer.sets.stride() * 64);
        let mut unique: FastMap<Box<[Edge]>, u32> = FastMap::default();
        let mut here = Vec::with_capacity(layer.spans.len());
        for &(first, count) in &layer.spans {
            if budget.spent() {
                return Err(Failure::TooWide(level));
            }
            merged.begin(sets.stride());
            for &(child, values) in &layer.edges[first as usize..(first + count) as usize] {
                let Some(child) = below[child as usize] else { continue };
                let place = merged.place(child);
                let words = layer.sets.words(values);
                merged.words(place).iter_mut().zip(words).for_each(|(word, &other)| *word |= other);
            }
            budget.step(count as usize * (1 + sets.stride()));
            edges.clear();
            edges
                .extend(merged.edges().map(|(child, words)| Edge { child, values: sets.intern_within(words, budget) }));
            if edges.is_empty() {
                here.push(None);
                continue;
            }
            edges.sort_unstable();
            if let Some(&node) = unique.get(edges.as_slice()) {
                here.push(Some(node));
                continue;
            }
            let node = u32::try_from(diagram.nodes.len()).expect("invariant: the node limit is below 2^32");
            let count = edges
                .iter()
                .try_fold(0u128, |sum, edge| {
                    let each = diagram.counts[edge.child as usize];
                    sum.checked_add(u128::from(sets.size(edge.values)).checked_mul(each)?)
                })
                .ok_or(Failure::CountOverflow)?;
            diagram.counts.push(count);
            diagram.nodes.push(Span {
                level,
                edges: u16::try_from(edges.len()).expect("invariant: at most one edge per value"),
                first: u32::try_from(diagram.edges.len()).expect("invariant: the budget keeps edges below 2^32"),
            });
            diagram.edges.extend_from_slice(&edges);
            // The edges once more as a key, and half of the lists spare.
            budget.keep(3 * size_of_val(edges.as_slice()) + 2 * (size_of::<Span>() + size_of::<u128>()) + 64);
            unique.insert(edges.as_slice().into(), node);
            here.push(Some(node));
        }
        diagram.sets.push(sets);
        below = here;
    }
    diagram.sets.reverse();
    diagram.root = below[0].ok_or(Failure::Empty)?;
    Ok(diagram)
}
