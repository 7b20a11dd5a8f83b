//! Writes a file of its own, through a shared mapping or by calls, and settles it with msync(2) or fdatasync(2), or not.
//!
//! A write through a mapping is a store to memory: the kernel learns of it only by the fault that makes a clean page
//! writable (`page_mkwrite`), and nobody is told when, or whether, it reaches the disk. So what is on the disk is looked
//! up there, beneath the file system, before anything else could write it back.

pub mod arguments;
mod content;
mod medium;
mod readback;
mod report;
mod run;
mod scratch;
mod watch;
mod writer;

pub use run::measure;
