//! The command line of `pcread`.

mod checks;
mod options;

use crate::advice::{Advice, FileAdvice};
use crate::order::Pattern;
use crate::route::Partition;
use crate::source::Kind;
use clap::ArgMatches;
use contract::bytesum::{self, Sum};
use contract::command_line::{optional, optional_path, parse, value};
use contract::options::{handshake, length, named};
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
    /// Past the page cache.
    pub direct: bool,
    /// With so many blocks in flight, or announced ahead.
    pub queue_depth: u32,
    /// With a cache of its own of this size.
    pub cache: CacheSize,
    /// In which order.
    pub pattern: Pattern,
    /// In blocks of so many bytes.
    pub block_bytes: usize,
    /// By so many threads.
    pub threads: usize,
    /// Each reading which part.
    pub partition: Partition,
    /// After this hint to the kernel about the mapping.
    pub advice: Advice,
    /// After this hint to the kernel about the file.
    pub fadvise: FileAdvice,
    /// With this work on every block.
    pub sum: SumKind,
    /// Resting so long before every block.
    pub pause: Option<Duration>,
    /// So many times before anything is measured.
    pub warm_passes: u64,
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

impl Plan {
    /// Whether the file is opened with `O_DIRECT`.
    #[must_use]
    pub fn opens_direct(&self) -> bool {
        self.direct || self.source == Kind::DirectCache
    }
}

/// How large the process's own cache is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheSize {
    /// So many bytes.
    Bytes(u64),
    /// As large as the memory limit of the process's cgroup allows.
    Cage,
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
    checks::check(&plan)?;
    Ok(Some(plan))
}

fn plan(matches: &ArgMatches) -> Result<Plan, Failure> {
    let name = |option: &str| value::<String>(matches, option);
    Ok(Plan {
        file: value(matches, "file"),
        source: named(options::SOURCES, &name("source")),
        direct: matches.get_flag("direct"),
        queue_depth: u32::try_from(value::<u64>(matches, "queue-depth")).unwrap_or(u32::MAX),
        cache: value(matches, "cache-bytes"),
        pattern: named(options::PATTERNS, &name("pattern")),
        block_bytes: length(value(matches, "block-bytes"))?,
        threads: length(value(matches, "threads"))?,
        partition: named(options::PARTITIONS, &name("partition")),
        advice: named(options::ADVICES, &name("advice")),
        fadvise: named(options::FILE_ADVICES, &name("fadvise")),
        sum: named(options::SUMS, &name("sum")),
        pause: optional(matches, "pause-us").filter(|us| *us > 0).map(Duration::from_micros),
        warm_passes: value(matches, "warm-passes"),
        passes: value(matches, "passes"),
        max_duration: optional::<Duration>(matches, "max-seconds"),
        seed: value(matches, "seed"),
        size_bytes: optional(matches, "size-bytes"),
        expected: expected(matches),
        fault_every: value(matches, "fault-every"),
        handshake: handshake(matches),
        self_test: matches.get_flag("self-test"),
    })
}

fn expected(matches: &ArgMatches) -> Expected {
    let sidecar = optional_path(matches, "expect-sidecar").map(Expected::Sidecar);
    let sum = optional(matches, "expect-checksum").map(Expected::Sum);
    sidecar.or(sum).unwrap_or(Expected::Nothing)
}
