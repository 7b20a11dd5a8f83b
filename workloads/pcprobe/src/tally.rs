//! The counts of one phase: I/Os by the tenth of a second in which they ended, and their durations.

use crate::series::Rate;
use contract::latency::{Histogram, LatencyFigures};
use std::time::{Duration, Instant};

/// Windows in a second.
const A_SECOND: f64 = 10.0;
/// Length of a window, which is also the slice in which blk-throttle grants its tokens.
const WINDOW: Duration = Duration::from_millis(100);
/// Windows that no figure includes: a limit passes its first slice at the disk's speed
/// (block/blk-throttle.c), and the queue fills.
const WARM_UP_WINDOWS: usize = 3;
/// A rate needs at least this many windows.
const LEAST_WINDOWS: usize = 3;
/// Largest number of points of a series.
const MOST_POINTS: usize = 120;

/// Counts of one phase, kept while it runs.
#[derive(Debug, Clone)]
pub struct Tally {
    begun: Instant,
    windows: Vec<u32>,
    histogram: Histogram,
    /// All I/Os, including those of the warm-up and those that ended late.
    pub ios: u64,
}

/// The figures of an ended phase.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// All I/Os.
    pub ios: u64,
    /// The time over which the rate was measured.
    pub seconds: f64,
    /// I/Os a second after the warm-up; None if the time was too short.
    pub ios_per_second: Option<f64>,
    /// Time from submission to completion; None if nothing ran.
    pub latency_us: Option<LatencyFigures>,
    pub rates: Vec<Rate>,
}

impl Tally {
    /// Start to count; `time` is the duration of the phase.
    pub fn new(begun: Instant, time: Duration) -> Self {
        let windows = Vec::with_capacity(window_of(time) + 1);
        Self { begun, windows, histogram: Histogram::new(), ios: 0 }
    }

    /// Count one I/O with the times of its submission and its end.
    pub fn add(&mut self, submitted: Instant, ended: Instant) {
        let window = window_of(ended - self.begun);
        if window >= self.windows.len() {
            self.windows.resize(window + 1, 0);
        }
        self.windows[window] += 1;
        self.ios += 1;
        if window >= WARM_UP_WINDOWS {
            self.histogram.add(ended - submitted);
        }
    }

    /// Add the counts of another tally that began at the same moment.
    pub fn merge(&mut self, other: &Self) {
        self.windows.resize(self.windows.len().max(other.windows.len()), 0);
        self.windows.iter_mut().zip(&other.windows).for_each(|(count, more)| *count += more);
        self.histogram.merge(&other.histogram);
        self.ios += other.ios;
    }

    /// Return the figures of the first `elapsed` time: only whole windows, and none after the last
    /// submission.
    pub fn figures(&self, elapsed: Duration) -> Figures {
        let mut windows = self.windows.clone();
        windows.resize(window_of(elapsed), 0);
        let steady = windows.get(WARM_UP_WINDOWS..).unwrap_or_default();
        let seconds = seconds_of(steady.len());
        let count: u64 = steady.iter().copied().map(u64::from).sum();
        let enough = steady.len() >= LEAST_WINDOWS;
        Figures {
            ios: self.ios,
            seconds,
            ios_per_second: enough.then(|| count as f64 / seconds),
            latency_us: Some(self.histogram.figures()),
            rates: rates(steady),
        }
    }
}

#[allow(clippy::cast_possible_truncation)] // a day has 864,000 windows
fn window_of(time: Duration) -> usize {
    (time.as_nanos() / WINDOW.as_nanos()) as usize
}

fn seconds_of(windows: usize) -> f64 {
    windows as f64 / A_SECOND
}

/// Return the rate over time, in steps of half a second, or longer ones in a long phase.
fn rates(windows: &[u32]) -> Vec<Rate> {
    let step = windows.len().div_ceil(MOST_POINTS).max(5);
    let point = |(number, part): (usize, &[u32])| Rate {
        until_seconds: seconds_of(number * step + part.len() + WARM_UP_WINDOWS),
        ios_per_second: f64::from(part.iter().sum::<u32>()) / seconds_of(part.len()),
    };
    windows.chunks_exact(step).enumerate().map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(milliseconds: impl IntoIterator<Item = u64>) -> Tally {
        let begun = Instant::now();
        let mut tally = Tally::new(begun, Duration::from_secs(1));
        for at in milliseconds {
            let ended = begun + Duration::from_millis(at);
            tally.add(ended.checked_sub(Duration::from_millis(2)).unwrap_or(begun), ended);
        }
        tally
    }

    #[test]
    fn the_first_slice_and_the_late_are_left_out_of_the_rate() {
        let steady = (0..200).map(|number| number * 10 + 5);
        let first_slice = std::iter::repeat_n(1, 50);
        let late = std::iter::repeat_n(2050, 30);
        let figures =
            counted(steady.chain(first_slice).chain(late)).figures(Duration::from_secs(2));
        assert_eq!(figures.ios_per_second, Some(100.0));
        assert_eq!(figures.ios, 280);
        assert!((figures.seconds - 1.7).abs() < 1e-9);
        let p50 = figures.latency_us.unwrap().p50.unwrap();
        assert!((p50 / 2000.0 - 1.0).abs() < 0.07, "{p50}");
        assert!(
            figures.rates.iter().all(|rate| (rate.ios_per_second - 100.0).abs() < 1e-9),
            "{:?}",
            figures.rates
        );
    }

    #[test]
    fn nothing_at_all_is_a_rate_of_zero_and_too_short_is_none() {
        assert_eq!(counted([]).figures(Duration::from_secs(1)).ios_per_second, Some(0.0));
        assert_eq!(counted([1, 2, 3]).figures(Duration::from_millis(550)).ios_per_second, None);
        assert_eq!(counted([]).figures(Duration::ZERO).ios_per_second, None);
    }

    #[test]
    fn threads_add_up() {
        let begun = Instant::now();
        let mut both = Tally::new(begun, Duration::from_secs(1));
        for _ in 0..2 {
            let mut one = Tally::new(begun, Duration::from_secs(1));
            (0..100).for_each(|number| one.add(begun, begun + Duration::from_millis(number * 10)));
            both.merge(&one);
        }
        assert_eq!(both.ios, 200);
        assert_eq!(both.figures(Duration::from_secs(1)).ios_per_second, Some(200.0));
    }
}
