//! What makers publish about devices: how a result carries over from one device to another depends on it.
//!
//! The figures are in `devices.toml`, each device with its sources. They are facts of data sheets, not measurements, and
//! the list is short: a device that is missing has no features, which is no error. Deliberately absent: anything that is
//! measured, and peak rates, which follow from the rest ([`Device::f32_flops_per_s`]).
//!
//! ```
//! use tilewright_datasets::devices;
//! let device = devices::find("NVIDIA GeForce RTX 3090").expect("it is in the list");
//! assert_eq!(device.units, 82);
//! assert_eq!(devices::find("RTX_3090"), Some(device));
//! assert_eq!(devices::find("RTX 3090 Ti"), None);
//! ```

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

/// Words of makers and product lines that a name may have or lack.
const DECORATION: [&str; 8] = ["nvidia", "geforce", "quadro", "tesla", "amd", "instinct", "radeon", "gpu"];
/// Makers, each with words that only names of its devices have.
const MAKERS: [(&str, &[&str]); 5] = [
    ("nvidia", &["nvidia", "geforce", "quadro", "tesla", "rtx", "gtx"]),
    ("amd", &["amd", "radeon", "instinct", "firepro"]),
    ("intel", &["intel", "arc", "iris"]),
    ("apple", &["apple"]),
    ("qualcomm", &["qualcomm", "adreno"]),
];

static LIST: LazyLock<List> =
    LazyLock::new(|| toml::from_str(include_str!("../devices.toml")).expect("invariant: the list is well-formed"));

/// A device. What no source gives is `None`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Its full name.
    pub name: String,
    /// Other names, compared as [`find`] does.
    pub aliases: Vec<String>,
    /// Streaming multiprocessors (NVIDIA) or compute units (AMD).
    pub units: u32,
    /// Fused multiply-adds of f32 that one unit starts in a cycle.
    pub lanes: u32,
    /// Threads that run in step: a warp, or a wavefront.
    pub warp: u32,
    /// Boost clock in MHz.
    pub clock_mhz: Option<u32>,
    /// The published peak rate from which the clock was computed, where no clock is published.
    pub clock_from: Option<String>,
    /// Peak bandwidth of the memory in 10^9 bytes per second.
    pub bandwidth_gb_s: Option<u32>,
    /// Level 2 cache of the whole device in KiB.
    pub l2_kib: Option<u32>,
    /// Most shared memory (LDS) of one unit in KiB.
    pub shared_kib: Option<u32>,
    /// Memory in GiB.
    pub memory_gib: Option<u32>,
    /// Where the figures are from: keys of [`source`].
    pub sources: Vec<String>,
}

impl Device {
    /// Peak f32 operations per second, a fused multiply-add counted as two.
    #[must_use]
    pub fn f32_flops_per_s(&self) -> Option<f64> {
        let clock_hz = f64::from(self.clock_mhz?) * 1e6;
        Some(2.0 * f64::from(self.units) * f64::from(self.lanes) * clock_hz)
    }

    /// Peak bandwidth of the memory in bytes per second.
    #[must_use]
    pub fn bytes_per_s(&self) -> Option<f64> {
        self.bandwidth_gb_s.map(|gb_s| f64::from(gb_s) * 1e9)
    }

    /// Level 2 cache of the whole device in bytes.
    #[must_use]
    pub fn l2_bytes(&self) -> Option<u64> {
        self.l2_kib.map(|kib| u64::from(kib) << 10)
    }

    /// Most shared memory of one unit in bytes.
    #[must_use]
    pub fn shared_bytes(&self) -> Option<u64> {
        self.shared_kib.map(|kib| u64::from(kib) << 10)
    }

    /// Memory in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> Option<u64> {
        self.memory_gib.map(|gib| u64::from(gib) << 30)
    }
}

