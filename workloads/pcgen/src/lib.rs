//! Makes a dataset against which a reader can be checked.
//!
//! * The bytes are incompressible and never repeat, so no layer below can shrink them.
//! * They are a function of seed and position alone, so any part can be made again.
//! * The file has no holes, so every read reaches the disk.

pub mod arguments;
mod content;
mod data;
mod dataset;
mod part_file;
mod pattern;
mod verification;

pub use dataset::{make, Generated, Request};
pub use pattern::Fill;
pub use verification::verify;

/// Version of the generator. It changes if the same seed gives other bytes, or if a key of the
/// sidecar changes.
pub const GENERATOR_VERSION: u64 = 2;
