//! What every workload must satisfy, whoever built it: names, sizes, index maps and outputs that do not overlap.
//!
//! Keys are one-to-one with valid workloads, so [`super::Workload::parse_key`] runs the same checks. Whether a backend
//! can lower a workload is another question, answered there.

use thiserror::Error;

use super::{AxisKind, DType, EpilogueStep, Extent, Real, Role, Storage, Workload};

/// Extents, bounds, coefficients and offsets are smaller than this in magnitude.
pub const MAX_EXTENT: u64 = 1 << 31;
/// Element counts, bytes, strides, workspace and operation counts are smaller than this.
pub const MAX_TOTAL: u64 = 1 << 62;
/// Most axes, operands, subscripts of an operand and steps of an epilogue.
pub const MAX_PARTS: usize = 16;
/// Longest axis or operand name, in bytes.
pub const MAX_NAME: usize = 32;
/// Longest prologue, in bytes.
pub const MAX_PROLOGUE: usize = 512;
/// Largest alignment that can be promised, in bytes.
pub const MAX_ALIGN: u64 = 1 << 20;

/// Which part of a workload an error is about; the key's parser turns it into a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The operation.
    Op,
    /// The axes as a whole.
    Axes,
    /// One axis, by position.
    Axis(usize),
    /// One operand, by position.
    Operand(usize),
    /// The epilogue.
    Epilogue,
    /// The workspace limit.
    Workspace,
}

/// Why a workload is not valid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{subject} {problem}")]
pub struct InvalidWorkload {
    /// The part it is about.
    pub place: Place,
    /// The part in words: `operand "a"`.
    pub subject: String,
    /// What is wrong with it and what would be right.
    pub problem: WorkloadProblem,
}

