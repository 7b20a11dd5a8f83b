//! Stopping in time without asking for the time at every block.

use std::time::{Duration, Instant};

/// Blocks between two looks at the clock while blocks are quick. Where reading the clock is a system call, or emulated,
/// a look at every 4 KiB block would be a cost of its own.
const QUICK_BLOCKS: u32 = 16;

/// Blocks that are shorter than this are taken for as much as this many bytes are.
const SHORT_BYTES: usize = 64;

/// When the blocks between two looks take longer than this, every block is worth a look.
const SLOW: Duration = Duration::from_millis(1);

/// The moment at which reading stops, if there is one.
#[derive(Debug, Clone)]
pub struct Deadline {
    at: Option<Instant>,
    looked: Instant,
    quick_blocks: u32,
    step: u32,
    blocks_left: u32,
}

impl Deadline {
    /// A deadline so long after `start`; never, where there is no limit.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // 64 at most
    pub fn after(start: Instant, limit: Option<Duration>, block_bytes: usize) -> Self {
        let quick_blocks = QUICK_BLOCKS * (SHORT_BYTES / block_bytes).max(1) as u32;
        let at = limit.and_then(|limit| start.checked_add(limit));
        Self { at, looked: start, quick_blocks, step: 1, blocks_left: 1 }
    }

    /// To be asked once before each block.
    #[inline]
    pub fn has_passed(&mut self) -> bool {
        let Some(at) = self.at else { return false };
        self.blocks_left -= 1;
        self.blocks_left == 0 && self.look(at)
    }

    fn look(&mut self, at: Instant) -> bool {
        let now = Instant::now();
        // The steps grow while blocks are quick: a thousand short blocks with a pause before each are minutes.
        let is_slow = now.duration_since(self.looked) > SLOW;
        self.step = if is_slow { 1 } else { (2 * self.step).min(self.quick_blocks) };
        (self.blocks_left, self.looked) = (self.step, now);
        now >= at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_limit_it_never_passes() {
        let mut deadline = Deadline::after(Instant::now(), None, 4096);
        assert!((0..1000).all(|_| !deadline.has_passed()));
    }

    #[test]
    fn slow_blocks_are_watched_one_by_one() {
        let mut deadline = Deadline::after(Instant::now(), Some(Duration::from_millis(60)), 4096);
        let blocks = (0..1000).take_while(|_| {
            std::thread::sleep(Duration::from_millis(5));
            !deadline.has_passed()
        });
        let read = blocks.count();
        assert!(read <= 2 * QUICK_BLOCKS as usize - 4, "{read} blocks of 5 ms in 60 ms");
    }

    #[test]
    fn short_blocks_that_are_slow_are_watched_one_by_one_too() {
        let mut deadline = Deadline::after(Instant::now(), Some(Duration::from_millis(60)), 1);
        let blocks = (0..1000).take_while(|_| {
            std::thread::sleep(Duration::from_millis(5));
            !deadline.has_passed()
        });
        let read = blocks.count();
        assert!(read <= 13, "{read} blocks of one byte and 5 ms in 60 ms");
    }
}
