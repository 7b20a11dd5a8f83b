//! Methods of scanning a mapped file on an executor without making its other tasks wait.

use crate::dataset::Source;
use crate::hints::{madvise, will_need};
use crate::ring::{self, Answer, Ring};
use crate::scan::{ScanResult, Work};
use crate::sizes::size;
use clap::ValueEnum;
use contract::failure::OrFailure;
use contract::page_cache::{cachestat_of_part, page_bytes};
use contract::Failure;
use memmap2::Mmap;
use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use tokio::task::{block_in_place, spawn_blocking, yield_now, JoinHandle};

/// A task of the pool that did not end by itself.
const LOST: &str = "a task was lost";

/// Method of keeping the executor free.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct FixOptions {
    /// Method of keeping the executor free while a task scans a mapped file
    #[arg(long, value_enum, default_value = "none")]
    pub fix: Fix,
    /// A fix prepares windows of this length
    #[arg(long = "window", value_name = "BYTES", default_value = "2M", value_parser = size)]
    pub window_bytes: usize,
    /// Windows of this many bytes are prepared ahead of the scan
    #[arg(long = "ahead", value_name = "BYTES", default_value = "8M", value_parser = size)]
    pub ahead_bytes: usize,
}

/// Method of keeping the executor free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Fix {
    /// Nothing: the file is scanned from its first byte to its last, and the executor waits
    None,
    /// Other tasks run after every window; within one, the executor waits
    Yield,
    /// Windows are touched in the pool of threads for blocking work
    SpawnBlocking,
    /// Windows are touched here, while the executor moves its other tasks to another thread
    BlockInPlace,
    /// Windows are read and mapped in that pool, `MADV_POPULATE_READ`, and touched here
    PopulateBlocking,
    /// Windows are read and mapped by the kernel's own threads, `IORING_OP_MADVISE` with
    /// `MADV_POPULATE_READ`
    UringMadvise,
    /// Windows are requested ahead, `MADV_WILLNEED` in pieces of the read-ahead, without waiting
    /// for them
    #[value(name = "willneed-ahead")]
    WillNeedAhead,
    /// Windows in the page cache are touched here, the others in the pool, cachestat(2)
    CachestatGate,
}

/// One file's scan under a fix.
#[derive(Debug)]
pub struct Scan {
    pub options: FixOptions,
    pub source: Arc<Source>,
    pub map: Arc<Mmap>,
    pub work: Work,
    /// The ring, if the fix needs one.
    pub ring: Option<Arc<Ring>>,
}

/// A window that is being prepared.
enum PendingWindow {
    Requested,
    Pool(JoinHandle<Result<(), Failure>>),
    Kernel(Answer),
}

impl Scan {
    /// Scan the file. Fails if the kernel rejects what the fix needs.
    pub async fn run(&self) -> Result<ScanResult, Failure> {
        match self.options.fix {
            Fix::None => Ok(self.work.range(&self.map, 0..self.map.len())),
            Fix::PopulateBlocking | Fix::UringMadvise | Fix::WillNeedAhead => self.prepared().await,
            _ => self.one_by_one().await,
        }
    }

    async fn one_by_one(&self) -> Result<ScanResult, Failure> {
        let mut result = ScanResult::default();
        for window in self.windows() {
            if result.stopped {
                break;
            }
            result += self.window(window).await?;
        }
        Ok(result)
    }

    async fn window(&self, window: Range<usize>) -> Result<ScanResult, Failure> {
        match self.options.fix {
            Fix::SpawnBlocking => self.in_pool(window).await,
            Fix::CachestatGate if !is_resident(&self.source.file, &window)? => {
                self.in_pool(window).await
            }
            Fix::BlockInPlace => Ok(block_in_place(|| self.work.range(&self.map, window))),
            _ => Ok(self.here(window).await),
        }
    }

    /// Touch a window on the executor, then let other tasks run.
    async fn here(&self, window: Range<usize>) -> ScanResult {
        let result = self.work.range(&self.map, window);
        yield_now().await;
        result
    }

    async fn in_pool(&self, window: Range<usize>) -> Result<ScanResult, Failure> {
        let (map, work) = (self.map.clone(), self.work);
        spawn_blocking(move || work.range(&map, window)).await.or_failed(LOST)
    }

    /// Prepare windows ahead of the one that is touched.
    async fn prepared(&self) -> Result<ScanResult, Failure> {
        let mut result = ScanResult::default();
        let mut pending = VecDeque::new();
        let mut windows = self.windows();
        loop {
            while !result.stopped
                && pending.len() <= self.options.ahead_bytes / self.options.window_bytes
            {
                let Some(window) = windows.next() else { break };
                pending.push_back((self.prepare(&window)?, window));
            }
            let Some((next, window)) = pending.pop_front() else { return Ok(result) };
            arrived(next).await?;
            if !result.stopped {
                result += self.here(window).await;
            }
        }
    }

    fn prepare(&self, window: &Range<usize>) -> Result<PendingWindow, Failure> {
        match (self.options.fix, &self.ring) {
            (Fix::UringMadvise, Some(ring)) => ring
                .madvise(&self.map[window.clone()], libc::MADV_POPULATE_READ)
                .map(PendingWindow::Kernel),
            (Fix::PopulateBlocking, _) => {
                let (map, window) = (self.map.clone(), window.clone());
                let populate = move || madvise(&map[window], libc::MADV_POPULATE_READ);
                Ok(PendingWindow::Pool(spawn_blocking(populate)))
            }
            _ => will_need(&self.map, window.clone(), self.source.read_ahead_bytes)
                .map(|()| PendingWindow::Requested),
        }
    }

    fn windows(&self) -> impl Iterator<Item = Range<usize>> {
        let (len, window_bytes) = (self.map.len(), self.options.window_bytes);
        (0..len).step_by(window_bytes).map(move |start| start..(start + window_bytes).min(len))
    }
}

async fn arrived(window: PendingWindow) -> Result<(), Failure> {
    match window {
        PendingWindow::Requested => Ok(()),
        PendingWindow::Pool(task) => task.await.or_failed(LOST)?,
        PendingWindow::Kernel(answer) => ring::result(answer)
            .await
            .map(drop)
            .or_cannot_here("io_uring's madvise does not take MADV_POPULATE_READ here"),
    }
}

/// Return whether every page of the range is in the page cache. Pages that are being read count
/// too: the kernel does not distinguish them.
fn is_resident(file: &File, range: &Range<usize>) -> Result<bool, Failure> {
    let counts = cachestat_of_part(file, range.start as u64, range.len() as u64)
        .or_cannot_here("cachestat, which --fix cachestat-gate needs, is refused here")?;
    let page = page_bytes();
    Ok(counts.cache_pages >= (range.end.div_ceil(page) - range.start / page) as u64)
}
