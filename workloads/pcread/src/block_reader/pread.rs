//! Blocks read one after the other with pread(2) into one buffer.

use super::BlockReader;
use crate::aligned_buffer::AlignedBuffer;
use crate::positioned_read::{read_all, DIRECT_BYTES};
use std::fs::File;
use std::io;
use std::ops::Range;

/// A file, and a buffer for one block.
#[derive(Debug)]
pub struct Pread<'a> {
    file: &'a File,
    buffer: AlignedBuffer,
    unit_bytes: usize,
    requested: Option<Range<usize>>,
}

impl<'a> Pread<'a> {
    /// Create a reader with a buffer of `block_bytes`, which starts at a page. Direct reads are
    /// rounded up to whole units. Fails without memory for the buffer.
    pub fn new(file: &'a File, block_bytes: usize, direct: bool) -> io::Result<Self> {
        let unit_bytes = if direct { DIRECT_BYTES } else { 1 };
        let buffer = AlignedBuffer::new(block_bytes.next_multiple_of(unit_bytes))?;
        Ok(Self { file, buffer, unit_bytes, requested: None })
    }
}

impl BlockReader for Pread<'_> {
    #[inline]
    fn has_room(&self) -> bool {
        self.requested.is_none()
    }

    #[inline]
    fn request(&mut self, span: Range<usize>) -> io::Result<()> {
        self.requested = Some(span);
        Ok(())
    }

    #[inline]
    fn take(&mut self) -> io::Result<Option<&[u8]>> {
        let Some(span) = self.requested.take() else { return Ok(None) };
        let buffer = &mut self.buffer.bytes_mut()[..span.len().next_multiple_of(self.unit_bytes)];
        read_all(self.file, buffer, span.start as u64, span.len())?;
        Ok(Some(&self.buffer.bytes()[..span.len()]))
    }
}
