//! Access to the blocks of a sequence: one small trait, and its implementations.

use crate::frames::Frames;
use crate::positioned_read::{read_all, DIRECT_BYTES};
use crate::ring::Ring;
use contract::page_cache::page_bytes;
use memmap2::MmapMut;
use rustix::process::{getpid, pidfd_open, PidfdFlags};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

/// A thread's access to the bytes. Blocks are requested, and taken when they are available: one
/// after the other if reading waits, many at a time if it does not.
pub trait BlockReader {
    /// Return whether another block may be requested before one is taken.
    fn has_room(&self) -> bool;

    /// Request a block. Fails with the error of the system.
    fn request(&mut self, span: Range<usize>) -> io::Result<()>;

    /// Return the bytes of the requested block that is available first; None if none is left. Fails
    /// with the error of the system, or if the file has become shorter.
    fn take(&mut self) -> io::Result<Option<&[u8]>>;

    /// Wait for blocks that were requested and not taken, and drop them. Fails with the error of
    /// the system.
    fn discard(&mut self) -> io::Result<()> {
        while self.take()?.is_some() {}
        Ok(())
    }

    /// Return the blocks found in a cache of the process, and all requested blocks; None without
    /// such a cache.
    fn hits(&self) -> Option<(u64, u64)> {
        None
    }
}

/// Blocks in memory: the heap, or a mapped file, whose page faults read them.
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

/// Blocks of a mapped file for which the kernel gets `MADV_WILLNEED` before they are touched. The
/// last of the requested blocks are not advised yet.
///
/// A program that knows the order of its random reads can have them read ahead: it advises the next
/// blocks, many in one call (`process_madvise(2)`, Linux 5.10), while the kernel reads the previous
/// ones.
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

/// Blocks read one after the other with pread(2) into one buffer.
#[derive(Debug)]
pub struct Pread<'a> {
    file: &'a File,
    buffer: MmapMut,
    unit_bytes: usize,
    requested: Option<Range<usize>>,
}

impl<'a> Pread<'a> {
    /// Create a reader with a buffer of `block_bytes`, which starts at a page. Direct reads are
    /// rounded up to whole units. Fails without memory for the buffer.
    pub fn new(file: &'a File, block_bytes: usize, direct: bool) -> io::Result<Self> {
        let unit_bytes = if direct { DIRECT_BYTES } else { 1 };
        let buffer = MmapMut::map_anon(block_bytes.next_multiple_of(unit_bytes))?;
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
        let buffer = &mut self.buffer[..span.len().next_multiple_of(self.unit_bytes)];
        read_all(self.file, buffer, span.start as u64, span.len())?;
        Ok(Some(&self.buffer[..span.len()]))
    }
}

/// Blocks read through `io_uring`, as many at a time as the queue holds. Each block in flight has a
/// slot of the ring's buffer.
pub struct Queued<'a> {
    ring: Ring<'a>,
    slot_bytes: usize,
    unit_bytes: usize,
    spans: Vec<Range<usize>>,
    free: Vec<usize>,
    shown: Option<usize>,
}

impl<'a> Queued<'a> {
    /// Create a reader of blocks of at most `block_bytes`, `depth` at a time. Fails without
    /// `io_uring` or memory, or if a security policy forbids `io_uring`.
    pub fn new(file: &'a File, depth: u32, block_bytes: usize, direct: bool) -> io::Result<Self> {
        let slot_bytes = block_bytes.next_multiple_of(DIRECT_BYTES);
        let slots = depth as usize;
        Ok(Self {
            ring: Ring::new(file, depth, slots * slot_bytes)?,
            slot_bytes,
            unit_bytes: if direct { DIRECT_BYTES } else { 1 },
            spans: vec![0..0; slots],
            free: (0..slots).collect(),
            shown: None,
        })
    }

    fn slot(&self, slot: usize, span: &Range<usize>) -> Range<usize> {
        let start = slot * self.slot_bytes;
        start..start + span.len().next_multiple_of(self.unit_bytes)
    }
}

impl BlockReader for Queued<'_> {
    fn has_room(&self) -> bool {
        !self.free.is_empty() || self.shown.is_some()
    }

    fn request(&mut self, span: Range<usize>) -> io::Result<()> {
        // The slot that was returned last is no longer in use.
        let slot =
            self.shown.take().or_else(|| self.free.pop()).ok_or(io::ErrorKind::OutOfMemory)?;
        let range = self.slot(slot, &span);
        let offset = span.start as u64;
        self.spans[slot] = span;
        self.ring.push(offset, range, slot as u64)
    }

    #[allow(clippy::cast_possible_truncation)] // a tag is the number of a slot
    fn take(&mut self) -> io::Result<Option<&[u8]>> {
        self.free.extend(self.shown.take());
        let Some(done) = self.ring.next_done()? else { return Ok(None) };
        let slot = done.tag as usize;
        self.shown = Some(slot);
        let span = self.spans[slot].clone();
        let range = self.slot(slot, &span);
        if done.bytes < span.len() {
            self.ring.read_again(span.start as u64, range.clone(), span.len())?;
        }
        Ok(Some(self.ring.bytes(range.start..range.start + span.len())))
    }
}

