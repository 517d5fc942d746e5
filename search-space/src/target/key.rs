//! The canonical text of a target: `tt1;cpu;sapphirerapids;core;avx512f,fma;1`. Byte-exact in `docs/keys.md`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::TargetKind;

/// Longest target key that is read, in bytes.
const MAX_KEY: usize = 4096;
/// Most threads a key may name.
const MAX_THREADS: u64 = 1 << 16;
const FIELDS: [&str; 6] = ["version", "kind", "arch", "unit", "features", "threads"];

/// Identity of a target. Serialises as its text.
///
/// ```
/// use tilewright_search_space::target::{TargetKey, TargetKind};
/// let key = TargetKey::new(TargetKind::Cpu, "sapphirerapids", "core", ["fma", "avx512f"], 1)?;
/// assert_eq!(key.to_string(), "tt1;cpu;sapphirerapids;core;avx512f,fma;1");
/// assert_eq!(TargetKey::parse(&key.to_string())?, key);
/// # Ok::<(), tilewright_search_space::target::TargetKeyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TargetKey {
    /// Interface.
    pub kind: TargetKind,
    /// Architecture: an LLVM CPU name (`sapphirerapids`), or `vendor.device` of a Vulkan device.
    pub arch: String,
    /// Which unit of the architecture runs the kernel: `core`, or the Vulkan driver's name (`llvmpipe`).
    pub unit: String,
    /// Instruction-set features used: `avx512f`, `fma`. Sorted by byte value, as the text must be.
    pub features: BTreeSet<String>,
    /// Threads the kernel may use (CPU); `1` elsewhere.
    pub threads: u64,
}

/// Why a text is not a target key, or parts do not make one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TargetKeyError {
    /// Not six fields between semicolons, or far too long.
    #[error(
        "a target key has 6 fields, tt1;kind;arch;unit;features;threads, in {MAX_KEY} bytes at most; found {found}"
    )]
    Shape {
        /// Fields found.
        found: usize,
    },
    /// A field that is malformed or not canonical.
    #[error("target key, {field} at byte {at}: found {found:?}, expected {expected}")]
    Field {
        /// Which field.
        field: &'static str,
        /// Byte at which the field begins.
        at: usize,
        /// The field, cut to 64 characters.
        found: String,
        /// What the canonical text has there.
        expected: &'static str,
    },
}

impl TargetKey {
    /// A key from its parts; repeated features count once.
    ///
    /// # Errors
    ///
    /// [`TargetKeyError::Field`] when a part has characters that keys reserve. [`TargetKey::word`] makes any text fit.
    pub fn new<F: Into<String>>(
        kind: TargetKind,
        arch: &str,
        unit: &str,
        features: impl IntoIterator<Item = F>,
        threads: u64,
    ) -> Result<TargetKey, TargetKeyError> {
        let features = features.into_iter().map(Into::into).collect();
        let key = TargetKey { kind, arch: arch.into(), unit: unit.into(), features, threads };
        // A part with a reserved character gives a text that reads as something else.
        let text = key.to_string();
        match TargetKey::parse(&text) {
            Ok(read) if read == key => Ok(key),
            Ok(_) => Err(TargetKeyError::Field { field: "features", at: 0, found: cut(&text), expected: FEATURES }),
            Err(error) => Err(error),
        }
    }

    /// `text` as a word that a key can hold: lower case, every other character as `_`, at most 64 bytes.
    pub fn word(text: &str) -> String {
        let word: String = text.trim().chars().take(64).map(|c| c.to_ascii_lowercase()).collect();
        let word: String = word.chars().map(|c| if is_word_char(c) { c } else { '_' }).collect();
        if word.is_empty() || word == "-" { "unknown".into() } else { word }
    }

    /// Reads a canonical target key.
    ///
    /// # Errors
    ///
    /// [`TargetKeyError`], naming the field, when the text is not exactly what `to_string` writes.
    pub fn parse(text: &str) -> Result<TargetKey, TargetKeyError> {
        let parts: Vec<&str> = text.split(';').collect();
        let [version, kind, arch, unit, features, threads] = parts[..] else {
            return Err(TargetKeyError::Shape { found: parts.len() });
        };
        if text.len() > MAX_KEY {
            return Err(TargetKeyError::Shape { found: parts.len() });
        }
        let error = |field: usize, expected| TargetKeyError::Field {
            field: FIELDS[field],
            at: parts[..field].iter().map(|part| part.len() + 1).sum(),
            found: cut(parts[field]),
            expected,
        };
        if version != "tt1" {
            return Err(error(0, "tt1, the version this build reads"));
        }
        let kind = TargetKind::ALL.into_iter().find(|known| known.as_str() == kind);
        let kind = kind.ok_or_else(|| error(1, "cpu or vulkan"))?;
        for (field, word) in [(2, arch), (3, unit)] {
            if !is_word(word) {
                return Err(error(field, "1 to 64 of the characters a-z 0-9 _ . + -, and not - alone"));
            }
        }
        let listed: Vec<&str> = if features == "-" { Vec::new() } else { features.split(',').collect() };
        if !listed.iter().all(|feature| is_word(feature)) || !listed.windows(2).all(|pair| pair[0] < pair[1]) {
            return Err(error(4, FEATURES));
        }
        let count = threads.parse().ok().filter(|count: &u64| (1..=MAX_THREADS).contains(count));
        let count = count.filter(|count| count.to_string() == threads);
        let threads = count.ok_or_else(|| error(5, "1 to 65536 without sign or leading zeros"))?;
        let features = listed.into_iter().map(String::from).collect();
        Ok(TargetKey { kind, arch: arch.into(), unit: unit.into(), features, threads })
    }

