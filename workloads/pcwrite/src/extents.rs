//! The pages of a file that are on the disk, read beneath the file system.
//!
//! Reading the file itself would prove nothing: even with `O_DIRECT` the kernel first writes back
//! the requested pages.

use contract::data_files::O_DIRECT;
use contract::page_cache::page_bytes;
use memmap2::MmapMut;
use rustix::fs::{major, minor};
use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

/// `_IOWR('f', 11, struct fiemap)`, the kernel's filesystems/fiemap document.
const FS_IOC_FIEMAP: libc::c_ulong = 0xC020_660B;
/// UNKNOWN, DELALLOC, ENCODED, `NOT_ALIGNED`, INLINE, TAIL, UNWRITTEN: none of the file can be read
/// from such an extent.
const NOT_THERE: u32 = 0x2 | 0x4 | 0x8 | 0x100 | 0x200 | 0x400 | 0x800;
const LAST: u32 = 0x1;
const EXTENTS: u32 = 64;
const BUFFER_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    more_reserved: [u32; 3],
}

#[repr(C)]
struct Request {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [Extent; EXTENTS as usize],
}

/// Call `seen` with the number and the bytes of every page of the file that is on the disk.
///
/// Return the number of such pages. None if the disk cannot be read: without permission, or if the
/// file system spans several disks.
pub fn each_page(file: &File, mut seen: impl FnMut(u64, &[u8])) -> Option<u64> {
    let disk = disk_under(file).ok()?;
    let mut buffer = MmapMut::map_anon(BUFFER_BYTES).ok()?; // aligned, as direct reads require
    let mut count = 0;
    for extent in extents(file).ok()?.iter().filter(|extent| extent.flags & NOT_THERE == 0) {
        count += read(&disk, extent, &mut buffer, &mut seen).ok()?;
    }
    Some(count)
}

fn read(
    disk: &File,
    extent: &Extent,
    buffer: &mut [u8],
    seen: &mut impl FnMut(u64, &[u8]),
) -> Result<u64> {
    let page = page_bytes() as u64;
    let mut count = 0;
    for start in (0..extent.length).step_by(BUFFER_BYTES) {
        let length = usize::try_from(extent.length - start).unwrap_or(usize::MAX).min(BUFFER_BYTES);
        disk.read_exact_at(&mut buffer[..length], extent.physical + start)?;
        for (number, bytes) in (0..).zip(buffer[..length].chunks_exact(page_bytes())) {
            seen((extent.logical + start) / page + number, bytes);
            count += 1;
        }
    }
    Ok(count)
}

/// Open the block device that the file system lies on, bypassing the page cache.
fn disk_under(file: &File) -> Result<File> {
    let device = file.metadata()?.dev();
    let (major, minor) = (major(device), minor(device));
    let event = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/uevent"))?;
    let name = event.lines().find_map(|line| line.strip_prefix("DEVNAME="));
    let name = name.ok_or_else(|| Error::other("a disk without a name"))?;
    File::options().read(true).custom_flags(O_DIRECT).open(format!("/dev/{name}"))
}

fn extents(file: &File) -> Result<Vec<Extent>> {
    let mut all: Vec<Extent> = Vec::new();
    loop {
        let start = all.last().map_or(0, |extent| extent.logical + extent.length);
        let more = extents_from(file, start)?;
        let is_last = more.last().is_none_or(|extent| extent.flags & LAST != 0);
        all.extend(more);
        if is_last {
            return Ok(all);
        }
    }
}

fn extents_from(file: &File, start: u64) -> Result<Vec<Extent>> {
    let mut request = Request {
        start,
        length: u64::MAX - start,
        flags: 0, // not FIEMAP_FLAG_SYNC, which would write back the pages in question
        mapped_extents: 0,
        extent_count: EXTENTS,
        reserved: 0,
        extents: [Extent::default(); EXTENTS as usize],
    };
    // SAFETY: the structure is laid out as the kernel has it, and states how many extents it has room
    // for.
    let code = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut request) };
    if code != 0 {
        return Err(Error::last_os_error());
    }
    Ok(request.extents[..request.mapped_extents as usize].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that FIEMAP reports as written, and all bytes that it reports.
    fn mapped(file: &File) -> (u64, u64) {
        let all = extents(file).unwrap();
        let there = all
            .iter()
            .filter(|extent| extent.flags & NOT_THERE == 0)
            .map(|extent| extent.length)
            .sum();
        (there, all.iter().map(|extent| extent.length).sum())
    }

    #[test]
    fn allocated_is_not_there_and_settled_is() {
        let length = 300 * page_bytes() as u64;
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let file = crate::scratch::make(folder, length).unwrap();
        if extents(&file).is_err() {
            eprintln!("this file system has no FIEMAP");
            return;
        }
        assert_eq!(mapped(&file), (0, length));
        // Every other page, so that one request cannot hold all extents.
        for page in (0..300).step_by(2) {
            file.write_all_at(&vec![1; page_bytes()], page * page_bytes() as u64).unwrap();
        }
        file.sync_data().unwrap();
        assert_eq!(mapped(&file), (length / 2, length));
    }
}
