//! The lines of one run.

use crate::arguments::{Method, Plan};
use crate::writer::{pages, Pass};
use contract::line::checksum;
use contract::page::page_bytes;
use contract::usage::Usage;
use serde_json::{json, Value};
use std::time::Duration;

/// What one run did and what was found of it.
#[derive(Debug)]
pub struct Report {
    /// What was asked.
    pub plan: Plan,
    /// Making the file, before `ready`.
    pub setup_seconds: f64,
    /// Each pass.
    pub passes: Vec<Pass>,
    /// The most bytes seen waiting to be written back.
    pub unwritten_peak: Option<u64>,
    /// Those waiting at the end of the last pass.
    pub unwritten_after: Option<u64>,
    /// Pages that were written, each counted once.
    pub distinct_pages: u64,
    /// Those of them that the disk had at the end of the last pass.
    pub on_disk_pages: Option<u64>,
    /// Those of them that came back right after the file was written back and dropped.
    pub right_pages: u64,
    /// The sum of the bytes that came back.
    pub sum: u64,
    /// The sum of the bytes that were written.
    pub expected_sum: u64,
}

impl Report {
    /// The line of one pass. What is written is proven later, so that it has no sum yet.
    #[must_use]
    pub fn sample(plan: &Plan, number: u64, pass: &Pass) -> Value {
        json!({
            "type": "sample",
            "iteration": number,
            "seconds": (pass.write + pass.sync).as_secs_f64(),
            "write_seconds": pass.write.as_secs_f64(),
            "msync_seconds": pass.sync.as_secs_f64(),
            "bytes": pass.pages * page_bytes() as u64,
            "blocks": pass.pages,
            "covered_fraction": pass.pages as f64 / pages(plan) as f64,
            "checksum": null,
            "major_faults": pass.usage.major_faults,
            "minor_faults": pass.usage.minor_faults,
        })
    }

    /// Whether every page came back as it was written.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.right_pages == self.distinct_pages && self.sum == self.expected_sum
    }

    /// The closing line.
    #[must_use]
    pub fn end(&self) -> Value {
        let all: u64 = self.passes.iter().map(|pass| pass.pages).sum();
        let seconds = (self.write_time() + self.sync_time()).as_secs_f64();
        json!({
            "type": "end",
            "seconds": seconds,
            "bytes": all * page_bytes() as u64,
            "blocks": all,
            "distinct_bytes": self.distinct_pages * page_bytes() as u64,
            "covered_fraction": self.distinct_pages as f64 / pages(&self.plan) as f64,
            "checksum": checksum(Some(self.sum)),
            "checksum_ok": self.is_right(),
            "threads": [self.thread(seconds, all)],
            "setup": {"make_seconds": self.setup_seconds},
            "response": self.response(),
        })
    }

    fn thread(&self, seconds: f64, blocks: u64) -> Value {
        let usage = self.usage();
        json!({
            "seconds": seconds,
            "blocks": blocks,
            "major_faults": usage.major_faults,
            "minor_faults": usage.minor_faults,
            "voluntary_switches": usage.voluntary_switches,
            "involuntary_switches": usage.involuntary_switches,
        })
    }

    fn response(&self) -> Value {
        let fraction = |pages: u64| pages as f64 / self.distinct_pages as f64;
        let faults = self.usage().major_faults + self.usage().minor_faults;
        let seconds = self.write_time() + self.sync_time();
        let pages: u64 = self.passes.iter().map(|pass| pass.pages).sum();
        let bytes = pages * page_bytes() as u64;
        json!({
            "total_seconds": seconds.as_secs_f64(),
            "write_seconds": self.write_time().as_secs_f64(),
            "msync_seconds": self.sync_time().as_secs_f64(),
            "mean_page_us": seconds.as_secs_f64() * 1e6 / pages as f64,
            "written_bytes_per_second": bytes as f64 / seconds.as_secs_f64(),
            "page_mkwrite_faults": (self.plan.method == Method::Mmap).then_some(faults),
            "unwritten_peak_bytes": self.unwritten_peak,
            "unwritten_after_bytes": self.unwritten_after,
            "on_disk_fraction": self.on_disk_pages.map(fraction),
            "read_back_fraction": fraction(self.right_pages),
        })
    }

    fn write_time(&self) -> Duration {
        self.passes.iter().map(|pass| pass.write).sum()
    }

    fn sync_time(&self) -> Duration {
        self.passes.iter().map(|pass| pass.sync).sum()
    }

    fn usage(&self) -> Usage {
        self.passes.iter().fold(Usage::default(), |sum, pass| sum + pass.usage)
    }
}
