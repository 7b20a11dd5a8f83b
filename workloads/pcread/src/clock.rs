//! A deadline that does not read the clock at every block.

use std::time::{Duration, Instant};

/// Blocks between two readings of the clock while blocks are quick. If reading the clock is a
/// system call or emulated, a reading at every block of 4 KiB would be a cost of its own.
const QUICK_BLOCKS: u32 = 16;

/// A shorter block counts as this many bytes.
const SHORT_BYTES: usize = 64;

/// If the blocks between two readings take longer than this, the clock is read at every block.
const SLOW: Duration = Duration::from_millis(1);

/// The moment at which reading stops, if there is one.
#[derive(Debug, Clone)]
pub struct Deadline {
    at: Option<Instant>,
    read_at: Instant,
    quick_blocks: u32,
    step: u32,
    blocks_left: u32,
}

impl Deadline {
    /// Create a deadline at this time after `start`; without a limit it never passes.
    #[allow(clippy::cast_possible_truncation)] // 64 at most
    pub fn after(start: Instant, limit: Option<Duration>, block_bytes: usize) -> Self {
        let quick_blocks = QUICK_BLOCKS * (SHORT_BYTES / block_bytes).max(1) as u32;
        let at = limit.and_then(|limit| start.checked_add(limit));
        Self { at, read_at: start, quick_blocks, step: 1, blocks_left: 1 }
    }

    /// Return whether the deadline has passed; to be called once before each block.
    #[inline]
    pub fn has_passed(&mut self) -> bool {
        let Some(at) = self.at else { return false };
        self.blocks_left -= 1;
        self.blocks_left == 0 && self.read_clock(at)
    }

    fn read_clock(&mut self, at: Instant) -> bool {
        let now = Instant::now();
        // The steps grow while blocks are quick: a thousand short blocks with a pause before each
        // take minutes.
        let is_slow = now.duration_since(self.read_at) > SLOW;
        self.step = if is_slow { 1 } else { (2 * self.step).min(self.quick_blocks) };
        (self.blocks_left, self.read_at) = (self.step, now);
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
