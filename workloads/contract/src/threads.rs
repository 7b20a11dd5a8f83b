//! Threads that start together, work in passes, and wait between them.

use crate::failure::OrFailure;
use crate::{cpus, Failure};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{scope, Builder, Scope, ScopedJoinHandle};

/// The work of one thread. A worker is created in its own thread, before the first pass.
pub trait Worker {
    /// The result of one pass.
    type Pass: Send;
    /// Result of a finished thread.
    type End: Send;

    /// Do one pass; passes are numbered from 0.
    ///
    /// # Errors
    /// Result of the work.
    fn pass(&mut self, number: u64) -> Result<Self::Pass, Failure>;

    /// End the thread.
    fn end(self) -> Self::End;
}

/// Number of threads, and the attributes to start them with.
#[derive(Debug, Clone, Copy)]
pub struct TeamSize {
    /// Number of threads; may be zero.
    pub count: usize,
    /// Stack of each thread. A cage counts only the pages that are touched.
    pub stack_bytes: usize,
    /// Position among the process's CPUs of the first thread's CPU; None leaves the threads to the
    /// scheduler.
    pub first_cpu: Option<usize>,
}

/// Threads that wait for the next pass.
#[derive(Debug)]
pub struct ThreadTeam<P> {
    state: Mutex<State>,
    pass_started: Condvar,
    all_waiting: Condvar,
    results: Vec<Slot<P>>,
}

#[derive(Debug, Default)]
struct State {
    passes_started: u64,
    waiting: usize,
    is_over: bool,
}

/// On cache lines of its own: another thread's writing must not slow a thread down.
#[derive(Debug)]
#[repr(align(128))]
struct Slot<P>(Mutex<Option<Result<P, Failure>>>);

impl<P: Send> ThreadTeam<P> {
    /// Start the threads, call `lead` once all of them wait, and end them. `create` makes the
    /// worker of a thread. Returns the result of `lead`, and what the workers left, in the order of
    /// the threads.
    ///
    /// # Errors
    /// [`Failure::CannotHere`] if a thread cannot be started; the first error of `create`; the
    /// error of `lead`.
    pub fn run<W: Worker<Pass = P>, T>(
        size: TeamSize,
        create: impl Fn(usize) -> Result<W, Failure> + Sync,
        lead: impl FnOnce(&Self) -> Result<T, Failure>,
    ) -> Result<(T, Vec<W::End>), Failure> {
        let (team, create, allowed) = (&Self::new(size.count), &create, cpus::allowed());
        scope(|scope| {
            let start = |number: usize| {
                let cpu = size.first_cpu.and_then(|first| cpus::chosen(&allowed, first + number));
                spawn_pinned(scope, size.stack_bytes, cpu, move || team.work(number, create))
            };
            let started: Result<Vec<_>, Failure> = (0..size.count).map(start).collect();
            let outcome = started.and_then(|threads| {
                team.finish_pass()?;
                lead(team).map(|led| (led, threads))
            });
            team.dismiss();
            // A thread that panicked has ended the process already.
            outcome.map(|(led, threads)| {
                (
                    led,
                    threads.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect(),
                )
            })
        })
    }

    fn new(count: usize) -> Self {
        let results = (0..count).map(|_| Slot(Mutex::new(None))).collect();
        Self {
            state: Mutex::default(),
            pass_started: Condvar::new(),
            all_waiting: Condvar::new(),
            results,
        }
    }

    /// Do one pass on all threads and return their results in the order of the threads.
    ///
    /// # Errors
    /// The first thread's that failed.
    pub fn pass(&self) -> Result<Vec<P>, Failure> {
        self.start_pass();
        self.finish_pass()
    }

    /// Start a pass without waiting for its end.
    pub fn start_pass(&self) {
        let mut state = lock(&self.state);
        state.passes_started += 1;
        state.waiting = 0;
        self.pass_started.notify_all();
    }

    /// Wait for the end of the pass and return the threads' results in the order of the threads.
    ///
    /// # Errors
    /// The first thread's that failed.
    pub fn finish_pass(&self) -> Result<Vec<P>, Failure> {
        let is_busy = |state: &mut State| state.waiting < self.results.len();
        drop(
            self.all_waiting
                .wait_while(lock(&self.state), is_busy)
                .unwrap_or_else(PoisonError::into_inner),
        );
        self.results.iter().filter_map(|slot| lock(&slot.0).take()).collect()
    }

