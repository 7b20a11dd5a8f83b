//! Takes anonymous memory as fast as it can, beside a page cache that is empty, full, or full of what is not written yet.
//!
//! Free memory is given away at once. Memory that holds a page cache must first be taken from it: a clean page is simply
//! dropped, a dirty one has to reach the disk before. That work is done by whoever asks for memory.

pub mod arguments;
mod burst;
mod page_cache_state;
mod report;
mod run;

pub use run::measure;
