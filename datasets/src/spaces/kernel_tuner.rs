//! Kernel Tuner's JSON: `tune_params` with `restrictions`, and its cache files.
//!
//! A cache names no restrictions. Without them, the configurations it lists are those that exist.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use indexmap::IndexMap;
use search_space::Value;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::declared::{Declared, check_length};
use super::{Called, SpaceProblem, value};
use crate::error::DatasetError;
use crate::recorded::MAX_ROWS;

#[derive(Deserialize)]
struct File {
    kernel_name: Option<String>,
    device_name: Option<String>,
    tune_params: IndexMap<String, Vec<Field>>,
    #[serde(default)]
    restrictions: Option<Vec<String>>,
    #[serde(default)]
    constants: IndexMap<String, Field>,
    #[serde(default)]
    cache: IndexMap<String, IndexMap<String, Field>>,
}

/// A scalar; lists, such as the times of all runs, are passed over.
struct Field(Option<Value>);

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("null, a list or an object"),
        }
    }
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Field, D::Error> {
        deserializer.deserialize_any(FieldVisitor)
    }
}

struct FieldVisitor;

impl<'de> Visitor<'de> for FieldVisitor {
    type Value = Field;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Field, E> {
        Ok(Field(Some(Value::Int(i64::from(value)))))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Field, E> {
        Ok(Field(Some(Value::Int(value))))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Field, E> {
        Ok(Field(Some(i64::try_from(value).map_or_else(|_| value::of_number(value as f64), Value::Int))))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Field, E> {
        Ok(Field(Some(value::of_number(value))))
    }

    fn visit_str<E>(self, value: &str) -> Result<Field, E> {
        Ok(Field(Some(value::of_quoted(value))))
    }

    fn visit_unit<E>(self) -> Result<Field, E> {
        Ok(Field(None))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Field, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Field(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Field, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Field(None))
    }
}

/// The text with its two last brackets: Kernel Tuner leaves them out while it is running.
pub(super) fn closed(text: &[u8]) -> Cow<'_, [u8]> {
    match text.trim_ascii_end().strip_suffix(b",") {
        Some(open) => [open, b"}}"].concat().into(),
        None => text.into(),
    }
}

pub(super) fn parse(path: &Path, text: &[u8]) -> Result<(Called, Declared), DatasetError> {
    let file: File =
        serde_json::from_slice(text).map_err(|source| DatasetError::Json { path: path.to_owned(), source })?;
    let called = Called { name: None, kernel: file.kernel_name.clone(), device: file.device_name.clone() };
    let declared =
        declared(file).map_err(|problem| DatasetError::Space { path: path.to_owned(), problem: Box::new(problem) })?;
    Ok((called, declared))
}

fn declared(file: File) -> Result<Declared, SpaceProblem> {
    let mut declared = Declared::default();
    for (name, values) in &file.tune_params {
        declared.parameter_of(name, values, |field| field.0.clone())?;
    }
    for (name, field) in file.constants {
        let found = field.to_string();
        let constant = field.0.ok_or_else(|| SpaceProblem::NoValue { parameter: name.clone(), found })?;
        declared.constants.insert(name, constant);
    }
    match file.restrictions {
        Some(texts) => {
            // Before each is there twice, as name and as text.
            check_length(texts.iter())?;
            declared.constraints = texts.into_iter().map(|text| (text.clone(), text)).collect();
        }
        None if file.cache.is_empty() => {}
        None => declared.table = Some(table(&declared.parameters, &file.cache)?),
    }
    Ok(declared)
}

/// The configurations of a cache, each once.
fn table(
    parameters: &[(String, Vec<Value>)],
    cache: &IndexMap<String, IndexMap<String, Field>>,
) -> Result<Vec<Vec<u16>>, SpaceProblem> {
    if cache.len() > MAX_ROWS {
        return Err(SpaceProblem::TooManyRows { limit: MAX_ROWS });
    }
    let known: Vec<BTreeMap<&Value, u16>> =
        parameters.iter().map(|(_, values)| values.iter().zip(0u16..).collect()).collect();
    let mut rows = BTreeSet::new();
    for (entry, fields) in cache {
        let mut row = Vec::with_capacity(parameters.len());
        for ((name, _), known) in parameters.iter().zip(&known) {
            let position = fields.get(name).and_then(|field| known.get(field.0.as_ref()?));
            let missing = || SpaceProblem::Entry { entry: super::short(entry), parameter: name.clone() };
            row.push(*position.ok_or_else(missing)?);
        }
        rows.insert(row);
    }
    Ok(rows.into_iter().collect())
}
