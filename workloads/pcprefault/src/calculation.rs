//! A calculation that needs only the CPU, for a known time.

use contract::cli::seconds;
use contract::mixing_hash::mix;
use std::hint::black_box;
use std::time::{Duration, Instant};

const TRY_ITERATIONS: u64 = 200_000;
const TRIES: usize = 9;

/// Amount of computation before the file is used: CPU time of all threads together.
#[derive(Debug, Clone, clap::Args)]
pub struct ComputeOptions {
    /// CPU time of the calculation before the use, all threads together
    #[arg(long, value_name = "S", default_value = "0", allow_hyphen_values = true, value_parser = seconds)]
    compute_seconds: Duration,
    /// The same, in proportion to the file's length
    #[arg(long, value_name = "S", allow_hyphen_values = true, value_parser = seconds)]
    #[arg(conflicts_with = "compute_seconds")]
    compute_seconds_per_gib: Option<Duration>,
}

impl ComputeOptions {
    /// Return each thread's share of the calculation for a file of this length.
    pub fn iterations(&self, length_bytes: usize, threads: usize) -> u64 {
        let gib = length_bytes as f64 / f64::from(1 << 30);
        let time =
            self.compute_seconds_per_gib.map_or(self.compute_seconds, |time| time.mul_f64(gib));
        if time == Duration::ZERO {
            return 0;
        }
        SpinRate::measured().iterations(time, threads)
    }

    /// Return the options as they are typed.
    pub fn words(&self) -> Vec<String> {
        let (name, time) = match self.compute_seconds_per_gib {
            Some(time) => ("--compute-seconds-per-gib", time),
            None => ("--compute-seconds", self.compute_seconds),
        };
        vec![name.to_owned(), time.as_secs_f64().to_string()]
    }
}

/// The speed of this CPU.
#[derive(Debug, Clone, Copy)]
pub struct SpinRate {
    iterations_per_second: f64,
}

impl SpinRate {
    /// Measure the speed. The fastest of several tries counts: any other load only makes a try
    /// slower.
    pub fn measured() -> Self {
        let quickest =
            (0..TRIES).map(|_| seconds_for(TRY_ITERATIONS)).fold(f64::INFINITY, f64::min);
        Self { iterations_per_second: TRY_ITERATIONS as f64 / quickest.max(f64::MIN_POSITIVE) }
    }

    /// Return each thread's share of the work that keeps one CPU busy for `time`.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // positive; rounding down does no harm
    pub fn iterations(self, time: Duration, threads: usize) -> u64 {
        (self.iterations_per_second * time.as_secs_f64() / threads as f64) as u64
    }
}

fn seconds_for(iterations: u64) -> f64 {
    let start = Instant::now();
    calculate(iterations);
    start.elapsed().as_secs_f64()
}

/// Do the work.
#[inline(never)]
pub fn calculate(iterations: u64) -> u64 {
    black_box((0..black_box(iterations)).fold(1, |word, step| mix(word ^ step)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_shared_evenly() {
        let rate = SpinRate { iterations_per_second: 1000.0 };
        let time = Duration::from_secs(3);
        assert_eq!([1, 2, 3].map(|threads| rate.iterations(time, threads)), [3000, 1500, 1000]);
    }

    #[test]
    fn the_work_takes_the_time_that_was_asked() {
        let rate = SpinRate::measured();
        let wanted = rate.iterations(Duration::from_millis(50), 1);
        let quickest = (0..5).map(|_| seconds_for(wanted)).fold(f64::INFINITY, f64::min);
        assert!((0.02..1.0).contains(&quickest), "{quickest} s instead of 0.05 s");
        assert_eq!(rate.iterations(Duration::ZERO, 1), 0);
    }
}
