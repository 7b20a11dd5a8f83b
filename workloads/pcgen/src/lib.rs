//! Makes a dataset that a reader can be checked against.
//!
//! The bytes are incompressible and never repeat, so no layer below can shrink them; they are a function of seed and
//! position alone, so any part can be made again; the file has no holes, so every read reaches the disk.

pub mod arguments;
mod content;
mod data;
mod dataset;
mod part_file;
mod pattern;
mod verification;

pub use dataset::{make, Made, Request};
pub use pattern::Fill;
pub use verification::verify;

/// Changes whenever the same seed would give other bytes, or the sidecar another key.
pub const GENERATOR_VERSION: u64 = 2;
