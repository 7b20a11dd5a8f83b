//! The measured loop, the same for every source.

use crate::blocks::Blocks;
use crate::clock::Deadline;
use crate::latency::{Histogram, Sampler};
use crate::order::Order;
use crate::usage::Usage;
use contract::bytesum::Sum;
use std::time::Instant;

/// What one thread read in one pass, and what it cost.
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
}

/// What is watched while reading.
#[derive(Debug)]
pub struct Watch {
    /// When to stop.
    pub deadline: Deadline,
    /// Which blocks to time.
    pub sampler: Sampler,
    /// How long those took.
    pub latency: Histogram,
}

/// Reads the blocks in order, until done or out of time.
pub fn run(bytes: &[u8], blocks: &Blocks, order: &Order, sum: Sum, watch: &mut Watch) -> Tally {
    let before = Usage::of_this_thread();
    let started = Instant::now();
    let mut tally =
        Tally { started, ended: started, bytes: 0, blocks: 0, checksum: 0, stopped: false, usage: before };
    read(bytes, blocks, order, sum, watch, &mut tally);
    tally.ended = Instant::now();
    tally.usage = Usage::of_this_thread() - before;
    tally
}

#[inline(never)]
fn read(bytes: &[u8], blocks: &Blocks, order: &Order, sum: Sum, watch: &mut Watch, tally: &mut Tally) {
    for position in 0..blocks.count() {
        if watch.deadline.has_passed() {
            tally.stopped = true;
            return;
        }
        let block = &bytes[blocks.span(order.at(position))];
        let part = if watch.sampler.chooses() { timed(block, sum, &mut watch.latency) } else { sum(block) };
        tally.checksum = tally.checksum.wrapping_add(part);
        tally.bytes += block.len() as u64;
        tally.blocks += 1;
    }
}

#[inline(never)]
fn timed(block: &[u8], sum: Sum, latency: &mut Histogram) -> u64 {
    let start = Instant::now();
    let part = sum(block);
    latency.add(start.elapsed());
    part
}
