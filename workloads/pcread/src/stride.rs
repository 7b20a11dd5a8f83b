//! The article's order as it was intended: block numbers a prime apart, modulo their count.
//!
//! Positions are reached by addition, so no product can overflow. A prime that does not divide the
//! count reaches every block exactly once.

/// The prime of the article's single-threaded reader.
pub const PRIME: u64 = 5_706_217_411;

/// Positions from 0 on, each a stride behind the previous one, modulo the count.
#[derive(Debug, Clone)]
pub struct Stride {
    count: u64,
    step: u64,
    position: u64,
}

impl Stride {
    /// Create the order of `0..count`, beginning with 0.
    pub fn new(count: u64) -> Self {
        // A prime shares a factor with the count only if it divides it. The next odd number does
        // not divide it then.
        let step = if count > 1 && count % PRIME == 0 { PRIME + 2 } else { PRIME };
        Self { count, step: step % count.max(1), position: 0 }
    }

    /// Return the position and advance to the next one.
    #[inline]
    pub fn next_position(&mut self) -> u64 {
        let position = self.position;
        let next = position + self.step;
        self.position = if next >= self.count { next - self.count } else { next };
        position
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
                let place = usize::try_from(stride.next_position()).unwrap();
                prop_assert!(!std::mem::replace(&mut seen[place], true));
            }
        }

        #[test]
        fn it_is_the_product_without_its_overflow(count in 1_u64..1 << 40, steps in 0_u64..2000) {
            let mut stride = Stride::new(count);
            let places: Vec<u64> = (0..=steps).map(|_| stride.next_position()).collect();
            let product = u128::from(steps) * u128::from(PRIME) % u128::from(count);
            prop_assert_eq!(u128::from(*places.last().unwrap()), product);
        }
    }
}
