//! The choice between threads and an async executor.

use clap::builder::RangedU64ValueParser;
use clap::ValueEnum;

/// More threads than this would mostly wait for each other.
const MOST_THREADS: u64 = 1024;

/// Executor of the scans.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct ExecOptions {
    /// Executor of the scans
    #[arg(long, value_enum, default_value = "sync1")]
    pub exec: Exec,
    /// Threads of --exec threads and of --exec async-mt
    #[arg(long, value_name = "N", default_value_t = 8)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=MOST_THREADS))]
    pub workers: usize,
}

/// Executor of the scans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Exec {
    /// One thread, one file after another
    Sync1,
    /// Several threads, each file in one of them
    Threads,
    /// One task per file, on an executor of one thread
    AsyncCt,
    /// One task per file, on an executor of several threads
    AsyncMt,
    /// The same tasks on an executor of one thread, each begun when the previous one has ended
    AsyncSequential,
}

impl ExecOptions {
    /// Return the number of threads that scan without an executor.
    pub fn threads(&self) -> usize {
        if self.exec == Exec::Threads {
            self.workers
        } else {
            1
        }
    }
}

impl Exec {
    /// Return whether an executor scans.
    pub fn is_async(self) -> bool {
        !matches!(self, Self::Sync1 | Self::Threads)
    }
}
