//! The article's random order as in its code: index times prime, in 64 bits, modulo the size.
//!
//! For a file of 10 GiB read byte by byte, two thirds of the products overflow. The remainders
//! visit many bytes twice and others never. (With a size that is a power of two, nothing would
//! change: the overflow is a multiple of it.) In blocks, the product does not overflow, but blocks
//! begin at any byte, so they overlap. Both are kept as they were, and the bytes that they visit
//! are counted (`coverage`).

use crate::stride::PRIME;
use std::ops::Range;

/// The prime of the article's multi-threaded reader.
const PRIME_OF_THREADS: u64 = 33_757_333;

/// The size of the article's file.
const ARTICLE_BYTES: u64 = 10 << 30;

/// Spans of the working set, in the article's order.
#[derive(Debug, Clone)]
pub struct OverflowingOrder {
    indices: Range<u64>,
    first_byte: u64,
    prime: u64,
    kept: u64,
    modulus: u64,
    block_bytes: u64,
}

/// The parameters of one thread's part.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// Length of the working set.
    pub size_bytes: u64,
    /// Length of a block.
    pub block_bytes: u64,
    /// Number of the thread.
    pub thread: u64,
    /// Number of threads.
    pub threads: u64,
    /// Whether the thread ignores the beginning of its own part, as in the printed code.
    pub forgets_its_part: bool,
    /// Whether products are cut to fewer bits in smaller files.
    pub scaled: bool,
}

impl OverflowingOrder {
    /// Create the order of one thread.
    pub fn new(share: Share) -> Self {
        let part_bytes = share.size_bytes / share.threads;
        let count = part_bytes / share.block_bytes;
        let first_index = if share.forgets_its_part { share.thread * count } else { 0 };
        // Single bytes are taken modulo the size, blocks modulo the size less a block: as printed.
        let left_out = if share.block_bytes == 1 { 0 } else { share.block_bytes };
        Self {
            indices: first_index..first_index + count,
            first_byte: if share.forgets_its_part { 0 } else { share.thread * part_bytes },
            prime: if share.threads > 1 { PRIME_OF_THREADS } else { PRIME },
            kept: if share.scaled { kept_bits(share.size_bytes) } else { u64::MAX },
            modulus: part_bytes.saturating_sub(left_out).max(1),
            block_bytes: share.block_bytes,
        }
    }
}

impl Iterator for OverflowingOrder {
    type Item = Range<usize>;

    #[inline]
    #[allow(clippy::cast_possible_truncation)] // positions in a working set whose length is a usize
    fn next(&mut self) -> Option<Range<usize>> {
        let index = self.indices.next()?;
        let start = self.first_byte + (index.wrapping_mul(self.prime) & self.kept) % self.modulus;
        Some(start as usize..(start + self.block_bytes) as usize)
    }
}

/// Return a mask of the bits of a product that are kept: one less of the 64 for each halving of the
/// article's file.
fn kept_bits(size_bytes: u64) -> u64 {
    let halvings = (ARTICLE_BYTES / size_bytes.max(1)).checked_ilog2().unwrap_or(0);
    u64::MAX >> halvings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(size_bytes: u64, block_bytes: u64) -> Share {
        Share {
            size_bytes,
            block_bytes,
            thread: 0,
            threads: 1,
            forgets_its_part: false,
            scaled: false,
        }
    }

    /// The positions that the article's loop computes.
    #[test]
    fn single_bytes_are_where_the_printed_code_looks() {
        let size = ARTICLE_BYTES;
        let mut product = OverflowingOrder::new(share(size, 1));
        for index in [0_u64, 1, 2, 3_232_744_696, 3_232_744_697, size - 1] {
            product.indices = index..size;
            let position = usize::try_from(index.wrapping_mul(5_706_217_411) % size).unwrap();
            assert_eq!(product.next(), Some(position..position + 1));
        }
    }

    #[test]
    fn the_first_overflow_is_where_it_was_found() {
        assert!(3_232_744_696_u64.checked_mul(PRIME).is_some());
        assert!(3_232_744_697_u64.checked_mul(PRIME).is_none());
    }

    #[test]
    fn threads_that_forget_their_part_read_the_first() {
        let share = Share { thread: 3, threads: 4, forgets_its_part: true, ..share(1 << 20, 4096) };
        let spans: Vec<_> = OverflowingOrder::new(share).collect();
        assert_eq!(spans.len(), 64);
        assert!(spans.iter().all(|span| span.end <= 1 << 18));
        assert_eq!(spans[0].start as u64, 192 * 33_757_333 % ((1 << 18) - 4096));
        let repaired = OverflowingOrder::new(Share { forgets_its_part: false, ..share });
        assert!(repaired.into_iter().all(|span| span.start >= 3 << 18 && span.end <= 1 << 20));
    }

    #[test]
    fn a_smaller_file_loses_as_many_bits_as_it_is_halved() {
        assert_eq!(kept_bits(ARTICLE_BYTES), u64::MAX);
        assert_eq!(kept_bits(ARTICLE_BYTES / 4), u64::MAX >> 2);
        assert_eq!(kept_bits(4 * ARTICLE_BYTES), u64::MAX);
    }
}