impl Device {
    /// The figures of `other` over those of this one, as far as both are published: units, lanes, peak rate, bandwidth,
    /// level 2 cache, shared memory.
    #[must_use]
    pub fn ratios(&self, other: &Device) -> Vec<f64> {
        let figures = |device: &Device| {
            [
                Some(f64::from(device.units)),
                Some(f64::from(device.lanes)),
                device.f32_flops_per_s(),
                device.bytes_per_s(),
                device.l2_kib.map(f64::from),
                device.shared_kib.map(f64::from),
            ]
        };
        figures(self).into_iter().zip(figures(other)).filter_map(|(own, others)| Some(others? / own?)).collect()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    sources: BTreeMap<String, String>,
    device: Vec<Device>,
}

/// The device with this name, as drivers, data sheets or recorded spaces give it. Case, spaces and punctuation do not
/// matter, nor do names of makers and product lines, nor anything in brackets; beyond these a name matches as a whole, so
/// an `RTX 3090 Ti` is no `RTX 3090`.
#[must_use]
pub fn find(name: &str) -> Option<&'static Device> {
    let plain = plain(name);
    LIST.device.iter().find(|device| names(device).any(|known| known == plain))
}

/// The maker of the device with this name, in small letters; `None` when neither the list nor the name tells.
#[must_use]
pub fn maker(name: &str) -> Option<&'static str> {
    let full = find(name).map_or(name, |device| &device.name).to_ascii_lowercase();
    let words: Vec<&str> = full.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    MAKERS.iter().find(|(_, known)| known.iter().any(|word| words.contains(word))).map(|(maker, _)| *maker)
}

/// All devices of the list.
pub fn all() -> impl Iterator<Item = &'static Device> {
    LIST.device.iter()
}

/// Title and address of a source that a device names.
#[must_use]
pub fn source(key: &str) -> Option<&'static str> {
    LIST.sources.get(key).map(String::as_str)
}

fn names(device: &Device) -> impl Iterator<Item = String> {
    std::iter::once(&device.name).chain(&device.aliases).map(|name| plain(name))
}

