//! Threads that wait at one line, start together, and meet again after every pass.

use crate::arguments::Plan;
use crate::blocks::Blocks;
use crate::clock::Deadline;
use crate::cpus;
use crate::latency::{Histogram, Sampler};
use crate::order::Order;
use crate::pass::{self, Tally, Watch};
use contract::bytesum::Sum;
use contract::Failure;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread::{self, Builder, ScopedJoinHandle};
use std::time::Instant;

/// Small, because a cage counts every page of it.
const STACK_BYTES: usize = 64 << 10;

/// What is shared by the threads of one run.
#[derive(Debug)]
pub struct Team<'a> {
    plan: &'a Plan,
    bytes: &'a [u8],
    parts: &'a [Blocks],
    sum: Sum,
    /// Everyone passes it three times: parked, then start and finish of each pass.
    line: Barrier,
    dismissed: AtomicBool,
    slots: Vec<Slot>,
}

/// On cache lines of its own: a neighbour's writing must not slow a thread down.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot(Mutex<Option<Tally>>);

impl<'a> Team<'a> {
    /// A team with one thread a part.
    #[must_use]
    pub fn new(plan: &'a Plan, bytes: &'a [u8], parts: &'a [Blocks]) -> Self {
        let slots = parts.iter().map(|_| Slot::default()).collect();
        let line = Barrier::new(parts.len() + 1);
        Self { plan, bytes, parts, sum: plan.sum.function(), line, dismissed: AtomicBool::new(false), slots }
    }

    /// Starts the threads, lets `lead` run passes while they are parked, and gives how long the sampled blocks took.
    ///
    /// # Errors
    /// What `lead` gives, or [`Failure::CannotHere`] when a thread cannot be started.
    pub fn work(&self, lead: impl FnOnce(&Self) -> Result<(), Failure>) -> Result<Histogram, Failure> {
        let allowed = cpus::allowed();
        thread::scope(|scope| {
            let start = |number: usize| {
                let cpu = cpus::chosen(&allowed, number);
                let builder = Builder::new().stack_size(STACK_BYTES);
                builder
                    .spawn_scoped(scope, move || self.follow(number, cpu))
                    .unwrap_or_else(|cause| leave(&cause))
            };
            let threads: Vec<_> = (0..self.parts.len()).map(start).collect();
            self.line.wait();
            let outcome = lead(self);
            self.dismissed.store(true, Ordering::SeqCst);
            self.line.wait();
            let latency = merged(threads);
            outcome.map(|()| latency)
        })
    }

    /// Runs one pass and gives each thread's tally.
    pub fn pass(&self) -> Vec<Tally> {
        self.line.wait();
        self.line.wait();
        let read = |slot: &Slot| *slot.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.slots.iter().filter_map(read).collect()
    }

    fn follow(&self, number: usize, cpu: Option<usize>) -> Histogram {
        if let Some(cpu) = cpu {
            cpus::pin_this_thread(cpu);
        }
        let mut watch = None;
        let mut pass = 0;
        self.line.wait();
        loop {
            self.line.wait();
            if self.dismissed.load(Ordering::SeqCst) {
                return watch.map_or_else(Histogram::new, |watch: Watch| watch.latency);
            }
            let tally = self.pass_of(number, pass, watch.get_or_insert_with(|| self.watch(number)));
            *self.slots[number].0.lock().unwrap_or_else(PoisonError::into_inner) = Some(tally);
            pass += 1;
            self.line.wait();
        }
    }

    fn pass_of(&self, number: usize, pass: u64, watch: &mut Watch) -> Tally {
        let blocks = &self.parts[number];
        let order = Order::new(self.plan.pattern, blocks.count(), self.plan.seed, number as u64, pass);
        pass::run(self.bytes, blocks, &order, self.sum, watch)
    }

    /// Made when the first pass begins: from then on the time runs.
    fn watch(&self, number: usize) -> Watch {
        Watch {
            deadline: Deadline::after(Instant::now(), self.plan.max_duration),
            sampler: Sampler::new(self.plan.fault_every, self.plan.seed ^ number as u64),
            latency: Histogram::new(),
        }
    }
}

fn merged(threads: Vec<ScopedJoinHandle<'_, Histogram>>) -> Histogram {
    let mut all = Histogram::new();
    // A thread that panicked has ended the process already.
    threads.into_iter().filter_map(|thread| thread.join().ok()).for_each(|latency| all.merge(&latency));
    all
}

/// The threads started so far wait for one that will never come, so the process ends here.
fn leave(cause: &std::io::Error) -> ! {
    let failure = Failure::CannotHere(format!("cannot start another thread: {cause}"));
    eprintln!("pcread: {failure}");
    std::process::exit(i32::from(failure.exit_code()))
}
