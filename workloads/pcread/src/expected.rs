//! The sum that a full pass must have.

use contract::{sidecar, Failure};
use std::path::PathBuf;

/// The expected sum.
#[derive(Debug, Clone, clap::Args)]
pub struct ExpectOptions {
    /// A full pass must have the sum that this sidecar states
    #[arg(long, value_name = "FILE", conflicts_with = "expect_checksum")]
    expect_sidecar: Option<PathBuf>,
    /// A full pass must have this sum
    #[arg(long, value_name = "N")]
    expect_checksum: Option<u64>,
}

impl ExpectOptions {
    /// Return whether a sum is expected.
    pub fn is_given(&self) -> bool {
        self.expect_sidecar.is_some() || self.expect_checksum.is_some()
    }

    /// Return the expected sum of a working set of this length; None without an expectation. Fails
    /// if the sidecar cannot be read, or has no sum for that many bytes.
    pub fn sum(&self, size_bytes: u64) -> Result<Option<u64>, Failure> {
        match &self.expect_sidecar {
            Some(path) => sidecar::expected_sum(path, size_bytes).map(Some),
            None => Ok(self.expect_checksum),
        }
    }
}
