//! Parameter spaces that others declared: headers of recorded spaces, Kernel Tuner's files, and TOML written by hand.
//! `docs/spaces.md` shows each form.
//!
//! ```no_run
//! let found = tilewright_datasets::spaces::read("space.toml".as_ref())?;
//! println!("{} has {} configurations", found.name, found.space.count());
//! # Ok::<(), tilewright_datasets::DatasetError>(())
//! ```

mod by_hand;
mod declared;
pub(crate) mod header;
mod kernel_tuner;
mod problem;
pub(crate) mod python;
pub(crate) mod value;

use std::collections::BTreeMap;
use std::path::Path;

use search_space::Value;
use search_space::space::ParameterSpace;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::error::DatasetError;
use crate::file;
use crate::recorded::{self, Listed};
pub(crate) use declared::short;
use header::Header;
pub use problem::SpaceProblem;
pub use python::{PythonProblem, Untranslated};

/// Largest file that is read, before and after it is unpacked. Caches of Kernel Tuner hold every single run.
pub const MAX_FILE_BYTES: u64 = 64 << 20;

/// A space that a file declares.
#[derive(Debug)]
pub struct ForeignSpace {
    /// Its name; that of the file when it has none.
    pub name: String,
    /// The kernel; the name of the space when the file names none.
    pub kernel: String,
    /// The device, when it belongs to one.
    pub device: Option<String>,
    /// Parameters, constraints and configurations.
    pub space: ParameterSpace,
    /// What the file holds fixed.
    pub constants: BTreeMap<String, Value>,
    /// Published constraints that could not be translated; only where a table decides which configurations exist.
    pub untranslated: Vec<Untranslated>,
}

/// What tells the forms apart.
#[derive(Deserialize)]
struct Probe {
    format: Option<IgnoredAny>,
    tune_params: Option<IgnoredAny>,
}

/// What a file is.
pub(crate) enum Form {
    /// JSON with `format`.
    Header,
    /// JSON with `tune_params`.
    KernelTuner,
    /// Another JSON object.
    OtherObject,
    /// No JSON object: TOML, or nothing that is read.
    NoObject,
}

/// The text of a file without what it is wrapped in (gzip, a byte order mark, brackets that Kernel Tuner left open), and
/// what it is.
pub(crate) fn opened(path: &Path, wanted: &'static str) -> Result<(Vec<u8>, Form), DatasetError> {
    let bytes = file::read(path, MAX_FILE_BYTES, wanted, "keep what declares the space: parameters and constraints")?;
    let mut text = file::unpacked(path, bytes, MAX_FILE_BYTES)?;
    if text.starts_with(b"\xef\xbb\xbf") {
        text.drain(..3);
    }
    if !text.trim_ascii_start().starts_with(b"{") {
        return Ok((text, Form::NoObject));
    }
    let text = kernel_tuner::closed(&text).into_owned();
    let probe: Probe =
        serde_json::from_slice(&text).map_err(|source| DatasetError::Json { path: path.to_owned(), source })?;
    let form = match probe {
        Probe { format: Some(_), .. } => Form::Header,
        Probe { tune_params: Some(_), .. } => Form::KernelTuner,
        _ => Form::OtherObject,
    };
    Ok((text, form))
}

/// Whether a text is a space written by hand.
pub(crate) fn is_by_hand(path: &Path, text: &[u8]) -> bool {
    by_hand::parse(path, text).is_ok()
}

/// Reads a space. The form follows from the content: JSON with `format` is a header (with its table when one lies beside
/// it), JSON with `tune_params` is Kernel Tuner's, and what is no JSON object is TOML. Gzip is unpacked.
///
/// # Errors
///
/// [`DatasetError::Io`] and its neighbours for the file, [`DatasetError::Json`] or [`DatasetError::Toml`] for its text,
/// [`DatasetError::Space`] for what it declares; for a header with a table also those of [`recorded::read`].
pub fn read(path: &Path) -> Result<ForeignSpace, DatasetError> {
    let (text, form) = opened(path, "a parameter space (docs/spaces.md)")?;
    let wrong = |problem| DatasetError::Space { path: path.to_owned(), problem: Box::new(problem) };
    let (names, declared) = match form {
        Form::Header => return of_header(path, &text),
        Form::KernelTuner => kernel_tuner::parse(path, &text)?,
        Form::OtherObject => return Err(wrong(SpaceProblem::UnknownForm)),
        Form::NoObject => by_hand::parse(path, &text)?,
    };
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name = names.name.unwrap_or(stem);
    let kernel = names.kernel.unwrap_or_else(|| name.clone());
    let constants = declared.constants.clone();
    let (space, untranslated) = declared.space().map_err(wrong)?;
    Ok(ForeignSpace { name, kernel, device: names.device, space, constants, untranslated })
}

/// What a file calls itself.
#[derive(Debug, Default)]
struct Called {
    name: Option<String>,
    kernel: Option<String>,
    device: Option<String>,
}

fn of_header(path: &Path, text: &[u8]) -> Result<ForeignSpace, DatasetError> {
    let header = Header::parse(path, text)?;
    if recorded::table_of(path)?.is_some() {
        let listed = recorded::listed(path, header)?;
        let Listed { name, kernel, device, constants, space, untranslated, .. } = listed;
        return Ok(ForeignSpace { name, kernel, device: Some(device), space, constants, untranslated });
    }
    let wrong = |problem| DatasetError::Space { path: path.to_owned(), problem: Box::new(problem) };
    let declared = header.declared().map_err(wrong)?;
    let constants = declared.constants.clone();
    let (space, untranslated) = declared.space().map_err(wrong)?;
    let device = Some(header.device().to_owned());
    Ok(ForeignSpace { name: header.space, kernel: header.kernel, device, space, constants, untranslated })
}
