//! Scans several files at once, by threads or by tasks on an async executor, and reports what it cost.
//!
//! One function looks at the bytes in every arm: how the bytes come to be in memory, and who waits for them
//! meanwhile, is all that differs between two treatments. A heartbeat beside the scan shows who waited.

pub mod arguments;
mod base64;
mod buffer;
mod cachestat;
mod crew;
mod dataset;
mod fixes;
mod heartbeat;
mod hints;
mod measurement;
mod prefetch;
mod reactor;
mod read_ahead;
mod reads;
mod report;
mod ring;
mod scan;
mod tasks;
mod timer;
mod touch;

pub use measurement::measure;
