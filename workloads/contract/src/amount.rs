//! How many bytes a workload makes or takes: named outright, or as a share of a file's length.

use crate::command_line::optional;
use crate::options::{number, path};
use crate::Failure;
use clap::{value_parser, Arg, ArgMatches};
use std::path::PathBuf;

/// `--bytes N`, or `--size-of FILE` with `--fraction X`.
#[must_use]
pub fn arguments() -> [Arg; 3] {
    [
        number("bytes", 1).conflicts_with("size-of").required_unless_present("size-of").help("So many bytes"),
        path("size-of").help("As many bytes as this file is long"),
        Arg::new("fraction")
            .long("fraction")
            .value_name("X")
            .requires("size-of")
            .value_parser(value_parser!(f64))
            .help("This share of that length"),
    ]
}

/// The amount that was asked for, at least one byte.
///
/// # Errors
/// When the file cannot be examined, or the share leaves nothing.
pub fn bytes(matches: &ArgMatches) -> Result<u64, Failure> {
    if let Some(bytes) = optional(matches, "bytes") {
        return Ok(bytes);
    }
    let path: PathBuf = optional(matches, "size-of").unwrap_or_default();
    let shown = path.display();
    let found =
        std::fs::metadata(&path).map_err(|cause| Failure::of(format!("cannot examine {shown}"), cause))?;
    share(found.len(), optional(matches, "fraction").unwrap_or(1.0)).ok_or_else(|| {
        Failure::BadArguments(format!("that fraction of the {} bytes of {shown} is no amount", found.len()))
    })
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a finite, positive number of bytes
fn share(length_bytes: u64, fraction: f64) -> Option<u64> {
    let bytes = length_bytes as f64 * fraction;
    (bytes.is_finite() && bytes >= 1.0).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Command;

    fn of(arguments: &[&str]) -> Result<u64, String> {
        let command = Command::new("probe").no_binary_name(true).args(super::arguments());
        let matches = command.try_get_matches_from(arguments).map_err(|error| error.to_string())?;
        bytes(&matches).map_err(|failure| failure.to_string())
    }

    #[test]
    fn an_amount_is_named_or_measured() {
        let path = std::env::temp_dir().join(format!("amount-{}", std::process::id()));
        std::fs::write(&path, [0_u8; 1000]).unwrap();
        let name = path.to_str().unwrap();
        let found = [
            of(&["--bytes", "77"]),
            of(&["--size-of", name]),
            of(&["--size-of", name, "--fraction", "0.25"]),
        ];
        let refused = [of(&["--size-of", name, "--fraction", "0"]), of(&[]), of(&["--size-of", "/nowhere"])];
        std::fs::remove_file(&path).unwrap();
        assert_eq!(found, [Ok(77), Ok(1000), Ok(250)]);
        assert!(refused.iter().all(Result::is_err), "{refused:?}");
    }

    #[test]
    fn no_share_is_no_amount() {
        assert_eq!([share(1000, -1.0), share(1000, f64::NAN), share(0, 1.0)], [None; 3]);
    }
}
