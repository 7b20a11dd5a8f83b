//! Direct reads into a cache of the process through `io_uring`, as databases do instead of mapping
//! files.

use super::BlockReader;
use crate::frames::Frames;
use crate::positioned_read::DIRECT_BYTES;
use crate::ring::Ring;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;

/// A ring whose buffer is the cache. Each frame holds one page of the file.
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
