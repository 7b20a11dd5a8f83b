//! Durations of single blocks: a sample of them, in a histogram of fixed size.
//!
//! Nothing is allocated while measuring: in a small cage an allocation could itself cause a page
//! fault.

use crate::mixing_hash::{mix, GOLDEN_GAMMA};
use serde::Serialize;
use std::time::Duration;

/// Buckets within one doubling: a value is exact to one part in sixteen.
const STEPS: usize = 16;
const STEP_BITS: u32 = STEPS.trailing_zeros();
const BUCKETS: usize = (u64::BITS - STEP_BITS + 1) as usize * STEPS;

/// Counts of durations in nanoseconds, in buckets that grow with the value.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: [u32; BUCKETS],
    count: u64,
    max_ns: u64,
}

/// Percentiles in microseconds; None if nothing was sampled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LatencyFigures {
    /// Number of samples.
    pub count: u64,
    /// The median.
    pub p50: Option<f64>,
    /// 90 % of the samples took no longer.
    pub p90: Option<f64>,
    /// 99 % of the samples took no longer.
    pub p99: Option<f64>,
    /// The longest.
    pub max: Option<f64>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// Create an empty histogram.
    #[must_use]
    pub fn new() -> Self {
        Self { counts: [0; BUCKETS], count: 0, max_ns: 0 }
    }

    /// Count one duration.
    pub fn add(&mut self, duration: Duration) {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(nanoseconds)] += 1;
        self.count += 1;
        self.max_ns = self.max_ns.max(nanoseconds);
    }

    /// Add the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.count += other.count;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Return the figures of the closing line.
    #[must_use]
    pub fn figures(&self) -> LatencyFigures {
        let us = |nanoseconds: u64| (self.count > 0).then_some(nanoseconds as f64 / 1000.0);
        LatencyFigures {
            count: self.count,
            p50: us(self.percentile_ns(50)),
            p90: us(self.percentile_ns(90)),
            p99: us(self.percentile_ns(99)),
            max: us(self.max_ns),
        }
    }

    /// Return the least bucket bound that this percentage of the durations does not exceed.
    fn percentile_ns(&self, percent: u64) -> u64 {
        let wanted = (self.count * percent).div_ceil(100);
        let mut seen = 0;
        let reached = self.counts.iter().position(|count| {
            seen += u64::from(*count);
            seen >= wanted
        });
        reached.map_or(self.max_ns, |index| largest_of(index).min(self.max_ns))
    }
}

#[allow(clippy::cast_possible_truncation)] // shifted down to below 2 x STEPS
fn bucket(value: u64) -> usize {
    let doublings = (u64::BITS - value.leading_zeros()).saturating_sub(STEP_BITS + 1);
    doublings as usize * STEPS + (value >> doublings) as usize
}

/// Return the largest value that falls into a bucket.
fn largest_of(bucket: usize) -> u64 {
    let doublings = (bucket / STEPS).saturating_sub(1);
    let steps = (bucket - doublings * STEPS) as u64;
    (steps << doublings) + ((1 << doublings) - 1)
}

/// Chooses which blocks are timed.
///
/// On average one in `every` is timed, at irregular distances. A regular distance would beat
/// against the readahead window: either every timed block or none would be the one that waits for
/// the disk.
#[derive(Debug)]
pub struct Sampler {
    every: u64,
    left: u64,
    drawn: u64,
}

impl Sampler {
    /// Create a sampler of one in `every` blocks; zero for none.
    #[must_use]
    pub fn new(every: u64, seed: u64) -> Self {
        let mut sampler = Self { every, left: 0, drawn: seed };
        sampler.left = sampler.distance();
        sampler
    }

    /// Return whether to time the next block.
    #[inline]
    pub fn chooses(&mut self) -> bool {
        self.left -= 1;
        if self.left > 0 {
            return false;
        }
        self.left = self.distance();
        true
    }

    fn distance(&mut self) -> u64 {
        if self.every == 0 {
            return u64::MAX;
        }
        self.drawn = self.drawn.wrapping_add(GOLDEN_GAMMA);
        1 + mix(self.drawn) % (2 * self.every - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_bucket_holds_its_values(value: u64) {
            let index = bucket(value);
            prop_assert!(index < BUCKETS);
            prop_assert!(value <= largest_of(index));
            prop_assert!(index == 0 || value > largest_of(index - 1));
            prop_assert!(largest_of(index) - value <= value / STEPS as u64);
        }
    }

    #[test]
    fn percentiles_are_near_the_truth() {
        let mut histogram = Histogram::new();
        (1..=1000).for_each(|us| histogram.add(Duration::from_micros(us)));
        let figures = histogram.figures();
        for (found, truth) in [(figures.p50, 500.0), (figures.p90, 900.0), (figures.p99, 990.0)] {
            let found = found.unwrap();
            assert!((found / truth - 1.0).abs() < 0.07, "{found} {truth}");
        }
        assert_eq!((figures.max, figures.count), (Some(1000.0), 1000));
    }

    #[test]
    fn nothing_sampled_is_null_and_not_zero() {
        assert_eq!(Histogram::new().figures().p50, None);
    }

    #[test]
    fn sampling_hits_every_place_of_a_readahead_window() {
        let mut sampler = Sampler::new(64, 1);
        let mut hits = [0_u32; 32];
        (0..640_000_usize).filter(|_| sampler.chooses()).for_each(|block| hits[block % 32] += 1);
        let total: u32 = hits.iter().sum();
        assert!((9_000..11_000).contains(&total), "{total}");
        assert!(hits.iter().all(|hit| *hit > 200), "{hits:?}");
    }

    #[test]
    fn one_in_one_is_all_and_zero_is_none() {
        let chosen = |every| {
            let mut sampler = Sampler::new(every, 3);
            (0..100).filter(|_| sampler.chooses()).count()
        };
        assert_eq!((chosen(1), chosen(0)), (100, 0));
    }
}
