//! A calculation that needs the CPU for a known time and nothing else.

use contract::mix::mix;
use std::hint::black_box;
use std::time::{Duration, Instant};

const TRY_ITERATIONS: u64 = 200_000;
const TRIES: usize = 9;

/// How much this CPU gets done.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    iterations_per_second: f64,
}

impl Pace {
    /// Tries it out. The quickest of several tries counts: whatever else the machine does only makes a try slower.
    #[must_use]
    pub fn measured() -> Self {
        let quickest = (0..TRIES).map(|_| seconds_for(TRY_ITERATIONS)).fold(f64::INFINITY, f64::min);
        Self { iterations_per_second: TRY_ITERATIONS as f64 / quickest.max(f64::MIN_POSITIVE) }
    }

    /// Each thread's share of the work that would keep one CPU busy for so long.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // positive; a cut-off end does no harm
    pub fn iterations(self, time: Duration, threads: usize) -> u64 {
        (self.iterations_per_second * time.as_secs_f64() / threads as f64) as u64
    }
}

fn seconds_for(iterations: u64) -> f64 {
    let start = Instant::now();
    calculate(iterations);
    start.elapsed().as_secs_f64()
}

/// Does the work.
#[inline(never)]
pub fn calculate(iterations: u64) -> u64 {
    black_box((0..black_box(iterations)).fold(1, |word, step| mix(word ^ step)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_shared_evenly() {
        let pace = Pace { iterations_per_second: 1000.0 };
        let time = Duration::from_secs(3);
        assert_eq!([1, 2, 3].map(|threads| pace.iterations(time, threads)), [3000, 1500, 1000]);
    }

    #[test]
    fn the_work_takes_the_time_that_was_asked() {
        let pace = Pace::measured();
        let wanted = pace.iterations(Duration::from_millis(50), 1);
        let quickest = (0..5).map(|_| seconds_for(wanted)).fold(f64::INFINITY, f64::min);
        assert!((0.02..1.0).contains(&quickest), "{quickest} s instead of 0.05 s");
        assert_eq!(pace.iterations(Duration::ZERO, 1), 0);
    }
}
