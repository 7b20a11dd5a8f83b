//! The bytes of a dataset, as a function of seed and position.

use clap::ValueEnum;
use contract::mixing_hash::{mix, GOLDEN_GAMMA};

const WORD_BYTES: u64 = 8;

/// The content of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Fill {
    /// Words that never repeat, drawn from the seed
    Random,
    /// Zero bytes, written and not left out, for repeating measurements that were made on such
    /// files
    Zero,
    /// A hash table of random identifiers for `pcindex`
    Index,
}

impl Fill {
    /// Return the name that sidecars use, the same as on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Zero => "zero",
            Self::Index => "index",
        }
    }
}

/// Fill the buffer with the random words that belong at `offset_bytes`, a multiple of eight.
///
/// Word n is a bijective hash of seed + n (counter mode). No two words of a file are equal, so no
/// layer below can store a block once for two places.
pub fn random(buffer: &mut [u8], seed: u64, offset_bytes: u64) {
    debug_assert_eq!(offset_bytes % WORD_BYTES, 0);
    let start = mix(seed ^ GOLDEN_GAMMA);
    let mut counter = start.wrapping_add((offset_bytes / WORD_BYTES).wrapping_mul(GOLDEN_GAMMA));
    for word in buffer.chunks_mut(8) {
        counter = counter.wrapping_add(GOLDEN_GAMMA);
        word.copy_from_slice(&mix(counter).to_le_bytes()[..word.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn whole(seed: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        random(&mut bytes, seed, 0);
        bytes
    }

    proptest! {
        #[test]
        fn any_part_can_be_made_again(seed: u64, start in 0_usize..500, len in 0_usize..500) {
            let start = start * 8;
            let mut part = vec![0; len];
            random(&mut part, seed, start as u64);
            prop_assert_eq!(&part, &whole(seed, 8192)[start..start + len]);
        }
    }

    #[test]
    fn no_word_repeats() {
        let bytes = whole(7, 1 << 20);
        let words: HashSet<&[u8]> = bytes.chunks(8).collect();
        assert_eq!(words.len(), bytes.len() / 8);
    }

    #[test]
    fn bits_are_balanced_and_seeds_differ() {
        let bytes = whole(7, 1 << 20);
        let ones: u64 = bytes.iter().map(|byte| u64::from(byte.count_ones())).sum();
        let share = ones as f64 / (8.0 * bytes.len() as f64);
        assert!((share - 0.5).abs() < 0.002, "{share}");
        assert_ne!(whole(7, 64), whole(8, 64));
    }

    #[test]
    fn the_bytes_of_version_2_stay_what_they_are() {
        assert_eq!(crate::GENERATOR_VERSION, 2);
        assert_eq!(crc32c::crc32c(&whole(1, 4096)), PINNED);
    }

    /// Taken from the first build: another value means other data under the same version.
    const PINNED: u32 = 1_820_698_778;
}
