//! The content of a file, ready to be written from front to back.

use crate::pattern::{self, Fill};
use contract::failure::OrFailure;
use contract::index::{self, BUCKET_BYTES};
use contract::mixing_hash::mix;
use contract::Failure;

/// The bytes of one file.
#[derive(Debug)]
pub enum Content {
    /// Words drawn from this seed.
    Random(u64),
    /// Zero bytes.
    Zero,
    /// A hash table. The positions of its keys depend on each other, so it cannot be made in parts.
    Whole(Vec<u8>),
}

impl Content {
    /// Create the content for a fill, a seed and a length. Fails with [`Failure::BadArguments`] if
    /// an index cannot have that length, [`Failure::CannotHere`] without memory for it.
    pub fn new(fill: Fill, seed: u64, size_bytes: u64) -> Result<Self, Failure> {
        Ok(match fill {
            Fill::Random => Self::Random(seed),
            Fill::Zero => Self::Zero,
            Fill::Index => Self::Whole(table(seed, size_bytes)?),
        })
    }

    /// Fill `buffer` with the bytes that belong at `offset_bytes`, which must be a multiple of
    /// eight.
    #[allow(clippy::cast_possible_truncation)] // an offset into memory
    pub fn write_to(&self, buffer: &mut [u8], offset_bytes: u64) {
        match self {
            Self::Random(seed) => pattern::random(buffer, *seed, offset_bytes),
            Self::Zero => buffer.fill(0),
            Self::Whole(bytes) => {
                buffer.copy_from_slice(&bytes[offset_bytes as usize..][..buffer.len()]);
            }
        }
    }
}

/// Build the hash table of the file's first keys by number. It stays in memory until it is written.
fn table(seed: u64, size_bytes: u64) -> Result<Vec<u8>, Failure> {
    let buckets = index::buckets(size_bytes);
    if buckets == 0 || size_bytes % BUCKET_BYTES as u64 != 0 {
        return Err(Failure::BadArguments(format!(
            "an index is an array of buckets of {BUCKET_BYTES} bytes: {size_bytes} bytes are no such array"
        )));
    }
    let mut table = filler(seed, size_bytes)?;
    (0..table.len() / BUCKET_BYTES).for_each(|bucket| index::clear(&mut table, bucket));
    let stored = (0..index::entries(buckets))
        .all(|number| index::insert(&mut table, index::Key::of(seed, number)));
    stored
        .then_some(table)
        .ok_or_else(|| Failure::Failed("the index has no room for its keys".to_owned()))
}

/// Return words that neither the keys nor a random file with this seed contain.
fn filler(seed: u64, size_bytes: u64) -> Result<Vec<u8>, Failure> {
    let scarce = format!("no memory for an index of {size_bytes} bytes");
    let length = usize::try_from(size_bytes).or_cannot_here(&scarce)?;
    let mut table = Vec::new();
    table.try_reserve_exact(length).or_cannot_here(&scarce)?;
    table.resize(length, 0);
    pattern::random(&mut table, mix(seed ^ 0x1d8e_4e27_c47d_124f), 0);
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::index::{find, Key};

    const SIZE_BYTES: u64 = 64 * BUCKET_BYTES as u64;

    #[test]
    fn an_index_answers_for_its_own_keys_only() {
        let table = table(7, SIZE_BYTES).unwrap();
        let entries = index::entries(64);
        assert!((0..entries)
            .all(|number| find(&table, Key::of(7, number)) == Some(Key::of(7, number).value())));
        assert!((entries..2 * entries).all(|number| find(&table, Key::of(7, number)).is_none()));
        assert!((0..entries).all(|number| find(&table, Key::of(8, number)).is_none()));
    }

    #[test]
    fn an_index_of_no_whole_buckets_is_refused() {
        for size_bytes in [1, 4095, 4097, 3 * 4096 + 8] {
            assert_eq!(table(1, size_bytes).unwrap_err().exit_code(), 2, "{size_bytes}");
        }
    }

    #[test]
    fn memory_that_cannot_be_had_is_said() {
        assert_eq!(table(1, 1 << 62).unwrap_err().exit_code(), 77);
    }

    #[test]
    fn no_page_of_an_index_is_mostly_zero_or_like_another() {
        let table = table(7, SIZE_BYTES).unwrap();
        let pages: std::collections::HashSet<&[u8]> = table.chunks(BUCKET_BYTES).collect();
        assert_eq!(pages.len(), 64);
        let zeros = |page: &&[u8]| page.iter().map(|byte| usize::from(*byte == 0)).sum::<usize>();
        assert!(
            pages.iter().map(zeros).all(|zeros| zeros < 64),
            "random bytes have 16 zeros a page"
        );
    }

    #[test]
    fn the_index_of_version_2_stays_what_it_is() {
        assert_eq!(crate::GENERATOR_VERSION, 2);
        assert_eq!(crc32c::crc32c(&table(1, SIZE_BYTES).unwrap()), 110_502_882);
    }
}
