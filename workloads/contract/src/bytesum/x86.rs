//! Sums by the sum-of-absolute-differences instruction: against zero it adds up eight bytes per
//! lane in one step.

use super::Sum;
use std::arch::x86_64::{
    __m128i, __m256i, _mm256_add_epi64, _mm256_loadu_si256, _mm256_sad_epu8, _mm256_setzero_si256,
    _mm256_storeu_si256, _mm_add_epi64, _mm_loadu_si128, _mm_sad_epu8, _mm_setzero_si128,
    _mm_storeu_si128,
};
use std::hint::black_box;

/// Append the functions that this CPU can run, fastest first. Every x86-64 has SSE2.
pub fn add_available(ways: &mut Vec<(&'static str, Sum)>) {
    if is_x86_feature_detected!("avx2") {
        ways.push(("avx2", checked_avx2));
    }
    ways.push(("sse2", sse2));
}

fn checked_avx2(bytes: &[u8]) -> u64 {
    // SAFETY: only `add_available` returns this function, and only if the CPU has AVX2.
    unsafe { avx2(bytes) }
}

/// Four accumulators let one addition start before the previous one has ended.
#[inline(never)]
#[target_feature(enable = "avx2")]
unsafe fn avx2(bytes: &[u8]) -> u64 {
    const LANE_BYTES: usize = size_of::<__m256i>();
    let mut parts = [0_u64; 4];
    let mut chunks = black_box(bytes).chunks_exact(4 * LANE_BYTES);
    // SAFETY: the caller has checked for AVX2; each lane is as long as the load, `parts` as long as
    // the store, and neither needs alignment.
    unsafe {
        let zero = _mm256_setzero_si256();
        let mut sums = [zero; 4];
        for chunk in chunks.by_ref() {
            for (sum, lane) in sums.iter_mut().zip(chunk.chunks_exact(LANE_BYTES)) {
                let loaded = _mm256_loadu_si256(lane.as_ptr().cast());
                *sum = _mm256_add_epi64(*sum, _mm256_sad_epu8(loaded, zero));
            }
        }
        let pairs = [_mm256_add_epi64(sums[0], sums[1]), _mm256_add_epi64(sums[2], sums[3])];
        _mm256_storeu_si256(parts.as_mut_ptr().cast(), _mm256_add_epi64(pairs[0], pairs[1]));
    }
    black_box(parts.iter().sum::<u64>() + sse2(chunks.remainder()))
}

#[inline(never)]
fn sse2(bytes: &[u8]) -> u64 {
    const LANE_BYTES: usize = size_of::<__m128i>();
    let mut parts = [0_u64; 2];
    let mut chunks = black_box(bytes).chunks_exact(LANE_BYTES);
    // SAFETY: every x86-64 has SSE2; each chunk is as long as the load, `parts` as long as the
    // store, and neither needs alignment.
    unsafe {
        let zero = _mm_setzero_si128();
        let sum = chunks.by_ref().fold(zero, |sum, lane| {
            _mm_add_epi64(sum, _mm_sad_epu8(_mm_loadu_si128(lane.as_ptr().cast()), zero))
        });
        _mm_storeu_si128(parts.as_mut_ptr().cast(), sum);
    }
    let rest: u64 = chunks.remainder().iter().map(|byte| u64::from(*byte)).sum();
    black_box(parts[0] + parts[1] + rest)
}
