//! Workload lists: text files with one workload a line.
//!
//! ```text
//! list  = line*
//! line  = [count "x"] workload ["#" comment]      a blank line and a line with a comment alone are fine too
//! ```
//!
//! `workload` is a key (`tw1;...`) or sugar, `count` how often the workload occurs (1 when left out). A `#` begins a
//! comment at the start of a line and after a blank. Equal workloads become one task.
//!
//! ```
//! let text = b"# the classifier\n2 x matmul m=1 n=1000 k=2048 dtype=f32 bias=1\nmatmul m=64 n=64 k=64 dtype=f32\n";
//! let tasks = tilewright_datasets::lists::parse("night.txt".as_ref(), text)?;
//! assert_eq!((tasks.len(), tasks[0].count, tasks[1].names[0].as_str()), (2, 2, "night.txt:3"));
//! # Ok::<(), tilewright_datasets::DatasetError>(())
//! ```

use std::path::Path;

use search_space::Workload;
use search_space::workload::ParseError;

use crate::error::DatasetError;
use crate::file;
use crate::task::{Task, Tasks};

/// Largest list that is read: some hundred thousand workloads.
pub const MAX_FILE_BYTES: u64 = 1 << 26;

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ListProblem {
    /// Bytes that are no text.
    #[error("the line is not UTF-8 text; a workload list is plain text")]
    NotText,
    /// The line begins like a count, but is none.
    #[error("\"{found}\" is no count; write for example \"3 x matmul m=512 n=512 k=512 dtype=f32\"")]
    Count {
        /// What stands there, cut short.
        found: String,
    },
    /// All counts of one workload together are above 2^64.
    #[error("the counts of this workload add up to more than 2^64")]
    CountSum,
    /// No workload.
    #[error(transparent)]
    Workload(Box<ParseError>),
}

/// Reads a workload list: distinct workloads in the order of their first lines.
///
/// # Errors
///
/// [`DatasetError::Io`], [`DatasetError::NotAFile`], [`DatasetError::Empty`] and [`DatasetError::TooLarge`] for the file
/// itself, and the errors of [`parse`].
pub fn read(path: &Path) -> Result<Vec<Task>, DatasetError> {
    parse(path, &file::read(path, MAX_FILE_BYTES, "a workload list", "split it into several lists")?)
}

/// Reads a workload list in memory; `path` names it in messages and in [`Task::names`].
///
/// # Errors
///
/// [`DatasetError::List`] with file and line of the first mistake, [`DatasetError::EmptyList`].
pub fn parse(path: &Path, text: &[u8]) -> Result<Vec<Task>, DatasetError> {
    let mut tasks = Tasks::default();
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line_number = index + 1;
        let wrong = |problem| DatasetError::List { path: path.to_owned(), line: line_number, problem };
        let line = std::str::from_utf8(line).map_err(|_| wrong(ListProblem::NotText))?;
        let line = without_comment(line.trim_start_matches('\u{feff}')).trim();
        if line.is_empty() {
            continue;
        }
        let (count, workload) = split_count(line).map_err(wrong)?;
        let workload = Workload::parse(workload).map_err(|problem| wrong(ListProblem::Workload(Box::new(problem))))?;
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let added = tasks.add(workload, count, format!("{file}:{line_number}"));
        added.ok_or_else(|| wrong(ListProblem::CountSum))?;
    }
    let tasks = tasks.into_vec();
    if tasks.is_empty() { Err(DatasetError::EmptyList { path: path.to_owned() }) } else { Ok(tasks) }
}

/// A line without its comment.
fn without_comment(line: &str) -> &str {
    let begins = |at: usize| line[..at].chars().next_back().is_none_or(char::is_whitespace);
    line.match_indices('#').find(|(at, _)| begins(*at)).map_or(line, |(at, _)| &line[..at])
}

/// `3 x workload`, or a workload alone.
fn split_count(line: &str) -> Result<(u64, &str), ListProblem> {
    if !line.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+') {
        return Ok((1, line));
    }
    let wrong = || ListProblem::Count { found: line.chars().take(40).collect() };
    let (count, rest) = line.split_once(char::is_whitespace).ok_or_else(wrong)?;
    let rest = rest.trim_start().strip_prefix('x').ok_or_else(wrong)?;
    let count = count.parse().ok().filter(|count| *count > 0).ok_or_else(wrong)?;
    if rest.starts_with(char::is_whitespace) { Ok((count, rest.trim_start())) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &[u8]) -> Result<Vec<Task>, String> {
        parse("some/night.txt".as_ref(), text).map_err(|error| error.to_string())
    }

    #[test]
    fn sugar_and_its_key_are_one_task() {
        let key = Workload::parse("matmul m=7 n=5 k=3 dtype=f32").unwrap().key();
        let text = format!("\u{feff}# all\r\n\r\n  3 x matmul m=7 n=5 k=3 dtype=f32 # first\r\n4\tx {key}\r\n{key}");
        let tasks = parsed(text.as_bytes()).unwrap();
        assert_eq!(tasks.len(), 1);
        assert_eq!(tasks[0].count, 8);
        assert_eq!(tasks[0].names, ["night.txt:3", "night.txt:4", "night.txt:5"]);
    }

    #[test]
    fn every_mistake_names_file_and_line() {
        let huge = format!("{} x matmul m=7 n=5 k=3 dtype=f32\n", u64::MAX).repeat(2);
        for (text, wanted) in [
            (&b"\nmatmul m=0 n=5 k=3 dtype=f32"[..], "some/night.txt:2: matmul: m=0 is too small"),
            (b"frobnicate", "some/night.txt:1: unknown operation"),
            (b"tw1;nonsense", "some/night.txt:1: workload key"),
            (b"0 x matmul m=1 n=5 k=3 dtype=f32", "is no count"),
            (b"-1 x matmul m=1 n=5 k=3 dtype=f32", "is no count"),
            (b"3 matmul m=1 n=5 k=3 dtype=f32", "is no count"),
            (b"3 xmatmul m=1 n=5 k=3 dtype=f32", "is no count"),
            (b"99999999999999999999 x matmul m=1 n=5 k=3 dtype=f32", "is no count"),
            (b"3x", "is no count"),
            (b"#\n\xff\xfe", "some/night.txt:2: the line is not UTF-8"),
            (b"\n# only this\n", "\"some/night.txt\" lists no workload"),
            (b"", "\"some/night.txt\" lists no workload"),
            (huge.as_bytes(), "some/night.txt:2: the counts of this workload add up"),
        ] {
            let message = parsed(text).unwrap_err();
            assert!(message.contains(wanted), "{message}");
            assert!(!message.contains('\n'), "one line: {message}");
        }
    }
}
