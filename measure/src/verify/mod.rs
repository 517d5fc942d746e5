//! Whether a kernel computes what the workload means, cheapest check first.
//!
//! | check | when | inputs | compared |
//! | --- | --- | --- | --- |
//! | *exact* | every candidate | −1, 0, 1; maps: integers | every bit, whatever the summation order |
//! | *numeric* | once per program hash | N(0, 1) | error bound from dtype and reduction length (`tolerance`) |
//! | *hostile* | winners | N(0, 1) with NaN, infinities, denormals | class of each value; two runs for equal bits |
//!
//! Sums, maxima, arg-max and maps with plain steps have an exact check; data movement and maxima are exact in the
//! numeric check too. Softmax, norms, attention and steps such as GELU have the other two. Values of 16-bit types may
//! differ by one unit of the type beside the bound; in the exact check they are the rounded ones.
//!
//! In every check outputs are poisoned before the run, so a skipped tile is seen even when it was right last time;
//! gaps between rows of an input hold NaN, so reading one spoils the result; gaps of an output must still hold the
//! poison afterwards; and operands end at unreadable memory where the device can do that.
//!
//! Problems above 2^27 multiply-adds are not computed a second time in full. Their exact check is Freivalds' product
//! check in integers, which looks at every output element (`sketch`), plus chosen points; their numeric check looks
//! at chosen points: the first and last along every axis, and random ones.
//!
//! The zero of an exact check may have either sign: whether a sum starts with `0` or with its first product is the
//! kernel's business.

mod expected;
mod inputs;
pub(crate) mod shelf;
mod sketch;
mod tolerance;

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use search_space::workload::{DType, Determinism, EpilogueStep, MathMode, Op};
use search_space::{Outcome, Workload};

use crate::device::{Device, Failure};
use expected::{Class, Expected, MAX_POINTS};
pub use inputs::InputBytes;
use inputs::Inputs;
use shelf::{Bytes, Shelf};
use sketch::Sketch;

/// Largest number of multiply-adds that is computed in full by the reference: some tenth of a second.
pub(crate) const FULL_MADDS: u64 = 1 << 27;

/// A named check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Small integers, every bit.
    Exact,
    /// Normal inputs, error bound.
    Numeric,
    /// NaN, infinities, denormals; equal bits in two runs.
    Hostile,
}

impl std::fmt::Display for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Check::Exact => "exact",
            Check::Numeric => "numeric",
            Check::Hostile => "hostile",
        })
    }
}

/// Inputs and what they must give.
#[derive(Debug)]
struct Case {
    check: Check,
    inputs: InputBytes,
    expected: Expected,
    sketches: Vec<Sketch>,
}

/// Everything needed to check kernels of one workload, computed once.
#[derive(Debug)]
pub struct Suite {
    workload: Workload,
    /// Position of the output operand.
    output: usize,
    /// `None` where values are rounded on the way: then every program gets the numeric check only.
    exact: Option<Case>,
    numeric: Case,
    hostile: OnceCell<Result<Case, String>>,
    poison: Vec<u8>,
    /// Which elements of the output's buffer lie in gaps; empty when none do.
    gaps: Vec<bool>,
    /// Program hashes that passed the numeric check.
    passed: BTreeSet<String>,
    /// Where cases are left for the workers to come.
    shelf: RefCell<Option<Shelf>>,
    computing: Computing,
}

/// What computing cases took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Computing {
    /// All that were computed here and that the next worker for the workload finds.
    pub spared: Duration,
    /// The last, which is the numeric one; the hostile case takes about as long.
    pub case: Duration,
}

impl Suite {
    /// Computes inputs and expected outputs.
    ///
    /// # Errors
    ///
    /// Why the workload cannot be checked: the reference does not know it, or an element type is not supported.
    pub fn new(workload: &Workload) -> Result<Suite, String> {
        Suite::with_shelf(workload, None)
    }

