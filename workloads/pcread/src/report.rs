//! The lines of one run: a sample a pass, and the end.

use crate::arguments::Plan;
use crate::coverage;
use crate::events::{Counters, Events};
use crate::pass::Tally;
use crate::residency::Moments;
use crate::response::Basis;
use crate::source::Setup;
use crate::team::Gathered;
use contract::latency::Histogram;
use contract::line::checksum;
use contract::usage::Usage;
use serde_json::{json, Value};

/// Everything that the passes of a run have read.
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
    threads: Vec<ThreadTotals>,
}

/// What is known only when the passes are over.
#[derive(Debug)]
pub struct Closing {
    /// How long the parts of the set-up took.
    pub setup: Setup,
    /// What the threads gathered.
    pub gathered: Gathered,
    /// Bytes of the first pass, each once.
    pub distinct_bytes: u64,
    /// TLB shootdowns of the whole machine during the passes.
    pub shootdowns: Option<u64>,
    /// This process's mappings, bytes by kind.
    pub smaps: Value,
    /// What of the file was in the page cache when.
    pub moments: Moments,
}

#[derive(Debug, Clone, Copy, Default)]
struct ThreadTotals {
    seconds: f64,
    blocks: u64,
    usage: Usage,
}

/// All threads' tallies of one pass in one, or those of several passes.
#[derive(Debug, Clone, Copy)]
struct Pass {
    seconds: f64,
    bytes: u64,
    blocks: u64,
    checksum: u64,
    usage: Usage,
    events: Option<Events>,
}

impl Totals {
    /// Nothing read yet. Where blocks are only touched, or not each exactly once, nothing can be expected.
    #[must_use]
    pub fn new(plan: &Plan, size_bytes: u64, expected: Option<u64>) -> Self {
        let judged = plan.sum.sums_bytes() && coverage::is_once_each(plan);
        Self {
            size_bytes,
            sums_bytes: plan.sum.sums_bytes(),
            expected: expected.filter(|_| judged),
            as_expected: None,
            has_passes: plan.passes > 1,
            all: Pass::NOTHING,
            passes: 0,
            first: None,
            first_blocks: Vec::new(),
            pass_seconds: Vec::new(),
            threads: vec![ThreadTotals::default(); plan.threads],
        }
    }

    /// Holds a pass that is not reported against what was expected.
    pub fn check(&mut self, tallies: &[Tally]) {
        let pass = Pass::of(tallies);
        if let Some(expected) = self.expected.filter(|_| self.is_full(&pass)) {
            let agrees = expected == pass.checksum;
            self.as_expected = Some(agrees && self.as_expected.unwrap_or(true));
        }
    }

    /// Adds one pass and gives its line.
    pub fn add(&mut self, tallies: &[Tally]) -> Value {
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
        self.threads.iter_mut().zip(tallies).for_each(|(thread, tally)| thread.add(tally));
        line
    }

    /// Whether every full pass added up to what was expected; none where there was nothing to compare.
    #[must_use]
    pub fn checksum_ok(&self) -> Option<bool> {
        self.as_expected
    }

    /// Bytes of the first pass, each as often as it was read.
    #[must_use]
    pub fn first_bytes(&self) -> u64 {
        self.first.map_or(0, |pass| pass.bytes)
    }

    /// Blocks of the first pass, by thread.
    #[must_use]
    pub fn first_blocks(&self) -> &[u64] {
        &self.first_blocks
    }

    /// The closing line. Its checksum, distinct bytes and coverage are those of the first pass, which every later one
    /// repeats.
    #[must_use]
    pub fn end(&self, closing: &Closing) -> Value {
        let sum = self.first.map_or(0, |pass| pass.checksum);
        let threads: Vec<Value> = self.threads.iter().copied().map(ThreadTotals::to_json).collect();
        let latency =
            closing.gathered.latency.as_ref().map_or_else(|| Histogram::new().to_json(), Histogram::to_json);
        json!({
            "type": "end",
            "seconds": self.all.seconds,
            "bytes": self.all.bytes,
            "blocks": self.all.blocks,
            "distinct_bytes": closing.distinct_bytes,
            "covered_fraction": self.fraction(self.first_bytes()),
            "checksum": checksum(self.sums_bytes.then_some(sum)),
            "checksum_ok": self.checksum_ok(),
            "threads": threads,
            "setup": closing.setup.to_json(),
            "block_latency_us": latency,
            "smaps_rollup": closing.smaps,
            "perf": self.perf(),
            "response": self.basis(closing, &latency).to_json(),
        })
    }

    fn basis<'a>(&'a self, closing: &'a Closing, latency: &'a Value) -> Basis<'a> {
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
            hits: closing.gathered.hits,
            latency,
            smaps: &closing.smaps,
            residency: closing.moments.to_json(self.size_bytes),
        }
    }

    /// What the CPUs counted in all passes, or why they counted nothing.
    fn perf(&self) -> Value {
        let Some(events) = self.all.events else {
            let reason =
                Counters::open().err().unwrap_or_else(|| "a counter had no turn on the CPU".to_owned());
            return json!({"reason": reason});
        };
        Events::names().zip(events.0).map(|(name, count)| (name.to_owned(), json!(count))).collect()
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
    const NOTHING: Self = Self {
        seconds: 0.0,
        bytes: 0,
        blocks: 0,
        checksum: 0,
        usage: Usage { major_faults: 0, minor_faults: 0, voluntary_switches: 0, involuntary_switches: 0 },
        events: None,
    };

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments;
    use std::time::Instant;

    fn tally(bytes: u64, checksum: u64) -> Tally {
        let now = Instant::now();
        let usage = Usage::default();
        Tally { started: now, ended: now, bytes, blocks: 1, checksum, stopped: false, usage, events: None }
    }

    #[test]
    fn one_wrong_pass_is_not_made_good_by_the_next() {
        let plan = arguments::read(["pcread", "--file", "data"].map(Into::into)).unwrap().unwrap();
        let mut totals = Totals::new(&plan, 10, Some(7));
        assert_eq!(totals.checksum_ok(), None);
        totals.check(&[tally(4, 1)]);
        assert_eq!(totals.checksum_ok(), None, "a part cannot be judged");
        totals.check(&[tally(10, 7)]);
        assert_eq!(totals.checksum_ok(), Some(true));
        totals.check(&[tally(10, 8)]);
        totals.check(&[tally(10, 7)]);
        assert_eq!(totals.checksum_ok(), Some(false));
    }
}
