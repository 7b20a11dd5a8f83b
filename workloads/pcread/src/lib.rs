//! Reads a working set in blocks and reports what it cost.
//!
//! One loop does the measured work, whatever the source: only where the bytes lie, how they are fetched, and in which
//! order they are visited, differ between two treatments.

mod advice;
pub mod arguments;
mod blocks;
mod cage;
mod clock;
mod coverage;
mod events;
mod fetch;
mod frames;
mod measurement;
mod order;
mod pass;
mod pool;
mod proc;
mod product;
mod reader;
mod report;
mod residency;
mod response;
mod ring;
mod route;
mod source;
mod stride;
mod team;

pub use coverage::self_test;
pub use measurement::measure;