/// What can be wrong with a workload.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WorkloadProblem {
    /// More parts of a kind than a workload may have, or none where one is needed.
    #[error("has {found} {what}; expected {least} to {MAX_PARTS}")]
    Count {
        /// The parts counted.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// How many there must be.
        least: usize,
    },
    /// A malformed name.
    #[error("has a malformed name; expected a letter a-z, then letters, digits and _, {MAX_NAME} bytes at most")]
    Name,
    /// A name that is taken.
    #[error("has the name of an earlier one; names are unique")]
    DuplicateName,
    /// An extent outside `1..2^31`.
    #[error("has extent {found}; expected 1 to {}", MAX_EXTENT - 1)]
    Extent {
        /// The extent.
        found: u64,
    },
    /// A run-time extent that is not `lo < hi`, both multiples.
    #[error("has extent {lo}..{hi}/{multiple}; expected lo below hi, both multiples of {multiple}")]
    Range {
        /// Smallest.
        lo: u64,
        /// Largest.
        hi: u64,
        /// Divisor.
        multiple: u64,
    },
    /// The iteration space has too many points.
    #[error("multiply to 2^62 operations or more; split the problem")]
    TooManyOperations,
    /// The operand would not fit a 2^62-byte buffer.
    #[error("spans 2^62 bytes or more; split the problem")]
    TooManyBytes,
    /// Inputs after outputs.
    #[error("is out of order; expected the in operands first, then io, then out")]
    OperandOrder,
    /// Nothing is written.
    #[error("are never written; expected at least one out or io operand")]
    NoOutput,
    /// A subscript term that names no axis, comes out of order, or has a coefficient of zero or above 2^31.
    #[error("has malformed terms in subscript {subscript}; expected axes in order, each once, coefficients not zero")]
    Terms {
        /// Which subscript, from 0.
        subscript: usize,
    },
    /// A coefficient, offset or bound is too large.
    #[error("has a number of 2^31 or more in subscript {subscript}")]
    SubscriptSize {
        /// Which subscript, from 0.
        subscript: usize,
    },
    /// A subscript that leaves the operand without a bound.
    #[error("has subscript {subscript} reaching {reach}; expected a bound such as :8 when it can leave the operand")]
    MissingBound {
        /// Which subscript, from 0.
        subscript: usize,
        /// The smallest value.
        reach: i128,
    },
    /// A bound that is never left.
    #[error("has a superfluous bound {bound} in subscript {subscript}, which stays inside; write no bound")]
    SuperfluousBound {
        /// Which subscript, from 0.
        subscript: usize,
        /// The bound.
        bound: u64,
    },
    /// The number of strides is not the number of subscripts.
    #[error("has {strides} strides for {subscripts} subscripts; expected one stride each")]
    StrideCount {
        /// Strides.
        strides: usize,
        /// Subscripts.
        subscripts: usize,
    },
    /// An alignment that is not a power of two of at most 2^20.
    #[error("has alignment {align}; expected a power of two from 1 to {MAX_ALIGN} bytes")]
    Align {
        /// The alignment.
        align: u64,
    },
    /// An alias of itself or of nothing.
    #[error("shares memory with {alias:?}, which is no other operand")]
    Alias {
        /// The name.
        alias: String,
    },
    /// A prologue with characters that keys reserve.
    #[error("has a malformed prologue; expected 1 to {MAX_PROLOGUE} characters of A-Z a-z 0-9 _ . , : = ( ) + - * /")]
    Prologue,
    /// An output that depends on a reduction axis it must not use, or that may fall outside its operand.
    #[error("is the output of {what}; expected subscripts over {axes} that stay inside")]
    OutputIndex {
        /// What it is the output of.
        what: &'static str,
        /// The axes it may use.
        axes: &'static str,
    },
    /// Two points write the same element, or we cannot tell that they do not.
    #[error("has elements written twice; expected every {axes} to step over the reach of the smaller")]
    OutputOverlap {
        /// The axes it must use.
        axes: &'static str,
    },
    /// A parameter of the operation that it cannot have.
    #[error("has the parameter {found}; expected {expected}")]
    Parameter {
        /// Its value.
        found: Real,
        /// What would be right.
        expected: &'static str,
    },
    /// The wrong number of operands that take part in the operation.
    #[error("have {found} inputs besides those of the epilogue; {op} takes {expected}")]
    InputCount {
        /// The operation.
        op: &'static str,
        /// How many there are.
        found: usize,
        /// How many it takes.
        expected: usize,
    },
    /// More than one output.
    #[error("have {found} outputs; {op} takes 1")]
    OutputCount {
        /// The operation.
        op: &'static str,
        /// How many there are.
        found: usize,
    },
    /// An element type that the operation does not take.
    #[error("has type {}; {op} takes {expected}", .found.as_str())]
    OperandType {
        /// The operation.
        op: &'static str,
        /// The type.
        found: DType,
        /// What it takes.
        expected: &'static str,
    },
    /// An axis that the operation does not have, or one too many.
    #[error("does not fit {op}; expected {expected}")]
    AxisRole {
        /// The operation.
        op: &'static str,
        /// What it has.
        expected: &'static str,
    },
    /// An axis that the operation needs is missing.
    #[error("are too few for {op}; expected {expected}")]
    AxisMissing {
        /// The operation.
        op: &'static str,
        /// What it has.
        expected: &'static str,
    },
    /// Queries of a causal attention that see no key.
    #[error("are {queries} queries and {keys} keys; a causal attention needs as many keys as queries, or more")]
    CausalExtent {
        /// Queries.
        queries: u64,
        /// Keys.
        keys: u64,
    },
    /// An operand of an attention that is padded.
    #[error("has a bound; {op} reads and writes no padding")]
    Padding {
        /// The operation.
        op: &'static str,
    },
    /// Steps after an operation whose result is an index.
    #[error("has steps; {op} gives an index and takes none")]
    NoEpilogue {
        /// The operation.
        op: &'static str,
    },
    /// An epilogue step that names no readable operand.
    #[error("names operand {name:?}; expected an in operand")]
    EpilogueOperand {
        /// The name.
        name: String,
    },
    /// An epilogue operand over a reduction axis (row passes may have that), or a bias that is not a vector.
    #[error(
        "reads operand {name:?} by an index that does not fit; expected batch and parallel axes, one dimension for bias"
    )]
    EpilogueIndex {
        /// The name.
        name: String,
    },
    /// A constant that is not a number or, where it must be, not finite; or limits in the wrong order.
    #[error("has a constant that does not fit {step}; expected numbers, finite for scale, lo at most hi for clip")]
    EpilogueConstant {
        /// The step.
        step: &'static str,
    },
    /// The workspace is too large.
    #[error("is {found} bytes; expected less than 2^62")]
    Workspace {
        /// The limit asked for.
        found: u64,
    },
}

