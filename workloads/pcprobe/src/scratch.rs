//! The file that is pressed: allocated beforehand, and without a name, so that it goes with the process however that ends.

use crate::sizes::shown;
use contract::Failure;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The file, and how it was opened.
#[derive(Debug)]
pub struct Scratch {
    /// Its only way in.
    pub file: File,
    /// Whether the page cache is passed by.
    pub direct: bool,
    /// Why not.
    pub reason: Option<String>,
}

/// Makes the file, with `O_DIRECT` where the file system has that and `O_DSYNC` where it does not.
///
/// # Errors
/// When the folder may not be written to, or the room is not there.
pub fn make(folder: &Path, size_bytes: u64) -> Result<Scratch, Failure> {
    let (file, reason) = match nameless(folder, libc::O_DIRECT) {
        Ok(file) => (file, None),
        Err(cause) if cause.raw_os_error() == Some(libc::EINVAL) => (
            nameless(folder, libc::O_DSYNC).map_err(|cause| cannot_make(folder, &cause))?,
            Some(
                "the file system has no O_DIRECT: reads are cold by being dropped, writes are O_DSYNC"
                    .to_owned(),
            ),
        ),
        Err(cause) => return Err(cannot_make(folder, &cause)),
    };
    allocate(&file, size_bytes)?;
    Ok(Scratch { file, direct: reason.is_none(), reason })
}

fn cannot_make(folder: &Path, cause: &io::Error) -> Failure {
    Failure::of(format!("cannot make a file in {}", folder.display()), cause)
}

fn nameless(folder: &Path, flags: i32) -> io::Result<File> {
    let path = folder.join(format!(".pcprobe-{}", std::process::id()));
    let file = OpenOptions::new()
        .create_new(true)
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(flags)
        .open(&path);
    // A refused O_DIRECT leaves the file behind on some file systems, open(2).
    let _ = std::fs::remove_file(&path);
    file
}

fn allocate(file: &File, size_bytes: u64) -> Result<(), Failure> {
    let length = libc::off64_t::try_from(size_bytes).map_err(|cause| Failure::of("no such size", cause))?;
    // SAFETY: fallocate(2) has no preconditions.
    let done = unsafe { libc::fallocate64(file.as_raw_fd(), 0, 0, length) };
    let cause = io::Error::last_os_error();
    match cause.raw_os_error() {
        _ if done == 0 => Ok(()),
        Some(libc::EOPNOTSUPP) => {
            file.set_len(size_bytes).map_err(|cause| Failure::of("cannot size its file", cause))
        }
        _ => Err(Failure::CannotHere(format!("no room for a file of {}: {cause}", shown(size_bytes)))),
    }
}

/// Bytes that an ordinary user may still fill in the folder's file system, statvfs(3).
///
/// # Errors
/// When the folder is not there.
pub fn free_bytes(folder: &Path) -> Result<u64, Failure> {
    let file = File::open(folder)
        .map_err(|cause| Failure::of(format!("cannot look into {}", folder.display()), cause))?;
    // SAFETY: a zeroed statvfs is a valid one, and the call fills it.
    let (done, found) = unsafe {
        let mut found: libc::statvfs64 = std::mem::zeroed();
        (libc::fstatvfs64(file.as_raw_fd(), &raw mut found), found)
    };
    if done != 0 {
        return Err(Failure::of("cannot ask for the free space", io::Error::last_os_error()));
    }
    Ok(found.f_bavail * found.f_frsize)
}

/// Refuses a file that would take more than half of what is free: others may need the rest while it is there.
///
/// # Errors
/// [`Failure::CannotHere`] naming a size that would do.
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

/// Drops the file from the page cache, `posix_fadvise(2)`; a file opened with `O_DIRECT` is not in it.
pub fn drop_cached(file: &File) {
    // SAFETY: posix_fadvise(2) has no preconditions. What it does not drop, the proof of a phase will find.
    unsafe {
        libc::posix_fadvise64(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM);
        libc::posix_fadvise64(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_room_is_left_to_others() {
        assert!(require_room(2 << 30, 1 << 30).is_ok());
        let refused = require_room(1 << 30, 1 << 30).unwrap_err();
        assert_eq!(refused.exit_code(), 77);
        assert!(refused.to_string().contains("--size 512MiB"), "{refused}");
    }

    #[test]
    fn its_file_has_no_name_and_all_its_room() {
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
