//! The arms of threads: each scans its share of the files, one after another.

use crate::arguments::{Io, Plan};
use crate::dataset::Source;
use crate::heartbeat::Heartbeat;
use crate::reads;
use crate::scan::{Seen, Tally, Work};
use contract::cpus;
use contract::usage::Usage;
use contract::Failure;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread::{self, Builder};
use std::time::Instant;

/// What all scans of one pass have found.
#[derive(Debug)]
pub struct Pass {
    /// One tally a file.
    pub tallies: Vec<Tally>,
    /// What the threads cost; a single entry for a whole executor.
    pub threads: Vec<ThreadTally>,
}

/// What one thread did in one pass.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThreadTally {
    /// From its first file's beginning to its last one's end.
    pub seconds: f64,
    /// Pieces it looked at.
    pub pieces: u64,
    /// Its own counters.
    pub usage: Usage,
}

type Found = Result<(Vec<Tally>, ThreadTally), Failure>;

/// Threads that wait at one line, start together, and meet again after every pass.
#[derive(Debug)]
pub struct Crew<'a> {
    plan: &'a Plan,
    sources: &'a [Arc<Source>],
    heart: Option<Arc<Heartbeat>>,
    line: Barrier,
    dismissed: AtomicBool,
    work: Mutex<Option<Work>>,
    found: Mutex<Vec<Found>>,
}

impl<'a> Crew<'a> {
    /// A crew for these files.
    #[must_use]
    pub fn new(plan: &'a Plan, sources: &'a [Arc<Source>], heart: Option<Arc<Heartbeat>>) -> Self {
        let line = Barrier::new(plan.threads() + 1);
        let (dismissed, work, found) = (AtomicBool::new(false), Mutex::new(None), Mutex::default());
        Self { plan, sources, heart, line, dismissed, work, found }
    }

    /// Starts the threads, lets `lead` run passes while they are parked, and lets them go.
    ///
    /// # Errors
    /// What `lead` gives.
    pub fn work<T>(&self, lead: impl FnOnce(&Self) -> Result<T, Failure>) -> Result<T, Failure> {
        let allowed = cpus::allowed();
        thread::scope(|scope| {
            for number in 0..self.plan.threads() {
                let cpu = cpus::chosen(&allowed, number);
                let started = Builder::new().spawn_scoped(scope, move || self.follow(number, cpu));
                started.map_or_else(|cause| leave(&cause), drop);
            }
            let outcome = lead(self);
            self.dismissed.store(true, Ordering::SeqCst);
            self.line.wait();
            outcome
        })
    }

    /// Scans every file once.
    ///
    /// # Errors
    /// The first that any thread met.
    pub fn pass(&self, work: Work) -> Result<Pass, Failure> {
        *self.work.lock().unwrap_or_else(PoisonError::into_inner) = Some(work);
        thread::scope(|scope| {
            let beating =
                self.heart.as_ref().map(|heart| heart.start().map(|()| scope.spawn(|| heart.beat_here())));
            self.line.wait();
            self.line.wait();
            if let Some(heart) = &self.heart {
                heart.stop();
            }
            beating.transpose().map(drop)
        })?;
        self.collect()
    }

    fn collect(&self) -> Result<Pass, Failure> {
        let mut pass = Pass { tallies: Vec::new(), threads: Vec::new() };
        for found in self.found.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let (tallies, thread) = found?;
            pass.tallies.extend(tallies);
            pass.threads.push(thread);
        }
        Ok(pass)
    }

    fn follow(&self, number: usize, cpu: Option<usize>) {
        if let Some(cpu) = cpu {
            cpus::pin_this_thread(cpu);
        }
        loop {
            self.line.wait();
            if self.dismissed.load(Ordering::SeqCst) {
                return;
            }
            let work = *self.work.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(work) = work {
                let found = self.share(number, work);
                self.found.lock().unwrap_or_else(PoisonError::into_inner).push(found);
            }
            self.line.wait();
        }
    }

    /// Every so-many-th file, so that no file belongs to two threads.
    fn share(&self, number: usize, work: Work) -> Found {
        let (before, started) = (Usage::of_this_thread(), Instant::now());
        let mine = self.sources.iter().skip(number).step_by(self.plan.threads());
        let tallies = mine.map(|source| self.scan(source, work)).collect::<Result<Vec<Tally>, Failure>>()?;
        let pieces = tallies.iter().map(|tally| tally.seen.pieces).sum();
        let usage = Usage::of_this_thread() - before;
        Ok((tallies, ThreadTally { seconds: started.elapsed().as_secs_f64(), pieces, usage }))
    }

    fn scan(&self, source: &Source, work: Work) -> Result<Tally, Failure> {
        let started = Instant::now();
        let map = self.plan.hints.give(source)?;
        let advise = started.elapsed();
        let seen: Seen = match (self.plan.io, map) {
            (Io::Mmap, Some(map)) => work.range(&map, 0..map.len()),
            _ => reads::waiting(source, &work)?,
        };
        Ok(Tally { started, ended: Instant::now(), advise, seen })
    }
}

/// The threads started so far wait for one that will never come, so the process ends here.
fn leave(cause: &std::io::Error) -> ! {
    let failure = Failure::CannotHere(format!("cannot start another thread: {cause}"));
    eprintln!("pcscan: {failure}");
    std::process::exit(i32::from(failure.exit_code()))
}
