//! The roofline: a kernel takes at least as long as its arithmetic at the device's best rate for it, and as reading
//! what it needs. Williams, Waterman and Patterson, "Roofline" (CACM 52/4, 2009).

use search_space::workload::{DType, Op};
use search_space::{Target, Workload};
use serde::{Deserialize, Serialize};

/// What a device does at best with all its threads at once, measured next to the run. A rate is `0` where the target has
/// no such unit, or where it cannot be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Peak {
    /// f32 multiply-adds, counted as two operations each, per second.
    pub flops_per_s: f64,
    /// Products of bf16 and their sums in f32 on a matrix unit, counted as two operations, per second.
    pub amx_bf16_flops_per_s: f64,
    /// Products of bytes and their sums on a matrix unit, counted as two operations, per second.
    pub amx_int8_ops_per_s: f64,
    /// Products of bytes and their sums in vectors, counted as two operations, per second.
    pub vnni_int8_ops_per_s: f64,
    /// Bytes read per second of [`NEAR_BYTES`] that were read a moment ago: from the last cache, where that holds them.
    pub near_bytes_per_s: f64,
    /// Bytes read from memory per second.
    pub bytes_per_s: f64,
}

/// Operands up to this size are read at the rate of what was read a moment ago, as kernels are timed again and again.
pub const NEAR_BYTES: u64 = 32 << 20;

/// One of the rates that bound a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Roof {
    /// f32 multiply-adds.
    Fma,
    /// bf16 on a matrix unit.
    AmxBf16,
    /// Bytes on a matrix unit.
    AmxInt8,
    /// Bytes in vectors.
    Vnni,
    /// Reading what is in the last cache.
    Cache,
    /// Reading memory.
    Read,
}

impl Roof {
    /// All of them.
    pub const ALL: [Roof; 6] = [Roof::Fma, Roof::AmxBf16, Roof::AmxInt8, Roof::Vnni, Roof::Cache, Roof::Read];

    /// Its name in reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Roof::Fma => "fma",
            Roof::AmxBf16 => "amx-bf16",
            Roof::AmxInt8 => "amx-int8",
            Roof::Vnni => "vnni",
            Roof::Cache => "cache",
            Roof::Read => "read",
        }
    }

    /// Its name, with the unit, among the peaks of a database.
    #[must_use]
    pub fn quantity(self) -> &'static str {
        match self {
            Roof::Fma => "fma_f32_flops_per_s",
            Roof::AmxBf16 => "amx_bf16_flops_per_s",
            Roof::AmxInt8 => "amx_int8_ops_per_s",
            Roof::Vnni => "vnni_int8_ops_per_s",
            Roof::Cache => "read_cached_bytes_per_s",
            Roof::Read => "read_bytes_per_s",
        }
    }
}

impl std::fmt::Display for Roof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Peak {
    /// The rate of a roof.
    #[must_use]
    pub fn rate(&self, roof: Roof) -> f64 {
        match roof {
            Roof::Fma => self.flops_per_s,
            Roof::AmxBf16 => self.amx_bf16_flops_per_s,
            Roof::AmxInt8 => self.amx_int8_ops_per_s,
            Roof::Vnni => self.vnni_int8_ops_per_s,
            Roof::Cache => self.near_bytes_per_s,
            Roof::Read => self.bytes_per_s,
        }
    }

    /// What bounds products of factors of a type: the fastest unit that multiplies them. Without a matrix unit, bf16 is
    /// widened to f32; no peak of widened bytes is known.
    #[must_use]
    pub fn roof_of(&self, factors: DType) -> Option<Roof> {
        let units: &[Roof] = match factors {
            DType::Bf16 => &[Roof::AmxBf16, Roof::Fma],
            DType::I8 | DType::U8 => &[Roof::AmxInt8, Roof::Vnni],
            _ => &[Roof::Fma],
        };
        units.iter().copied().find(|unit| self.rate(*unit) > 0.0)
    }
}

