//! The division of a working set into one contiguous range per thread, and of each range into
//! blocks.

use std::ops::Range;

/// A thread's range of the working set, divided into blocks of which the last may be short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocks {
    range: Range<usize>,
    block_bytes: usize,
}

impl Blocks {
    /// Return the number of blocks, including a short last one.
    pub fn count(&self) -> u64 {
        self.range.len().div_ceil(self.block_bytes) as u64
    }

    /// Return the position of a block in the working set.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // an index below `count`, which came from a usize
    pub fn span(&self, index: u64) -> Range<usize> {
        let start = self.range.start + index as usize * self.block_bytes;
        start..(start + self.block_bytes).min(self.range.end)
    }
}

/// Divide `size_bytes` into disjoint contiguous ranges that together are the whole.
///
/// Ranges begin at multiples of the page and of the block. No page belongs to two threads, and only
/// the last block of all can be short. Threads beyond the number of such units get an empty range.
pub fn split(
    size_bytes: usize,
    block_bytes: usize,
    page_bytes: usize,
    threads: usize,
) -> Vec<Blocks> {
    let unit_bytes = block_bytes / common_divisor(block_bytes, page_bytes) * page_bytes;
    let units = size_bytes.div_ceil(unit_bytes);
    let bound = |thread: usize| {
        let share = units / threads * thread + (units % threads).min(thread);
        (share * unit_bytes).min(size_bytes)
    };
    (0..threads)
        .map(|thread| Blocks { range: bound(thread)..bound(thread + 1), block_bytes })
        .collect()
}

fn common_divisor(one: usize, other: usize) -> usize {
    if other == 0 {
        one
    } else {
        common_divisor(other, one % other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_are_disjoint_aligned_and_cover_all(
            size in 1_usize..5_000_000,
            block in prop_oneof![Just(64), Just(1024), Just(4096), Just(65_536), 1_usize..10_000],
            threads in 1_usize..30,
        ) {
            let parts = split(size, block, 4096, threads);
            prop_assert_eq!(parts.len(), threads);
            let mut next = 0;
            for blocks in &parts {
                prop_assert_eq!(blocks.range.start, next);
                prop_assert!(next % 4096 == 0 || next == size);
                next = blocks.range.end;
            }
            prop_assert_eq!(next, size);
        }

        #[test]
        fn blocks_cover_their_range(size in 1_usize..300_000, block in 1_usize..10_000, threads in 1_usize..5) {
            let mut next = 0;
            for blocks in split(size, block, 4096, threads) {
                for index in 0..blocks.count() {
                    let span = blocks.span(index);
                    prop_assert_eq!(span.start, next);
                    prop_assert!(!span.is_empty());
                    prop_assert!(span.len() == block || span.end == size);
                    next = span.end;
                }
            }
            prop_assert_eq!(next, size);
        }
    }

    #[test]
    fn work_is_shared_evenly() {
        let lengths: Vec<usize> = split(10 * 4096, 4096, 4096, 4)
            .iter()
            .map(|blocks| blocks.range.len() / 4096)
            .collect();
        assert_eq!(lengths, [3, 3, 2, 2]);
    }
}
