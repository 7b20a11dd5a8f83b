//! The sum of eight bytes at a time in an ordinary register, for CPUs without a sum-of-bytes
//! instruction.

use std::hint::black_box;

const EVEN_BYTES: u64 = 0x00ff_00ff_00ff_00ff;
const EVEN_HALVES: u64 = 0x0000_ffff_0000_ffff;

/// Each word adds at most 2 x 255 to a 16-bit lane: after 128 of them the largest is 65,280, still
/// below 65,536.
const CHUNK_BYTES: usize = 128 * 8;

/// Add up all bytes.
#[inline(never)]
#[must_use]
pub fn sum(bytes: &[u8]) -> u64 {
    black_box(black_box(bytes).chunks(CHUNK_BYTES).map(chunk).sum())
}

fn chunk(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(8);
    let lanes = words.by_ref().fold(0_u64, |lanes, word| {
        let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
        lanes + (word & EVEN_BYTES) + ((word >> 8) & EVEN_BYTES)
    });
    let halves = (lanes & EVEN_HALVES) + ((lanes >> 16) & EVEN_HALVES);
    let rest: u64 = words.remainder().iter().map(|byte| u64::from(*byte)).sum();
    (halves & 0xffff_ffff) + (halves >> 32) + rest
}