    /// The identity of the key: BLAKE3 of its text, 64 hexadecimal digits.
    pub fn id(&self) -> String {
        blake3::hash(self.to_string().as_bytes()).to_hex().to_string()
    }
}

const FEATURES: &str = "- or words in ascending byte order, each once, separated by commas";

impl fmt::Display for TargetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let features: Vec<&str> = self.features.iter().map(String::as_str).collect();
        let features = if features.is_empty() { "-".into() } else { features.join(",") };
        write!(f, "tt1;{};{};{};{features};{}", self.kind.as_str(), self.arch, self.unit, self.threads)
    }
}

impl FromStr for TargetKey {
    type Err = TargetKeyError;

    fn from_str(text: &str) -> Result<TargetKey, TargetKeyError> {
        TargetKey::parse(text)
    }
}

impl TryFrom<String> for TargetKey {
    type Error = TargetKeyError;

    fn try_from(text: String) -> Result<TargetKey, TargetKeyError> {
        TargetKey::parse(&text)
    }
}

impl From<TargetKey> for String {
    fn from(key: TargetKey) -> String {
        key.to_string()
    }
}

fn is_word(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text != "-" && text.chars().all(is_word_char)
}

fn is_word_char(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || "_.+-".contains(c)
}

fn cut(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    const TEXT: &str = "tt1;cpu;sapphirerapids;core;avx512f,fma;1";

    fn refusal(text: &str) -> String {
        TargetKey::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn canonical_text_round_trips() {
        for text in [TEXT, "tt1;vulkan;10005.0;llvmpipe;-;1", "tt1;cpu;znver4;core;sse4.2;65536"] {
            assert_eq!(TargetKey::parse(text).unwrap().to_string(), text);
        }
        let json = serde_json::to_string(&TargetKey::parse(TEXT).unwrap()).unwrap();
        assert_eq!(json, format!("{TEXT:?}"));
        assert!(serde_json::from_str::<TargetKey>("\"tt1;cpu\"").is_err());
    }

    #[test]
    fn other_texts_are_refused_with_field_and_place() {
        assert!(refusal("").contains("6 fields"));
        assert!(refusal(&format!("tt1;cpu;{};core;-;1", "a,".repeat(4096))).contains("4096 bytes"));
        for (text, field, at) in [
            ("tt2;cpu;a;core;-;1", "version", 0),
            ("tt1;gpu;a;core;-;1", "kind", 4),
            ("tt1;cpu;A;core;-;1", "arch", 8),
            ("tt1;cpu;a;a core;-;1", "unit", 10),
            ("tt1;cpu;a;core;fma,avx;1", "features", 15),
            ("tt1;cpu;a;core;avx,avx;1", "features", 15),
            ("tt1;cpu;a;core;;1", "features", 15),
            ("tt1;cpu;a;core;-,avx;1", "features", 15),
            ("tt1;cpu;a;core;-;01", "threads", 17),
            ("tt1;cpu;a;core;-;+1", "threads", 17),
            ("tt1;cpu;a;core;-;0", "threads", 17),
            ("tt1;cpu;a;core;-;65537", "threads", 17),
        ] {
            let message = refusal(text);
            assert!(message.contains(&format!("{field} at byte {at}:")), "{text}: {message}");
        }
    }

    #[test]
    fn parts_that_would_read_as_something_else_are_refused() {
        for feature in ["avx,fma", "a;b", "", "-"] {
            assert!(TargetKey::new(TargetKind::Cpu, "a", "core", [feature], 1).is_err(), "{feature:?}");
        }
        assert!(TargetKey::new(TargetKind::Cpu, "a;b", "core", ["fma"], 1).is_err());
        assert_eq!(TargetKey::word("NVIDIA GeForce; RTX"), "nvidia_geforce__rtx");
        assert_eq!(TargetKey::word(""), "unknown");
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn whatever_parses_is_canonical(bytes in proptest::collection::vec(any::<u8>(), 0..60), at in 0..TEXT.len(), to in 32u8..127) {
            if let Ok(key) = TargetKey::parse(&String::from_utf8_lossy(&bytes)) {
                prop_assert_eq!(key.to_string().into_bytes(), bytes);
            }
            let mut mutated = TEXT.as_bytes().to_vec();
            mutated[at] = to;
            let mutated = String::from_utf8(mutated).unwrap();
            if let Ok(key) = TargetKey::parse(&mutated) {
                prop_assert_eq!(key.to_string(), mutated);
            }
        }
    }
}
