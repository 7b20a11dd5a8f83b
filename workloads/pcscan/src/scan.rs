//! The scan of one file, in pieces of the same length for every method of reading.

use crate::prefetch::{self, Hint, PrefetchOptions};
use crate::sizes::size;
use crate::touch::{compute, touch, touch_as_published};
use contract::cli::seconds;
use contract::json_lines::ThreadLine;
use contract::page_cache::page_bytes;
use std::ops::{AddAssign, Range};
use std::time::{Duration, Instant};

/// The work on the bytes.
#[derive(Debug, Clone, clap::Args)]
pub struct WorkOptions {
    /// One byte in this many is looked at; a power of two
    #[arg(long, value_name = "BYTES", default_value = "512", value_parser = size)]
    pub stride: usize,
    /// Compute this long for each page
    #[arg(long, value_name = "N", default_value_t = 0)]
    compute_ns_per_page: u64,
    /// Prefetching.
    #[command(flatten)]
    pub prefetch: PrefetchOptions,
    /// Discard the sum, as the published code did: the compiler may remove the loop
    #[arg(long)]
    pub discard_sum: bool,
    /// Number of times that all files are scanned
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub passes: u64,
    /// Stop after this time, at the end of a piece
    #[arg(long = "max-seconds", value_name = "S", allow_hyphen_values = true, value_parser = seconds)]
    max_duration: Option<Duration>,
}

impl WorkOptions {
    /// Return the work on pieces of this length, if the first pass starts at `start`.
    pub fn starting_at(&self, start: Instant, piece_bytes: usize) -> Work {
        Work {
            stride: self.stride,
            piece_bytes,
            compute_for_page: Duration::from_nanos(self.compute_ns_per_page),
            prefetch: self.prefetch.distance(),
            discard_sum: self.discard_sum,
            deadline: self.max_duration.and_then(|limit| start.checked_add(limit)),
        }
    }
}

/// The work on the bytes, and the deadline.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// One byte in this many is looked at, a power of two and no more than a page.
    pub stride: usize,
    /// Length of a piece, a multiple of the page.
    pub piece_bytes: usize,
    /// Calculation for each page, done piece by piece.
    pub compute_for_page: Duration,
    /// Distance in pages and instruction of prefetching, in mapped files.
    pub prefetch: Option<(usize, Hint)>,
    /// Discard the sum, as in the published code.
    pub discard_sum: bool,
    /// When to stop.
    pub deadline: Option<Instant>,
}

/// The result of a scan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScanResult {
    /// Bytes that were looked at.
    pub bytes: u64,
    pub pieces: u64,
    /// Their sum, at the stride.
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
    /// Time to advise the kernel, a part of the scan.
    pub advise: Duration,
    pub result: ScanResult,
}

/// Results of all scans of one pass.
#[derive(Debug)]
pub struct Pass {
    /// One tally per file.
    pub tallies: Vec<Tally>,
    /// One entry per thread; a single one for an executor.
    pub threads: Vec<ThreadLine>,
}

impl AddAssign for ScanResult {
    fn add_assign(&mut self, more: Self) {
        self.bytes += more.bytes;
        self.pieces += more.pieces;
        self.checksum = self.checksum.wrapping_add(more.checksum);
        self.stopped |= more.stopped;
    }
}

impl Work {
    /// Return whether the deadline has passed.
    pub fn is_out_of_time(&self) -> bool {
        self.deadline.is_some_and(|at| Instant::now() >= at)
    }

    /// Look at one piece.
    pub fn piece(&self, bytes: &[u8]) -> ScanResult {
        let checksum = self.sum(bytes);
        self.compute_on(bytes.len());
        ScanResult { bytes: bytes.len() as u64, pieces: 1, checksum, stopped: false }
    }

    /// Look at a range of a mapped file, piece by piece, until it ends or the deadline passes.
    pub fn range(&self, map: &[u8], range: Range<usize>) -> ScanResult {
        let mut result = ScanResult::default();
        for start in range.clone().step_by(self.piece_bytes) {
            if self.is_out_of_time() {
                result.stopped = true;
                break;
            }
            result += self.mapped_piece(map, start..(start + self.piece_bytes).min(range.end));
        }
        result
    }

    fn mapped_piece(&self, map: &[u8], range: Range<usize>) -> ScanResult {
        let Some((distance_pages, hint)) = self.prefetch else {
            return self.piece(&map[range]);
        };
        let mut result =
            ScanResult { bytes: range.len() as u64, pieces: 1, ..ScanResult::default() };
        for page in range.clone().step_by(page_bytes()) {
            prefetch::prefetch(map, ahead_of(page, distance_pages), hint);
            result.checksum += self.sum(&map[page..(page + page_bytes()).min(range.end)]);
        }
        self.compute_on(range.len());
        result
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
            compute(
                self.compute_for_page
                    * u32::try_from(len.div_ceil(page_bytes())).unwrap_or(u32::MAX),
            );
        }
    }
}

/// Return the position of the page at this distance.
fn ahead_of(page: usize, distance_pages: usize) -> usize {
    page.saturating_add(distance_pages.saturating_mul(page_bytes()))
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
            let mut parts = ScanResult::default();
            for start in (0..bytes.len()).step_by(pages * page_bytes()) {
                parts += work().range(&bytes, start..(start + pages * page_bytes()).min(bytes.len()));
            }
            let prefetching = Work { prefetch: Some((3, Hint::T0)), ..work() }.range(&bytes, 0..bytes.len());
            prop_assert_eq!((whole.bytes, whole.checksum), (parts.bytes, parts.checksum));
            prop_assert_eq!(whole, prefetching);
            prop_assert_eq!(whole.bytes, bytes.len() as u64);
        }
    }

    #[test]
    fn a_distance_is_in_pages_and_never_wraps() {
        let page = page_bytes();
        assert_eq!([ahead_of(2 * page, 3), ahead_of(page, usize::MAX)], [5 * page, usize::MAX]);
    }

    #[test]
    fn a_deadline_that_has_passed_stops_before_the_first_piece() {
        let late = Work { deadline: Some(Instant::now()), ..work() };
        assert_eq!(
            late.range(&[1; 9000], 0..9000),
            ScanResult { stopped: true, ..ScanResult::default() }
        );
    }

    #[test]
    fn a_discarded_sum_is_zero_and_the_bytes_still_count() {
        let result = Work { discard_sum: true, ..work() }.range(&[1; 9000], 0..9000);
        assert_eq!((result.checksum, result.bytes), (0, 9000));
    }
}
