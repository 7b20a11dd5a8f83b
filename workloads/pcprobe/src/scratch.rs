//! The file that is measured: allocated beforehand, and without a name, so that it disappears with
//! the process.

use crate::sizes::shown;
use contract::data_files::{create_unnamed, O_DIRECT};
use contract::failure::OrFailure;
use contract::Failure;
use rustix::fs::{fadvise, fallocate, fstatvfs, Advice, FallocateFlags};
use rustix::io::Errno;
use std::fs::File;
use std::path::Path;

/// The file, and how it was opened.
#[derive(Debug)]
pub struct Scratch {
    pub file: File,
    /// Whether it bypasses the page cache.
    pub direct: bool,
    pub reason: Option<String>,
}

/// Create the file, with `O_DIRECT` if the file system supports it and `O_DSYNC` otherwise. Fails
/// if the folder is not writable, or there is not enough space.
pub fn make(folder: &Path, size_bytes: u64) -> Result<Scratch, Failure> {
    let action = format!("cannot make a file in {}", folder.display());
    let (file, reason) = match create_unnamed(folder, "pcprobe", O_DIRECT) {
        Err(cause) if cause.raw_os_error() == Some(libc::EINVAL) => (
            create_unnamed(folder, "pcprobe", libc::O_DSYNC).or_failed(action)?,
            Some(
                "the file system has no O_DIRECT: reads are cold by being dropped, writes are O_DSYNC"
                    .to_owned(),
            ),
        ),
        file => (file.or_failed(action)?, None),
    };
    allocate(&file, size_bytes)?;
    Ok(Scratch { file, direct: reason.is_none(), reason })
}

fn allocate(file: &File, size_bytes: u64) -> Result<(), Failure> {
    match fallocate(file, FallocateFlags::empty(), 0, size_bytes) {
        Err(Errno::OPNOTSUPP) => file.set_len(size_bytes).or_failed("cannot size its file"),
        allocated => {
            allocated.or_cannot_here(format!("no room for a file of {}", shown(size_bytes)))
        }
    }
}

/// Return the bytes that an ordinary user may still use in the folder's file system, statvfs(3).
/// Fails if the folder does not exist.
pub fn free_bytes(folder: &Path) -> Result<u64, Failure> {
    let file = File::open(folder).or_failed(format!("cannot look into {}", folder.display()))?;
    let found = fstatvfs(&file).or_failed("cannot ask for the free space")?;
    Ok(found.f_bavail * found.f_frsize)
}

/// Refuse a file larger than half of the free space: other programs may need the rest meanwhile.
/// Fails with [`Failure::CannotHere`] naming a size that fits.
pub fn require_room(free_bytes: u64, size_bytes: u64) -> Result<(), Failure> {
    if size_bytes <= free_bytes / 2 {
        return Ok(());
    }
    Err(Failure::CannotHere(format!(
        "a file of {} would take more than half of the {} that are free: --size {}MiB",
        shown(size_bytes),
        shown(free_bytes),
        (free_bytes / 2) >> 20,
    )))
}

/// Drop the file from the page cache, `posix_fadvise(2)`; a file opened with `O_DIRECT` is not in
/// it.
pub fn drop_cached(file: &File) {
    // The counters of the storage detect pages that stay.
    for advice in [Advice::Random, Advice::DontNeed] {
        let _ = fadvise(file, 0, None, advice);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_space_is_left_to_other_programs() {
        assert!(require_room(2 << 30, 1 << 30).is_ok());
        let refused = require_room(1 << 30, 1 << 30).unwrap_err();
        assert_eq!(refused.exit_code(), 77);
        assert!(refused.to_string().contains("--size 512MiB"), "{refused}");
    }

    #[test]
    fn its_file_has_no_name_and_all_its_blocks() {
        let folder = std::env::temp_dir().join(format!("pcprobe-scratch-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let made = make(&folder, 1 << 20).unwrap();
        assert_eq!(made.file.metadata().unwrap().len(), 1 << 20);
        assert_eq!(made.direct, made.reason.is_none());
        assert!(std::fs::read_dir(&folder).unwrap().next().is_none());
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(make(&folder, 1 << 20).is_err());
    }
}
