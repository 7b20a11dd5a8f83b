//! Threads that load files: parked until they are wanted, each taking the next file that nobody has begun.

use crate::arguments::Plan;
use crate::load::{self, Load, Loaded};
use crate::segment::Segment;
use contract::usage::Usage;
use contract::{cpus, Failure};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, OnceLock, PoisonError};
use std::thread::{self, Builder};
use std::time::Instant;

/// Small, because a cage counts every page of it.
const STACK_BYTES: usize = 64 << 10;

/// What one thread did, and what it cost.
#[derive(Debug, Clone, Copy, Default)]
pub struct Share {
    /// How long it took.
    pub seconds: f64,
    /// Pieces of the index that it looked at: bytes loaded, or buckets looked up.
    pub blocks: u64,
    /// The thread's own counters.
    pub usage: Usage,
}

/// The threads of one run.
#[derive(Debug)]
pub struct Loaders<'a> {
    plan: &'a Plan,
    segments: &'a [Segment],
    threads: usize,
    next: AtomicUsize,
    /// Everyone passes it three times: parked, started, finished.
    line: Barrier,
    is_wanted: AtomicBool,
    deadline: OnceLock<Option<Instant>>,
    outcomes: Mutex<Vec<Result<(Loaded, Share), Failure>>>,
}

impl<'a> Loaders<'a> {
    /// As many threads as the plan's load needs, none where it does not go through files.
    #[must_use]
    pub fn new(plan: &'a Plan, segments: &'a [Segment]) -> Self {
        let threads = match plan.load {
            Load::Parallel => plan.parallel_files.min(segments.len()),
            load => usize::from(load.is_by_file()),
        };
        Self {
            plan,
            segments,
            threads,
            next: AtomicUsize::new(0),
            line: Barrier::new(threads + 1),
            is_wanted: AtomicBool::new(false),
            deadline: OnceLock::new(),
            outcomes: Mutex::new(Vec::with_capacity(threads)),
        }
    }

    /// Starts the threads and lets `lead` go on while they are parked.
    ///
    /// # Errors
    /// What `lead` gives.
    pub fn attend<T>(&self, lead: impl FnOnce(&Self) -> Result<T, Failure>) -> Result<T, Failure> {
        let allowed = cpus::allowed();
        thread::scope(|scope| {
            for number in 0..self.threads {
                let cpu = cpus::chosen(&allowed, number);
                let started =
                    Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, move || self.follow(cpu));
                started.map_or_else(|cause| leave(&cause), drop);
            }
            self.line.wait();
            let outcome = lead(self);
            if !self.is_wanted.load(Ordering::SeqCst) {
                self.line.wait();
            }
            outcome
        })
    }

    /// Lets the threads load all files and waits for them; to be called once at most.
    ///
    /// # Errors
    /// The first failure of any thread.
    pub fn load(&self, deadline: Option<Instant>) -> Result<(Loaded, Vec<Share>), Failure> {
        let _ = self.deadline.set(deadline);
        self.is_wanted.store(true, Ordering::SeqCst);
        self.line.wait();
        self.line.wait();
        let outcomes = std::mem::take(&mut *self.outcomes.lock().unwrap_or_else(PoisonError::into_inner));
        let mut all = Loaded::default();
        let mut shares = Vec::with_capacity(outcomes.len());
        for outcome in outcomes {
            let (loaded, share) = outcome?;
            all = all.and(loaded);
            shares.push(share);
        }
        Ok((all, shares))
    }

    fn follow(&self, cpu: Option<usize>) {
        if let Some(cpu) = cpu {
            cpus::pin_this_thread(cpu);
        }
        let mut buffer = vec![1; self.plan.block_bytes]; // written, so that no page of it is missing later
        self.line.wait();
        self.line.wait();
        if !self.is_wanted.load(Ordering::SeqCst) {
            return;
        }
        let outcome = self.share(&mut buffer);
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
        self.line.wait();
    }

    fn share(&self, buffer: &mut [u8]) -> Result<(Loaded, Share), Failure> {
        let deadline = self.deadline.get().copied().flatten();
        let (before, started) = (Usage::of_this_thread(), Instant::now());
        let mut all = Loaded::default();
        while let Some(segment) = self.segments.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            all = all.and(load::file(segment, self.plan.load, buffer, deadline)?);
            if all.stopped {
                break;
            }
        }
        let usage = Usage::of_this_thread() - before;
        let blocks = all.bytes.div_ceil(buffer.len() as u64);
        Ok((all, Share { seconds: started.elapsed().as_secs_f64(), blocks, usage }))
    }
}

/// The threads started so far wait for one that will never come, so the process ends here.
fn leave(cause: &std::io::Error) -> ! {
    let failure = Failure::CannotHere(format!("cannot start another thread: {cause}"));
    eprintln!("pcindex: {failure}");
    std::process::exit(i32::from(failure.exit_code()))
}
