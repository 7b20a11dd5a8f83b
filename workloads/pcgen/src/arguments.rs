//! The command line of `pcgen`.

use crate::{Fill, Request};
use clap::builder::PossibleValuesParser;
use clap::{value_parser, Arg, ArgAction, Command};
use contract::command_line::{optional_path, parse, value};
use contract::Failure;
use std::ffi::OsString;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  pcgen --out data.bin --size-bytes 134217728 --seed 1     make 128 MiB, or find it there already
  pcgen --out data.bin --size-bytes 4096 --seed 2 --force  replace it
  pcgen --out i.bin --size-bytes 2097152 --fill index      a hash table with verifiable entries
  pcgen --verify data.bin                                  read it back and compare with data.bin.json

Exit codes: 0 done, 1 failed, 2 bad arguments.";

/// What `pcgen` is asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// Make a dataset.
    Make(Request),
    /// Compare a dataset with its sidecar.
    Verify(PathBuf),
}

/// Reads the arguments; `None` where only help was asked for.
///
/// # Errors
/// [`Failure::BadArguments`] naming the argument at fault.
pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Option<Task>, Failure> {
    let Some(matches) = parse(command(), arguments)? else {
        return Ok(None);
    };
    if let Some(data) = optional_path(&matches, "verify") {
        return Ok(Some(Task::Verify(data)));
    }
    Ok(Some(Task::Make(Request {
        out: value(&matches, "out"),
        size_bytes: value(&matches, "size-bytes"),
        seed: value(&matches, "seed"),
        fill: Fill::named(&value::<String>(&matches, "fill")).unwrap_or(Fill::Random),
        force: matches.get_flag("force"),
    })))
}

fn command() -> Command {
    Command::new("pcgen")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Makes a dataset: incompressible, without holes, with a sidecar that says what a reader must find")
        .after_help(EXAMPLES)
        .arg(path("out").required_unless_present("verify").help("The data file; its sidecar becomes FILE.json"))
        .arg(
            number("size-bytes")
                .required_unless_present("verify")
                .value_parser(value_parser!(u64).range(1..))
                .help("Length of the data"),
        )
        .arg(number("seed").default_value("1").help("The same seed gives the same bytes"))
        .arg(
            Arg::new("fill")
                .long("fill")
                .value_parser(PossibleValuesParser::new(Fill::ALL.map(Fill::name)))
                .default_value("random")
                .help("Random bytes, zero bytes, or a hash table for `pcindex`"),
        )
        .arg(Arg::new("force").long("force").action(ArgAction::SetTrue).help("Replace another file of that name"))
        .arg(path("verify").conflicts_with_all(["out", "size-bytes", "force"]).help("Compare FILE with its sidecar"))
}

fn path(name: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("FILE").value_parser(value_parser!(PathBuf))
}

fn number(name: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("N").value_parser(value_parser!(u64))
}
