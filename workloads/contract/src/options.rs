//! Kinds of options that every workload's command line is made of.

use crate::{Failure, Handshake};
use clap::builder::PossibleValuesParser;
use clap::{value_parser, Arg, ArgAction, ArgMatches};
use std::path::PathBuf;
use std::time::Duration;

/// A choice as it is typed, and what it means. The first one is the default.
pub type Choice<T> = (&'static str, T);

/// An option that takes one of these names.
#[must_use]
pub fn choice<T: Copy>(name: &'static str, choices: &'static [Choice<T>]) -> Arg {
    let names = choices.iter().map(|choice| choice.0);
    Arg::new(name).long(name).value_parser(PossibleValuesParser::new(names)).default_value(choices[0].0)
}

/// What a choice means. The parser lets only known names through.
#[must_use]
pub fn named<T: Copy>(choices: &[Choice<T>], name: &str) -> T {
    choices.iter().find(|choice| choice.0 == name).unwrap_or(&choices[0]).1
}

/// An option that takes a whole number from `least` up.
#[must_use]
pub fn number(name: &'static str, least: u64) -> Arg {
    Arg::new(name).long(name).value_name("N").value_parser(value_parser!(u64).range(least..))
}

/// A number of bytes, threads or the like, as this machine counts what it holds in memory.
///
/// # Errors
/// [`Failure::BadArguments`] where it is larger than any memory, on a machine of 32 bits.
pub fn length(number: u64) -> Result<usize, Failure> {
    usize::try_from(number)
        .map_err(|_| Failure::BadArguments(format!("{number} is too large for this machine")))
}

/// An option that takes a path.
#[must_use]
pub fn path(name: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("FILE").value_parser(value_parser!(PathBuf))
}

/// An option that is there or not.
#[must_use]
pub fn flag(name: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue)
}

/// An option that takes a time in seconds, zero included; `Duration` is its type.
#[must_use]
pub fn seconds(name: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("S").allow_hyphen_values(true).value_parser(duration)
}

fn duration(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|cause| cause.to_string())
}

/// `--no-handshake`, which every workload has.
#[must_use]
pub fn no_handshake() -> Arg {
    flag("no-handshake").help("Start at once and leave at once, for use by hand")
}

/// What `--no-handshake` asks for.
#[must_use]
pub fn handshake(matches: &ArgMatches) -> Handshake {
    Handshake { is_skipped: matches.get_flag("no-handshake") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Command;

    fn given(arguments: &[&str]) -> Result<clap::ArgMatches, String> {
        let command = Command::new("probe").no_binary_name(true).arg(seconds("time")).arg(number("count", 1));
        command.try_get_matches_from(arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn times_are_seconds_and_never_negative() {
        let found = given(&["--time", "0.25"]).unwrap();
        assert_eq!(found.get_one::<Duration>("time"), Some(&Duration::from_millis(250)));
        assert!(given(&["--time", "0"]).is_ok());
        for wrong in ["-1", "soon", "NaN", "1e300"] {
            assert!(given(&["--time", wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_below_the_least_are_refused() {
        assert!(given(&["--count", "1"]).is_ok());
        assert!(given(&["--count", "0"]).is_err());
    }

    #[test]
    fn the_first_choice_is_the_default() {
        const COLOURS: &[Choice<u8>] = &[("red", 1), ("blue", 2)];
        assert_eq!([named(COLOURS, "red"), named(COLOURS, "blue")], [1, 2]);
    }
}
