//! The command line of `pcprefault`.

use crate::method::{Method, METHODS};
use clap::{value_parser, Arg, ArgMatches, Command};
use contract::bytesum::{self, Sum};
use contract::command_line::{optional, optional_path, parse, value};
use contract::options::{choice, flag, handshake, named, no_handshake, number, path, seconds, Choice};
use contract::{Failure, Handshake};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What `pcprefault` is asked to do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The file that will be wanted.
    pub file: PathBuf,
    /// The sidecar that knows its sum.
    pub sidecar: Option<PathBuf>,
    /// How it is loaded ahead.
    pub method: Method,
    /// When that happens.
    pub when: When,
    /// By so many threads; none loads nothing ahead.
    pub prefault_threads: usize,
    /// Used by so many threads, each a part of its own.
    pub compute_threads: usize,
    /// Which compute before they use it, all together, so long.
    pub compute: Compute,
    /// How the bytes are added up.
    pub sum: SumKind,
    /// In so many processes; none: in this one.
    pub processes: Option<usize>,
    /// Each of which starts after the one before.
    pub stagger: Stagger,
    /// Each thread kept on a CPU of its own, or left to the scheduler.
    pub pinned: bool,
    /// Talking with whoever started it, or not.
    pub handshake: Handshake,
}

/// When the file is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// All of it before anybody computes.
    Before,
    /// While the others compute.
    Beside,
}

/// How much is computed before the file is used, CPU time of all threads together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Compute {
    /// So long.
    Time(Duration),
    /// So many seconds for each GiB of the file.
    SecondsPerGib(f64),
}

/// How the bytes are added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SumKind {
    /// As fast as this CPU can.
    Simd,
    /// One by one.
    Byte,
}

/// When the next process begins to load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stagger {
    /// So long after the one before began.
    After(Duration),
    /// When the one before has done.
    Loaded,
}

const WHENS: &[Choice<When>] = &[("before", When::Before), ("beside", When::Beside)];
const SUMS: &[Choice<SumKind>] = &[("simd", SumKind::Simd), ("byte", SumKind::Byte)];
/// More of either than this would mostly wait for each other.
const MOST: u64 = 256;

const EXAMPLES: &str = "\
Examples:
  pcprefault --file data.bin --method map-populate --no-handshake
  pcprefault --file data.bin --method touch --when beside --compute-threads 3 --compute-seconds 2 --no-handshake
  pcprefault --file data.bin --method populate-read --processes 4 --stagger-ms 500 --no-handshake

Exit codes: 0 done, 1 failed or wrong checksum, 2 bad arguments, 77 cannot on this host.";

impl SumKind {
    /// The function that does it.
    #[must_use]
    pub fn function(self) -> Sum {
        match self {
            Self::Simd => bytesum::fastest(),
            Self::Byte => bytesum::plain,
        }
    }

    /// Its name as it is typed.
    #[must_use]
    pub fn name(self) -> &'static str {
        SUMS.iter().find(|choice| choice.1 == self).unwrap_or(&SUMS[0]).0
    }
}

impl Compute {
    /// How long, for a file of this length.
    #[must_use]
    pub fn for_bytes(self, length_bytes: usize) -> Duration {
        match self {
            Self::Time(time) => time,
            Self::SecondsPerGib(seconds) => {
                Duration::from_secs_f64(seconds * length_bytes as f64 / f64::from(1 << 30))
            }
        }
    }
}

/// Reads the arguments; `None` where only help was asked for.
///
/// # Errors
/// [`Failure::BadArguments`] naming the argument at fault.
pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Option<Plan>, Failure> {
    let Some(matches) = parse(command(), arguments)? else {
        return Ok(None);
    };
    let plan = plan(&matches);
    check(&plan)?;
    Ok(Some(plan))
}

fn plan(matches: &ArgMatches) -> Plan {
    let name = |option: &str| value::<String>(matches, option);
    let count = |option: &str| usize::try_from(value::<u64>(matches, option)).unwrap_or(usize::MAX);
    let stagger = Stagger::After(Duration::from_millis(value(matches, "stagger-ms")));
    Plan {
        file: value(matches, "file"),
        sidecar: optional_path(matches, "expect-sidecar"),
        method: named(METHODS, &name("method")),
        when: named(WHENS, &name("when")),
        prefault_threads: count("prefault-threads"),
        compute_threads: count("compute-threads"),
        compute: compute(matches),
        sum: named(SUMS, &name("sum")),
        processes: optional::<u64>(matches, "processes").and_then(|number| usize::try_from(number).ok()),
        stagger: if matches.get_flag("stagger-loaded") { Stagger::Loaded } else { stagger },
        pinned: !matches.get_flag("unpinned"),
        handshake: handshake(matches),
    }
}

fn compute(matches: &ArgMatches) -> Compute {
    let per_gib = optional::<Duration>(matches, "compute-seconds-per-gib");
    per_gib.map_or_else(
        || Compute::Time(value(matches, "compute-seconds")),
        |time| Compute::SecondsPerGib(time.as_secs_f64()),
    )
}

fn check(plan: &Plan) -> Result<(), Failure> {
    let refuse = |why: &str| Err(Failure::BadArguments(why.to_owned()));
    if plan.method.makes_memory() && plan.prefault_threads > 1 {
        return refuse("this method is a single call: it needs --prefault-threads 1 or 0");
    }
    if plan.method.makes_memory() && plan.when == When::Beside && plan.prefault_threads > 0 {
        return refuse(
            "this method makes the memory itself, so nothing can go on beside it: use --when before",
        );
    }
    Ok(())
}

fn command() -> Command {
    Command::new("pcprefault")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Loads a file ahead of its use, then uses every byte of it, and reports what each cost")
        .after_help(EXAMPLES)
        .arg(path("file").required(true).help("The file that will be wanted"))
        .arg(path("expect-sidecar").help("Its bytes must add up to what this sidecar says"))
        .args(how_it_is_loaded())
        .args(how_it_is_used())
        .args(by_whom())
        .arg(flag("unpinned").help("Leave the threads to the scheduler, as several processes do"))
        .arg(no_handshake())
}

fn how_it_is_loaded() -> [Arg; 3] {
    [
        choice("method", METHODS).help("How it is loaded ahead"),
        choice("when", WHENS).help("Before anybody computes, or beside it"),
        count("prefault-threads", 0)
            .default_value("1")
            .help("Each loads a part of its own; 0 loads nothing ahead"),
    ]
}

fn how_it_is_used() -> [Arg; 4] {
    [
        count("compute-threads", 1).default_value("1").help("Each computes, then adds up a part of its own"),
        seconds("compute-seconds").default_value("0").help("Computing before the use, all threads together"),
        seconds("compute-seconds-per-gib")
            .conflicts_with("compute-seconds")
            .help("The same, in proportion to the file's length"),
        choice("sum", SUMS).help("Add up as fast as possible, or byte by byte"),
    ]
}

fn by_whom() -> [Arg; 3] {
    [
        count("processes", 1).help("So many processes of their own, each doing all of this"),
        number("stagger-ms", 0).default_value("0").help("Each begins so long after the one before"),
        flag("stagger-loaded").conflicts_with("stagger-ms").help("Each begins when the one before has done"),
    ]
}

fn count(name: &'static str, least: u64) -> Arg {
    number(name, least).value_parser(value_parser!(u64).range(least..=MOST))
}
