//! The header of a recorded space in the format `replay-space/1`: the parameters and published constraints of a kernel.

use std::path::Path;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::SpaceProblem;
use super::declared::{Declared, Language, short};
use super::value;
use crate::error::DatasetError;
use crate::recorded::MAX_HEADER_BYTES;

/// The name of the format.
pub(crate) const FORMAT: &str = "replay-space/1";

/// What this crate reads and writes of a header; other fields are ignored.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Header {
    pub(crate) format: String,
    pub(crate) space: String,
    pub(crate) kernel: String,
    pub(crate) device: String,
    /// Short form of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) device_key: Option<String>,
    /// The size of the problem, in any form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) problem_size: Option<Json>,
    #[serde(default = "milliseconds")]
    pub(crate) time_unit: String,
    pub(crate) parameters: Vec<HeaderParameter>,
    #[serde(default)]
    pub(crate) constants: IndexMap<String, Json>,
    #[serde(default)]
    pub(crate) constraints: Vec<String>,
    /// `tilewright` for constraints in the language of this project; without it they are Python.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) constraint_language: Option<String>,
    /// Names of the constraints, where they have other names than their texts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) constraint_names: Vec<String>,
    #[serde(default)]
    pub(crate) columns: Vec<String>,
    #[serde(default)]
    pub(crate) n_configs: Option<usize>,
    #[serde(default)]
    pub(crate) n_ok: Option<usize>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct HeaderParameter {
    pub(crate) name: String,
    pub(crate) values: Vec<Json>,
}

fn milliseconds() -> String {
    "ms".into()
}

impl Header {
    /// Reads a header.
    pub(crate) fn parse(path: &Path, text: &[u8]) -> Result<Header, DatasetError> {
        let (bytes, limit) = (text.len() as u64, MAX_HEADER_BYTES);
        if bytes > limit {
            let advice = "keep the fields that docs/spaces.md lists";
            return Err(DatasetError::TooLarge { path: path.to_owned(), bytes, limit, advice });
        }
        let header: Header =
            serde_json::from_slice(text).map_err(|source| DatasetError::Json { path: path.to_owned(), source })?;
        let wrong = |problem| DatasetError::Space { path: path.to_owned(), problem: Box::new(problem) };
        if header.format != FORMAT {
            return Err(wrong(SpaceProblem::Format { found: header.format, wanted: FORMAT }));
        }
        if header.time_unit != "ms" {
            return Err(wrong(SpaceProblem::TimeUnit { found: header.time_unit }));
        }
        Ok(header)
    }

    /// The device, by its short name where it has one.
    pub(crate) fn device(&self) -> &str {
        self.device_key.as_ref().unwrap_or(&self.device)
    }

    /// The size of the problem as text.
    pub(crate) fn problem(&self) -> Option<String> {
        match self.problem_size.as_ref()? {
            Json::Null => None,
            Json::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        }
    }

    /// What it declares.
    pub(crate) fn declared(&self) -> Result<Declared, SpaceProblem> {
        let mut declared = Declared::default();
        for parameter in &self.parameters {
            declared.parameter_of(&parameter.name, &parameter.values, value::of_json)?;
        }
        for (name, constant) in &self.constants {
            let constant = value::of_json(constant)
                .ok_or_else(|| SpaceProblem::NoValue { parameter: name.clone(), found: short(constant) })?;
            declared.constants.insert(name.clone(), constant);
        }
        declared.language = match self.constraint_language.as_deref() {
            None | Some("python") => Language::Python,
            Some("tilewright") => Language::Own,
            Some(other) => return Err(SpaceProblem::Language { found: other.to_owned() }),
        };
        let names = self.constraint_names.iter().map(Some).chain(std::iter::repeat(None));
        for (text, name) in self.constraints.iter().zip(names) {
            declared.constraints.push((name.unwrap_or(text).clone(), text.clone()));
        }
        Ok(declared)
    }
}
