//! The bytes that a sequence visits, found by walking through it without reading any.

use crate::block_sequence::{Partition, Partitioning, SequenceOptions};
use crate::source::{self, SourceOptions};
use contract::page_cache::page_bytes;
use contract::{json_lines, Failure};
use serde::Serialize;
use std::ops::Range;

/// For shorter blocks, one bit per byte takes less memory than a list of the blocks.
const BITMAP_BLOCK_BYTES: usize = 64;

/// Walking through more blocks again, after the passes, may take as long as reading them.
const MOST_BLOCKS: u64 = 5_500_000;

/// The line of the self-test.
#[derive(Serialize)]
#[serde(tag = "type", rename = "self_test")]
struct SelfTest {
    blocks: u64,
    bytes: u64,
    distinct_bytes: u64,
    ok: bool,
}

/// Walk through the first pass and print the result. Fails if a byte would be visited twice or
/// never, or the file is missing.
pub fn self_test(access: &SourceOptions, options: &SequenceOptions) -> Result<(), Failure> {
    let size_bytes = source::size_of(access)?;
    let partitioning = Partitioning::new(options, size_bytes, page_bytes());
    let spans =
        || (0..options.threads).flat_map(|thread| partitioning.sequence(options, thread, 0));
    let (blocks, bytes) =
        spans().fold((0_u64, 0_u64), |(n, sum), span| (n + 1, sum + span.len() as u64));
    let distinct = distinct_bytes(spans(), options.block_bytes, size_bytes);
    let ok = distinct == size_bytes as u64 && bytes == distinct;
    json_lines::print(&SelfTest { blocks, bytes, distinct_bytes: distinct, ok })?;
    ok.then_some(()).ok_or_else(|| {
        Failure::Failed(format!("only {distinct} of {size_bytes} bytes would be visited"))
    })
}

/// Return whether each byte is visited at most once, by construction.
pub fn is_once_each(options: &SequenceOptions) -> bool {
    let is_disjoint = options.partition == Partition::Disjoint || options.threads == 1;
    options.pattern.visits_all() && is_disjoint
}

/// Return how many bytes the first pass has visited, if thread n has done `blocks[n]` blocks of its
/// sequence. None if these are too many to walk through.
pub fn distinct_of(
    options: &SequenceOptions,
    partitioning: &Partitioning,
    blocks: &[u64],
) -> Option<u64> {
    if blocks.iter().sum::<u64>() > MOST_BLOCKS {
        return None;
    }
    let done = |thread: usize| usize::try_from(blocks[thread]).unwrap_or(usize::MAX);
    let spans = (0..blocks.len())
        .flat_map(|thread| partitioning.sequence(options, thread, 0).take(done(thread)));
    Some(distinct_bytes(spans, options.block_bytes, partitioning.size_bytes()))
}

fn distinct_bytes(
    spans: impl Iterator<Item = Range<usize>>,
    block_bytes: usize,
    size_bytes: usize,
) -> u64 {
    if block_bytes < BITMAP_BLOCK_BYTES {
        return counted_by_bits(spans, size_bytes);
    }
    let mut sorted: Vec<Range<usize>> = spans.collect();
    sorted.sort_unstable_by_key(|span| span.start);
    let mut reached = 0;
    sorted.iter().fold(0, |sum, span| {
        let new = span.end.saturating_sub(reached.max(span.start));
        reached = reached.max(span.end);
        sum + new as u64
    })
}

fn counted_by_bits(spans: impl Iterator<Item = Range<usize>>, size_bytes: usize) -> u64 {
    let mut seen = vec![0_u64; size_bytes.div_ceil(64)];
    let mut distinct = 0;
    for byte in spans.flatten() {
        let (word, bit) = (&mut seen[byte / 64], 1 << (byte % 64));
        distinct += u64::from(*word & bit == 0);
        *word |= bit;
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Pattern;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn both_ways_of_counting_agree(starts in prop::collection::vec(0_usize..5000, 0..200), length in 1_usize..200) {
            let spans = || starts.iter().map(|start| *start..start + length);
            prop_assert_eq!(distinct_bytes(spans(), 64, 6000), counted_by_bits(spans(), 6000));
        }
    }

    #[test]
    fn a_long_pass_is_not_walked_through_again() {
        let options = SequenceOptions {
            pattern: Pattern::SeedOverflow,
            block_bytes: 1,
            threads: 2,
            partition: Partition::Disjoint,
            seed: 1,
        };
        let partitioning = Partitioning::new(&options, 1 << 23, 4096);
        assert!(distinct_of(&options, &partitioning, &[1000, 1000]).is_some());
        assert_eq!(distinct_of(&options, &partitioning, &[MOST_BLOCKS, 1]), None);
    }

    #[test]
    fn a_byte_visited_twice_counts_once() {
        assert_eq!(counted_by_bits([0..3, 2..5, 2..5].into_iter(), 10), 5);
    }
}
