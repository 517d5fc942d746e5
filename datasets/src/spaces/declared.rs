//! What a foreign file declares, and how it becomes a space.

use std::collections::BTreeMap;

use search_space::Value;
use search_space::space::{Expr, ParameterSpace, SpaceBuilder, shown};

use super::SpaceProblem;
use super::python::{self, Names, Untranslated};

/// Most values that one foreign parameter may have.
pub(crate) const MAX_VALUES: usize = 4096;

/// Most characters of a name.
const MAX_NAME: usize = 200;

/// Most bytes of all constraints together: an expression takes up to a hundred times the bytes of its text.
const MAX_CONSTRAINT_BYTES: usize = 1 << 20;

/// The language in which constraints are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Language {
    /// Python, as Kernel Tuner evaluates it.
    #[default]
    Python,
    /// That of [`Expr`].
    Own,
}

/// Parameters and constraints of a file, as it writes them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Declared {
    /// Names and values in order.
    pub(crate) parameters: Vec<(String, Vec<Value>)>,
    pub(crate) structural: Vec<String>,
    pub(crate) constants: BTreeMap<String, Value>,
    /// Names and texts in order.
    pub(crate) constraints: Vec<(String, String)>,
    pub(crate) language: Language,
    /// The configurations that exist, when the file lists them: positions in order of `parameters`.
    pub(crate) table: Option<Vec<Vec<u16>>>,
}

impl Declared {
    /// Adds a parameter whose values `read` understands.
    pub(crate) fn parameter_of<T: std::fmt::Display>(
        &mut self,
        name: &str,
        values: &[T],
        read: fn(&T) -> Option<Value>,
    ) -> Result<(), SpaceProblem> {
        if values.len() > MAX_VALUES {
            return Err(SpaceProblem::TooManyValues { parameter: name.to_owned(), limit: MAX_VALUES });
        }
        let value = |found: &T| {
            read(found).ok_or_else(|| SpaceProblem::NoValue { parameter: name.to_owned(), found: short(found) })
        };
        self.parameters.push((name.to_owned(), values.iter().map(value).collect::<Result<_, _>>()?));
        Ok(())
    }

    /// Names must fit a line of a table, and mean one thing.
    fn check_names(&self) -> Result<(), SpaceProblem> {
        let parameters = self.parameters.iter().map(|(name, _)| name);
        // Where constraints are Python, their names are their texts, which may be long.
        let constraints = self.constraints.iter().filter(|(name, text)| name != text).map(|(name, _)| name);
        let mut names = parameters.clone().chain(self.constants.keys()).chain(constraints);
        if let Some(name) = names.find(|name| name.chars().count() > MAX_NAME || name.contains(char::is_control)) {
            return Err(SpaceProblem::Name { name: shown(name), limit: MAX_NAME });
        }
        match parameters.clone().find(|name| self.constants.contains_key(*name)) {
            Some(name) => Err(SpaceProblem::TwoMeanings { name: name.clone() }),
            None => Ok(()),
        }
    }

    /// The space, and the constraints that could not be translated.
    ///
    /// With a table these are left out, because the table decides anyway; without one each is an error.
    pub(crate) fn space(self) -> Result<(ParameterSpace, Vec<Untranslated>), SpaceProblem> {
        if self.parameters.is_empty() {
            return Err(SpaceProblem::NoParameters);
        }
        if let Some((name, _)) = self.parameters.iter().find(|(name, _)| self.constants.contains_key(name)) {
            return Err(SpaceProblem::ConstantIsParameter { name: name.clone() });
        }
        self.check_names()?;
        check_length(self.constraints.iter().map(|(_, text)| text))?;
        let names = Names::new(&self.parameters, &self.constants);
        let mut builder = SpaceBuilder::new();
        let mut untranslated = Vec::new();
        for (name, text) in &self.constraints {
            // One without a name is called by its text, which may have several lines.
            let name = if name == text { &one_line(text) } else { name };
            match self.language {
                Language::Own => match Expr::parse(text) {
                    Ok(expr) => _ = builder.require_expr(name, names.replaced(expr)),
                    Err(source) => return Err(SpaceProblem::Expression { constraint: name.clone(), source }),
                },
                Language::Python => match python::translate(text, &names) {
                    Ok(Some(expr)) => _ = builder.require_expr(name, expr),
                    Ok(None) => {}
                    Err(problem) if self.table.is_some() => untranslated.push(problem),
                    Err(problem) => return Err(SpaceProblem::Constraint { source: problem }),
                },
            }
        }
        for (name, values) in &self.parameters {
            builder.values(name, values.clone());
        }
        for name in &self.structural {
            builder.structural(name);
        }
        if let Some(rows) = self.table {
            builder.table(rows);
        }
        let space = builder.build().map_err(|source| SpaceProblem::Space { source })?;
        Ok((space, untranslated))
    }
}

/// Whether constraints keep their limit together.
pub(super) fn check_length<'a>(texts: impl Iterator<Item = &'a String>) -> Result<(), SpaceProblem> {
    if texts.map(String::len).sum::<usize>() > MAX_CONSTRAINT_BYTES {
        return Err(SpaceProblem::TooManyConstraints { limit: MAX_CONSTRAINT_BYTES });
    }
    Ok(())
}

/// `text` with its words one blank apart.
fn one_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

/// What was found, as messages show it.
pub(crate) fn short(found: &impl std::fmt::Display) -> String {
    shown(&found.to_string())
}