/// Direct reads into a cache of the process through `io_uring`, as databases do instead of mapping
/// files. The ring's buffer is the cache; each frame holds one page of the file.
pub struct DirectCache<'a> {
    ring: Ring<'a>,
    frames: Frames,
    frame_bytes: usize,
    size_bytes: usize,
    depth: usize,
    /// Frames that a read is writing to, each with the blocks that wait for it.
    pending: Vec<(usize, Vec<Range<usize>>)>,
    ready: VecDeque<(usize, Range<usize>)>,
    shown: Option<usize>,
    hits: u64,
    requested: u64,
}

impl<'a> DirectCache<'a> {
    /// Create a reader whose cache, tables included, takes `cache_bytes`. Fails without `io_uring`
    /// or memory, or if the cache cannot hold the reads in flight.
    pub fn new(
        file: &'a File,
        size_bytes: usize,
        block_bytes: usize,
        depth: u32,
        cache_bytes: usize,
    ) -> io::Result<Self> {
        let frame_bytes = block_bytes.next_multiple_of(DIRECT_BYTES);
        let pages = size_bytes.div_ceil(frame_bytes);
        let for_frames = cache_bytes.saturating_sub(pages * Frames::BYTES_A_PAGE);
        let count =
            (for_frames / (frame_bytes + Frames::BYTES_A_FRAME)).min(pages + depth as usize + 1);
        if count <= depth as usize {
            let needed = format!(
                "a cache of {cache_bytes} bytes has no room for {depth} reads of {frame_bytes} bytes"
            );
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, needed));
        }
        Ok(Self {
            ring: Ring::new(file, depth, count * frame_bytes)?,
            frames: Frames::new(count, pages),
            frame_bytes,
            size_bytes,
            depth: depth as usize,
            pending: Vec::new(),
            ready: VecDeque::new(),
            shown: None,
            hits: 0,
            requested: 0,
        })
    }

    fn read(&mut self, page: usize, span: Range<usize>) -> io::Result<()> {
        let frame = self.frames.replace(page).ok_or(io::ErrorKind::OutOfMemory)?;
        self.ring.push((page * self.frame_bytes) as u64, self.frame(frame), frame as u64)?;
        self.pending.push((frame, vec![span]));
        Ok(())
    }

    fn frame(&self, frame: usize) -> Range<usize> {
        frame * self.frame_bytes..(frame + 1) * self.frame_bytes
    }

    /// Wait for one read, and release the blocks that wait for it. False if none is in flight.
    #[allow(clippy::cast_possible_truncation)] // a tag is the number of a frame
    fn arrive(&mut self) -> io::Result<bool> {
        let Some(done) = self.ring.next_done()? else { return Ok(false) };
        let frame = done.tag as usize;
        let Some(at) = self.pending.iter().position(|waiting| waiting.0 == frame) else {
            return Ok(true);
        };
        let (_, spans) = self.pending.swap_remove(at);
        let offset = spans[0].start - spans[0].start % self.frame_bytes;
        let wanted = self.frame_bytes.min(self.size_bytes - offset);
        if done.bytes < wanted {
            self.ring.read_again(offset as u64, self.frame(frame), wanted)?;
        }
        self.ready.extend(spans.into_iter().map(|span| (frame, span)));
        Ok(true)
    }
}

impl BlockReader for DirectCache<'_> {
    fn has_room(&self) -> bool {
        self.ready.len() + self.pending.iter().map(|waiting| waiting.1.len()).sum::<usize>()
            < self.depth
    }

    fn request(&mut self, span: Range<usize>) -> io::Result<()> {
        let page = span.start / self.frame_bytes;
        self.requested += 1;
        self.shown.take().into_iter().for_each(|frame| self.frames.release(frame));
        let Some(frame) = self.frames.find(page) else { return self.read(page, span) };
        self.hits += 1;
        match self.pending.iter_mut().find(|waiting| waiting.0 == frame) {
            Some(waiting) => waiting.1.push(span),
            None => self.ready.push_back((frame, span)),
        }
        Ok(())
    }

    fn take(&mut self) -> io::Result<Option<&[u8]>> {
        self.shown.take().into_iter().for_each(|frame| self.frames.release(frame));
        while self.ready.is_empty() {
            if !self.arrive()? {
                return Ok(None);
            }
        }
        let Some((frame, span)) = self.ready.pop_front() else { return Ok(None) };
        self.shown = Some(frame);
        let start = frame * self.frame_bytes + span.start % self.frame_bytes;
        Ok(Some(self.ring.bytes(start..start + span.len())))
    }

    fn hits(&self) -> Option<(u64, u64)> {
        Some((self.hits, self.requested))
    }
}
