//! The bytes that are used: the mapped file, or a copy of it.

use crate::method::Method;
use contract::failure::OrFailure;
use contract::Failure;
use memmap2::{Mmap, MmapMut, MmapOptions};
use std::fs::File;
use std::io::{Result, Seek};

/// Memory that holds the file.
#[derive(Debug)]
pub enum Memory {
    /// Anonymous memory, read from the file.
    Heap(MmapMut),
    /// The file, mapped shared and read-only.
    Mapped(Mmap),
}

impl Memory {
    /// Make the memory: an untouched mapping, a populated one, or a copy, depending on the method.
    /// Fails with [`Failure::CannotHere`] without enough memory, or if the disk fails.
    pub fn make(
        method: Method,
        file: &File,
        length_bytes: usize,
    ) -> std::result::Result<Self, Failure> {
        let mut options = MmapOptions::new();
        options.len(length_bytes);
        if method == Method::MapPopulate {
            options.populate();
        }
        let made = match method {
            Method::Read => copy(file, length_bytes).map(Self::Heap),
            // SAFETY: a file that another process changes meanwhile has other bytes, which the
            // checksum shows. A truncated one causes SIGBUS, which `bus_error` reports.
            _ => unsafe { options.map(file) }.map(Self::Mapped),
        };
        made.or_cannot_here(format!("cannot have {length_bytes} bytes in memory"))
    }

    /// Return the file's bytes.
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
