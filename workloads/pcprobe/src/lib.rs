//! Measures the performance of a disk under its limits, on a machine of another organisation.
//!
//! The program is one static file that an ordinary user copies there and starts. It announces its
//! duration and the size of its file, asks for confirmation, loads the disk as much as it can, and
//! writes one JSON that names neither host nor path. A figure that a phase could not prove (it was
//! interrupted, or memory answered instead of the disk) is null with a reason.

pub mod arguments;
mod burst;
mod cgroup;
mod confirmation;
mod device;
mod engine;
mod fio;
mod interruption;
mod machine;
mod outcome;
mod phase;
mod report;
mod ring;
mod run;
mod scratch;
mod series;
mod sizes;
mod storage_counters;
mod summary;
mod tally;
mod threads;
mod work;

pub use run::measure;
