//! Blocks of a mapped file for which the kernel gets `MADV_WILLNEED` before they are touched.
//!
//! A program that knows the order of its random reads can have them read ahead: it advises the next
//! blocks, many in one call (`process_madvise(2)`, Linux 5.10), while the kernel reads the previous
//! ones.

use super::BlockReader;
use contract::page::page_bytes;
use rustix::process::{getpid, pidfd_open, PidfdFlags};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

/// A mapped file, and the requested blocks, the last of which are not advised yet.
#[derive(Debug)]
pub struct WillNeedReader<'a> {
    bytes: &'a [u8],
    process: OwnedFd,
    window: usize,
    page_bytes: usize,
    requested: VecDeque<Range<usize>>,
    batch: Vec<libc::iovec>,
}

impl<'a> WillNeedReader<'a> {
    /// Create a reader that advises blocks up to `window` ahead. Fails if this kernel has no
    /// `process_madvise(2)`, or a security policy forbids it.
    pub fn new(bytes: &'a [u8], window: usize) -> io::Result<Self> {
        let (requested, batch) = (VecDeque::with_capacity(window), Vec::with_capacity(window));
        let (page_bytes, process) = (page_bytes(), pidfd_open(getpid(), PidfdFlags::empty())?);
        let mut reader = Self { bytes, process, window, page_bytes, requested, batch };
        // An empty call shows whether the call is possible.
        reader.advise()?;
        Ok(reader)
    }

    fn advise(&mut self) -> io::Result<()> {
        // SAFETY: the vector describes pages of a live mapping, and WILLNEED changes none of them.
        let advised = unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                self.process.as_raw_fd(),
                self.batch.as_ptr(),
                self.batch.len(),
                libc::MADV_WILLNEED,
                0,
            )
        };
        self.batch.clear();
        if advised < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Half a window is advised at once; the kernel reads the other half meanwhile.
    fn is_due(&self) -> bool {
        self.batch.len() >= self.window.div_ceil(2)
    }
}

impl BlockReader for WillNeedReader<'_> {
    fn has_room(&self) -> bool {
        self.requested.len() < self.window
    }

    fn request(&mut self, span: Range<usize>) -> io::Result<()> {
        let first = span.start - span.start % self.page_bytes;
        let address = self.bytes[first..].as_ptr().cast_mut().cast();
        self.batch.push(libc::iovec { iov_base: address, iov_len: span.end - first });
        self.requested.push_back(span);
        if self.is_due() {
            return self.advise();
        }
        Ok(())
    }

    fn take(&mut self) -> io::Result<Option<&[u8]>> {
        let Some(span) = self.requested.pop_front() else { return Ok(None) };
        // The oldest block may still be in the batch, at the end of a sequence.
        if self.requested.len() < self.batch.len() {
            self.advise()?;
        }
        Ok(Some(&self.bytes[span]))
    }
}
