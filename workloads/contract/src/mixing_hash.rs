//! The mixing function from which data, permutations and sampling draw their randomness.

/// The odd constant of Weyl sequences: 2^64 divided by the golden ratio.
pub const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Scramble a word so that neighbouring inputs give unrelated outputs.
///
/// This is the finaliser of `SplitMix64` (Steele, Lea and Flood, OOPSLA 2014). It is a bijection:
/// two different words never give the same result.
#[inline]
#[must_use]
pub const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_published_sequence() {
        // The first outputs of SplitMix64 for the seed 1234567.
        let seed = 1_234_567_u64;
        let drawn: Vec<u64> = (1..=2)
            .map(|step: u64| mix(seed.wrapping_add(GOLDEN_GAMMA.wrapping_mul(step))))
            .collect();
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }
}
