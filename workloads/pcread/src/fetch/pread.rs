//! Blocks read with pread(2) into one buffer, each waited for.

use super::Fetch;
use crate::pool::Pool;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Unit of direct reads: no common disk wants more, and the end of the file may be read past.
pub const DIRECT_BYTES: usize = 4096;

/// A file, and a buffer that one block fits into.
#[derive(Debug)]
pub struct Pread<'a> {
    file: &'a File,
    buffer: Pool,
    unit_bytes: usize,
    asked: Option<Range<usize>>,
}

impl<'a> Pread<'a> {
    /// A reader with a buffer of `block_bytes`, which starts at a page. Direct reads are rounded up to whole units.
    ///
    /// # Errors
    /// When there is no memory for the buffer.
    pub fn new(file: &'a File, block_bytes: usize, direct: bool) -> io::Result<Self> {
        let unit_bytes = if direct { DIRECT_BYTES } else { 1 };
        let buffer = Pool::new(block_bytes.next_multiple_of(unit_bytes))?;
        Ok(Self { file, buffer, unit_bytes, asked: None })
    }
}

impl Fetch for Pread<'_> {
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
        let Some(span) = self.asked.take() else { return Ok(None) };
        let buffer = &mut self.buffer.bytes_mut()[..span.len().next_multiple_of(self.unit_bytes)];
        read_all(self.file, buffer, span.start as u64, span.len())?;
        Ok(Some(&self.buffer.bytes()[..span.len()]))
    }
}

/// Fills the buffer from the offset on, `wanted` bytes of it at least.
///
/// # Errors
/// What the system says, or that the file ends before.
pub fn read_all(file: &File, buffer: &mut [u8], offset: u64, wanted: usize) -> io::Result<()> {
    let mut done = 0;
    while done < wanted {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => done += read,
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}
