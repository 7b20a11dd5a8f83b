//! The content of each page: incompressible, different in every page and pass, and a function of
//! its position.

use contract::bytesum;
use contract::mixing_hash::{mix, GOLDEN_GAMMA};
use contract::page_cache::page_bytes;

/// A page of noise. Each page of the file gets it with its own stamp.
#[derive(Debug, Clone)]
pub struct Content {
    seed: u64,
    page: Vec<u8>,
    noise_sum: u64,
}

const STAMP_BYTES: usize = 8;

impl Content {
    /// Create the noise for a seed.
    pub fn new(seed: u64) -> Self {
        let words = page_bytes() as u64 / 8;
        let word = |number: u64| mix(seed.wrapping_add(GOLDEN_GAMMA.wrapping_mul(number + 1)));
        let page: Vec<u8> = (0..words).flat_map(|number| word(number).to_le_bytes()).collect();
        let noise_sum = bytesum::plain(&page[STAMP_BYTES..]);
        Self { seed, page, noise_sum }
    }

    /// Return the page with this number as this pass writes it.
    pub fn of(&mut self, number: u64, pass: u64) -> &[u8] {
        let stamp = self.stamp(number, pass);
        self.page[..STAMP_BYTES].copy_from_slice(&stamp);
        &self.page
    }

    /// Return the sum of that page's bytes.
    pub fn sum_of(&self, number: u64, pass: u64) -> u64 {
        self.noise_sum + bytesum::plain(&self.stamp(number, pass))
    }

    fn stamp(&self, number: u64, pass: u64) -> [u8; STAMP_BYTES] {
        mix(self.seed ^ mix(number ^ mix(pass + 1))).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_page_and_pass_differs_and_knows_its_sum(seed: u64, one in 0_u64..1 << 40, other in 0_u64..1 << 40) {
            let mut content = Content::new(seed);
            let page = content.of(one, 0).to_vec();
            prop_assert_eq!(bytesum::plain(&page), content.sum_of(one, 0));
            prop_assert!(one == other || page != content.of(other, 0));
            prop_assert!(page != content.of(one, 1));
            prop_assert!(page == content.of(one, 0));
        }
    }
}
