//! Which bytes a plan visits, found by walking through its order without reading any.

use crate::arguments::Plan;
use crate::route::{Map, Partition};
use crate::source;
use contract::page::page_bytes;
use contract::{line, Failure};
use serde_json::json;
use std::ops::Range;

/// Below this length of a block a bit for every byte takes less memory than a list of the blocks.
const BITMAP_BLOCK_BYTES: usize = 64;

/// Walks through the first pass of the plan and prints what it found.
///
/// # Errors
/// When a byte would be visited twice or never, or the file is not there.
pub fn self_test(plan: &Plan) -> Result<(), Failure> {
    let size_bytes = source::size_of(&plan.file, plan.size_bytes)?;
    let map = Map::new(plan, size_bytes, page_bytes());
    let spans = || (0..plan.threads).flat_map(|thread| map.route(plan, thread, 0));
    let (blocks, bytes) = spans().fold((0_u64, 0_u64), |(n, sum), span| (n + 1, sum + span.len() as u64));
    let distinct = distinct_bytes(spans(), plan.block_bytes, size_bytes);
    let ok = distinct == size_bytes as u64 && bytes == distinct;
    line::print(
        &json!({"type": "self_test", "blocks": blocks, "bytes": bytes, "distinct_bytes": distinct, "ok": ok}),
    )?;
    ok.then_some(())
        .ok_or_else(|| Failure::Failed(format!("only {distinct} of {size_bytes} bytes would be visited")))
}

/// Whether each byte is visited once at most, by construction.
#[must_use]
pub fn is_once_each(plan: &Plan) -> bool {
    plan.pattern.visits_all() && (plan.partition == Partition::Disjoint || plan.threads == 1)
}

/// How many bytes the first pass has visited, where thread n has done `blocks[n]` blocks of its route.
#[must_use]
pub fn distinct_of(plan: &Plan, map: &Map, blocks: &[u64]) -> u64 {
    let done = |thread: usize| usize::try_from(blocks[thread]).unwrap_or(usize::MAX);
    let spans = (0..blocks.len()).flat_map(|thread| map.route(plan, thread, 0).take(done(thread)));
    distinct_bytes(spans, plan.block_bytes, map.size_bytes())
}

fn distinct_bytes(spans: impl Iterator<Item = Range<usize>>, block_bytes: usize, size_bytes: usize) -> u64 {
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
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn both_ways_of_counting_agree(starts in prop::collection::vec(0_usize..5000, 0..200), length in 1_usize..200) {
            let spans = || starts.iter().map(|start| *start..start + length);
            prop_assert_eq!(distinct_bytes(spans(), 64, 6000), counted_by_bits(spans(), 6000));
        }
    }

    #[test]
    fn a_byte_visited_twice_counts_once() {
        assert_eq!(counted_by_bits([0..3, 2..5, 2..5].into_iter(), 10), 5);
    }
}
