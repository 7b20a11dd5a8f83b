//! Opening the files that workloads read, and creating those that they write.

use crate::failure::OrFailure;
use crate::Failure;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Flag of open(2) that bypasses the page cache.
#[allow(clippy::cast_possible_wrap)] // a bit far below the sign
pub const O_DIRECT: i32 = OFlags::DIRECT.bits() as i32;

/// Open a file for reading, optionally with `O_DIRECT`, and return it with its length.
///
/// # Errors
/// If the file is missing, empty or not a regular file, or ([`Failure::CannotHere`]) has no
/// `O_DIRECT`.
pub fn open(path: &Path, direct: bool) -> Result<(File, usize), Failure> {
    let shown = path.display();
    let flags = if direct { O_DIRECT } else { 0 };
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    // EINVAL is what open(2) returns if the file system has no direct I/O.
    if direct && opened.as_ref().is_err_and(|cause| cause.kind() == io::ErrorKind::InvalidInput) {
        return opened
            .map(|file| (file, 0))
            .or_cannot_here(format!("{shown} lies on a file system without O_DIRECT"));
    }
    let file = opened.or_failed(format!("cannot open {shown}"))?;
    let status = file.metadata().or_failed(format!("cannot examine {shown}"))?;
    if !status.is_file() || status.len() == 0 {
        return Err(Failure::Failed(format!("{shown} is empty or not a regular file")));
    }
    let length =
        usize::try_from(status.len()).map_err(|cause| Failure::CannotHere(cause.to_string()))?;
    Ok((file, length))
}

/// Create a file that has no name, so that it disappears with the process. `flags` are those of
/// open(2).
///
/// # Errors
/// If the folder does not exist or is not writable, or the file system does not support the flags.
pub fn create_unnamed(folder: &Path, program: &str, flags: i32) -> io::Result<File> {
    let path = folder.join(format!(".{program}-{}", std::process::id()));
    let file = OpenOptions::new()
        .create_new(true)
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(flags)
        .open(&path);
    // On some file systems a refused O_DIRECT leaves the file behind, open(2).
    let removed = std::fs::remove_file(&path);
    file.and_then(|file| removed.map(|()| file))
}
