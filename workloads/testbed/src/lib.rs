//! Support for the tests of the workloads: a dataset for each test, and the real program as a
//! process.
//!
//! Its functions panic where a test would.
#![allow(clippy::missing_panics_doc)]

mod dataset;
mod folder;
mod run;
mod workload_process;

pub use dataset::{Dataset, SIZE_BYTES};
pub use folder::Folder;
pub use run::Run;
pub use workload_process::WorkloadProcess;
