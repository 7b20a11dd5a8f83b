//! Something that wants to run every millisecond beside the scan, and how late it came to run.
//!
//! Times are intended ones: a beat that could not be heard because the one before it was still waiting counts with all
//! of its delay, so that a stall of a second is a thousand late beats and not a single one.
//!
//! In the async arms the heartbeat is a task on the executor that scans, and hears its timer through the executor's
//! reactor. In the arms of threads it is a thread of its own, since there is no executor: it then shows what the
//! machine does to any other thread meanwhile.

use crate::base64;
use crate::reactor::{broken, watch};
use crate::timer::{self, Timer};
use contract::Failure;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use hdrhistogram::Histogram;
use serde_json::{Map, Value};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The latest that a beat can be told apart from a later one: ten minutes, in microseconds.
const LATEST_US: u64 = 600_000_000;

/// Quantiles that the closing line has, in percent.
const QUANTILES: [(&str, f64); 5] = [
    ("heartbeat_p50_us", 50.0),
    ("heartbeat_p90_us", 90.0),
    ("heartbeat_p99_us", 99.0),
    ("heartbeat_p999_us", 99.9),
    ("heartbeat_p9999_us", 99.99),
];

/// The heartbeat of one run.
#[derive(Debug)]
pub struct Heartbeat {
    period: Duration,
    timer: Timer,
    beats: Mutex<Beats>,
    stopped: AtomicBool,
}

#[derive(Debug)]
struct Beats {
    next: Duration,
    lateness_us: Histogram<u64>,
}

impl Heartbeat {
    /// A heart that does not beat yet.
    ///
    /// # Errors
    /// When there is no timer to be had.
    pub fn new(period: Duration) -> Result<Self, Failure> {
        let lateness_us = Histogram::new_with_bounds(1, LATEST_US, 3)
            .map_err(|cause| Failure::of("cannot make a histogram", cause))?;
        let beats = Mutex::new(Beats { next: Duration::ZERO, lateness_us });
        Ok(Self { period, timer: Timer::new()?, beats, stopped: AtomicBool::new(false) })
    }

    /// Begins to beat, one period from now.
    ///
    /// # Errors
    /// When the kernel refuses the period.
    pub fn start(&self) -> Result<(), Failure> {
        let now = timer::now();
        self.beats.lock().unwrap_or_else(PoisonError::into_inner).next = now + self.period;
        self.stopped.store(false, Ordering::SeqCst);
        self.timer.set(now, self.period)
    }

    /// Ends it; beats that were due by now and not heard yet are counted.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.hear();
    }

    /// Counts the beats that are due, each with its own delay.
    pub fn hear(&self) {
        let mut beats = self.beats.lock().unwrap_or_else(PoisonError::into_inner);
        let due = self.timer.ticks();
        let now = timer::now();
        for _ in 0..due {
            let late = now.saturating_sub(beats.next);
            beats.lateness_us.saturating_record(u64::try_from(late.as_micros()).unwrap_or(LATEST_US));
            beats.next += self.period;
        }
    }

    /// Beats in the calling thread until stopped.
    pub fn beat_here(&self) {
        while !self.stopped.load(Ordering::SeqCst) {
            self.timer.wait();
            self.hear();
        }
    }

    /// Beats as a task until stopped or aborted.
    ///
    /// # Errors
    /// When the executor cannot watch the timer.
    pub async fn beat(&self) -> Result<(), Failure> {
        let watched = watch(self.timer.as_fd())?;
        while !self.stopped.load(Ordering::SeqCst) {
            let mut ready = watched.readable().await.map_err(broken)?;
            self.hear();
            ready.clear_ready();
        }
        Ok(())
    }

    /// The figures for the closing line's `response`: microseconds, and null where no beat was due.
    #[must_use]
    pub fn response(&self) -> Map<String, Value> {
        let beats = self.beats.lock().unwrap_or_else(PoisonError::into_inner);
        let lateness = &beats.lateness_us;
        let known = |us: u64| if lateness.is_empty() { Value::Null } else { us.into() };
        let quantile = |(name, percent): (&str, f64)| {
            (name.to_owned(), known(lateness.value_at_percentile(percent).min(lateness.max())))
        };
        let mut figures: Map<String, Value> = QUANTILES.into_iter().map(quantile).collect();
        figures.insert("heartbeat_max_us".into(), known(lateness.max()));
        figures.insert("gap_max_us".into(), known(lateness.max()));
        figures.insert("heartbeat_count".into(), lateness.len().into());
        figures
    }

    /// The whole distribution, as `HdrHistogram`'s second format has it.
    #[must_use]
    pub fn histogram(&self) -> Value {
        let beats = self.beats.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = Vec::new();
        let written = V2DeflateSerializer::new().serialize(&beats.lateness_us, &mut bytes);
        written.map_or(Value::Null, |_| base64::encode(&bytes).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_counts_with_every_beat_in_it() {
        let heart = Heartbeat::new(Duration::from_millis(1)).unwrap();
        heart.start().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        heart.stop();
        let figures = heart.response();
        let us = |name: &str| figures[name].as_f64().unwrap();
        // The first of them is the latest, and one was due each millisecond since.
        assert!(us("heartbeat_max_us") >= 48_500.0, "{figures:?}");
        assert!((us("heartbeat_max_us") / 1000.0 - us("heartbeat_count")).abs() < 3.0, "{figures:?}");
        // Beats one period apart that all are heard at the end: half of them are later than half of the stall.
        assert!((0.4..0.6).contains(&(us("heartbeat_p50_us") / us("heartbeat_max_us"))), "{figures:?}");
    }

    #[test]
    fn a_heart_that_never_beat_says_null_and_not_zero() {
        let figures = Heartbeat::new(Duration::from_millis(1)).unwrap().response();
        assert!(figures["heartbeat_p999_us"].is_null() && figures["gap_max_us"].is_null());
        assert_eq!(figures["heartbeat_count"], 0);
    }

    #[test]
    fn a_free_thread_hears_its_beats_in_time() {
        let heart = Heartbeat::new(Duration::from_millis(1)).unwrap();
        heart.start().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| heart.beat_here());
            std::thread::sleep(Duration::from_millis(200));
            heart.stop();
        });
        let figures = heart.response();
        assert!(figures["heartbeat_count"].as_u64().unwrap() >= 190, "{figures:?}");
        assert!(figures["heartbeat_max_us"].as_u64() >= figures["heartbeat_p9999_us"].as_u64());
        assert!(heart.histogram().as_str().unwrap().starts_with("HISTF"), "{:?}", heart.histogram());
    }
}
