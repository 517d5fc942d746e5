//! Which element types a contraction may have, and what of a processor they need.

use super::ContractionView;
use crate::families::Unsupported;
use crate::target::Target;
use crate::workload::{DType, EpilogueStep, Operand, Role, Workload};

/// Whether sums, operands and epilogue can be generated: floating-point factors with sums in binary32, or integers of at
/// most 32 bits with sums and output of 32 bits.
pub(super) fn check(workload: &Workload) -> Result<(), Unsupported> {
    let refused = |name: &str, dtype: DType| {
        let what = format!("type {} with sums in {}", dtype.as_str(), workload.acc.as_str());
        Err(Unsupported::Operand { operand: name.into(), what })
    };
    let float = match workload.acc {
        DType::F32 => true,
        DType::I32 => false,
        other => return refused("acc", other),
    };
    for operand in &workload.operands {
        let fits = match (float, operand.role) {
            (true, _) => matches!(operand.dtype, DType::F32 | DType::F16 | DType::Bf16),
            (false, Role::In) => !operand.dtype.is_float(),
            (false, _) => operand.dtype == DType::I32,
        };
        if !fits {
            return refused(&operand.name, operand.dtype);
        }
        check_use(operand)?;
    }
    let exact = |step: &EpilogueStep| match step {
        // A conversion is the output's own, or it would round in between.
        EpilogueStep::Cast(_) => false,
        EpilogueStep::Relu | EpilogueStep::Bias(_) | EpilogueStep::Add(_) | EpilogueStep::Mul(_) => true,
        EpilogueStep::Clip(lo, hi) => float || [lo, hi].iter().all(|bound| bound.fract() == 0.0),
        _ => float,
    };
    match workload.epilogue.iter().find(|step| !exact(step)) {
        Some(step) => Err(Unsupported::Epilogue { step: step.word().into() }),
        None => Ok(()),
    }
}

fn check_use(operand: &Operand) -> Result<(), Unsupported> {
    let what = if operand.role == Role::InOut {
        "an in-out operand"
    } else if operand.prologue.is_some() {
        "a prologue"
    } else if operand.alias.is_some() {
        "an alias"
    } else {
        return Ok(());
    };
    Err(Unsupported::Operand { operand: operand.name.clone(), what: what.into() })
}

/// Whether a processor can convert all operands: binary16 needs `f16c`.
///
/// # Errors
/// [`Unsupported::Operand`] names the operand and the feature.
pub fn check_conversions(workload: &Workload, target: &Target) -> Result<(), Unsupported> {
    let half = |operand: &&Operand| operand.dtype == DType::F16 && !target.key.features.contains("f16c");
    match workload.operands.iter().find(half) {
        Some(operand) => Err(Unsupported::Operand {
            operand: operand.name.clone(),
            what: "type f16 on a processor without the feature f16c".into(),
        }),
        None => Ok(()),
    }
}

impl ContractionView {
    /// Refuses all types but binary32, for targets that have no other.
    ///
    /// # Errors
    /// [`Unsupported::Operand`], the first operand of another type.
    pub fn only_f32(&self) -> Result<(), Unsupported> {
        match self.workload.operands.iter().find(|operand| operand.dtype != DType::F32) {
            Some(operand) => Err(Unsupported::Operand {
                operand: operand.name.clone(),
                what: format!("type {} on this kind of target", operand.dtype.as_str()),
            }),
            None => Ok(()),
        }
    }

    /// Element types of the factors `a` and `b`.
    pub fn factors(&self) -> [DType; 2] {
        [&self.a, &self.b].map(|map| self.workload.operands[map.operand].dtype)
    }

    /// Whether the output holds sums without rounding them, so that it can keep partial ones.
    pub fn holds_sums(&self) -> bool {
        self.workload.operands[self.out.operand].dtype == self.workload.acc
    }

    /// The feature of a processor whose matrix unit multiplies the factors, if any has one.
    pub fn matrix_feature(&self) -> Option<&'static str> {
        match (self.factors(), self.workload.acc) {
            ([DType::Bf16, DType::Bf16], DType::F32) => Some("amx-bf16"),
            ([DType::I8 | DType::U8, DType::I8 | DType::U8], DType::I32) => Some("amx-int8"),
            _ => None,
        }
    }

    /// Whether a target sums products of bytes in lanes, for these factors.
    pub fn has_byte_sums(&self, target: &Target) -> bool {
        let bytes = matches!(self.factors(), [DType::I8, DType::I8] | [DType::I8, DType::U8] | [DType::U8, DType::I8]);
        bytes
            && self.workload.acc == DType::I32
            && target.key.features.contains("avx512vnni")
            && target.limits.vector_bytes >= 64
    }

    /// Whether a target has a matrix unit for the factors. What surrounds the products works on vectors as long as its
    /// rows.
    pub fn has_matrix(&self, target: &Target) -> bool {
        let has = |feature: &str| target.key.features.contains(feature);
        self.matrix_feature().is_some_and(has) && has("amx-tile") && target.limits.vector_bytes >= 64
    }
}
