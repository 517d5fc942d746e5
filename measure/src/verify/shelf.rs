//! What a worker leaves for the workers after it: the cases of one workload, in a file without a name.
//!
//! Computing a case of a large workload takes seconds and gives the same in every worker. So the tuner makes a file
//! that lives in memory alone and that every worker inherits. The first worker that computes a case leaves it there;
//! the next one for the same workload maps it, read-only, which also keeps kernels from writing over what they are
//! checked against. A worker for another workload empties the file first. Only one worker of a tuner lives at a time.
//!
//! The file is a sequence of sections in the order in which cases are asked for: a page of header, then the parts, each
//! at a multiple of 64 bytes. The header goes last, over zeros, and holds a BLAKE3 hash of workload, lengths and parts:
//! what a dying worker left behind, or a kernel damaged, is not believed but computed anew.

use std::fs::File;
use std::ops::{Deref, Range};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::Arc;

/// Size of a header, and what sections are aligned to: a multiple of every usual page size.
const HEADER: usize = 1 << 16;
const MAGIC: [u8; 16] = *b"tilewright cases";
/// Magic, hash, tag, number of parts; their lengths follow.
const FIXED: usize = 16 + 32 + 32 + 8;
const MOST_PARTS: usize = (HEADER - FIXED) / 8;
const ALIGN: usize = 64;

/// The file, as one worker uses it for one workload.
#[derive(Debug)]
pub(crate) struct Shelf {
    file: File,
    workload: String,
    most_bytes: u64,
    /// Where the next section is expected, or goes.
    end: u64,
}

impl Shelf {
    /// Opens the shelf for a workload; what is there of another one goes. No more than `most_bytes` are kept.
    pub(crate) fn open(file: File, workload: &str, most_bytes: u64) -> Shelf {
        let shelf = Shelf { file, workload: workload.into(), most_bytes, end: 0 };
        let ours = shelf.read_header(0).is_some_and(|(_, owner, _)| owner == shelf.owner());
        if !ours {
            // A file that cannot be emptied costs memory only: its content is never taken for ours.
            let _ = shelf.file.set_len(0);
        }
        shelf
    }

    /// The parts of the next section, when that is `name`, complete and undamaged.
    pub(crate) fn take(&mut self, name: &str) -> Option<Vec<Bytes>> {
        let (digest, owner, lengths) = self.read_header(self.end)?;
        if owner != self.owner() {
            return None;
        }
        let (ranges, total) = layout(lengths.iter().copied())?;
        let start = self.end + HEADER as u64;
        if start + total as u64 > self.file.metadata().ok()?.len() {
            return None;
        }
        let map = Arc::new(Mapping::new(&self.file, start, total)?);
        let parts = ranges.into_iter().map(|range| Bytes::Mapped { map: Arc::clone(&map), range }).collect::<Vec<_>>();
        if self.digest(name, parts.iter().map(|part| &part[..])) != digest {
            return None;
        }
        self.end = next(start, total);
        Some(parts)
    }

    /// Leaves a section after those that were taken or put before, and gives its parts as they lie in the file. `None`
    /// when that is too much, or there is no room; then those that follow are not kept either.
    pub(crate) fn put(&mut self, name: &str, parts: &[&[u8]]) -> Option<Vec<Bytes>> {
        let (ranges, total) = layout(parts.iter().map(|part| part.len())).filter(|_| parts.len() <= MOST_PARTS)?;
        let start = self.end + HEADER as u64;
        if next(start, total) > self.most_bytes {
            return None;
        }
        let mut header = vec![0; HEADER];
        self.file.write_all_at(&header, self.end).ok()?;
        for (part, range) in parts.iter().zip(&ranges) {
            self.file.write_all_at(part, start + range.start as u64).ok()?;
        }
        if self.file.metadata().ok()?.len() < next(start, total) {
            self.file.set_len(next(start, total)).ok()?;
        }
        let digest = self.digest(name, parts.iter().copied());
        let lengths = parts.iter().flat_map(|part| (part.len() as u64).to_le_bytes());
        let count = (parts.len() as u64).to_le_bytes();
        let written = MAGIC.into_iter().chain(digest).chain(self.owner()).chain(count).chain(lengths);
        header.iter_mut().zip(written).for_each(|(place, byte)| *place = byte);
        self.file.write_all_at(&header, self.end).ok()?;
        let map = Arc::new(Mapping::new(&self.file, start, total)?);
        self.end = next(start, total);
        Some(ranges.into_iter().map(|range| Bytes::Mapped { map: Arc::clone(&map), range }).collect())
    }

