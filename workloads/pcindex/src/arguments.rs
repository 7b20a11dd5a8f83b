//! The command line of `pcindex`.

use crate::load::Load;
use clap::{value_parser, Arg, ArgMatches, Command};
use contract::command_line::{optional, parse, value};
use contract::options::{self, choice, flag, length, named, number, Choice};
use contract::{Failure, Handshake};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What `pcindex` is asked to do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The index: every file a table of its own, with its sidecar beside it.
    pub files: Vec<PathBuf>,
    /// How it is brought into memory.
    pub load: Load,
    /// What the kernel is told about the mappings beforehand.
    pub advice: Advice,
    /// What it is told between loading and looking up.
    pub then_advice: Option<Advice>,
    /// How many of the start-up set's keys are looked up; all, where none is said.
    pub lookups: Option<u64>,
    /// Drawing every random order from this.
    pub seed: u64,
    /// So many files at once, where files are loaded in parallel.
    pub parallel_files: usize,
    /// Loading in pieces of so many bytes.
    pub block_bytes: usize,
    /// Comparing what was read with the sidecars' sums.
    pub expect_sidecars: bool,
    /// Stopping after so long.
    pub max_duration: Option<Duration>,
    /// Timing one in so many lookups.
    pub time_every: u64,
    /// Talking with whoever started it, or not.
    pub handshake: Handshake,
}

/// What the kernel is told about a mapping, madvise(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// `MADV_NORMAL`: a fault reads around itself.
    Normal,
    /// `MADV_RANDOM`: a fault reads its own page alone.
    Random,
    /// `MADV_SEQUENTIAL`: a fault reads ahead and does not give up.
    Sequential,
}

const LOADS: &[Choice<Load>] = &[
    ("lazy", Load::Lazy),
    ("sequential", Load::Sequential),
    ("parallel", Load::Parallel),
    ("touch", Load::Touch),
    ("populate", Load::Populate),
    ("willneed", Load::WillNeed),
    ("none", Load::None),
];
const ADVICES: &[Choice<Advice>] =
    &[("normal", Advice::Normal), ("random", Advice::Random), ("sequential", Advice::Sequential)];
const THEN: &[Choice<Option<Advice>>] = &[
    ("same", None),
    ("normal", Some(Advice::Normal)),
    ("random", Some(Advice::Random)),
    ("sequential", Some(Advice::Sequential)),
];

const MOST_THREADS: u64 = 1024;

/// A piece of loading is a whole number of pages, whatever their size.
const LEAST_BLOCK_BYTES: u64 = 64 << 10;

const EXAMPLES: &str = "\
Loads:
  lazy         every bucket is looked up once, in a random order
  sequential   each file is read from front to back, read(2)
  parallel     the same, --parallel-files files at a time
  touch        one byte of each page of the mappings, from front to back
  populate     MADV_POPULATE_READ (Linux 5.14), piece by piece
  willneed     MADV_WILLNEED in pieces of 128 KiB, which only begins to read
  none         nothing is loaded

Examples:
  pcindex --files index-*.bin --load sequential --no-handshake
  pcindex --files index-*.bin --load lazy --advice random --max-seconds 60 --no-handshake
  pcindex --files index-*.bin --load touch --advice sequential --then-advice normal --no-handshake

Exit codes: 0 done, 1 failed or wrong answer, 2 bad arguments, 77 cannot on this host.";

/// Reads the arguments; `None` where only help was asked for.
///
/// # Errors
/// [`Failure::BadArguments`] naming the argument at fault.
pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Option<Plan>, Failure> {
    let Some(matches) = parse(command(), arguments)? else {
        return Ok(None);
    };
    plan(&matches).map(Some)
}

fn plan(matches: &ArgMatches) -> Result<Plan, Failure> {
    let name = |option: &str| value::<String>(matches, option);
    let block_bytes = value::<u64>(matches, "block-bytes");
    if block_bytes % LEAST_BLOCK_BYTES != 0 {
        return Err(Failure::BadArguments("--block-bytes must be a multiple of 65536".to_owned()));
    }
    Ok(Plan {
        files: matches.get_many("files").into_iter().flatten().cloned().collect(),
        load: named(LOADS, &name("load")),
        advice: named(ADVICES, &name("advice")),
        then_advice: named(THEN, &name("then-advice")),
        lookups: value::<Lookups>(matches, "lookups").0,
        seed: value(matches, "seed"),
        parallel_files: length(value(matches, "parallel-files"))?,
        block_bytes: length(block_bytes)?,
        expect_sidecars: matches.get_flag("expect-sidecars"),
        max_duration: optional::<Duration>(matches, "max-seconds"),
        time_every: value(matches, "time-every"),
        handshake: options::handshake(matches),
    })
}

/// A number, or none for all.
#[derive(Debug, Clone, Copy)]
struct Lookups(Option<u64>);

fn lookups(text: &str) -> Result<Lookups, String> {
    if text == "all" {
        return Ok(Lookups(None));
    }
    text.parse().map(|count| Lookups(Some(count))).map_err(|_| "neither a number nor \"all\"".to_owned())
}

fn command() -> Command {
    Command::new("pcindex")
        .version(env!("CARGO_PKG_VERSION"))
        .about(
            "Loads an index of mapped hash tables, looks its start-up set up, and reports how long that took",
        )
        .after_help(EXAMPLES)
        .args(how_it_is_loaded())
        .args(what_is_looked_up())
        .arg(options::no_handshake())
}

fn how_it_is_loaded() -> [Arg; 6] {
    [
        Arg::new("files")
            .long("files")
            .value_name("FILE")
            .num_args(1..)
            .required(true)
            .value_parser(value_parser!(PathBuf))
            .help("The index, made by `pcgen --fill index`, each file with its sidecar beside it"),
        choice("load", LOADS).help("How the index is brought into memory"),
        choice("advice", ADVICES).help("What the kernel is told about the mappings beforehand, madvise(2)"),
        choice("then-advice", THEN).help("What it is told between loading and looking up"),
        number("parallel-files", 1)
            .value_parser(value_parser!(u64).range(1..=MOST_THREADS))
            .default_value("4")
            .help("So many files at once, with --load parallel"),
        number("block-bytes", LEAST_BLOCK_BYTES)
            .default_value("1048576")
            .help("Load in pieces of so many bytes"),
    ]
}

fn what_is_looked_up() -> [Arg; 5] {
    [
        Arg::new("lookups").long("lookups").value_name("N").value_parser(lookups).default_value("all").help(
            "How many keys of the start-up set, which has one for each bucket, are looked up after loading",
        ),
        number("seed", 0).default_value("1").help("The same seed gives the same random orders"),
        number("time-every", 0).default_value("8").help("Time one in N lookups on average; 0 times none"),
        options::seconds("max-seconds").help("Stop after so long"),
        flag("expect-sidecars").help("What read(2) brings must add up to what the sidecars say"),
    ]
}
