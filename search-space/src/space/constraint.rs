//! One constraint compiled alone into a reduced diagram, so that each of its residuals has exactly one node.
//!
//! The normal form of [`super::residual`] lets most equal residuals meet before their children are built; here nodes with
//! equal children are merged as well, so two prefixes leave the same node exactly if they leave the same restriction.

use std::rc::Rc;

use super::budget::{Budget, Limit};
use super::builder::SpaceError;
use super::hash::FastMap;
use super::residual::{Arena, FALSE, Id, Node, TRUE};
use super::set;

/// A restriction on the parameters from `level` on. Nodes 0 and 1 are *never* and *always*.
pub(super) struct Restriction {
    /// Position in the order of the first parameter that matters.
    pub(super) level: u16,
    /// Which child each value leads to.
    pub(super) class: Rc<[u16]>,
    /// Distinct children.
    pub(super) children: Rc<[u32]>,
    /// Whether it restricts this one parameter only.
    pub(super) unary: bool,
}

/// Constraints that one error names.
const MAX_BLAMED: usize = 8;

/// Node *never*.
pub(super) const NEVER: u32 = 0;
/// Node *always*.
pub(super) const ALWAYS: u32 = 1;

/// What makes a restriction: its level, the class of each value, the children.
type Shape = (u16, Rc<[u16]>, Rc<[u32]>);

/// The restrictions of all constraints of a space, each stored once.
pub(super) struct Restrictions<'a> {
    arena: &'a mut Arena,
    /// Parameter at each level.
    order: &'a [u16],
    nodes: Vec<Restriction>,
    unique: FastMap<Shape, u32>,
    compiled: FastMap<Id, u32>,
    both: FastMap<(u32, u32), u32>,
    limit: usize,
}

impl<'a> Restrictions<'a> {
    /// No restrictions yet, for parameters asked for in this order.
    pub(super) fn new(arena: &'a mut Arena, order: &'a [u16], limit: usize) -> Restrictions<'a> {
        let leaf = || Restriction { level: u16::MAX, class: Rc::new([]), children: Rc::new([]), unary: false };
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

    /// What they may cost.
    pub(super) fn budget(&self) -> &Budget {
        &self.arena.budget
    }

    /// Domain size of the parameter at `level`.
    pub(super) fn domain(&self, level: u16) -> u16 {
        self.arena.domain(self.order[usize::from(level)])
    }

    /// Compiles a condition.
    ///
    /// # Errors
    /// The parameter at which the number of residuals, or the budget, passed its limit.
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
                if self.arena.budget.spent() {
                    return Err(param);
                }
                children.push(self.compile(residual)?);
            }
        }
        let node = self.make(level, &children);
        if self.arena.budget.spent() {
            return Err(param);
        }
        self.compiled.insert(id, node);
        Ok(node)
    }

    /// The node with these children, one per value.
    fn make(&mut self, level: u16, dense: &[u32]) -> u32 {
        self.arena.budget.step(dense.len());
        if dense.iter().all(|&child| child == dense[0]) {
            return dense[0];
        }
        let mut children: Vec<u32> = Vec::new();
        let mut known: FastMap<u32, u16> = FastMap::default();
        let mut class_of = |child: u32| {
            // Most nodes have few children, and looking through few is faster than a table.
            let found = match children.len() {
                0..=16 => children.iter().position(|&known| known == child),
                _ => known.get(&child).copied().map(usize::from),
            };
            let class = found.unwrap_or(children.len());
            let number = u16::try_from(class).expect("invariant: at most one class per value");
            if found.is_none() {
                children.push(child);
                known.insert(child, number);
            }
            number
        };
        let class: Rc<[u16]> = dense.iter().map(|&child| class_of(child)).collect();
        let key = (level, class, Rc::from(children));
        if let Some(&node) = self.unique.get(&key) {
            return node;
        }
        let (class, children) = (key.1.clone(), key.2.clone());
        self.arena.budget.keep(size_of_val::<[u16]>(&class) + size_of_val::<[u32]>(&children) + 192);
        let unary = children.iter().all(|&child| child <= ALWAYS);
        let node = u32::try_from(self.nodes.len()).expect("invariant: the node limit is below 2^32");
        self.nodes.push(Restriction { level, class, children, unary });
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
        let dense: Vec<u32> = x
            .class
            .iter()
            .zip(y.class.iter())
            .map(|(&i, &j)| x.children[usize::from(i)].min(y.children[usize::from(j)]))
            .collect();
        let level = x.level;
        let node = self.make(level, &dense);
        self.arena.budget.keep(32);
        self.both.insert(key, node);
        node
    }
}

/// The error for too many residuals of the constraint called `constraint` at `parameter`.
pub(super) fn too_wide(parameter: String, mut constraints: Vec<String>, limit: Limit) -> SpaceError {
    let more = constraints.len().saturating_sub(MAX_BLAMED);
    constraints.truncate(MAX_BLAMED);
    if more > 0 {
        constraints.push(format!("... ({more} more)"));
    }
    SpaceError::TooWide { parameter, constraints: constraints.join("`, `"), limit }
}
