//! The files to scan: opened, mapped where they are scanned that way, and what they must add up to.

use crate::arguments::{Io, Plan};
use crate::buffer::Buffer;
use crate::read_ahead;
use contract::sidecar::STRIDE_BYTES;
use contract::{Failure, Sidecar};
use memmap2::{Mmap, MmapOptions};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// One file, ready to be scanned.
#[derive(Debug)]
pub struct Source {
    /// Its name, for sentences.
    pub path: PathBuf,
    /// The open file.
    pub file: File,
    /// Its length.
    pub len: usize,
    /// Where it is scanned as memory: mapped shared and read-only, nothing of it touched.
    pub map: Option<Arc<Mmap>>,
    /// The device's read-ahead.
    pub read_ahead_bytes: usize,
    /// Buffers for reads through `io_uring`; the scan takes them and puts them back.
    pub buffers: Mutex<Vec<Buffer>>,
}

impl Source {
    /// Opens, and maps, one file for this way of reading.
    ///
    /// # Errors
    /// When the file is missing or empty, or cannot be had in that way ([`Failure::CannotHere`]).
    pub fn open(path: &Path, plan: &Plan) -> Result<Self, Failure> {
        let shown = path.display();
        let file = open(path, plan.io)?;
        let status =
            file.metadata().map_err(|cause| Failure::of(format!("cannot examine {shown}"), cause))?;
        if !status.is_file() || status.len() == 0 {
            return Err(Failure::Failed(format!("{shown} is empty or not a regular file")));
        }
        let len = usize::try_from(status.len()).map_err(|cause| Failure::CannotHere(cause.to_string()))?;
        let map = if plan.io == Io::Mmap { Some(Arc::new(map(&file, path)?)) } else { None };
        let depth = if plan.io.needs_buffers() { plan.depth } else { 0 };
        let buffers = (0..depth).map(|_| Buffer::new(plan.piece_bytes)).collect::<Result<_, _>>()?;
        let read_ahead_bytes = read_ahead::of_device(&file);
        Ok(Self { path: path.to_owned(), file, len, map, read_ahead_bytes, buffers: Mutex::new(buffers) })
    }
}

fn open(path: &Path, io: Io) -> Result<File, Failure> {
    let direct = io == Io::UringDirect;
    let flags = if direct { libc::O_DIRECT } else { 0 };
    OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|cause| {
        let shown = path.display();
        if direct && cause.raw_os_error() == Some(libc::EINVAL) {
            return Failure::CannotHere(format!("the file system of {shown} has no O_DIRECT"));
        }
        Failure::of(format!("cannot open {shown}"), cause)
    })
}

fn map(file: &File, path: &Path) -> Result<Mmap, Failure> {
    // SAFETY: a file that others change while it is scanned gives other bytes, which the checksum shows, and one that
    // they truncate gives SIGBUS, which `bus_error` explains.
    unsafe { MmapOptions::new().map(file) }
        .map_err(|cause| Failure::CannotHere(format!("cannot map {}: {cause}", path.display())))
}

/// What all files together must add up to; none where nobody asked.
///
/// # Errors
/// When a sidecar cannot be read, or describes another length.
pub fn expected_sum(plan: &Plan, sources: &[Arc<Source>]) -> Result<Option<u64>, Failure> {
    if !plan.expect_sidecars {
        return Ok(None);
    }
    sources.iter().map(|source| sum_of(source, plan.stride)).sum::<Result<u64, Failure>>().map(Some)
}

/// The arguments' check lets only strides through that a sidecar knows.
fn sum_of(source: &Source, stride: usize) -> Result<u64, Failure> {
    let path = Sidecar::path_of(&source.path);
    let sidecar = Sidecar::load(&path)?;
    if sidecar.size_bytes != source.len as u64 {
        let (described, found) = (sidecar.size_bytes, source.len);
        let shown = path.display();
        return Err(Failure::Failed(format!("{shown} describes {described} bytes, its file has {found}")));
    }
    Ok(if stride == STRIDE_BYTES { sidecar.stride512_sum } else { sidecar.byte_sum })
}
