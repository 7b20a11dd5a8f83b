//! The contract that every workload keeps: command lines, JSON lines, the handshake, exit codes, sidecars and sums.
//!
//! `workloads/README.md` states the contract in full.

pub mod advice;
pub mod amount;
pub mod bus_error;
pub mod bytesum;
pub mod cli;
pub mod command_line;
pub mod cpus;
pub mod data_files;
pub mod expectation;
pub mod failure;
pub mod handshake;
pub mod index;
pub mod json_lines;
pub mod latency;
pub mod median;
pub mod mixing_hash;
pub mod options;
pub mod page;
pub mod page_cache;
pub mod permutation;
pub mod sidecar;
pub mod smaps;
pub mod threads;
pub mod timing;
pub mod usage;

pub use failure::Failure;
pub use handshake::Handshake;
pub use mixing_hash as mix;
pub use sidecar::Sidecar;

/// Lines as JSON values.
pub mod line {
    pub use crate::json_lines::print;
    use serde_json::Value;

    /// A 64-bit sum as text.
    #[must_use]
    pub fn checksum(sum: Option<u64>) -> Value {
        sum.map_or(Value::Null, |sum| Value::String(sum.to_string()))
    }
}
