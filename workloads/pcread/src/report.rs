//! The lines of one run: a sample a pass, and the end.

use crate::latency::Histogram;
use crate::pass::Tally;
use crate::source::Setup;
use crate::usage::Usage;
use contract::line::checksum;
use serde_json::{json, Value};

/// Everything that the passes of a run have read.
#[derive(Debug)]
pub struct Totals {
    size_bytes: u64,
    sums_bytes: bool,
    expected: Option<u64>,
    passes: u64,
    seconds: f64,
    bytes: u64,
    blocks: u64,
    first: Option<Pass>,
    all_as_expected: bool,
    threads: Vec<ThreadTotals>,
}

#[derive(Debug, Clone, Copy, Default)]
struct ThreadTotals {
    seconds: f64,
    blocks: u64,
    usage: Usage,
}

/// All threads' tallies of one pass in one.
#[derive(Debug, Clone, Copy)]
struct Pass {
    seconds: f64,
    bytes: u64,
    blocks: u64,
    checksum: u64,
    usage: Usage,
}

impl Totals {
    /// Nothing read yet. `sums_bytes` is false where blocks are only touched, and nothing can be expected then.
    #[must_use]
    pub fn new(size_bytes: u64, threads: usize, sums_bytes: bool, expected: Option<u64>) -> Self {
        Self {
            size_bytes,
            sums_bytes,
            expected: expected.filter(|_| sums_bytes),
            passes: 0,
            seconds: 0.0,
            bytes: 0,
            blocks: 0,
            first: None,
            all_as_expected: true,
            threads: vec![ThreadTotals::default(); threads],
        }
    }

    /// Adds one pass and gives its line.
    pub fn add(&mut self, tallies: &[Tally]) -> Value {
        let pass = Pass::of(tallies);
        let line = self.sample(&pass);
        self.passes += 1;
        self.seconds += pass.seconds;
        self.bytes += pass.bytes;
        self.blocks += pass.blocks;
        self.first.get_or_insert(pass);
        let differs = self.is_full(&pass) && self.expected.is_some_and(|expected| expected != pass.checksum);
        self.all_as_expected &= !differs;
        self.threads.iter_mut().zip(tallies).for_each(|(thread, tally)| thread.add(tally));
        line
    }

    /// Whether every full pass added up to what was expected; none where there was nothing to compare.
    #[must_use]
    pub fn checksum_ok(&self) -> Option<bool> {
        let compared = self.expected.is_some() && self.first.as_ref().is_some_and(|pass| self.is_full(pass));
        compared.then_some(self.all_as_expected)
    }

    /// The closing line. Its checksum, distinct bytes and coverage are those of the first pass, which every later one
    /// repeats.
    #[must_use]
    pub fn end(&self, setup: Setup, latency: &Histogram) -> Value {
        let (distinct_bytes, sum) = self.first.map_or((0, 0), |pass| (pass.bytes, pass.checksum));
        let threads: Vec<Value> = self.threads.iter().copied().map(ThreadTotals::to_json).collect();
        json!({
            "type": "end",
            "seconds": self.seconds,
            "bytes": self.bytes,
            "blocks": self.blocks,
            "distinct_bytes": distinct_bytes,
            "covered_fraction": self.fraction(distinct_bytes),
            "checksum": checksum(self.sums_bytes.then_some(sum)),
            "checksum_ok": self.checksum_ok(),
            "threads": threads,
            "setup": setup.to_json(),
            "block_latency_us": latency.to_json(),
        })
    }

    fn sample(&self, pass: &Pass) -> Value {
        json!({
            "type": "sample",
            "iteration": self.passes,
            "seconds": pass.seconds,
            "bytes": pass.bytes,
            "blocks": pass.blocks,
            "covered_fraction": self.fraction(pass.bytes),
            "checksum": checksum(self.sums_bytes.then_some(pass.checksum)),
            "major_faults": pass.usage.major_faults,
            "minor_faults": pass.usage.minor_faults,
        })
    }

    fn is_full(&self, pass: &Pass) -> bool {
        pass.bytes == self.size_bytes
    }

    fn fraction(&self, bytes: u64) -> f64 {
        bytes as f64 / self.size_bytes as f64
    }
}

impl Pass {
    /// A pass lasts from the first thread's first block to the last thread's last.
    fn of(tallies: &[Tally]) -> Self {
        let started = tallies.iter().map(|tally| tally.started).min();
        let ended = tallies.iter().map(|tally| tally.ended).max();
        let span = ended.zip(started).map(|(ended, started)| ended.duration_since(started));
        Self {
            seconds: span.unwrap_or_default().as_secs_f64(),
            bytes: tallies.iter().map(|tally| tally.bytes).sum(),
            blocks: tallies.iter().map(|tally| tally.blocks).sum(),
            checksum: tallies.iter().map(|tally| tally.checksum).fold(0, u64::wrapping_add),
            usage: tallies.iter().fold(Usage::default(), |sum, tally| sum + tally.usage),
        }
    }
}

impl ThreadTotals {
    fn add(&mut self, tally: &Tally) {
        self.seconds += tally.ended.duration_since(tally.started).as_secs_f64();
        self.blocks += tally.blocks;
        self.usage = self.usage + tally.usage;
    }

    fn to_json(self) -> Value {
        json!({
            "seconds": self.seconds,
            "blocks": self.blocks,
            "major_faults": self.usage.major_faults,
            "minor_faults": self.usage.minor_faults,
            "voluntary_switches": self.usage.voluntary_switches,
            "involuntary_switches": self.usage.involuntary_switches,
        })
    }
}
