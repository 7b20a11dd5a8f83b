//! Command lines: parsing, the exit code of `main`, and values that several workloads read.
//!
//! A wrong argument is reported in one sentence with exit code 2. `--help` prints the help and
//! exits with 0.

use crate::failure::{conclude, OrFailure};
use crate::Failure;
use clap::{error::ErrorKind, Args, Command, Parser, ValueEnum};
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

/// The command line of a program.
pub trait CommandLine: Parser {
    /// Check what the parser cannot: options that contradict each other.
    ///
    /// # Errors
    /// [`Failure::BadArguments`] naming the options at fault.
    fn validate(&self) -> Result<(), Failure> {
        Ok(())
    }
}

/// Parse the process's own arguments, do the work, report a failure on stderr, and return the exit
/// code of `main`.
pub fn run<A: CommandLine>(work: impl FnOnce(&A) -> Result<(), Failure>) -> ExitCode {
    let outcome = parse::<A>(std::env::args_os())
        .and_then(|arguments| arguments.as_ref().map_or(Ok(()), work));
    conclude(A::command().get_name(), outcome)
}

/// Parse and validate arguments. None if help or the version was requested, which has been printed
/// then.
///
/// # Errors
/// [`Failure::BadArguments`] naming the argument at fault.
pub fn parse<A: CommandLine>(
    arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<Option<A>, Failure> {
    match A::try_parse_from(arguments) {
        Ok(arguments) => arguments.validate().map(|()| Some(arguments)),
        Err(error)
            if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) =>
        {
            error.print().or_failed("cannot print the help").map(|()| None)
        }
        Err(error) => Err(Failure::BadArguments(sentence(A::command().get_name(), &error))),
    }
}

/// Parse one group of options from words separated by blanks. Tests use it to build options with
/// their defaults.
///
/// # Errors
/// Output of the parser.
pub fn options_from<A: Args>(words: &str) -> Result<A, clap::Error> {
    let command = A::augment_args(Command::new("options").no_binary_name(true));
    A::from_arg_matches(&command.try_get_matches_from(words.split_whitespace())?)
}

/// A number of seconds, zero included.
///
/// # Errors
/// A sentence if the text is not a number, or the number is negative or too large.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|cause| cause.to_string())
}

/// Return the name of a choice as it is typed.
#[must_use]
pub fn name_of(choice: &impl ValueEnum) -> String {
    choice.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// clap's message without its paragraphs: the mistake, then where to look.
fn sentence(name: &str, error: &clap::Error) -> String {
    let text = error.to_string();
    let mistake = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = mistake.trim_start_matches("error: ").split_whitespace().collect();
    format!("{} (see `{name} --help`)", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Handshake;
    use clap::CommandFactory;

    /// A program for tests
    #[derive(Debug, Parser)]
    #[command(name = "probe", version)]
    struct Probe {
        #[command(flatten)]
        more: More,
        #[command(flatten)]
        handshake: Handshake,
    }

    /// Options whose comment is not the program's help.
    #[derive(Debug, Args)]
    struct More {
        /// A size
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
        size: u64,
        /// A time
        #[arg(long, value_parser = seconds, allow_hyphen_values = true)]
        time: Option<Duration>,
        /// A colour
        #[arg(long, value_enum, default_value = "red")]
        colour: Colour,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
    enum Colour {
        Red,
        Blue,
    }

    impl CommandLine for Probe {
        fn validate(&self) -> Result<(), Failure> {
            match self.more.size {
                13 => Err(Failure::BadArguments("unlucky".to_owned())),
                _ => Ok(()),
            }
        }
    }

    fn refusal(words: &str) -> String {
        let failure = parse::<Probe>(words.split_whitespace()).unwrap_err();
        assert_eq!(failure.exit_code(), 2);
        let text = failure.to_string();
        assert!(!text.contains('\n'), "{text}");
        text
    }

    #[test]
    fn a_wrong_value_is_one_sentence_naming_it() {
        let text = refusal("probe --size big");
        assert!(text.contains("'big'") && text.contains("--size"), "{text}");
    }

    #[test]
    fn a_missing_argument_is_named() {
        let text = refusal("probe");
        assert!(text.contains("--size") && text.contains("probe --help"), "{text}");
    }

    #[test]
    fn contradictions_are_refused_after_parsing() {
        assert_eq!(refusal("probe --size 13"), "unlucky");
    }

    #[test]
    fn the_help_is_the_programs_own() {
        let help = Probe::command().render_help().to_string();
        assert!(help.starts_with("A program for tests\n"), "{help}");
    }

    #[test]
    fn times_are_seconds_and_never_negative() {
        let found = options_from::<More>("--size 1 --time 0.25").unwrap();
        assert_eq!(found.time, Some(Duration::from_millis(250)));
        assert!(options_from::<More>("--size 1 --time 0").is_ok());
        for wrong in ["-1", "soon", "NaN", "1e300"] {
            assert!(options_from::<More>(&format!("--size 1 --time {wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_below_the_least_are_refused() {
        assert_eq!(options_from::<More>("--size 1").unwrap().size, 1);
        assert!(options_from::<More>("--size 0").is_err());
    }

    #[test]
    fn choices_are_named_and_have_a_default() {
        let colour = |words: &str| options_from::<More>(words).unwrap().colour;
        assert_eq!(
            [colour("--size 1"), colour("--size 1 --colour blue")],
            [Colour::Red, Colour::Blue]
        );
        assert_eq!(name_of(&Colour::Blue), "blue");
    }
}
