//! The file that is written: allocated beforehand, and without a name, so that it disappears with
//! the process.

use contract::data_files::create_unnamed;
use contract::failure::OrFailure;
use contract::Failure;
use rustix::fs::{fallocate, FallocateFlags};
use std::fs::File;
use std::io::Error;
use std::path::Path;

/// Create the file with all its blocks, fallocate(2), and write that much to the disk. Fails with
/// [`Failure::CannotHere`] if the file system cannot allocate beforehand or is too full.
pub fn make(folder: &Path, size_bytes: u64) -> Result<File, Failure> {
    let file = create_unnamed(folder, "pcwrite", 0)
        .or_failed(format!("cannot make a file in {}", folder.display()))?;
    fallocate(&file, FallocateFlags::empty(), 0, size_bytes)
        .map_err(Error::from)
        .and_then(|()| file.sync_all())
        .or_cannot_here(format!("cannot allocate {size_bytes} bytes beforehand"))?;
    Ok(file)
}
