//! Blocks of a mapped file that the kernel is told about before they are touched.
//!
//! Whoever knows the order of random reads can have them read ahead: `MADV_WILLNEED` for blocks that come soon, many
//! in one call (`process_madvise(2)`, Linux 5.10), while the ones announced before are being read.

use super::Fetch;
use contract::page::page_bytes;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A mapped file, and the blocks that were asked for, of which the last few are not announced yet.
#[derive(Debug)]
pub struct Announced<'a> {
    bytes: &'a [u8],
    process: OwnedFd,
    window: usize,
    page_bytes: usize,
    asked: VecDeque<Range<usize>>,
    batch: Vec<libc::iovec>,
}

impl<'a> Announced<'a> {
    /// A reader that announces blocks up to `window` ahead.
    ///
    /// # Errors
    /// When this kernel, or what guards it, has no `process_madvise(2)`.
    pub fn new(bytes: &'a [u8], window: usize) -> io::Result<Self> {
        let (asked, batch) = (VecDeque::with_capacity(window), Vec::with_capacity(window));
        let page_bytes = page_bytes();
        let mut reader = Self { bytes, process: this_process()?, window, page_bytes, asked, batch };
        // Asking for nothing answers whether asking is possible.
        reader.announce()?;
        Ok(reader)
    }

    fn announce(&mut self) -> io::Result<()> {
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

    /// Half a window is announced at once, so that the other half is on its way meanwhile.
    fn is_due(&self) -> bool {
        self.batch.len() >= self.window.div_ceil(2)
    }
}

impl Fetch for Announced<'_> {
    fn has_room(&self) -> bool {
        self.asked.len() < self.window
    }

    fn ask(&mut self, span: Range<usize>) -> io::Result<()> {
        let first = span.start - span.start % self.page_bytes;
        let address = self.bytes[first..].as_ptr().cast_mut().cast();
        self.batch.push(libc::iovec { iov_base: address, iov_len: span.end - first });
        self.asked.push_back(span);
        if self.is_due() {
            return self.announce();
        }
        Ok(())
    }

    fn take(&mut self) -> io::Result<Option<&[u8]>> {
        let Some(span) = self.asked.pop_front() else { return Ok(None) };
        // The oldest block may still wait in the batch, at the end of a route.
        if self.asked.len() < self.batch.len() {
            self.announce()?;
        }
        Ok(Some(&self.bytes[span]))
    }
}

fn this_process() -> io::Result<OwnedFd> {
    // SAFETY: the call takes two numbers and gives a descriptor that nobody else has.
    let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) };
    let descriptor = libc::c_int::try_from(opened).unwrap_or(-1);
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, and owned by nobody.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}
