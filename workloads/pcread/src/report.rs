//! The lines of one run: one sample per pass, and the end.

use crate::events::{Counters, Events};
use crate::pass::{PassOptions, Tally};
use crate::proc::MappedBytes;
use crate::residency::ResidencySamples;
use crate::response::{Basis, Response};
use crate::source::Setup;
use crate::team::ThreadResults;
use contract::json_lines::{Checksum, End, Sample, ThreadLine};
use contract::latency::{Histogram, LatencyFigures};
use contract::usage::Usage;
use serde::Serialize;

/// The results of all passes of a run.
#[derive(Debug)]
pub struct Totals {
    size_bytes: u64,
    sums_bytes: bool,
    expected: Option<u64>,
    as_expected: Option<bool>,
    has_passes: bool,
    all: Pass,
    passes: u64,
    first: Option<Pass>,
    first_blocks: Vec<u64>,
    pass_seconds: Vec<f64>,
    threads: Vec<ThreadLine>,
}

/// The results that are known only after the last pass.
#[derive(Debug)]
pub struct Closing {
    /// Durations of the set-up.
    pub setup: Setup,
    /// Results of the threads.
    pub results: ThreadResults,
    /// Bytes of the first pass, each counted once.
    pub distinct_bytes: Option<u64>,
    /// TLB shootdowns of the whole machine during the passes.
    pub shootdowns: Option<u64>,
    /// This process's mappings.
    pub mapped: MappedBytes,
    /// The file's bytes in the page cache at three moments.
    pub residency: ResidencySamples,
}

/// The keys of `end` that other workloads do not have.
#[derive(Debug, Serialize)]
pub struct More {
    block_latency_us: LatencyFigures,
    smaps_rollup: MappedBytes,
    perf: Perf,
    response: Response,
}

/// Events that the CPUs counted in all passes, or the reason why they counted nothing.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Perf {
    Counted { cache_references: f64, cache_misses: f64, dtlb_load_misses: f64 },
    Missing { reason: String },
}

/// The sum of all threads' tallies of one pass, or of several passes.
#[derive(Debug, Clone, Copy, Default)]
struct Pass {
    seconds: f64,
    bytes: u64,
    blocks: u64,
    checksum: u64,
    usage: Usage,
    events: Option<Events>,
}

impl Totals {
    /// Start with nothing.
    pub fn new(
        size_bytes: u64,
        options: &PassOptions,
        threads: usize,
        expected: Option<u64>,
    ) -> Self {
        Self {
            size_bytes,
            sums_bytes: options.sum.sums_bytes(),
            expected,
            as_expected: None,
            has_passes: options.passes > 1,
            all: Pass::default(),
            passes: 0,
            first: None,
            first_blocks: Vec::new(),
            pass_seconds: Vec::new(),
            threads: vec![ThreadLine::default(); threads],
        }
    }

    /// Compare a pass that is not reported with the expected sum.
    pub fn check(&mut self, tallies: &[Tally]) {
        let pass = Pass::of(tallies);
        if let Some(expected) = self.expected.filter(|_| self.is_full(&pass)) {
            let agrees = expected == pass.checksum;
            self.as_expected = Some(agrees && self.as_expected.unwrap_or(true));
        }
    }

    /// Add one pass and return its line.
    pub fn add(&mut self, tallies: &[Tally]) -> Sample {
        self.check(tallies);
        let pass = Pass::of(tallies);
        let line = self.sample(&pass);
        if self.first.is_none() {
            self.first = Some(pass);
            self.first_blocks = tallies.iter().map(|tally| tally.blocks).collect();
        }
        if tallies.iter().all(|tally| !tally.stopped) {
            self.pass_seconds.push(pass.seconds);
        }
        self.all = if self.passes == 0 { pass } else { self.all.with(&pass) };
        self.passes += 1;
        self.threads.iter_mut().zip(tallies).for_each(|(thread, tally)| add(thread, tally));
        line
    }

    /// Return whether every full pass had the expected sum; None if there was nothing to compare.
    pub fn checksum_ok(&self) -> Option<bool> {
        self.as_expected
    }

    /// Return the bytes of the first pass, each counted as often as it was read.
    pub fn first_bytes(&self) -> u64 {
        self.first.map_or(0, |pass| pass.bytes)
    }

    /// Return the blocks of the first pass by thread.
    pub fn first_blocks(&self) -> &[u64] {
        &self.first_blocks
    }

