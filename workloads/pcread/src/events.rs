//! What the CPU itself counts while a thread reads: references to its caches, misses, misses of the translation buffer.
//!
//! A virtual CPU mostly counts nothing, and some kernels let nobody ask. Then there is a reason and no figure.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// What is counted, with the type and number that `perf_event_open(2)` gives it.
const KINDS: [(&str, u32, u64); 3] =
    [("cache_references", 0, 2), ("cache_misses", 0, 3), ("dtlb_load_misses", 3, 3 | (1 << 16))];

/// `PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING`.
const WITH_TIMES: u64 = 1 | 2;
/// The bits of `perf_event_attr` that leave out the kernel and the hypervisor, which need no privilege then.
const USER_ONLY: u64 = (1 << 5) | (1 << 6);

/// The first version of `struct perf_event_attr`, 64 bytes long, which every kernel still takes.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    bp_addr: u64,
}

/// Open counters of one thread, counting from now on.
#[derive(Debug)]
pub struct Counters([OwnedFd; KINDS.len()]);

/// Readings of all counters: the count, and the nanoseconds that it was to count and did count.
#[derive(Debug, Clone, Copy)]
pub struct Reading([[u64; 3]; KINDS.len()]);

/// How often each thing happened, in the order of the names.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Events(pub [f64; KINDS.len()]);

impl Events {
    /// The names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KINDS.iter().map(|kind| kind.0)
    }

    /// Both together; none where either was not counted.
    #[must_use]
    pub fn both(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        let (one, other) = one.zip(other)?;
        Some(Self(std::array::from_fn(|index| one.0[index] + other.0[index])))
    }
}

impl Counters {
    /// Counters of the calling thread.
    ///
    /// # Errors
    /// Why this CPU or kernel counts nothing.
    pub fn open() -> Result<Self, String> {
        let open =
            |index: usize| opened(KINDS[index].1, KINDS[index].2).map_err(|cause| reason(index, &cause));
        Ok(Self([open(0)?, open(1)?, open(2)?]))
    }

    /// What has been counted so far.
    #[must_use]
    pub fn read(&self) -> Option<Reading> {
        let mut found = [[0_u64; 3]; KINDS.len()];
        for (counter, values) in self.0.iter().zip(&mut found) {
            let wanted = std::mem::size_of_val(values);
            // SAFETY: the buffer is as long as the call is told.
            let got = unsafe { libc::read(counter.as_raw_fd(), values.as_mut_ptr().cast(), wanted) };
            if usize::try_from(got) != Ok(wanted) {
                return None;
            }
        }
        Some(Reading(found))
    }
}

impl Reading {
    /// What happened since an earlier reading. Where counters took turns on the CPU the count is scaled up, as perf
    /// does; none where one never had its turn.
    #[must_use]
    pub fn since(self, earlier: Self) -> Option<Events> {
        let mut events = Events([0.0; KINDS.len()]);
        for ((event, now), before) in events.0.iter_mut().zip(self.0).zip(earlier.0) {
            let [count, enabled, running] = std::array::from_fn(|value| (now[value] - before[value]) as f64);
            if running == 0.0 {
                return None;
            }
            *event = count * enabled / running;
        }
        Some(events)
    }
}

fn opened(kind: u32, config: u64) -> io::Result<OwnedFd> {
    let size = u32::try_from(std::mem::size_of::<Attributes>()).unwrap_or_default();
    let wanted =
        Attributes { kind, size, config, read_format: WITH_TIMES, flags: USER_ONLY, ..Attributes::default() };
    // SAFETY: the structure is as long as it says; 0 and -1 are this thread on whatever CPU, alone in its group.
    let opened = unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const wanted, 0, -1, -1, 0) };
    let descriptor = libc::c_int::try_from(opened).unwrap_or(-1);
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, and owned by nobody.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn reason(index: usize, cause: &io::Error) -> String {
    format!("perf_event_open counts no {} here: {cause}", KINDS[index].0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_took_turns_are_scaled() {
        let (before, now) = (Reading([[0; 3]; 3]), Reading([[50, 200, 100], [7, 200, 200], [0, 200, 50]]));
        assert_eq!(now.since(before), Some(Events([100.0, 7.0, 0.0])));
    }

    #[test]
    fn a_counter_that_never_ran_is_no_zero() {
        assert_eq!(Reading([[0, 200, 100], [0, 200, 0], [0, 200, 100]]).since(Reading([[0; 3]; 3])), None);
    }

    #[test]
    fn a_machine_that_cannot_count_says_why() {
        match Counters::open() {
            Ok(counters) => assert!(counters.read().is_some()),
            Err(reason) => assert!(reason.contains("perf_event_open counts no "), "{reason}"),
        }
    }
}
