//! The CPU's own prefetch instruction. It never causes a page fault, so on a page that is not mapped it does nothing
//! (Intel and AMD say so in their manuals); this module lets one see it.

/// Which caches the instruction names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// `prefetcht0`: all levels.
    T0,
    /// `prefetchnta`: as little cache as possible.
    Nta,
}

/// Asks the CPU for the cache line at `place` of these bytes; beyond their end nothing is asked for.
#[inline]
pub fn prefetch(bytes: &[u8], place: usize, hint: Hint) {
    if let Some(byte) = bytes.get(place..).and_then(<[u8]>::first_chunk::<1>) {
        line(byte.as_ptr(), hint);
    }
}

#[cfg(target_arch = "x86_64")]
fn line(address: *const u8, hint: Hint) {
    use std::arch::x86_64::{_mm_prefetch, _MM_HINT_NTA, _MM_HINT_T0};
    // SAFETY: the instruction has no effect but on caches, whatever the address; SSE belongs to every x86-64.
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
    // SAFETY: the instruction has no effect but on caches, whatever the address.
    unsafe {
        match hint {
            Hint::T0 => asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, preserves_flags)),
            Hint::Nta => asm!("prfm pldl1strm, [{0}]", in(reg) address, options(nostack, preserves_flags)),
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
