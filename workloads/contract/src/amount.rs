//! A number of bytes, given directly or as a fraction of a file's length.

use crate::failure::OrFailure;
use crate::Failure;
use std::path::PathBuf;

/// `--bytes N`, or `--size-of FILE` with `--fraction X`.
#[derive(Debug, Clone, clap::Args)]
pub struct Amount {
    /// Number of bytes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    #[arg(conflicts_with = "size_of", required_unless_present = "size_of")]
    bytes: Option<u64>,
    /// As many bytes as this file is long
    #[arg(long, value_name = "FILE")]
    size_of: Option<PathBuf>,
    /// This fraction of that length
    #[arg(long, value_name = "X", requires = "size_of")]
    fraction: Option<f64>,
}

impl Amount {
    /// Return the number of bytes, at least one.
    ///
    /// # Errors
    /// If the file cannot be examined, or the fraction leaves nothing.
    pub fn bytes(&self) -> Result<u64, Failure> {
        if let Some(bytes) = self.bytes {
            return Ok(bytes);
        }
        let path = self.size_of.clone().unwrap_or_default();
        let shown = path.display();
        let length = std::fs::metadata(&path).or_failed(format!("cannot examine {shown}"))?.len();
        fraction_of(length, self.fraction.unwrap_or(1.0)).ok_or_else(|| {
            Failure::BadArguments(format!(
                "that fraction of the {length} bytes of {shown} is no amount"
            ))
        })
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a finite, positive number of bytes
fn fraction_of(length_bytes: u64, fraction: f64) -> Option<u64> {
    let bytes = length_bytes as f64 * fraction;
    (bytes.is_finite() && bytes >= 1.0).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::options_from;

    fn of(words: &str) -> Result<u64, String> {
        let amount: Amount = options_from(words).map_err(|error| error.to_string())?;
        amount.bytes().map_err(|failure| failure.to_string())
    }

    #[test]
    fn an_amount_is_given_or_measured() {
        let path = std::env::temp_dir().join(format!("amount-{}", std::process::id()));
        std::fs::write(&path, [0_u8; 1000]).unwrap();
        let size_of = format!("--size-of {}", path.display());
        let found = [of("--bytes 77"), of(&size_of), of(&format!("{size_of} --fraction 0.25"))];
        let refused = [of(&format!("{size_of} --fraction 0")), of(""), of("--size-of /nowhere")];
        std::fs::remove_file(&path).unwrap();
        assert_eq!(found, [Ok(77), Ok(1000), Ok(250)]);
        assert!(refused.iter().all(Result::is_err), "{refused:?}");
    }

    #[test]
    fn no_fraction_is_no_amount() {
        assert_eq!(
            [fraction_of(1000, -1.0), fraction_of(1000, f64::NAN), fraction_of(0, 1.0)],
            [None; 3]
        );
    }
}
