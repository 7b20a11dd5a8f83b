//! A timer that ticks at fixed times whether or not anybody hears it, `timerfd_create(2)`.

use contract::Failure;
use std::io::Error;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// A periodic timer on the monotonic clock. Reading it never waits.
#[derive(Debug)]
pub struct Timer(OwnedFd);

impl Timer {
    /// A timer that is not set yet.
    ///
    /// # Errors
    /// [`Failure::CannotHere`] where there are no descriptors left.
    pub fn new() -> Result<Self, Failure> {
        // SAFETY: the call takes no pointers.
        let fd =
            unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
        if fd < 0 {
            return Err(Failure::CannotHere(format!("cannot make a timer: {}", Error::last_os_error())));
        }
        // SAFETY: the descriptor was just made and has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Lets it tick every `period`, first at `start` plus one period, times on the monotonic clock.
    ///
    /// # Errors
    /// When the kernel refuses those times.
    pub fn set(&self, start: Duration, period: Duration) -> Result<(), Failure> {
        let times = libc::itimerspec { it_interval: timespec(period), it_value: timespec(start + period) };
        // SAFETY: the descriptor is a timer; the structure outlives the call, and the old one is not asked for.
        let code = unsafe {
            libc::timerfd_settime(
                self.0.as_raw_fd(),
                libc::TFD_TIMER_ABSTIME,
                &raw const times,
                std::ptr::null_mut(),
            )
        };
        (code == 0).then_some(()).ok_or_else(|| Failure::of("cannot set the timer", Error::last_os_error()))
    }

    /// Ticks since it was last read; zero where there were none.
    #[must_use]
    pub fn ticks(&self) -> u64 {
        let mut ticks = 0_u64;
        // SAFETY: eight bytes are what a timer gives, and the place for them outlives the call.
        let read =
            unsafe { libc::read(self.0.as_raw_fd(), (&raw mut ticks).cast(), std::mem::size_of::<u64>()) };
        if read > 0 {
            ticks
        } else {
            0
        }
    }

    /// Waits for a tick, but no longer than a few periods of any heartbeat.
    pub fn wait(&self) {
        let mut asked = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure is given and one is announced.
        unsafe { libc::poll(&raw mut asked, 1, 50) };
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The monotonic clock, which timers go by.
#[must_use]
pub fn now() -> Duration {
    // SAFETY: timespec is a plain structure for which all zeros are a value; this clock always exists.
    let found = unsafe {
        let mut found: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut found);
        found
    };
    Duration::new(found.tv_sec.unsigned_abs(), u32::try_from(found.tv_nsec).unwrap_or_default())
}

#[allow(clippy::cast_possible_wrap)] // seconds since boot, and less than a second of nanoseconds
fn timespec(time: Duration) -> libc::timespec {
    libc::timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_that_nobody_hears_are_counted() {
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
