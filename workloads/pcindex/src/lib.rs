//! Starts an application whose index is a hash table in many mapped files.
//!
//! Every file is a table of its own. First the index is brought into memory in one of several ways, or not at all; then
//! the start-up set is looked up: one key a bucket, in a random order that visits every bucket once.

pub mod arguments;
mod load;
mod loaders;
mod lookup;
mod measurement;
mod questions;
mod report;
mod segment;

pub use measurement::measure;
