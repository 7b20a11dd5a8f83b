//! Bringing one file into memory, piece by piece.

use crate::segment::Segment;
use contract::{bytesum, Failure};
use memmap2::{Advice as Hint, MmapMut};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::Instant;

/// A WILLNEED reaches no further than the device's readahead, so a file is asked for in pieces that the smallest usual
/// readahead (128 KiB) still covers.
const WILLNEED_BYTES: usize = 128 << 10;

/// Pages are 4 KiB at least; larger ones are touched more than once.
const PAGE_BYTES: usize = 4096;

/// How the index is brought into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// By looking up one key of every bucket, in a random order.
    Lazy,
    /// By read(2), file after file.
    Sequential,
    /// By read(2), several files at once.
    Parallel,
    /// Through the mapping, page after page.
    Touch,
    /// `MADV_POPULATE_READ`.
    Populate,
    /// `MADV_WILLNEED`.
    WillNeed,
    /// Not at all.
    None,
}

impl Load {
    /// Whether files are gone through piece by piece, each by [`file`].
    #[must_use]
    pub fn is_by_file(self) -> bool {
        !matches!(self, Self::Lazy | Self::None)
    }

    /// Whether the bytes pass through this process, so that they can be added up.
    #[must_use]
    pub fn reads_bytes(self) -> bool {
        matches!(self, Self::Sequential | Self::Parallel)
    }

    /// Tries on one anonymous page whether this kernel knows what the load needs.
    ///
    /// # Errors
    /// [`Failure::CannotHere`] when it does not.
    pub fn probe(self) -> Result<(), Failure> {
        if self != Self::Populate {
            return Ok(());
        }
        let tried = MmapMut::map_anon(1).and_then(|page| page.advise(Hint::PopulateRead));
        tried.map_err(|cause| Failure::CannotHere(format!("madvise does not populate here: {cause}")))
    }
}

/// What became of one or more files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Bytes gone through.
    pub bytes: u64,
    /// Files whose bytes did not add up to what their sidecar says.
    pub wrong_files: u64,
    /// The time ran out before the last byte.
    pub stopped: bool,
}

impl Loaded {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            wrong_files: self.wrong_files + other.wrong_files,
            stopped: self.stopped || other.stopped,
        }
    }
}

/// Brings a file into memory in pieces of the buffer's length.
///
/// # Errors
/// When the file cannot be read or the kernel refuses the advice.
pub fn file(
    segment: &Segment,
    load: Load,
    buffer: &mut [u8],
    deadline: Option<Instant>,
) -> Result<Loaded, Failure> {
    let mut sum = 0_u64;
    let length = segment.map.len();
    for start in (0..length).step_by(buffer.len()) {
        if deadline.is_some_and(|at| Instant::now() >= at) {
            return Ok(Loaded { bytes: start as u64, wrong_files: 0, stopped: true });
        }
        let span = start..(start + buffer.len()).min(length);
        sum += piece(segment, load, span, buffer).map_err(|cause| {
            let shown = segment.path.display();
            Failure::of(format!("cannot load {shown} at byte {start}"), cause)
        })?;
    }
    let is_wrong = load.reads_bytes() && sum != segment.sidecar.byte_sum;
    Ok(Loaded { bytes: length as u64, wrong_files: u64::from(is_wrong), stopped: false })
}

/// Brings one piece and gives the sum of its bytes, where they were read.
fn piece(segment: &Segment, load: Load, span: Range<usize>, buffer: &mut [u8]) -> std::io::Result<u64> {
    match load {
        Load::Sequential | Load::Parallel => {
            let buffer = &mut buffer[..span.len()];
            segment.file.read_exact_at(buffer, span.start as u64)?;
            Ok(bytesum::fastest()(buffer))
        }
        Load::Touch => {
            touch(&segment.map[span]);
            Ok(0)
        }
        Load::Populate => segment.map.advise_range(Hint::PopulateRead, span.start, span.len()).map(|()| 0),
        Load::WillNeed => span.clone().step_by(WILLNEED_BYTES).try_fold(0, |sum, start| {
            let length = WILLNEED_BYTES.min(span.end - start);
            segment.map.advise_range(Hint::WillNeed, start, length).map(|()| sum)
        }),
        Load::Lazy | Load::None => Ok(0),
    }
}

#[inline(never)]
fn touch(piece: &[u8]) {
    let piece = std::hint::black_box(piece);
    std::hint::black_box(piece.iter().step_by(PAGE_BYTES).fold(0_u8, |all, byte| all ^ byte));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_and_one_that_stopped_stops_all() {
        let one = Loaded { bytes: 5, wrong_files: 1, stopped: false };
        let other = Loaded { bytes: 7, wrong_files: 0, stopped: true };
        assert_eq!(one.and(other), Loaded { bytes: 12, wrong_files: 1, stopped: true });
    }

    #[test]
    fn nothing_needs_probing_but_populate() {
        assert!(Load::Lazy.probe().is_ok() && Load::Sequential.probe().is_ok());
        // Linux 5.14 or later does it; an older one must lead to exit code 77.
        assert!(Load::Populate.probe().map_or_else(|failure| failure.exit_code() == 77, |()| true));
    }
}
