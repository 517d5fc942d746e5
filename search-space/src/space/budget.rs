//! What compiling a space may cost. Steps and bytes are counted, never timed, so every machine gives the same answer.
//!
//! Counts of nodes alone do not bound the work: over domains of thousands of values, one node can take thousands of
//! evaluations to make and many kilobytes to keep.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

/// Steps one space may take: one is a part of an expression, a value of a domain or an edge that is looked at.
const STEPS: u64 = 600_000_000;

/// Bytes one space may take while it is compiled, as estimated from the lengths of what is kept.
const BYTES: u64 = 512 << 20;

/// The limit that a space does not keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// So many nodes of a diagram.
    Nodes(usize),
    /// So many steps of work.
    Steps(u64),
    /// So many bytes while it is compiled.
    Bytes(u64),
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Nodes(nodes) => write!(f, "{nodes} diagram nodes"),
            Limit::Steps(steps) => write!(f, "{steps} steps to compile"),
            Limit::Bytes(bytes) => write!(f, "{bytes} bytes to compile"),
        }
    }
}

/// Counts what compilation costs. Clones count together.
#[derive(Clone)]
pub(super) struct Budget {
    steps: Rc<Cell<u64>>,
    bytes: Rc<Cell<u64>>,
    most_steps: u64,
    most_bytes: u64,
}

impl Budget {
    /// Nothing spent yet; `None` is for the limits of any space.
    pub(super) fn new(limits: Option<(u64, u64)>) -> Budget {
        let (most_steps, most_bytes) = limits.unwrap_or((STEPS, BYTES));
        Budget { steps: Rc::default(), bytes: Rc::default(), most_steps, most_bytes }
    }

    /// The same steps for another try, which starts when what the one before kept is gone.
    pub(super) fn again(&self) -> Budget {
        Budget { bytes: Rc::default(), ..self.clone() }
    }

    /// Counts `steps` of work.
    #[inline]
    pub(super) fn step(&self, steps: usize) {
        self.steps.set(self.steps.get().saturating_add(steps as u64));
    }

    /// Counts `bytes` that stay allocated.
    #[inline]
    pub(super) fn keep(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_add(bytes as u64));
    }

    /// Whether no more may be done.
    #[inline]
    pub(super) fn spent(&self) -> bool {
        self.steps.get() > self.most_steps || self.bytes.get() > self.most_bytes
    }

    /// The limit that was passed; without one, that of `nodes`.
    pub(super) fn passed(&self, nodes: usize) -> Limit {
        if self.steps.get() > self.most_steps {
            Limit::Steps(self.most_steps)
        } else if self.bytes.get() > self.most_bytes {
            Limit::Bytes(self.most_bytes)
        } else {
            Limit::Nodes(nodes)
        }
    }
}
