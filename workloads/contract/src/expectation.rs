//! The sum that a full pass must have.

use crate::{Failure, Sidecar};
use std::path::Path;

/// Return the sum that a sidecar states for the first `size_bytes` of its data.
///
/// # Errors
/// If the sidecar cannot be read, or has no sum for that many bytes.
pub fn from_sidecar(sidecar: &Path, size_bytes: u64) -> Result<u64, Failure> {
    Sidecar::load(sidecar)?.byte_sum_of_first(size_bytes).ok_or_else(|| {
        let shown = sidecar.display();
        Failure::BadArguments(format!(
            "{shown} knows no sum for {size_bytes} bytes: give the whole size, or a multiple of 1 MiB below it"
        ))
    })
}

/// Fail if the bytes of `data` were compared with an expected sum and differ from it.
///
/// # Errors
/// If `checksum_ok` is false.
pub fn require_expected_sum(data: &Path, checksum_ok: Option<bool>) -> Result<(), Failure> {
    if checksum_ok == Some(false) {
        let shown = data.display();
        return Err(Failure::Failed(format!(
            "the bytes of {shown} do not add up to what was expected"
        )));
    }
    Ok(())
}
