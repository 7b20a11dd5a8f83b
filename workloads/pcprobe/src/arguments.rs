//! The command line of `pcprobe`.

use crate::sizes::parse_size_bytes;
use clap::{value_parser, Arg, ArgMatches, Command};
use contract::command_line::{optional, optional_path, parse, value};
use contract::options::{choice, flag, named, path, Choice};
use contract::Failure;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What `pcprobe` is asked to do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The folder on the disk to be measured.
    pub folder: PathBuf,
    /// How large its own file there may become.
    pub size_bytes: u64,
    /// How long all phases may take together.
    pub time: Duration,
    /// What drives the disk.
    pub engine: Wish,
    /// Where the JSON goes; stdout when none.
    pub out: Option<PathBuf>,
    /// Whether somebody has agreed already.
    pub yes: bool,
    /// Whether the JSON names the host.
    pub name_host: bool,
}

/// What is to drive the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// fio where there is one, the program's own loop otherwise.
    Auto,
    /// The program's own loop: `io_uring` where it is allowed, threads otherwise.
    Own,
    /// fio.
    Fio,
    /// The program's own loop on `io_uring`.
    IoUring,
    /// The program's own loop of threads that call pread(2) and pwrite(2).
    Threads,
}

const WISHES: &[Choice<Wish>] = &[
    ("auto", Wish::Auto),
    ("own", Wish::Own),
    ("fio", Wish::Fio),
    ("io_uring", Wish::IoUring),
    ("threads", Wish::Threads),
];

/// Less than this measures nothing.
const LEAST_SECONDS: u64 = 5;
/// A day: a bucket of credits is never larger.
const MOST_SECONDS: u64 = 86_400;

const EXAMPLES: &str = "\
Examples:
  pcprobe /var/lib/mysql --out probe.json               asks, then measures for a minute in a file of 1 GiB
  pcprobe /data --seconds 7200 --yes > probe.json       long enough for half an hour of burst credits to run out
  pcprobe /data --size 256MiB --engine own --yes        without fio, on a small disk

Exit codes: 0 done, 1 failed, 2 bad arguments, 77 cannot on this host, 130 interrupted.";

/// Reads the arguments; `None` where only help was asked for.
///
/// # Errors
/// [`Failure::BadArguments`] naming the argument at fault.
pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Option<Plan>, Failure> {
    Ok(parse(command(), arguments)?.as_ref().map(plan))
}

fn plan(matches: &ArgMatches) -> Plan {
    Plan {
        folder: value(matches, "dir"),
        size_bytes: value(matches, "size"),
        time: Duration::from_secs(value(matches, "seconds")),
        engine: named(WISHES, &value::<String>(matches, "engine")),
        out: optional_path(matches, "out"),
        yes: optional(matches, "yes").unwrap_or(false),
        name_host: optional(matches, "name-host").unwrap_or(false),
    }
}

fn command() -> Command {
    let folder = Arg::new("dir").value_name("DIR").required(true).value_parser(value_parser!(PathBuf));
    let size = Arg::new("size").long("size").value_name("SIZE").value_parser(parse_size_bytes);
    let seconds = Arg::new("seconds").long("seconds").value_name("N");
    let range = value_parser!(u64).range(LEAST_SECONDS..=MOST_SECONDS);
    Command::new("pcprobe")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Measures what a disk gives under the limits that it stands under, and says so in one JSON")
        .after_help(EXAMPLES)
        .arg(folder.help("A folder on the disk to be measured, in which you may write"))
        .arg(flag("yes").help("Begin without asking"))
        .arg(size.default_value("1GiB").help("How large its own file there may be, as in 256MiB or 2GB"))
        .arg(seconds.default_value("60").value_parser(range).help("How long all of it may take"))
        .arg(path("out").help("Write the JSON into this file instead of standard output"))
        .arg(choice("engine", WISHES).help("What drives the disk; auto is fio where there is one"))
        .arg(flag("name-host").help("Let the JSON name the host and the folder; it names neither otherwise"))
}
