//! The layout of an index file: a hash table with open addressing, written once and then only read.
//!
//! A file is an array of buckets of 4 KiB. Where pages have that size, a lookup needs one page.
//!
//! | bytes | content |
//! |---|---|
//! | 0..8 | `pcindex1` |
//! | 8..16 | number of the bucket |
//! | 16..40 | one bit per slot: whether it is taken |
//! | 40..64 | filler |
//! | 64..4096 | 168 slots: key (two words), value (one word); filler in free slots |
//!
//! Words are little-endian. Filler is random, so that no layer below can compress the file. The
//! n-th key of a file is a function of the file's seed and n. A reader that knows the seed can look
//! up any key and knows the answer beforehand.

use crate::mixing_hash::{mix, GOLDEN_GAMMA};

/// Length of a bucket.
pub const BUCKET_BYTES: usize = 4096;

/// Slots in a bucket.
pub const SLOTS: usize = (BUCKET_BYTES - HEADER_BYTES) / SLOT_BYTES;

/// The first bytes of every bucket.
pub const MAGIC: [u8; 8] = *b"pcindex1";

const HEADER_BYTES: usize = 64;
const SLOT_BYTES: usize = 24;
const TAKEN_AT: usize = 16;

/// Sixteen bytes in the form of a UUID of version 4 (RFC 9562), which most identifiers of
/// applications have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    high: u64,
    low: u64,
}

impl Key {
    /// Return the key with this number in the file with this seed.
    #[inline]
    #[must_use]
    pub const fn of(seed: u64, number: u64) -> Self {
        let drawn = mix(mix(seed).wrapping_add(number.wrapping_mul(GOLDEN_GAMMA)));
        Self {
            high: drawn & !0xf000 | 0x4000,
            low: mix(drawn ^ GOLDEN_GAMMA) & !(0b11 << 62) | (0b10 << 62),
        }
    }

    /// Return the value stored under this key.
    #[inline]
    #[must_use]
    pub const fn value(self) -> u64 {
        mix(self.high ^ self.low.rotate_left(32))
    }

    /// Return the bucket and the slot at which the search for this key begins.
    #[inline]
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // the high half of a product is below both of its factors
    pub const fn home(self, buckets: u64) -> (u64, usize) {
        let hash = mix(self.high ^ mix(self.low));
        let bucket = ((hash as u128 * buckets as u128) >> 64) as u64;
        let slot = ((hash & 0xffff_ffff) * SLOTS as u64) >> 32;
        (bucket, slot as usize)
    }
}

/// Return the number of buckets in a file of this length.
#[inline]
#[must_use]
pub const fn buckets(size_bytes: u64) -> u64 {
    size_bytes / BUCKET_BYTES as u64
}

/// Return the number of keys in a file of this many buckets: seven of ten slots are taken.
#[inline]
#[must_use]
pub const fn entries(buckets: u64) -> u64 {
    buckets * SLOTS as u64 * 7 / 10
}

/// Return the value stored under a key; None if the key is absent. The search covers the slots of
/// the key's bucket, then the following buckets, and ends at the first free slot.
#[inline]
#[must_use]
pub fn find(table: &[u8], key: Key) -> Option<u64> {
    match search(table, key) {
        SearchEnd::Taken(at) => Some(word(table, at + 16)),
        SearchEnd::Free { .. } | SearchEnd::None => None,
    }
}

/// Store a key with its value where the search for it ends. False if every slot is taken.
pub fn insert(table: &mut [u8], key: Key) -> bool {
    match search(table, key) {
        SearchEnd::Taken(_) => true,
        SearchEnd::None => false,
        SearchEnd::Free { bucket_at, slot } => {
            table[bucket_at + TAKEN_AT + slot / 8] |= 1 << (slot % 8);
            let at = bucket_at + HEADER_BYTES + slot * SLOT_BYTES;
            for (index, word) in [key.high, key.low, key.value()].into_iter().enumerate() {
                table[at + 8 * index..][..8].copy_from_slice(&word.to_le_bytes());
            }
            true
        }
    }
}

/// Make a bucket of `table` empty and write its number.
pub fn clear(table: &mut [u8], bucket: usize) {
    let header = &mut table[bucket * BUCKET_BYTES..][..HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..16].copy_from_slice(&(bucket as u64).to_le_bytes());
    header[TAKEN_AT..TAKEN_AT + SLOTS.div_ceil(64) * 8].fill(0);
}

