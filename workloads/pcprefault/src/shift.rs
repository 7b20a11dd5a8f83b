//! The threads: those that load ahead and those that compute, then use the file.

use crate::arguments::Plan;
use crate::calculation::calculate;
use crate::gate::Gate;
use crate::memory::Memory;
use crate::parts::parts;
use crate::stall::Reading;
use contract::cpus;
use contract::usage::Usage;
use contract::Failure;
use std::fs::File;
use std::sync::OnceLock;
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// Small, because a cage counts every page of it.
const STACK_BYTES: usize = 64 << 10;

/// What the threads share.
#[derive(Debug)]
pub struct Shift<'a> {
    /// What is asked.
    pub plan: &'a Plan,
    /// The file.
    pub file: &'a File,
    /// Its length.
    pub length_bytes: usize,
    /// The memory, as soon as there is any.
    pub memory: &'a OnceLock<Memory>,
    /// What each computing thread does before it uses its part.
    pub iterations: u64,
    /// Where those that load wait.
    pub loading: Gate,
    /// Where those that compute wait.
    pub computing: Gate,
}

/// Loading, by one thread.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// When it began.
    pub started: Instant,
    /// When it was done.
    pub ended: Instant,
    /// What it cost the thread.
    pub usage: Usage,
}

/// Computing and using, by one thread.
#[derive(Debug, Clone, Copy)]
pub struct Use {
    /// When the computing began.
    pub started: Instant,
    /// When the first byte was used.
    pub computed: Instant,
    /// When the last byte was.
    pub ended: Instant,
    /// How long it slept in between, which is for the disk.
    pub stalled: Option<Duration>,
    /// What the use cost the thread.
    pub usage: Usage,
    /// Bytes of its part.
    pub bytes: usize,
    /// Their sum.
    pub checksum: u64,
}

/// A thread that ends with a result, or with none when it was sent home.
pub type Handle<'scope, T> = ScopedJoinHandle<'scope, Result<Option<T>, Failure>>;

impl<'a> Shift<'a> {
    /// Starts the threads that load, each on a CPU of its own where there are enough.
    pub fn start_loading<'scope>(&'a self, scope: &'scope Scope<'scope, 'a>) -> Vec<Handle<'scope, Load>> {
        let count = self.loaders();
        let first = self.plan.compute_threads;
        let cut = parts(self.length_bytes, count.max(1));
        let one = |(number, part): (usize, std::ops::Range<usize>)| {
            start(scope, self.cpu(first + number), move || {
                if !self.loading.wait() {
                    return Ok(None);
                }
                timed(|| self.plan.method.prefault(self.file, self.bytes(), part)).map(Some)
            })
        };
        cut.into_iter().take(count).enumerate().map(one).collect()
    }

    /// Starts the threads that compute and use.
    pub fn start_computing<'scope>(&'a self, scope: &'scope Scope<'scope, 'a>) -> Vec<Handle<'scope, Use>> {
        let cut = parts(self.length_bytes, self.plan.compute_threads);
        let one = |(number, part): (usize, std::ops::Range<usize>)| {
            start(scope, self.cpu(number), move || {
                Ok(self.computing.wait().then(|| self.compute_and_use(&self.bytes()[part])))
            })
        };
        cut.into_iter().enumerate().map(one).collect()
    }

    /// How many threads load. A method that makes the memory is a call of the main thread.
    #[must_use]
    pub fn loaders(&self) -> usize {
        if self.plan.method.makes_memory() {
            0
        } else {
            self.plan.prefault_threads
        }
    }

    /// A thread's own CPU, as long as there are enough.
    fn cpu(&self, thread: usize) -> Option<usize> {
        self.plan.pinned.then(|| cpus::chosen(&cpus::allowed(), thread)).flatten()
    }

    fn bytes(&self) -> &[u8] {
        self.memory.get().map_or(&[], Memory::bytes)
    }

    fn compute_and_use(&self, part: &[u8]) -> Use {
        let started = Instant::now();
        calculate(self.iterations);
        let (usage, reading, computed) = (Usage::of_this_thread(), Reading::of_this_thread(), Instant::now());
        let checksum = self.plan.sum.function()(part);
        let ended = Instant::now();
        Use {
            started,
            computed,
            ended,
            stalled: Reading::of_this_thread().asleep_since(reading),
            usage: Usage::of_this_thread() - usage,
            bytes: part.len(),
            checksum,
        }
    }
}

/// Starts a thread, on this CPU where one is named.
fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    cpu: Option<usize>,
    work: impl FnOnce() -> Result<Option<T>, Failure> + Send + 'scope,
) -> Handle<'scope, T> {
    let pinned = move || {
        cpu.into_iter().for_each(cpus::pin_this_thread);
        work()
    };
    let builder = Builder::new().stack_size(STACK_BYTES);
    builder.spawn_scoped(scope, pinned).unwrap_or_else(|cause| leave(&cause))
}

/// Times a piece of loading on the calling thread.
///
/// # Errors
/// What the loading gives.
pub fn timed(work: impl FnOnce() -> Result<(), Failure>) -> Result<Load, Failure> {
    let usage = Usage::of_this_thread();
    let started = Instant::now();
    work()?;
    let ended = Instant::now();
    Ok(Load { started, ended, usage: Usage::of_this_thread() - usage })
}

/// The results of threads that were let go.
///
/// # Errors
/// The first failure among them.
pub fn joined<T>(threads: Vec<Handle<'_, T>>) -> Result<Vec<T>, Failure> {
    // A thread that panicked has ended the process already.
    let ended = threads.into_iter().filter_map(|thread| thread.join().ok());
    ended.filter_map(Result::transpose).collect()
}

/// The threads started so far wait for one that will never come, so the process ends here.
fn leave(cause: &std::io::Error) -> ! {
    let failure = Failure::CannotHere(format!("cannot start another thread: {cause}"));
    eprintln!("pcprefault: {failure}");
    std::process::exit(i32::from(failure.exit_code()))
}
