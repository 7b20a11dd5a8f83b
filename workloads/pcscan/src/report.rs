//! The lines of one run: one sample per pass, and the end.

use crate::heartbeat::{Heartbeat, HeartbeatFigures};
use crate::scan::{Pass, ScanResult, Tally};
use contract::json_lines::{Checksum, End, Sample, ThreadLine};
use contract::usage::Usage;
use serde::Serialize;
use std::time::Duration;

/// The results of all passes of a run.
#[derive(Debug)]
pub struct Totals {
    size_bytes: u64,
    discard_sum: bool,
    expected: Option<u64>,
    passes: u64,
    seconds: f64,
    all: ScanResult,
    first: Option<First>,
    all_as_expected: bool,
    advise: Duration,
    threads: Vec<ThreadLine>,
}

/// The first pass, which every later one repeats.
#[derive(Debug, Clone)]
struct First {
    result: ScanResult,
    files: Vec<Tally>,
}

/// Durations of the set-up.
#[derive(Debug, Serialize)]
pub struct Setup {
    open_seconds: f64,
}

/// The keys of `end` that other workloads do not have.
#[derive(Debug, Serialize)]
pub struct More {
    files: Vec<FileLine>,
    response: Response,
    heartbeat_hdr_v2_base64: Option<String>,
}

#[derive(Debug, Serialize)]
struct FileLine {
    seconds: f64,
    bytes: u64,
    advise_seconds: f64,
}

#[derive(Debug, Serialize)]
struct Response {
    #[serde(flatten)]
    heartbeat: Option<HeartbeatFigures>,
    file_seconds_min: Option<f64>,
    file_seconds_max: Option<f64>,
    advise_seconds: f64,
    minor_faults: i64,
}

impl Totals {
    /// Start with nothing. Discarded sums are not compared.
    pub fn new(size_bytes: u64, discard_sum: bool, expected: Option<u64>) -> Self {
        Self {
            size_bytes,
            discard_sum,
            expected,
            passes: 0,
            seconds: 0.0,
            all: ScanResult::default(),
            first: None,
            all_as_expected: true,
            advise: Duration::ZERO,
            threads: Vec::new(),
        }
    }

    /// Add one pass and return its line.
    pub fn add(&mut self, pass: &Pass) -> Sample {
        let mut result = ScanResult::default();
        pass.tallies.iter().for_each(|tally| result += tally.result);
        let seconds = span(&pass.tallies);
        let line = self.sample(seconds, &result, &pass.threads);
        self.passes += 1;
        self.seconds += seconds;
        self.all += result;
        self.advise += pass.tallies.iter().map(|tally| tally.advise).sum::<Duration>();
        let differs = self.is_full(&result)
            && self.expected.is_some_and(|expected| expected != result.checksum);
        self.all_as_expected &= !differs;
        self.first.get_or_insert_with(|| First { result, files: pass.tallies.clone() });
        self.threads.resize(pass.threads.len(), ThreadLine::default());
        self.threads.iter_mut().zip(&pass.threads).for_each(|(sum, thread)| add(sum, thread));
        line
    }

    /// Return whether every full pass had the expected sum; None if there was nothing to compare.
    pub fn checksum_ok(&self) -> Option<bool> {
        let full = self.first.as_ref().is_some_and(|first| self.is_full(&first.result));
        (self.expected.is_some() && full).then_some(self.all_as_expected)
    }

    /// Return the closing line. Its checksum, distinct bytes and coverage are those of the first
    /// pass.
    pub fn end(
        &self,
        open_seconds: f64,
        heart: Option<&Heartbeat>,
    ) -> End<ThreadLine, Setup, More> {
        let first = self.first.as_ref().map(|first| first.result).unwrap_or_default();
        End {
            seconds: self.seconds,
            bytes: self.all.bytes,
            blocks: self.all.pieces,
            distinct_bytes: Some(first.bytes),
            covered_fraction: Some(self.fraction(first.bytes)),
            checksum: self.checksum(&first),
            checksum_ok: self.checksum_ok(),
            threads: self.threads.clone(),
            setup: Setup { open_seconds },
            more: More {
                files: self.files().iter().map(FileLine::of).collect(),
                response: self.response(heart),
                heartbeat_hdr_v2_base64: heart.and_then(Heartbeat::histogram),
            },
        }
    }

    fn response(&self, heart: Option<&Heartbeat>) -> Response {
        let seconds = || self.files().iter().map(Tally::seconds);
        Response {
            heartbeat: heart.map(Heartbeat::figures),
            file_seconds_min: seconds().reduce(f64::min),
            file_seconds_max: seconds().reduce(f64::max),
            advise_seconds: self.advise.as_secs_f64(),
            minor_faults: self.threads.iter().map(|thread| thread.usage.minor_faults).sum(),
        }
    }

    fn files(&self) -> &[Tally] {
        self.first.as_ref().map_or(&[], |first| &first.files)
    }

    fn sample(&self, seconds: f64, result: &ScanResult, threads: &[ThreadLine]) -> Sample {
        let usage: Usage = threads.iter().map(|thread| thread.usage).sum();
        Sample {
            iteration: self.passes,
            seconds,
            bytes: result.bytes,
            blocks: result.pieces,
            covered_fraction: Some(self.fraction(result.bytes)),
            checksum: self.checksum(result),
            major_faults: usage.major_faults,
            minor_faults: usage.minor_faults,
        }
    }

    fn checksum(&self, result: &ScanResult) -> Option<Checksum> {
        (!self.discard_sum).then_some(Checksum(result.checksum))
    }

    fn is_full(&self, result: &ScanResult) -> bool {
        result.bytes == self.size_bytes
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

/// Return the duration of a pass, from the first scan's beginning to the last one's end.
fn span(tallies: &[Tally]) -> f64 {
    let started = tallies.iter().map(|tally| tally.started).min();
    let ended = tallies.iter().map(|tally| tally.ended).max();
    let span = ended.zip(started).map(|(ended, started)| ended.duration_since(started));
    span.unwrap_or_default().as_secs_f64()
}

fn add(sum: &mut ThreadLine, more: &ThreadLine) {
    sum.seconds += more.seconds;
    sum.blocks += more.blocks;
    sum.usage = sum.usage + more.usage;
}

impl FileLine {
    fn of(tally: &Tally) -> Self {
        let advise_seconds = tally.advise.as_secs_f64();
        Self { seconds: tally.seconds(), bytes: tally.result.bytes, advise_seconds }
    }
}
