//! What every workload says and hears, kept in one place so that no two of them can differ.
//!
//! `workloads/README.md` states the contract in full; the modules here are its parts.

pub mod bytesum;
pub mod command_line;
pub mod failure;
pub mod handshake;
pub mod line;
pub mod mix;
pub mod sidecar;

pub use failure::Failure;
pub use handshake::Handshake;
pub use sidecar::Sidecar;
