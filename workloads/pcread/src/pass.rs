//! The measured loop, the same for every source.

use crate::clock::Deadline;
use crate::events::{Counters, Events};
use crate::fetch::Fetch;
use crate::route::Route;
use contract::bytesum::Sum;
use contract::latency::{Histogram, Sampler};
use contract::usage::Usage;
use std::io;
use std::time::{Duration, Instant};

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
    /// What the CPU counted, where it does.
    pub events: Option<Events>,
}

/// What is watched while reading.
#[derive(Debug)]
pub struct Watch {
    /// When to stop.
    pub deadline: Deadline,
    /// How long to rest before each block.
    pub pause: Option<Duration>,
    /// Which blocks to time.
    pub sampler: Sampler,
    /// How long those took.
    pub latency: Histogram,
    /// The CPU's own counters of this thread.
    pub counters: Option<Counters>,
}

/// Reads the blocks of the route, until done or out of time.
///
/// # Errors
/// What the system says of a read.
pub fn run<F: Fetch>(fetch: &mut F, route: &mut Route, sum: Sum, watch: &mut Watch) -> io::Result<Tally> {
    let (before, counted) = (Usage::of_this_thread(), watch.counters.as_ref().and_then(Counters::read));
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
    read(fetch, route, sum, watch, &mut tally)?;
    tally.ended = Instant::now();
    tally.usage = Usage::of_this_thread() - before;
    let now = watch.counters.as_ref().and_then(Counters::read);
    tally.events = now.zip(counted).and_then(|(now, before)| now.since(before));
    fetch.forget().map(|()| tally)
}

#[inline(never)]
fn read<F: Fetch>(
    fetch: &mut F,
    route: &mut Route,
    sum: Sum,
    watch: &mut Watch,
    tally: &mut Tally,
) -> io::Result<()> {
    loop {
        while fetch.has_room() {
            let Some(span) = route.next() else { break };
            fetch.ask(span)?;
        }
        if watch.deadline.has_passed() {
            tally.stopped = true;
            return Ok(());
        }
        if let Some(pause) = watch.pause {
            std::thread::sleep(pause);
        }
        let began = watch.sampler.chooses().then(Instant::now);
        let Some(block) = fetch.take()? else { return Ok(()) };
        tally.checksum = tally.checksum.wrapping_add(sum(block));
        tally.bytes += block.len() as u64;
        tally.blocks += 1;
        if let Some(began) = began {
            watch.latency.add(began.elapsed());
        }
    }
}
