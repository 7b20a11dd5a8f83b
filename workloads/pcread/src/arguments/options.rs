//! The options themselves: names, values, help.

use super::{CacheSize, SumKind};
use crate::advice::{Advice, FileAdvice};
use crate::order::Pattern;
use crate::route::Partition;
use crate::source::Kind;
use clap::{value_parser, Arg, Command};
use contract::options::{choice, flag, no_handshake, number, path, seconds, Choice};

pub const SOURCES: &[Choice<Kind>] = &[
    ("mmap", Kind::Mmap),
    ("heap", Kind::Heap),
    ("heap-thp", Kind::HeapThp),
    ("pread", Kind::Pread),
    ("uring", Kind::Uring),
    ("direct-cache", Kind::DirectCache),
];
pub const PATTERNS: &[Choice<Pattern>] = &[
    ("sequential", Pattern::Sequential),
    ("random", Pattern::Random),
    ("prime-stride", Pattern::PrimeStride),
    ("seed-overflow", Pattern::SeedOverflow),
    ("seed-overflow-scaled", Pattern::SeedOverflowScaled),
];
pub const PARTITIONS: &[Choice<Partition>] =
    &[("disjoint", Partition::Disjoint), ("seed-bug", Partition::SeedBug)];
pub const SUMS: &[Choice<SumKind>] =
    &[("simd", SumKind::Simd), ("byte", SumKind::Byte), ("touch", SumKind::Touch)];
pub const ADVICES: &[Choice<Advice>] = &[
    ("normal", Advice::Normal),
    ("random", Advice::Random),
    ("sequential", Advice::Sequential),
    ("willneed", Advice::WillNeed),
    ("willneed-batched", Advice::WillNeedBatched),
    ("populate-read", Advice::PopulateRead),
    ("map-populate", Advice::MapPopulate),
    ("hugepage", Advice::HugePage),
    ("nohugepage", Advice::NoHugePage),
    ("collapse", Advice::Collapse),
    ("cold", Advice::Cold),
    ("pageout", Advice::PageOut),
    ("dontneed", Advice::DontNeed),
];
pub const FILE_ADVICES: &[Choice<FileAdvice>] = &[
    ("normal", FileAdvice::Normal),
    ("sequential", FileAdvice::Sequential),
    ("random", FileAdvice::Random),
    ("noreuse", FileAdvice::NoReuse),
    ("willneed", FileAdvice::WillNeed),
    ("dontneed", FileAdvice::DontNeed),
];

/// A thread for each of more CPUs than this would mostly wait for the others.
const MOST_THREADS: u64 = 1024;

/// What one call of `process_madvise(2)` takes, and more than any disk's queue.
const DEEPEST_QUEUE: u64 = 1024;

const EXAMPLES: &str = "\
Examples:
  pcread --file data.bin --pattern random --no-handshake         every block once, straight away
  pcread --file data.bin --source heap --expect-sidecar data.bin.json --no-handshake
  pcread --file data.bin --pattern random --max-seconds 15       wait for `go` on stdin, then read 15 s at most
  pcread --file data.bin --source uring --direct --queue-depth 32 --pattern random --no-handshake
  pcread --file data.bin --source direct-cache --cache-bytes 104857600 --passes 2 --no-handshake
  pcread --file data.bin --pattern random --threads 4 --self-test

Exit codes: 0 done, 1 failed or wrong checksum, 2 bad arguments, 77 cannot on this host.";

pub fn command() -> Command {
    Command::new("pcread")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Reads a working set in blocks, from memory, a mapped file or the file itself, and reports what it cost")
        .after_help(EXAMPLES)
        .arg(path("file").required(true).help("The file that holds the working set"))
        .args(what_is_read())
        .args(in_which_order())
        .args(how_it_is_read())
        .args(how_it_is_checked())
}

fn what_is_read() -> [Arg; 7] {
    [
        choice("source", SOURCES).help("Read the mapped file, memory filled from it, or the file itself"),
        flag("direct").help("pread, uring: past the page cache, O_DIRECT"),
        number("queue-depth", 1)
            .value_parser(value_parser!(u64).range(1..=DEEPEST_QUEUE))
            .default_value("32")
            .help("uring, direct-cache: reads in flight; --advice willneed-batched: blocks announced ahead"),
        Arg::new("cache-bytes")
            .long("cache-bytes")
            .value_name("N|cage")
            .value_parser(cache_size)
            .default_value("cage")
            .help(
                "direct-cache: how large, all threads together; `cage`: what the cgroup's memory.max allows",
            ),
        number("size-bytes", 1).help("Only the first N bytes of the file"),
        choice("advice", ADVICES).help("What the kernel is told about the mapping beforehand, madvise(2)"),
        choice("fadvise", FILE_ADVICES).help("What it is told about the open file, posix_fadvise(2)"),
    ]
}

fn in_which_order() -> [Arg; 5] {
    [
        choice("pattern", PATTERNS)
            .help("In order; each block once, at random or a prime apart; or as the article's code has it"),
        number("block-bytes", 1).default_value("4096").help("Length of a block; the last one may be short"),
        number("threads", 1)
            .value_parser(value_parser!(u64).range(1..=MOST_THREADS))
            .default_value("1")
            .help("Each reads a part of its own"),
        choice("partition", PARTITIONS)
            .help("Each thread a part of its own, or all the first, as the article's code has it"),
        number("seed", 0).default_value("1").help("The same seed gives the same random order"),
    ]
}

fn how_it_is_read() -> [Arg; 6] {
    [
        choice("sum", SUMS)
            .help("Add up as fast as possible, byte by byte, or look at one byte of each page"),
        number("pause-us", 0).help("Rest so long before each block"),
        number("warm-passes", 0).default_value("0").help("How often all of it is read before `ready`"),
        number("passes", 1).default_value("1").help("How often all of it is read"),
        seconds("max-seconds").help("Stop after so long, at the end of a block"),
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
        no_handshake(),
        flag("self-test").help("Only prove that every byte would be visited exactly once"),
    ]
}

fn cache_size(text: &str) -> Result<CacheSize, String> {
    if text == "cage" {
        return Ok(CacheSize::Cage);
    }
    text.parse().map(CacheSize::Bytes).map_err(|_| "neither a number of bytes nor `cage`".to_owned())
}
