//! Frames over pipes: a little-endian `u32` length, then that many bytes of JSON.

use std::io::{self, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest frame accepted, in bytes. The longest honest frame holds the samples of a final: some kilobytes.
pub(crate) const MAX_FRAME: usize = 4 << 20;

/// What a peer sent that is no frame.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadFrame {
    /// The length is beyond [`MAX_FRAME`].
    #[error("a frame of {0} bytes was announced; something else wrote to the protocol's pipe")]
    TooLong(usize),
    /// The content is not the expected JSON.
    #[error("a frame could not be read ({0}); something else wrote to the protocol's pipe")]
    Content(#[from] serde_json::Error),
}

/// Writes one frame in a single call, so that frames of several threads never mix.
pub(crate) fn write<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    let too_long =
        || io::Error::new(io::ErrorKind::InvalidInput, format!("a frame of {} bytes is too long", body.len()));
    let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= MAX_FRAME).ok_or_else(too_long)?;
    let mut frame = Vec::with_capacity(body.len() + 4);
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&body);
    to.write_all(&frame)?;
    to.flush()
}

/// Collects bytes until frames are complete.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    pending: Vec<u8>,
}

impl Decoder {
    /// Adds bytes as they arrive.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// The next complete frame; `None` when more bytes are needed. The buffer never grows beyond [`MAX_FRAME`] plus
    /// one read, because a longer length is refused as soon as it is seen.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, BadFrame> {
        let Some(head) = self.pending.first_chunk::<4>() else { return Ok(None) };
        let length = usize::try_from(u32::from_le_bytes(*head)).unwrap_or(usize::MAX);
        if length > MAX_FRAME {
            return Err(BadFrame::TooLong(length));
        }
        let Some(body) = self.pending.get(4..4 + length) else { return Ok(None) };
        let message = serde_json::from_slice(body)?;
        self.pending.drain(..4 + length);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_any_fragmentation() {
        let mut bytes = Vec::new();
        write(&mut bytes, &"first").unwrap();
        write(&mut bytes, &"second".repeat(100)).unwrap();
        for step in [1, 3, 7, bytes.len()] {
            let mut decoder = Decoder::default();
            let mut seen: Vec<String> = Vec::new();
            for part in bytes.chunks(step) {
                decoder.push(part);
                while let Some(text) = decoder.next().unwrap() {
                    seen.push(text);
                }
            }
            assert_eq!(seen, ["first".to_string(), "second".repeat(100)]);
        }
    }

    #[test]
    fn garbage_is_refused_before_it_is_collected() {
        let mut decoder = Decoder::default();
        decoder.push(b"hello, I am a driver\n");
        assert!(matches!(decoder.next::<String>(), Err(BadFrame::TooLong(_))));
        let mut decoder = Decoder::default();
        decoder.push(&[3, 0, 0, 0, b'?', b'?', b'?']);
        assert!(matches!(decoder.next::<String>(), Err(BadFrame::Content(_))));
    }

    #[test]
    fn a_frame_too_long_to_be_read_is_not_written() {
        assert!(write(&mut Vec::new(), &"x".repeat(MAX_FRAME)).is_err());
    }
}
