//! What the calling thread has cost so far, by the kernel's own count.

use std::ops::Sub;

/// Counters of one thread; subtract an earlier reading from a later one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Faults that had to wait for the disk.
    pub major_faults: i64,
    /// Faults that found the page in memory.
    pub minor_faults: i64,
    /// Times the thread went to sleep of its own accord.
    pub voluntary_switches: i64,
    /// Times the thread was put aside for another.
    pub involuntary_switches: i64,
}

impl Usage {
    /// Reads the calling thread's counters, getrusage(2) with `RUSAGE_THREAD`.
    #[must_use]
    pub fn of_this_thread() -> Self {
        Self::of(libc::RUSAGE_THREAD)
    }

    /// Reads the counters of all threads that this process has and has had, getrusage(2) with `RUSAGE_SELF`.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self::of(libc::RUSAGE_SELF)
    }

    fn of(whom: libc::c_int) -> Self {
        // SAFETY: rusage is a plain structure for which all zeros are a value; the call only writes to it, and cannot
        // fail for these arguments.
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
}

impl Sub for Usage {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            major_faults: self.major_faults - earlier.major_faults,
            minor_faults: self.minor_faults - earlier.minor_faults,
            voluntary_switches: self.voluntary_switches - earlier.voluntary_switches,
            involuntary_switches: self.involuntary_switches - earlier.involuntary_switches,
        }
    }
}

impl std::ops::Add for Usage {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self {
            major_faults: self.major_faults + more.major_faults,
            minor_faults: self.minor_faults + more.minor_faults,
            voluntary_switches: self.voluntary_switches + more.voluntary_switches,
            involuntary_switches: self.involuntary_switches + more.involuntary_switches,
        }
    }
}