    /// Digest, owner and lengths of the parts, when there is a header at all.
    fn read_header(&self, at: u64) -> Option<([u8; 32], [u8; 32], Vec<usize>)> {
        let mut header = vec![0; HEADER];
        self.file.read_exact_at(&mut header, at).ok()?;
        let (magic, rest) = header.split_first_chunk::<16>()?;
        let (digest, rest) = rest.split_first_chunk::<32>()?;
        let (owner, rest) = rest.split_first_chunk::<32>()?;
        let (count, rest) = rest.split_first_chunk::<8>()?;
        let count = usize::try_from(u64::from_le_bytes(*count)).ok().filter(|count| *count <= MOST_PARTS)?;
        let lengths = rest.as_chunks::<8>().0.iter().take(count).map(|b| usize::try_from(u64::from_le_bytes(*b)).ok());
        (*magic == MAGIC).then_some((*digest, *owner, lengths.collect::<Option<_>>()?))
    }

    /// Marks sections of this workload.
    fn owner(&self) -> [u8; 32] {
        *blake3::hash(self.workload.as_bytes()).as_bytes()
    }

    fn digest<'b>(&self, name: &str, parts: impl Iterator<Item = &'b [u8]>) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        let mut update = |part: &[u8]| {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        };
        update(self.workload.as_bytes());
        update(name.as_bytes());
        parts.for_each(update);
        *hasher.finalize().as_bytes()
    }
}

/// Where parts of these lengths lie, and how long all of them are.
fn layout(lengths: impl Iterator<Item = usize>) -> Option<(Vec<Range<usize>>, usize)> {
    let (mut ranges, mut end) = (Vec::new(), 0usize);
    for length in lengths {
        let range = end..end.checked_add(length)?;
        end = range.end.checked_next_multiple_of(ALIGN)?;
        ranges.push(range);
    }
    // A mapping cannot be empty, and offsets stay far from overflow.
    let end = end.max(ALIGN);
    (end < usize::MAX / 4).then_some((ranges, end))
}

fn next(start: u64, total: usize) -> u64 {
    (start + total as u64).next_multiple_of(HEADER as u64)
}

/// Bytes of this process's own, or in a shelf.
#[derive(Clone, Debug)]
pub(crate) enum Bytes {
    Own(Vec<u8>),
    Mapped { map: Arc<Mapping>, range: Range<usize> },
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Own(bytes) => bytes,
            Bytes::Mapped { map, range } => &map.bytes()[range.clone()],
        }
    }
}

/// A piece of a file in memory that cannot be written.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping owns its address range; nothing in it is tied to a thread, and it is only read.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: &File, start: u64, len: usize) -> Option<Mapping> {
        let offset = libc::off_t::try_from(start).ok()?;
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a fresh mapping of an open file, for reading.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, flags, file.as_raw_fd(), offset) };
        let base = NonNull::new(base.cast::<u8>()).filter(|_| base != libc::MAP_FAILED)?;
        Some(Mapping { base, len })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is readable. Its part of the file is neither written nor cut off while it lives: there
        // is one worker at a time, which drops the cases of a workload before it opens the shelf for another.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own and is not used after.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
#[path = "shelf_tests.rs"]
mod tests;
