//! Buffers that the kernel may write into by itself.

use contract::Failure;
use std::alloc::{alloc_zeroed, Layout};
use std::ops::Deref;
use std::ptr::NonNull;

/// What `O_DIRECT` asks of addresses and lengths on every usual disk.
pub const ALIGN_BYTES: usize = 4096;

/// Aligned memory that is never given back: a read that is still under way when the process gives up must not write
/// into memory that belongs to something else by then.
#[derive(Debug)]
pub struct Buffer {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: nobody else holds the address but a read that its owner waits for.
unsafe impl Send for Buffer {}

impl Buffer {
    /// Zeroed memory of that length, above zero, at an address that `O_DIRECT` takes.
    ///
    /// # Errors
    /// [`Failure::CannotHere`] where there is no memory.
    pub fn new(len: usize) -> Result<Self, Failure> {
        let layout = Layout::from_size_align(len, ALIGN_BYTES)
            .map_err(|cause| Failure::BadArguments(format!("a buffer of {len} bytes: {cause}")))?;
        // SAFETY: the length is above zero, which the arguments' parser holds.
        let start = unsafe { alloc_zeroed(layout) };
        NonNull::new(start)
            .map(|start| Self { start, len })
            .ok_or_else(|| Failure::CannotHere(format!("no memory for a buffer of {len} bytes")))
    }

    /// Where the kernel is to write.
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
