//! Ways to scan a mapped file on an executor without keeping everybody else on it waiting, and the way that does not.

use crate::cachestat;
use crate::dataset::Source;
use crate::hints::{madvise, will_need};
use crate::ring::{self, Answer, Ring};
use crate::scan::{Seen, Work};
use contract::Failure;
use memmap2::Mmap;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use tokio::task::{block_in_place, spawn_blocking, yield_now, JoinHandle};

/// What is done about the waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fix {
    /// Nothing: the file is scanned from its first byte to its last, and the executor waits.
    None,
    /// The others get their turn after every window; within one, the executor waits.
    Yield,
    /// Windows are touched in the pool of threads for blocking work.
    SpawnBlocking,
    /// Windows are touched here, while the executor moves its other tasks to another thread.
    BlockInPlace,
    /// Windows are read and mapped in that pool, `MADV_POPULATE_READ`, and touched here.
    PopulateBlocking,
    /// Windows are read and mapped by the kernel's own threads, `IORING_OP_MADVISE` with `MADV_POPULATE_READ`.
    UringMadvise,
    /// Windows are asked for ahead, `MADV_WILLNEED` in pieces of the read-ahead; nobody waits for them to arrive.
    WillNeedAhead,
    /// Windows that the page cache holds are touched here, the others in the pool, cachestat(2).
    CachestatGate,
}

/// One file's scan under a fix.
#[derive(Debug)]
pub struct Scan {
    /// Which fix.
    pub fix: Fix,
    /// The file.
    pub source: Arc<Source>,
    /// Its mapping.
    pub map: Arc<Mmap>,
    /// What is done with its bytes.
    pub work: Work,
    /// Length of a window.
    pub window_bytes: usize,
    /// So many bytes of windows are prepared beyond the one that is touched.
    pub ahead_bytes: usize,
    /// For the fix that needs one.
    pub ring: Option<Arc<Ring>>,
}

/// A window on its way into memory.
enum Coming {
    Unwatched,
    Pool(JoinHandle<Result<(), Failure>>),
    Kernel(Answer),
}

impl Scan {
    /// Scans the file.
    ///
    /// # Errors
    /// When the kernel refuses what the fix needs.
    pub async fn run(&self) -> Result<Seen, Failure> {
        match self.fix {
            Fix::None => Ok(self.work.range(&self.map, 0..self.map.len())),
            Fix::PopulateBlocking | Fix::UringMadvise | Fix::WillNeedAhead => self.prepared().await,
            _ => self.one_by_one().await,
        }
    }

    async fn one_by_one(&self) -> Result<Seen, Failure> {
        let mut seen = Seen::default();
        for window in self.windows() {
            if seen.stopped {
                break;
            }
            seen += self.window(window).await?;
        }
        Ok(seen)
    }

    async fn window(&self, window: Range<usize>) -> Result<Seen, Failure> {
        match self.fix {
            Fix::SpawnBlocking => self.in_pool(window).await,
            Fix::CachestatGate if !cachestat::is_resident(&self.source.file, &window)? => {
                self.in_pool(window).await
            }
            Fix::BlockInPlace => Ok(block_in_place(|| self.work.range(&self.map, window))),
            _ => Ok(self.here(window).await),
        }
    }

    /// A window that is touched on the executor ends with a turn for the others.
    async fn here(&self, window: Range<usize>) -> Seen {
        let seen = self.work.range(&self.map, window);
        yield_now().await;
        seen
    }

    async fn in_pool(&self, window: Range<usize>) -> Result<Seen, Failure> {
        let (map, work) = (self.map.clone(), self.work);
        spawn_blocking(move || work.range(&map, window)).await.map_err(lost)
    }

    /// Keeps windows coming ahead of the one that is touched.
    async fn prepared(&self) -> Result<Seen, Failure> {
        let mut seen = Seen::default();
        let mut coming = VecDeque::new();
        let mut windows = self.windows();
        loop {
            while !seen.stopped && coming.len() <= self.ahead_bytes / self.window_bytes {
                let Some(window) = windows.next() else { break };
                coming.push_back((self.prepare(&window)?, window));
            }
            let Some((next, window)) = coming.pop_front() else { return Ok(seen) };
            arrived(next).await?;
            if !seen.stopped {
                seen += self.here(window).await;
            }
        }
    }

    fn prepare(&self, window: &Range<usize>) -> Result<Coming, Failure> {
        match (self.fix, &self.ring) {
            (Fix::UringMadvise, Some(ring)) => {
                ring.madvise(&self.map[window.clone()], libc::MADV_POPULATE_READ).map(Coming::Kernel)
            }
            (Fix::PopulateBlocking, _) => {
                let (map, window) = (self.map.clone(), window.clone());
                let populate = move || madvise(&map, libc::MADV_POPULATE_READ, window.start, window.len());
                Ok(Coming::Pool(spawn_blocking(populate)))
            }
            _ => will_need(&self.map, window.start, window.len(), self.source.read_ahead_bytes)
                .map(|()| Coming::Unwatched),
        }
    }

    fn windows(&self) -> impl Iterator<Item = Range<usize>> {
        let (len, window_bytes) = (self.map.len(), self.window_bytes);
        (0..len).step_by(window_bytes).map(move |start| start..(start + window_bytes).min(len))
    }
}

async fn arrived(coming: Coming) -> Result<(), Failure> {
    match coming {
        Coming::Unwatched => Ok(()),
        Coming::Pool(task) => task.await.map_err(lost)?,
        Coming::Kernel(answer) => ring::result(answer).await.map(drop).map_err(|cause| {
            Failure::CannotHere(format!("io_uring's madvise does not take MADV_POPULATE_READ here: {cause}"))
        }),
    }
}

/// A task of the pool that did not end by itself.
fn lost(cause: tokio::task::JoinError) -> Failure {
    Failure::of("a task was lost", cause)
}
