//! Reading a whole file, with a limit and clear errors.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;

use crate::error::DatasetError;

/// The bytes of the regular file at `path`, at most `limit` of them.
///
/// `wanted` says what the file should be (`"an ONNX model"`), `advice` what to do when it is too large.
///
/// # Errors
///
/// [`DatasetError::Io`], [`DatasetError::NotAFile`], [`DatasetError::Empty`], [`DatasetError::TooLarge`].
pub(crate) fn read(
    path: &Path,
    limit: u64,
    wanted: &'static str,
    advice: &'static str,
) -> Result<Vec<u8>, DatasetError> {
    let io = |source| DatasetError::Io { path: path.to_owned(), source };
    // Asked before opening: opening a pipe would wait for its writer.
    let kind = std::fs::metadata(path).map_err(io)?;
    if !kind.is_file() {
        let found = if kind.is_dir() { "directory" } else { "pipe or device" };
        return Err(DatasetError::NotAFile { path: path.to_owned(), found, wanted });
    }
    let too_large = |bytes| DatasetError::TooLarge { path: path.to_owned(), bytes, limit, advice };
    if kind.len() > limit {
        return Err(too_large(kind.len()));
    }
    let mut bytes = Vec::new();
    // The file may grow while it is read.
    File::open(path).and_then(|file| file.take(limit.saturating_add(1)).read_to_end(&mut bytes)).map_err(io)?;
    if bytes.len() as u64 > limit {
        return Err(too_large(bytes.len() as u64));
    }
    if bytes.is_empty() {
        return Err(DatasetError::Empty { path: path.to_owned(), wanted });
    }
    Ok(bytes)
}

/// Unpacks `bytes` when they are compressed with gzip, at most `limit` of them; others are returned as they are.
///
/// # Errors
///
/// [`DatasetError::Gzip`], [`DatasetError::UnpacksTooLarge`].
pub(crate) fn unpacked(path: &Path, bytes: Vec<u8>, limit: u64) -> Result<Vec<u8>, DatasetError> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes);
    }
    let mut found = Vec::new();
    MultiGzDecoder::new(bytes.as_slice())
        .take(limit.saturating_add(1))
        .read_to_end(&mut found)
        .map_err(|source| DatasetError::Gzip { path: path.to_owned(), source })?;
    if found.len() as u64 > limit {
        return Err(DatasetError::UnpacksTooLarge { path: path.to_owned(), limit });
    }
    Ok(found)
}
