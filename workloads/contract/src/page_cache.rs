//! What of a file is in the page cache, by the kernel's own count.

use crate::page::page_bytes;
use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::ptr::{null_mut, NonNull};

/// The same number on every architecture (kernel 6.5, syscall table).
const SYS_CACHESTAT: libc::c_long = 451;

/// Pages of a file, cachestat(2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CacheStat {
    /// In the cache, those that are still being read among them.
    pub cache_pages: u64,
    /// Changed and not yet written back.
    pub dirty_pages: u64,
    /// Being written back.
    pub writeback_pages: u64,
    /// Dropped since they were last there.
    pub evicted_pages: u64,
    /// Dropped so lately that reading them again would be a refault.
    pub recently_evicted_pages: u64,
}

impl CacheStat {
    /// Pages that the disk does not have yet.
    #[must_use]
    pub fn unwritten_pages(&self) -> u64 {
        self.dirty_pages + self.writeback_pages
    }
}

/// Counts the pages of the whole file, cachestat(2).
///
/// # Errors
/// Before kernel 6.5, and of a file that one neither owns nor may write.
pub fn cachestat(file: &File) -> Result<CacheStat> {
    cachestat_of_part(file, 0, 0)
}

/// Counts the pages of a part of the file, cachestat(2); a length of 0 means up to its end.
///
/// # Errors
/// As [`cachestat`].
pub fn cachestat_of_part(file: &File, offset_bytes: u64, length_bytes: u64) -> Result<CacheStat> {
    let part = [offset_bytes, length_bytes];
    let mut found = CacheStat::default();
    // SAFETY: both structures are laid out as cachestat(2) has them and outlive the call.
    let code = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), part.as_ptr(), std::ptr::from_mut(&mut found), 0)
    };
    if code == 0 {
        Ok(found)
    } else {
        Err(Error::last_os_error())
    }
}

/// How many of the first `length_bytes` are there and readable without waiting, mincore(2), in whole pages.
///
/// Unlike cachestat(2) it leaves out pages that are still being read. None where the kernel would not tell: of a file
/// that one neither owns nor may write mincore(2) calls every page resident.
#[must_use]
pub fn resident_bytes(file: &File, length_bytes: usize) -> Option<u64> {
    if !may_be_told(file) {
        return None;
    }
    let mapped = Unreadable::map(file, length_bytes).ok()?;
    let mut pages = vec![0_u8; length_bytes.div_ceil(page_bytes())];
    // SAFETY: the mapping has this length, and the vector a byte for each of its pages.
    let code = unsafe { libc::mincore(mapped.start.as_ptr(), length_bytes, pages.as_mut_ptr()) };
    let resident = pages.iter().filter(|page| **page & 1 == 1).count();
    (code == 0).then_some((resident * page_bytes()) as u64)
}

/// Writes the file back and drops its pages, `posix_fadvise(2)`. Pages that somebody maps stay.
///
/// # Errors
/// When the disk fails.
pub fn write_back_and_drop(file: &File) -> Result<()> {
    file.sync_all()?;
    // SAFETY: posix_fadvise has no preconditions; it gives its error instead of setting errno.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        code => Err(Error::from_raw_os_error(code)),
    }
}

fn may_be_told(file: &File) -> bool {
    let path = format!("/proc/self/fd/{}\0", file.as_raw_fd());
    // SAFETY: the path ends with a zero byte.
    unsafe { libc::access(path.as_ptr().cast(), libc::W_OK) == 0 }
}

/// A mapping that nobody can read: looking at it loads nothing.
struct Unreadable {
    start: NonNull<libc::c_void>,
    length_bytes: usize,
}

impl Unreadable {
    fn map(file: &File, length_bytes: usize) -> Result<Self> {
        // SAFETY: a new mapping at a place of the kernel's choice; nothing of ours is there.
        let start = unsafe {
            libc::mmap(null_mut(), length_bytes, libc::PROT_NONE, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        NonNull::new(start).map(|start| Self { start, length_bytes }).ok_or_else(Error::last_os_error)
    }
}

impl Drop for Unreadable {
    fn drop(&mut self) {
        // SAFETY: made by `map` with this length; nothing else knows of it.
        unsafe { libc::munmap(self.start.as_ptr(), self.length_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::fs::FileExt;

    fn scratch(name: &str, pages: usize) -> File {
        // Beside the sources, because the folder for temporary files may be memory, which cannot be dropped.
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = folder.join(format!("{name}-{}", std::process::id()));
        let mut file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(&vec![7; pages * page_bytes()]).unwrap();
        file
    }

    #[test]
    fn dirty_pages_become_clean_and_go() {
        let file = scratch("dirty", 64);
        let length = 64 * page_bytes();
        assert_eq!(resident_bytes(&file, length), Some(length as u64));
        if let Ok(found) = cachestat(&file) {
            assert_eq!((found.cache_pages, found.unwritten_pages()), (64, 64));
        }
        write_back_and_drop(&file).unwrap();
        assert_eq!(resident_bytes(&file, length), Some(0));
        if let Ok(found) = cachestat(&file) {
            assert_eq!((found.cache_pages, found.unwritten_pages()), (0, 0));
        }
        let mut one = [0];
        file.read_exact_at(&mut one, 0).unwrap();
        assert!(resident_bytes(&file, length) >= Some(page_bytes() as u64));
    }

    #[test]
    fn what_cannot_be_mapped_is_not_judged() {
        let mut file = File::open("/proc/version").unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(resident_bytes(&file, 1), None);
    }
}
