//! Blocks that lie in memory: the heap, or a mapped file, whose page faults do the reading.

use super::Fetch;
use std::io;
use std::ops::Range;

/// The working set as one slice.
#[derive(Debug)]
pub struct Memory<'a> {
    bytes: &'a [u8],
    asked: Option<Range<usize>>,
}

impl<'a> Memory<'a> {
    /// A reader of these bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, asked: None }
    }
}

impl Fetch for Memory<'_> {
    #[inline]
    fn has_room(&self) -> bool {
        self.asked.is_none()
    }

    #[inline]
    fn ask(&mut self, span: Range<usize>) -> io::Result<()> {
        self.asked = Some(span);
        Ok(())
    }

    #[inline]
    fn take(&mut self) -> io::Result<Option<&[u8]>> {
        Ok(self.asked.take().map(|span| &self.bytes[span]))
    }
}
