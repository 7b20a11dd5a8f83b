//! What every workload says and hears, kept in one place so that no two of them can differ.
//!
//! `workloads/README.md` states the contract in full; the modules here are its parts.

pub mod amount;
pub mod bus_error;
pub mod bytesum;
pub mod command_line;
pub mod cpus;
pub mod expectation;
pub mod failure;
pub mod handshake;
pub mod index;
pub mod latency;
pub mod line;
pub mod mix;
pub mod options;
pub mod page;
pub mod page_cache;
pub mod permutation;
pub mod sidecar;
pub mod smaps;
pub mod usage;

pub use failure::Failure;
pub use handshake::Handshake;
pub use sidecar::Sidecar;
