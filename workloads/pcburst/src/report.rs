//! The lines of one run.

use crate::burst::Burst;
use contract::line::checksum;
use contract::page::page_bytes;
use serde_json::{json, Value};

/// What one run did and met.
#[derive(Debug)]
pub struct Report {
    /// Filling the page cache, before `ready`.
    pub fill_seconds: f64,
    /// Bytes in the cache, and those of them that the disk has not, when the burst began.
    pub before: Option<(u64, u64)>,
    /// The same when it was over.
    pub after: Option<(u64, u64)>,
    /// The sum of the stamps found in memory, and of those written.
    pub sums: (u64, u64),
    /// The burst.
    pub burst: Burst,
}

impl Report {
    /// Whether the memory holds what was written to it.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.sums.0 == self.sums.1
    }

    /// The line of the one pass.
    #[must_use]
    pub fn sample(&self) -> Value {
        json!({
            "type": "sample",
            "iteration": 0,
            "seconds": self.burst.time.as_secs_f64(),
            "bytes": self.burst.memory.len(),
            "blocks": self.burst.memory.len() / page_bytes(),
            "covered_fraction": 1.0,
            "checksum": checksum(Some(self.sums.0)),
            "major_faults": self.burst.usage.major_faults,
            "minor_faults": self.burst.usage.minor_faults,
        })
    }

    /// The closing line.
    #[must_use]
    pub fn end(&self) -> Value {
        let (burst, usage) = (&self.burst, self.burst.usage);
        let blocks = burst.memory.len() / page_bytes();
        json!({
            "type": "end",
            "seconds": burst.time.as_secs_f64(),
            "bytes": burst.memory.len(),
            "blocks": blocks,
            "distinct_bytes": burst.memory.len(),
            "covered_fraction": 1.0,
            "checksum": checksum(Some(self.sums.0)),
            "checksum_ok": self.is_right(),
            "threads": [{
                "seconds": burst.time.as_secs_f64(),
                "blocks": blocks,
                "major_faults": usage.major_faults,
                "minor_faults": usage.minor_faults,
                "voluntary_switches": usage.voluntary_switches,
                "involuntary_switches": usage.involuntary_switches,
            }],
            "setup": {"fill_seconds": self.fill_seconds},
            "response": self.response(),
        })
    }

    fn response(&self) -> Value {
        let pieces = self.burst.pieces.to_json();
        let seconds = self.burst.time.as_secs_f64();
        json!({
            "burst_seconds": seconds,
            "burst_bytes_per_second": self.burst.memory.len() as f64 / seconds,
            "burst_p50_us": pieces["p50"],
            "burst_p90_us": pieces["p90"],
            "burst_p99_us": pieces["p99"],
            "burst_max_us": pieces["max"],
            "burst_minor_faults": self.burst.usage.minor_faults,
            "cache_before_bytes": self.before.map(|(cached, _)| cached),
            "unwritten_before_bytes": self.before.map(|(_, unwritten)| unwritten),
            "cache_after_bytes": self.after.map(|(cached, _)| cached),
        })
    }
}
