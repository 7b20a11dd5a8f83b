//! The lines of one process.

use crate::shift::{Load, Use};
use contract::line::checksum;
use contract::page::page_bytes;
use contract::usage::Usage;
use contract::Failure;
use serde_json::{json, Value};
use std::time::{Duration, Instant};

/// What one process did.
#[derive(Debug)]
pub struct Report {
    /// Length of the file.
    pub length_bytes: usize,
    /// When the measured part began.
    pub started: Instant,
    /// Each loading thread's part; none where nothing was loaded ahead.
    pub loads: Vec<Load>,
    /// What was found between loading and use; none where the two were not apart.
    pub after: Option<After>,
    /// Each computing thread's part.
    pub uses: Vec<Use>,
}

/// What was in memory when the loading was done.
#[derive(Debug, Clone, Copy)]
pub struct After {
    /// Of the file, in the page cache and readable.
    pub resident_bytes: Option<u64>,
    /// Of this process, anonymous, that was not there before.
    pub anonymous_bytes: Option<u64>,
}

/// How long each part of the set-up took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Setup {
    open_seconds: f64,
    map_seconds: f64,
}

impl Setup {
    /// Opens and notes how long it took.
    ///
    /// # Errors
    /// What the work gives.
    pub fn opened<T>(&mut self, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        timed(&mut self.open_seconds, work)
    }

    /// Maps and notes how long it took.
    ///
    /// # Errors
    /// What the work gives.
    pub fn mapped<T>(&mut self, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        timed(&mut self.map_seconds, work)
    }
}

impl Report {
    /// Whether the sum is the expected one; none where nobody knows.
    #[must_use]
    pub fn checksum_ok(&self, expected: Option<u64>) -> Option<bool> {
        expected.map(|expected| expected == self.sum())
    }

    /// The line of the one pass.
    #[must_use]
    pub fn sample(&self) -> Value {
        let usage = self.load_usage() + self.use_usage();
        json!({
            "type": "sample",
            "iteration": 0,
            "seconds": self.total().as_secs_f64(),
            "bytes": self.bytes(),
            "blocks": self.bytes().div_ceil(page_bytes()),
            "covered_fraction": self.bytes() as f64 / self.length_bytes as f64,
            "checksum": checksum(Some(self.sum())),
            "major_faults": usage.major_faults,
            "minor_faults": usage.minor_faults,
        })
    }

    /// The closing line.
    #[must_use]
    pub fn end(&self, setup: Setup, expected: Option<u64>) -> Value {
        let loads =
            self.loads.iter().map(|load| thread("prefault", load.ended - load.started, 0, load.usage, None));
        let uses = self
            .uses
            .iter()
            .map(|used| thread("compute", used.ended - used.started, used.bytes, used.usage, used.stalled));
        json!({
            "type": "end",
            "seconds": self.total().as_secs_f64(),
            "bytes": self.bytes(),
            "blocks": self.bytes().div_ceil(page_bytes()),
            "distinct_bytes": self.bytes(),
            "covered_fraction": self.bytes() as f64 / self.length_bytes as f64,
            "checksum": checksum(Some(self.sum())),
            "checksum_ok": self.checksum_ok(expected),
            "threads": loads.chain(uses).collect::<Vec<Value>>(),
            "setup": {"open_seconds": setup.open_seconds, "map_seconds": setup.map_seconds},
            "response": self.response(),
        })
    }

    fn response(&self) -> Value {
        let load = |figure: i64| (!self.loads.is_empty()).then_some(figure);
        let resident = self.after.and_then(|after| after.resident_bytes);
        let length = self.length_bytes.div_ceil(page_bytes()) * page_bytes();
        let stalls: Option<Vec<f64>> =
            self.uses.iter().map(|used| used.stalled.map(|time| time.as_secs_f64())).collect();
        json!({
            "total_seconds": self.total().as_secs_f64(),
            "prefault_seconds": self.load_time().map(|time| time.as_secs_f64()),
            "compute_seconds": self.longest(|used| used.computed - used.started),
            "sum_seconds": self.sum_time().as_secs_f64(),
            "stalled_seconds": stalls.as_ref().map(|all| all.iter().sum::<f64>() / all.len() as f64),
            "stalled_most_seconds": stalls.map(|all| all.into_iter().fold(0.0, f64::max)),
            "prefault_major_faults": load(self.load_usage().major_faults),
            "prefault_minor_faults": load(self.load_usage().minor_faults),
            "sum_major_faults": self.use_usage().major_faults,
            "sum_minor_faults": self.use_usage().minor_faults,
            "prefault_resident_bytes": resident,
            "prefault_resident_fraction": resident.map(|bytes| bytes as f64 / length as f64),
            "prefault_anonymous_bytes": self.after.and_then(|after| after.anonymous_bytes),
        })
    }

    /// What lies between loading and use, the looking at memory, is left out.
    fn total(&self) -> Duration {
        let ended = self.uses.iter().map(|used| used.ended).max().unwrap_or(self.started);
        let begun = self.uses.iter().map(|used| used.started).min().unwrap_or(ended);
        match self.after {
            Some(_) => self.load_time().unwrap_or_default() + (ended - begun),
            None => ended - self.started,
        }
    }

    fn load_time(&self) -> Option<Duration> {
        let started = self.loads.iter().map(|load| load.started).min()?;
        let ended = self.loads.iter().map(|load| load.ended).max()?;
        Some(ended - started)
    }

    fn sum_time(&self) -> Duration {
        let started = self.uses.iter().map(|used| used.computed).min();
        let ended = self.uses.iter().map(|used| used.ended).max();
        ended.zip(started).map(|(ended, started)| ended - started).unwrap_or_default()
    }

    fn longest(&self, time: impl Fn(&Use) -> Duration) -> f64 {
        self.uses.iter().map(time).max().unwrap_or_default().as_secs_f64()
    }

    fn bytes(&self) -> usize {
        self.uses.iter().map(|used| used.bytes).sum()
    }

    fn sum(&self) -> u64 {
        self.uses.iter().map(|used| used.checksum).fold(0, u64::wrapping_add)
    }

    fn load_usage(&self) -> Usage {
        self.loads.iter().fold(Usage::default(), |sum, load| sum + load.usage)
    }

    fn use_usage(&self) -> Usage {
        self.uses.iter().fold(Usage::default(), |sum, used| sum + used.usage)
    }
}

fn thread(role: &str, time: Duration, bytes: usize, usage: Usage, stalled: Option<Duration>) -> Value {
    json!({
        "role": role,
        "seconds": time.as_secs_f64(),
        "blocks": bytes.div_ceil(page_bytes()),
        "major_faults": usage.major_faults,
        "minor_faults": usage.minor_faults,
        "voluntary_switches": usage.voluntary_switches,
        "involuntary_switches": usage.involuntary_switches,
        "stalled_seconds": stalled.map(|time| time.as_secs_f64()),
    })
}

fn timed<T>(seconds: &mut f64, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let start = Instant::now();
    let outcome = work();
    *seconds = start.elapsed().as_secs_f64();
    outcome
}
