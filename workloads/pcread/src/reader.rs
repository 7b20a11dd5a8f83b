//! The choice of a thread's block reader.

use crate::block_reader::BlockReader;
use crate::block_reader::DirectCache;
use crate::block_reader::Memory;
use crate::block_reader::Pread;
use crate::block_reader::Queued;
use crate::block_reader::WillNeedReader;
use crate::block_sequence::{BlockSequence, SequenceOptions};
use crate::cage::{cache_size, CacheSize};
use crate::pass::{self, Tally, Watch};
use crate::source::{Kind, Source, SourceOptions, WorkingSet};
use clap::builder::RangedU64ValueParser;
use contract::bytesum::Sum;
use contract::failure::OrFailure;
use contract::Failure;
use std::fs::File;
use std::io;

/// Limit of one `process_madvise(2)` call, and more than any disk's queue.
const DEEPEST_QUEUE: u64 = 1024;

/// The queue and the cache.
#[derive(Debug, Clone, clap::Args)]
pub struct ReaderOptions {
    /// uring, direct-cache: reads in flight; --advice willneed-batched: blocks advised ahead
    #[arg(long, value_name = "N", default_value_t = 32)]
    #[arg(value_parser = RangedU64ValueParser::<u32>::new().range(1..=DEEPEST_QUEUE))]
    queue_depth: u32,
    /// direct-cache: size of the cache, all threads together; `cage`: as much as the cgroup's
    /// memory.max permits
    #[arg(long = "cache-bytes", value_name = "N|cage", default_value = "cage", value_parser = cache_size)]
    cache: CacheSize,
}

/// One of the block readers. The loop is compiled once for each, so that a block of memory costs no
/// call.
pub enum Reader<'a> {
    /// The heap, or a mapped file.
    Memory(Memory<'a>),
    /// A mapped file whose blocks are advised ahead.
    WillNeed(WillNeedReader<'a>),
    /// pread(2).
    Pread(Pread<'a>),
    /// `io_uring`.
    Queued(Queued<'a>),
    /// `io_uring` and a cache.
    DirectCache(DirectCache<'a>),
}

impl<'a> Reader<'a> {
    /// Create the requested reader. Fails with [`Failure::CannotHere`] if this host does not
    /// support it.
    pub fn new(
        options: &ReaderOptions,
        access: &SourceOptions,
        sequence: &SequenceOptions,
        source: &'a Source,
    ) -> Result<Self, Failure> {
        match &source.working_set {
            WorkingSet::Heap(heap) => Ok(Self::Memory(Memory::new(heap))),
            WorkingSet::Mapped(mapped) if access.advises_blocks() => {
                let reader = WillNeedReader::new(mapped, options.queue_depth as usize);
                reader.map(Self::WillNeed).or_cannot_here("process_madvise cannot be had here")
            }
            WorkingSet::Mapped(mapped) => Ok(Self::Memory(Memory::new(mapped))),
            WorkingSet::File(file) => {
                Self::of_file(options, access, sequence, file, source.size_bytes)
            }
        }
    }

    fn of_file(
        options: &ReaderOptions,
        access: &SourceOptions,
        sequence: &SequenceOptions,
        file: &'a File,
        size_bytes: usize,
    ) -> Result<Self, Failure> {
        let (depth, block_bytes) = (options.queue_depth, sequence.block_bytes);
        match access.source {
            Kind::Uring => Queued::new(file, depth, block_bytes, access.direct)
                .map(Self::Queued)
                .or_cannot_here("io_uring cannot be had here"),
            Kind::DirectCache => {
                let cache_bytes = options.cache.bytes()? / sequence.threads;
                DirectCache::new(file, size_bytes, block_bytes, depth, cache_bytes)
                    .map(Self::DirectCache)
                    .or_cannot_here("a cache over io_uring cannot be had here")
            }
            _ => Pread::new(file, block_bytes, access.direct)
                .map(Self::Pread)
                .or_cannot_here("pread cannot be had here"),
        }
    }

    /// Do one pass over a sequence. Fails with the error of a read.
    pub fn pass(
        &mut self,
        blocks: &mut BlockSequence,
        sum: Sum,
        watch: &mut Watch,
    ) -> io::Result<Tally> {
        match self {
            Self::Memory(reader) => pass::run(reader, blocks, sum, watch),
            Self::WillNeed(reader) => pass::run(reader, blocks, sum, watch),
            Self::Pread(reader) => pass::run(reader, blocks, sum, watch),
            Self::Queued(reader) => pass::run(reader, blocks, sum, watch),
            Self::DirectCache(reader) => pass::run(reader, blocks, sum, watch),
        }
    }

    /// Return the blocks found in the process's own cache, and all requested blocks; None without
    /// such a cache.
    pub fn hits(&self) -> Option<(u64, u64)> {
        match self {
            Self::DirectCache(cache) => cache.hits(),
            _ => None,
        }
    }
}