    /// As [`Suite::new`], but cases that an earlier worker left are only read, and others left for those to come.
    pub(crate) fn with_shelf(workload: &Workload, mut shelf: Option<Shelf>) -> Result<Suite, String> {
        let [output] = workload.outputs()[..] else { return Err("more than one output is not supported yet".into()) };
        let dtype = workload.operands[output].dtype;
        let length =
            usize::try_from(workload.operand_len(output)).map_err(|_| "the output is too large".to_string())?;
        let poison = inputs::poison(dtype).repeat(length);
        let mut computing = Computing::default();
        let mut case = |check, make: fn(&Workload) -> Result<Case, String>| {
            let mut took = Duration::ZERO;
            let case = Case::shared(workload, check, shelf.as_mut(), |workload| {
                let start = Instant::now();
                let case = make(workload);
                took = start.elapsed();
                case
            })?;
            if took > Duration::ZERO {
                computing.case = took;
            }
            if case.is_kept() {
                computing.spared += took;
            }
            Ok::<Case, String>(case)
        };
        let exact = if is_exact(workload) { Some(case(Check::Exact, Case::exact)?) } else { None };
        let numeric = case(Check::Numeric, Case::numeric)?;
        Ok(Suite {
            workload: workload.clone(),
            output,
            exact,
            numeric,
            hostile: OnceCell::new(),
            poison,
            gaps: expected::gaps(workload, output),
            passed: BTreeSet::new(),
            shelf: RefCell::new(shelf),
            computing,
        })
    }

    /// Inputs for timing: N(0, 1), as zeros draw less power than data.
    pub fn timing_inputs(&self) -> &InputBytes {
        &self.numeric.inputs
    }

    /// What computing the exact and the numeric case took here.
    pub fn computing(&self) -> Computing {
        self.computing
    }

    /// What every candidate must pass before it is timed: exact, and numeric if no kernel of this hash passed it yet.
    /// Gives the nanoseconds of the last run.
    ///
    /// # Errors
    ///
    /// [`Outcome::Wrong`] with the first element that differs, or what the device fails with.
    pub fn check<D: Device>(
        &mut self,
        device: &mut D,
        kernel: &mut D::Kernel,
        memory: &mut D::Memory,
    ) -> Result<f64, Failure> {
        let hash = device.describe(kernel).program_hash;
        let mut ns = None;
        if let Some(exact) = &self.exact {
            ns = Some(self.run(exact, device, kernel, memory)?.0);
        }
        match ns {
            Some(ns) if self.passed.contains(&hash) => Ok(ns),
            _ => {
                let (ns, _) = self.run(&self.numeric, device, kernel, memory)?;
                self.passed.insert(hash);
                Ok(ns)
            }
        }
    }

    /// What a winner must pass besides.
    ///
    /// # Errors
    ///
    /// As [`Suite::check`].
    pub fn check_hostile<D: Device>(
        &self,
        device: &mut D,
        kernel: &mut D::Kernel,
        memory: &mut D::Memory,
    ) -> Result<(), Failure> {
        let make = || Case::shared(&self.workload, Check::Hostile, self.shelf.borrow_mut().as_mut(), Case::hostile);
        let case = self.hostile.get_or_init(make);
        let case = case.as_ref().map_err(|message| Failure::new(Outcome::Wrong, message.clone()))?;
        let (_, first) = self.run(case, device, kernel, memory)?;
        let (_, second) = self.run(case, device, kernel, memory)?;
        if self.workload.det == Determinism::Fixed && first != second {
            let width = self.element_bytes();
            let at = first.chunks(width).zip(second.chunks(width)).position(|(a, b)| a != b).unwrap_or(0);
            let message = format!("hostile check: two runs gave different bits, first at element {at} of the output");
            return Err(Failure::new(Outcome::Wrong, message));
        }
        Ok(())
    }

