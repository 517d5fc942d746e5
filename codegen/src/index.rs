//! Index expressions: quasi-affine integer arithmetic over loop variables and the coordinates of a window.
//!
//! The constructors fold constants and the identities that matter for generated code, so that equal indices usually
//! have equal text. Division and remainder round toward minus infinity and take positive constants only.

use std::fmt;
use std::ops;
use std::sync::Arc;

/// A variable of a kernel; names are kept in the kernel's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Var(pub u32);

/// An integer expression.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Index {
    /// A constant.
    Const(i64),
    /// A loop variable.
    Var(Var),
    /// The coordinate along dimension `0` of the window that the surrounding statement walks.
    Coord(usize),
    /// A binary operation.
    Op(IndexOp, Arc<(Index, Index)>),
}

/// The operations of [`Index`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IndexOp {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Quotient rounded down; the divisor is a positive constant.
    FloorDiv,
    /// Remainder of [`IndexOp::FloorDiv`].
    Mod,
    /// Smaller.
    Min,
    /// Larger.
    Max,
    /// Bitwise exclusive or of non-negative numbers (swizzles).
    Xor,
}

impl IndexOp {
    /// The value for two constants.
    pub fn apply(self, lhs: i64, rhs: i64) -> i64 {
        match self {
            IndexOp::Add => lhs + rhs,
            IndexOp::Sub => lhs - rhs,
            IndexOp::Mul => lhs * rhs,
            IndexOp::FloorDiv => lhs.div_euclid(rhs),
            IndexOp::Mod => lhs.rem_euclid(rhs),
            IndexOp::Min => lhs.min(rhs),
            IndexOp::Max => lhs.max(rhs),
            IndexOp::Xor => lhs ^ rhs,
        }
    }
}

/// What one coordinate contributes to an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stride {
    /// A constant step for each unit of the coordinate (`0`: not at all).
    Constant(i64),
    /// Anything else, such as the quotient of a sum with the coordinate.
    Irregular,
}

impl Index {
    /// The constant zero.
    pub const ZERO: Index = Index::Const(0);

    /// A constant from an unsigned extent.
    pub fn of(value: u64) -> Index {
        Index::Const(i64::try_from(value).expect("invariant: extents are below 2^62"))
    }

    /// The value when this is a constant.
    pub fn as_const(&self) -> Option<i64> {
        match self {
            Index::Const(value) => Some(*value),
            _ => None,
        }
    }

    fn op(op: IndexOp, lhs: Index, rhs: Index) -> Index {
        Index::Op(op, Arc::new((lhs, rhs)))
    }

    /// `⌊self / divisor⌋`. # Panics when `divisor` is not positive.
    pub fn floor_div(self, divisor: i64) -> Index {
        assert!(divisor > 0, "invariant: divisors are positive");
        match self {
            Index::Const(value) => Index::Const(value.div_euclid(divisor)),
            index if divisor == 1 => index,
            index => Index::op(IndexOp::FloorDiv, index, Index::Const(divisor)),
        }
    }

    /// `self − divisor·⌊self / divisor⌋`. # Panics when `divisor` is not positive.
    pub fn modulo(self, divisor: i64) -> Index {
        assert!(divisor > 0, "invariant: divisors are positive");
        match self {
            Index::Const(value) => Index::Const(value.rem_euclid(divisor)),
            _ if divisor == 1 => Index::ZERO,
            index => Index::op(IndexOp::Mod, index, Index::Const(divisor)),
        }
    }

    /// The smaller of two indices.
    pub fn min(self, other: Index) -> Index {
        match (&self, &other) {
            (Index::Const(lhs), Index::Const(rhs)) => Index::Const(*lhs.min(rhs)),
            _ if self == other => self,
            _ => Index::op(IndexOp::Min, self, other),
        }
    }

    /// The larger of two indices.
    pub fn max(self, other: Index) -> Index {
        match (&self, &other) {
            (Index::Const(lhs), Index::Const(rhs)) => Index::Const(*lhs.max(rhs)),
            _ if self == other => self,
            _ => Index::op(IndexOp::Max, self, other),
        }
    }

