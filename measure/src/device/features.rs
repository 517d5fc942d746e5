//! Which of the processor's features kernels may use: `--cpu-features LIST`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use codegen::emit::llvm::FEATURES;

/// What each feature is made of.
const NEEDS: [(&str, &str); 12] = [
    ("amx-bf16", "amx-tile"),
    ("amx-int8", "amx-tile"),
    ("avx2", "avx"),
    ("avx512bw", "avx512f"),
    ("avx512dq", "avx512f"),
    ("avx512f", "avx2"),
    ("avx512f", "f16c"),
    ("avx512f", "fma"),
    ("avx512vl", "avx512f"),
    ("avx512vnni", "avx512f"),
    ("f16c", "avx"),
    ("fma", "avx"),
];

/// The word for a processor without any of the features.
const NONE: &str = "none";

/// A choice among the features of a processor, as words between commas.
///
/// | text | features |
/// | --- | --- |
/// | (empty) | all |
/// | `avx2,fma` | these and what they need |
/// | `-amx-bf16,-avx512f` | all but these and what needs them |
/// | `avx512f,-f16c` | what the words without a minus give, less what those with one take |
/// | `none` | none |
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// The words, as given.
    words: Vec<String>,
}

impl Features {
    /// Whether all features may be used.
    pub fn is_all(&self) -> bool {
        self.words.is_empty()
    }

    /// The chosen ones among those of a processor, sorted.
    ///
    /// # Errors
    /// The feature that is asked for and that the processor lacks.
    pub fn choose(&self, host: &[String]) -> Result<Vec<String>, String> {
        let mut chosen: BTreeSet<&str> = host.iter().map(String::as_str).collect();
        let wanted: Vec<&str> = self.words.iter().map(String::as_str).filter(|word| !word.starts_with('-')).collect();
        if !wanted.is_empty() {
            let wanted =
                closed(wanted.into_iter().filter(|word| *word != NONE).collect(), |(whole, part)| (whole, part));
            if let Some(lacking) = wanted.iter().find(|feature| !chosen.contains(*feature)) {
                return Err((*lacking).to_string());
            }
            chosen = wanted;
        }
        let unwanted = self.words.iter().filter_map(|word| word.strip_prefix('-')).collect();
        let unwanted = closed(unwanted, |(whole, part)| (part, whole));
        Ok(chosen.into_iter().filter(|feature| !unwanted.contains(feature)).map(String::from).collect())
    }
}

/// A set of features with everything that follows from them, when `edge` gives what implies what.
fn closed(
    mut set: BTreeSet<&str>,
    edge: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str),
) -> BTreeSet<&str> {
    loop {
        let before = set.len();
        for need in NEEDS {
            let (has, implied) = edge(need);
            if set.contains(has) {
                set.insert(implied);
            }
        }
        if set.len() == before {
            return set;
        }
    }
}

impl FromStr for Features {
    type Err = String;

    fn from_str(text: &str) -> Result<Features, String> {
        let words: Vec<String> = text.split(',').filter(|word| !word.is_empty()).map(String::from).collect();
        let known = |word: &str| word == NONE || FEATURES.contains(&word.strip_prefix('-').unwrap_or(word));
        match words.iter().find(|word| !known(word)) {
            Some(word) => {
                Err(format!("{word:?} is no feature that kernels use; those are {}, and none", FEATURES.join(", ")))
            }
            None => Ok(Features { words }),
        }
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(text: &str, host: &[&str]) -> String {
        let host: Vec<String> = host.iter().map(ToString::to_string).collect();
        text.parse::<Features>().unwrap().choose(&host).unwrap().join(" ")
    }

    #[test]
    fn words_add_what_they_need_and_take_what_needs_them() {
        assert_eq!(chosen("", &FEATURES), FEATURES.join(" "));
        assert_eq!(chosen("avx2,fma", &FEATURES), "avx avx2 fma");
        assert_eq!(chosen("-avx512f", &FEATURES), "amx-bf16 amx-int8 amx-tile avx avx2 f16c fma");
        assert_eq!(chosen("-amx-tile,-avx2", &FEATURES), "avx f16c fma");
        assert_eq!(chosen("avx512f,-f16c", &FEATURES), "avx avx2 fma");
        assert_eq!(chosen("amx-int8", &FEATURES), "amx-int8 amx-tile");
        assert_eq!(chosen("none", &FEATURES), "");
        assert_eq!(chosen("-avx", &FEATURES), "amx-bf16 amx-int8 amx-tile");
    }

    #[test]
    fn what_is_unknown_or_lacking_is_named() {
        assert!("avx3".parse::<Features>().unwrap_err().contains("\"avx3\""));
        assert!("-avx3".parse::<Features>().unwrap_err().contains("\"-avx3\""));
        let old = ["avx".to_string()];
        assert_eq!("fma".parse::<Features>().unwrap().choose(&old), Err("fma".to_string()));
        // What is lacking may be taken away.
        assert_eq!("-fma".parse::<Features>().unwrap().choose(&old), Ok(vec!["avx".to_string()]));
    }

    #[test]
    fn text_round_trips() {
        for text in ["", "avx2,fma", "-avx512f,-amx-tile", "none"] {
            assert_eq!(text.parse::<Features>().unwrap().to_string(), text);
        }
    }
}
