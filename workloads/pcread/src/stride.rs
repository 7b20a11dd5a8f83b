//! The article's order as it was meant: block numbers a prime apart, modulo their count.
//!
//! The place is reached by adding, so no product can overflow, and a prime that does not divide the count meets every
//! block exactly once.

/// The prime of the article's single-threaded reader.
pub const PRIME: u64 = 5_706_217_411;

/// Places from 0 on, each a stride behind the one before, modulo the count.
#[derive(Debug, Clone)]
pub struct Stride {
    count: u64,
    step: u64,
    place: u64,
}

impl Stride {
    /// All of `0..count`, from 0 on.
    #[must_use]
    pub fn new(count: u64) -> Self {
        // A prime shares a factor with the count only if it divides it; the next odd number does not divide it then.
        let step = if count > 1 && count % PRIME == 0 { PRIME + 2 } else { PRIME };
        Self { count, step: step % count.max(1), place: 0 }
    }

    /// The place at hand; the next call gives the one behind it.
    #[inline]
    pub fn next_place(&mut self) -> u64 {
        let place = self.place;
        let next = place + self.step;
        self.place = if next >= self.count { next - self.count } else { next };
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_place_is_met_once(count in 1_u64..100_000) {
            let mut stride = Stride::new(count);
            let mut seen = vec![false; usize::try_from(count).unwrap()];
            for _ in 0..count {
                let place = usize::try_from(stride.next_place()).unwrap();
                prop_assert!(!std::mem::replace(&mut seen[place], true));
            }
        }

        #[test]
        fn it_is_the_product_without_its_overflow(count in 1_u64..1 << 40, steps in 0_u64..2000) {
            let mut stride = Stride::new(count);
            let places: Vec<u64> = (0..=steps).map(|_| stride.next_place()).collect();
            let product = u128::from(steps) * u128::from(PRIME) % u128::from(count);
            prop_assert_eq!(u128::from(*places.last().unwrap()), product);
        }
    }
}
