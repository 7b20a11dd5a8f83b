//! The workload's side of pagecage's handshake, version 1 (`docs/HANDSHAKE.md`).
//!
//! A workload prepares, waits for `go`, works, and reports. pagecage reads the kernel's counters
//! around the work, while the process exists.
//!
//! ```no_run
//! use pagecage_workload::{conclude, Failure, Handshake, Object};
//! use std::time::Instant;
//!
//! fn work() -> Result<(), Failure> {
//!     let handshake = Handshake::default();
//!     let numbers: Vec<u64> = (0..1_000_000).collect();
//!     if !handshake.wait_for_go()? {
//!         return Ok(());
//!     }
//!     let begun = Instant::now();
//!     let sum: u64 = numbers.iter().sum();
//!     let response = Object::new().with("sum", sum);
//!     let seconds = begun.elapsed().as_secs_f64();
//!     handshake.end(Object::new().with("seconds", seconds).with("response", response))
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     conclude("adds", work())
//! }
//! ```

pub mod failure;
pub mod handshake;
pub mod value;

pub use failure::{conclude, Failure, OrFailure};
pub use handshake::{Handshake, PROTOCOL_VERSION};
pub use value::{Object, Value};
