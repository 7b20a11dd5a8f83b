//! The lines of one process.

use crate::workers::{Load, Use};
use contract::json_lines::{Checksum, End, Sample, ThreadLine};
use contract::page_cache::page_bytes;
use contract::usage::Usage;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Results of one process.
#[derive(Debug)]
pub struct Report {
    /// Length of the file.
    pub length_bytes: usize,
    /// When the measured part began.
    pub started: Instant,
    /// Results of each loading thread; empty if nothing was loaded ahead.
    pub loads: Vec<Load>,
    /// Memory between loading and use; None if the two overlapped.
    pub after: Option<MemoryAfter>,
    /// Results of each computing thread.
    pub uses: Vec<Use>,
}

/// Memory when the loading was done.
#[derive(Debug, Clone, Copy)]
pub struct MemoryAfter {
    /// The file's bytes in the page cache that can be read without waiting.
    pub resident_bytes: Option<u64>,
    /// Anonymous bytes of this process that were not there before.
    pub anonymous_bytes: Option<u64>,
}

/// Durations of the set-up.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Setup {
    /// Time to open the file.
    pub open_seconds: f64,
    /// Time to map it.
    pub map_seconds: f64,
}

/// The keys of `end` that other workloads do not have.
#[derive(Debug, Serialize)]
pub struct More {
    response: Response,
}

/// Results of one thread, with its role.
#[derive(Debug, Serialize)]
pub struct RoleLine {
    role: &'static str,
    #[serde(flatten)]
    thread: ThreadLine,
    stalled_seconds: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Response {
    total_seconds: f64,
    prefault_seconds: Option<f64>,
    compute_seconds: f64,
    sum_seconds: f64,
    stalled_seconds: Option<f64>,
    stalled_most_seconds: Option<f64>,
    prefault_major_faults: Option<i64>,
    prefault_minor_faults: Option<i64>,
    sum_major_faults: i64,
    sum_minor_faults: i64,
    prefault_resident_bytes: Option<u64>,
    prefault_resident_fraction: Option<f64>,
    prefault_anonymous_bytes: Option<u64>,
}

impl Report {
    /// Return whether the sum is the expected one; None without an expectation.
    pub fn checksum_ok(&self, expected: Option<u64>) -> Option<bool> {
        expected.map(|expected| expected == self.sum())
    }

    /// Return the line of the one pass.
    pub fn sample(&self) -> Sample {
        let usage = self.load_usage() + self.use_usage();
        Sample {
            iteration: 0,
            seconds: self.total().as_secs_f64(),
            bytes: self.bytes(),
            blocks: blocks(self.bytes()),
            covered_fraction: Some(self.bytes() as f64 / self.length_bytes as f64),
            checksum: Some(Checksum(self.sum())),
            major_faults: usage.major_faults,
            minor_faults: usage.minor_faults,
        }
    }

    /// Return the closing line.
    pub fn end(&self, setup: Setup, expected: Option<u64>) -> End<RoleLine, Setup, More> {
        let loads = self.loads.iter().map(RoleLine::of_load);
        End {
            seconds: self.total().as_secs_f64(),
            bytes: self.bytes(),
            blocks: blocks(self.bytes()),
            distinct_bytes: Some(self.bytes()),
            covered_fraction: Some(self.bytes() as f64 / self.length_bytes as f64),
            checksum: Some(Checksum(self.sum())),
            checksum_ok: self.checksum_ok(expected),
            threads: loads.chain(self.uses.iter().map(RoleLine::of_use)).collect(),
            setup,
            more: More { response: self.response() },
        }
    }

    fn response(&self) -> Response {
        let load = |figure: i64| (!self.loads.is_empty()).then_some(figure);
        let resident = self.after.and_then(|after| after.resident_bytes);
        let length = self.length_bytes.div_ceil(page_bytes()) * page_bytes();
        let stalls: Option<Vec<f64>> =
            self.uses.iter().map(|used| used.stalled.map(|time| time.as_secs_f64())).collect();
        Response {
            total_seconds: self.total().as_secs_f64(),
            prefault_seconds: self.load_time().map(|time| time.as_secs_f64()),
            compute_seconds: self.longest_calculation().as_secs_f64(),
            sum_seconds: self.sum_time().as_secs_f64(),
            stalled_seconds: stalls.as_ref().map(|all| all.iter().sum::<f64>() / all.len() as f64),
            stalled_most_seconds: stalls.map(|all| all.into_iter().fold(0.0, f64::max)),
            prefault_major_faults: load(self.load_usage().major_faults),
            prefault_minor_faults: load(self.load_usage().minor_faults),
            sum_major_faults: self.use_usage().major_faults,
            sum_minor_faults: self.use_usage().minor_faults,
            prefault_resident_bytes: resident,
            prefault_resident_fraction: resident.map(|bytes| bytes as f64 / length as f64),
            prefault_anonymous_bytes: self.after.and_then(|after| after.anonymous_bytes),
        }
    }

    /// Leave out the time between loading and use, in which the memory is examined.
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

    fn longest_calculation(&self) -> Duration {
        self.uses.iter().map(|used| used.computed - used.started).max().unwrap_or_default()
    }

    fn bytes(&self) -> u64 {
        self.uses.iter().map(|used| used.bytes as u64).sum()
    }

    fn sum(&self) -> u64 {
        self.uses.iter().map(|used| used.checksum).fold(0, u64::wrapping_add)
    }

    fn load_usage(&self) -> Usage {
        self.loads.iter().map(|load| load.usage).sum()
    }

    fn use_usage(&self) -> Usage {
        self.uses.iter().map(|used| used.usage).sum()
    }
}

impl RoleLine {
    fn of_load(load: &Load) -> Self {
        let thread = ThreadLine {
            seconds: (load.ended - load.started).as_secs_f64(),
            blocks: 0,
            usage: load.usage,
        };
        Self { role: "prefault", thread, stalled_seconds: None }
    }

    fn of_use(used: &Use) -> Self {
        let seconds = (used.ended - used.started).as_secs_f64();
        let thread = ThreadLine { seconds, blocks: blocks(used.bytes as u64), usage: used.usage };
        Self {
            role: "compute",
            thread,
            stalled_seconds: used.stalled.map(|time| time.as_secs_f64()),
        }
    }
}

fn blocks(bytes: u64) -> u64 {
    bytes.div_ceil(page_bytes() as u64)
}
