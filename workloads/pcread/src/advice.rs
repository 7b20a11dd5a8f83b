//! Advice to the kernel about a mapping or an open file before it is read.

use clap::ValueEnum;
use contract::advice::{madvise, READ_AHEAD_BYTES};
use contract::failure::OrFailure;
use contract::Failure;
use memmap2::Mmap;
use rustix::fs::fadvise;
use std::fs::File;

/// Advice about a mapping, madvise(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Advice {
    /// None
    Normal,
    /// `MADV_RANDOM`: no readahead
    Random,
    /// `MADV_SEQUENTIAL`: readahead that does not stop
    Sequential,
    /// `MADV_WILLNEED`: start to read everything
    #[value(name = "willneed")]
    WillNeed,
    /// `MADV_RANDOM`, and while reading `MADV_WILLNEED` for the next blocks
    #[value(name = "willneed-batched")]
    WillNeedBatched,
    /// `MADV_POPULATE_READ` (Linux 5.14): read everything and map every page
    PopulateRead,
    /// `MAP_POPULATE`: the same during the call of mmap(2)
    MapPopulate,
    /// `MADV_HUGEPAGE`: huge pages where possible
    #[value(name = "hugepage")]
    HugePage,
    /// `MADV_NOHUGEPAGE`: no huge pages
    #[value(name = "nohugepage")]
    NoHugePage,
    /// `MADV_COLLAPSE` (Linux 6.1): turn the present pages into huge pages
    Collapse,
    /// `MADV_COLD` (Linux 5.4): reclaim these pages first
    Cold,
    /// `MADV_PAGEOUT` (Linux 5.4): reclaim these pages now
    #[value(name = "pageout")]
    PageOut,
    /// `MADV_DONTNEED`: unmap the pages
    #[value(name = "dontneed")]
    DontNeed,
}

/// Advice about an open file, `posix_fadvise(2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FileAdvice {
    /// None
    Normal,
    /// `POSIX_FADV_SEQUENTIAL`: twice the readahead
    Sequential,
    /// `POSIX_FADV_RANDOM`: no readahead
    Random,
    /// `POSIX_FADV_NOREUSE`: the file is read only once
    #[value(name = "noreuse")]
    NoReuse,
    /// `POSIX_FADV_WILLNEED`: start to read everything
    #[value(name = "willneed")]
    WillNeed,
    /// `POSIX_FADV_DONTNEED`: drop clean pages, as `vmtouch -e` does
    #[value(name = "dontneed")]
    DontNeed,
}

/// Give the advice about the whole mapping. Fails with [`Failure::CannotHere`] if this kernel does
/// not support it.
pub fn advise(mapped: &Mmap, advice: Advice) -> Result<(), Failure> {
    let given = match flag(advice) {
        None => Ok(()),
        Some(libc::MADV_WILLNEED) => mapped
            .chunks(READ_AHEAD_BYTES)
            .try_for_each(|piece| madvise(piece, libc::MADV_WILLNEED)),
        Some(flag) => madvise(mapped, flag),
    };
    given.or_cannot_here(format!("madvise does not do {advice:?} here"))
}

/// Give the advice about the whole file. Fails with [`Failure::CannotHere`] if this kernel or file
/// system does not support it.
pub fn advise_file(file: &File, advice: FileAdvice) -> Result<(), Failure> {
    let flag = match advice {
        FileAdvice::Normal => return Ok(()),
        FileAdvice::Sequential => rustix::fs::Advice::Sequential,
        FileAdvice::Random => rustix::fs::Advice::Random,
        FileAdvice::NoReuse => rustix::fs::Advice::NoReuse,
        FileAdvice::WillNeed => rustix::fs::Advice::WillNeed,
        FileAdvice::DontNeed => rustix::fs::Advice::DontNeed,
    };
    fadvise(file, 0, None, flag)
        .or_cannot_here(format!("posix_fadvise does not do {advice:?} here"))
}

fn flag(advice: Advice) -> Option<libc::c_int> {
    match advice {
        Advice::Normal | Advice::MapPopulate => None,
        Advice::Random | Advice::WillNeedBatched => Some(libc::MADV_RANDOM),
        Advice::Sequential => Some(libc::MADV_SEQUENTIAL),
        Advice::WillNeed => Some(libc::MADV_WILLNEED),
        Advice::PopulateRead => Some(libc::MADV_POPULATE_READ),
        Advice::HugePage => Some(libc::MADV_HUGEPAGE),
        Advice::NoHugePage => Some(libc::MADV_NOHUGEPAGE),
        Advice::Collapse => Some(libc::MADV_COLLAPSE),
        Advice::Cold => Some(libc::MADV_COLD),
        Advice::PageOut => Some(libc::MADV_PAGEOUT),
        Advice::DontNeed => Some(libc::MADV_DONTNEED),
    }
}
