//! The file that is written: allocated beforehand, and without a name, so that it goes with the process.

use contract::Failure;
use std::fs::File;
use std::io::Error;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Makes the file with all its blocks, fallocate(2), and settles that much.
///
/// # Errors
/// [`Failure::CannotHere`] where the file system cannot allocate beforehand or is too full.
pub fn make(folder: &Path, size_bytes: u64) -> Result<File, Failure> {
    let file = nameless(folder)
        .map_err(|cause| Failure::of(format!("cannot make a file in {}", folder.display()), cause))?;
    allocate(&file, size_bytes).and_then(|()| file.sync_all()).map_err(|cause| {
        Failure::CannotHere(format!("cannot allocate {size_bytes} bytes beforehand: {cause}"))
    })?;
    Ok(file)
}

fn nameless(folder: &Path) -> Result<File, Error> {
    let path = folder.join(format!(".pcwrite-{}", std::process::id()));
    let file = File::options().create_new(true).read(true).write(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

fn allocate(file: &File, size_bytes: u64) -> Result<(), Error> {
    let length = libc::off64_t::try_from(size_bytes).map_err(Error::other)?;
    // SAFETY: fallocate(2) has no preconditions.
    if unsafe { libc::fallocate64(file.as_raw_fd(), 0, 0, length) } == 0 {
        Ok(())
    } else {
        Err(Error::last_os_error())
    }
}
