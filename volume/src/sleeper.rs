//! Sleep until a time, without the delay of waking up where few requests wait.
//!
//! A thread wakes some tens of microseconds late: the timer fires, the processor leaves its idle
//! state, the thread is scheduled. The sleeper learns this delay, sets the alarm as much earlier,
//! and spins until the time. Where many requests wait, replies follow each other closely, and their
//! threads would spin at each other's expense: they just sleep.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use rustix::thread::{clock_nanosleep_absolute, ClockId};
use rustix::time::{clock_gettime, Timespec};

pub(crate) const NS_PER_SECOND: u64 = 1_000_000_000;

/// The longest spin. A thread that wakes later than this waited for a processor.
const MOST_LEAD_NS: u64 = 60_000;

/// The most threads that wait when one of them spins.
const MOST_WAITING: usize = 2;

/// The delay that was learnt, and the number of threads that sleep or spin.
#[derive(Debug, Default)]
pub(crate) struct Sleeper {
    lead_ns: AtomicU64,
    waiting: AtomicUsize,
}

impl Sleeper {
    /// Sleep until a time of the monotonic clock.
    pub(crate) fn sleep_until(&self, due_ns: u64) {
        let waiting = self.waiting.fetch_add(1, Relaxed) + 1;
        if waiting > MOST_WAITING {
            alarm(due_ns);
        } else {
            self.sleep_and_spin(due_ns);
        }
        self.waiting.fetch_sub(1, Relaxed);
    }

    fn sleep_and_spin(&self, due_ns: u64) {
        let lead_ns = self.lead_ns.load(Relaxed);
        let alarm_ns = due_ns.saturating_sub(lead_ns);
        if monotonic_ns() < alarm_ns {
            alarm(alarm_ns);
            let late_ns = monotonic_ns().saturating_sub(alarm_ns);
            if late_ns < MOST_LEAD_NS {
                // Seven eighths of what was learnt. Threads that learn at once lose a lesson.
                self.lead_ns.store(lead_ns - lead_ns / 8 + late_ns / 8, Relaxed);
            }
        }
        while monotonic_ns() < due_ns {
            std::hint::spin_loop();
        }
    }
}

/// Return the time of the monotonic clock.
#[allow(clippy::cast_sign_loss)] // it counts up from zero
pub(crate) fn monotonic_ns() -> u64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Monotonic);
    tv_sec as u64 * NS_PER_SECOND + tv_nsec as u64
}

#[allow(clippy::cast_possible_wrap)] // 64 bits of nanoseconds are few seconds
fn alarm(at_ns: u64) {
    let (seconds, nanoseconds) = (at_ns / NS_PER_SECOND, at_ns % NS_PER_SECOND);
    let at = Timespec { tv_sec: seconds as i64, tv_nsec: nanoseconds as i64 };
    while clock_nanosleep_absolute(ClockId::Monotonic, &at).is_err() && monotonic_ns() < at_ns {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_sleep_ends_early_and_the_lead_stays_short() {
        let sleeper = Sleeper::default();
        for number in 1..200 {
            let due_ns = monotonic_ns() + number * 10_000;
            sleeper.sleep_until(due_ns);
            assert!(monotonic_ns() >= due_ns);
        }
        assert!(sleeper.lead_ns.load(Relaxed) <= MOST_LEAD_NS);
        assert_eq!(sleeper.waiting.load(Relaxed), 0);
    }

    #[test]
    fn many_threads_sleep_until_their_times() {
        let sleeper = Sleeper::default();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let sleeper = &sleeper;
                scope.spawn(move || {
                    let due_ns = monotonic_ns() + 5_000_000 + thread;
                    sleeper.sleep_until(due_ns);
                    assert!(monotonic_ns() >= due_ns);
                });
            }
        });
        assert_eq!(sleeper.waiting.load(Relaxed), 0);
    }
}