/// What is left of a name when everything is gone that does not matter.
fn plain(name: &str) -> String {
    let (mut kept, mut depth) = (String::new(), 0usize);
    for c in name.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            c if c.is_ascii_alphanumeric() => kept.push(c.to_ascii_lowercase()),
            _ => kept.push(' '),
        }
    }
    kept.split_whitespace().filter(|word| !DECORATION.contains(word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a figure is missing or in the range.
    fn sane(value: Option<u32>, range: std::ops::RangeInclusive<u32>) -> bool {
        value.is_none_or(|value| range.contains(&value))
    }

    #[test]
    fn names_of_drivers_and_of_recorded_spaces_are_found() {
        for (name, units) in [
            ("NVIDIA GeForce RTX 3090", 82),
            ("RTX_3090", 82),
            ("geforce rtx 3090", 82),
            ("NVIDIA RTX A4000", 48),
            ("A4000", 48),
            ("a6000", 84),
            ("NVIDIA GeForce RTX 2080 Ti", 68),
            ("RTX_2080_Ti", 68),
            ("NVIDIA GeForce RTX 3060 Laptop GPU", 30),
            ("RTX_3060_laptop", 30),
            ("GeForce GTX 1070", 15),
            ("MI250X", 110),
            ("AMD Instinct MI250X", 110),
            ("AMD Radeon PRO W6600", 28),
            ("W6600", 28),
            ("AMD Radeon RX 7900 XTX (RADV NAVI31)", 96),
            ("NVIDIA A100-SXM4-80GB", 108),
            ("NVIDIA H200", 132),
        ] {
            assert_eq!(find(name).map(|device| device.units), Some(units), "{name}");
        }
    }

    #[test]
    fn devices_with_longer_or_shorter_names_are_others() {
        for name in ["RTX 3090 Ti", "RTX 3060", "GTX 1070 Ti", "A40", "MI250", "RX 7900 XT", "H100 PCIe", "", "NVIDIA"]
        {
            assert_eq!(find(name), None, "{name}");
        }
    }

    #[test]
    fn makers_are_known_from_the_list_or_the_name() {
        for (name, wanted) in [
            ("MI250X", Some("amd")),
            ("A4000", Some("nvidia")),
            ("GeForce GTX 980", Some("nvidia")),
            ("RTX_5090", Some("nvidia")),
            ("AMD Radeon Pro W7900", Some("amd")),
            ("Intel(R) Arc(tm) A770", Some("intel")),
            ("llvmpipe (LLVM 15.0.6, 256 bits)", None),
            ("Tracer", None),
            ("", None),
        ] {
            assert_eq!(maker(name), wanted, "{name}");
        }
        assert!(all().all(|device| maker(&device.name).is_some()));
    }

    #[test]
    fn figures_compare_where_both_are_published() {
        let [laptop, a4000] = ["RTX 3060 laptop", "A4000"].map(|name| find(name).unwrap());
        // Neither clock nor level 2 cache of the first are published.
        assert_eq!(laptop.ratios(a4000), [48.0 / 30.0, 1.0, 448.0 / 336.0, 1.0]);
        assert!(a4000.ratios(a4000).iter().all(|ratio| *ratio == 1.0));
    }

    #[test]
    fn no_name_means_two_devices() {
        let mut owners = BTreeMap::new();
        for device in all() {
            for name in names(device) {
                assert!(!name.is_empty(), "{}: a name of decoration only", device.name);
                let owner = owners.entry(name.clone()).or_insert(&device.name);
                assert_eq!(*owner, &device.name, "{name}");
            }
        }
    }

    #[test]
    fn every_device_has_sources_and_every_source_an_address_and_a_use() {
        for device in all() {
            assert!(!device.sources.is_empty(), "{}", device.name);
            for key in &device.sources {
                let text = source(key).unwrap_or_else(|| panic!("{}: no source {key}", device.name));
                assert!(text.contains(", https://"), "{key}: {text}");
            }
        }
        for key in LIST.sources.keys() {
            assert!(all().any(|device| device.sources.contains(key)), "nothing is from {key}");
        }
    }

    #[test]
    fn figures_are_of_the_right_size() {
        for device in all() {
            let name = &device.name;
            assert!((8..=512).contains(&device.units), "{name}");
            assert!([64, 128].contains(&device.lanes) && [32, 64].contains(&device.warp), "{name}");
            assert!(sane(device.clock_mhz, 800..=3500), "{name}");
            assert!(sane(device.bandwidth_gb_s, 100..=10_000), "{name}");
            assert!(sane(device.l2_kib, 1024..=262_144), "{name}");
            assert!(sane(device.shared_kib, 32..=256), "{name}");
            assert!(sane(device.memory_gib, 4..=512), "{name}");
            // Machine balance: all of them take 5 to 100 operations per byte from memory.
            if let (Some(flops), Some(bytes)) = (device.f32_flops_per_s(), device.bytes_per_s()) {
                assert!((5.0..=110.0).contains(&(flops / bytes)), "{name}: {}", flops / bytes);
            }
        }
    }

    #[test]
    fn computed_clocks_give_the_published_rate() {
        for device in all() {
            let Some(published) = &device.clock_from else { continue };
            let tera: f64 = published.strip_suffix(" TFLOP/s").unwrap().parse().unwrap();
            let computed = device.f32_flops_per_s().unwrap() / 1e12;
            assert!((computed / tera - 1.0).abs() < 0.005, "{}: {computed} of {tera}", device.name);
        }
    }

    #[test]
    fn quantities_come_in_their_units() {
        let device = find("RTX 3090").unwrap();
        assert_eq!(device.l2_bytes(), Some(6 << 20));
        assert_eq!(device.shared_bytes(), Some(100 << 10));
        assert_eq!(device.memory_bytes(), Some(24 << 30));
        assert_eq!(device.bytes_per_s(), Some(936e9));
        // 35.6 TFLOP/s in the white paper.
        assert!((device.f32_flops_per_s().unwrap() / 1e12 - 35.6).abs() < 0.05);
    }
}
