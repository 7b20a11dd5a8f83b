//! Reads a working set in blocks and reports what it cost.
//!
//! One loop does the measured work, whatever the source: only where the bytes lie, and in which order they are
//! visited, differ between two treatments.

pub mod arguments;
mod blocks;
mod bus_error;
mod clock;
mod coverage;
mod cpus;
mod expectation;
mod latency;
mod measurement;
mod order;
mod pass;
mod permutation;
mod report;
mod source;
mod team;
mod usage;

pub use coverage::self_test;
pub use measurement::measure;
