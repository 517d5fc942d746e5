//! How much memory the parts of a program touch, and with that how much a cache must fetch.
//!
//! The largest parts of the program whose lines fit into the cache fetch each of them once; so the traffic is the
//! number of times such parts run times the lines they touch. It is the bound of Hong and Kung, "I/O complexity: the red-blue
//! pebble game" (STOC 1981), read as an estimate, as in the reuse analysis of Wolf and Lam, "A data locality optimizing
//! algorithm" (PLDI 1991). Accesses to one place are taken to overlap; conflicts and replacement between parts are not
//! modelled.

use crate::index::{Index, IndexOp, Var};

const LINE_BYTES: f64 = 64.0;

/// Part of a program: a loop, a list of statements, or the memory accesses of one statement.
#[derive(Debug)]
pub(super) struct Node {
    var: Option<Var>,
    /// Share of the times that it could run.
    chance: f64,
    /// Times that the body runs for each time that this part does.
    trips: f64,
    /// Iterations share no cache.
    apart: bool,
    body: Vec<Node>,
    accesses: Vec<Access>,
    /// Bytes of the lines touched by one run of this part.
    bytes: f64,
}

/// Elements of one place that a statement touches.
#[derive(Debug)]
pub(super) struct Access {
    place: usize,
    terms: Vec<Term>,
    /// Extents of the window.
    extents: Vec<f64>,
    element_bytes: f64,
    /// Bytes of the whole place.
    most_bytes: f64,
}

/// What moves an address: `stride` elements for each step of its origin.
#[derive(Debug)]
struct Term {
    stride: f64,
    origin: Origin,
}

#[derive(Debug)]
enum Origin {
    Var(Var),
    /// A coordinate of the window, of this extent.
    Extent(f64),
    /// A quotient, a remainder and the like: as many steps as its range has.
    Opaque(Index),
}

impl Node {
    /// A loop over `var` of `trips` iterations.
    pub(super) fn each(var: Var, trips: f64, apart: bool, body: Vec<Node>) -> Node {
        Node { var: Some(var), trips, apart, ..Node::some(1.0, body) }
    }

    /// Statements that run with this chance.
    pub(super) fn some(chance: f64, body: Vec<Node>) -> Node {
        Node { var: None, chance, trips: 1.0, apart: false, body, accesses: Vec::new(), bytes: 0.0 }
    }

    /// The accesses of a statement.
    pub(super) fn leaf(accesses: Vec<Access>) -> Node {
        Node { accesses, ..Node::some(1.0, Vec::new()) }
    }

    /// Measures what each part touches; `shares[var]` are the iterations of the loop of `var`.
    pub(super) fn measured(mut self, shares: &[f64]) -> Node {
        self.measure(shares);
        self
    }

    fn measure(&mut self, shares: &[f64]) {
        self.body.iter_mut().for_each(|part| part.measure(shares));
        let mut scope = vec![1.0; shares.len()];
        self.open(shares, &mut scope);
        let mut places: Vec<f64> = Vec::new();
        self.touch(&scope, &mut places);
        self.bytes = places.iter().sum();
    }

    /// Gives the variables of this part their iterations.
    fn open(&self, shares: &[f64], scope: &mut [f64]) {
        if let Some(var) = self.var {
            scope[var.0 as usize] = shares[var.0 as usize];
        }
        self.body.iter().for_each(|part| part.open(shares, scope));
    }

    /// The most that any access inside touches of each place.
    fn touch(&self, scope: &[f64], places: &mut Vec<f64>) {
        // What never runs touches nothing.
        if self.trips <= 0.0 || self.chance <= 0.0 {
            return;
        }
        for access in &self.accesses {
            if places.len() <= access.place {
                places.resize(access.place + 1, 0.0);
            }
            places[access.place] = places[access.place].max(access.bytes(scope));
        }
        self.body.iter().for_each(|part| part.touch(scope, places));
    }

    /// Bytes of the lines that a cache of `size` bytes fetches during one run of this part.
    pub(super) fn traffic(&self, size: f64) -> f64 {
        let fits = self.bytes <= size && !self.apart;
        if fits || self.body.is_empty() {
            return self.chance * self.bytes;
        }
        self.chance * self.trips * self.body.iter().map(|part| part.traffic(size)).sum::<f64>()
    }
}

