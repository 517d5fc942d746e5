//! One constraint compiled alone into a reduced diagram, so that each of its residuals has exactly one node.
//!
//! The normal form of [`super::residual`] lets most equal residuals meet before their children are built; here nodes with
//! equal children are merged as well, so two prefixes leave the same node exactly if they leave the same restriction.

use super::builder::SpaceError;
use super::hash::FastMap;
use super::residual::{Arena, FALSE, Id, Node, TRUE};
use super::set;

/// A restriction on the parameters from `level` on. Nodes 0 and 1 are *never* and *always*.
pub(super) struct Restriction {
    /// Position in the order of the first parameter that matters.
    pub(super) level: u16,
    /// Which child each value leads to.
    pub(super) class: Box<[u16]>,
    /// Distinct children.
    pub(super) children: Box<[u32]>,
    /// Whether it restricts this one parameter only.
    pub(super) unary: bool,
}

/// Node *never*.
pub(super) const NEVER: u32 = 0;
/// Node *always*.
pub(super) const ALWAYS: u32 = 1;

/// The restrictions of all constraints of a space, each stored once.
pub(super) struct Restrictions<'a> {
    arena: &'a mut Arena,
    /// Parameter at each level.
    order: &'a [u16],
    nodes: Vec<Restriction>,
    unique: FastMap<(u16, Box<[u32]>), u32>,
    compiled: FastMap<Id, u32>,
    both: FastMap<(u32, u32), u32>,
    limit: usize,
}

impl<'a> Restrictions<'a> {
    /// No restrictions yet, for parameters asked for in this order.
    pub(super) fn new(arena: &'a mut Arena, order: &'a [u16], limit: usize) -> Restrictions<'a> {
        let leaf = || Restriction { level: u16::MAX, class: Box::new([]), children: Box::new([]), unary: false };
        Restrictions {
            arena,
            order,
            nodes: vec![leaf(), leaf()],
            unique: FastMap::default(),
            compiled: FastMap::default(),
            both: FastMap::default(),
            limit,
        }
    }

    /// The node `id`.
    pub(super) fn node(&self, id: u32) -> &Restriction {
        &self.nodes[id as usize]
    }

    /// How many nodes there are.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Domain size of the parameter at `level`.
    pub(super) fn domain(&self, level: u16) -> u16 {
        self.arena.domain(self.order[usize::from(level)])
    }

    /// Compiles a condition.
    ///
    /// # Errors
    /// The parameter at which the number of residuals passed the limit.
    pub(super) fn compile(&mut self, id: Id) -> Result<u32, u16> {
        match id {
            FALSE => return Ok(NEVER),
            TRUE => return Ok(ALWAYS),
            _ => {}
        }
        if let Some(&node) = self.compiled.get(&id) {
            return Ok(node);
        }
        let support = self.arena.support(id);
        let level = (0u16..)
            .zip(self.order)
            .find(|(_, param)| support >> **param & 1 == 1)
            .map(|(level, _)| level)
            .expect("invariant: an undecided condition mentions a parameter");
        let param = self.order[usize::from(level)];
        if self.arena.len().max(self.nodes.len()) > self.limit {
            return Err(param);
        }
        let mut children = Vec::with_capacity(usize::from(self.arena.domain(param)));
        if let Node::Member(_, set) = *self.arena.node(id) {
            let words = self.arena.sets[usize::from(param)].words(set);
            children.extend((0..self.arena.domain(param)).map(|v| if set::has(words, v) { ALWAYS } else { NEVER }));
        } else {
            for value in 0..self.arena.domain(param) {
                let residual = self.arena.substitute(id, param, value);
                children.push(self.compile(residual)?);
            }
        }
        let node = self.make(level, children);
        self.compiled.insert(id, node);
        Ok(node)
    }

    /// The node with these children, one per value.
    fn make(&mut self, level: u16, dense: Vec<u32>) -> u32 {
        if dense.iter().all(|&child| child == dense[0]) {
            return dense[0];
        }
        let key = (level, dense.into_boxed_slice());
        if let Some(&node) = self.unique.get(&key) {
            return node;
        }
        let mut children: Vec<u32> = Vec::new();
        let class = key
            .1
            .iter()
            .map(|child| {
                let found = children.iter().position(|known| known == child).unwrap_or_else(|| {
                    children.push(*child);
                    children.len() - 1
                });
                u16::try_from(found).expect("invariant: at most one class per value")
            })
            .collect();
        let unary = children.iter().all(|&child| child <= ALWAYS);
        let node = u32::try_from(self.nodes.len()).expect("invariant: the node limit is below 2^32");
        self.nodes.push(Restriction { level, class, children: children.into(), unary });
        self.unique.insert(key, node);
        node
    }

    /// Both of two restrictions on the same single parameter.
    pub(super) fn intersect(&mut self, a: u32, b: u32) -> u32 {
        debug_assert!(self.node(a).unary && self.node(b).unary && self.node(a).level == self.node(b).level);
        let key = (a.min(b), a.max(b));
        if let Some(&node) = self.both.get(&key) {
            return node;
        }
        let (x, y) = (self.node(a), self.node(b));
        let dense = x
            .class
            .iter()
            .zip(&y.class)
            .map(|(&i, &j)| x.children[usize::from(i)].min(y.children[usize::from(j)]))
            .collect();
        let level = x.level;
        let node = self.make(level, dense);
        self.both.insert(key, node);
        node
    }
}

/// The error for too many residuals of the constraint called `constraint` at `parameter`.
pub(super) fn too_wide(parameter: String, constraints: Vec<String>, limit: usize) -> SpaceError {
    SpaceError::TooWide { parameter, constraints: constraints.join("`, `"), limit }
}
