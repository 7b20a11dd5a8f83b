//! The command line of `pcscan`.

mod options;

use crate::fixes::Fix;
use crate::hints::{Advice, Hints};
use crate::prefetch::Hint;
use crate::reads::is_aligned;
use crate::scan::Work;
use clap::ArgMatches;
use contract::command_line::{optional, parse, value};
use contract::options::{handshake, named};
use contract::page::page_bytes;
use contract::sidecar::STRIDE_BYTES;
use contract::{Failure, Handshake};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What `pcscan` is asked to do.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools)] // each is a switch of its own on the command line
pub struct Plan {
    /// The files, scanned at once or one after another.
    pub files: Vec<PathBuf>,
    /// Each has a sidecar that says what it adds up to.
    pub expect_sidecars: bool,
    /// Who scans.
    pub exec: Exec,
    /// So many threads, where there are several.
    pub workers: usize,
    /// How the bytes come into memory.
    pub io: Io,
    /// What is done about the executor's waiting.
    pub fix: Fix,
    /// One byte in so many is looked at.
    pub stride: usize,
    /// In pieces of this length.
    pub piece_bytes: usize,
    /// Length of the windows of a fix.
    pub window_bytes: usize,
    /// So many bytes of windows are prepared ahead.
    pub ahead_bytes: usize,
    /// So many reads a file are under way in the ring.
    pub depth: usize,
    /// What the kernel is told before.
    pub hints: Hints,
    /// What the CPU is told: so many pages ahead, and how.
    pub prefetch: Option<(usize, Hint)>,
    /// Computing for each page.
    pub compute_for_page: Duration,
    /// The sum is thrown away, as published.
    pub discard_sum: bool,
    /// Period of the heartbeat.
    pub heartbeat: Option<Duration>,
    /// So many passes.
    pub passes: u64,
    /// But no longer than this, all passes together.
    pub max_duration: Option<Duration>,
    /// Talking with whoever started it, or not.
    pub handshake: Handshake,
}

/// Who scans the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exec {
    /// One thread, one file after another.
    Sync1,
    /// Several threads, each file in one of them.
    Threads,
    /// A task a file, on an executor of one thread.
    AsyncCt,
    /// A task a file, on an executor of several threads.
    AsyncMt,
    /// The same tasks on an executor of one thread, each begun when the one before has ended.
    AsyncSequential,
}

/// How bytes come into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Io {
    /// The file is mapped.
    Mmap,
    /// pread(2), which waits.
    Read,
    /// tokio's files: pread(2) in a pool of threads.
    TokioFs,
    /// Reads through `io_uring`.
    Uring,
    /// The same without the page cache.
    UringDirect,
    /// What a program usually does: tokio's files on an executor, pread(2) in threads. No plan holds this one.
    Conventional,
}

impl Exec {
    /// Whether an executor scans.
    #[must_use]
    pub fn is_async(self) -> bool {
        !matches!(self, Self::Sync1 | Self::Threads)
    }
}

impl Io {
    /// The way itself, where the name leaves it to the executor.
    fn on(self, exec: Exec) -> Self {
        match self {
            Self::Conventional if exec.is_async() => Self::TokioFs,
            Self::Conventional => Self::Read,
            other => other,
        }
    }

    /// Whether the kernel writes into buffers by itself.
    #[must_use]
    pub fn needs_buffers(self) -> bool {
        matches!(self, Self::Uring | Self::UringDirect)
    }
}

impl Plan {
    /// Threads that scan where there is no executor.
    #[must_use]
    pub fn threads(&self) -> usize {
        if self.exec == Exec::Threads {
            self.workers
        } else {
            1
        }
    }

    /// What is done with the bytes when the first pass starts at this moment.
    #[must_use]
    pub fn work(&self, start: Instant) -> Work {
        Work {
            stride: self.stride,
            piece_bytes: self.piece_bytes,
            compute_for_page: self.compute_for_page,
            prefetch: self.prefetch,
            discard_sum: self.discard_sum,
            deadline: self.max_duration.and_then(|limit| start.checked_add(limit)),
        }
    }
}

