//! What can be wrong with a line of a table.

/// Why a line of the table of a recorded space is no row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RowProblem {
    /// A column that must be there.
    #[error("the table has no column `{column}`; it needs the parameters of the header, `status` and `time_ms`")]
    MissingColumn {
        /// The column.
        column: String,
    },
    /// Two columns of one name.
    #[error("column `{column}` is there twice")]
    RepeatedColumn {
        /// The column.
        column: String,
    },
    /// A value that the header does not list.
    #[error("`{found}` is no value of `{parameter}`; add it to the header, or correct the line")]
    UnknownValue {
        /// The parameter.
        parameter: String,
        /// What was found.
        found: String,
    },
    /// A status that is none.
    #[error(
        "status `{found}` is unknown; use ok, compile_error, runtime_error, incorrect, invalid, error, timeout, lost_device \
         or cut_off"
    )]
    Status {
        /// What was found.
        found: String,
    },
    /// A time that is no number.
    #[error("{column} `{found}` is no number of milliseconds")]
    Number {
        /// The column.
        column: &'static str,
        /// What was found.
        found: String,
    },
    /// A success without a time.
    #[error("status ok needs a time_ms above 0")]
    NoTime,
    /// A failure with a time.
    #[error("status {status} has a time_ms; only ok has one")]
    TimeOfFailure {
        /// The status.
        status: String,
    },
    /// A row that was cut off, without a bound.
    #[error("status cut_off needs an at_least_ms above 0")]
    NoBound,
    /// A bound where none belongs.
    #[error("status {status} has an at_least_ms; only cut_off has one")]
    BoundOfOther {
        /// The status.
        status: String,
    },
    /// A configuration that an earlier line has too.
    #[error("the configuration is that of line {first}; merge the two lines, for example by their median")]
    Repeated {
        /// The earlier line.
        first: u64,
    },
    /// Too many rows.
    #[error("the table has more than {limit} rows; keep a part of it")]
    TooMany {
        /// The limit.
        limit: usize,
    },
}
