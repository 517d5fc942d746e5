//! Spaces that a person writes down: TOML with parameters, constants, and constraints in the language of
//! [`search_space::space::Expr`].

use std::path::Path;

use indexmap::IndexMap;
use search_space::Value;
use serde::Deserialize;

use super::declared::{Declared, Language, MAX_VALUES, short};
use super::{Called, SpaceProblem, value};
use crate::error::DatasetError;
use crate::recorded::MAX_HEADER_BYTES;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Option<String>,
    kernel: Option<String>,
    device: Option<String>,
    #[serde(default)]
    structural: Vec<String>,
    parameters: IndexMap<String, toml::Value>,
    #[serde(default)]
    constants: IndexMap<String, toml::Value>,
    #[serde(default)]
    constraints: IndexMap<String, String>,
}

pub(super) fn parse(path: &Path, text: &[u8]) -> Result<(Called, Declared), DatasetError> {
    let wrong = |problem| DatasetError::Space { path: path.to_owned(), problem: Box::new(problem) };
    let (bytes, limit) = (text.len() as u64, MAX_HEADER_BYTES);
    if bytes > limit {
        // The parser takes up to eighty bytes for each of the text.
        let advice = "keep what declares the space: parameters and constraints";
        return Err(DatasetError::TooLarge { path: path.to_owned(), bytes, limit, advice });
    }
    let text = std::str::from_utf8(text).map_err(|_| wrong(SpaceProblem::UnknownForm))?;
    let file: File = toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        // Its own display is several lines long. The parser lists the known fields behind the unknown one, which may be
        // long itself; all of the list is kept.
        let message = error.message();
        let problem = match message.split_once("`, expected ") {
            Some((unknown, known)) => format!("{}`, expected {known}", short(&unknown)),
            None => short(&message),
        };
        DatasetError::Toml { path: path.to_owned(), line, problem }
    })?;
    let called = Called { name: file.name.clone(), kernel: file.kernel.clone(), device: file.device.clone() };
    Ok((called, declared(file).map_err(wrong)?))
}

fn declared(file: File) -> Result<Declared, SpaceProblem> {
    let mut declared = Declared { language: Language::Own, structural: file.structural, ..Declared::default() };
    for (name, found) in &file.parameters {
        match found {
            toml::Value::Array(values) => declared.parameter_of(name, values, value::of_toml)?,
            toml::Value::Table(table) if table.len() == 1 && table.contains_key("range") => {
                let values = range(name, &table["range"])?;
                declared.parameters.push((name.clone(), values));
            }
            other => {
                return Err(SpaceProblem::NotAList { parameter: name.clone(), found: short(other) });
            }
        }
    }
    for (name, found) in file.constants {
        let constant = value::of_toml(&found);
        let constant =
            constant.ok_or_else(|| SpaceProblem::NoValue { parameter: name.clone(), found: short(&found) })?;
        declared.constants.insert(name, constant);
    }
    declared.constraints = file.constraints.into_iter().collect();
    Ok(declared)
}

/// The values of `[first, last]` or `[first, last, step]`, both ends included.
fn range(name: &str, found: &toml::Value) -> Result<Vec<Value>, SpaceProblem> {
    let wrong = || SpaceProblem::Range { parameter: name.to_owned() };
    let bounds: Option<Vec<i64>> = found.as_array().and_then(|list| list.iter().map(toml::Value::as_integer).collect());
    let (first, last, step) = match bounds.as_deref() {
        Some([first, last]) => (*first, *last, 1),
        Some([first, last, step]) if *step > 0 => (*first, *last, *step),
        _ => return Err(wrong()),
    };
    if first > last {
        return Err(wrong());
    }
    // Neither the width of a range nor a step beyond its end need fit 64 bits.
    let rising = std::iter::successors(Some(first), |value| value.checked_add(step));
    let values: Vec<Value> = rising.take_while(|value| *value <= last).take(MAX_VALUES + 1).map(Value::Int).collect();
    if values.len() > MAX_VALUES {
        return Err(SpaceProblem::TooManyValues { parameter: name.to_owned(), limit: MAX_VALUES });
    }
    Ok(values)
}
