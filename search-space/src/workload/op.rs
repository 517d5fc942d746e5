//! Operations and their parameters.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use super::key::decimal;

/// A finite number that is a parameter of an operation: equal, ordered and hashed like a number, with one zero.
#[derive(Clone, Copy, Debug)]
pub struct Real(f64);

impl Real {
    /// Zero.
    pub const ZERO: Real = Real(0.0);

    /// The number; `None` for NaN and the infinities. Minus zero becomes zero, as keys have only one.
    pub fn new(value: f64) -> Option<Real> {
        value.is_finite().then_some(Real(if value == 0.0 { 0.0 } else { value }))
    }

    /// Its value.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl PartialEq for Real {
    fn eq(&self, other: &Real) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Real {}

impl PartialOrd for Real {
    fn partial_cmp(&self, other: &Real) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Real {
    fn cmp(&self, other: &Real) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Hash for Real {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

impl fmt::Display for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&decimal(self.0))
    }
}

/// What is done over the iteration space. Its text in keys is its [`Display`](fmt::Display).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Op {
    /// Sum of products: matmul, batched matmul, gemv, convolution, depthwise convolution.
    ContractMadd,
    /// Sum: reductions, average pooling (with a `scale` epilogue).
    ContractAdd,
    /// Maximum: reductions, max pooling.
    ContractMax,
    /// Softmax over the reduction axes.
    RowsSoftmax,
    /// Logarithm of softmax over the reduction axes.
    RowsLogSoftmax,
    /// `(x - mean) / sqrt(var + eps)` over the reduction axes, with the biased variance (divided by the count).
    RowsLayerNorm {
        /// Added to the variance; not negative.
        eps: Real,
    },
    /// `x / sqrt(mean(x²) + eps)` over the reduction axes.
    RowsRmsNorm {
        /// Added to the mean square; not negative.
        eps: Real,
    },
    /// Index of the first maximum over the reduction axes, counted row-major over them; NaN counts as largest.
    RowsArgMax,
    /// Scaled dot-product attention: `o[m,e] = Σ_n softmax_n(scale · Σ_d q[m,d] · k[n,d]) · v[n,e]`.
    Attention {
        /// Factor of the scores.
        scale: Real,
        /// Query `m` of M sees key `n` of N only when `n <= m + N - M`: the last query sees every key.
        causal: bool,
    },
    /// Each element by itself, through the epilogue: elementwise chains, transposes, copies, padding.
    Map,
}

impl Op {
    /// Every operation; parameters are zero.
    pub const ALL: [Op; 10] = [
        Op::ContractMadd,
        Op::ContractAdd,
        Op::ContractMax,
        Op::RowsSoftmax,
        Op::RowsLogSoftmax,
        Op::RowsLayerNorm { eps: Real::ZERO },
        Op::RowsRmsNorm { eps: Real::ZERO },
        Op::RowsArgMax,
        Op::Attention { scale: Real::ZERO, causal: false },
        Op::Map,
    ];

    /// The name used in keys, without parameters.
    pub fn as_str(self) -> &'static str {
        match self {
            Op::ContractMadd => "contract.madd",
            Op::ContractAdd => "contract.add",
            Op::ContractMax => "contract.max",
            Op::RowsSoftmax => "rows.softmax",
            Op::RowsLogSoftmax => "rows.logsoftmax",
            Op::RowsLayerNorm { .. } => "rows.layernorm",
            Op::RowsRmsNorm { .. } => "rows.rmsnorm",
            Op::RowsArgMax => "rows.argmax",
            Op::Attention { .. } => "attention",
            Op::Map => "map",
        }
    }

    /// Whether this is a sum, a sum of products or a maximum over the reduction axes.
    pub fn is_contraction(self) -> bool {
        matches!(self, Op::ContractMadd | Op::ContractAdd | Op::ContractMax)
    }

    /// Whether this is a row pass (`rows.*`).
    pub fn is_rows(self) -> bool {
        matches!(
            self,
            Op::RowsSoftmax | Op::RowsLogSoftmax | Op::RowsLayerNorm { .. } | Op::RowsRmsNorm { .. } | Op::RowsArgMax
        )
    }

    /// Whether every point of the reduction axes has an output element of its own: row passes except arg-max.
    pub fn keeps_reduction_axes(self) -> bool {
        self.is_rows() && self != Op::RowsArgMax
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())?;
        match self {
            Op::RowsLayerNorm { eps } | Op::RowsRmsNorm { eps } => write!(f, "({eps})"),
            Op::Attention { scale, causal } => write!(f, "({scale}{})", if *causal { ",causal" } else { "" }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reals_are_finite_and_have_one_zero() {
        assert_eq!(Real::new(f64::NAN), None);
        assert_eq!(Real::new(f64::NEG_INFINITY), None);
        assert_eq!(Real::new(-0.0), Some(Real::ZERO));
        assert!(Real::new(-1.0) < Real::new(2.0));
        assert_eq!(Real::new(1e-5).map(|eps| eps.to_string()), Some("0.00001".into()));
    }
}
