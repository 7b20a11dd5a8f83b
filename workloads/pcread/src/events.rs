//! Events that the CPU counts while a thread reads: cache references, cache misses, misses of the
//! translation buffer.
//!
//! A virtual CPU mostly counts nothing, and some kernels forbid counting. Then there is a reason
//! and no figure.

use perf_event::events::{Cache, CacheOp, CacheResult, Event, Hardware, WhichCache};
use perf_event::{Builder, Counter};
use std::io;

const COUNT: usize = 3;

/// Events counted, in user space only, which needs no privilege.
fn kinds() -> [(&'static str, Event); COUNT] {
    let misses =
        Cache { which: WhichCache::DTLB, operation: CacheOp::READ, result: CacheResult::MISS };
    [
        ("cache_references", Hardware::CACHE_REFERENCES.into()),
        ("cache_misses", Hardware::CACHE_MISSES.into()),
        ("dtlb_load_misses", misses.into()),
    ]
}

/// Open counters of one thread.
#[derive(Debug)]
pub struct Counters([Counter; COUNT]);

/// Readings of all counters: the count, and the nanoseconds in which it was enabled and in which it
/// did count.
#[derive(Debug, Clone, Copy)]
pub struct Reading([[u64; 3]; COUNT]);

/// Number of events of each kind, in the order of the contract.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Events(pub [f64; COUNT]);

impl Events {
    /// Add the events of another thread or pass; None if either was not counted.
    pub fn both(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        let (one, other) = one.zip(other)?;
        Some(Self(std::array::from_fn(|index| one.0[index] + other.0[index])))
    }
}

impl Counters {
    /// Open counters of the calling thread.
    ///
    /// # Errors
    /// The reason why this CPU or kernel counts nothing.
    pub fn open() -> Result<Self, String> {
        let [references, misses, dtlb_misses] = kinds().map(|(name, kind)| {
            open(kind).map_err(|cause| format!("perf_event_open counts no {name} here: {cause}"))
        });
        Ok(Self([references?, misses?, dtlb_misses?]))
    }

    /// Return the counts so far; None if they cannot be read.
    pub fn read(&mut self) -> Option<Reading> {
        let mut found = [[0; 3]; COUNT];
        for (counter, values) in self.0.iter_mut().zip(&mut found) {
            let read = counter.read_count_and_time().ok()?;
            *values = [read.count, read.time_enabled, read.time_running];
        }
        Some(Reading(found))
    }
}

impl Reading {
    /// Return the events since an earlier reading. If counters took turns on the CPU, the count is
    /// scaled up, as perf does. None if one never had its turn.
    pub fn since(self, earlier: Self) -> Option<Events> {
        let mut events = Events([0.0; COUNT]);
        for ((event, now), before) in events.0.iter_mut().zip(self.0).zip(earlier.0) {
            let [count, enabled, running] =
                std::array::from_fn(|value| (now[value] - before[value]) as f64);
            if running == 0.0 {
                return None;
            }
            *event = count * enabled / running;
        }
        Some(events)
    }
}

fn open(kind: Event) -> io::Result<Counter> {
    let mut counter = Builder::new().kind(kind).build()?;
    counter.enable()?;
    Ok(counter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_took_turns_are_scaled() {
        let (before, now) =
            (Reading([[0; 3]; 3]), Reading([[50, 200, 100], [7, 200, 200], [0, 200, 50]]));
        assert_eq!(now.since(before), Some(Events([100.0, 7.0, 0.0])));
    }

    #[test]
    fn a_counter_that_never_ran_is_not_zero() {
        assert_eq!(
            Reading([[0, 200, 100], [0, 200, 0], [0, 200, 100]]).since(Reading([[0; 3]; 3])),
            None
        );
    }

    #[test]
    fn a_machine_that_cannot_count_has_a_reason() {
        match Counters::open() {
            Ok(mut counters) => assert!(counters.read().is_some()),
            Err(reason) => assert!(reason.contains("perf_event_open counts no "), "{reason}"),
        }
    }
}
