//! Blocks in memory: the heap, or a mapped file, whose page faults read them.

use super::BlockReader;
use std::io;
use std::ops::Range;

/// The working set as one slice.
#[derive(Debug)]
pub struct Memory<'a> {
    bytes: &'a [u8],
    requested: Option<Range<usize>>,
}

impl<'a> Memory<'a> {
    /// Create a reader of these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, requested: None }
    }
}

impl BlockReader for Memory<'_> {
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
        Ok(self.requested.take().map(|span| &self.bytes[span]))
    }
}
