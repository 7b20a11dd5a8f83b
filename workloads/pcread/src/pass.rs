//! The measured loop, the same for every source.

use crate::block_reader::BlockReader;
use crate::block_sequence::BlockSequence;
use crate::clock::Deadline;
use crate::events::{Counters, Events};
use clap::{value_parser, ValueEnum};
use contract::bytesum::{self, Sum};
use contract::cli::seconds;
use contract::latency::{Histogram, Sampler};
use contract::page_cache::page_bytes;
use contract::usage::Usage;
use std::io;
use std::time::{Duration, Instant};

/// The passes over the working set.
#[derive(Debug, Clone, clap::Args)]
pub struct PassOptions {
    /// Work on the bytes of a block
    #[arg(long, value_enum, default_value = "simd")]
    pub sum: SumKind,
    /// Pause before each block, in microseconds
    #[arg(long, value_name = "N")]
    pause_us: Option<u64>,
    /// Number of passes before `ready`, which are not measured
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub warm_passes: u64,
    /// Number of measured passes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u64).range(1..))]
    pub passes: u64,
    /// Stop after this time, at the end of a block
    #[arg(long = "max-seconds", value_name = "S", allow_hyphen_values = true, value_parser = seconds)]
    pub max_duration: Option<Duration>,
    /// Time one in K blocks on average; 0 times none
    #[arg(long, value_name = "K", default_value_t = 64)]
    pub fault_every: u64,
}

/// The work on the bytes of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SumKind {
    /// Add them up as fast as this CPU can
    Simd,
    /// Add them up one by one
    Byte,
    /// Look at one byte of each page
    Touch,
}

impl PassOptions {
    /// Return the pause before each block, if there is one.
    pub fn pause(&self) -> Option<Duration> {
        self.pause_us.filter(|us| *us > 0).map(Duration::from_micros)
    }
}

impl SumKind {
    /// Return the function that does the work.
    pub fn function(self) -> Sum {
        match self {
            Self::Simd => bytesum::fastest(),
            Self::Byte => bytesum::plain,
            Self::Touch => touch,
        }
    }

    /// Return whether its result is the sum of all bytes.
    pub fn sums_bytes(self) -> bool {
        self != Self::Touch
    }
}

/// Looks at one byte of each page.
#[inline(never)]
fn touch(block: &[u8]) -> u64 {
    let block = std::hint::black_box(block);
    std::hint::black_box(block.iter().step_by(page_bytes()).map(|byte| u64::from(*byte)).sum())
}

/// Blocks that one thread read in one pass, and their cost.
#[derive(Debug, Clone, Copy)]
pub struct Tally {
    /// When the first block was begun.
    pub started: Instant,
    /// When the last block was done.
    pub ended: Instant,
    /// Bytes of the blocks that were read.
    pub bytes: u64,
    /// Blocks that were read.
    pub blocks: u64,
    /// Sum of those bytes.
    pub checksum: u64,
    /// The deadline passed before the last block.
    pub stopped: bool,
    /// The thread's own counters over the pass.
    pub usage: Usage,
    /// Events that the CPU counted, if it counts.
    pub events: Option<Events>,
}

/// The deadline and the measurements while reading.
#[derive(Debug)]
pub struct Watch {
    /// When to stop.
    pub deadline: Deadline,
    /// Pause before each block.
    pub pause: Option<Duration>,
    /// Blocks to time.
    pub sampler: Sampler,
    pub latency: Histogram,
    /// The CPU's counters of this thread.
    pub counters: Option<Counters>,
}

/// Read the blocks of the sequence, until it ends or the deadline passes. Fails with the error of a
/// read.
pub fn run<R: BlockReader>(
    reader: &mut R,
    blocks: &mut BlockSequence,
    sum: Sum,
    watch: &mut Watch,
) -> io::Result<Tally> {
    let (before, counted) =
        (Usage::of_this_thread(), watch.counters.as_mut().and_then(Counters::read));
    let started = Instant::now();
    let mut tally = Tally {
        started,
        ended: started,
        bytes: 0,
        blocks: 0,
        checksum: 0,
        stopped: false,
        usage: before,
        events: None,
    };
    read(reader, blocks, sum, watch, &mut tally)?;
    tally.ended = Instant::now();
    tally.usage = Usage::of_this_thread() - before;
    let now = watch.counters.as_mut().and_then(Counters::read);
    tally.events = now.zip(counted).and_then(|(now, before)| now.since(before));
    reader.discard().map(|()| tally)
}

#[inline(never)]
fn read<R: BlockReader>(
    reader: &mut R,
    blocks: &mut BlockSequence,
    sum: Sum,
    watch: &mut Watch,
    tally: &mut Tally,
) -> io::Result<()> {
    loop {
        while reader.has_room() {
            let Some(span) = blocks.next() else { break };
            reader.request(span)?;
        }
        if watch.deadline.has_passed() {
            tally.stopped = true;
            return Ok(());
        }
        if let Some(pause) = watch.pause {
            std::thread::sleep(pause);
        }
        let began = watch.sampler.chooses().then(Instant::now);
        let Some(block) = reader.take()? else { return Ok(()) };
        tally.checksum = tally.checksum.wrapping_add(sum(block));
        tally.bytes += block.len() as u64;
        tally.blocks += 1;
        if let Some(began) = began {
            watch.latency.add(began.elapsed());
        }
    }
}
