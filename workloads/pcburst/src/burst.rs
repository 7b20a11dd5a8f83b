//! The measured part: a write to every page of fresh memory.

use clap::ValueEnum;
use contract::failure::OrFailure;
use contract::latency::Histogram;
use contract::mixing_hash::mix;
use contract::page_cache::page_bytes;
use contract::usage::Usage;
use contract::Failure;
use memmap2::{Advice, MmapMut};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Memory that is timed as one piece.
const PIECE_BYTES: usize = 1 << 20;
const STAMP_BYTES: usize = 8;

/// Method of taking memory.
#[derive(Debug, Clone, clap::Args)]
pub struct BurstOptions {
    /// Size of the pages
    #[arg(long, value_enum, default_value = "as-set-up")]
    huge_pages: HugePages,
}

/// The size of the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum HugePages {
    /// As the machine is set up
    AsSetUp,
    /// Small pages only: each causes a page fault of its own
    Never,
}

/// A burst and its cost.
#[derive(Debug)]
pub struct Burst {
    /// The memory, still mapped.
    pub memory: MmapMut,
    /// From the first page to the last.
    pub time: Duration,
    /// Durations of its pieces.
    pub pieces: Histogram,
    /// The thread's counters.
    pub usage: Usage,
}

impl Burst {
    /// Take memory and write to every page of it. Fails with [`Failure::CannotHere`] if the address
    /// space is too small, or the kernel rejects the size of the pages.
    pub fn take(bytes: u64, options: &BurstOptions) -> Result<Self, Failure> {
        let mut memory = reserve(bytes, options.huge_pages)?;
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

    /// Return the sum of the stamps that are found, and of those that were written.
    pub fn found_and_expected(&self) -> (u64, u64) {
        let stamps = (0..).zip(self.memory.chunks(PIECE_BYTES)).flat_map(|(number, piece)| {
            (0..)
                .zip(piece.chunks(page_bytes()))
                .map(move |(page, bytes)| (read(bytes), stamp(number, page)))
        });
        stamps.fold((0, 0), |(found, expected), (one, other)| {
            (found.wrapping_add(one), expected.wrapping_add(other))
        })
    }
}

/// Reserve address space without memory: each page comes with the first write to it.
fn reserve(bytes: u64, huge_pages: HugePages) -> Result<MmapMut, Failure> {
    let bytes = bytes / page_bytes() as u64 * page_bytes() as u64;
    let length = usize::try_from(bytes).ok().filter(|length| *length > 0);
    let length =
        length.ok_or_else(|| Failure::BadArguments("less than one page is no burst".to_owned()))?;
    let memory = MmapMut::map_anon(length)
        .or_cannot_here(format!("cannot reserve {bytes} bytes of memory"))?;
    if huge_pages == HugePages::Never {
        memory.advise(Advice::NoHugePage).or_cannot_here("no MADV_NOHUGEPAGE here")?;
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

    const SMALL_PAGES: BurstOptions = BurstOptions { huge_pages: HugePages::Never };

    #[test]
    fn a_page_that_changed_is_noticed() {
        let mut burst = Burst::take((5 << 20) + 4096, &SMALL_PAGES).unwrap();
        let (found, expected) = burst.found_and_expected();
        assert_eq!(found, expected);
        burst.memory[(5 << 20) + 1] ^= 1;
        assert_ne!(burst.found_and_expected().0, expected);
    }

    #[test]
    fn every_small_page_is_a_fault() {
        let burst = Burst::take(3 << 20, &SMALL_PAGES).unwrap();
        assert!(burst.usage.minor_faults >= (3 << 20) / 4096, "{:?}", burst.usage);
    }
}
