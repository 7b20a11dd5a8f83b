//! A random order that visits every block exactly once and needs no memory.
//!
//! The usual trick multiplies by a prime modulo the size. Once the product overflows, it never
//! visits a third of a large file. A Feistel network is a bijection by construction, for any round
//! function.

use crate::mixing_hash::mix;

const ROUNDS: usize = 4;

/// A bijection of `0..count`, drawn from a seed.
///
/// The indices form a rectangle of nearly equal sides. Each round shifts the row by a hash of the
/// column, or the column by a hash of the row; the opposite shift would undo it. A result in the
/// few positions of the rectangle beyond `count` is permuted again until it lies inside (cycle
/// walking; Black and Rogaway, 2002).
#[derive(Debug, Clone)]
pub struct Permutation {
    count: u64,
    rows: u64,
    columns: u64,
    keys: [u64; ROUNDS],
}

impl Permutation {
    /// Create the permutation of `0..count` for a seed.
    #[must_use]
    pub fn new(count: u64, seed: u64) -> Self {
        let rows = (count.isqrt() + 1).max(1);
        let columns = count.div_ceil(rows).max(1);
        let keys = std::array::from_fn(|round| mix(mix(seed) ^ (round as u64 + 1)));
        Self { count, rows, columns, keys }
    }

    /// Return the image of `index`, which must be below `count`.
    #[inline]
    #[must_use]
    pub fn at(&self, index: u64) -> u64 {
        debug_assert!(index < self.count);
        let mut image = self.shuffled(index);
        let mut walked = 0;
        while image >= self.count {
            image = self.shuffled(image);
            walked += 1;
            debug_assert!(
                walked <= self.rows * self.columns - self.count,
                "a bijection comes back sooner"
            );
        }
        image
    }

    #[inline]
    fn shuffled(&self, index: u64) -> u64 {
        let (mut row, mut column) = (index / self.columns, index % self.columns);
        for keys in self.keys.chunks_exact(2) {
            row = shifted(row, draw(column ^ keys[0], self.rows), self.rows);
            column = shifted(column, draw(row ^ keys[1], self.columns), self.columns);
        }
        row * self.columns + column
    }
}

/// Return a number below `bound`: the high half of a product, which is cheaper than a remainder and
/// cannot overflow.
#[inline]
#[allow(clippy::cast_possible_truncation)] // the high half of 128 bits
fn draw(word: u64, bound: u64) -> u64 {
    ((u128::from(mix(word)) * u128::from(bound)) >> 64) as u64
}

#[inline]
fn shifted(value: u64, by: u64, bound: u64) -> u64 {
    let sum = value + by;
    if sum >= bound {
        sum - bound
    } else {
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn assert_bijective(count: u64, seed: u64) {
        let permutation = Permutation::new(count, seed);
        let mut visited = vec![false; usize::try_from(count).unwrap()];
        for index in 0..count {
            let place = usize::try_from(permutation.at(index)).unwrap();
            assert!(
                !std::mem::replace(&mut visited[place], true),
                "{place} comes twice of {count}"
            );
        }
    }

    #[test]
    fn every_small_count_is_covered_once() {
        for count in 0..600 {
            assert_bijective(count, count ^ 0x5eed);
        }
    }

    proptest! {
        #[test]
        fn any_count_and_seed_is_covered_once(count in 0_u64..200_000, seed: u64) {
            assert_bijective(count, seed);
        }

        #[test]
        fn huge_counts_stay_inside(count in 1_u64..1 << 52, seed: u64, index: u64) {
            prop_assert!(Permutation::new(count, seed).at(index % count) < count);
        }
    }

    #[test]
    fn neighbours_land_far_apart() {
        let permutation = Permutation::new(100_000, 1);
        let near = (1..100_000)
            .filter(|index| permutation.at(*index).abs_diff(permutation.at(index - 1)) < 32)
            .count();
        // A truly random order has 64 chances in 100,000 for each pair: about 64 in all.
        assert!(near < 120, "{near} pairs within a readahead window");
    }

    #[test]
    fn seeds_give_different_orders() {
        let (one, other) = (Permutation::new(1000, 1), Permutation::new(1000, 2));
        let same = (0..1000).filter(|index| one.at(*index) == other.at(*index)).count();
        assert!(same < 20, "{same} of 1000 in the same place");
    }
}