    /// Poisons, runs, compares. Gives the time and the output.
    fn run<D: Device>(
        &self,
        case: &Case,
        device: &mut D,
        kernel: &mut D::Kernel,
        memory: &mut D::Memory,
    ) -> Result<(f64, Vec<u8>), Failure> {
        case.inputs.write(device, memory)?;
        device.write(memory, self.output, &self.poison)?;
        let ns = device.run(kernel, memory)?;
        let output = device.read(memory, self.output)?;
        self.compare(case, &output).map_err(|message| {
            Failure::new(
                Outcome::Wrong,
                format!("{} check of {}: {message}", case.check, self.workload.operands[self.output].name),
            )
        })?;
        Ok((ns, output))
    }

    fn compare(&self, case: &Case, output: &[u8]) -> Result<(), String> {
        let width = self.element_bytes();
        if output.len() != self.poison.len() {
            return Err(format!("the device returned {} bytes, expected {}", output.len(), self.poison.len()));
        }
        let poison = &self.poison[..width.min(self.poison.len())];
        let in_gap = |at: usize| self.gaps.get(at).copied().unwrap_or(false);
        let dtype = self.workload.operands[self.output].dtype;
        // Mostly there is no poison left and none wanted, which is seen much faster.
        let suspicious = !self.gaps.is_empty() || dtype.is_float() && inputs::holds_poison(dtype, output);
        for (at, element) in output.chunks(width).enumerate().filter(|_| suspicious) {
            match (element == poison, in_gap(at)) {
                // An integer result may equal the poison by chance; the comparison below still sees a skipped tile.
                (true, false) if dtype.is_float() => {
                    let skipped = output.chunks(width).enumerate().filter(|(i, e)| *e == poison && !in_gap(*i)).count();
                    return Err(format!("{} was not written, as {skipped} elements in all", self.name(at)));
                }
                (false, true) => return Err(format!("the gap at element {at} of the buffer was written")),
                _ => {}
            }
        }
        case.expected.compare(output, &self.gaps, |at| self.name(at))?;
        if case.sketches.is_empty() {
            return Ok(());
        }
        let values = inputs::decode(dtype, output);
        case.sketches.iter().try_for_each(|sketch| sketch.compare(&values))
    }

    fn element_bytes(&self) -> usize {
        inputs::width(self.workload.operands[self.output].dtype)
    }

    /// `[3, 7]`: the coordinates of an element of the output's buffer, for messages.
    fn name(&self, at: usize) -> String {
        let mut rest = u64::try_from(at).unwrap_or(u64::MAX);
        let (shape, strides) = (self.workload.operand_shape(self.output), self.workload.operand_strides(self.output));
        let mut dims: Vec<usize> = (0..shape.len()).filter(|d| shape[*d] > 1 && strides[*d] > 0).collect();
        dims.sort_by_key(|d| std::cmp::Reverse(strides[*d]));
        let mut coordinates = vec![0; shape.len()];
        for d in dims {
            coordinates[d] = rest / strides[d];
            rest %= strides[d];
        }
        format!("{coordinates:?}")
    }
}

impl Case {
    fn exact(workload: &Workload) -> Result<Case, String> {
        let inputs = Inputs::ternary(workload)?;
        let sketches = if workload_madds(workload) > FULL_MADDS { Sketch::both(workload, &inputs) } else { Vec::new() };
        // Where no product check applies (ReLU), the reference computes more in full instead.
        let (full, points) =
            if sketches.is_empty() { (FULL_MADDS << 3, MAX_POINTS) } else { (FULL_MADDS, MAX_POINTS / 4) };
        let expected = Expected::new(workload, &inputs, full, points, Case::class(workload, Check::Exact))?;
        Ok(Case { check: Check::Exact, inputs: inputs.into_bytes(), expected, sketches })
    }

    fn numeric(workload: &Workload) -> Result<Case, String> {
        Case::random(workload, Check::Numeric, Inputs::normal(workload)?)
    }

    fn hostile(workload: &Workload) -> Result<Case, String> {
        Case::random(workload, Check::Hostile, Inputs::hostile(workload)?)
    }

