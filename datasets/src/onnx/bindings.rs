//! Sizes for the dimensions that a model leaves open.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::DatasetError;

/// Sizes by dimension name (`batch`), or by input and axis (`input_ids.0`) for a dimension without a name.
///
/// A dimension that has no size here stays unknown, and so does every shape that depends on it.
///
/// ```
/// let bindings = tilewright_datasets::onnx::Bindings::new().with("batch", 1);
/// assert_eq!(bindings.get("batch"), Some(1));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bindings(BTreeMap<String, u64>);

impl Bindings {
    /// No sizes.
    pub fn new() -> Bindings {
        Bindings::default()
    }

    /// These bindings and one more; an earlier one of the same name is replaced.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, size: u64) -> Bindings {
        self.0.insert(name.into(), size);
        self
    }

    /// The size bound to a name.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// All bindings, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, size)| (name.as_str(), *size))
    }
}

/// Reads `NAME=SIZE[,NAME=SIZE...]`; the empty text binds nothing.
///
/// # Errors
///
/// [`DatasetError::Binding`] for a missing name, a size that is no integer above 0, or a name bound twice.
impl FromStr for Bindings {
    type Err = DatasetError;

    fn from_str(text: &str) -> Result<Bindings, DatasetError> {
        let mut bindings = Bindings::new();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let wrong = |problem| DatasetError::Binding { text: item.to_owned(), problem };
            let (name, size) = item.split_once('=').ok_or_else(|| wrong("there is no \"=\""))?;
            let (name, size) = (name.trim(), size.trim());
            if name.is_empty() {
                return Err(wrong("the name is missing"));
            }
            let size = size.parse().ok().filter(|size| *size > 0);
            let size: u64 = size.ok_or_else(|| wrong("the size is not an integer above 0"))?;
            if bindings.0.insert(name.to_owned(), size).is_some() {
                return Err(wrong("the name is bound twice"));
            }
        }
        Ok(bindings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_and_mistakes_are_named() {
        let read: Bindings = "batch=1, seq = 128,".parse().unwrap();
        assert_eq!(read, Bindings::new().with("batch", 1).with("seq", 128));
        for (text, wanted) in [
            ("batch", "there is no \"=\""),
            ("=3", "the name is missing"),
            ("n=0", "not an integer above 0"),
            ("n=-1", "not an integer above 0"),
            ("n=99999999999999999999", "not an integer above 0"),
            ("n=1,n=2", "bound twice"),
        ] {
            let message = text.parse::<Bindings>().unwrap_err().to_string();
            assert!(message.contains(wanted), "{text}: {message}");
            assert!(message.contains("for example batch=1"), "{message}");
        }
    }
}
