//! What the kernel is told about a file before it is scanned. It belongs to the scan and to its time: an advice that
//! reads the whole file would look free otherwise.

use crate::dataset::Source;
use contract::Failure;
use memmap2::{Mmap, MmapOptions};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// About the mapping, madvise(2) and mmap(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// One that madvise(2) takes for the whole mapping at once; none for `MADV_NORMAL`.
    Whole(Option<libc::c_int>),
    /// `MADV_WILLNEED` in pieces of the device's read-ahead, which is all that one call starts to read.
    WillNeedPieces,
    /// Mapped with `MAP_POPULATE` instead of advised.
    MapPopulate,
}

/// About the open file, `posix_fadvise(2)`; none for saying nothing.
pub type Fadvise = Option<libc::c_int>;

/// Everything that is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hints {
    /// About the mapping.
    pub advice: Advice,
    /// About the open file.
    pub fadvise: Fadvise,
    /// Read it into the page cache with readahead(2), in pieces of the device's read-ahead.
    pub readahead: bool,
    /// Lock the mapping, mlock(2).
    pub mlock: bool,
}

impl Hints {
    /// Tells the kernel, and gives the mapping to scan where the file is mapped.
    ///
    /// # Errors
    /// [`Failure::CannotHere`] naming the hint that the kernel does not take.
    pub fn give(&self, source: &Source) -> Result<Option<Arc<Mmap>>, Failure> {
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

    fn about_the_file(&self, source: &Source) -> Result<(), Failure> {
        if let Some(advice) = self.fadvise {
            fadvise(&source.file, advice)?;
        }
        if self.readahead {
            readahead(&source.file, source.len, source.read_ahead_bytes)?;
        }
        Ok(())
    }

    fn about_the_mapping(&self, map: &Mmap, read_ahead_bytes: usize) -> Result<(), Failure> {
        match self.advice {
            Advice::Whole(Some(advice)) => madvise(map, advice, 0, map.len())?,
            Advice::WillNeedPieces => will_need(map, 0, map.len(), read_ahead_bytes)?,
            Advice::Whole(None) | Advice::MapPopulate => (),
        }
        if self.mlock {
            map.lock().map_err(|cause| Failure::CannotHere(format!("mlock is refused here: {cause}")))?;
        }
        Ok(())
    }
}

/// madvise(2) on a part of a mapping.
///
/// # Errors
/// [`Failure::CannotHere`] where the kernel does not take it.
pub fn madvise(map: &Mmap, advice: libc::c_int, start: usize, len: usize) -> Result<(), Failure> {
    let part = &map[start..start + len];
    // SAFETY: the part lies in the mapping, which is shared and read-only: no advice that the options name changes
    // what is read from it.
    if unsafe { libc::madvise(part.as_ptr().cast_mut().cast(), part.len(), advice) } != 0 {
        let cause = std::io::Error::last_os_error();
        return Err(Failure::CannotHere(format!("madvise does not take advice {advice} here: {cause}")));
    }
    Ok(())
}

/// `MADV_WILLNEED` for a part of a mapping, in pieces that the device's read-ahead covers.
///
/// # Errors
/// [`Failure::CannotHere`] where the kernel does not take it.
pub fn will_need(map: &Mmap, start: usize, len: usize, piece_bytes: usize) -> Result<(), Failure> {
    let end = start + len;
    (start..end)
        .step_by(piece_bytes)
        .try_for_each(|place| madvise(map, libc::MADV_WILLNEED, place, piece_bytes.min(end - place)))
}

/// Maps the file anew, with every page of it read and mapped by the call.
fn populated(source: &Source) -> Result<Mmap, Failure> {
    // SAFETY: as for every mapping here, see `Source::open`.
    unsafe { MmapOptions::new().populate().map(&source.file) }
        .map_err(|cause| Failure::CannotHere(format!("mmap with MAP_POPULATE is refused here: {cause}")))
}

fn fadvise(file: &File, advice: libc::c_int) -> Result<(), Failure> {
    // SAFETY: the descriptor is open; a length of zero means up to the end.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, advice) } {
        0 => Ok(()),
        code => {
            let cause = std::io::Error::from_raw_os_error(code);
            Err(Failure::CannotHere(format!("posix_fadvise is refused here: {cause}")))
        }
    }
}

fn readahead(file: &File, len: usize, piece_bytes: usize) -> Result<(), Failure> {
    for place in (0..len).step_by(piece_bytes) {
        let offset =
            libc::off64_t::try_from(place).map_err(|cause| Failure::CannotHere(cause.to_string()))?;
        // SAFETY: the descriptor is open, and the call touches no memory of ours.
        if unsafe { libc::readahead(file.as_raw_fd(), offset, piece_bytes.min(len - place)) } != 0 {
            let cause = std::io::Error::last_os_error();
            return Err(Failure::CannotHere(format!("readahead is refused here: {cause}")));
        }
    }
    Ok(())
}
