//! Detection of a burst: a rate that drops after a while, because burst credits have run out.
//!
//! The series is cut in two where two means fit best. This is a burst if
//!
//! * the second mean lies well below the first,
//! * hardly a point of either part lies on the other's side,
//! * a straight line (a disk that slows down gradually) fits worse, and
//! * both parts are long enough.

use crate::series::{mean, middle, rounded, Rate};
use serde::Serialize;

/// A shorter part could be a brief disturbance.
const LEAST_POINTS: usize = 4;
/// A drop to a larger fraction is drift.
const MOST_REMAINING: f64 = 0.8;
/// Fraction of the points that may lie on the wrong side of the middle.
const MOST_ASTRAY: f64 = 0.1;

/// A rate that held for a while and then fell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Burst {
    /// I/Os a second while credits lasted.
    pub burst_ios_per_second: f64,
    /// I/Os a second afterwards.
    pub base_ios_per_second: f64,
    /// Time from the beginning of the phase until the rate fell.
    pub seconds: f64,
}

impl Burst {
    /// Return the credits that the phase used. The bucket held at least as many: its level at the
    /// start is unknown, and earlier phases may have used some.
    pub fn credits(&self) -> f64 {
        (self.burst_ios_per_second - self.base_ios_per_second) * self.seconds
    }

    /// Return the figures of the report. A credit is one I/O of this phase's block.
    pub fn figures(&self, block_bytes: usize) -> BurstFigures {
        let (burst, base) = (self.burst_ios_per_second, self.base_ios_per_second);
        let bytes = |ios: f64| (ios * block_bytes as f64).round();
        BurstFigures {
            seconds: rounded(self.seconds),
            burst_ios_per_second: rounded(burst),
            base_ios_per_second: rounded(base),
            credits_at_least: self.credits().round(),
            burst_bytes_per_second: bytes(burst),
            base_bytes_per_second: bytes(base),
            credits_at_least_bytes: bytes(self.credits()),
        }
    }
}

/// A burst in the report.
#[derive(Debug, Serialize)]
pub struct BurstFigures {
    seconds: f64,
    burst_ios_per_second: f64,
    base_ios_per_second: f64,
    credits_at_least: f64,
    burst_bytes_per_second: f64,
    base_bytes_per_second: f64,
    credits_at_least_bytes: f64,
}

/// Return the burst in a series, if there is one.
pub fn find(rates: &[Rate]) -> Option<Burst> {
    let cut = best_cut(rates)?;
    let (before, after) = rates.split_at(cut);
    // The point in which the rate fell lies between both and would distort a mean.
    let (high, low) = (middle(before), middle(after));
    let middle = f64::midpoint(high, low);
    let astray = |part: &[Rate], wrong: &dyn Fn(f64) -> bool| {
        part.iter().filter(|rate| wrong(rate.ios_per_second)).count() as f64 / part.len() as f64
    };
    let is_clear = astray(before, &|rate| rate < middle) <= MOST_ASTRAY
        && astray(after, &|rate| rate > middle) <= MOST_ASTRAY;
    let is_step = squares(before) + squares(after) < squares_around_line(rates);
    (low < MOST_REMAINING * high && is_clear && is_step).then(|| Burst {
        burst_ios_per_second: high,
        base_ios_per_second: low,
        seconds: before.last().map_or(0.0, |rate| rate.until_seconds),
    })
}

/// Return the cut at which two means have the least squared error.
fn best_cut(rates: &[Rate]) -> Option<usize> {
    let last = rates.len().checked_sub(LEAST_POINTS)?;
    let left = |cut: usize| {
        let (before, after) = rates.split_at(cut);
        squares(before) + squares(after)
    };
    (LEAST_POINTS..=last).min_by(|a, b| left(*a).total_cmp(&left(*b)))
}

fn squares(part: &[Rate]) -> f64 {
    let middle = mean(part);
    part.iter().map(|rate| (rate.ios_per_second - middle).powi(2)).sum()
}

/// Return the squared error of the straight line that fits best.
fn squares_around_line(rates: &[Rate]) -> f64 {
    let center = rates.iter().map(|rate| rate.until_seconds).sum::<f64>() / rates.len() as f64;
    let middle = mean(rates);
    let spread: f64 = rates.iter().map(|rate| (rate.until_seconds - center).powi(2)).sum();
    let common: f64 = rates
        .iter()
        .map(|rate| (rate.until_seconds - center) * (rate.ios_per_second - middle))
        .sum();
    squares(rates) - common * common / spread
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn series(rates: impl IntoIterator<Item = f64>) -> Vec<Rate> {
        let point =
            |(number, ios_per_second)| Rate { until_seconds: (number + 1) as f64, ios_per_second };
        rates.into_iter().enumerate().map(point).collect()
    }

    fn noisy(rate: f64, seed: usize) -> f64 {
        rate * (0.95 + 0.1 * ((seed * 7919) % 100) as f64 / 100.0)
    }

    #[test]
    fn a_bucket_that_runs_dry_is_found_with_what_it_held() {
        let rates = series((0..60).map(|s| noisy(if s < 20 { 1000.0 } else { 100.0 }, s)));
        let burst = find(&rates).unwrap();
        assert!((burst.seconds - 20.0).abs() < 1e-9);
        assert!((burst.credits() / 18_000.0 - 1.0).abs() < 0.05, "{burst:?}");
    }

    #[test]
    fn drift_hiccups_and_an_even_rate_are_no_burst() {
        assert_eq!(find(&series((0..60).map(|s| noisy(500.0, s)))), None);
        assert_eq!(find(&series((0..60).map(|s| if s == 30 { 10.0 } else { 500.0 }))), None);
        assert_eq!(find(&series((0..60).map(|s| if s % 2 == 0 { 900.0 } else { 100.0 }))), None);
        assert_eq!(find(&series((0..60).map(|s| 100.0 + f64::from(s)))), None, "it rises");
        assert_eq!(
            find(&series((0..60).map(|s| 700.0 - 10.0 * f64::from(s)))),
            None,
            "it tires slowly"
        );
        assert_eq!(
            find(&series([1000.0, 1000.0, 1000.0, 1000.0, 10.0, 10.0])),
            None,
            "too short to be believed"
        );
        assert_eq!(find(&[]), None);
    }

    proptest! {
        #[test]
        fn any_clear_drop_is_found_where_it_is(cut in 4_usize..50, high in 100.0..1e5_f64, share in 0.01..0.7_f64) {
            let rates = series((0..60).map(|s| if s < cut { high } else { high * share }));
            let burst = find(&rates).unwrap();
            prop_assert!((burst.seconds - cut as f64).abs() < 1e-9);
            prop_assert!((burst.base_ios_per_second / (high * share) - 1.0).abs() < 1e-9);
        }
    }
}
