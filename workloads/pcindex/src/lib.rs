//! Starts an application whose index is a hash table in many mapped files.
//!
//! Every file is a table of its own. First the index is loaded into memory by one of several
//! methods, or not at all. Then the start-up set is looked up: one key per bucket, in a random
//! order that visits every bucket once.

mod arguments;
mod load;
mod loaders;
mod lookup;
mod measurement;
mod questions;
mod report;
mod segment;

pub use measurement::measure;
