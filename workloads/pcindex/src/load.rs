//! Loading one file into memory, piece by piece.

use crate::segment::Segment;
use clap::builder::RangedU64ValueParser;
use clap::ValueEnum;
use contract::advice::READ_AHEAD_BYTES;
use contract::failure::OrFailure;
use contract::page_cache::page_bytes;
use contract::{bytesum, Failure};
use memmap2::{Advice as Hint, MmapMut};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::Instant;

const MOST_THREADS: u64 = 1024;

/// Each piece is a whole number of pages of any size.
const LEAST_BLOCK_BYTES: usize = 64 << 10;

/// Method of loading the index into memory.
#[derive(Debug, Clone, clap::Args)]
pub struct LoadOptions {
    /// Method of loading the index into memory
    #[arg(long, value_enum, default_value = "lazy")]
    pub load: Load,
    /// Number of files loaded at once, with --load parallel
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=MOST_THREADS))]
    parallel_files: usize,
    /// Load in pieces of this many bytes
    #[arg(long, value_name = "N", default_value_t = 1 << 20)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(LEAST_BLOCK_BYTES as u64..))]
    pub block_bytes: usize,
    /// Data from read(2) must have the sums that the sidecars state
    #[arg(long)]
    pub expect_sidecars: bool,
}

/// Method of loading the index into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Load {
    /// By looking up one key of every bucket, in a random order
    Lazy,
    /// By read(2), file after file, each from front to back
    Sequential,
    /// By read(2), --parallel-files files at a time
    Parallel,
    /// By reading one byte of each page of the mappings, from front to back
    Touch,
    /// By `MADV_POPULATE_READ` (Linux 5.14), piece by piece
    Populate,
    /// By `MADV_WILLNEED` in pieces of 128 KiB, which only starts to read
    #[value(name = "willneed")]
    WillNeed,
    /// Not at all
    None,
}

impl LoadOptions {
    /// Check the length of the pieces. Fails with [`Failure::BadArguments`] if it is no multiple of
    /// 65536.
    pub fn validate(&self) -> Result<(), Failure> {
        if self.block_bytes % LEAST_BLOCK_BYTES != 0 {
            return Err(Failure::BadArguments(
                "--block-bytes must be a multiple of 65536".to_owned(),
            ));
        }
        Ok(())
    }

    /// Return the number of threads that load this many files; zero if files are not loaded one by
    /// one.
    pub fn threads(&self, files: usize) -> usize {
        match self.load {
            Load::Parallel => self.parallel_files.min(files),
            load => usize::from(load.is_by_file()),
        }
    }
}

impl Load {
    /// Return whether files are loaded piece by piece, each by [`file`].
    pub fn is_by_file(self) -> bool {
        !matches!(self, Self::Lazy | Self::None)
    }

    /// Return whether the bytes pass through this process, so that they can be added up.
    pub fn reads_bytes(self) -> bool {
        matches!(self, Self::Sequential | Self::Parallel)
    }

    /// Try on one anonymous page whether this kernel supports the load. Fails with
    /// [`Failure::CannotHere`] if it does not.
    pub fn probe(self) -> Result<(), Failure> {
        if self != Self::Populate {
            return Ok(());
        }
        let tried = MmapMut::map_anon(1).and_then(|page| page.advise(Hint::PopulateRead));
        tried.or_cannot_here("madvise does not populate here")
    }
}

/// Totals of one or more loaded files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Bytes loaded.
    pub bytes: u64,
    /// Files whose bytes do not have the sum that their sidecar states.
    pub wrong_files: u64,
    /// The deadline passed before the last byte.
    pub stopped: bool,
}

impl Loaded {
    /// Add another result.
    pub fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            wrong_files: self.wrong_files + other.wrong_files,
            stopped: self.stopped || other.stopped,
        }
    }
}

/// Load a file into memory in pieces of the buffer's length. Fails if the file cannot be read or
/// the kernel refuses the advice.
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
            Failure::Failed(format!("cannot load {shown} at byte {start}: {cause}"))
        })?;
    }
    let is_wrong = load.reads_bytes() && sum != segment.sidecar.byte_sum;
    Ok(Loaded { bytes: length as u64, wrong_files: u64::from(is_wrong), stopped: false })
}

/// Load one piece. Returns the sum of its bytes, or 0 if they were not read.
fn piece(
    segment: &Segment,
    load: Load,
    span: Range<usize>,
    buffer: &mut [u8],
) -> std::io::Result<u64> {
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
        Load::Populate => {
            segment.map.advise_range(Hint::PopulateRead, span.start, span.len()).map(|()| 0)
        }
        Load::WillNeed => span.clone().step_by(READ_AHEAD_BYTES).try_fold(0, |sum, start| {
            let length = READ_AHEAD_BYTES.min(span.end - start);
            segment.map.advise_range(Hint::WillNeed, start, length).map(|()| sum)
        }),
        Load::Lazy | Load::None => Ok(0),
    }
}

#[inline(never)]
fn touch(piece: &[u8]) {
    let piece = std::hint::black_box(piece);
    std::hint::black_box(piece.iter().step_by(page_bytes()).fold(0_u8, |all, byte| all ^ byte));
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
        // Supported by Linux 5.14 and later; an older kernel must lead to exit code 77.
        assert!(Load::Populate.probe().map_or_else(|failure| failure.exit_code() == 77, |()| true));
    }
}
