//! Measures what a disk gives under the limits that it stands under, on a machine that is not ours.
//!
//! One static file, carried there and started by an ordinary user. It says how long it will take and how much room,
//! asks, presses a file of its own as hard as it can, and writes one JSON that names neither host nor path. A figure
//! that a phase could not prove (it was cut short, or memory answered instead of the disk) is null with its reason.

pub mod arguments;
mod burst;
mod cgroup;
mod consent;
mod device;
mod engine;
mod fio;
mod interruption;
mod machine;
mod phase;
mod proof;
mod report;
mod ring;
mod run;
mod scratch;
mod series;
mod sizes;
mod summary;
mod tally;
mod threads;

pub use run::measure;