    /// Bitwise exclusive or.
    pub fn xor(self, other: Index) -> Index {
        match (&self, &other) {
            (Index::Const(lhs), Index::Const(rhs)) => Index::Const(lhs ^ rhs),
            (_, Index::Const(0)) => self,
            _ => Index::op(IndexOp::Xor, self, other),
        }
    }

    /// The value for given variables and coordinates.
    pub fn eval(&self, var: &impl Fn(Var) -> i64, coords: &[i64]) -> i64 {
        match self {
            Index::Const(value) => *value,
            Index::Var(v) => var(*v),
            Index::Coord(dim) => coords[*dim],
            Index::Op(op, args) => op.apply(args.0.eval(var, coords), args.1.eval(var, coords)),
        }
    }

    /// This index with every coordinate replaced by `coords[dim]`.
    pub fn at(&self, coords: &[Index]) -> Index {
        match self {
            Index::Const(_) | Index::Var(_) => self.clone(),
            Index::Coord(dim) => coords[*dim].clone(),
            Index::Op(op, args) => {
                let (lhs, rhs) = (args.0.at(coords), args.1.at(coords));
                match (op, &rhs) {
                    (IndexOp::Add, _) => lhs + rhs,
                    (IndexOp::Sub, _) => lhs - rhs,
                    (IndexOp::Mul, _) => lhs * rhs,
                    (IndexOp::FloorDiv, Index::Const(divisor)) => lhs.floor_div(*divisor),
                    (IndexOp::Mod, Index::Const(divisor)) => lhs.modulo(*divisor),
                    (IndexOp::Min, _) => lhs.min(rhs),
                    (IndexOp::Max, _) => lhs.max(rhs),
                    (IndexOp::Xor, _) => lhs.xor(rhs),
                    (IndexOp::FloorDiv | IndexOp::Mod, _) => unreachable!("invariant: divisors are constants"),
                }
            }
        }
    }

    /// Whether the index depends on coordinate `dim`.
    pub fn uses_coord(&self, dim: usize) -> bool {
        match self {
            Index::Const(_) | Index::Var(_) => false,
            Index::Coord(d) => *d == dim,
            Index::Op(_, args) => args.0.uses_coord(dim) || args.1.uses_coord(dim),
        }
    }

    /// How the index moves with coordinate `dim`.
    pub fn stride(&self, dim: usize) -> Stride {
        match self {
            Index::Const(_) | Index::Var(_) => Stride::Constant(0),
            Index::Coord(d) => Stride::Constant(i64::from(*d == dim)),
            Index::Op(op, args) => match (op, args.0.stride(dim), args.1.stride(dim)) {
                (_, Stride::Constant(0), Stride::Constant(0)) => Stride::Constant(0),
                (IndexOp::Add, Stride::Constant(lhs), Stride::Constant(rhs)) => Stride::Constant(lhs + rhs),
                (IndexOp::Sub, Stride::Constant(lhs), Stride::Constant(rhs)) => Stride::Constant(lhs - rhs),
                (IndexOp::Mul, Stride::Constant(lhs), Stride::Constant(0)) if args.1.as_const().is_some() => {
                    Stride::Constant(lhs * args.1.as_const().unwrap_or(0))
                }
                _ => Stride::Irregular,
            },
        }
    }

    /// A power of two that divides every value; at most 2^62.
    pub fn multiple(&self) -> u64 {
        const MOST: u64 = 1 << 62;
        match self {
            Index::Const(0) => MOST,
            Index::Const(value) => 1 << value.trailing_zeros(),
            Index::Var(_) | Index::Coord(_) => 1,
            Index::Op(op, args) => {
                let (lhs, rhs) = (args.0.multiple(), args.1.multiple());
                match op {
                    IndexOp::Mul => lhs.saturating_mul(rhs).min(MOST),
                    IndexOp::FloorDiv => 1,
                    _ => lhs.min(rhs),
                }
            }
        }
    }

