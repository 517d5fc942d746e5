//! Memory for operands, workspace and scratch: page-aligned mappings between two pages that cannot be touched.

use std::io;
use std::ptr::NonNull;

use search_space::Outcome;

use crate::device::{Failure, Placement};

/// What the bytes around a guarded region hold.
const CANARY: u8 = 0xC9;
/// From this size on, huge pages are asked for.
const HUGE_FROM: usize = 1 << 20;
const HUGE: usize = 2 << 20;

/// A block of memory with unreadable pages on both sides.
#[derive(Debug)]
pub(super) struct Region {
    /// The whole mapping, both guard pages included.
    base: NonNull<u8>,
    mapped: usize,
    /// The readable part, as offsets from `base`.
    low: usize,
    high: usize,
    /// The block itself.
    at: usize,
    len: usize,
    /// Whether the bytes around the block are checked.
    guarded: bool,
}

// SAFETY: a region owns its mapping; nothing in it is tied to a thread.
unsafe impl Send for Region {}

impl Region {
    /// Maps and touches `bytes` bytes aligned to `align` (a power of two).
    pub(super) fn new(bytes: u64, align: u64, placement: Placement) -> Result<Region, Failure> {
        let no_room = |why: &dyn std::fmt::Display| {
            Failure::new(Outcome::ResourceLimit, format!("cannot allocate {bytes} bytes aligned to {align}: {why}"))
        };
        let (Ok(len), Ok(align)) = (usize::try_from(bytes), usize::try_from(align.max(1))) else {
            return Err(no_room(&"beyond the address space"));
        };
        // SAFETY: `sysconf` only reads.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let huge = len >= HUGE_FROM;
        let step = if huge { HUGE.max(align) } else { page.max(align) };
        // One page before and after, a page of room for the offset, and room to align the start.
        let body = len.checked_add(page).map(|n| n.next_multiple_of(step));
        let total = body.and_then(|body| body.checked_add(2 * page + step));
        let (Some(body), Some(mapped)) = (body, total) else { return Err(no_room(&"beyond the address space")) };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh anonymous mapping without access.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), mapped, libc::PROT_NONE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(no_room(&io::Error::last_os_error()));
        }
        let base = NonNull::new(base.cast::<u8>()).expect("invariant: a mapping is never at address zero");
        let low = (base.addr().get() + page).next_multiple_of(step) - base.addr().get();
        let high = low + body;
        let at = match placement {
            Placement::Guarded => {
                let end = base.addr().get() + high;
                (end - len) / align * align - base.addr().get()
            }
            Placement::Plain { round } => {
                let slots = (page / align).max(1);
                low + usize::try_from(round).unwrap_or(0) % slots * align.min(page)
            }
        };
        let region = Region { base, mapped, low, high, at, len, guarded: placement == Placement::Guarded };
        let readable = region.pointer(low).cast();
        // SAFETY: the range lies inside the mapping made above.
        if unsafe { libc::mprotect(readable, body, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
            return Err(no_room(&io::Error::last_os_error()));
        }
        if huge {
            // SAFETY: as above. A refusal costs speed only; what is in force is in the environment.
            unsafe { libc::madvise(readable, body, libc::MADV_HUGEPAGE) };
        }
        // SAFETY: the range was made writable above; writing it touches every page on the pinned core.
        unsafe { std::ptr::write_bytes(region.pointer(low), CANARY, body) };
        Ok(region)
    }

    /// The first byte of the block.
    pub(super) fn start(&self) -> *mut u8 {
        self.pointer(self.at)
    }

    /// Whether `elements` elements of `bytes` bytes fit.
    pub(super) fn holds(&self, elements: u64, bytes: u64) -> bool {
        elements.checked_mul(bytes).is_some_and(|needed| needed <= self.len as u64)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the block lies in the readable part, is initialised, and no kernel runs while it is borrowed.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
    }

    /// Fills the block with bytes that are NaN in every floating-point type: 0x7fff7fff...
    pub(super) fn poison(&mut self) {
        self.bytes_mut().as_chunks_mut::<2>().0.fill([0xff, 0x7f]);
    }

    /// On which side of the block something was written, if at all.
    pub(super) fn trespass(&self) -> Option<&'static str> {
        if !self.guarded {
            return None;
        }
        let clean = |from: usize, to: usize| {
            // SAFETY: the range lies in the readable part and is initialised.
            let bytes = unsafe { std::slice::from_raw_parts(self.pointer(from), to - from) };
            bytes.iter().all(|byte| *byte == CANARY)
        };
        if !clean(self.low, self.at) {
            Some("before")
        } else if !clean(self.at + self.len, self.high) {
            Some("after")
        } else {
            None
        }
    }

    fn pointer(&self, offset: usize) -> *mut u8 {
        // SAFETY: offsets are inside the mapping, or one past its end.
        unsafe { self.base.as_ptr().add(offset) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is this region's own and is not used after.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_guarded_blocks_end_at_the_guard() {
        for (bytes, align) in [(1, 1), (4, 4), (4096, 64), (100, 4), (100, 64), (5000, 4096), (0, 4), (5 << 20, 64)] {
            let guarded = Region::new(bytes, align, Placement::Guarded).unwrap();
            assert_eq!(guarded.start().addr() as u64 % align, 0);
            assert!(((guarded.high - guarded.at - guarded.len) as u64) < align);
            for round in 0..70 {
                let plain = Region::new(bytes, align, Placement::Plain { round }).unwrap();
                assert_eq!(plain.start().addr() as u64 % align, 0);
                assert!(plain.at >= plain.low && plain.at + plain.len <= plain.high);
            }
        }
    }

    #[test]
    fn writing_next_to_a_block_is_seen() {
        let region = Region::new(100, 64, Placement::Guarded).unwrap();
        assert_eq!(region.trespass(), None);
        let after = region.start().wrapping_add(100);
        // SAFETY: 28 bytes between the block and the guard page are writable.
        unsafe { after.write(0) };
        assert_eq!(region.trespass(), Some("after"));
        let before = region.start().wrapping_sub(1);
        // SAFETY: the page before the block is writable.
        unsafe { before.write(0) };
        assert_eq!(region.trespass(), Some("before"));
    }

    #[test]
    fn placement_moves_with_the_round() {
        let at = |round| Region::new(1000, 64, Placement::Plain { round }).unwrap().start().addr() % 4096;
        assert_ne!(at(1), at(2));
        assert_eq!(at(5), at(5));
    }

    #[test]
    fn too_much_is_a_resource_limit() {
        for bytes in [u64::MAX, 1 << 62] {
            let failure = Region::new(bytes, 64, Placement::Guarded).unwrap_err();
            assert_eq!(failure.outcome, Outcome::ResourceLimit);
        }
    }
}
