//! The command line of `pcread`.

use crate::block_sequence::SequenceOptions;
use crate::expected::ExpectOptions;
use crate::pass::PassOptions;
use crate::positioned_read::DIRECT_BYTES;
use crate::reader::ReaderOptions;
use crate::source::{Kind, SourceOptions};
use clap::Parser;
use contract::cli::CommandLine;
use contract::{Failure, Handshake};
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  pcread --file data.bin --pattern random --no-handshake         every block once, straight away
  pcread --file data.bin --source heap --expect-sidecar data.bin.json --no-handshake
  pcread --file data.bin --pattern random --max-seconds 15       wait for `go` on stdin, then read 15 s at most
  pcread --file data.bin --source uring --direct --queue-depth 32 --pattern random --no-handshake
  pcread --file data.bin --source direct-cache --cache-bytes 104857600 --passes 2 --no-handshake
  pcread --file data.bin --pattern random --threads 4 --self-test

Exit codes: 0 done, 1 failed or wrong checksum, 2 bad arguments, 77 cannot on this host.";

/// Reads a working set in blocks, from memory, a mapped file or the file itself, and reports what
/// it cost
#[derive(Debug, Clone, Parser)]
#[command(name = "pcread", version, after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    pub source: SourceOptions,
    #[command(flatten)]
    pub reader: ReaderOptions,
    #[command(flatten)]
    pub sequence: SequenceOptions,
    #[command(flatten)]
    pub pass: PassOptions,
    #[command(flatten)]
    pub expect: ExpectOptions,
    #[command(flatten)]
    pub handshake: Handshake,
    /// Only prove that every byte would be visited exactly once
    #[arg(long)]
    pub self_test: bool,
}

impl CommandLine for Arguments {
    fn validate(&self) -> Result<(), Failure> {
        let Self { source, pass, expect, .. } = self;
        let wrong = [
            (source.source != Kind::Mmap && source.has_advice())
                .then_some("--advice is about the mapped file: it needs --source mmap"),
            (source.source.is_heap() && source.has_file_advice())
                .then_some("--fadvise is about the file: it means nothing for the heap"),
            (source.source.is_memory() && source.direct)
                .then_some("--direct is about reading: it needs --source pread or uring"),
            self.unaligned(),
            (!pass.sum.sums_bytes() && expect.is_given()).then_some(
                "--sum touch adds nothing up, so nothing can be expected of it: use --sum simd",
            ),
            (pass.max_duration == Some(Duration::ZERO))
                .then_some("--max-seconds must be above zero"),
        ];
        let first = wrong.into_iter().flatten().next();
        first.map_or(Ok(()), |reason| Err(Failure::BadArguments(reason.to_owned())))
    }
}

impl Arguments {
    /// Direct reads begin at whole units of the disk, and a block of the cache lies in one page of
    /// it.
    fn unaligned(&self) -> Option<&'static str> {
        let block_bytes = self.sequence.block_bytes;
        let is_whole = block_bytes % DIRECT_BYTES == 0;
        let is_part = self.source.source == Kind::DirectCache && DIRECT_BYTES % block_bytes == 0;
        if !self.source.opens_direct()
            || (self.sequence.pattern.visits_all() && (is_whole || is_part))
        {
            return None;
        }
        Some("direct reads want whole blocks: --block-bytes a multiple of 4096 (of a cache, a divisor too), and no --pattern seed-overflow")
    }
}
