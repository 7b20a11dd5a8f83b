//! The measured part: page after page of fresh memory is written to.

use crate::arguments::{HugePages, Plan};
use contract::latency::Histogram;
use contract::mix::mix;
use contract::page::page_bytes;
use contract::usage::Usage;
use contract::Failure;
use memmap2::{Advice, MmapMut};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// What is timed as one.
pub const PIECE_BYTES: usize = 1 << 20;
const STAMP_BYTES: usize = 8;

/// What the burst took.
#[derive(Debug)]
pub struct Burst {
    /// The memory, still there.
    pub memory: MmapMut,
    /// From the first page to the last.
    pub time: Duration,
    /// Each piece of it.
    pub pieces: Histogram,
    /// What it cost the thread.
    pub usage: Usage,
}

impl Burst {
    /// Takes the memory and writes to every page of it.
    ///
    /// # Errors
    /// [`Failure::CannotHere`] where there is not so much address space, or no say in the size of pages.
    pub fn take(plan: &Plan) -> Result<Self, Failure> {
        let mut memory = reserve(plan)?;
        let mut pieces = Histogram::new();
        let usage = Usage::of_this_thread();
        let begun = Instant::now();
        for (number, piece) in (0..).zip(memory.chunks_mut(PIECE_BYTES)) {
            let start = Instant::now();
            stamp_pages(piece, number);
            pieces.add(start.elapsed());
        }
        let time = begun.elapsed();
        Ok(Self { memory, time, pieces, usage: Usage::of_this_thread() - usage })
    }

    /// The sum of the stamps that are found, and of those that were written.
    #[must_use]
    pub fn found_and_expected(&self) -> (u64, u64) {
        let stamps = (0..).zip(self.memory.chunks(PIECE_BYTES)).flat_map(|(number, piece)| {
            (0..).zip(piece.chunks(page_bytes())).map(move |(page, bytes)| (read(bytes), stamp(number, page)))
        });
        stamps.fold((0, 0), |(found, expected), (one, other)| {
            (found.wrapping_add(one), expected.wrapping_add(other))
        })
    }
}

/// Address space without memory: pages come with the first write to each.
fn reserve(plan: &Plan) -> Result<MmapMut, Failure> {
    let bytes = plan.bytes / page_bytes() as u64 * page_bytes() as u64;
    let length = usize::try_from(bytes).ok().filter(|length| *length > 0);
    let length = length.ok_or_else(|| Failure::BadArguments("less than one page is no burst".to_owned()))?;
    let memory = MmapMut::map_anon(length)
        .map_err(|cause| Failure::CannotHere(format!("cannot reserve {bytes} bytes of memory: {cause}")))?;
    if plan.huge_pages == HugePages::Never {
        let told = memory.advise(Advice::NoHugePage);
        told.map_err(|cause| Failure::CannotHere(format!("no MADV_NOHUGEPAGE here: {cause}")))?;
    }
    Ok(memory)
}

#[inline(never)]
fn stamp_pages(piece: &mut [u8], number: u64) {
    for (page, bytes) in (0..).zip(black_box(piece).chunks_mut(page_bytes())) {
        bytes[..STAMP_BYTES].copy_from_slice(&stamp(number, page).to_le_bytes());
    }
}

fn stamp(piece: u64, page: u64) -> u64 {
    mix(piece << 32 | page)
}

fn read(page: &[u8]) -> u64 {
    page[..STAMP_BYTES].try_into().map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::PageCache;
    use contract::Handshake;

    fn plan(bytes: u64) -> Plan {
        Plan {
            bytes,
            page_cache: PageCache::Empty,
            file: None,
            folder: None,
            huge_pages: HugePages::Never,
            handshake: Handshake::Skipped,
        }
    }

    #[test]
    fn a_page_that_changed_is_noticed() {
        let mut burst = Burst::take(&plan((5 << 20) + 4096)).unwrap();
        let (found, expected) = burst.found_and_expected();
        assert_eq!(found, expected);
        burst.memory[(5 << 20) + 1] ^= 1;
        assert_ne!(burst.found_and_expected().0, expected);
    }

    #[test]
    fn every_small_page_is_a_fault() {
        let burst = Burst::take(&plan(3 << 20)).unwrap();
        assert!(burst.usage.minor_faults >= (3 << 20) / 4096, "{:?}", burst.usage);
    }
}
