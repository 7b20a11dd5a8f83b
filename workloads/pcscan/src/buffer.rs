//! Buffers into which the kernel may write asynchronously.

use contract::Failure;
use std::alloc::{alloc_zeroed, Layout};
use std::ops::Deref;
use std::ptr::NonNull;

/// The alignment of addresses and lengths that `O_DIRECT` needs on every usual disk.
pub const ALIGN_BYTES: usize = 4096;

/// Aligned memory that is never freed: a read that is still in flight when the process gives up
/// must not write into memory that has another use by then.
#[derive(Debug)]
pub struct Buffer {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: only a read that the owner waits for holds the address.
unsafe impl Send for Buffer {}

impl Buffer {
    /// Allocate zeroed memory of this length, above zero, at an address that `O_DIRECT` accepts.
    /// Fails with [`Failure::CannotHere`] without memory.
    pub fn new(len: usize) -> Result<Self, Failure> {
        let layout = Layout::from_size_align(len, ALIGN_BYTES)
            .map_err(|cause| Failure::BadArguments(format!("a buffer of {len} bytes: {cause}")))?;
        // SAFETY: the length is above zero, which the command line ensures.
        let start = unsafe { alloc_zeroed(layout) };
        NonNull::new(start)
            .map(|start| Self { start, len })
            .ok_or_else(|| Failure::CannotHere(format!("no memory for a buffer of {len} bytes")))
    }

    /// Return the address to which the kernel writes.
    pub fn start(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is initialised, of this length, and never freed.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}
