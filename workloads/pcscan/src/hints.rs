//! Advice to the kernel about a file before it is scanned. It is part of the scan and its time:
//! otherwise advice that reads the whole file would look free.

use crate::dataset::Source;
use clap::ValueEnum;
use contract::advice::{in_pieces, readahead};
use contract::failure::OrFailure;
use contract::Failure;
use memmap2::{Mmap, MmapOptions};
use rustix::fs::fadvise;
use std::ops::Range;
use std::sync::Arc;

/// All advice.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Hints {
    /// Advice about each mapping when its scan begins, madvise(2)
    #[arg(long, value_enum, default_value = "normal")]
    advice: Advice,
    /// Advice about the open file, `posix_fadvise(2)`
    #[arg(long, value_enum, default_value = "none")]
    fadvise: FileAdvice,
    /// Read the file into the page cache first, readahead(2)
    #[arg(long)]
    readahead: bool,
    /// Lock the mapping into memory first, mlock(2)
    #[arg(long)]
    mlock: bool,
}

/// Advice about the mapping, madvise(2) and mmap(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Advice {
    /// None
    Normal,
    /// `MADV_RANDOM`: no read-ahead
    Random,
    /// `MADV_SEQUENTIAL`: more read-ahead
    Sequential,
    /// `MADV_WILLNEED` for the whole mapping
    #[value(name = "willneed")]
    WillNeed,
    /// `MADV_WILLNEED` in pieces of the device's read-ahead, which is all that one call starts to
    /// read
    #[value(name = "willneed-pieces")]
    WillNeedPieces,
    /// `MADV_POPULATE_READ` (Linux 5.14): read everything and map every page
    PopulateRead,
    /// `MAP_POPULATE` instead of advice
    MapPopulate,
    /// `MADV_HUGEPAGE`
    #[value(name = "hugepage")]
    HugePage,
    /// `MADV_NOHUGEPAGE`
    #[value(name = "nohugepage")]
    NoHugePage,
    /// `MADV_COLLAPSE` (Linux 6.1)
    Collapse,
    /// `MADV_COLD` (Linux 5.4): reclaim these pages first
    Cold,
    /// `MADV_PAGEOUT` (Linux 5.4): reclaim these pages now
    #[value(name = "pageout")]
    PageOut,
}

/// Advice about the open file, `posix_fadvise(2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FileAdvice {
    /// No call
    None,
    /// `POSIX_FADV_NORMAL`
    Normal,
    /// `POSIX_FADV_SEQUENTIAL`: twice the read-ahead
    Sequential,
    /// `POSIX_FADV_RANDOM`: no read-ahead
    Random,
    /// `POSIX_FADV_WILLNEED`: start to read the file
    #[value(name = "willneed")]
    WillNeed,
    /// `POSIX_FADV_NOREUSE`: the file is read only once
    #[value(name = "noreuse")]
    NoReuse,
}

impl Advice {
    /// Return the advice of one call for the whole mapping, if there is one.
    fn for_all(self) -> Option<libc::c_int> {
        Some(match self {
            Self::Normal | Self::WillNeedPieces | Self::MapPopulate => return None,
            Self::Random => libc::MADV_RANDOM,
            Self::Sequential => libc::MADV_SEQUENTIAL,
            Self::WillNeed => libc::MADV_WILLNEED,
            Self::PopulateRead => libc::MADV_POPULATE_READ,
            Self::HugePage => libc::MADV_HUGEPAGE,
            Self::NoHugePage => libc::MADV_NOHUGEPAGE,
            Self::Collapse => libc::MADV_COLLAPSE,
            Self::Cold => libc::MADV_COLD,
            Self::PageOut => libc::MADV_PAGEOUT,
        })
    }
}

impl FileAdvice {
    fn flag(self) -> Option<rustix::fs::Advice> {
        Some(match self {
            Self::None => return None,
            Self::Normal => rustix::fs::Advice::Normal,
            Self::Sequential => rustix::fs::Advice::Sequential,
            Self::Random => rustix::fs::Advice::Random,
            Self::WillNeed => rustix::fs::Advice::WillNeed,
            Self::NoReuse => rustix::fs::Advice::NoReuse,
        })
    }
}

impl Hints {
    /// Return whether there is advice that only a mapped file can take.
    pub fn is_about_mappings(self) -> bool {
        self.advice != Advice::Normal || self.mlock
    }

    /// Advise the kernel. Returns the mapping to scan; None if the file is not mapped. Fails with
    /// [`Failure::CannotHere`] naming the advice that the kernel rejects.
    pub fn give(self, source: &Source) -> Result<Option<Arc<Mmap>>, Failure> {
        self.about_the_file(source)?;
        let mapping = match (self.advice, &source.map) {
            (Advice::MapPopulate, Some(_)) => Some(Arc::new(populated(source)?)),
            (_, map) => map.clone(),
        };
        if let Some(map) = &mapping {
            self.about_the_mapping(map, source.read_ahead_bytes)?;
        }
        Ok(mapping)
    }

    fn about_the_file(self, source: &Source) -> Result<(), Failure> {
        if let Some(advice) = self.fadvise.flag() {
            fadvise(&source.file, 0, None, advice)
                .or_cannot_here("posix_fadvise is refused here")?;
        }
        if self.readahead {
            in_pieces(0..source.len, source.read_ahead_bytes, |piece| {
                readahead(&source.file, &piece)
            })
            .or_cannot_here("readahead is refused here")?;
        }
        Ok(())
    }

    fn about_the_mapping(self, map: &Mmap, read_ahead_bytes: usize) -> Result<(), Failure> {
        if let Some(advice) = self.advice.for_all() {
            madvise(map, advice)?;
        }
        if self.advice == Advice::WillNeedPieces {
            will_need(map, 0..map.len(), read_ahead_bytes)?;
        }
        if self.mlock {
            map.lock().or_cannot_here("mlock is refused here")?;
        }
        Ok(())
    }
}

/// Advise the kernel about part of a mapping, madvise(2). Fails with [`Failure::CannotHere`] if the
/// kernel rejects the advice.
pub fn madvise(part: &[u8], advice: libc::c_int) -> Result<(), Failure> {
    contract::advice::madvise(part, advice)
        .or_cannot_here(format_args!("madvise does not take advice {advice} here"))
}

/// `MADV_WILLNEED` for part of a mapping, in pieces that the device's read-ahead covers. Fails with
/// [`Failure::CannotHere`] if the kernel rejects the advice.
pub fn will_need(map: &Mmap, part: Range<usize>, piece_bytes: usize) -> Result<(), Failure> {
    in_pieces(part, piece_bytes, |piece| madvise(&map[piece], libc::MADV_WILLNEED))
}

/// Map the file again; the call reads and maps every page.
fn populated(source: &Source) -> Result<Mmap, Failure> {
    // SAFETY: as for every mapping here, see `dataset`.
    unsafe { MmapOptions::new().populate().map(&source.file) }
        .or_cannot_here("mmap with MAP_POPULATE is refused here")
}