/// What one call of a kernel has to do at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Element type of the factors that are multiplied; f32 where nothing is.
    pub factors: DType,
    /// Operations, where they count.
    pub operations: Option<u64>,
    /// Bytes read from beyond the second-level cache, where they count.
    pub bytes: Option<u64>,
}

impl Demand {
    /// What a workload asks of a target.
    #[must_use]
    pub fn of(workload: &Workload, target: &Target) -> Demand {
        let products = matches!(workload.op, Op::ContractMadd | Op::Attention { .. });
        let factors = workload.factors().into_iter().map(|factor| workload.operands[factor].dtype);
        // Of unlike factors the wider one decides what multiplies them.
        let widest = factors.max_by_key(|dtype| dtype.bytes()).filter(|_| products);
        let bytes = workload.min_bytes();
        Demand {
            factors: widest.unwrap_or(DType::F32),
            operations: Some(workload.flops()),
            // What stays in the second-level cache between calls is not bound by what was read from beyond it.
            bytes: (bytes > 2 * target.limits.l2_bytes).then_some(bytes),
        }
    }

    /// The least seconds that this takes, and which roof says so; `None` where nothing counts or no rate is known.
    #[must_use]
    pub fn bound_s(&self, peak: &Peak) -> Option<(f64, Roof)> {
        let bound = |amount: Option<u64>, roof: Option<Roof>| {
            let (amount, roof) = (amount?, roof?);
            #[expect(clippy::cast_precision_loss, reason = "a rounded bound is as good")]
            let seconds = amount as f64 / peak.rate(roof);
            (seconds > 0.0 && seconds.is_finite()).then_some((seconds, roof))
        };
        let arithmetic = bound(self.operations, peak.roof_of(self.factors));
        let near = self.bytes.is_some_and(|bytes| bytes <= NEAR_BYTES) && peak.near_bytes_per_s > peak.bytes_per_s;
        let memory = bound(self.bytes, Some(if near { Roof::Cache } else { Roof::Read }));
        arithmetic.into_iter().chain(memory).max_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// How near `seconds` comes to the roofline, and which roof that is.
    #[must_use]
    pub fn share(&self, peak: &Peak, seconds: f64) -> Option<(f64, Roof)> {
        let (bound, roof) = self.bound_s(peak).filter(|_| seconds > 0.0)?;
        Some((bound / seconds, roof))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEAK: Peak = Peak {
        flops_per_s: 100e9,
        amx_bf16_flops_per_s: 2000e9,
        amx_int8_ops_per_s: 4000e9,
        vnni_int8_ops_per_s: 500e9,
        near_bytes_per_s: 0.0,
        bytes_per_s: 10e9,
    };

    fn bound(factors: DType, operations: Option<u64>, bytes: Option<u64>, peak: &Peak) -> Option<(f64, Roof)> {
        let bound = Demand { factors, operations, bytes }.bound_s(peak);
        bound.map(|(seconds, roof)| ((seconds * 1e12).round() / 1e3, roof))
    }

    #[test]
    fn the_roof_is_whatever_takes_longer_of_what_counts() {
        assert_eq!(bound(DType::F32, Some(1000), Some(10), &PEAK), Some((10.0, Roof::Fma)));
        assert_eq!(bound(DType::F32, Some(1000), Some(1000), &PEAK), Some((100.0, Roof::Read)));
        assert_eq!(bound(DType::F32, Some(1000), None, &PEAK), Some((10.0, Roof::Fma)));
        assert_eq!(bound(DType::F32, None, Some(1000), &PEAK), Some((100.0, Roof::Read)));
        assert_eq!(bound(DType::F32, None, None, &PEAK), None);
        assert_eq!(bound(DType::F32, Some(1000), None, &Peak { flops_per_s: 0.0, ..PEAK }), None);
    }

    #[test]
    fn what_the_last_cache_may_hold_is_read_at_its_rate() {
        let peak = Peak { near_bytes_per_s: 20e9, ..PEAK };
        assert_eq!(bound(DType::F32, None, Some(1000), &peak), Some((50.0, Roof::Cache)));
        assert_eq!(bound(DType::F32, None, Some(NEAR_BYTES + 1), &peak).unwrap().1, Roof::Read);
        // A rate below that of memory was disturbed.
        let disturbed = Peak { near_bytes_per_s: 5e9, ..PEAK };
        assert_eq!(bound(DType::F32, None, Some(1000), &disturbed), Some((100.0, Roof::Read)));
    }

    #[test]
    fn each_type_has_the_roof_of_its_own_unit() {
        assert_eq!(bound(DType::Bf16, Some(1000), None, &PEAK), Some((0.5, Roof::AmxBf16)));
        assert_eq!(bound(DType::I8, Some(1000), None, &PEAK), Some((0.25, Roof::AmxInt8)));
        assert_eq!(bound(DType::F16, Some(1000), None, &PEAK), Some((10.0, Roof::Fma)));
        let vectors = Peak { amx_bf16_flops_per_s: 0.0, amx_int8_ops_per_s: 0.0, ..PEAK };
        assert_eq!(bound(DType::Bf16, Some(1000), None, &vectors), Some((10.0, Roof::Fma)));
        assert_eq!(bound(DType::U8, Some(1000), None, &vectors), Some((2.0, Roof::Vnni)));
        let plain = Peak { vnni_int8_ops_per_s: 0.0, ..vectors };
        assert_eq!(bound(DType::I8, Some(1000), None, &plain), None);
    }

    #[test]
    fn only_products_are_of_their_factors_type_and_only_large_operands_are_read() {
        let target = |l2_bytes| {
            let mut target = search_space::samples::cpu_target("sapphirerapids", &["amx-bf16", "amx-tile"], 64, 1);
            target.limits.l2_bytes = l2_bytes;
            target
        };
        let demand = |text: &str, l2| Demand::of(&text.parse().unwrap(), &target(l2));
        let product = demand("matmul m=64 n=64 k=64 dtype=bf16", 2 << 20);
        assert_eq!((product.factors, product.operations, product.bytes), (DType::Bf16, Some(2 * 64 * 64 * 64), None));
        let attention = demand("attention heads=2 q=64 d=64 dtype=bf16", 2 << 20);
        assert_eq!(attention.factors, DType::Bf16);
        let rows = demand("softmax rows=64 cols=64 dtype=bf16", 2 << 20);
        assert_eq!(rows.factors, DType::F32);
        // Twice the cache: a little more does not stay in it.
        let bytes = 3 * 64 * 64 * 2;
        assert_eq!(demand("matmul m=64 n=64 k=64 dtype=bf16", bytes / 2).bytes, None);
        assert_eq!(demand("matmul m=64 n=64 k=64 dtype=bf16", bytes / 2 - 1).bytes, Some(bytes));
    }

    #[test]
    fn a_share_is_the_bound_of_the_time() {
        let demand = Demand { factors: DType::F32, operations: Some(1_000_000), bytes: None };
        let (share, roof) = demand.share(&PEAK, 20e-6).unwrap();
        assert!((share - 0.5).abs() < 1e-12 && roof == Roof::Fma);
        assert_eq!(demand.share(&PEAK, 0.0), None);
    }

    #[test]
    fn names_are_unlike() {
        for names in [Roof::ALL.map(Roof::as_str), Roof::ALL.map(Roof::quantity)] {
            assert_eq!(names.into_iter().collect::<std::collections::BTreeSet<_>>().len(), Roof::ALL.len());
        }
    }

    #[test]
    fn rates_that_a_message_lacks_are_unknown() {
        let old: Peak = serde_json::from_str(r#"{"flops_per_s": 1.0, "bytes_per_s": 2.0}"#).unwrap();
        assert_eq!(old, Peak { flops_per_s: 1.0, bytes_per_s: 2.0, ..Peak::default() });
    }
}
