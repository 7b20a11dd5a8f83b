//! A volume that was created from a snapshot: the first touch of a block loads it.

use std::collections::{HashMap, VecDeque};

use crate::limit::Limit;
use crate::request::Request;

/// The blocks of a restored volume: not loaded, being loaded, or loaded.
#[derive(Debug)]
pub struct Restore {
    block_bytes: u64,
    loader: Limit,
    /// One bit per block: whether it was touched.
    touched: Vec<u64>,
    /// When touched blocks are loaded, and the same in order of time.
    ready_ns: HashMap<u64, f64>,
    queue: VecDeque<(f64, u64)>,
}

impl Restore {
    /// Return the state of a volume of which nothing is loaded. Blocks are loaded one after another
    /// at a rate.
    #[must_use]
    pub fn new(volume_bytes: u64, block_bytes: u64, bytes_per_second: f64) -> Self {
        let words = index(volume_bytes.div_ceil(block_bytes).div_ceil(64));
        Self {
            block_bytes,
            loader: Limit::new(bytes_per_second, None),
            touched: vec![0; words],
            ready_ns: HashMap::new(),
            queue: VecDeque::new(),
        }
    }

    /// Return the rate of loading and the size of a block.
    #[must_use]
    pub fn rules(&self) -> (f64, u64) {
        (self.loader.per_second(), self.block_bytes)
    }

    /// Return the time at which all blocks of a request are loaded that arrived at `now_ns` and may
    /// start at `start_ns`.
    pub fn loaded_ns(&mut self, request: &Request, now_ns: f64, start_ns: f64) -> f64 {
        self.forget_loaded(now_ns);
        let last = request.offset + request.length.max(1) - 1;
        let blocks = request.offset / self.block_bytes..=last / self.block_bytes;
        blocks.fold(start_ns, |ready_ns, block| ready_ns.max(self.block_ns(block, start_ns)))
    }

    fn forget_loaded(&mut self, now_ns: f64) {
        while let Some(&(ready_ns, block)) = self.queue.front().filter(|(at, _)| *at <= now_ns) {
            debug_assert!(self.ready_ns[&block] <= ready_ns);
            self.ready_ns.remove(&block);
            self.queue.pop_front();
        }
    }

    fn block_ns(&mut self, block: u64, start_ns: f64) -> f64 {
        let (word, bit) = (index(block / 64), 1u64 << (block % 64));
        if self.touched[word] & bit != 0 {
            return self.ready_ns.get(&block).copied().unwrap_or(start_ns);
        }
        self.touched[word] |= bit;
        self.loader.admit(start_ns, self.block_bytes as f64);
        let ready_ns = self.loader.free_ns();
        self.ready_ns.insert(block, ready_ns);
        self.queue.push_back((ready_ns, block));
        ready_ns
    }
}

#[allow(clippy::cast_possible_truncation)] // a word of memory
fn index(word: u64) -> usize {
    word as usize
}

#[cfg(test)]
#[allow(clippy::float_cmp)] // sums of whole numbers
mod tests {
    use super::*;
    use crate::request::Direction;

    const BLOCK: u64 = 512 << 10;

    fn at(block: u64, length: u64) -> Request {
        Request { direction: Direction::Read, offset: block * BLOCK + 4096, length }
    }

    #[test]
    fn a_second_request_waits_for_a_block_that_is_being_loaded() {
        let mut restore = Restore::new(1 << 30, BLOCK, BLOCK as f64);
        assert_eq!(restore.loaded_ns(&at(7, 4096), 0.0, 0.0), 1e9);
        assert_eq!(restore.loaded_ns(&at(7, 4096), 4e8, 4e8), 1e9);
        assert_eq!(restore.loaded_ns(&at(7, 4096), 1e9, 1e9), 1e9);
        assert!(restore.ready_ns.is_empty() && restore.queue.is_empty());
    }

    #[test]
    fn blocks_queue_for_the_loader_and_loaded_ones_do_not() {
        let mut restore = Restore::new(1 << 30, BLOCK, BLOCK as f64);
        assert_eq!(restore.loaded_ns(&at(0, 4096), 0.0, 0.0), 1e9);
        assert_eq!(restore.loaded_ns(&at(5, BLOCK), 0.0, 0.0), 3e9);
        assert_eq!(restore.loaded_ns(&at(0, 4096), 1.5e9, 1.5e9), 1.5e9);
        assert_eq!(restore.loaded_ns(&at(6, 4096), 1.5e9, 1.5e9), 3e9);
    }
}