    fn random(workload: &Workload, check: Check, inputs: Inputs) -> Result<Case, String> {
        let expected = Expected::new(workload, &inputs, FULL_MADDS, MAX_POINTS, Case::class(workload, check))?;
        Ok(Case { check, inputs: inputs.into_bytes(), expected, sketches: Vec::new() })
    }

    fn class(workload: &Workload, check: Check) -> Class {
        match check {
            Check::Exact => Class::Bits,
            Check::Numeric => tolerance::numeric(workload),
            Check::Hostile => tolerance::hostile(workload),
        }
    }

    /// The case that an earlier worker left, or a new one, left for the next worker where that is possible.
    fn shared(
        workload: &Workload,
        check: Check,
        shelf: Option<&mut Shelf>,
        make: impl FnOnce(&Workload) -> Result<Case, String>,
    ) -> Result<Case, String> {
        let Some(shelf) = shelf else { return make(workload) };
        let name = check.to_string();
        if let Some(case) = shelf.take(&name).and_then(|parts| Case::restore(workload, check, parts)) {
            return Ok(case);
        }
        let case = make(workload)?;
        let kept = {
            let sketches: Vec<Vec<u8>> = case.sketches.iter().flat_map(Sketch::parts).collect();
            let parts = case.inputs.parts().chain(case.expected.parts());
            let parts: Vec<&[u8]> = parts.chain(sketches.iter().map(|part| &part[..])).collect();
            shelf.put(&name, &parts)
        };
        // As it lies there: one copy for all, which no kernel can write.
        Ok(kept.and_then(|parts| Case::restore(workload, check, parts)).unwrap_or(case))
    }

    /// A case from its parts: those of the inputs, of the expected values, of the sketches.
    fn restore(workload: &Workload, check: Check, mut parts: Vec<Bytes>) -> Option<Case> {
        let inputs = workload.inputs().len();
        let sketches = parts.split_off((inputs + 2).min(parts.len()));
        let expected: [Bytes; 2] = parts.split_off(inputs.min(parts.len())).try_into().ok()?;
        let sketches = if check == Check::Exact { Sketch::restore(workload, &sketches)? } else { Vec::new() };
        Some(Case {
            check,
            inputs: InputBytes::new(workload, parts.into_iter())?,
            expected: Expected::restore(workload, Case::class(workload, check), expected)?,
            sketches,
        })
    }

    /// Whether it lies where the next worker finds it.
    fn is_kept(&self) -> bool {
        self.inputs.is_kept()
    }
}

/// Multiply-adds, or points of the iteration space where nothing is multiplied.
fn workload_madds(workload: &Workload) -> u64 {
    match workload.op {
        Op::ContractMadd | Op::Attention { .. } => workload.flops() / 2,
        _ => workload.points(),
    }
}

/// Terms of each sum.
fn reduction_length(workload: &Workload) -> u64 {
    let reduced = |axis: &&search_space::workload::Axis| axis.kind == search_space::workload::AxisKind::Reduction;
    workload.axes.iter().filter(reduced).fold(1, |product, axis| product.saturating_mul(axis.extent.max()))
}

/// Whether small integers stay exact through the whole workload, up to one rounding to the output's type.
fn is_exact(workload: &Workload) -> bool {
    workload.math != MathMode::Fast
        && (workload.op.is_contraction() || matches!(workload.op, Op::Map | Op::RowsArgMax))
        && workload.epilogue.iter().all(|step| match step {
            EpilogueStep::Bias(_)
            | EpilogueStep::Add(_)
            | EpilogueStep::Mul(_)
            | EpilogueStep::Relu
            | EpilogueStep::Clip(..) => true,
            // Powers of two only move the exponent.
            EpilogueStep::Scale(factor) => {
                factor.is_normal() && factor.to_bits() << 12 == 0 && factor.abs().log2().abs() < 32.0
            }
            EpilogueStep::Cast(dtype) => matches!(dtype, DType::F32 | DType::F64),
            _ => false,
        })
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "families_tests.rs"]
mod families_tests;