    fn dismiss(&self) {
        lock(&self.state).is_over = true;
        self.pass_started.notify_all();
    }

    fn work<W: Worker<Pass = P>>(
        &self,
        number: usize,
        create: &impl Fn(usize) -> Result<W, Failure>,
    ) -> Option<W::End> {
        let mut worker =
            create(number).map_err(|failure| self.store_result(number, Err(failure))).ok();
        let mut done = 0;
        while self.wait_for_pass(done) {
            if let Some(worker) = &mut worker {
                self.store_result(number, worker.pass(done));
            }
            done += 1;
        }
        worker.map(Worker::end)
    }

    /// Wait until another pass starts; false if the team is dismissed.
    fn wait_for_pass(&self, done: u64) -> bool {
        let mut state = lock(&self.state);
        state.waiting += 1;
        if state.waiting == self.results.len() {
            self.all_waiting.notify_all();
        }
        let idle = |state: &mut State| state.passes_started == done && !state.is_over;
        let state =
            self.pass_started.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        state.passes_started > done
    }

    fn store_result(&self, number: usize, result: Result<P, Failure>) {
        *lock(&self.results[number].0) = Some(result);
    }
}

/// Start a thread, pinned to this CPU if there is one.
fn spawn_pinned<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    stack_bytes: usize,
    cpu: Option<usize>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, Failure> {
    let pinned = move || {
        cpu.into_iter().for_each(cpus::pin_this_thread);
        work()
    };
    let builder = Builder::new().stack_size(stack_bytes);
    builder.spawn_scoped(scope, pinned).or_cannot_here("cannot start another thread")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: TeamSize = TeamSize { count: 3, stack_bytes: 64 << 10, first_cpu: Some(0) };

    /// Adds the numbers of the passes to the number of its thread.
    struct Adder(u64);

    impl Worker for Adder {
        type Pass = u64;
        type End = u64;

        fn pass(&mut self, number: u64) -> Result<u64, Failure> {
            self.0 += number;
            (self.0 < 100).then_some(self.0).ok_or_else(|| Failure::Failed("too much".to_owned()))
        }

        fn end(self) -> u64 {
            self.0
        }
    }

    #[allow(clippy::unnecessary_wraps)] // workers may fail
    fn adder(number: usize) -> Result<Adder, Failure> {
        Ok(Adder(10 * number as u64))
    }

    #[test]
    fn results_come_in_the_order_of_the_threads() {
        let passes =
            ThreadTeam::run(SIZE, adder, |team| Ok([team.pass()?, team.pass()?, team.pass()?]));
        let (passes, ends) = passes.unwrap();
        assert_eq!(passes, [[0, 10, 20], [1, 11, 21], [3, 13, 23]]);
        assert_eq!(ends, [3, 13, 23]);
    }

    #[test]
    fn a_worker_that_cannot_be_created_fails_the_team_before_it_works() {
        let create = |number| {
            if number == 1 {
                Err(Failure::CannotHere("no".into()))
            } else {
                adder(number)
            }
        };
        let outcome =
            ThreadTeam::run(SIZE, create, |_| -> Result<(), Failure> { panic!("nothing to lead") });
        assert_eq!(outcome.unwrap_err(), Failure::CannotHere("no".into()));
    }

    #[test]
    fn a_failed_pass_is_reported() {
        let create = |number| Ok(Adder(if number == 2 { 100 } else { 0 }));
        let outcome = ThreadTeam::run(SIZE, create, ThreadTeam::pass);
        assert_eq!(outcome.unwrap_err(), Failure::Failed("too much".into()));
    }

    #[test]
    fn a_thread_that_cannot_be_started_ends_the_others() {
        let size = TeamSize { stack_bytes: usize::MAX / 2, ..SIZE };
        let outcome = ThreadTeam::run(size, adder, ThreadTeam::pass);
        assert!(matches!(outcome, Err(Failure::CannotHere(_))), "{outcome:?}");
    }

    #[test]
    fn a_team_of_nobody_finishes_at_once() {
        let size = TeamSize { count: 0, ..SIZE };
        assert_eq!(ThreadTeam::run(size, adder, ThreadTeam::pass), Ok((vec![], vec![])));
    }
}
