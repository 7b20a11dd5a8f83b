//! Blocks read through `io_uring`, as many at a time as the queue holds.

use super::BlockReader;
use crate::positioned_read::DIRECT_BYTES;
use crate::ring::Ring;
use std::fs::File;
use std::io;
use std::ops::Range;

/// A ring, and a slot of its buffer for each block in flight.
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
