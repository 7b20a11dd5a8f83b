//! The options themselves: names, values, help.

use super::{Exec, Io};
use crate::fixes::Fix;
use crate::hints::{Advice, Fadvise};
use crate::prefetch::Hint;
use clap::builder::RangedU64ValueParser;
use clap::{Arg, Command};
use contract::options::{choice, flag, no_handshake, number, path, seconds, Choice};

pub const EXECS: &[Choice<Exec>] = &[
    ("sync1", Exec::Sync1),
    ("threads", Exec::Threads),
    ("async-ct", Exec::AsyncCt),
    ("async-mt", Exec::AsyncMt),
    ("async-sequential", Exec::AsyncSequential),
];
pub const IOS: &[Choice<Io>] = &[
    ("mmap", Io::Mmap),
    ("read", Io::Read),
    ("tokio-fs", Io::TokioFs),
    ("uring", Io::Uring),
    ("uring-direct", Io::UringDirect),
    ("conventional", Io::Conventional),
];
pub const FIXES: &[Choice<Fix>] = &[
    ("none", Fix::None),
    ("yield", Fix::Yield),
    ("spawn-blocking", Fix::SpawnBlocking),
    ("block-in-place", Fix::BlockInPlace),
    ("populate-blocking", Fix::PopulateBlocking),
    ("uring-madvise", Fix::UringMadvise),
    ("willneed-ahead", Fix::WillNeedAhead),
    ("cachestat-gate", Fix::CachestatGate),
];
pub const ADVICES: &[Choice<Advice>] = &[
    ("normal", Advice::Whole(None)),
    ("random", Advice::Whole(Some(libc::MADV_RANDOM))),
    ("sequential", Advice::Whole(Some(libc::MADV_SEQUENTIAL))),
    ("willneed", Advice::Whole(Some(libc::MADV_WILLNEED))),
    ("willneed-pieces", Advice::WillNeedPieces),
    ("populate-read", Advice::Whole(Some(libc::MADV_POPULATE_READ))),
    ("map-populate", Advice::MapPopulate),
    ("hugepage", Advice::Whole(Some(libc::MADV_HUGEPAGE))),
    ("nohugepage", Advice::Whole(Some(libc::MADV_NOHUGEPAGE))),
    ("collapse", Advice::Whole(Some(libc::MADV_COLLAPSE))),
    ("cold", Advice::Whole(Some(libc::MADV_COLD))),
    ("pageout", Advice::Whole(Some(libc::MADV_PAGEOUT))),
];
pub const FADVISES: &[Choice<Fadvise>] = &[
    ("none", None),
    ("normal", Some(libc::POSIX_FADV_NORMAL)),
    ("sequential", Some(libc::POSIX_FADV_SEQUENTIAL)),
    ("random", Some(libc::POSIX_FADV_RANDOM)),
    ("willneed", Some(libc::POSIX_FADV_WILLNEED)),
    ("noreuse", Some(libc::POSIX_FADV_NOREUSE)),
];
pub const PREFETCHES: &[Choice<Hint>] = &[("t0", Hint::T0), ("nta", Hint::Nta)];

/// More threads than this would mostly wait for each other.
const MOST_THREADS: u64 = 1024;

const EXAMPLES: &str = "\
Examples:
  pcscan --files a.bin b.bin --expect-sidecars --no-handshake                one thread, mapped files
  pcscan --files a.bin b.bin --exec async-ct --heartbeat-us 1000             the hazard: who waits is the executor
  pcscan --files a.bin b.bin --exec async-ct --fix uring-madvise --heartbeat-us 1000
  pcscan --files a.bin b.bin --exec async-ct --io tokio-fs --no-handshake    what an async program usually does

Exit codes: 0 done, 1 failed or wrong checksum, 2 bad arguments, 77 cannot on this host.";

pub fn command() -> Command {
    Command::new("pcscan")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Scans several files at once, by threads or on an async executor, and watches a heartbeat beside it")
        .after_help(EXAMPLES)
        .arg(path("files").num_args(1..).required(true).help("The files to scan"))
        .args(who_scans())
        .args(how_bytes_come())
        .args(what_is_told())
        .args(what_is_done())
        .args(how_it_is_measured())
}

fn who_scans() -> [Arg; 3] {
    [
        choice("exec", EXECS)
            .help("One thread, several, or tasks on an executor of one thread or of several"),
        size("workers")
            .value_parser(count(1, MOST_THREADS))
            .default_value("8")
            .help("Threads of --exec threads and of --exec async-mt"),
        choice("fix", FIXES).help("What is done so that a task on a mapped file keeps nobody waiting"),
    ]
}

fn how_bytes_come() -> [Arg; 5] {
    [
        choice("io", IOS)
            .help("Mapped, reads that wait, tokio's files, io_uring with cache or without, or what --exec usually does"),
        size("buf").default_value("64K").help("Bytes are read and looked at in pieces of this length"),
        size("window").default_value("2M").help("A fix prepares windows of this length"),
        size("ahead").default_value("8M").help("So many bytes of windows are prepared ahead of the scan"),
        size("depth")
            .value_parser(count(1, 16))
            .default_value("8")
            .help("Reads of one file under way in the ring"),
    ]
}

fn what_is_told() -> [Arg; 6] {
    [
        choice("advice", ADVICES)
            .help("What the kernel is told about each mapping when its scan begins, madvise(2)"),
        choice("fadvise", FADVISES).help("What it is told about the open file, posix_fadvise(2)"),
        flag("readahead").help("Read the file into the page cache first, readahead(2)"),
        flag("mlock").help("Lock the mapping into memory first, mlock(2)"),
        size("prefetch-distance")
            .default_value("0")
            .value_name("PAGES")
            .help("Before each page, the CPU's prefetch instruction for the page so far ahead; 0 for none"),
        choice("prefetch-hint", PREFETCHES).help("Which prefetch instruction"),
    ]
}

fn what_is_done() -> [Arg; 4] {
    [
        size("stride").default_value("512").help("One byte in so many is looked at; a power of two"),
        number("compute-ns-per-page", 0).default_value("0").help("Compute so long for each page"),
        flag("discard-sum")
            .help("Throw the sum away, as the published code did: the compiler may drop the loop"),
        flag("expect-sidecars").help("A full pass must add up to what the files' sidecars say"),
    ]
}

fn how_it_is_measured() -> [Arg; 4] {
    [
        number("heartbeat-us", 0).default_value("0").help("Beat so often beside the scan; 0 for not at all"),
        number("passes", 1).default_value("1").help("How often everything is scanned"),
        seconds("max-seconds").help("Stop after so long, at the end of a piece"),
        no_handshake(),
    ]
}

/// A whole number between two others.
fn count(least: u64, most: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(least..=most)
}

/// A length above zero, in bytes, or with K, M or G for the powers of 1024.
fn size(name: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("BYTES").value_parser(length)
}

fn length(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(['K', 'M', 'G']);
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err("at most one of K, M and G".to_owned()),
    };
    let number: usize = digits.parse().map_err(|_| "not a number of bytes, like 65536 or 64K".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "too large".to_owned())
}
