//! The command line of `pcread`.

mod options;

use crate::order::Pattern;
use crate::source::{Advice, Kind};
use clap::ArgMatches;
use contract::bytesum::{self, Sum};
use contract::command_line::{optional, optional_path, parse, value};
use contract::{Failure, Handshake};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What `pcread` is asked to do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The file that holds the working set.
    pub file: PathBuf,
    /// Where it is read from.
    pub source: Kind,
    /// In which order.
    pub pattern: Pattern,
    /// In blocks of so many bytes.
    pub block_bytes: usize,
    /// By so many threads.
    pub threads: usize,
    /// After this hint to the kernel.
    pub advice: Advice,
    /// With this work on every block.
    pub sum: SumKind,
    /// So many times.
    pub passes: u64,
    /// But no longer than this, all passes together.
    pub max_duration: Option<Duration>,
    /// Drawing every random choice from this.
    pub seed: u64,
    /// Only the first so many bytes of the file.
    pub size_bytes: Option<u64>,
    /// Comparing the sum of a full pass with this.
    pub expected: Expected,
    /// Timing one in so many blocks.
    pub fault_every: u64,
    /// Talking with whoever started it, or not.
    pub handshake: Handshake,
    /// Only proving that every block would be visited once.
    pub self_test: bool,
}

/// What is done with the bytes of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SumKind {
    /// Added up one by one.
    Byte,
    /// Added up as fast as this CPU can.
    Simd,
    /// One byte of each page is looked at.
    Touch,
}

/// What a full pass must add up to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// Nobody knows.
    Nothing,
    /// This.
    Sum(u64),
    /// What this sidecar says.
    Sidecar(PathBuf),
}

impl SumKind {
    /// The function that does it.
    #[must_use]
    pub fn function(self) -> Sum {
        match self {
            Self::Byte => bytesum::plain,
            Self::Simd => bytesum::fastest(),
            Self::Touch => touch,
        }
    }

    /// Whether its result is the sum of all bytes.
    #[must_use]
    pub fn sums_bytes(self) -> bool {
        self != Self::Touch
    }
}

/// Pages are 4 KiB at least; where they are larger, a few are looked at more than once.
#[inline(never)]
fn touch(block: &[u8]) -> u64 {
    let block = std::hint::black_box(block);
    std::hint::black_box(block.iter().step_by(4096).map(|byte| u64::from(*byte)).sum())
}

/// Reads the arguments; `None` where only help was asked for.
///
/// # Errors
/// [`Failure::BadArguments`] naming the argument at fault.
pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Option<Plan>, Failure> {
    let Some(matches) = parse(options::command(), arguments)? else {
        return Ok(None);
    };
    let plan = plan(&matches)?;
    check(&plan)?;
    Ok(Some(plan))
}

fn plan(matches: &ArgMatches) -> Result<Plan, Failure> {
    let name = |option: &str| value::<String>(matches, option);
    Ok(Plan {
        file: value(matches, "file"),
        source: options::named(options::SOURCES, &name("source")),
        pattern: options::named(options::PATTERNS, &name("pattern")),
        block_bytes: length(value(matches, "block-bytes"))?,
        threads: length(value(matches, "threads"))?,
        advice: options::named(options::ADVICES, &name("advice")),
        sum: options::named(options::SUMS, &name("sum")),
        passes: value(matches, "passes"),
        max_duration: optional::<Duration>(matches, "max-seconds"),
        seed: value(matches, "seed"),
        size_bytes: optional(matches, "size-bytes"),
        expected: expected(matches),
        fault_every: value(matches, "fault-every"),
        handshake: if matches.get_flag("no-handshake") { Handshake::Skipped } else { Handshake::Spoken },
        self_test: matches.get_flag("self-test"),
    })
}

fn expected(matches: &ArgMatches) -> Expected {
    let sidecar = optional_path(matches, "expect-sidecar").map(Expected::Sidecar);
    let sum = optional(matches, "expect-checksum").map(Expected::Sum);
    sidecar.or(sum).unwrap_or(Expected::Nothing)
}

fn length(number: u64) -> Result<usize, Failure> {
    usize::try_from(number)
        .map_err(|_| Failure::BadArguments(format!("{number} is too large for this machine")))
}

fn check(plan: &Plan) -> Result<(), Failure> {
    let refuse = |why: &str| Err(Failure::BadArguments(why.to_owned()));
    if plan.source == Kind::Heap && plan.advice != Advice::Normal {
        return refuse("--advice is about the mapped file: it needs --source mmap");
    }
    if !plan.sum.sums_bytes() && plan.expected != Expected::Nothing {
        return refuse("--sum touch adds nothing up, so nothing can be expected of it: use --sum simd");
    }
    Ok(())
}
