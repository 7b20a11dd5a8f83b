//! The threads that read.

use crate::block_sequence::{Partitioning, SequenceOptions};
use crate::clock::Deadline;
use crate::events::Counters;
use crate::pass::{PassOptions, Tally, Watch};
use crate::reader::{Reader, ReaderOptions};
use crate::source::{Source, SourceOptions};
use contract::bytesum::Sum;
use contract::failure::OrFailure;
use contract::latency::{Histogram, Sampler};
use contract::threads::{TeamSize, ThreadTeam, Worker};
use contract::Failure;
use std::time::Instant;

/// A cage counts only the pages that are touched, a few of these.
const STACK_BYTES: usize = 256 << 10;

/// State shared by the threads.
#[derive(Debug)]
pub struct Reading<'a> {
    /// The file and how it is accessed.
    pub access: &'a SourceOptions,
    pub reader: &'a ReaderOptions,
    pub sequence: &'a SequenceOptions,
    pub pass: &'a PassOptions,
    pub source: &'a Source,
    /// Its division among the threads.
    pub partitioning: &'a Partitioning,
}

/// Results of one thread, or of all, over all passes.
#[derive(Debug, Default)]
pub struct ThreadResults {
    /// Durations of the sampled blocks.
    pub latency: Option<Histogram>,
    /// Blocks found in the process's own cache, and all requested blocks.
    pub hits: Option<(u64, u64)>,
}

impl Reading<'_> {
    /// Start the threads, let `lead` run passes, and return what they gathered. Fails with the
    /// error of `lead`, or [`Failure::CannotHere`] if a thread or its reader is not available.
    pub fn run(
        &self,
        lead: impl FnOnce(&ThreadTeam<Tally>) -> Result<(), Failure>,
    ) -> Result<ThreadResults, Failure> {
        let sum = self.pass.sum.function();
        let create = |number| {
            let reader = Reader::new(self.reader, self.access, self.sequence, self.source)?;
            Ok(ReadingThread { shared: self, number, sum, reader, watch: None })
        };
        let size =
            TeamSize { count: self.sequence.threads, stack_bytes: STACK_BYTES, first_cpu: Some(0) };
        let ((), results) = ThreadTeam::run(size, create, lead)?;
        Ok(results.into_iter().fold(ThreadResults::default(), ThreadResults::with))
    }
}

struct ReadingThread<'a> {
    shared: &'a Reading<'a>,
    number: usize,
    sum: Sum,
    reader: Reader<'a>,
    watch: Option<Watch>,
}

impl Worker for ReadingThread<'_> {
    type Pass = Tally;
    type End = ThreadResults;

    fn pass(&mut self, number: u64) -> Result<Tally, Failure> {
        let Reading { partitioning, sequence, pass, .. } = self.shared;
        // Made when the first pass begins, and again when the first measured one does: from then on
        // the time counts.
        if self.watch.is_none() || number == pass.warm_passes {
            self.watch = Some(self.new_watch());
        }
        let mut blocks = partitioning.sequence(sequence, self.number, number);
        let Some(watch) = &mut self.watch else { unreachable!("it was made above") };
        self.reader
            .pass(&mut blocks, self.sum, watch)
            .or_failed(format!("cannot read {}", self.shared.access.file.display()))
    }

    fn end(self) -> ThreadResults {
        ThreadResults { latency: self.watch.map(|watch| watch.latency), hits: self.reader.hits() }
    }
}

impl ReadingThread<'_> {
    fn new_watch(&self) -> Watch {
        let Reading { sequence, pass, .. } = self.shared;
        Watch {
            deadline: Deadline::after(Instant::now(), pass.max_duration, sequence.block_bytes),
            pause: pass.pause(),
            sampler: Sampler::new(pass.fault_every, sequence.seed ^ self.number as u64),
            latency: Histogram::new(),
            counters: Counters::open().ok(),
        }
    }
}

impl ThreadResults {
    fn with(mut self, more: Self) -> Self {
        if let Some(latency) = more.latency {
            self.latency.get_or_insert_with(Histogram::new).merge(&latency);
        }
        let sum = |(hits, asked): (u64, u64), more: (u64, u64)| (hits + more.0, asked + more.1);
        self.hits =
            more.hits.map(|more| self.hits.map_or(more, |sofar| sum(sofar, more))).or(self.hits);
        self
    }
}
