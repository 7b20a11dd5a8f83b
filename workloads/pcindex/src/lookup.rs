//! Looking things up: the measured loop.

use crate::questions::Questions;
use crate::segment::Segment;
use contract::index;
use contract::latency::{Histogram, Sampler};
use contract::permutation::Permutation;
use std::hint::black_box;
use std::time::Instant;

/// Lookups between two looks at the clock.
const CLOCK_EVERY: u64 = 8;

/// What a series of lookups found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answers {
    /// Lookups made.
    pub asked: u64,
    /// Keys found.
    pub found: u64,
    /// Lookups whose answer was not the one known beforehand.
    pub wrong: u64,
    /// Sum of the values found.
    pub checksum: u64,
    /// The time ran out before the last one.
    pub stopped: bool,
}

/// What is watched meanwhile.
#[derive(Debug)]
pub struct Watch {
    /// When to stop.
    pub deadline: Option<Instant>,
    /// Which lookups to time.
    pub sampler: Sampler,
    /// How long those took.
    pub latency: Histogram,
}

/// Asks the first `count` questions in this order.
#[inline(never)]
pub fn ask(
    segments: &[Segment],
    questions: &Questions,
    order: &Permutation,
    count: u64,
    watch: &mut Watch,
) -> Answers {
    let mut answers = Answers::default();
    for position in 0..count {
        if position % CLOCK_EVERY == 0 && watch.deadline.is_some_and(|at| Instant::now() >= at) {
            answers.stopped = true;
            break;
        }
        let question = questions.about(order.at(position));
        let table = &segments[question.segment].map;
        let start = watch.sampler.chooses().then(Instant::now);
        let answer = black_box(index::find(black_box(table), question.key));
        if let Some(start) = start {
            watch.latency.add(start.elapsed());
        }
        answers.add(answer, question.is_present.then(|| question.key.value()));
    }
    answers
}

impl Answers {
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
        let mut answers = Answers::default();
        answers.add(Some(5), Some(5));
        answers.add(None, None);
        assert_eq!(answers.wrong, 0);
        answers.add(Some(6), Some(5));
        answers.add(None, Some(5));
        answers.add(Some(5), None);
        assert_eq!(answers, Answers { asked: 5, found: 3, wrong: 3, checksum: 16, stopped: false });
    }
}
