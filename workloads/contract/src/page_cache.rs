//! Pages of a file in the page cache, as counted by the kernel.

use rustix::fs::{access, fadvise, Access, Advice};
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

/// Return the size of this kernel's pages: 4 KiB on x86-64, up to 64 KiB on other architectures.
#[must_use]
pub fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// The same number on every architecture (kernel 6.5, syscall table).
const SYS_CACHESTAT: libc::c_long = 451;

/// Pages of a file, cachestat(2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CacheStat {
    /// In the cache, including those that are still being read.
    pub cache_pages: u64,
    /// Changed and not yet written back.
    pub dirty_pages: u64,
    /// Being written back.
    pub writeback_pages: u64,
    /// Dropped since they were last in the cache.
    pub evicted_pages: u64,
    /// Dropped so recently that reading them again would be a refault.
    pub recently_evicted_pages: u64,
}

impl CacheStat {
    /// Return the number of pages that are not on the disk yet.
    #[must_use]
    pub fn unwritten_pages(&self) -> u64 {
        self.dirty_pages + self.writeback_pages
    }
}

/// Count the pages of the whole file, cachestat(2).
///
/// # Errors
/// Before kernel 6.5, and for a file that the process neither owns nor may write.
pub fn cachestat(file: &File) -> Result<CacheStat> {
    cachestat_of_part(file, 0, 0)
}

/// Count the pages of a part of the file, cachestat(2); a length of 0 means up to its end.
///
/// # Errors
/// As [`cachestat`].
pub fn cachestat_of_part(file: &File, offset_bytes: u64, length_bytes: u64) -> Result<CacheStat> {
    let part = [offset_bytes, length_bytes];
    let mut found = CacheStat::default();
    // SAFETY: both structures are laid out as cachestat(2) has them and outlive the call.
    let code = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            part.as_ptr(),
            std::ptr::from_mut(&mut found),
            0,
        )
    };
    if code == 0 {
        Ok(found)
    } else {
        Err(Error::last_os_error())
    }
}

/// Return how many of the first `length_bytes` can be read without waiting, mincore(2), in whole
/// pages.
///
/// Unlike cachestat(2) it leaves out pages that are still being read. None if the kernel does not
/// tell: for a file that the process neither owns nor may write, mincore(2) reports every page as
/// resident.
#[must_use]
pub fn resident_bytes(file: &File, length_bytes: usize) -> Option<u64> {
    access(format!("/proc/self/fd/{}", file.as_raw_fd()), Access::WRITE_OK).ok()?;
    let mapped = Unreadable::map(file, length_bytes).ok()?;
    let mut pages = vec![0_u8; length_bytes.div_ceil(page_bytes())];
    // SAFETY: the mapping has this length, and the vector a byte for each of its pages.
    let code = unsafe { libc::mincore(mapped.start, length_bytes, pages.as_mut_ptr()) };
    let resident = pages.iter().filter(|page| **page & 1 == 1).count();
    (code == 0).then_some((resident * page_bytes()) as u64)
}

/// Write the file back and drop its pages, `posix_fadvise(2)`. Pages that a process has mapped
/// stay.
///
/// # Errors
/// If the disk fails.
pub fn write_back_and_drop(file: &File) -> Result<()> {
    file.sync_all()?;
    Ok(fadvise(file, 0, None, Advice::DontNeed)?)
}

/// A mapping without read permission: creating it loads nothing.
struct Unreadable {
    start: *mut c_void,
    length_bytes: usize,
}

impl Unreadable {
    fn map(file: &File, length_bytes: usize) -> Result<Self> {
        // SAFETY: a new mapping at an address chosen by the kernel overlaps no other memory.
        let start = unsafe {
            mmap(null_mut(), length_bytes, ProtFlags::empty(), MapFlags::SHARED, file, 0)
        }?;
        Ok(Self { start, length_bytes })
    }
}

impl Drop for Unreadable {
    fn drop(&mut self) {
        // SAFETY: made by `map` with this length; nothing else refers to it.
        let _ = unsafe { munmap(self.start, self.length_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::fs::FileExt;

    fn scratch(name: &str, pages: usize) -> File {
        // Beside the sources, because the folder for temporary files may be memory, which cannot be
        // dropped.
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
