//! Scans several files at once, by threads or by tasks on an async executor, and reports what it
//! cost.
//!
//! One function reads the bytes in every treatment. Treatments differ only in how the bytes come
//! into memory, and in who waits for them meanwhile. A heartbeat beside the scan shows who waited.

mod arguments;
mod buffer;
mod dataset;
mod exec;
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
mod scan_team;
mod sizes;
mod tasks;
mod timer;
mod touch;

pub use measurement::measure;
