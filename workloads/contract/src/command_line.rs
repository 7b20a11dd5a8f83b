//! Reading arguments: a wrong one gets a single sentence and exit code 2, `--help` gets the help and exit code 0.

use crate::Failure;
use clap::{error::ErrorKind, ArgMatches, Command};
use std::ffi::OsString;
use std::path::PathBuf;

/// Parses the arguments, or gives `None` where help or the version was asked for and has been printed.
///
/// # Errors
/// [`Failure::BadArguments`] naming the argument at fault.
pub fn parse<I>(command: Command, arguments: I) -> Result<Option<ArgMatches>, Failure>
where
    I: IntoIterator,
    I::Item: Into<OsString> + Clone,
{
    let name = command.get_name().to_owned();
    match command.try_get_matches_from(arguments) {
        Ok(matches) => Ok(Some(matches)),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            error.print().map_err(|cause| Failure::of("cannot print the help", cause))?;
            Ok(None)
        }
        Err(error) => Err(Failure::BadArguments(sentence(&name, &error))),
    }
}

/// clap's message without its paragraphs: what is wrong, then where to look.
fn sentence(name: &str, error: &clap::Error) -> String {
    let text = error.to_string();
    let about = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = about.trim_start_matches("error: ").split_whitespace().collect();
    format!("{} (see `{name} --help`)", words.join(" "))
}

/// The value of an argument that has a default or is required.
///
/// # Panics
/// If the argument was declared with neither, which the first test of any command line shows.
#[must_use]
pub fn value<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, name: &str) -> T {
    optional(matches, name).unwrap_or_else(|| panic!("--{name} has neither a value nor a default"))
}

/// The value of an argument that may be missing.
#[must_use]
pub fn optional<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, name: &str) -> Option<T> {
    matches.get_one::<T>(name).cloned()
}

/// A path argument that may be missing.
#[must_use]
pub fn optional_path(matches: &ArgMatches, name: &str) -> Option<PathBuf> {
    optional(matches, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    fn command() -> Command {
        Command::new("probe")
            .arg(Arg::new("size").long("size").required(true).value_parser(clap::value_parser!(u64)))
    }

    #[test]
    fn a_wrong_value_is_one_sentence_naming_it() {
        let failure = parse(command(), ["probe", "--size", "big"]).unwrap_err();
        assert_eq!(failure.exit_code(), 2);
        let text = failure.to_string();
        assert!(text.contains("'big'") && text.contains("--size") && !text.contains('\n'), "{text}");
    }

    #[test]
    fn a_missing_argument_is_named() {
        let text = parse(command(), ["probe"]).unwrap_err().to_string();
        assert!(text.contains("--size") && text.contains("probe --help") && !text.contains('\n'), "{text}");
    }
}