/// The end of a search.
enum SearchEnd {
    /// The slot that begins at this byte holds the key.
    Taken(usize),
    /// This slot is free: the key is absent.
    Free { bucket_at: usize, slot: usize },
    /// Every slot of the table is taken by another key.
    None,
}

#[inline]
#[allow(clippy::cast_possible_truncation)] // a bucket of a slice
fn search(table: &[u8], key: Key) -> SearchEnd {
    let buckets = table.len() / BUCKET_BYTES;
    let (home, first) = key.home(buckets as u64);
    for step in 0..buckets {
        let bucket_at = (home as usize + step) % buckets * BUCKET_BYTES;
        for slot in (first..SLOTS).chain(0..first) {
            if table[bucket_at + TAKEN_AT + slot / 8] & 1 << (slot % 8) == 0 {
                return SearchEnd::Free { bucket_at, slot };
            }
            let at = bucket_at + HEADER_BYTES + slot * SLOT_BYTES;
            if word(table, at) == key.high && word(table, at + 8) == key.low {
                return SearchEnd::Taken(at);
            }
        }
    }
    SearchEnd::None
}

#[inline]
fn word(table: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&table[at..at + 8]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn table(buckets: usize, seed: u64, entries: u64) -> Vec<u8> {
        let mut table = vec![0xff; buckets * BUCKET_BYTES];
        (0..buckets).for_each(|bucket| clear(&mut table, bucket));
        assert!((0..entries).all(|number| insert(&mut table, Key::of(seed, number))));
        table
    }

    #[test]
    fn a_bucket_is_filled_to_its_last_byte() {
        assert_eq!(HEADER_BYTES + SLOTS * SLOT_BYTES, BUCKET_BYTES);
        assert!(TAKEN_AT + SLOTS.div_ceil(8) <= HEADER_BYTES);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn what_was_stored_is_found_and_nothing_else(buckets in 1_usize..8, seed: u64, asked: u64) {
            let entries = entries(buckets as u64);
            let table = table(buckets, seed, entries);
            for number in 0..entries {
                let key = Key::of(seed, number);
                prop_assert_eq!(find(&table, key), Some(key.value()));
            }
            prop_assert_eq!(find(&table, Key::of(seed, asked.max(entries))), None);
        }

        #[test]
        fn homes_lie_inside(seed: u64, number: u64, buckets in 1_u64..1 << 40) {
            let (bucket, slot) = Key::of(seed, number).home(buckets);
            prop_assert!(bucket < buckets && slot < SLOTS);
        }
    }

    #[test]
    fn a_full_table_refuses_more_and_still_ends_every_search() {
        let all = 2 * SLOTS as u64;
        let mut table = table(2, 3, all);
        assert!(!insert(&mut table, Key::of(3, all)));
        assert_eq!(find(&table, Key::of(3, all)), None);
        // Nearly half of the keys no longer fitted into their own bucket, or into their own slot.
        assert!((0..all)
            .all(|number| find(&table, Key::of(3, number)) == Some(Key::of(3, number).value())));
    }

    #[test]
    fn keys_are_version_4_identifiers_and_differ() {
        let keys: Vec<Key> = (0..100_000).map(|number| Key::of(9, number)).collect();
        assert!(keys.iter().all(|key| key.high >> 12 & 0xf == 4 && key.low >> 62 == 0b10));
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
        assert_ne!(Key::of(9, 0), Key::of(10, 0));
    }

    #[test]
    fn buckets_are_hit_evenly() {
        let mut hits = [0_u32; 64];
        for number in 0..64_000 {
            hits[usize::try_from(Key::of(1, number).home(64).0).unwrap()] += 1;
        }
        // A thousand each, and four times the square root of that to either side.
        assert!(hits.iter().all(|hit| (870..1130).contains(hit)), "{hits:?}");
    }

    #[test]
    fn the_layout_of_version_1_stays_what_it_is() {
        let key = Key::of(1, 2);
        assert_eq!(
            (key, key.value(), key.home(512)),
            (PINNED, 2_661_352_014_540_570_368, (135, 97))
        );
    }

    /// Taken from the first build; the program in Java has the same figures.
    const PINNED: Key = Key { high: 6_869_446_166_584_642_119, low: 13_706_602_213_450_304_873 };
}