    /// Splits into `(rest, constant)` with `self = rest + constant`, so that addresses can carry displacements.
    pub fn split_constant(&self) -> (Index, i64) {
        match self {
            Index::Const(value) => (Index::ZERO, *value),
            Index::Op(IndexOp::Add, args) => {
                let ((lhs, l), (rhs, r)) = (args.0.split_constant(), args.1.split_constant());
                (lhs + rhs, l + r)
            }
            Index::Op(IndexOp::Sub, args) => {
                let ((lhs, l), (rhs, r)) = (args.0.split_constant(), args.1.split_constant());
                (lhs - rhs, l - r)
            }
            Index::Op(IndexOp::Mul, args) => match args.1.as_const() {
                Some(factor) => {
                    let (rest, constant) = args.0.split_constant();
                    (rest * Index::Const(factor), constant * factor)
                }
                None => (self.clone(), 0),
            },
            _ => (self.clone(), 0),
        }
    }

    /// The text with variable names from `name`.
    pub fn display<'a>(&'a self, name: &'a dyn Fn(Var) -> String) -> impl fmt::Display + 'a {
        struct Shown<'a>(&'a Index, &'a dyn Fn(Var) -> String);
        impl fmt::Display for Shown<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let show = |index| Shown(index, self.1);
                match self.0 {
                    Index::Const(value) => write!(f, "{value}"),
                    Index::Var(var) => f.write_str(&(self.1)(*var)),
                    Index::Coord(dim) => write!(f, "%{dim}"),
                    Index::Op(op, args) => {
                        let (lhs, rhs) = (show(&args.0), show(&args.1));
                        match op {
                            IndexOp::Add => write!(f, "({lhs} + {rhs})"),
                            IndexOp::Sub => write!(f, "({lhs} - {rhs})"),
                            IndexOp::Mul => write!(f, "{lhs}*{rhs}"),
                            IndexOp::FloorDiv => write!(f, "{lhs}/{rhs}"),
                            IndexOp::Mod => write!(f, "{lhs}%{rhs}"),
                            IndexOp::Min => write!(f, "min({lhs}, {rhs})"),
                            IndexOp::Max => write!(f, "max({lhs}, {rhs})"),
                            IndexOp::Xor => write!(f, "({lhs} ^ {rhs})"),
                        }
                    }
                }
            }
        }
        Shown(self, name)
    }
}

impl From<Var> for Index {
    fn from(var: Var) -> Index {
        Index::Var(var)
    }
}

impl From<i64> for Index {
    fn from(value: i64) -> Index {
        Index::Const(value)
    }
}

impl ops::Add for Index {
    type Output = Index;
    fn add(self, other: Index) -> Index {
        match (&self, &other) {
            (Index::Const(lhs), Index::Const(rhs)) => Index::Const(lhs + rhs),
            (Index::Const(0), _) => other,
            (_, Index::Const(0)) => self,
            (Index::Const(_), _) => Index::op(IndexOp::Add, other, self),
            // (x + c) + d => x + (c + d)
            (Index::Op(IndexOp::Add, args), Index::Const(rhs)) if args.1.as_const().is_some() => {
                args.0.clone() + Index::Const(args.1.as_const().unwrap_or(0) + rhs)
            }
            _ => Index::op(IndexOp::Add, self, other),
        }
    }
}

impl ops::Sub for Index {
    type Output = Index;
    fn sub(self, other: Index) -> Index {
        match (&self, &other) {
            (_, Index::Const(rhs)) => self + Index::Const(-rhs),
            _ if self == other => Index::ZERO,
            _ => Index::op(IndexOp::Sub, self, other),
        }
    }
}

impl ops::Mul for Index {
    type Output = Index;
    fn mul(self, other: Index) -> Index {
        match (&self, &other) {
            (Index::Const(lhs), Index::Const(rhs)) => Index::Const(lhs * rhs),
            (Index::Const(0), _) | (_, Index::Const(0)) => Index::ZERO,
            (Index::Const(1), _) => other,
            (_, Index::Const(1)) => self,
            (Index::Const(_), _) => Index::op(IndexOp::Mul, other, self),
            // (x · c) · d => x · (c · d)
            (Index::Op(IndexOp::Mul, args), Index::Const(rhs)) if args.1.as_const().is_some() => {
                args.0.clone() * Index::Const(args.1.as_const().unwrap_or(1) * rhs)
            }
            _ => Index::op(IndexOp::Mul, self, other),
        }
    }
}
