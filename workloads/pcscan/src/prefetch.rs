//! The CPU's prefetch instruction. It never causes a page fault, so it does nothing on an unmapped
//! page, according to the manuals of Intel and AMD. This module makes that visible.

use crate::sizes::size;
use clap::ValueEnum;

/// Use of the prefetch instruction.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct PrefetchOptions {
    /// Before each page, prefetch the page at this distance with the CPU's instruction; 0 for none
    #[arg(long, value_name = "PAGES", default_value = "0", value_parser = size)]
    prefetch_distance: usize,
    /// Prefetch instruction
    #[arg(long, value_enum, default_value = "t0")]
    prefetch_hint: Hint,
}

impl PrefetchOptions {
    /// Return the distance in pages and the instruction; None without prefetching.
    pub fn distance(&self) -> Option<(usize, Hint)> {
        (self.prefetch_distance > 0).then_some((self.prefetch_distance, self.prefetch_hint))
    }
}

/// The instruction, which names the caches to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Hint {
    /// `prefetcht0`: all levels
    T0,
    /// `prefetchnta`: as little cache as possible
    Nta,
}

/// Prefetch the cache line at `place` of these bytes; do nothing beyond their end.
#[inline]
pub fn prefetch(bytes: &[u8], place: usize, hint: Hint) {
    if let Some(byte) = bytes.get(place..).and_then(<[u8]>::first_chunk::<1>) {
        line(byte.as_ptr(), hint);
    }
}

#[cfg(target_arch = "x86_64")]
fn line(address: *const u8, hint: Hint) {
    use std::arch::x86_64::{_mm_prefetch, _MM_HINT_NTA, _MM_HINT_T0};
    // SAFETY: the instruction only affects caches, at any address; every x86-64 has SSE.
    unsafe {
        match hint {
            Hint::T0 => _mm_prefetch::<_MM_HINT_T0>(address.cast()),
            Hint::Nta => _mm_prefetch::<_MM_HINT_NTA>(address.cast()),
        }
    }
}

#[cfg(target_arch = "aarch64")]
fn line(address: *const u8, hint: Hint) {
    use std::arch::asm;
    // SAFETY: the instruction only affects caches, at any address.
    unsafe {
        match hint {
            Hint::T0 => {
                asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, preserves_flags))
            }
            Hint::Nta => {
                asm!("prfm pldl1strm, [{0}]", in(reg) address, options(nostack, preserves_flags))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_end_nothing_is_asked_for() {
        let bytes = [1, 2, 3];
        for place in [0, 2, 3, usize::MAX] {
            prefetch(&bytes, place, Hint::T0);
            prefetch(&bytes, place, Hint::Nta);
        }
    }
}
