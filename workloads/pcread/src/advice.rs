//! What the kernel is told about a mapping or an open file before it is read.

use contract::Failure;
use memmap2::Mmap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// A WILLNEED reaches no further than the device's readahead, so a whole file is asked for in pieces that the
/// smallest usual readahead (128 KiB) still covers.
const WILLNEED_BYTES: usize = 128 << 10;

/// What the kernel is told about a mapping, madvise(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Nothing.
    Normal,
    /// `MADV_RANDOM`: no readahead.
    Random,
    /// `MADV_SEQUENTIAL`: readahead that does not give up.
    Sequential,
    /// `MADV_WILLNEED`: begin to read all of it.
    WillNeed,
    /// `MADV_RANDOM`, and while reading `MADV_WILLNEED` for blocks that will come soon.
    WillNeedBatched,
    /// `MADV_POPULATE_READ` (Linux 5.14): read all of it and map every page.
    PopulateRead,
    /// `MAP_POPULATE`: the same while it is being mapped, mmap(2).
    MapPopulate,
    /// `MADV_HUGEPAGE`: huge pages where there can be some.
    HugePage,
    /// `MADV_NOHUGEPAGE`: none.
    NoHugePage,
    /// `MADV_COLLAPSE` (Linux 6.1): make huge pages of what is there now.
    Collapse,
    /// `MADV_COLD` (Linux 5.4): to be reclaimed first.
    Cold,
    /// `MADV_PAGEOUT` (Linux 5.4): reclaim it now.
    PageOut,
    /// `MADV_DONTNEED`: unmap it.
    DontNeed,
}

/// What the kernel is told about an open file, `posix_fadvise(2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAdvice {
    /// Nothing.
    Normal,
    /// `POSIX_FADV_SEQUENTIAL`: twice the readahead.
    Sequential,
    /// `POSIX_FADV_RANDOM`: no readahead.
    Random,
    /// `POSIX_FADV_NOREUSE`: once only.
    NoReuse,
    /// `POSIX_FADV_WILLNEED`: begin to read all of it.
    WillNeed,
    /// `POSIX_FADV_DONTNEED`: drop what is clean, as `vmtouch -e` does.
    DontNeed,
}

/// Gives the advice on the whole mapping.
///
/// # Errors
/// [`Failure::CannotHere`] where this kernel does not know it.
pub fn advise(mapped: &Mmap, advice: Advice) -> Result<(), Failure> {
    let given = match flag(advice) {
        None => Ok(()),
        Some(libc::MADV_WILLNEED) => will_need(mapped),
        Some(flag) => madvise(mapped, flag),
    };
    given.map_err(|cause| Failure::CannotHere(format!("madvise does not do {advice:?} here: {cause}")))
}

/// Gives the advice on the whole file.
///
/// # Errors
/// [`Failure::CannotHere`] where this kernel or file system does not know it.
pub fn advise_file(file: &File, advice: FileAdvice) -> Result<(), Failure> {
    let flag = match advice {
        FileAdvice::Normal => return Ok(()),
        FileAdvice::Sequential => libc::POSIX_FADV_SEQUENTIAL,
        FileAdvice::Random => libc::POSIX_FADV_RANDOM,
        FileAdvice::NoReuse => libc::POSIX_FADV_NOREUSE,
        FileAdvice::WillNeed => libc::POSIX_FADV_WILLNEED,
        FileAdvice::DontNeed => libc::POSIX_FADV_DONTNEED,
    };
    // SAFETY: the call only takes the descriptor, which is open; zero and zero mean the whole file.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, flag) } {
        0 => Ok(()),
        error => {
            let cause = io::Error::from_raw_os_error(error);
            Err(Failure::CannotHere(format!("posix_fadvise does not do {advice:?} here: {cause}")))
        }
    }
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

/// madvise(2) for memory that is only read: no advice used here changes a byte of it.
///
/// # Errors
/// What the kernel says.
pub fn madvise(bytes: &[u8], flag: libc::c_int) -> io::Result<()> {
    // SAFETY: the slice is a live mapping that begins at a page; a shared file mapping that is dropped comes back
    // from the file, and anonymous memory is only ever given MADV_HUGEPAGE.
    match unsafe { libc::madvise(bytes.as_ptr().cast_mut().cast(), bytes.len(), flag) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn will_need(mapped: &[u8]) -> io::Result<()> {
    mapped.chunks(WILLNEED_BYTES).try_for_each(|piece| madvise(piece, libc::MADV_WILLNEED))
}
