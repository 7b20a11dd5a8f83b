//! The sidecar: a small JSON file beside a dataset that states how it was made and the sums of its
//! bytes.

use crate::failure::OrFailure;
use crate::Failure;
use serde_json::{json, Value};
use std::path::{Path, PathBuf};

/// The unit in which a sidecar keeps partial sums.
pub const BLOCK_BYTES: u64 = 1 << 20;

/// The stride of [`Sidecar::stride512_sum`]; a divisor of [`BLOCK_BYTES`].
pub const STRIDE_BYTES: usize = 512;

/// Origin of a dataset, and the sums of its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sidecar {
    /// Version of the generator: the same version, seed, fill and size give the same bytes.
    pub generator_version: u64,
    /// Seed of the generator.
    pub seed: u64,
    /// `random`, `zero` or `index`.
    pub fill: String,
    /// Length of the data file.
    pub size_bytes: u64,
    /// Sum of all bytes.
    pub byte_sum: u64,
    /// Sum of every 512th byte, from the first one on: for readers that only touch each page.
    pub stride512_sum: u64,
    /// CRC-32C (Castagnoli) of the whole file.
    pub crc32c: u32,
    /// Sum of the bytes of each block of [`BLOCK_BYTES`]; the last block may be short.
    pub block_byte_sums: Vec<u64>,
}

impl Sidecar {
    /// Return the path of a data file's sidecar: the same name with `.json` added.
    #[must_use]
    pub fn path_of(data: &Path) -> PathBuf {
        let mut name = data.as_os_str().to_owned();
        name.push(".json");
        PathBuf::from(name)
    }

    /// Read a sidecar.
    ///
    /// # Errors
    /// If the file cannot be read or is not a complete, consistent sidecar.
    pub fn load(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let text =
            std::fs::read_to_string(path).or_failed(format!("cannot read the sidecar {shown}"))?;
        let value =
            serde_json::from_str(&text).or_failed(format!("the sidecar {shown} is not JSON"))?;
        Self::from_json(&value).ok_or_else(|| {
            Failure::Failed(format!(
                "{shown} is not a sidecar that pcgen wrote, or parts of it are missing"
            ))
        })
    }

    /// Return the sidecar as JSON, with 64-bit sums as text.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "generator": "pcgen",
            "generator_version": self.generator_version,
            "seed": self.seed,
            "fill": self.fill,
            "size_bytes": self.size_bytes,
            "byte_sum": self.byte_sum.to_string(),
            "stride512_sum": self.stride512_sum.to_string(),
            "crc32c": format!("{:08x}", self.crc32c),
            "block_bytes": BLOCK_BYTES,
            "block_byte_sums": self.block_byte_sums,
        })
    }

    /// Read a sidecar from a JSON value; None if it is not a consistent one.
    #[must_use]
    pub fn from_json(value: &Value) -> Option<Self> {
        let sidecar = Self {
            generator_version: value["generator_version"].as_u64()?,
            seed: value["seed"].as_u64()?,
            fill: value["fill"].as_str()?.to_owned(),
            size_bytes: value["size_bytes"].as_u64()?,
            byte_sum: value["byte_sum"].as_str()?.parse().ok()?,
            stride512_sum: value["stride512_sum"].as_str()?.parse().ok()?,
            crc32c: u32::from_str_radix(value["crc32c"].as_str()?, 16).ok()?,
            block_byte_sums: value["block_byte_sums"]
                .as_array()?
                .iter()
                .map(Value::as_u64)
                .collect::<Option<_>>()?,
        };
        let ours = value["generator"] == "pcgen" && value["block_bytes"] == BLOCK_BYTES;
        (ours && sidecar.is_consistent()).then_some(sidecar)
    }

    /// Return the sum of the first `size_bytes`. None unless these are the whole file or whole
    /// blocks of it.
    #[must_use]
    pub fn byte_sum_of_first(&self, size_bytes: u64) -> Option<u64> {
        if size_bytes == self.size_bytes {
            return Some(self.byte_sum);
        }
        let known = size_bytes < self.size_bytes && size_bytes % BLOCK_BYTES == 0;
        let blocks = usize::try_from(size_bytes / BLOCK_BYTES).ok()?;
        known.then(|| self.block_byte_sums[..blocks].iter().sum())
    }

    fn is_consistent(&self) -> bool {
        self.block_byte_sums.len() as u64 == self.size_bytes.div_ceil(BLOCK_BYTES)
            && self.block_byte_sums.iter().try_fold(0_u64, |sum, block| sum.checked_add(*block))
                == Some(self.byte_sum)
    }
}

/// Return the sum that a sidecar states for the first `size_bytes` of its data.
///
/// # Errors
/// If the sidecar cannot be read, or has no sum for that many bytes.
pub fn expected_sum(sidecar: &Path, size_bytes: u64) -> Result<u64, Failure> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sidecar(seed: u64, sums: Vec<u64>, last_bytes: u64) -> Sidecar {
        Sidecar {
            generator_version: 1,
            seed,
            fill: "random".into(),
            size_bytes: (sums.len() as u64 - 1) * BLOCK_BYTES + last_bytes,
            byte_sum: sums.iter().sum(),
            stride512_sum: seed / 512,
            crc32c: 0x00c0_ffee,
            block_byte_sums: sums,
        }
    }

    proptest! {
        #[test]
        fn comes_back_as_it_went(seed: u64, sums in prop::collection::vec(0..255 * BLOCK_BYTES, 1..20), last in 1..=BLOCK_BYTES) {
            let before = sidecar(seed, sums, last);
            let text = before.to_json().to_string();
            prop_assert_eq!(Sidecar::from_json(&serde_json::from_str(&text).unwrap()), Some(before));
        }
    }

    #[test]
    fn a_sum_that_does_not_add_up_is_refused() {
        let mut value = sidecar(1, vec![5, 6], 10).to_json();
        value["byte_sum"] = "12".into();
        assert_eq!(Sidecar::from_json(&value), None);
    }

    #[test]
    fn knows_prefixes_of_whole_blocks_only() {
        let made = sidecar(1, vec![5, 6, 7], 10);
        assert_eq!(made.byte_sum_of_first(2 * BLOCK_BYTES), Some(11));
        assert_eq!(made.byte_sum_of_first(made.size_bytes), Some(18));
        assert_eq!(made.byte_sum_of_first(2 * BLOCK_BYTES + 1), None);
        assert_eq!(made.byte_sum_of_first(4 * BLOCK_BYTES), None);
    }
}
