//! The time a thread slept, in contrast to working or waiting for a CPU.

use rustix::time::{clock_gettime, ClockId};
use std::fs::read_to_string;
use std::time::{Duration, Instant};

/// A reading of the calling thread's clocks.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    at: Instant,
    on_cpu: Duration,
    waiting: Option<Duration>,
}

impl Reading {
    /// Read the calling thread's clocks: wall, CPU (`CLOCK_THREAD_CPUTIME_ID`), and the time it was
    /// ready to run without a CPU (`/proc/thread-self/schedstat`, `proc_pid_schedstat` in the
    /// kernel's sched-stats document).
    pub fn of_this_thread() -> Self {
        Self { at: Instant::now(), on_cpu: cpu_time(), waiting: run_queue_time() }
    }

    /// Return how long the thread slept since an earlier reading. While it adds up a mapped file,
    /// it only ever sleeps to wait for the disk. None if the kernel does not count the time of
    /// waiting for a CPU.
    pub fn asleep_since(self, earlier: Self) -> Option<Duration> {
        let waited = self.waiting?.checked_sub(earlier.waiting?)?;
        let awake = self.on_cpu.saturating_sub(earlier.on_cpu) + waited;
        Some(self.at.duration_since(earlier.at).saturating_sub(awake))
    }
}

fn cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

fn run_queue_time() -> Option<Duration> {
    let text = read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calculation::{calculate, SpinRate};

    fn asleep(work: impl FnOnce()) -> f64 {
        let before = Reading::of_this_thread();
        work();
        Reading::of_this_thread().asleep_since(before).unwrap().as_secs_f64()
    }

    #[test]
    fn sleeping_counts_and_working_does_not() {
        let slept = asleep(|| std::thread::sleep(Duration::from_millis(80)));
        assert!((0.07..0.2).contains(&slept), "{slept}");
        let iterations = SpinRate::measured().iterations(Duration::from_millis(80), 1);
        let worked = asleep(|| {
            calculate(iterations);
        });
        assert!(worked < slept / 2.0, "{worked} of {slept}"); // a busy machine makes work wait as well
    }
}
