//! Writes a file of its own, through a shared mapping or by calls, and optionally syncs it with
//! msync(2) or fdatasync(2).
//!
//! A write through a mapping is a store to memory. The kernel notices it only by the fault that
//! makes a clean page writable (`page_mkwrite`), and no process learns when, or whether, it
//! reaches the disk. The program therefore reads the disk itself, beneath the file system, before
//! anything else could write the pages back.

mod arguments;
mod content;
mod extents;
mod readback;
mod report;
mod run;
mod scratch;
mod watch;
mod writer;

pub use run::measure;
