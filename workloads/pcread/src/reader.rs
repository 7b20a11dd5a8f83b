//! A thread's way to the bytes, as the plan names it.

use crate::advice::Advice;
use crate::arguments::Plan;
use crate::cage;
use crate::fetch::announced::Announced;
use crate::fetch::direct_cache::DirectCache;
use crate::fetch::memory::Memory;
use crate::fetch::pread::Pread;
use crate::fetch::queued::Queued;
use crate::fetch::Fetch;
use crate::pass::{self, Tally, Watch};
use crate::route::Route;
use crate::source::{Kind, Place, Source};
use contract::bytesum::Sum;
use contract::Failure;
use std::fs::File;
use std::io;

/// One of the ways. The loop is compiled once for each, so that a block of memory costs no call.
pub enum Reader<'a> {
    /// The heap, or a mapped file.
    Memory(Memory<'a>),
    /// A mapped file whose blocks are announced.
    Announced(Announced<'a>),
    /// pread(2).
    Pread(Pread<'a>),
    /// `io_uring`.
    Queued(Queued<'a>),
    /// `io_uring` and a cache.
    DirectCache(DirectCache<'a>),
}

impl<'a> Reader<'a> {
    /// The way that the plan asks for.
    ///
    /// # Errors
    /// [`Failure::CannotHere`] when this host does not have it.
    pub fn new(plan: &Plan, source: &'a Source) -> Result<Self, Failure> {
        match &source.place {
            Place::Heap(heap) => Ok(Self::Memory(Memory::new(heap))),
            Place::Mapped(mapped) if plan.advice == Advice::WillNeedBatched => {
                let window = plan.queue_depth as usize;
                Announced::new(mapped, window)
                    .map(Self::Announced)
                    .map_err(|cause| cannot("process_madvise", &cause))
            }
            Place::Mapped(mapped) => Ok(Self::Memory(Memory::new(mapped))),
            Place::File(file) => Self::of_file(plan, file, source.size_bytes),
        }
    }

    fn of_file(plan: &Plan, file: &'a File, size_bytes: usize) -> Result<Self, Failure> {
        let (depth, block_bytes) = (plan.queue_depth, plan.block_bytes);
        match plan.source {
            Kind::Uring => Queued::new(file, depth, block_bytes, plan.direct)
                .map(Self::Queued)
                .map_err(|cause| cannot("io_uring", &cause)),
            Kind::DirectCache => {
                let cache_bytes = cage::cache_bytes(plan)? / plan.threads;
                DirectCache::new(file, size_bytes, block_bytes, depth, cache_bytes)
                    .map(Self::DirectCache)
                    .map_err(|cause| cannot("a cache over io_uring", &cause))
            }
            _ => Pread::new(file, block_bytes, plan.direct)
                .map(Self::Pread)
                .map_err(|cause| cannot("pread", &cause)),
        }
    }

    /// One pass over a route.
    ///
    /// # Errors
    /// What the system says of a read.
    pub fn pass(&mut self, route: &mut Route, sum: Sum, watch: &mut Watch) -> io::Result<Tally> {
        match self {
            Self::Memory(fetch) => pass::run(fetch, route, sum, watch),
            Self::Announced(fetch) => pass::run(fetch, route, sum, watch),
            Self::Pread(fetch) => pass::run(fetch, route, sum, watch),
            Self::Queued(fetch) => pass::run(fetch, route, sum, watch),
            Self::DirectCache(fetch) => pass::run(fetch, route, sum, watch),
        }
    }

    /// Blocks found in the process's own cache, and all that were asked for; none where it has none.
    #[must_use]
    pub fn hits(&self) -> Option<(u64, u64)> {
        match self {
            Self::DirectCache(cache) => cache.hits(),
            _ => None,
        }
    }
}

fn cannot(what: &str, cause: &io::Error) -> Failure {
    Failure::CannotHere(format!("{what} cannot be had here: {cause}"))
}
