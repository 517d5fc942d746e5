//! What can be wrong with a declared space.

use search_space::space::{ParseError, SpaceError, shown};

use super::python::Untranslated;

/// Why a file declares no usable space.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpaceProblem {
    /// None of the forms that are read.
    #[error(
        "it is none of: a header with `\"format\": \"replay-space/1\"`, Kernel Tuner's JSON with `tune_params`, TOML with \
         `[parameters]` (docs/spaces.md)"
    )]
    UnknownForm,
    /// Another format, or another version of it.
    #[error("its format is `{}`; this build reads `{wanted}`", shown(found))]
    Format {
        /// What was found.
        found: String,
        /// What is read.
        wanted: &'static str,
    },
    /// Another unit of time.
    #[error("its unit of time is `{}`; convert the times to ms", shown(found))]
    TimeUnit {
        /// What was found.
        found: String,
    },
    /// Constraints in another language.
    #[error("its constraints are in `{}`; use python or tilewright", shown(found))]
    Language {
        /// What was found.
        found: String,
    },
    /// No parameter.
    #[error("it declares no parameter")]
    NoParameters,
    /// A name that would break the lines of a table.
    #[error(
        "the name `{name}` has line breaks or other control characters, or more than {limit} characters; choose another"
    )]
    Name {
        /// The name, shortened.
        name: String,
        /// The limit.
        limit: usize,
    },
    /// A constant called like a parameter.
    #[error("`{name}` is both a parameter and a constant; rename one of them")]
    TwoMeanings {
        /// The name.
        name: String,
    },
    /// Too much text in constraints.
    #[error("its constraints have more than {limit} bytes together; leave out those that others imply")]
    TooManyConstraints {
        /// The limit.
        limit: usize,
    },
    /// A value that is neither number, text nor truth value.
    #[error("`{}` cannot be `{found}`; values are numbers, texts, true or false", shown(parameter))]
    NoValue {
        /// The parameter or constant.
        parameter: String,
        /// What was found.
        found: String,
    },
    /// One name for two things.
    #[error("`{name}` is both a parameter and a constant; drop or rename one of them")]
    ConstantIsParameter {
        /// The name.
        name: String,
    },
    /// A parameter without a list of values.
    #[error(
        "`{}` is `{found}`; write a list such as [8, 16] or a range such as {{ range = [1, 16] }}",
        shown(parameter)
    )]
    NotAList {
        /// The parameter.
        parameter: String,
        /// What was found.
        found: String,
    },
    /// A range that is none.
    #[error(
        "the range of `{}` must be [first, last] or [first, last, step] with first <= last and a step above 0",
        shown(parameter)
    )]
    Range {
        /// The parameter.
        parameter: String,
    },
    /// Too many values.
    #[error("`{}` has more than {limit} values; list fewer of them", shown(parameter))]
    TooManyValues {
        /// The parameter.
        parameter: String,
        /// The limit.
        limit: usize,
    },
    /// Too many entries.
    #[error("it lists more than {limit} configurations; keep a part of them")]
    TooManyRows {
        /// The limit.
        limit: usize,
    },
    /// A cached configuration that sets no or another value.
    #[error("entry `{entry}` of the cache has no value of `{}` that `tune_params` lists", shown(parameter))]
    Entry {
        /// The entry.
        entry: String,
        /// The parameter.
        parameter: String,
    },
    /// A constraint in Python that was not understood, in a space without a table.
    #[error("{source}")]
    Constraint {
        /// What was not understood.
        source: Untranslated,
    },
    /// A constraint in the language of this project that cannot be read.
    #[error("constraint `{}`: {source}", shown(constraint))]
    Expression {
        /// Its name.
        constraint: String,
        /// What is wrong.
        source: ParseError,
    },
    /// The space cannot be built.
    #[error("{source}")]
    Space {
        /// Why.
        source: SpaceError,
    },
}
