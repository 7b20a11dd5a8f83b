//! A heartbeat: a task that should run at fixed times beside the scan, and the delays with which it
//! ran.
//!
//! Delays count from the intended times. A beat that had to wait for the previous one counts with
//! its whole delay, so a stall of a second is a thousand late beats and not a single one.
//!
//! On an executor the heartbeat is one of its tasks, woken by the executor's reactor. Without an
//! executor it is a thread of its own. It then shows how the machine delays any other thread
//! meanwhile.

use crate::reactor::{readable, watch};
use crate::timer::{self, Timer};
use base64::engine::general_purpose::STANDARD;
use base64::Engine;
use contract::failure::OrFailure;
use contract::Failure;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The largest delay that is recorded exactly: ten minutes, in microseconds.
const LATEST_US: u64 = 600_000_000;

/// The heartbeat beside the scan.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct HeartbeatOptions {
    /// Period of the heartbeat beside the scan; 0 for none
    #[arg(long, value_name = "N", default_value_t = 0)]
    heartbeat_us: u64,
}

/// Figures of the closing line: the delay of beats in microseconds, None if no beat was due.
#[derive(Debug, Serialize)]
pub struct HeartbeatFigures {
    heartbeat_p50_us: Option<u64>,
    heartbeat_p90_us: Option<u64>,
    heartbeat_p99_us: Option<u64>,
    heartbeat_p999_us: Option<u64>,
    heartbeat_p9999_us: Option<u64>,
    heartbeat_max_us: Option<u64>,
    gap_max_us: Option<u64>,
    heartbeat_count: u64,
}

impl HeartbeatOptions {
    /// Create the heartbeat, if there is one. Fails if there is no timer left.
    pub fn create(self) -> Result<Option<Heartbeat>, Failure> {
        let period = Duration::from_micros(self.heartbeat_us);
        (period > Duration::ZERO).then(|| Heartbeat::new(period)).transpose()
    }
}

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
    fn new(period: Duration) -> Result<Self, Failure> {
        let lateness_us =
            Histogram::new_with_bounds(1, LATEST_US, 3).or_failed("cannot make a histogram")?;
        let beats = Mutex::new(Beats { next: Duration::ZERO, lateness_us });
        Ok(Self { period, timer: Timer::new()?, beats, stopped: AtomicBool::new(false) })
    }

    /// Begin to beat, one period from now. Fails if the kernel rejects the period.
    pub fn start(&self) -> Result<(), Failure> {
        let now = timer::now();
        self.lock().next = now + self.period;
        self.stopped.store(false, Ordering::SeqCst);
        self.timer.set(now, self.period)
    }

    /// Stop; beats that were due by now and not counted yet are counted.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.count_beats();
    }

    /// Count the beats that are due, each with its own delay.
    fn count_beats(&self) {
        let mut beats = self.lock();
        let due = self.timer.ticks();
        let now = timer::now();
        for _ in 0..due {
            let late = now.saturating_sub(beats.next);
            beats
                .lateness_us
                .saturating_record(u64::try_from(late.as_micros()).unwrap_or(LATEST_US));
            beats.next += self.period;
        }
    }

    /// Beat in the calling thread until stopped.
    pub fn beat_here(&self) {
        while !self.stopped.load(Ordering::SeqCst) {
            self.timer.wait();
            self.count_beats();
        }
    }

    /// Beat as a task until stopped or aborted. Fails if the executor cannot watch the timer.
    pub async fn beat(&self) -> Result<(), Failure> {
        let watched = watch(self.timer.as_fd())?;
        while !self.stopped.load(Ordering::SeqCst) {
            let mut ready = readable(&watched).await?;
            self.count_beats();
            ready.clear_ready();
        }
        Ok(())
    }

    /// Return the figures of the closing line.
    pub fn figures(&self) -> HeartbeatFigures {
        let beats = self.lock();
        let lateness = &beats.lateness_us;
        let known = |us: u64| (!lateness.is_empty()).then_some(us);
        let quantile =
            |percent: f64| known(lateness.value_at_percentile(percent).min(lateness.max()));
        HeartbeatFigures {
            heartbeat_p50_us: quantile(50.0),
            heartbeat_p90_us: quantile(90.0),
            heartbeat_p99_us: quantile(99.0),
            heartbeat_p999_us: quantile(99.9),
            heartbeat_p9999_us: quantile(99.99),
            heartbeat_max_us: known(lateness.max()),
            gap_max_us: known(lateness.max()),
            heartbeat_count: lateness.len(),
        }
    }

    /// Return the whole distribution in version 2 of `HdrHistogram`'s format, as Base64.
    pub fn histogram(&self) -> Option<String> {
        let mut bytes = Vec::new();
        let written = V2DeflateSerializer::new().serialize(&self.lock().lateness_us, &mut bytes);
        written.ok().map(|_| STANDARD.encode(&bytes))
    }

    fn lock(&self) -> MutexGuard<'_, Beats> {
        self.beats.lock().unwrap_or_else(PoisonError::into_inner)
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
        let figures = heart.figures();
        let (max, p50) =
            (figures.heartbeat_max_us.unwrap() as f64, figures.heartbeat_p50_us.unwrap() as f64);
        // The first of them is the latest, and one was due each millisecond since.
        assert!(max >= 48_500.0, "{figures:?}");
        assert!((max / 1000.0 - figures.heartbeat_count as f64).abs() < 3.0, "{figures:?}");
        // Beats one period apart that all are heard at the end: half of them are later than half of
        // the stall.
        assert!((0.4..0.6).contains(&(p50 / max)), "{figures:?}");
    }

    #[test]
    fn a_heart_that_never_beat_has_null_and_not_zero() {
        let figures = Heartbeat::new(Duration::from_millis(1)).unwrap().figures();
        assert_eq!((figures.heartbeat_p999_us, figures.gap_max_us), (None, None));
        assert_eq!(figures.heartbeat_count, 0);
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
        let figures = heart.figures();
        assert!(figures.heartbeat_count >= 190, "{figures:?}");
        assert!(figures.heartbeat_max_us >= figures.heartbeat_p9999_us);
        assert!(heart.histogram().unwrap().starts_with("HISTF"), "{:?}", heart.histogram());
    }
}
