//! Counters that the kernel keeps for a thread or a process.

use serde::Serialize;
use std::iter::Sum;
use std::ops::{Add, Sub};

/// Counters of one thread; subtract an earlier reading from a later one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Faults that had to wait for the disk.
    pub major_faults: i64,
    /// Faults that found the page in memory.
    pub minor_faults: i64,
    /// Times the thread gave up the CPU to wait.
    pub voluntary_switches: i64,
    /// Times the thread was preempted.
    pub involuntary_switches: i64,
}

impl Usage {
    /// Read the calling thread's counters, getrusage(2) with `RUSAGE_THREAD`.
    #[must_use]
    pub fn of_this_thread() -> Self {
        Self::of(libc::RUSAGE_THREAD)
    }

    /// Read the counters of all threads that this process has and has had, getrusage(2) with
    /// `RUSAGE_SELF`.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self::of(libc::RUSAGE_SELF)
    }

    fn of(whom: libc::c_int) -> Self {
        // SAFETY: rusage is a plain structure for which all zeros are a value; the call only writes
        // to it, and cannot fail for these arguments.
        let found = unsafe {
            let mut found: libc::rusage = std::mem::zeroed();
            libc::getrusage(whom, &raw mut found);
            found
        };
        Self {
            major_faults: found.ru_majflt,
            minor_faults: found.ru_minflt,
            voluntary_switches: found.ru_nvcsw,
            involuntary_switches: found.ru_nivcsw,
        }
    }

    fn with(self, other: Self, combine: fn(i64, i64) -> i64) -> Self {
        Self {
            major_faults: combine(self.major_faults, other.major_faults),
            minor_faults: combine(self.minor_faults, other.minor_faults),
            voluntary_switches: combine(self.voluntary_switches, other.voluntary_switches),
            involuntary_switches: combine(self.involuntary_switches, other.involuntary_switches),
        }
    }
}

impl Sub for Usage {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        self.with(earlier, Sub::sub)
    }
}

impl Add for Usage {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        self.with(more, Add::add)
    }
}

impl Sum for Usage {
    fn sum<I: Iterator<Item = Self>>(usages: I) -> Self {
        usages.fold(Self::default(), Add::add)
    }
}
