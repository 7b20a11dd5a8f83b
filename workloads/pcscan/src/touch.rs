//! The work on the bytes: the same function in every arm.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Sum of every `stride`-th byte, from the first one on. Neither the loop nor its result can be dropped.
#[inline(never)]
#[must_use]
pub fn touch(bytes: &[u8], stride: usize) -> u64 {
    black_box(black_box(bytes).iter().step_by(stride).map(|byte| u64::from(*byte)).sum())
}

/// The published loop: a sum in eight bits that nobody looks at, which the compiler may therefore leave out.
#[inline(never)]
pub fn touch_as_published(bytes: &[u8], stride: usize) {
    let _ = bytes.iter().step_by(stride).fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
}

/// Keeps the CPU busy for so long: what a real program does with what it has read.
pub fn compute(duration: Duration) {
    let start = Instant::now();
    while start.elapsed() < duration {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_add_up_to_the_whole(bytes in prop::collection::vec(any::<u8>(), 0..20_000), shift in 0_u32..13) {
            let stride = 1 << shift;
            let whole = touch(&bytes, stride);
            let places = (0..bytes.len()).filter(|place| place % stride == 0);
            let naive: u64 = places.map(|place| u64::from(bytes[place])).sum();
            prop_assert_eq!(whole, naive);
            prop_assert_eq!(whole, bytes.chunks(4096).map(|piece| touch(piece, stride)).sum::<u64>());
        }
    }

    #[test]
    fn computing_takes_its_time() {
        let start = Instant::now();
        compute(Duration::from_millis(3));
        assert!(start.elapsed() >= Duration::from_millis(3));
    }
}
