//! The lines on stdout: one JSON object each, flushed at once because the agent acts on it.

use crate::failure::OrFailure;
use crate::usage::Usage;
use crate::Failure;
use pagecage_workload::handshake::print_line;
use serde::{Serialize, Serializer};

/// Print one object on one line and flush it.
///
/// # Errors
/// If stdout is closed.
pub fn print(line: &impl Serialize) -> Result<(), Failure> {
    print_line(&serde_json::to_string(line).or_failed("cannot write a line")?)
}

/// A 64-bit sum, printed as text: JSON readers that keep numbers as doubles would round it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checksum(pub u64);

impl Serialize for Checksum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// The line of one pass.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "sample")]
pub struct Sample {
    /// Number of the pass, from 0.
    pub iteration: u64,
    /// Duration of the pass.
    pub seconds: f64,
    /// Bytes read or written in this pass.
    pub bytes: u64,
    /// Blocks read or written in this pass.
    pub blocks: u64,
    /// `bytes` divided by the size of the working set; null if unknown.
    pub covered_fraction: Option<f64>,
    /// Sum of those bytes; null if they are not added up.
    pub checksum: Option<Checksum>,
    /// Faults that waited for the disk.
    pub major_faults: i64,
    /// Faults that found the page in memory.
    pub minor_faults: i64,
}

/// The closing line: what all workloads report, then what one workload adds.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "end")]
pub struct End<Thread, Setup, More> {
    /// Duration of all passes.
    pub seconds: f64,
    /// Bytes of all passes.
    pub bytes: u64,
    /// Blocks of all passes.
    pub blocks: u64,
    /// Bytes of the first pass, each counted once; null if nobody counted them.
    pub distinct_bytes: Option<u64>,
    /// Bytes of the first pass divided by the size of the working set; null if unknown.
    pub covered_fraction: Option<f64>,
    /// Sum of the bytes of the first pass; null if they are not added up.
    pub checksum: Option<Checksum>,
    /// Whether every full pass had the expected sum; null if there was nothing to compare.
    pub checksum_ok: Option<bool>,
    /// One entry per thread.
    pub threads: Vec<Thread>,
    /// Durations of the parts of the set-up.
    pub setup: Setup,
    /// Keys of this workload alone.
    #[serde(flatten)]
    pub more: More,
}

/// Results of one thread over the passes.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct ThreadLine {
    /// Time spent in passes.
    pub seconds: f64,
    /// Blocks it handled.
    pub blocks: u64,
    /// Its own counters.
    #[serde(flatten)]
    pub usage: Usage,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Setup {
        open_seconds: f64,
    }

    #[derive(Serialize)]
    struct More {
        files: u32,
    }

    #[test]
    fn keys_are_printed_in_the_order_of_the_contract() {
        let end = End {
            seconds: 1.0,
            bytes: 2,
            blocks: 3,
            distinct_bytes: Some(4),
            covered_fraction: Some(1.0),
            checksum: Some(Checksum(u64::MAX)),
            checksum_ok: None,
            threads: vec![ThreadLine::default()],
            setup: Setup { open_seconds: 0.5 },
            more: More { files: 1 },
        };
        let expected = "{\"type\":\"end\",\"seconds\":1.0,\"bytes\":2,\"blocks\":3,\"distinct_bytes\":4,\
            \"covered_fraction\":1.0,\"checksum\":\"18446744073709551615\",\"checksum_ok\":null,\
            \"threads\":[{\"seconds\":0.0,\"blocks\":0,\"major_faults\":0,\"minor_faults\":0,\
            \"voluntary_switches\":0,\"involuntary_switches\":0}],\"setup\":{\"open_seconds\":0.5},\"files\":1}";
        assert_eq!(serde_json::to_string(&end).unwrap(), expected);
    }
}