    /// Return the closing line. Its checksum, distinct bytes and coverage are those of the first
    /// pass, which every later pass repeats.
    pub fn end(&self, closing: &Closing) -> End<ThreadLine, Setup, More> {
        let latency = closing
            .results
            .latency
            .as_ref()
            .map_or_else(|| Histogram::new().figures(), Histogram::figures);
        End {
            seconds: self.all.seconds,
            bytes: self.all.bytes,
            blocks: self.all.blocks,
            distinct_bytes: closing.distinct_bytes,
            covered_fraction: Some(self.fraction(self.first_bytes())),
            checksum: self.checksum(self.first.map_or(0, |pass| pass.checksum)),
            checksum_ok: self.checksum_ok(),
            threads: self.threads.clone(),
            setup: closing.setup,
            more: More {
                block_latency_us: latency,
                smaps_rollup: closing.mapped,
                perf: self.perf(),
                response: self
                    .basis(closing, latency)
                    .response(closing.residency.figures(self.size_bytes)),
            },
        }
    }

    fn basis(&self, closing: &Closing, latency: LatencyFigures) -> Basis<'_> {
        Basis {
            pass_seconds: &self.pass_seconds,
            has_passes: self.has_passes,
            seconds: self.all.seconds,
            blocks: self.all.blocks,
            first_bytes: self.first_bytes(),
            distinct_bytes: closing.distinct_bytes,
            minor_faults: self.all.usage.minor_faults,
            events: self.all.events,
            tlb_shootdowns: closing.shootdowns,
            hits: closing.results.hits,
            latency,
            mapped: closing.mapped,
        }
    }

    fn perf(&self) -> Perf {
        match self.all.events {
            Some(Events([cache_references, cache_misses, dtlb_load_misses])) => {
                Perf::Counted { cache_references, cache_misses, dtlb_load_misses }
            }
            None => Perf::Missing {
                reason: Counters::open()
                    .err()
                    .unwrap_or_else(|| "a counter had no turn on the CPU".to_owned()),
            },
        }
    }

    fn sample(&self, pass: &Pass) -> Sample {
        Sample {
            iteration: self.passes,
            seconds: pass.seconds,
            bytes: pass.bytes,
            blocks: pass.blocks,
            covered_fraction: Some(self.fraction(pass.bytes)),
            checksum: self.checksum(pass.checksum),
            major_faults: pass.usage.major_faults,
            minor_faults: pass.usage.minor_faults,
        }
    }

    fn checksum(&self, sum: u64) -> Option<Checksum> {
        self.sums_bytes.then_some(Checksum(sum))
    }

    fn is_full(&self, pass: &Pass) -> bool {
        pass.bytes == self.size_bytes
    }

    fn fraction(&self, bytes: u64) -> f64 {
        bytes as f64 / self.size_bytes as f64
    }
}

impl Pass {
    /// Add up the tallies. A pass lasts from the first thread's first block to the last thread's
    /// last.
    fn of(tallies: &[Tally]) -> Self {
        let started = tallies.iter().map(|tally| tally.started).min();
        let ended = tallies.iter().map(|tally| tally.ended).max();
        let span = ended.zip(started).map(|(ended, started)| ended.duration_since(started));
        Self {
            seconds: span.unwrap_or_default().as_secs_f64(),
            bytes: tallies.iter().map(|tally| tally.bytes).sum(),
            blocks: tallies.iter().map(|tally| tally.blocks).sum(),
            checksum: tallies.iter().map(|tally| tally.checksum).fold(0, u64::wrapping_add),
            usage: tallies.iter().map(|tally| tally.usage).sum(),
            events: tallies.iter().map(|tally| tally.events).reduce(Events::both).flatten(),
        }
    }

    fn with(&self, more: &Self) -> Self {
        Self {
            seconds: self.seconds + more.seconds,
            bytes: self.bytes + more.bytes,
            blocks: self.blocks + more.blocks,
            checksum: self.checksum.wrapping_add(more.checksum),
            usage: self.usage + more.usage,
            events: Events::both(self.events, more.events),
        }
    }
}

fn add(thread: &mut ThreadLine, tally: &Tally) {
    thread.seconds += tally.ended.duration_since(tally.started).as_secs_f64();
    thread.blocks += tally.blocks;
    thread.usage = thread.usage + tally.usage;
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::cli::options_from;
    use std::time::Instant;

    fn tally(bytes: u64, checksum: u64) -> Tally {
        let now = Instant::now();
        let usage = Usage::default();
        Tally {
            started: now,
            ended: now,
            bytes,
            blocks: 1,
            checksum,
            stopped: false,
            usage,
            events: None,
        }
    }

    #[test]
    fn one_wrong_pass_is_not_made_good_by_the_next() {
        let mut totals = Totals::new(10, &options_from("").unwrap(), 1, Some(7));
        assert_eq!(totals.checksum_ok(), None);
        totals.check(&[tally(4, 1)]);
        assert_eq!(totals.checksum_ok(), None, "a part has no expected sum");
        totals.check(&[tally(10, 7)]);
        assert_eq!(totals.checksum_ok(), Some(true));
        totals.check(&[tally(10, 8)]);
        totals.check(&[tally(10, 7)]);
        assert_eq!(totals.checksum_ok(), Some(false));
    }
}
