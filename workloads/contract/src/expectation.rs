//! What a full pass must add up to.

use crate::{Failure, Sidecar};
use std::path::Path;

/// The sum that a sidecar promises for the first `size_bytes` of its data.
///
/// # Errors
/// When the sidecar cannot be read, or knows no sum for that many bytes.
pub fn from_sidecar(sidecar: &Path, size_bytes: u64) -> Result<u64, Failure> {
    Sidecar::load(sidecar)?.byte_sum_of_first(size_bytes).ok_or_else(|| {
        let shown = sidecar.display();
        Failure::BadArguments(format!(
            "{shown} knows no sum for {size_bytes} bytes: give the whole size, or a multiple of 1 MiB below it"
        ))
    })
}