impl Workload {
    /// Checks everything that must hold of a workload whatever it computes.
    ///
    /// # Errors
    ///
    /// The first [`WorkloadProblem`] in the order of the key.
    pub fn validate(&self) -> Result<(), InvalidWorkload> {
        self.validate_axes()?;
        self.validate_op()?;
        let operands = |problem| InvalidWorkload { place: Place::Operand(0), subject: "the operands".into(), problem };
        count("operands", self.operands.len(), 1).map_err(operands)?;
        if self.outputs().is_empty() {
            return Err(operands(WorkloadProblem::NoOutput));
        }
        for i in 0..self.operands.len() {
            self.validate_operand(i).map_err(|problem| InvalidWorkload {
                place: Place::Operand(i),
                subject: format!("operand {:?}", self.operands[i].name),
                problem,
            })?;
        }
        self.validate_roles()?;
        let epilogue = |problem| InvalidWorkload { place: Place::Epilogue, subject: "the epilogue".into(), problem };
        count("steps", self.epilogue.len(), 0).map_err(epilogue)?;
        self.epilogue.iter().try_for_each(|step| self.validate_step(step)).map_err(epilogue)?;
        if self.workspace_bytes >= MAX_TOTAL {
            let problem = WorkloadProblem::Workspace { found: self.workspace_bytes };
            return Err(InvalidWorkload { place: Place::Workspace, subject: "the workspace".into(), problem });
        }
        Ok(())
    }

    fn validate_axes(&self) -> Result<(), InvalidWorkload> {
        let axes = |problem| InvalidWorkload { place: Place::Axes, subject: "the axes".into(), problem };
        count("axes", self.axes.len(), 1).map_err(axes)?;
        for (i, axis) in self.axes.iter().enumerate() {
            let check = || {
                name(&axis.name, self.axes[..i].iter().any(|earlier| earlier.name == axis.name))?;
                match axis.extent {
                    Extent::Fixed(extent) => extent_fits(extent),
                    Extent::Range { lo, hi, multiple } => {
                        [lo, hi, multiple].into_iter().try_for_each(extent_fits)?;
                        if lo < hi && lo % multiple == 0 && hi % multiple == 0 {
                            Ok(())
                        } else {
                            Err(WorkloadProblem::Range { lo, hi, multiple })
                        }
                    }
                }
            };
            check().map_err(|problem| InvalidWorkload {
                place: Place::Axis(i),
                subject: format!("axis {:?}", axis.name),
                problem,
            })?;
        }
        if self.flops().max(self.points()) >= MAX_TOTAL {
            Err(axes(WorkloadProblem::TooManyOperations))
        } else {
            Ok(())
        }
    }

    fn validate_operand(&self, i: usize) -> Result<(), WorkloadProblem> {
        let operand = &self.operands[i];
        name(&operand.name, self.operands[..i].iter().any(|earlier| earlier.name == operand.name))?;
        let rank = |role| match role {
            Role::In => 0,
            Role::InOut => 1,
            Role::Out => 2,
        };
        if i > 0 && rank(self.operands[i - 1].role) > rank(operand.role) {
            return Err(WorkloadProblem::OperandOrder);
        }
        count("subscripts", operand.index.len(), 0)?;
        for (position, subscript) in operand.index.iter().enumerate() {
            self.validate_subscript(position, subscript)?;
        }
        if let Storage::Strides(strides) = &operand.storage
            && strides.len() != operand.index.len()
        {
            return Err(WorkloadProblem::StrideCount { strides: strides.len(), subscripts: operand.index.len() });
        }
        let fits = |elements: u64| elements.saturating_mul(operand.dtype.bytes()) < MAX_TOTAL;
        let elements = self.operand_shape(i).iter().fold(1u64, |product, dim| product.saturating_mul(*dim));
        if !fits(elements) || !fits(self.operand_len(i)) || !self.operand_strides(i).iter().all(|stride| fits(*stride))
        {
            return Err(WorkloadProblem::TooManyBytes);
        }
        if !operand.align.is_power_of_two() || operand.align > MAX_ALIGN {
            return Err(WorkloadProblem::Align { align: operand.align });
        }
        if let Some(alias) = &operand.alias
            && (*alias == operand.name || self.operand(alias).is_none())
        {
            return Err(WorkloadProblem::Alias { alias: alias.clone() });
        }
        if operand.prologue.as_ref().is_some_and(|text| !is_prologue(text)) {
            return Err(WorkloadProblem::Prologue);
        }
        if operand.role == Role::In { Ok(()) } else { self.validate_output(i) }
    }

    fn validate_subscript(&self, subscript: usize, map: &super::Subscript) -> Result<(), WorkloadProblem> {
        let ordered = map.terms.windows(2).all(|pair| pair[0].0 < pair[1].0);
        if !ordered || map.terms.iter().any(|(axis, factor)| *axis >= self.axes.len() || *factor == 0) {
            return Err(WorkloadProblem::Terms { subscript });
        }
        let numbers = map.terms.iter().map(|(_, factor)| *factor).chain([map.offset]);
        if numbers.map(i64::unsigned_abs).chain(map.bound).any(|number| number >= MAX_EXTENT) {
            return Err(WorkloadProblem::SubscriptSize { subscript });
        }
        let (lo, hi) = self.subscript_range(map);
        match map.bound {
            None if lo < 0 => Err(WorkloadProblem::MissingBound { subscript, reach: lo }),
            Some(bound) if bound == 0 || (lo >= 0 && hi < i128::from(bound)) => {
                Err(WorkloadProblem::SuperfluousBound { subscript, bound })
            }
            _ => Ok(()),
        }
    }

