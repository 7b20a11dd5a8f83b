//! The work on the bytes: the same function in every treatment.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Return the sum of every `stride`-th byte, beginning with the first. The compiler cannot remove
/// the loop.
#[inline(never)]
pub fn touch(bytes: &[u8], stride: usize) -> u64 {
    black_box(black_box(bytes).iter().step_by(stride).map(|byte| u64::from(*byte)).sum())
}

/// Run the published loop: an unused sum in eight bits, which the compiler may therefore remove.
#[inline(never)]
pub fn touch_as_published(bytes: &[u8], stride: usize) {
    let _ = bytes.iter().step_by(stride).fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
}

/// Keep the CPU busy for this time, as a real program does with the bytes it has read.
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
