//! The contract that every workload keeps: command lines, JSON lines, exit codes, sidecars and sums.
//!
//! `workloads/README.md` states the contract in full. The handshake is that of the crate
//! `pagecage-workload`.

pub mod advice;
pub mod amount;
pub mod bus_error;
pub mod bytesum;
pub mod cgroup;
pub mod cli;
pub mod cpus;
pub mod data_files;
pub mod handshake;
pub mod index;
pub mod json_lines;
pub mod latency;
pub mod listed_sizes;
pub mod median;
pub mod mixing_hash;
pub mod page_cache;
pub mod permutation;
pub mod sidecar;
pub mod threads;
pub mod timing;
pub mod usage;

pub use handshake::Handshake;
pub use pagecage_workload::{failure, Failure};
pub use sidecar::Sidecar;
