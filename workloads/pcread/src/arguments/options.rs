//! The options themselves: names, values, help.

use super::SumKind;
use crate::order::Pattern;
use crate::source::{Advice, Kind};
use clap::builder::PossibleValuesParser;
use clap::{value_parser, Arg, ArgAction, Command};
use std::path::PathBuf;
use std::time::Duration;

/// A choice as it is typed, and what it means. The first one is the default.
pub type Choice<T> = (&'static str, T);

pub const SOURCES: &[Choice<Kind>] = &[("mmap", Kind::Mmap), ("heap", Kind::Heap)];
pub const PATTERNS: &[Choice<Pattern>] = &[("sequential", Pattern::Sequential), ("random", Pattern::Random)];
pub const SUMS: &[Choice<SumKind>] =
    &[("simd", SumKind::Simd), ("byte", SumKind::Byte), ("touch", SumKind::Touch)];
pub const ADVICES: &[Choice<Advice>] = &[
    ("normal", Advice::Normal),
    ("random", Advice::Random),
    ("sequential", Advice::Sequential),
    ("willneed", Advice::WillNeed),
    ("populate-read", Advice::PopulateRead),
];

/// A thread for each of more CPUs than this would mostly wait for the others.
const MOST_THREADS: u64 = 1024;

const EXAMPLES: &str = "\
Examples:
  pcread --file data.bin --pattern random --no-handshake         every block once, straight away
  pcread --file data.bin --source heap --expect-sidecar data.bin.json --no-handshake
  pcread --file data.bin --pattern random --max-seconds 15       wait for `go` on stdin, then read 15 s at most
  pcread --file data.bin --pattern random --threads 4 --self-test

Exit codes: 0 done, 1 failed or wrong checksum, 2 bad arguments, 77 cannot on this host.";

/// What a choice means. The parser lets only known names through.
pub fn named<T: Copy>(choices: &[Choice<T>], name: &str) -> T {
    choices.iter().find(|choice| choice.0 == name).unwrap_or(&choices[0]).1
}

pub fn command() -> Command {
    Command::new("pcread")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Reads a working set in blocks, from the heap or from a mapped file, and reports what it cost")
        .after_help(EXAMPLES)
        .arg(path("file").required(true).help("The file that holds the working set"))
        .args(what_is_read())
        .args(how_it_is_read())
        .args(how_it_is_checked())
}

fn what_is_read() -> [Arg; 3] {
    [
        choice("source", SOURCES).help("Read the mapped file, or memory filled from it"),
        number("size-bytes", 1).help("Only the first N bytes of the file"),
        choice("advice", ADVICES).help("What the kernel is told about the mapping beforehand, madvise(2)"),
    ]
}

fn how_it_is_read() -> [Arg; 8] {
    [
        choice("pattern", PATTERNS).help("In order, or every block exactly once in a random order"),
        number("block-bytes", 1).default_value("4096").help("Length of a block; the last one may be short"),
        number("threads", 1)
            .value_parser(value_parser!(u64).range(1..=MOST_THREADS))
            .default_value("1")
            .help("Each reads a part of its own"),
        choice("sum", SUMS)
            .help("Add up as fast as possible, byte by byte, or look at one byte of each page"),
        number("passes", 1).default_value("1").help("How often all of it is read"),
        Arg::new("max-seconds")
            .long("max-seconds")
            .value_name("S")
            .allow_hyphen_values(true)
            .value_parser(duration)
            .help("Stop after so long, at the end of a block"),
        number("seed", 0).default_value("1").help("The same seed gives the same random order"),
        number("fault-every", 0)
            .default_value("64")
            .help("Time one in K blocks on average; 0 times none")
            .value_name("K"),
    ]
}

fn how_it_is_checked() -> [Arg; 4] {
    [
        path("expect-sidecar")
            .conflicts_with("expect-checksum")
            .help("A full pass must add up to what this sidecar says"),
        number("expect-checksum", 0).help("A full pass must add up to this"),
        flag("no-handshake").help("Start at once and leave at once, for use by hand"),
        flag("self-test").help("Only prove that every block would be visited exactly once"),
    ]
}

fn choice<T: Copy>(name: &'static str, choices: &'static [Choice<T>]) -> Arg {
    let names = choices.iter().map(|choice| choice.0);
    Arg::new(name).long(name).value_parser(PossibleValuesParser::new(names)).default_value(choices[0].0)
}

fn number(name: &'static str, least: u64) -> Arg {
    Arg::new(name).long(name).value_name("N").value_parser(value_parser!(u64).range(least..))
}

fn path(name: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("FILE").value_parser(value_parser!(PathBuf))
}

fn flag(name: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue)
}

fn duration(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    let duration = Duration::try_from_secs_f64(seconds).map_err(|cause| cause.to_string())?;
    (duration > Duration::ZERO).then_some(duration).ok_or_else(|| "must be above zero".to_owned())
}
