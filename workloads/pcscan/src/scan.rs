//! Looking at the bytes of one file, in pieces of the same length whatever brought them into memory.

use crate::prefetch::{self, Hint};
use crate::touch::{compute, touch, touch_as_published};
use std::ops::{AddAssign, Range};
use std::time::{Duration, Instant};

/// Every page is at least this large; prefetching goes by it.
const PAGE_BYTES: usize = 4096;

/// What is done with the bytes, and how long at most.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// One byte in so many, a power of two and no more than a page.
    pub stride: usize,
    /// Looked at in pieces of so many bytes, a multiple of the page.
    pub piece_bytes: usize,
    /// Computing for each page, done piece by piece.
    pub compute_for_page: Duration,
    /// So many pages ahead the CPU is asked to prefetch, in mapped files.
    pub prefetch: Option<(usize, Hint)>,
    /// The sum is thrown away, as in the published code.
    pub discard_sum: bool,
    /// When to stop.
    pub deadline: Option<Instant>,
}

/// What has been looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// So many bytes.
    pub bytes: u64,
    /// In so many pieces.
    pub pieces: u64,
    /// Which add up to this, at the stride.
    pub checksum: u64,
    /// The deadline passed before the end.
    pub stopped: bool,
}

/// One file's scan in one pass.
#[derive(Debug, Clone, Copy)]
pub struct Tally {
    /// When it began.
    pub started: Instant,
    /// When its last piece was done.
    pub ended: Instant,
    /// How long telling the kernel about the file took, a part of the scan.
    pub advise: Duration,
    /// What was looked at.
    pub seen: Seen,
}

impl AddAssign for Seen {
    fn add_assign(&mut self, more: Self) {
        self.bytes += more.bytes;
        self.pieces += more.pieces;
        self.checksum = self.checksum.wrapping_add(more.checksum);
        self.stopped |= more.stopped;
    }
}

impl Work {
    /// Whether the deadline has passed.
    #[must_use]
    pub fn is_out_of_time(&self) -> bool {
        self.deadline.is_some_and(|at| Instant::now() >= at)
    }

    /// Looks at one piece.
    #[must_use]
    pub fn piece(&self, bytes: &[u8]) -> Seen {
        let checksum = self.sum(bytes);
        self.compute_on(bytes.len());
        Seen { bytes: bytes.len() as u64, pieces: 1, checksum, stopped: false }
    }

    /// Looks at a range of a mapped file, piece by piece, until done or out of time.
    #[must_use]
    pub fn range(&self, map: &[u8], range: Range<usize>) -> Seen {
        let mut seen = Seen::default();
        for start in range.clone().step_by(self.piece_bytes) {
            if self.is_out_of_time() {
                seen.stopped = true;
                break;
            }
            seen += self.mapped_piece(map, start..(start + self.piece_bytes).min(range.end));
        }
        seen
    }

    fn mapped_piece(&self, map: &[u8], range: Range<usize>) -> Seen {
        let Some((distance_pages, hint)) = self.prefetch else {
            return self.piece(&map[range]);
        };
        let mut seen = Seen { bytes: range.len() as u64, pieces: 1, ..Seen::default() };
        for page in range.clone().step_by(PAGE_BYTES) {
            prefetch::prefetch(map, ahead_of(page, distance_pages), hint);
            seen.checksum += self.sum(&map[page..(page + PAGE_BYTES).min(range.end)]);
        }
        self.compute_on(range.len());
        seen
    }

    fn sum(&self, bytes: &[u8]) -> u64 {
        if self.discard_sum {
            touch_as_published(bytes, self.stride);
            return 0;
        }
        touch(bytes, self.stride)
    }

    fn compute_on(&self, len: usize) {
        if self.compute_for_page > Duration::ZERO {
            compute(self.compute_for_page * u32::try_from(len.div_ceil(PAGE_BYTES)).unwrap_or(u32::MAX));
        }
    }
}

/// Where the page lies that is so many pages further on.
fn ahead_of(page: usize, distance_pages: usize) -> usize {
    page.saturating_add(distance_pages.saturating_mul(PAGE_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub fn work() -> Work {
        Work {
            stride: 512,
            piece_bytes: 8192,
            compute_for_page: Duration::ZERO,
            prefetch: None,
            discard_sum: false,
            deadline: None,
        }
    }

    proptest! {
        #[test]
        fn windows_see_what_the_whole_sees(
            bytes in prop::collection::vec(any::<u8>(), 1..60_000),
            pages in 1_usize..5,
        ) {
            let whole = work().range(&bytes, 0..bytes.len());
            let mut parts = Seen::default();
            for start in (0..bytes.len()).step_by(pages * 4096) {
                parts += work().range(&bytes, start..(start + pages * 4096).min(bytes.len()));
            }
            let prefetching = Work { prefetch: Some((3, Hint::T0)), ..work() }.range(&bytes, 0..bytes.len());
            prop_assert_eq!((whole.bytes, whole.checksum), (parts.bytes, parts.checksum));
            prop_assert_eq!(whole, prefetching);
            prop_assert_eq!(whole.bytes, bytes.len() as u64);
        }
    }

    #[test]
    fn a_distance_is_in_pages_and_never_wraps() {
        assert_eq!([ahead_of(8192, 3), ahead_of(4096, usize::MAX)], [20_480, usize::MAX]);
    }

    #[test]
    fn a_deadline_that_has_passed_stops_before_the_first_piece() {
        let late = Work { deadline: Some(Instant::now()), ..work() };
        assert_eq!(late.range(&[1; 9000], 0..9000), Seen { stopped: true, ..Seen::default() });
    }

    #[test]
    fn a_discarded_sum_is_zero_and_the_bytes_still_count() {
        let seen = Work { discard_sum: true, ..work() }.range(&[1; 9000], 0..9000);
        assert_eq!((seen.checksum, seen.bytes), (0, 9000));
    }
}
