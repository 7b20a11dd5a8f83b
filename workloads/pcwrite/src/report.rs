//! The lines of one run.

use crate::writer::{PassResult, WritePlan};
use contract::json_lines::{Checksum, End, ThreadLine};
use contract::page_cache::page_bytes;
use contract::usage::Usage;
use serde::Serialize;
use std::time::Duration;

/// Results of one run, and of the checks afterwards.
#[derive(Debug)]
pub struct Report {
    /// Number of pages of the file.
    pub pages: u64,
    /// Whether the file was mapped.
    pub is_mapped: bool,
    /// Time to make the file, before `ready`.
    pub setup_seconds: f64,
    pub passes: Vec<PassResult>,
    /// The most bytes seen waiting to be written back.
    pub unwritten_peak: Option<u64>,
    /// Bytes waiting at the end of the last pass.
    pub unwritten_after: Option<u64>,
    /// Pages that were written, each counted once.
    pub distinct_pages: u64,
    /// Those of them that were on the disk at the end of the last pass.
    pub on_disk_pages: Option<u64>,
    /// Those of them that had the right content after the file was written back and dropped.
    pub right_pages: u64,
    /// Duration of the checks after the last pass.
    pub check: Duration,
    /// The sum of the bytes that were read back.
    pub sum: u64,
    /// The sum of the bytes that were written.
    pub expected_sum: u64,
}

/// The line of one pass. The content is proven later, so it has no sum yet.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "sample")]
pub struct Sample {
    iteration: u64,
    seconds: f64,
    write_seconds: f64,
    msync_seconds: f64,
    bytes: u64,
    blocks: u64,
    covered_fraction: f64,
    checksum: Option<Checksum>,
    major_faults: i64,
    minor_faults: i64,
}

/// Durations of the set-up.
#[derive(Debug, Serialize)]
pub struct Setup {
    make_seconds: f64,
}

/// The keys of `end` that other workloads do not have.
#[derive(Debug, Serialize)]
pub struct More {
    check_seconds: f64,
    response: Response,
}

#[derive(Debug, Serialize)]
struct Response {
    total_seconds: f64,
    write_seconds: f64,
    msync_seconds: f64,
    mean_page_us: f64,
    written_bytes_per_second: f64,
    page_mkwrite_faults: Option<i64>,
    unwritten_peak_bytes: Option<u64>,
    unwritten_after_bytes: Option<u64>,
    on_disk_fraction: Option<f64>,
    read_back_fraction: f64,
}

impl Sample {
    /// Create the line of a pass.
    pub fn new(plan: &WritePlan, number: u64, pass: &PassResult) -> Self {
        Self {
            iteration: number,
            seconds: (pass.write + pass.sync).as_secs_f64(),
            write_seconds: pass.write.as_secs_f64(),
            msync_seconds: pass.sync.as_secs_f64(),
            bytes: pass.pages * page_bytes() as u64,
            blocks: pass.pages,
            covered_fraction: pass.pages as f64 / plan.pages as f64,
            checksum: None,
            major_faults: pass.usage.major_faults,
            minor_faults: pass.usage.minor_faults,
        }
    }
}

impl Report {
    /// Return whether every page was read back as it was written.
    pub fn is_right(&self) -> bool {
        self.right_pages == self.distinct_pages && self.sum == self.expected_sum
    }

    /// Return the closing line.
    pub fn end(&self) -> End<ThreadLine, Setup, More> {
        let blocks: u64 = self.passes.iter().map(|pass| pass.pages).sum();
        let seconds = (self.write_time() + self.sync_time()).as_secs_f64();
        let usage: Usage = self.passes.iter().map(|pass| pass.usage).sum();
        End {
            seconds,
            bytes: blocks * page_bytes() as u64,
            blocks,
            distinct_bytes: Some(self.distinct_pages * page_bytes() as u64),
            covered_fraction: Some(self.distinct_pages as f64 / self.pages as f64),
            checksum: Some(Checksum(self.sum)),
            checksum_ok: Some(self.is_right()),
            threads: vec![ThreadLine { seconds, blocks, usage }],
            setup: Setup { make_seconds: self.setup_seconds },
            more: More {
                check_seconds: self.check.as_secs_f64(),
                response: self.response(seconds, blocks, usage),
            },
        }
    }

    fn response(&self, seconds: f64, pages: u64, usage: Usage) -> Response {
        let fraction = |pages: u64| pages as f64 / self.distinct_pages as f64;
        Response {
            total_seconds: seconds,
            write_seconds: self.write_time().as_secs_f64(),
            msync_seconds: self.sync_time().as_secs_f64(),
            mean_page_us: seconds * 1e6 / pages as f64,
            written_bytes_per_second: (pages * page_bytes() as u64) as f64 / seconds,
            page_mkwrite_faults: self.is_mapped.then_some(usage.major_faults + usage.minor_faults),
            unwritten_peak_bytes: self.unwritten_peak,
            unwritten_after_bytes: self.unwritten_after,
            on_disk_fraction: self.on_disk_pages.map(fraction),
            read_back_fraction: fraction(self.right_pages),
        }
    }

    fn write_time(&self) -> Duration {
        self.passes.iter().map(|pass| pass.write).sum()
    }

    fn sync_time(&self) -> Duration {
        self.passes.iter().map(|pass| pass.sync).sum()
    }
}
