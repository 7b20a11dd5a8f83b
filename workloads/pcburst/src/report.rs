//! The lines of one run.

use crate::burst::Burst;
use crate::page_cache_state::CachedBytes;
use contract::json_lines::{Checksum, End, Sample, ThreadLine};
use contract::page_cache::page_bytes;
use serde::Serialize;

/// Results of one run.
#[derive(Debug)]
pub struct Report {
    /// Time to fill the page cache, before `ready`.
    pub fill_seconds: f64,
    /// The file's bytes in the page cache when the burst began; None if the kernel does not tell.
    pub before: Option<CachedBytes>,
    /// The same when the burst was over.
    pub after: Option<CachedBytes>,
    /// The sum of the stamps found in memory, and of those written.
    pub sums: (u64, u64),
    pub burst: Burst,
}

/// Durations of the set-up.
#[derive(Debug, Serialize)]
pub struct Setup {
    fill_seconds: f64,
}

/// The keys of `end` that other workloads do not have.
#[derive(Debug, Serialize)]
pub struct More {
    response: Response,
}

#[derive(Debug, Serialize)]
struct Response {
    burst_seconds: f64,
    burst_bytes_per_second: f64,
    burst_p50_us: Option<f64>,
    burst_p90_us: Option<f64>,
    burst_p99_us: Option<f64>,
    burst_max_us: Option<f64>,
    burst_minor_faults: i64,
    cache_before_bytes: Option<u64>,
    unwritten_before_bytes: Option<u64>,
    cache_after_bytes: Option<u64>,
}

impl Report {
    /// Return whether the memory holds what was written to it.
    pub fn is_right(&self) -> bool {
        self.sums.0 == self.sums.1
    }

    /// Return the line of the one pass.
    pub fn sample(&self) -> Sample {
        Sample {
            iteration: 0,
            seconds: self.burst.time.as_secs_f64(),
            bytes: self.bytes(),
            blocks: self.blocks(),
            covered_fraction: Some(1.0),
            checksum: Some(Checksum(self.sums.0)),
            major_faults: self.burst.usage.major_faults,
            minor_faults: self.burst.usage.minor_faults,
        }
    }

    /// Return the closing line.
    pub fn end(&self) -> End<ThreadLine, Setup, More> {
        let seconds = self.burst.time.as_secs_f64();
        End {
            seconds,
            bytes: self.bytes(),
            blocks: self.blocks(),
            distinct_bytes: Some(self.bytes()),
            covered_fraction: Some(1.0),
            checksum: Some(Checksum(self.sums.0)),
            checksum_ok: Some(self.is_right()),
            threads: vec![ThreadLine { seconds, blocks: self.blocks(), usage: self.burst.usage }],
            setup: Setup { fill_seconds: self.fill_seconds },
            more: More { response: self.response(seconds) },
        }
    }

    fn response(&self, seconds: f64) -> Response {
        let pieces = self.burst.pieces.figures();
        Response {
            burst_seconds: seconds,
            burst_bytes_per_second: self.bytes() as f64 / seconds,
            burst_p50_us: pieces.p50,
            burst_p90_us: pieces.p90,
            burst_p99_us: pieces.p99,
            burst_max_us: pieces.max,
            burst_minor_faults: self.burst.usage.minor_faults,
            cache_before_bytes: self.before.map(|bytes| bytes.cached),
            unwritten_before_bytes: self.before.map(|bytes| bytes.unwritten),
            cache_after_bytes: self.after.map(|bytes| bytes.cached),
        }
    }

    fn bytes(&self) -> u64 {
        self.burst.memory.len() as u64
    }

    fn blocks(&self) -> u64 {
        (self.burst.memory.len() / page_bytes()) as u64
    }
}
