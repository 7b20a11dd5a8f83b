//! The threads: those that load, and those that compute and then use the file.

use crate::calculation::calculate;
use crate::memory::Memory;
use crate::method::{LoadOptions, MOST_THREADS};
use crate::parts::parts;
use crate::stall::Reading;
use clap::builder::RangedU64ValueParser;
use clap::ValueEnum;
use contract::bytesum::{self, Sum};
use contract::cli::name_of;
use contract::threads::{TeamSize, Worker};
use contract::usage::Usage;
use contract::Failure;
use std::fs::File;
use std::ops::Range;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Small, because a cage counts every page of it.
const STACK_BYTES: usize = 64 << 10;

/// Use of the file.
#[derive(Debug, Clone, clap::Args)]
pub struct UseOptions {
    /// Number of threads that compute and then add up a part of their own
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=MOST_THREADS))]
    pub compute_threads: usize,
    /// Method of adding up the bytes
    #[arg(long, value_enum, default_value = "simd")]
    sum: SumKind,
    /// Leave the threads to the scheduler, as several processes do
    #[arg(long)]
    unpinned: bool,
}

/// Method of adding up the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SumKind {
    /// As fast as this CPU can
    Simd,
    /// One by one
    Byte,
}

impl UseOptions {
    fn sum(&self) -> Sum {
        match self.sum {
            SumKind::Simd => bytesum::fastest(),
            SumKind::Byte => bytesum::plain,
        }
    }

    /// Return the options as they are typed.
    pub fn words(&self) -> Vec<String> {
        let threads = self.compute_threads.to_string();
        vec!["--compute-threads".into(), threads, "--sum".into(), name_of(&self.sum)]
    }
}

/// State shared by the threads.
#[derive(Debug)]
pub struct Workers<'a> {
    /// Method of loading the file.
    pub load: &'a LoadOptions,
    /// Use of the file.
    pub using: &'a UseOptions,
    pub file: &'a File,
    pub length_bytes: usize,
    /// The memory, once it exists.
    pub memory: OnceLock<Memory>,
    /// Calculation of each computing thread before it uses its part.
    pub iterations: u64,
}

/// The loading by one thread.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// When it began.
    pub started: Instant,
    /// When it ended.
    pub ended: Instant,
    /// The thread's counters.
    pub usage: Usage,
}

/// The calculation and the use by one thread.
#[derive(Debug, Clone, Copy)]
pub struct Use {
    /// When the calculation began.
    pub started: Instant,
    /// When the first byte was used.
    pub computed: Instant,
    /// When the last byte was used.
    pub ended: Instant,
    /// Time between the two that the thread slept, waiting for the disk.
    pub stalled: Option<Duration>,
    /// The thread's counters during the use.
    pub usage: Usage,
    /// Bytes of its part.
    pub bytes: usize,
    pub checksum: u64,
}

/// A thread that loads a part of the file.
#[derive(Debug)]
pub struct Loader<'a> {
    workers: &'a Workers<'a>,
    part: Range<usize>,
}

/// A thread that computes and then uses a part of the file.
#[derive(Debug)]
pub struct User<'a> {
    workers: &'a Workers<'a>,
    part: Range<usize>,
}

impl Workers<'_> {
    /// Return the threads that load; their CPUs follow those of the threads that compute.
    pub fn loaders(&self) -> TeamSize {
        self.team(self.load.threads(), self.using.compute_threads)
    }

    /// Return the threads that compute.
    pub fn users(&self) -> TeamSize {
        self.team(self.using.compute_threads, 0)
    }

    /// Create the loader of one thread.
    pub fn loader(&self, thread: usize) -> Loader<'_> {
        Loader {
            workers: self,
            part: parts(self.length_bytes, self.load.threads())[thread].clone(),
        }
    }

    /// Create the user of one thread.
    pub fn user(&self, thread: usize) -> User<'_> {
        User {
            workers: self,
            part: parts(self.length_bytes, self.using.compute_threads)[thread].clone(),
        }
    }

    fn team(&self, count: usize, first_cpu: usize) -> TeamSize {
        let first_cpu = (!self.using.unpinned).then_some(first_cpu);
        TeamSize { count, stack_bytes: STACK_BYTES, first_cpu }
    }

    fn bytes(&self) -> &[u8] {
        self.memory.get().map_or(&[], Memory::bytes)
    }
}

impl Worker for Loader<'_> {
    type Pass = Load;
    type End = ();

    fn pass(&mut self, _number: u64) -> Result<Load, Failure> {
        let Workers { load, file, .. } = self.workers;
        measured(|| load.method.prefault(file, self.workers.bytes(), self.part.clone()))
    }

    fn end(self) {}
}

impl Worker for User<'_> {
    type Pass = Use;
    type End = ();

    fn pass(&mut self, _number: u64) -> Result<Use, Failure> {
        let part = &self.workers.bytes()[self.part.clone()];
        let started = Instant::now();
        calculate(self.workers.iterations);
        let (usage, reading, computed) =
            (Usage::of_this_thread(), Reading::of_this_thread(), Instant::now());
        let checksum = self.workers.using.sum()(part);
        let ended = Instant::now();
        Ok(Use {
            started,
            computed,
            ended,
            stalled: Reading::of_this_thread().asleep_since(reading),
            usage: Usage::of_this_thread() - usage,
            bytes: part.len(),
            checksum,
        })
    }

    fn end(self) {}
}

/// Load on the calling thread and measure it. Fails with the error of `load`.
pub fn measured(load: impl FnOnce() -> Result<(), Failure>) -> Result<Load, Failure> {
    let usage = Usage::of_this_thread();
    let started = Instant::now();
    load()?;
    let ended = Instant::now();
    Ok(Load { started, ended, usage: Usage::of_this_thread() - usage })
}
