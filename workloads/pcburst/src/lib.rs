//! Takes anonymous memory as fast as it can, beside a page cache that is empty, full, or full of
//! unwritten pages.
//!
//! The kernel hands out free memory at once. Memory that holds page cache must be reclaimed first:
//! it simply drops a clean page, but must write a dirty page to the disk. The process that asks for
//! memory does that work.

mod arguments;
mod burst;
mod page_cache_state;
mod report;
mod run;

pub use run::measure;
