//! The number of operations that a provider counts for requests.
//!
//! A request above the provider's I/O size counts as several operations. A provider that merges
//! counts adjacent small requests as one operation, up to that size.

use crate::request::{Direction, Request};

/// The sequences that are followed at once, per direction. Requests of one sequence that arrive out
/// of order begin another.
const RUNS: usize = 8;

/// A sequence of adjacent requests: its end, and the bytes of its last operation.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    end: u64,
    bytes: u64,
}

/// The provider's rules, and the sequences that it merges at the moment.
#[derive(Clone, Debug)]
pub struct IoCounter {
    io_size_bytes: Option<u64>,
    merged: bool,
    /// The most recent first, by direction.
    runs: [[Run; RUNS]; 2],
}

impl IoCounter {
    /// Return a counter. Without a size, each request is one operation.
    #[must_use]
    pub fn new(io_size_bytes: Option<u64>, merged: bool) -> Self {
        Self { io_size_bytes, merged, runs: [[Run::default(); RUNS]; 2] }
    }

    /// Return the rules: the size above which a request is several operations, and whether adjacent
    /// requests are merged.
    #[must_use]
    pub fn rules(&self) -> (Option<u64>, bool) {
        (self.io_size_bytes, self.merged)
    }

    /// Return the number of operations of a request; 0 if it is merged with the one before.
    pub fn count(&mut self, request: &Request) -> u64 {
        let Some(io_size) = self.io_size_bytes else { return 1 };
        if !self.merged {
            return request.length.div_ceil(io_size).max(1);
        }
        let runs = &mut self.runs[usize::from(request.direction == Direction::Write)];
        let followed = runs.iter().position(|run| run.end == request.offset);
        runs[..=followed.unwrap_or(RUNS - 1)].rotate_right(1);
        let before = if followed.is_some() { runs[0].bytes } else { 0 };
        let after = before + request.length;
        runs[0] = Run { end: request.offset + request.length, bytes: after % io_size };
        after.div_ceil(io_size) - before.div_ceil(io_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    fn read(offset: u64, length: u64) -> Request {
        Request { direction: Direction::Read, offset, length }
    }

    fn sum(counter: &mut IoCounter, requests: impl IntoIterator<Item = Request>) -> u64 {
        requests.into_iter().map(|request| counter.count(&request)).sum()
    }

    #[test]
    fn the_examples_of_aws() {
        // docs.aws.amazon.com/ebs/latest/userguide/ebs-io-characteristics.html: an SSD volume.
        let mut counter = IoCounter::new(Some(256 * KIB), true);
        assert_eq!(counter.count(&read(1 << 30, 1024 * KIB)), 4);
        assert_eq!(sum(&mut counter, (0..8).map(|i| read(i * 32 * KIB, 32 * KIB))), 1);
        assert_eq!(sum(&mut counter, (1..9).map(|i| read(i << 32, 32 * KIB))), 8);
    }

    #[test]
    fn a_run_that_crosses_the_size_costs_another_operation() {
        let mut counter = IoCounter::new(Some(256 * KIB), true);
        assert_eq!(sum(&mut counter, (0..65).map(|i| read(i * 4 * KIB, 4 * KIB))), 2);
        assert_eq!(counter.count(&read(260 * KIB, 252 * KIB)), 0);
        assert_eq!(counter.count(&read(512 * KIB, 4 * KIB)), 1);
    }

    #[test]
    fn sequences_that_alternate_are_merged_each() {
        let mut counter = IoCounter::new(Some(256 * KIB), true);
        let requests =
            (0..16).flat_map(|i| (0..4).map(move |s| read((s << 32) + i * 16 * KIB, 16 * KIB)));
        assert_eq!(sum(&mut counter, requests), 4);
    }

    #[test]
    fn directions_are_not_merged_and_without_rules_a_request_is_one() {
        let write = |offset| Request { direction: Direction::Write, offset, length: 4 * KIB };
        let mut counter = IoCounter::new(Some(256 * KIB), true);
        assert_eq!(
            counter.count(&read(1 << 20, 4 * KIB)) + counter.count(&write((1 << 20) + 4 * KIB)),
            2
        );
        assert_eq!(IoCounter::new(None, false).count(&read(0, 1 << 25)), 1);
        let mut apart = IoCounter::new(Some(256 * KIB), false);
        assert_eq!(sum(&mut apart, (0..8).map(|i| read(i * 32 * KIB, 32 * KIB))), 8);
    }
}
