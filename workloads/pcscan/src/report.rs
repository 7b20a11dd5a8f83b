//! The lines of one run: a sample a pass, and the end.

use crate::crew::{Pass, ThreadTally};
use crate::heartbeat::Heartbeat;
use crate::scan::{Seen, Tally};
use contract::line::checksum;
use contract::usage::Usage;
use serde_json::{json, Map, Value};
use std::time::Duration;

/// Everything that the passes of a run have seen.
#[derive(Debug)]
pub struct Totals {
    size_bytes: u64,
    discard_sum: bool,
    expected: Option<u64>,
    passes: u64,
    seconds: f64,
    all: Seen,
    first: Option<First>,
    all_as_expected: bool,
    advise: Duration,
    threads: Vec<ThreadTally>,
}

/// The first pass, which every later one repeats.
#[derive(Debug, Clone)]
struct First {
    seen: Seen,
    files: Vec<Tally>,
}

impl Totals {
    /// Nothing seen yet. Where sums are discarded nothing can be expected of them.
    #[must_use]
    pub fn new(size_bytes: u64, discard_sum: bool, expected: Option<u64>) -> Self {
        Self {
            size_bytes,
            discard_sum,
            expected,
            passes: 0,
            seconds: 0.0,
            all: Seen::default(),
            first: None,
            all_as_expected: true,
            advise: Duration::ZERO,
            threads: Vec::new(),
        }
    }

    /// Adds one pass and gives its line.
    pub fn add(&mut self, pass: &Pass) -> Value {
        let mut seen = Seen::default();
        pass.tallies.iter().for_each(|tally| seen += tally.seen);
        let seconds = span(&pass.tallies);
        let line = self.sample(seconds, &seen, &pass.threads);
        self.passes += 1;
        self.seconds += seconds;
        self.all += seen;
        self.advise += pass.tallies.iter().map(|tally| tally.advise).sum::<Duration>();
        let differs = self.is_full(&seen) && self.expected.is_some_and(|expected| expected != seen.checksum);
        self.all_as_expected &= !differs;
        self.first.get_or_insert_with(|| First { seen, files: pass.tallies.clone() });
        self.threads.resize(pass.threads.len(), ThreadTally::default());
        self.threads.iter_mut().zip(&pass.threads).for_each(|(sum, thread)| add(sum, thread));
        line
    }

    /// Whether every full pass added up to what was expected; none where there was nothing to compare.
    #[must_use]
    pub fn checksum_ok(&self) -> Option<bool> {
        let full = self.first.as_ref().is_some_and(|first| self.is_full(&first.seen));
        (self.expected.is_some() && full).then_some(self.all_as_expected)
    }

    /// The closing line. Its checksum, distinct bytes and coverage are those of the first pass.
    #[must_use]
    pub fn end(&self, open_seconds: f64, heart: Option<&Heartbeat>) -> Value {
        let seen = self.first.as_ref().map(|first| first.seen).unwrap_or_default();
        json!({
            "type": "end",
            "seconds": self.seconds,
            "bytes": self.all.bytes,
            "blocks": self.all.pieces,
            "distinct_bytes": seen.bytes,
            "covered_fraction": self.fraction(seen.bytes),
            "checksum": checksum((!self.discard_sum).then_some(seen.checksum)),
            "checksum_ok": self.checksum_ok(),
            "threads": self.threads.iter().map(thread).collect::<Vec<_>>(),
            "setup": {"open_seconds": open_seconds},
            "files": self.files().iter().map(file).collect::<Vec<_>>(),
            "response": self.response(heart),
            "heartbeat_hdr_v2_base64": heart.map_or(Value::Null, Heartbeat::histogram),
        })
    }

    /// Figures of its own: none of them has the name of one that every workload gives.
    fn response(&self, heart: Option<&Heartbeat>) -> Map<String, Value> {
        let mut figures = heart.map(Heartbeat::response).unwrap_or_default();
        let seconds = || self.files().iter().map(Tally::seconds);
        figures.insert("file_seconds_min".into(), json!(seconds().reduce(f64::min)));
        figures.insert("file_seconds_max".into(), json!(seconds().reduce(f64::max)));
        figures.insert("advise_seconds".into(), self.advise.as_secs_f64().into());
        let minor: i64 = self.threads.iter().map(|thread| thread.usage.minor_faults).sum();
        figures.insert("minor_faults".into(), minor.into());
        figures
    }

    fn files(&self) -> &[Tally] {
        self.first.as_ref().map_or(&[], |first| &first.files)
    }

    fn sample(&self, seconds: f64, seen: &Seen, threads: &[ThreadTally]) -> Value {
        let usage = threads.iter().fold(Usage::default(), |sum, thread| sum + thread.usage);
        json!({
            "type": "sample",
            "iteration": self.passes,
            "seconds": seconds,
            "bytes": seen.bytes,
            "blocks": seen.pieces,
            "covered_fraction": self.fraction(seen.bytes),
            "checksum": checksum((!self.discard_sum).then_some(seen.checksum)),
            "major_faults": usage.major_faults,
            "minor_faults": usage.minor_faults,
        })
    }

    fn is_full(&self, seen: &Seen) -> bool {
        seen.bytes == self.size_bytes
    }

    fn fraction(&self, bytes: u64) -> f64 {
        bytes as f64 / self.size_bytes as f64
    }
}

impl Tally {
    fn seconds(&self) -> f64 {
        self.ended.duration_since(self.started).as_secs_f64()
    }
}

/// A pass lasts from the first scan's beginning to the last one's end.
fn span(tallies: &[Tally]) -> f64 {
    let started = tallies.iter().map(|tally| tally.started).min();
    let ended = tallies.iter().map(|tally| tally.ended).max();
    let span = ended.zip(started).map(|(ended, started)| ended.duration_since(started));
    span.unwrap_or_default().as_secs_f64()
}

fn add(sum: &mut ThreadTally, more: &ThreadTally) {
    sum.seconds += more.seconds;
    sum.pieces += more.pieces;
    sum.usage = sum.usage + more.usage;
}

fn thread(tally: &ThreadTally) -> Value {
    json!({
        "seconds": tally.seconds,
        "blocks": tally.pieces,
        "major_faults": tally.usage.major_faults,
        "minor_faults": tally.usage.minor_faults,
        "voluntary_switches": tally.usage.voluntary_switches,
        "involuntary_switches": tally.usage.involuntary_switches,
    })
}

fn file(tally: &Tally) -> Value {
    json!({"seconds": tally.seconds(), "bytes": tally.seen.bytes, "advise_seconds": tally.advise.as_secs_f64()})
}
