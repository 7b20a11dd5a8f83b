//! The bytes that are used in the end: the mapped file, or a copy of it.

use crate::method::Method;
use contract::Failure;
use memmap2::{Mmap, MmapMut, MmapOptions};
use std::fs::File;
use std::io::{Result, Seek};
use std::path::Path;

/// Memory that holds the file.
#[derive(Debug)]
pub enum Memory {
    /// Anonymous memory, read from the file.
    Heap(MmapMut),
    /// The file, mapped shared and read-only.
    Mapped(Mmap),
}

impl Memory {
    /// Makes the memory as the method says: an empty mapping, a populated one, or a copy.
    ///
    /// # Errors
    /// [`Failure::CannotHere`] where there is not so much memory, or the disk fails.
    pub fn make(method: Method, file: &File, length_bytes: usize) -> std::result::Result<Self, Failure> {
        let mut options = MmapOptions::new();
        options.len(length_bytes);
        if method == Method::MapPopulate {
            options.populate();
        }
        let made = match method {
            Method::Read => copy(file, length_bytes).map(Self::Heap),
            // SAFETY: a file that others change while it is read gives other bytes, which the checksum shows, and one
            // that they truncate gives SIGBUS, which `bus_error` explains.
            _ => unsafe { options.map(file) }.map(Self::Mapped),
        };
        made.map_err(|cause| {
            Failure::CannotHere(format!("cannot have {length_bytes} bytes in memory: {cause}"))
        })
    }

    /// The file's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Heap(heap) => heap,
            Self::Mapped(mapped) => mapped,
        }
    }
}

fn copy(mut file: &File, length_bytes: usize) -> Result<MmapMut> {
    let mut heap = MmapMut::map_anon(length_bytes)?;
    file.rewind()?;
    std::io::Read::read_exact(&mut file, &mut heap)?;
    Ok(heap)
}

/// Opens the file and gives its length.
///
/// # Errors
/// When it is missing, empty or no regular file.
pub fn open(path: &Path) -> std::result::Result<(File, usize), Failure> {
    let shown = path.display();
    let file = File::open(path).map_err(|cause| Failure::of(format!("cannot open {shown}"), cause))?;
    let status = file.metadata().map_err(|cause| Failure::of(format!("cannot examine {shown}"), cause))?;
    if !status.is_file() || status.len() == 0 {
        return Err(Failure::Failed(format!("{shown} is empty or not a regular file")));
    }
    let length = usize::try_from(status.len()).map_err(|cause| Failure::CannotHere(cause.to_string()))?;
    Ok((file, length))
}
