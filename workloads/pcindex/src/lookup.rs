//! The measured loop of lookups.

use crate::questions::Questions;
use crate::segment::Segment;
use contract::cli::seconds;
use contract::index;
use contract::latency::{Histogram, Sampler};
use contract::permutation::Permutation;
use contract::Failure;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Lookups between two readings of the clock.
const CLOCK_EVERY: u64 = 8;

/// Lookups after loading.
#[derive(Debug, Clone, clap::Args)]
pub struct LookupOptions {
    /// Number of keys of the start-up set, which has one for each bucket, that are looked up after
    /// loading
    #[arg(long, value_name = "N", default_value = "all", value_parser = lookups)]
    lookups: Lookups,
    /// The same seed gives the same random orders
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Time one in N lookups on average; 0 times none
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub time_every: u64,
    /// Stop after this time
    #[arg(long = "max-seconds", value_name = "S", allow_hyphen_values = true, value_parser = seconds)]
    pub max_duration: Option<Duration>,
}

/// A number of lookups; None for all.
#[derive(Debug, Clone, Copy)]
struct Lookups(Option<u64>);

fn lookups(text: &str) -> Result<Lookups, String> {
    if text == "all" {
        return Ok(Lookups(None));
    }
    text.parse()
        .map(|count| Lookups(Some(count)))
        .map_err(|_| "neither a number nor \"all\"".to_owned())
}

impl LookupOptions {
    /// Return the number of lookups in an index with this many buckets. Fails with
    /// [`Failure::BadArguments`] if the start-up set has fewer keys.
    pub fn count(&self, buckets: u64) -> Result<u64, Failure> {
        match self.lookups.0 {
            Some(count) if count > buckets => Err(Failure::BadArguments(format!(
                "--lookups {count} is more than the start-up set has: one key for each of {buckets} buckets"
            ))),
            chosen => Ok(chosen.unwrap_or(buckets)),
        }
    }
}

/// The results of a series of lookups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LookupResults {
    /// Lookups made.
    pub asked: u64,
    /// Keys found.
    pub found: u64,
    /// Lookups whose answer differs from the one known beforehand.
    pub wrong: u64,
    /// Sum of the values found.
    pub checksum: u64,
    /// The deadline passed before the last one.
    pub stopped: bool,
}

/// The deadline and the timing of lookups.
#[derive(Debug)]
pub struct Watch {
    /// When to stop.
    pub deadline: Option<Instant>,
    /// Lookups to time.
    pub sampler: Sampler,
    pub latency: Histogram,
}

/// Ask the first `count` questions in this order.
#[inline(never)]
pub fn ask(
    segments: &[Segment],
    questions: &Questions,
    order: &Permutation,
    count: u64,
    watch: &mut Watch,
) -> LookupResults {
    let mut results = LookupResults::default();
    for position in 0..count {
        if position % CLOCK_EVERY == 0 && watch.deadline.is_some_and(|at| Instant::now() >= at) {
            results.stopped = true;
            break;
        }
        let question = questions.about(order.at(position));
        let table = &segments[question.segment].map;
        let start = watch.sampler.chooses().then(Instant::now);
        let answer = black_box(index::find(black_box(table), question.key));
        if let Some(start) = start {
            watch.latency.add(start.elapsed());
        }
        results.add(answer, question.is_present.then(|| question.key.value()));
    }
    results
}

impl LookupResults {
    #[inline]
    fn add(&mut self, answer: Option<u64>, expected: Option<u64>) {
        self.asked += 1;
        self.found += u64::from(answer.is_some());
        self.wrong += u64::from(answer != expected);
        self.checksum = self.checksum.wrapping_add(answer.unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_wrong_answer_is_counted() {
        let mut results = LookupResults::default();
        results.add(Some(5), Some(5));
        results.add(None, None);
        assert_eq!(results.wrong, 0);
        results.add(Some(6), Some(5));
        results.add(None, Some(5));
        results.add(Some(5), None);
        assert_eq!(
            results,
            LookupResults { asked: 5, found: 3, wrong: 3, checksum: 16, stopped: false }
        );
    }
}