impl Access {
    /// `len` elements of `element_bytes` each, of which a window of `extents` touches those at `index`.
    pub(super) fn new(place: usize, index: &Index, extents: &[f64], element_bytes: u64, len: u64) -> Access {
        let mut terms = Vec::new();
        flatten(index, 1.0, extents, &mut terms);
        let element_bytes = element_bytes as f64;
        Access { place, terms, extents: extents.to_vec(), element_bytes, most_bytes: len as f64 * element_bytes }
    }

    /// Bytes of the lines touched while the variables in `scope` take that many values.
    fn bytes(&self, scope: &[f64]) -> f64 {
        let extent = |term: &Term| match &term.origin {
            Origin::Var(var) => scope[var.0 as usize].max(1.0),
            Origin::Extent(extent) => extent.max(1.0),
            Origin::Opaque(index) => {
                let (lo, hi) = range(index, scope, &self.extents);
                hi - lo + 1.0
            }
        };
        let mut steps: Vec<(f64, f64)> = self
            .terms
            .iter()
            .map(|term| (term.stride.abs(), extent(term)))
            .filter(|(_, extent)| *extent != 1.0)
            .collect();
        steps.sort_by(|a, b| a.0.total_cmp(&b.0));
        steps.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            // Two coordinates of one stride slide over each other, as the rows of an image and of a filter do.
            kept.1 += if same { next.1 - 1.0 } else { 0.0 };
            same
        });
        // From the innermost outward: a run of neighbouring elements grows as long as steps do not leave it.
        let (mut run, mut runs) = (1.0, 1.0);
        for (stride, extent) in steps {
            if stride <= run && runs == 1.0 {
                run += stride * (extent - 1.0);
            } else {
                runs *= extent;
            }
        }
        let lines = (run * self.element_bytes / LINE_BYTES).ceil() * LINE_BYTES;
        (runs * lines).clamp(0.0, (self.most_bytes / LINE_BYTES).ceil() * LINE_BYTES)
    }
}

/// Splits an index into terms.
fn flatten(index: &Index, stride: f64, extents: &[f64], terms: &mut Vec<Term>) {
    let mut push = |origin| terms.push(Term { stride, origin });
    match index {
        Index::Const(_) => {}
        Index::Var(var) => push(Origin::Var(*var)),
        Index::Coord(dim) => push(Origin::Extent(extents[*dim])),
        Index::Op(op, args) => match (op, args.1.as_const()) {
            (IndexOp::Add, _) => {
                flatten(&args.0, stride, extents, terms);
                flatten(&args.1, stride, extents, terms);
            }
            (IndexOp::Sub, _) => {
                flatten(&args.0, stride, extents, terms);
                flatten(&args.1, -stride, extents, terms);
            }
            (IndexOp::Mul, Some(factor)) => flatten(&args.0, stride * factor as f64, extents, terms),
            // A bound moves few of the values.
            (IndexOp::Min | IndexOp::Max, Some(_)) => flatten(&args.0, stride, extents, terms),
            _ => push(Origin::Opaque(index.clone())),
        },
    }
}

/// Smallest and largest value while variables and coordinates go from 0 to below their extents.
fn range(index: &Index, scope: &[f64], extents: &[f64]) -> (f64, f64) {
    let Index::Op(op, args) = index else {
        return match index {
            Index::Const(value) => (*value as f64, *value as f64),
            Index::Var(var) => (0.0, (scope[var.0 as usize] - 1.0).max(0.0)),
            Index::Coord(dim) => (0.0, (extents[*dim] - 1.0).max(0.0)),
            Index::Op(..) => (0.0, 0.0),
        };
    };
    let ((a, b), (c, d)) = (range(&args.0, scope, extents), range(&args.1, scope, extents));
    match op {
        IndexOp::Add => (a + c, b + d),
        IndexOp::Sub => (a - d, b - c),
        IndexOp::Mul => {
            let ends = [a * c, a * d, b * c, b * d];
            (ends.into_iter().fold(f64::INFINITY, f64::min), ends.into_iter().fold(f64::NEG_INFINITY, f64::max))
        }
        IndexOp::FloorDiv => ((a / c).floor(), (b / c).floor()),
        // Where the range is shorter than the divisor it may still wrap; the length is what counts.
        IndexOp::Mod => (0.0, (b - a).min(c - 1.0)),
        IndexOp::Min => (a.min(c), b.min(d)),
        IndexOp::Max => (a.max(c), b.max(d)),
        IndexOp::Xor => (0.0, b.max(d)),
    }
}
