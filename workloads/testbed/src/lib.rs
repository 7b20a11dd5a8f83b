//! What the workloads' own tests stand on: a dataset for each test, and the real program run and talked to.
//!
//! It is a test's support and panics where a test would.
#![allow(clippy::missing_panics_doc)]

mod dataset;
mod run;
mod talk;

pub use dataset::{Dataset, SIZE_BYTES};
pub use run::Run;
pub use talk::Talk;
