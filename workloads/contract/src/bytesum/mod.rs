//! Sums of bytes: the work that every reader does on the bytes it reads.
//!
//! The sum proves that every byte was read, and it must never be the bottleneck. The fastest
//! function is chosen at run time: one binary, built for the oldest x86-64, uses AVX2 if the CPU
//! has it.

mod words;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::hint::black_box;

/// A function that adds up the bytes of a slice.
pub type Sum = fn(&[u8]) -> u64;

/// Add up the bytes one by one, as a program does that is not optimised.
#[inline(never)]
#[must_use]
pub fn plain(bytes: &[u8]) -> u64 {
    black_box(black_box(bytes).iter().map(|byte| u64::from(*byte)).sum())
}

/// Return every function that this CPU can run with its name, fastest first.
#[must_use]
pub fn available() -> Vec<(&'static str, Sum)> {
    let mut ways: Vec<(&'static str, Sum)> = Vec::new();
    #[cfg(target_arch = "x86_64")]
    x86::add_available(&mut ways);
    ways.push(("words", words::sum));
    ways.push(("plain", plain));
    ways
}

/// Return the fastest function that this CPU can run.
#[must_use]
pub fn fastest() -> Sum {
    available()[0].1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn all_ways_agree(bytes in prop::collection::vec(any::<u8>(), 0..5000), skipped in 0_usize..64) {
            let bytes = &bytes[skipped.min(bytes.len())..];
            for (name, sum) in available() {
                prop_assert_eq!(sum(bytes), plain(bytes), "{}", name);
            }
        }
    }

    #[test]
    fn no_way_overflows_on_the_largest_bytes() {
        let bytes = vec![0xff_u8; (1 << 20) + 7];
        for (name, sum) in available() {
            assert_eq!(sum(&bytes), 255 * bytes.len() as u64, "{name}");
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn avx2_leads_where_the_cpu_has_it() {
        let expected = if is_x86_feature_detected!("avx2") { "avx2" } else { "sse2" };
        assert_eq!(available()[0].0, expected);
    }
}
