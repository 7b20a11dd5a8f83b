//! Threads that load files. Each takes the next file that no thread has begun.

use crate::load::{self, LoadOptions, Loaded};
use crate::segment::Segment;
use contract::json_lines::ThreadLine;
use contract::threads::{TeamSize, ThreadTeam, Worker};
use contract::usage::Usage;
use contract::Failure;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::OnceLock;
use std::time::Instant;

/// Small, because a cage counts every page of it.
const STACK_BYTES: usize = 64 << 10;

/// Totals and figures of one thread.
type LoaderShare = (Loaded, ThreadLine);

/// State shared by the threads.
#[derive(Debug)]
struct Shared<'a> {
    options: &'a LoadOptions,
    segments: &'a [Segment],
    next: AtomicUsize,
    deadline: OnceLock<Option<Instant>>,
}

/// Threads that wait to load the files.
#[derive(Debug)]
pub struct Loaders<'a> {
    team: &'a ThreadTeam<LoaderShare>,
    shared: &'a Shared<'a>,
}

/// Start as many threads as the load needs, and call `lead` while they wait. Fails if a thread
/// cannot be started; the error of `lead`.
pub fn with_loaders<T>(
    options: &LoadOptions,
    segments: &[Segment],
    lead: impl FnOnce(&Loaders<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let shared = Shared { options, segments, next: AtomicUsize::new(0), deadline: OnceLock::new() };
    let size = TeamSize {
        count: options.threads(segments.len()),
        stack_bytes: STACK_BYTES,
        first_cpu: Some(0),
    };
    // The buffer is written, so that none of its pages is missing later.
    let create = |_| Ok(Loader { shared: &shared, buffer: vec![1; options.block_bytes] });
    let lead = |team: &ThreadTeam<LoaderShare>| lead(&Loaders { team, shared: &shared });
    ThreadTeam::run(size, create, lead).map(|(outcome, _)| outcome)
}

impl Loaders<'_> {
    /// Load all files. To be called once at most. Fails with the first failure of any thread.
    pub fn load(&self, deadline: Option<Instant>) -> Result<(Loaded, Vec<ThreadLine>), Failure> {
        let _ = self.shared.deadline.set(deadline);
        let (loaded, threads): (Vec<Loaded>, Vec<ThreadLine>) =
            self.team.pass()?.into_iter().unzip();
        Ok((loaded.into_iter().fold(Loaded::default(), Loaded::and), threads))
    }
}

struct Loader<'a> {
    shared: &'a Shared<'a>,
    buffer: Vec<u8>,
}

impl Worker for Loader<'_> {
    type Pass = LoaderShare;
    type End = ();

    fn pass(&mut self, _number: u64) -> Result<LoaderShare, Failure> {
        let Shared { options, segments, next, deadline } = self.shared;
        let (before, started) = (Usage::of_this_thread(), Instant::now());
        let mut all = Loaded::default();
        while let Some(segment) = segments.get(next.fetch_add(1, Ordering::Relaxed)) {
            let deadline = deadline.get().copied().flatten();
            all = all.and(load::file(segment, options.load, &mut self.buffer, deadline)?);
            if all.stopped {
                break;
            }
        }
        let usage = Usage::of_this_thread() - before;
        let blocks = all.bytes.div_ceil(self.buffer.len() as u64);
        Ok((all, ThreadLine { seconds: started.elapsed().as_secs_f64(), blocks, usage }))
    }

    fn end(self) {}
}
