//! Standard output for answers: a reader that went away is no error.

use std::io::{self, ErrorKind, Write};
use std::sync::{Mutex, PoisonError};

/// Lines of an answer. After a broken pipe everything is dropped silently.
pub struct Output {
    sink: Mutex<Option<Box<dyn Write + Send>>>,
}

impl Output {
    /// Writes to `sink`.
    #[must_use]
    pub fn new(sink: impl Write + Send + 'static) -> Output {
        Output { sink: Mutex::new(Some(Box::new(sink))) }
    }

    /// Writes one line.
    ///
    /// # Errors
    /// When it cannot be written for another reason than a reader that went away.
    pub fn line(&self, text: impl AsRef<str>) -> io::Result<()> {
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(writer) = sink.as_mut() else { return Ok(()) };
        match writer.write_all(format!("{}\n", text.as_ref()).as_bytes()).and_then(|()| writer.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                *sink = None;
                Ok(())
            }
            result => result,
        }
    }

    /// Writes one JSON object as a line.
    ///
    /// # Errors
    /// As [`Output::line`].
    pub fn json(&self, object: &serde_json::Value) -> io::Result<()> {
        self.line(object.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Broken(ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_left_is_no_error_and_a_full_disk_is() {
        let output = Output::new(Broken(ErrorKind::BrokenPipe));
        output.line("one").unwrap();
        output.line("two").unwrap();
        assert!(Output::new(Broken(ErrorKind::StorageFull)).line("one").is_err());
    }
}