    /// Every point writes its own element: with the axes sorted by their step in memory, each step is larger than the
    /// reach of all smaller ones together. Sufficient, and exact for dense, padded, transposed and grouped outputs.
    fn validate_output(&self, i: usize) -> Result<(), WorkloadProblem> {
        let operand = &self.operands[i];
        let (what, axes) = match self.op {
            op if op.is_contraction() => ("a contraction", "batch and parallel axes"),
            op if op.keeps_reduction_axes() => ("a row pass", "all axes"),
            op => (op.as_str(), "batch and parallel axes"),
        };
        let reduced = |axis: &usize| self.axes[*axis].kind == AxisKind::Reduction && !self.op.keeps_reduction_axes();
        if operand.index.iter().any(|s| s.bound.is_some() || s.terms.iter().any(|(axis, _)| reduced(axis))) {
            return Err(WorkloadProblem::OutputIndex { what, axes });
        }
        let strides = self.operand_strides(i);
        let mut steps: Vec<(i128, i128)> = (0..self.axes.len())
            .filter(|axis| !reduced(axis) && self.axes[*axis].extent.max() > 1)
            .map(|axis| {
                let step = operand.index.iter().zip(&strides).fold(0i128, |sum, (subscript, stride)| {
                    sum.saturating_add(i128::from(subscript.coefficient(axis)) * i128::from(*stride))
                });
                (step.abs(), i128::from(self.axes[axis].extent.max() - 1))
            })
            .collect();
        steps.sort_unstable();
        let mut reach = 0i128;
        for (step, count) in steps {
            if step <= reach {
                let axes = if self.op.keeps_reduction_axes() { "axis" } else { "batch and parallel axis" };
                return Err(WorkloadProblem::OutputOverlap { axes });
            }
            reach = reach.saturating_add(step.saturating_mul(count));
        }
        Ok(())
    }

    fn validate_step(&self, step: &EpilogueStep) -> Result<(), WorkloadProblem> {
        if let Some(name) = step.operand() {
            let operand = self.operand(name).map(|i| &self.operands[i]).filter(|operand| operand.role == Role::In);
            let operand = operand.ok_or_else(|| WorkloadProblem::EpilogueOperand { name: name.into() })?;
            let reduced = !self.op.keeps_reduction_axes()
                && self.axes.iter().enumerate().any(|(i, a)| a.kind == AxisKind::Reduction && operand.uses(i));
            if reduced || (matches!(step, EpilogueStep::Bias(_)) && operand.index.len() != 1) {
                return Err(WorkloadProblem::EpilogueIndex { name: name.into() });
            }
        }
        let fits = match step {
            // A comparison with NaN is false, so this refuses it too.
            EpilogueStep::Clip(lo, hi) => lo <= hi,
            EpilogueStep::Scale(factor) => factor.is_finite(),
            _ => true,
        };
        if fits { Ok(()) } else { Err(WorkloadProblem::EpilogueConstant { step: step.word() }) }
    }
}

/// Whether `text` can name an axis or operand.
pub(crate) fn is_name(text: &str) -> bool {
    text.len() <= MAX_NAME
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// Whether `text` can be a prologue.
pub(crate) fn is_prologue(text: &str) -> bool {
    (1..=MAX_PROLOGUE).contains(&text.len()) && text.bytes().all(is_prologue_byte)
}

/// Whether `byte` may occur in a prologue.
pub(crate) fn is_prologue_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_.,:=()+-*/".contains(&byte)
}

fn name(text: &str, taken: bool) -> Result<(), WorkloadProblem> {
    match (is_name(text), taken) {
        (false, _) => Err(WorkloadProblem::Name),
        (true, true) => Err(WorkloadProblem::DuplicateName),
        (true, false) => Ok(()),
    }
}

fn extent_fits(found: u64) -> Result<(), WorkloadProblem> {
    if (1..MAX_EXTENT).contains(&found) { Ok(()) } else { Err(WorkloadProblem::Extent { found }) }
}

fn count(what: &'static str, found: usize, least: usize) -> Result<(), WorkloadProblem> {
    if (least..=MAX_PARTS).contains(&found) { Ok(()) } else { Err(WorkloadProblem::Count { what, found, least }) }
}
