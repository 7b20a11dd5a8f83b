//! The command line of `pcwrite`.

use clap::{ArgMatches, Command};
use contract::amount;
use contract::command_line::{optional, parse, value};
use contract::options::{choice, handshake, named, no_handshake, number, path, seconds, Choice};
use contract::{Failure, Handshake};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What `pcwrite` is asked to do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where its file is made. It has no name there as soon as it is open, so that it goes with the process.
    pub folder: PathBuf,
    /// How long the file is.
    pub size_bytes: u64,
    /// How it is written.
    pub method: Method,
    /// In which order.
    pub pattern: Pattern,
    /// How it is settled.
    pub sync: Sync,
    /// After every so many pages and at the end; only at the end when none.
    pub every_pages: Option<u64>,
    /// So many times.
    pub passes: u64,
    /// But no longer than this.
    pub max_duration: Option<Duration>,
    /// Drawing content and order from this.
    pub seed: u64,
    /// Talking with whoever started it, or not.
    pub handshake: Handshake,
}

/// How a page is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// By storing into a shared mapping.
    Mmap,
    /// By pwrite(2).
    Pwrite,
}

/// In which order pages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Front to back.
    Sequential,
    /// Every page once, in an order drawn from the seed.
    Random,
}

/// How what was written is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// Not at all.
    None,
    /// `MS_ASYNC`, or `sync_file_range(2)` that begins to write.
    Async,
    /// `MS_SYNC`, or fdatasync(2), which is what the kernel makes of `MS_SYNC`.
    Sync,
}

const METHODS: &[Choice<Method>] = &[("mmap", Method::Mmap), ("pwrite", Method::Pwrite)];
const PATTERNS: &[Choice<Pattern>] = &[("sequential", Pattern::Sequential), ("random", Pattern::Random)];
const SYNCS: &[Choice<Sync>] = &[("none", Sync::None), ("async", Sync::Async), ("sync", Sync::Sync)];

const EXAMPLES: &str = "\
Examples:
  pcwrite --dir /data --bytes 67108864 --msync sync --no-handshake
  pcwrite --dir /data --size-of /data/file --fraction 0.5 --pattern random --msync async --every-pages 256 --no-handshake
  pcwrite --dir /data --bytes 67108864 --method pwrite --msync sync --no-handshake     fdatasync(2) instead of msync(2)

Exit codes: 0 done, 1 failed or read back wrong, 2 bad arguments, 77 cannot on this host.";

/// Reads the arguments; `None` where only help was asked for.
///
/// # Errors
/// [`Failure::BadArguments`] naming the argument at fault.
pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Option<Plan>, Failure> {
    parse(command(), arguments)?.as_ref().map(plan).transpose()
}

fn plan(matches: &ArgMatches) -> Result<Plan, Failure> {
    let name = |option: &str| value::<String>(matches, option);
    Ok(Plan {
        folder: value(matches, "dir"),
        size_bytes: amount::bytes(matches)?,
        method: named(METHODS, &name("method")),
        pattern: named(PATTERNS, &name("pattern")),
        sync: named(SYNCS, &name("msync")),
        every_pages: optional(matches, "every-pages"),
        passes: value(matches, "passes"),
        max_duration: optional(matches, "max-seconds"),
        seed: value(matches, "seed"),
        handshake: handshake(matches),
    })
}

fn command() -> Command {
    Command::new("pcwrite")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Writes a file through a mapping or by calls, and reports what that cost and what reached the disk")
        .after_help(EXAMPLES)
        .arg(path("dir").required(true).help("Where its own file is made, which has no name and goes with it"))
        .args(amount::arguments())
        .arg(choice("method", METHODS).help("Store into a shared mapping, or call pwrite(2)"))
        .arg(choice("pattern", PATTERNS).help("In order, or every page once in a random order"))
        .arg(choice("msync", SYNCS).help("How it is settled: msync(2), or its like where pwrite(2) is called"))
        .arg(number("every-pages", 1).help("Settle after every N pages too, not only at the end"))
        .arg(number("passes", 1).default_value("1").help("How often all of it is written"))
        .arg(seconds("max-seconds").help("Stop after so long"))
        .arg(number("seed", 0).default_value("1").help("The same seed gives the same bytes and order"))
        .arg(no_handshake())
}
