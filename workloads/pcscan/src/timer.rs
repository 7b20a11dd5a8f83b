//! A timer that ticks at fixed times even if no thread waits for it, `timerfd_create(2)`.

use contract::failure::OrFailure;
use contract::Failure;
use rustix::event::{poll, PollFd, PollFlags};
use rustix::time::{
    clock_gettime, timerfd_create, timerfd_settime, ClockId, Itimerspec, TimerfdClockId,
    TimerfdFlags, TimerfdTimerFlags, Timespec,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A thread waits no longer than this for a tick, a few periods of any heartbeat.
const LONGEST_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// A periodic timer on the monotonic clock. Reading it never waits.
#[derive(Debug)]
pub struct Timer(OwnedFd);

impl Timer {
    /// Create a timer that is not set yet. Fails with [`Failure::CannotHere`] if there are no
    /// descriptors left.
    pub fn new() -> Result<Self, Failure> {
        timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)
            .map(Self)
            .or_cannot_here("cannot make a timer")
    }

    /// Let it tick every `period`, first one period after `start`. Times are those of the monotonic
    /// clock. Fails if the kernel rejects these times.
    pub fn set(&self, start: Duration, period: Duration) -> Result<(), Failure> {
        let action = "cannot set the timer";
        let it_interval = Timespec::try_from(period).or_failed(action)?;
        let it_value = Timespec::try_from(start + period).or_failed(action)?;
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval, it_value })
            .or_failed(action)
            .map(drop)
    }

    /// Return the number of ticks since it was last read.
    pub fn ticks(&self) -> u64 {
        let mut ticks = [0; 8];
        rustix::io::read(&self.0, &mut ticks).map_or(0, |_| u64::from_ne_bytes(ticks))
    }

    /// Wait for a tick, but not for long.
    pub fn wait(&self) {
        let _ = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&LONGEST_WAIT));
        // `ticks` returns the result
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Return the time of the monotonic clock, which timers use.
pub fn now() -> Duration {
    clock_gettime(ClockId::Monotonic).try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_that_no_thread_reads_are_counted() {
        let timer = Timer::new().unwrap();
        timer.set(now(), Duration::from_millis(2)).unwrap();
        std::thread::sleep(Duration::from_millis(21));
        let ticks = timer.ticks();
        assert!((10..=40).contains(&ticks), "{ticks}");
    }

    #[test]
    fn an_unset_timer_never_ticks() {
        assert_eq!(Timer::new().unwrap().ticks(), 0);
    }
}
