//! The measured loop: pages written in an order, synced at intervals.

use crate::content::Content;
use clap::{value_parser, ValueEnum};
use contract::cli::seconds;
use contract::failure::OrFailure;
use contract::mixing_hash::mix;
use contract::page_cache::page_bytes;
use contract::permutation::Permutation;
use contract::usage::Usage;
use contract::Failure;
use memmap2::MmapMut;
use std::fs::File;
use std::hint::black_box;
use std::io::Error;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Pages between two readings of the clock.
const CLOCK_PAGES: u64 = 16;

/// Method of writing the file.
#[derive(Debug, Clone, clap::Args)]
pub struct WriteOptions {
    /// Method of writing a page
    #[arg(long, value_enum, default_value = "mmap")]
    method: Method,
    /// Order of the pages
    #[arg(long, value_enum, default_value = "sequential")]
    pattern: Pattern,
    /// Method of syncing written pages
    #[arg(long, value_enum, default_value = "none")]
    msync: SyncMode,
    /// Sync after every N pages too, not only at the end
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    every_pages: Option<u64>,
    /// Number of times that all pages are written
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u64).range(1..))]
    pub passes: u64,
    /// Stop after this time
    #[arg(long = "max-seconds", value_name = "S", allow_hyphen_values = true, value_parser = seconds)]
    pub max_duration: Option<Duration>,
    /// The same seed gives the same bytes and order
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Method {
    /// By a store into a shared mapping
    Mmap,
    /// By pwrite(2)
    Pwrite,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Pattern {
    /// Front to back
    Sequential,
    /// Every page once, in an order drawn from the seed
    Random,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SyncMode {
    /// Not at all
    None,
    /// By `MS_ASYNC`, or by `sync_file_range(2)`, which starts the write
    Async,
    /// By `MS_SYNC`, or by fdatasync(2), to which the kernel translates `MS_SYNC`
    Sync,
}

/// The options with the length of the file.
#[derive(Debug, Clone)]
pub struct WritePlan {
    /// Method of writing the file.
    pub options: WriteOptions,
    /// Number of whole pages of the file.
    pub pages: u64,
}

impl WritePlan {
    /// Plan a file of this length, rounded down to whole pages.
    pub fn new(options: WriteOptions, size_bytes: u64) -> Self {
        Self { options, pages: size_bytes / page_bytes() as u64 }
    }
}

const ACTION: &str = "cannot write the file";

/// The file as the target of writes.
#[derive(Debug)]
pub enum Target<'a> {
    /// A shared mapping of it.
    Mapped(MmapMut),
    /// The file itself.
    Called(&'a File),
}

/// Results of one pass, and its cost.
#[derive(Debug, Clone, Copy)]
pub struct PassResult {
    /// Time of the stores or calls, without syncing.
    pub write: Duration,
    /// Time of syncing.
    pub sync: Duration,
    /// Pages that were written, from the first in the order.
    pub pages: u64,
    /// Faults and switches of the thread during the pass.
    pub usage: Usage,
    /// The deadline passed before the last page.
    pub stopped: bool,
}

impl<'a> Target<'a> {
    /// Map the file if the method needs it. Fails with [`Failure::CannotHere`] if it cannot be
    /// mapped.
    pub fn new(options: &WriteOptions, file: &'a File) -> Result<Self, Failure> {
        if options.method == Method::Pwrite {
            return Ok(Self::Called(file));
        }
        // SAFETY: the file has no name and no other process has it open, so it is neither changed
        // nor truncated.
        unsafe { MmapMut::map_mut(file) }.map(Self::Mapped).or_cannot_here("cannot map the file")
    }

    #[inline(never)]
    fn write(&mut self, offset_bytes: u64, page: &[u8]) -> Result<(), Error> {
        match self {
            Self::Mapped(mapped) => {
                let start = usize::try_from(offset_bytes).map_err(Error::other)?;
                black_box(&mut mapped[start..start + page.len()]).copy_from_slice(page);
                Ok(())
            }
            Self::Called(file) => file.write_all_at(page, offset_bytes),
        }
    }

    /// Sync the whole file.
    fn sync(&self, sync: SyncMode) -> Result<(), Error> {
        match (self, sync) {
            (_, SyncMode::None) => Ok(()),
            (Self::Mapped(mapped), SyncMode::Async) => mapped.flush_async(),
            (Self::Mapped(mapped), SyncMode::Sync) => mapped.flush(),
            (Self::Called(file), SyncMode::Async) => begin_writing(file),
            (Self::Called(file), SyncMode::Sync) => file.sync_data(),
        }
    }
}

fn begin_writing(file: &File) -> Result<(), Error> {
    // SAFETY: sync_file_range(2) has no preconditions.
    let code =
        unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
    if code == 0 {
        Ok(())
    } else {
        Err(Error::last_os_error())
    }
}

/// The order of the pages in a pass.
#[derive(Debug)]
pub struct PageOrder(Option<Permutation>);

impl PageOrder {
    /// Create the order of a pass; each pass has its own random order.
    pub fn new(plan: &WritePlan, pass: u64) -> Self {
        let random = plan.options.pattern == Pattern::Random;
        Self(random.then(|| Permutation::new(plan.pages, mix(plan.options.seed ^ mix(pass)))))
    }

    /// Return the page at this position.
    pub fn at(&self, position: u64) -> u64 {
        self.0.as_ref().map_or(position, |permutation| permutation.at(position))
    }
}

/// Write all pages once, or until the deadline. Fails if the disk fails.
pub fn pass(
    plan: &WritePlan,
    target: &mut Target<'_>,
    content: &mut Content,
    number: u64,
    deadline: Option<Instant>,
) -> Result<PassResult, Failure> {
    let order = PageOrder::new(plan, number);
    let usage = Usage::of_this_thread();
    let begun = Instant::now();
    let mut done =
        PassResult { write: Duration::ZERO, sync: Duration::ZERO, pages: 0, usage, stopped: false };
    while done.pages < plan.pages && !done.stopped {
        let page = order.at(done.pages);
        target.write(page * page_bytes() as u64, content.of(page, number)).or_failed(ACTION)?;
        done.pages += 1;
        if plan
            .options
            .every_pages
            .is_some_and(|every| done.pages % every == 0 && done.pages < plan.pages)
        {
            done.sync += synced(plan, target)?;
        }
        done.stopped =
            done.pages % CLOCK_PAGES == 0 && deadline.is_some_and(|at| Instant::now() >= at);
    }
    let synced_meanwhile = done.sync;
    done.write = begun.elapsed().saturating_sub(synced_meanwhile);
    done.usage = Usage::of_this_thread() - usage;
    done.sync += synced(plan, target)?;
    done.stopped &= done.pages < plan.pages;
    Ok(done)
}

fn synced(plan: &WritePlan, target: &Target<'_>) -> Result<Duration, Failure> {
    let start = Instant::now();
    target.sync(plan.options.msync).or_failed(ACTION)?;
    Ok(start.elapsed())
}