/// Reads the arguments; `None` where only help was asked for.
///
/// # Errors
/// [`Failure::BadArguments`] naming the argument at fault.
pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Option<Plan>, Failure> {
    let Some(matches) = parse(options::command(), arguments)? else {
        return Ok(None);
    };
    let plan = plan(&matches);
    check(&plan)?;
    Ok(Some(plan))
}

fn plan(matches: &ArgMatches) -> Plan {
    let name = |option: &str| value::<String>(matches, option);
    let size = |option: &str| value::<usize>(matches, option);
    let micros = |option: &str| Duration::from_micros(value(matches, option));
    let exec = named(options::EXECS, &name("exec"));
    Plan {
        files: matches.get_many("files").unwrap_or_default().cloned().collect(),
        expect_sidecars: matches.get_flag("expect-sidecars"),
        exec,
        workers: size("workers"),
        io: named(options::IOS, &name("io")).on(exec),
        fix: named(options::FIXES, &name("fix")),
        stride: size("stride"),
        piece_bytes: size("buf"),
        window_bytes: size("window"),
        ahead_bytes: size("ahead"),
        depth: size("depth"),
        hints: hints(matches),
        prefetch: Some((size("prefetch-distance"), named(options::PREFETCHES, &name("prefetch-hint"))))
            .filter(|(pages, _)| *pages > 0),
        compute_for_page: Duration::from_nanos(value(matches, "compute-ns-per-page")),
        discard_sum: matches.get_flag("discard-sum"),
        heartbeat: Some(micros("heartbeat-us")).filter(|period| *period > Duration::ZERO),
        passes: value(matches, "passes"),
        max_duration: optional::<Duration>(matches, "max-seconds"),
        handshake: handshake(matches),
    }
}

fn hints(matches: &ArgMatches) -> Hints {
    Hints {
        advice: named(options::ADVICES, &value::<String>(matches, "advice")),
        fadvise: named(options::FADVISES, &value::<String>(matches, "fadvise")),
        readahead: matches.get_flag("readahead"),
        mlock: matches.get_flag("mlock"),
    }
}

fn check(plan: &Plan) -> Result<(), Failure> {
    check_lengths(plan)?;
    let mapped = plan.io == Io::Mmap;
    let about_maps = plan.hints.advice != Advice::Whole(None) || plan.hints.mlock || plan.prefetch.is_some();
    let wrong = [
        (
            !plan.exec.is_async() && !matches!(plan.io, Io::Mmap | Io::Read),
            "--io other than mmap and read needs --exec async-*",
        ),
        (
            !plan.exec.is_async() && plan.fix != Fix::None,
            "--fix is about an executor: it needs --exec async-*",
        ),
        (!mapped && plan.fix != Fix::None, "--fix is about mapped files: it needs --io mmap"),
        (
            !mapped && about_maps,
            "--advice, --mlock and --prefetch-distance are about mapped files: they need --io mmap",
        ),
        (
            plan.fix == Fix::BlockInPlace && plan.exec != Exec::AsyncMt,
            "--fix block-in-place needs --exec async-mt",
        ),
        (
            plan.expect_sidecars && ![1, STRIDE_BYTES].contains(&plan.stride),
            "sidecars know the sums of --stride 1 and 512 only",
        ),
        (
            plan.expect_sidecars && plan.discard_sum,
            "--discard-sum leaves nothing to compare with --expect-sidecars",
        ),
    ];
    wrong.iter().find(|(is_so, _)| *is_so).map_or(Ok(()), |(_, why)| refuse(why))
}

fn check_lengths(plan: &Plan) -> Result<(), Failure> {
    if !plan.stride.is_power_of_two() || plan.stride > 4096 {
        return refuse("--stride must be a power of two, 4096 at most");
    }
    let whole_pages = plan.piece_bytes % page_bytes() == 0 && is_aligned(plan.piece_bytes);
    let are_there = plan.piece_bytes > 0 && plan.window_bytes > 0;
    if !are_there || !whole_pages || plan.window_bytes % plan.piece_bytes != 0 {
        return refuse("--buf must be whole pages, and --window whole bufs");
    }
    Ok(())
}

fn refuse<T>(why: &str) -> Result<T, Failure> {
    Err(Failure::BadArguments(why.to_owned()))
}
