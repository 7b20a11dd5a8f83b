//! Threads that wait at one line, start together, and meet again after every pass.

use crate::arguments::Plan;
use crate::clock::Deadline;
use crate::events::Counters;
use crate::pass::{Tally, Watch};
use crate::reader::Reader;
use crate::route::Map;
use crate::source::Source;
use contract::bytesum::Sum;
use contract::latency::{Histogram, Sampler};
use contract::{cpus, Failure};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread::{self, Builder};
use std::time::Instant;

/// A cage counts only the pages that are touched, a few of these.
const STACK_BYTES: usize = 256 << 10;

/// What is shared by the threads of one run.
pub struct Team<'a> {
    plan: &'a Plan,
    source: &'a Source,
    map: &'a Map,
    sum: Sum,
    /// Everyone passes it three times: parked, then start and finish of each pass.
    line: Barrier,
    dismissed: AtomicBool,
    /// Numbers the passes, warm ones first.
    pass: AtomicU64,
    slots: Vec<Slot>,
}

/// On cache lines of its own: a neighbour's writing must not slow a thread down.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot(Mutex<Option<Result<Tally, Failure>>>);

/// What a thread has gathered when it leaves.
#[derive(Debug, Default)]
pub struct Gathered {
    /// How long the sampled blocks took.
    pub latency: Option<Histogram>,
    /// Blocks found in the process's own cache, and all that were asked for.
    pub hits: Option<(u64, u64)>,
}

impl<'a> Team<'a> {
    /// A team for the plan.
    #[must_use]
    pub fn new(plan: &'a Plan, source: &'a Source, map: &'a Map) -> Self {
        let slots = (0..plan.threads).map(|_| Slot::default()).collect();
        let (line, dismissed, pass) =
            (Barrier::new(plan.threads + 1), AtomicBool::new(false), AtomicU64::new(0));
        Self { plan, source, map, sum: plan.sum.function(), line, dismissed, pass, slots }
    }

    /// Starts the threads, lets `lead` run passes while they are parked, and gives what they gathered.
    ///
    /// # Errors
    /// What `lead` gives, or [`Failure::CannotHere`] when a thread or its way to the bytes cannot be had.
    pub fn work(&self, lead: impl FnOnce(&Self) -> Result<(), Failure>) -> Result<Gathered, Failure> {
        let allowed = cpus::allowed();
        thread::scope(|scope| {
            let start = |number: usize| {
                let cpu = cpus::chosen(&allowed, number);
                let builder = Builder::new().stack_size(STACK_BYTES);
                builder
                    .spawn_scoped(scope, move || self.follow(number, cpu))
                    .unwrap_or_else(|cause| leave(&cause))
            };
            let threads: Vec<_> = (0..self.plan.threads).map(start).collect();
            self.line.wait();
            let outcome = self.collected().and_then(|_| lead(self));
            self.dismissed.store(true, Ordering::SeqCst);
            self.line.wait();
            // A thread that panicked has ended the process already.
            let gathered = threads.into_iter().filter_map(|thread| thread.join().ok());
            let all = gathered.fold(Gathered::default(), Gathered::with);
            outcome.map(|()| all)
        })
    }

    /// Runs one pass and gives each thread's tally.
    ///
    /// # Errors
    /// The first thread's that failed.
    pub fn pass(&self) -> Result<Vec<Tally>, Failure> {
        self.line.wait();
        self.line.wait();
        self.pass.fetch_add(1, Ordering::SeqCst);
        self.collected()
    }

    fn collected(&self) -> Result<Vec<Tally>, Failure> {
        let take = |slot: &Slot| slot.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.slots.iter().filter_map(take).collect()
    }

    fn follow(&self, number: usize, cpu: Option<usize>) -> Gathered {
        if let Some(cpu) = cpu {
            cpus::pin_this_thread(cpu);
        }
        let mut reader = Reader::new(self.plan, self.source);
        if let Err(failure) = &reader {
            self.leave_word(number, Err(failure.clone()));
        }
        let mut watch = None;
        self.line.wait();
        loop {
            self.line.wait();
            if self.dismissed.load(Ordering::SeqCst) {
                let latency = watch.map(|watch: Watch| watch.latency);
                return Gathered { latency, hits: reader.ok().and_then(|reader| reader.hits()) };
            }
            if let Ok(reader) = &mut reader {
                let pass = self.pass.load(Ordering::SeqCst);
                if pass == self.plan.warm_passes {
                    watch = None;
                }
                self.leave_word(number, self.read(number, pass, reader, &mut watch));
            }
            self.line.wait();
        }
    }

    fn read(
        &self,
        number: usize,
        pass: u64,
        reader: &mut Reader<'_>,
        watch: &mut Option<Watch>,
    ) -> Result<Tally, Failure> {
        let mut route = self.map.route(self.plan, number, pass);
        let watch = watch.get_or_insert_with(|| self.watch(number));
        reader
            .pass(&mut route, self.sum, watch)
            .map_err(|cause| Failure::of(format!("cannot read {}", self.plan.file.display()), cause))
    }

    fn leave_word(&self, number: usize, word: Result<Tally, Failure>) {
        *self.slots[number].0.lock().unwrap_or_else(PoisonError::into_inner) = Some(word);
    }

    /// Made when the first pass begins, and again when the first measured one does: from then on the time runs.
    fn watch(&self, number: usize) -> Watch {
        Watch {
            deadline: Deadline::after(Instant::now(), self.plan.max_duration, self.plan.block_bytes),
            pause: self.plan.pause,
            sampler: Sampler::new(self.plan.fault_every, self.plan.seed ^ number as u64),
            latency: Histogram::new(),
            counters: Counters::open().ok(),
        }
    }
}

impl Gathered {
    fn with(mut self, more: Self) -> Self {
        if let Some(latency) = more.latency {
            self.latency.get_or_insert_with(Histogram::new).merge(&latency);
        }
        let sum = |(hits, asked): (u64, u64), more: (u64, u64)| (hits + more.0, asked + more.1);
        self.hits = more.hits.map(|more| self.hits.map_or(more, |sofar| sum(sofar, more))).or(self.hits);
        self
    }
}

/// The threads started so far wait for one that will never come, so the process ends here.
fn leave(cause: &std::io::Error) -> ! {
    let failure = Failure::CannotHere(format!("cannot start another thread: {cause}"));
    eprintln!("pcread: {failure}");
    std::process::exit(i32::from(failure.exit_code()))
}
